//! `glasscache set`: stores a value from the command line or from stdin.

use std::io::Read;

use glasscache_client::StoreMode;
use glasscache_client::request::Item;
use glasscache_client::write_outcome::WriteOutcome;
use serde_json::json;

use crate::output::{Exit, Failure, Output};
use crate::target::{Target, failure, wire_key};

const EXAMPLES: &str = "\
Examples:
  glasscache set greeting hello
  glasscache set page --ttl 60 < page.html   the value from stdin
  glasscache set lock me --add               only if it is not there";

/// Store a value.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Key to store under
    key: String,
    /// Value; left out or "-", it is read from stdin
    value: Option<String>,
    /// Seconds to live; 0 is for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    ttl: u32,
    /// The 32 bits that belong to the client
    #[arg(long, default_value_t = 0)]
    flags: u32,
    /// Store only if the key is not there
    #[arg(long, conflicts_with = "replace")]
    add: bool,
    /// Store only if the key is there
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    target: Target,
}

impl Args {
    /// Stores the value and prints whether the condition held.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let body = match self.value.as_deref() {
            Some(text) if text != "-" => text.as_bytes().to_vec(),
            _ => {
                let mut bytes = Vec::new();
                let read_result = std::io::stdin().lock().read_to_end(&mut bytes);
                read_result
                    .map_err(|error| Failure::usage(format!("cannot read stdin: {error}")))?;
                bytes
            }
        };
        let store_mode = match (self.add, self.replace) {
            (true, _) => StoreMode::Add,
            (_, true) => StoreMode::Replace,
            _ => StoreMode::Set,
        };
        let item = Item { key: wire_key(&self.key)?, flags: self.flags, body: &body };
        let client = self.target.client()?;
        let outcome = client.store(
            store_mode,
            item,
            compute_exptime(self.ttl)?,
            false,
            &self.target.budget(),
        );
        let is_stored = outcome.map_err(|error| failure(&error))? == WriteOutcome::Done;
        if out.is_json() {
            out.set_result(&json!({ "key": self.key, "stored": is_stored, "bytes": body.len() }));
        } else {
            out.print_line(if is_stored { "stored" } else { "not stored" })?;
        }
        Ok(if is_stored { Exit::Success } else { Exit::Finding })
    }
}

/// The exptime on the wire: above 30 days the protocol requires a Unix time.
fn compute_exptime(ttl_s: u32) -> Result<i64, Failure> {
    const THIRTY_DAYS_S: u32 = 60 * 60 * 24 * 30;
    if ttl_s <= THIRTY_DAYS_S {
        return Ok(i64::from(ttl_s));
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_err(|_| Failure::usage("--ttl: the clock of this machine is before 1970"))?;
    Ok(now.as_secs() as i64 + i64::from(ttl_s))
}
