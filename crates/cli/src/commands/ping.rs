//! `glasscache ping`: whether each server responds, with its version and response time.

use std::time::Instant;

use glasscache_client::pipeline::Reply;
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
        out.begin_list();
        let started = Instant::now();
        for (server, reply) in self.target.send_to_all(Request::Version)? {
            let took_ms = started.elapsed().as_secs_f64() * 1000.0;
            let Reply::Version(version) = reply else {
                return Err(Failure::new(
                    Exit::BadData,
                    format!("{server} sent no version"),
                ));
            };
            if out.is_json() {
                let row = json!({ "server": server, "version": version, "took_ms": took_ms });
                out.print_row(&row)?;
            } else {
                out.print_line(format!("{server} {version} {took_ms:.2} ms"))?;
            }
        }
        Ok(Exit::Success)
    }
}
