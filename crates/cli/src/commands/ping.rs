//! `glasscache ping`: whether each server responds, with its version and response time.
//!
//! A server that wants a login or TLS counts as alive: a health check needs neither a password nor a certificate.

use std::time::Instant;

use glasscache_client::Address;
use glasscache_client::pipeline::Reply;
use glasscache_client::request::Request;
use glasscache_lab::access::{Credentials, ProbeError, Protocol};
use glasscache_lab::target::Target as LiveServer;
use serde_json::json;

use crate::access::find_access;
use crate::output::{Exit, Failure, Output};
use crate::target::{Target, failure, is_login_required};

const EXAMPLES: &str = "\
Examples:
  glasscache ping
  glasscache ping 10.0.0.5:11211
  glasscache ping -s 10.0.0.5:11211 --timeout-ms 100 || echo down";

/// Ask each server for its version.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Server as host:port or path of a unix socket, several by comma, instead of --server
    #[arg(value_name = "SERVER")]
    positional_server: Option<String>,
    /// Fail where the server wants a login and none was given
    #[arg(long)]
    login: bool,
    #[command(flatten)]
    target: Target,
}

/// Whether a server replies to a plain request with an alert of TLS.
fn encrypts(server: &str) -> bool {
    let access = find_access(server, Protocol::Text, &Credentials::default());
    access.is_ok_and(|access| matches!(LiveServer::open(server, access), Err(ProbeError::TlsAlert)))
}

impl Args {
    /// Prints one line for each server that responds; fails if any does not.
    pub(crate) fn run(mut self, out: &Output) -> Result<Exit, Failure> {
        self.target.use_positional(self.positional_server.take());
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
        let replies = client
            .request_all(Request::Version, &self.target.budget())
            .map_err(|error| failure(&error))?;
        let took_ms = started.elapsed().as_secs_f64() * 1000.0;
        for (server, reply) in replies {
            let version = match reply {
                Ok(Reply::Version(version)) => Ok(version),
                Err(error) if is_login_required(&error) && !self.login => Err("wants a login"),
                Err(_) if !self.target.access.has_tls() && encrypts(&server) => {
                    Err("encrypts (--tls)")
                }
                Ok(_) => {
                    return Err(Failure::new(Exit::BadData, format!("{server} sent no version")));
                }
                Err(error) => return Err(failure(&error)),
            };
            if out.is_json() {
                let version = version.ok();
                let row = json!({ "server": server, "version": version, "took_ms": took_ms });
                out.print_row(&row)?;
            } else {
                let version = version.unwrap_or_else(|wish| format!("responds and {wish},"));
                out.print_line(format!("{server} {version} {took_ms:.2} ms"))?;
            }
        }
        Ok(())
    }
}
