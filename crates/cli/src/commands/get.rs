//! `glasscache get`: the values of keys, as they are, on stdout.

use serde_json::json;

use crate::output::{Exit, Failure, Output};
use crate::target::{Target, failure, wire_key};

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
        out.begin_list();
        let client = self.target.client()?;
        let mut exit = Exit::Success;
        for key in &self.keys {
            let value = client.get(wire_key(key)?, out.is_json(), &self.target.budget());
            let value = value.map_err(|error| failure(&error))?;
            if value.is_none() {
                exit = Exit::Finding;
                if !out.is_json() {
                    eprintln!("glasscache: {key}: not there");
                }
            }
            if out.is_json() {
                let text = value.as_ref().map(|value| String::from_utf8_lossy(&value.bytes));
                out.print_row(&json!({
                    "key": key,
                    "value": text,
                    "bytes": value.as_ref().map(|value| value.bytes.len()),
                    "flags": value.as_ref().map(|value| value.flags),
                    "cas": value.as_ref().map(|value| value.cas),
                }))?;
            } else if let Some(value) = value {
                out.print_bytes(&value.bytes)?;
                if out.is_terminal() {
                    out.print_line("")?;
                }
            }
        }
        Ok(exit)
    }
}
