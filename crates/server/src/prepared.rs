//! A server that is ready to start: everything that can fail for want of memory, addresses or files has succeeded.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use glasscache_store::Store;

use crate::net::connection::{InheritedInfo, InheritedState};
use crate::net::listener::{self, BoundSocket};
use crate::shared::address::Address;
use crate::shared::cancellation::Cancellation;
use crate::shared::clock::Clock;
use crate::shared::config::{Config, random_seed};
use crate::shared::control_channel::ControlChannel;
use crate::shared::error::Error;
use crate::shared::logins::Logins;
use crate::shared::memory_file::{MemoryFile, PreparedStore};
use crate::shared::slab_classes::SlabClassTable;
use crate::shared::tls::Tls;

/// What a server needs besides sockets and memory.
pub(crate) struct PreparedParts {
    pub(crate) config: Config,
    pub(crate) slab_classes: SlabClassTable,
    pub(crate) logins: Logins,
    pub(crate) tls: Option<Tls>,
}

/// A server that has bound its sockets and allocated its memory and does not accept yet, so that its process can
/// still drop privileges. A unix socket that it bound stays if it is dropped.
pub struct PreparedServer {
    pub(crate) parts: PreparedParts,
    pub(crate) bound_sockets: Vec<BoundSocket>,
    pub(crate) memory_file: Option<MemoryFile>,
    pub(crate) prepared_store: PreparedStore,
    /// What it has from a running server, which pauses.
    pub(crate) inheritance: Option<Inheritance>,
}

/// What a server has from the one that it replaces.
pub(crate) struct Inheritance {
    pub(crate) channel: Arc<ControlChannel>,
    pub(crate) cancellation: Cancellation,
    /// The socket on which the next successor connects.
    pub(crate) control_socket: OwnedFd,
    pub(crate) connections: Vec<InheritedConnection>,
}

/// A connection that the replaced server accepted.
pub(crate) struct InheritedConnection {
    pub(crate) socket: OwnedFd,
    pub(crate) state: InheritedState,
    pub(crate) info: InheritedInfo,
}

/// Binds the sockets and allocates the memory.
///
/// # Errors
/// An invalid setting, a file of users, a certificate or a memory file that cannot be used, an address in use, no memory
/// for the store.
pub fn prepare(config: Config) -> Result<PreparedServer, Error> {
    let parts = prepare_parts(config)?;
    let config = &parts.config;
    let bound_sockets = listener::bind_all(config)?;
    let memory_file = config.memory_file.as_deref().map(MemoryFile::open);
    let memory_file = memory_file.transpose()?;
    let prepared_store = make_store(config, &parts.slab_classes, memory_file.as_ref())?;
    Ok(PreparedServer { parts, bound_sockets, memory_file, prepared_store, inheritance: None })
}

/// Checks settings and reads the files that they name.
pub(crate) fn prepare_parts(config: Config) -> Result<PreparedParts, Error> {
    check_config(&config)?;
    let logins = Logins::new(config.users.as_ref())?;
    let tls = Tls::new(config.tls.as_ref(), &config.listeners)?;
    let slab_classes = SlabClassTable::new(&config);
    Ok(PreparedParts { config, slab_classes, logins, tls })
}

/// The settings of the store.
pub(crate) fn store_config(
    config: &Config,
    slab_classes: &SlabClassTable,
) -> glasscache_store::Config {
    glasscache_store::Config {
        memory_bytes: config.memory_bytes,
        item_bytes_max: config.item_bytes_max,
        evict: config.evict,
        workers: config.workers,
        hash_seed: config.hash_seed.unwrap_or_else(random_seed),
        slab_chunk_bytes: slab_classes.chunk_sizes().to_vec(),
    }
}

fn make_store(
    config: &Config,
    slab_classes: &SlabClassTable,
    memory_file: Option<&MemoryFile>,
) -> Result<PreparedStore, Error> {
    let store_config = store_config(config, slab_classes);
    match memory_file {
        Some(file) => file.make_store(&store_config),
        None => Ok(PreparedStore {
            store: Store::new(store_config)?,
            clock: Clock::start(),
            recovery_message: String::new(),
        }),
    }
}

impl PreparedServer {
    /// The addresses on which the server will accept, with the ports chosen by the kernel.
    pub fn addresses(&self) -> Vec<Address> {
        self.bound_sockets.iter().map(|bound| bound.descriptor_and_address().1).collect()
    }
}

fn check_config(config: &Config) -> Result<(), Error> {
    if config.workers == 0 {
        return Err(Error::Setting("threads must be at least 1, not 0 (-t)".to_owned()));
    }
    if config.connections_max == 0 {
        return Err(Error::Setting("connections must be at least 1, not 0 (-c)".to_owned()));
    }
    Ok(())
}
