//! `glasscache stats`: the counters of each server, as rows or as one document.

use glasscache_client::pipeline::Answer;
use glasscache_client::request::Request;
use serde_json::{Map, Value, json};

use super::target::Target;
use crate::output::{Exit, Failure, Output};

const EXAMPLES: &str = "\
Examples:
  glasscache stats
  glasscache stats settings
  glasscache stats --json | jq .rows.curr_items

Groups: settings, items, slabs, sizes, conns, detail, and of glasscache itself: glasscache.";

/// Print a server's counters.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which group; without it the general counters
    #[arg(default_value = "")]
    group: String,
    #[command(flatten)]
    target: Target,
}

impl Args {
    /// Prints the rows of each server.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        if self.group.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(Failure::usage(format!(
                "group \"{}\": must be one word",
                self.group
            )));
        }
        let answers = self.target.ask_all(Request::Stats {
            argument: self.group.as_bytes(),
        })?;
        let many = answers.len() > 1;
        for (server, answer) in answers {
            let Answer::Rows(rows) = answer else {
                return Err(Failure::new(
                    Exit::BadData,
                    format!("{server} gave no rows"),
                ));
            };
            if out.is_json() {
                let rows: Map<String, Value> = rows
                    .into_iter()
                    .map(|(name, value)| (name, typed(value)))
                    .collect();
                out.document(
                    &json!({ "schema": 1, "server": server, "group": self.group, "rows": rows }),
                )?;
                continue;
            }
            if many {
                out.line(format!("# {server}"))?;
            }
            let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            for (name, value) in rows {
                out.line(format!("{name:<width$}  {value}"))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Whole numbers as numbers, everything else as text.
fn typed(value: String) -> Value {
    value
        .parse::<i64>()
        .map_or_else(|_| Value::String(value), Value::from)
}
