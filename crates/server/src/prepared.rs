//! A server that is ready to start: everything that can fail for want of memory, addresses or files has succeeded.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use glasscache_store::Store;

use crate::net::connection::{InheritedInfo, InheritedState};
use crate::net::listener::{self, BoundSocket};
use crate::shared::address::Address;
use crate::shared::cancellation::Cancellation;
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

/// A server that has what may need the rights of root: its ports, the content of files that only root may read, and
/// memory. It has made no file: those are made by the user that the process has become meanwhile.
pub struct BoundServer {
    parts: PreparedParts,
    /// In the order of the settings; `None` for a unix socket.
    bound_ports: Vec<Option<BoundSocket>>,
    memory: BoundMemory,
}

/// Where the items of a server will be.
enum BoundMemory {
    Mapped(PreparedStore),
    /// In the file of this name, which is not open yet.
    File(PathBuf),
}

/// Reads the files that the settings name, binds the ports, and maps the memory unless it is in a file.
///
/// # Errors
/// An invalid setting, a file of users or a certificate that cannot be used, an address in use, no memory for the
/// store.
pub fn bind(config: Config) -> Result<BoundServer, Error> {
    let parts = prepare_parts(config)?;
    let config = &parts.config;
    let bound_ports = listener::bind_ports(config)?;
    let memory = if let Some(path) = &config.memory_file {
        BoundMemory::File(path.clone())
    } else {
        let store = Store::new(store_config(config, &parts.slab_classes))?;
        BoundMemory::Mapped(PreparedStore::empty(store, String::new()))
    };
    Ok(BoundServer { parts, bound_ports, memory })
}

impl BoundServer {
    /// Binds the unix sockets and opens the memory file, as the user that the process now is.
    ///
    /// # Errors
    /// A socket that cannot be made, a memory file that cannot be used, no space for it.
    pub fn prepare(self) -> Result<PreparedServer, Error> {
        let BoundServer { parts, bound_ports, memory } = self;
        let bound_sockets = listener::bind_remaining(&parts.config, bound_ports)?;
        let (memory_file, prepared_store) = match memory {
            BoundMemory::Mapped(prepared_store) => (None, prepared_store),
            BoundMemory::File(path) => {
                let file = MemoryFile::open(&path)?;
                let store = file.make_store(&store_config(&parts.config, &parts.slab_classes))?;
                (Some(file), store)
            }
        };
        Ok(PreparedServer { parts, bound_sockets, memory_file, prepared_store, inheritance: None })
    }
}

/// Binds the sockets and allocates the memory: [`bind`] and [`BoundServer::prepare`] by the same user.
///
/// # Errors
/// Those of the two.
pub fn prepare(config: Config) -> Result<PreparedServer, Error> {
    bind(config)?.prepare()
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
