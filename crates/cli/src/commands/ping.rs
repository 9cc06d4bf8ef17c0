//! `glasscache ping`: whether each server answers, with its version and how long it took.

use std::time::Instant;

use glasscache_client::pipeline::Answer;
use glasscache_client::request::Request;
use serde_json::json;

use super::target::Target;
use crate::output::{Exit, Failure, Output};

const EXAMPLES: &str = "\
Examples:
  glasscache ping
  glasscache ping -s 10.0.0.5:11211 --timeout-ms 100 || echo down";

/// Ask a server for its version.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
}

impl Args {
    /// Prints one line a server.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let begun = Instant::now();
        for (server, answer) in self.target.ask_all(Request::Version)? {
            let took_ms = begun.elapsed().as_secs_f64() * 1000.0;
            let Answer::Version(version) = answer else {
                return Err(Failure::new(
                    Exit::BadData,
                    format!("{server} gave no version"),
                ));
            };
            if out.is_json() {
                let row = json!({ "server": server, "version": version, "took_ms": took_ms });
                out.document(&row)?;
            } else {
                out.line(format!("{server} {version} {took_ms:.2} ms"))?;
            }
        }
        Ok(Exit::Done)
    }
}
