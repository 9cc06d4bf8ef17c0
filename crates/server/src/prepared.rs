//! A server that is ready to start: everything that can fail for want of memory, addresses or files has succeeded.

use glasscache_store::Store;

use crate::net::listener::{self, BoundSocket};
use crate::shared::address::Address;
use crate::shared::classes::Classes;
use crate::shared::clock::Clock;
use crate::shared::config::{Config, random_seed};
use crate::shared::error::Error;
use crate::shared::logins::Logins;
use crate::shared::memory_file::{FileStore, MemoryFile};
use crate::shared::tls::Tls;

/// A server that has bound its sockets and allocated its memory and does not accept yet, so that its process can
/// still drop privileges. A unix socket that it bound stays if it is dropped.
pub struct PreparedServer {
    pub(crate) config: Config,
    pub(crate) bound_sockets: Vec<BoundSocket>,
    pub(crate) classes: Classes,
    pub(crate) logins: Logins,
    pub(crate) tls: Option<Tls>,
    pub(crate) memory_file: Option<MemoryFile>,
    pub(crate) memory: FileStore,
}

/// Binds and allocates.
///
/// # Errors
/// An invalid setting, a file of users, a certificate or a memory file that cannot be used, an address in use, no memory
/// for the store.
pub fn prepare(config: Config) -> Result<PreparedServer, Error> {
    check_config(&config)?;
    let logins = Logins::new(config.users.as_ref())?;
    let tls = Tls::new(config.tls.as_ref(), &config.listeners)?;
    let bound = listener::bind(&config)?;
    let classes = Classes::new(&config);
    let memory_file = config.memory_file.as_deref().map(MemoryFile::open);
    let memory_file = memory_file.transpose()?;
    let memory = make_store(&config, &classes, memory_file.as_ref())?;
    Ok(PreparedServer {
        config,
        bound_sockets: bound,
        classes,
        logins,
        tls,
        memory_file,
        memory,
    })
}

fn make_store(
    config: &Config,
    classes: &Classes,
    memory_file: Option<&MemoryFile>,
) -> Result<FileStore, Error> {
    let config = glasscache_store::Config {
        memory_bytes: config.memory_bytes,
        item_bytes_max: config.item_bytes_max,
        evict: config.evict,
        workers: config.workers,
        hash_seed: config.hash_seed.unwrap_or_else(random_seed),
        slab_chunk_bytes: classes.chunks().to_vec(),
    };
    match memory_file {
        Some(file) => file.make_store(&config),
        None => Ok(FileStore {
            store: Store::new(config)?,
            clock: Clock::start(),
            outcome: String::new(),
        }),
    }
}

impl PreparedServer {
    /// The addresses on which the server will accept, with the ports chosen by the kernel.
    pub fn addresses(&self) -> Vec<Address> {
        self.bound_sockets
            .iter()
            .map(|bound| bound.descriptor_and_address().1)
            .collect()
    }
}

fn check_config(config: &Config) -> Result<(), Error> {
    if config.workers == 0 {
        return Err(Error::Setting(
            "threads must be at least 1, not 0 (-t)".to_owned(),
        ));
    }
    if config.connections_max == 0 {
        return Err(Error::Setting(
            "connections must be at least 1, not 0 (-c)".to_owned(),
        ));
    }
    Ok(())
}
