//! Benchmarks: load on any server ([`live`]), and glasscache compared with memcached on one machine.
//!
//! [`memory`] measures the user bytes per resident byte, [`misses`] the misses caused by eviction. Each returns figures;
//! [`record`] stores them with everything needed to repeat the run.

mod layout;
pub mod live;
pub mod memory;
pub mod misses;
mod programs;
pub mod record;

pub use programs::Programs;

use layout::CpuLayout;
use record::Record;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::load;
use crate::server_process::{ServerCommand, send_line};

/// `-m` of a server that only reports its version.
const VERSION_MEMORY_MIB: u64 = 64;

/// Why a benchmark could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No memcached was found to compare with.
    #[error("no memcached is on the path; install one, or name it: --memcached PROGRAM")]
    NoMemcached,
    /// A server could not be started.
    #[error("cannot start a server: {0}")]
    Start(std::io::Error),
    /// The generator failed against a server.
    #[error("{server}: {source}")]
    Load {
        /// Which server.
        server: String,
        /// What went wrong.
        source: load::Error,
    },
    /// Replies of a server were wrong: a changed value, a miss of a key that fits, or a refusal.
    #[error("{server}: {count} of the replies were wrong ({description})")]
    WrongReplies {
        /// Which server.
        server: String,
        /// How many.
        count: u64,
        /// A description.
        description: String,
    },
    /// No trace of the folder was replayed.
    #[error("no trace to replay in {}", folder.display())]
    NoTrace {
        /// The folder.
        folder: PathBuf,
        /// The traces there.
        found_names: Vec<String>,
    },
    /// A file could not be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, String),
}

impl Error {
    /// Whether the benchmark was stopped on request.
    pub const fn is_stop(&self) -> bool {
        matches!(self, Self::Load { source: load::Error::Stopped, .. })
    }

    pub(crate) fn load(server: &str) -> impl Fn(load::Error) -> Self {
        move |source| Self::Load { server: server.to_owned(), source }
    }
}

/// What a comparison with a memcached found.
#[derive(Debug)]
pub struct Comparison {
    /// The result for a terminal.
    pub text: String,
    /// The figures with their circumstances, or what ended the measurement early.
    pub record: Result<Record, Error>,
    /// Whether the forecasts, if there are any, are near enough.
    pub is_met: bool,
}

/// The server that ours is compared with.
#[derive(Debug, Clone)]
pub(crate) enum Peer {
    /// This memcached.
    Memcached(PathBuf),
    /// Another build of `glasscache`.
    Build(PathBuf),
}

/// The two servers of a benchmark and where they run.
#[derive(Debug, Clone)]
pub(crate) struct ServerPair {
    /// The `glasscache` binary.
    pub(crate) glasscache: PathBuf,
    /// The server to compare with.
    pub(crate) peer: Peer,
    /// The CPU assignment.
    pub(crate) layout: CpuLayout,
    /// Whether each worker and each generator thread is pinned to a CPU. Latencies need it; counts (memory, misses)
    /// do not, and a pinned thread starves if other processes use its CPU.
    pub(crate) is_pinned: bool,
    /// Stops the benchmark when set.
    pub(crate) stop: Arc<AtomicBool>,
}

impl ServerPair {
    /// `glasscache`, by default this program, beside `peer`, both pinned to CPUs.
    pub(crate) fn new(
        glasscache: Option<PathBuf>,
        peer: Peer,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let glasscache = glasscache.map_or_else(std::env::current_exe, Ok).map_err(Error::Start)?;
        Ok(Self { glasscache, peer, layout: CpuLayout::of_this_machine(), is_pinned: true, stop })
    }

    /// The reply of the server under test to the version command.
    pub(crate) fn request_version(&self) -> Result<String, Error> {
        let server = self.ours(VERSION_MEMORY_MIB).start().map_err(Error::Start)?;
        send_line(server.address, "version").map_err(Error::Start)
    }

    /// glasscache with `-m memory_mib`, pinned.
    pub(crate) fn ours(&self, memory_mib: u64) -> ServerCommand {
        let server_command =
            ServerCommand::glasscache(&self.glasscache, memory_mib, self.layout.server.len());
        ServerCommand { cpus: self.pinned_cpus(&self.layout.server), ..server_command }
    }

    /// The peer with `-m memory_mib`, pinned.
    pub(crate) fn theirs(&self, memory_mib: u64) -> ServerCommand {
        let workers = self.layout.server.len();
        let server_command = match &self.peer {
            Peer::Memcached(program) => ServerCommand::memcached(program, memory_mib, workers),
            Peer::Build(program) => ServerCommand {
                name: "the other build",
                ..ServerCommand::glasscache(program, memory_mib, workers)
            },
        };
        ServerCommand { cpus: self.pinned_cpus(&self.layout.server), ..server_command }
    }

    /// `cpus`, or none if threads are not pinned.
    pub(crate) fn pinned_cpus(&self, cpus: &[usize]) -> Vec<usize> {
        if self.is_pinned { cpus.to_vec() } else { Vec::new() }
    }
}
