//! `glasscache delete`: removes keys.

use serde_json::json;

use crate::output::{Exit, Failure, Output};
use crate::target::{Target, failure, wire_key};

const EXAMPLES: &str = "\
Examples:
  glasscache delete greeting
  glasscache delete a b c -s cache1:11211,cache2:11211

The exit code is 1 when a key was not there.";

/// Remove keys.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Keys to remove
    #[arg(required = true)]
    keys: Vec<String>,
    #[command(flatten)]
    target: Target,
}

impl Args {
    /// Removes each key and prints whether it was found.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        out.begin_list();
        let client = self.target.client()?;
        let mut exit = Exit::Success;
        for key in &self.keys {
            let deleted = client.delete(wire_key(key)?, false, &self.target.budget());
            let deleted = deleted.map_err(|error| failure(&error))?;
            if !deleted {
                exit = Exit::Finding;
            }
            if out.is_json() {
                out.print_row(&json!({ "key": key, "deleted": deleted }))?;
            } else if deleted {
                out.print_line(format!("{key}: deleted"))?;
            } else {
                eprintln!("glasscache: {key}: not there");
            }
        }
        Ok(exit)
    }
}
