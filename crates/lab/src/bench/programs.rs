//! The programs that a benchmark compares, as options of a command line.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{Error, Peer, ServerPair};
use crate::server_process::find_memcached;

/// The programs of both sides.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Programs {
    /// The memcached to compare with [default: $MEMCACHED, or the one on the path].
    #[arg(long, value_name = "PROGRAM")]
    memcached: Option<PathBuf>,
    /// The glasscache to measure [default: this build].
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) glasscache: Option<PathBuf>,
}

impl Programs {
    /// Finds both programs, whose threads may run on any CPU; `stop` ends what is measured.
    pub(crate) fn find_servers(&self, stop: Arc<AtomicBool>) -> Result<ServerPair, Error> {
        Ok(ServerPair { is_pinned: false, ..self.find_pinned_servers(stop)? })
    }

    /// Finds both programs and assigns CPUs to them.
    pub(crate) fn find_pinned_servers(&self, stop: Arc<AtomicBool>) -> Result<ServerPair, Error> {
        let named_memcached = self.memcached.clone().filter(|path| !path.as_os_str().is_empty());
        let memcached = named_memcached.or_else(find_memcached).ok_or(Error::NoMemcached)?;
        ServerPair::new(self.glasscache.clone(), Peer::Memcached(memcached), stop)
    }
}
