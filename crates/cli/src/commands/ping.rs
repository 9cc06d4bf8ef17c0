//! `glasscache ping`: whether each server responds, with its version and response time.

use std::time::Instant;

use glasscache_client::Address;
use glasscache_client::pipeline::Reply;
use glasscache_client::request::Request;
use serde_json::json;

use super::target::{Target, send_to_servers_of};
use crate::output::{Exit, Failure, Output};

const EXAMPLES: &str = "\
Examples:
  glasscache ping
  glasscache ping -s 10.0.0.5:11211 --timeout-ms 100 || echo down";

/// Ask each server for its version.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
}

impl Args {
    /// Prints one line for each server that responds; fails if any does not.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let addresses = self.target.addresses()?;
        out.begin_list();
        let mut failures = Vec::new();
        for address in addresses {
            if let Err(failure) = self.ping(address, out) {
                failures.push(failure);
            }
        }
        Failure::join(failures).map_or(Ok(Exit::Success), Err)
    }

    /// Prints the line of one server, which has the whole `--timeout-ms` to respond.
    fn ping(&self, address: Address, out: &Output) -> Result<(), Failure> {
        let client = self.target.client_of(&[address])?;
        let started = Instant::now();
        let replies = send_to_servers_of(&client, Request::Version, &self.target.budget())?;
        let took_ms = started.elapsed().as_secs_f64() * 1000.0;
        for (server, reply) in replies {
            let Reply::Version(version) = reply else {
                return Err(Failure::new(Exit::BadData, format!("{server} sent no version")));
            };
            if out.is_json() {
                let row = json!({ "server": server, "version": version, "took_ms": took_ms });
                out.print_row(&row)?;
            } else {
                out.print_line(format!("{server} {version} {took_ms:.2} ms"))?;
            }
        }
        Ok(())
    }
}
