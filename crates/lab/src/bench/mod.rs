//! Benchmarks: glasscache beside a memcached, in interleaved rounds on one machine.
//!
//! [`speed`] asks what a request costs, [`memory`] how many user bytes a resident byte holds, [`misses`] what
//! eviction loses, [`builds`] what a change of our own costs. Each returns figures; [`record`] keeps them with everything needed to repeat the run.

pub mod beside;
pub mod bounds;
pub mod builds;
pub mod layout;
pub mod memory;
pub mod misses;
pub mod paired;
pub mod record;
pub mod scenario;
pub mod speed;

pub use layout::Layout;
pub use paired::{Interval, Spread};
pub use scenario::{Beside, Demand, Scenario, Versus};

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::load;
use crate::target::Spawn;

/// Why a benchmark could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
    /// A server lost or changed values although nothing allowed it to.
    #[error("{server}: {count} of the answers were wrong ({what})")]
    Wrong {
        /// Which server.
        server: String,
        /// How many.
        count: u64,
        /// In which way.
        what: String,
    },
    /// A file could not be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, String),
}

impl Error {
    /// Whether somebody asked for this end.
    pub const fn is_stop(&self) -> bool {
        matches!(
            self,
            Self::Load {
                source: load::Error::Stopped,
                ..
            }
        )
    }

    fn load(server: &str) -> impl Fn(load::Error) -> Self {
        move |source| Self::Load {
            server: server.to_owned(),
            source,
        }
    }
}

/// The server that ours is compared with.
#[derive(Debug, Clone)]
pub enum Peer {
    /// This memcached.
    Memcached(PathBuf),
    /// Another build of `glasscache`.
    Build(PathBuf),
}

/// The two servers of a benchmark and where they run.
#[derive(Debug, Clone)]
pub struct Sides {
    /// The `glasscache` binary.
    pub glasscache: PathBuf,
    /// The server to compare with.
    pub peer: Peer,
    /// Who runs where.
    pub layout: Layout,
    /// Each worker and each generator thread keeps its CPU. Times need it; counts (memory, misses) do not, and
    /// a thread that may not move starves beside other work.
    pub is_pinned: bool,
    /// Set by whoever wants the benchmark to stop.
    pub stop: Arc<AtomicBool>,
}

impl Sides {
    /// glasscache with `-m memory_mib`, pinned.
    pub fn ours(&self, memory_mib: u64) -> Spawn {
        let spawn = Spawn::glasscache(&self.glasscache, memory_mib, self.layout.server.len());
        Spawn {
            cpus: self.pins(&self.layout.server),
            ..spawn
        }
    }

    /// The peer with `-m memory_mib`, pinned.
    pub fn theirs(&self, memory_mib: u64) -> Spawn {
        let workers = self.layout.server.len();
        let spawn = match &self.peer {
            Peer::Memcached(program) => Spawn::memcached(program, memory_mib, workers),
            Peer::Build(program) => Spawn {
                name: "the other build",
                ..Spawn::glasscache(program, memory_mib, workers)
            },
        };
        Spawn {
            cpus: self.pins(&self.layout.server),
            ..spawn
        }
    }

    /// `cpus`, or none where nothing is pinned.
    fn pins(&self, cpus: &[usize]) -> Vec<usize> {
        if self.is_pinned {
            cpus.to_vec()
        } else {
            Vec::new()
        }
    }
}
