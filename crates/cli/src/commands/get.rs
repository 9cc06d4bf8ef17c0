//! `glasscache get`: the values of keys, as they are, on stdout.

use serde_json::json;

use super::target::{Target, failure, wire_key};
use crate::output::{Exit, Failure, Output};

const EXAMPLES: &str = "\
Examples:
  glasscache get greeting
  glasscache get page > page.html        the bytes as they are
  glasscache get a b c --json            one row a key; null is a miss

The exit code is 1 when a key is not there.";

/// Print the values of keys.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Keys to read
    #[arg(required = true)]
    keys: Vec<String>,
    #[command(flatten)]
    target: Target,
}

impl Args {
    /// Prints each value that is there.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        out.list();
        let client = self.target.client()?;
        let mut exit = Exit::Success;
        for key in &self.keys {
            let found = client.get(wire_key(key)?, out.is_json(), &self.target.budget());
            let found = found.map_err(|error| failure(&error))?;
            if found.is_none() {
                exit = Exit::Finding;
                if !out.is_json() {
                    eprintln!("glasscache: {key}: not there");
                }
            }
            if out.is_json() {
                let value = found
                    .as_ref()
                    .map(|value| String::from_utf8_lossy(&value.bytes));
                out.row(&json!({
                    "key": key,
                    "value": value,
                    "bytes": found.as_ref().map(|value| value.bytes.len()),
                    "flags": found.as_ref().map(|value| value.flags),
                    "cas": found.as_ref().map(|value| value.cas),
                }))?;
            } else if let Some(value) = found {
                out.bytes(&value.bytes)?;
                if out.is_terminal() {
                    out.line("")?;
                }
            }
        }
        Ok(exit)
    }
}
