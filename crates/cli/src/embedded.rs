//! A server of ours inside this process, for commands that measure one and were given none.

use std::net::SocketAddr;

use glasscache_lab::proc::Meter;
use glasscache_server::{Address, Config, Listen, RunningServer};

use crate::output::{Exit, Failure};

/// A server that listens on a free port of 127.0.0.1.
pub(crate) struct EmbeddedServer {
    pub running: RunningServer,
    pub address: SocketAddr,
    /// The CPU time of its threads.
    pub meter: Meter,
}

impl EmbeddedServer {
    pub(crate) fn start(memory_bytes: u64, workers: usize) -> Result<EmbeddedServer, Failure> {
        let to_unreachable_failure = |message: String| Failure::new(Exit::Unreachable, message);
        let config = Config {
            listeners: vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))],
            memory_bytes,
            workers,
            ..Config::default()
        };
        let running = glasscache_server::start(config)
            .map_err(|error| to_unreachable_failure(error.to_string()))?;
        let addresses = running.addresses();
        let address = addresses.iter().find_map(|address| match address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        });
        let address = address.ok_or_else(|| {
            to_unreachable_failure("the embedded server does not listen".to_owned())
        })?;
        let thread_ids = running.thread_ids().iter();
        let meter = Meter::Threads(thread_ids.map(|tid| tid.unsigned_abs()).collect());
        Ok(EmbeddedServer { running, address, meter })
    }
}
