//! A server that is ready to start: everything that can fail for want of memory, addresses or files has succeeded.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use glasscache_store::Store;
use rustix::process::geteuid;

use crate::http::{self, HttpSocket};
use crate::net::connection::{InheritedInfo, InheritedState};
use crate::net::listener::{self, BoundSocket};
use crate::shared::address::Address;
use crate::shared::cancellation::Cancellation;
use crate::shared::cluster::Cluster;
use crate::shared::config::{Config, random_seed};
use crate::shared::control_channel::ControlChannel;
use crate::shared::error::Error;
use crate::shared::http_token::HttpToken;
use crate::shared::log_output::LogFile;
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
    pub(crate) http_token: Option<HttpToken>,
}

impl PreparedParts {
    /// What will go wrong later: files that SIGHUP reads again and that the user that the process now is cannot read,
    /// and a certificate that ends soon.
    pub(crate) fn list_warnings(&self) -> Vec<String> {
        let config = &self.config;
        let read_again = [
            Logins::new(config.users.as_ref()).err(),
            Tls::new(config.tls.as_ref(), &config.listeners).err(),
            config.http.token_file.as_deref().and_then(|path| HttpToken::read(path).err()),
        ];
        let user_id = geteuid().as_raw();
        let warn_about = |error: Error| {
            format!(
                "{error}; it was read before the server became the user {user_id}, and SIGHUP cannot reload it: make it \
                 readable for that user"
            )
        };
        let certificate_warning = self.tls.as_ref().and_then(Tls::expiry_warning);
        read_again.into_iter().flatten().map(warn_about).chain(certificate_warning).collect()
    }
}

/// A server that has bound its sockets and allocated its memory and does not accept yet, so that its process can
/// still drop privileges. A unix socket that it bound stays if it is dropped.
pub struct PreparedServer {
    pub(crate) parts: PreparedParts,
    pub(crate) bound_sockets: Vec<BoundSocket>,
    pub(crate) http_sockets: Vec<HttpSocket>,
    pub(crate) memory_file: Option<MemoryFile>,
    pub(crate) prepared_store: PreparedStore,
    /// What it has from a running server, which pauses.
    pub(crate) inheritance: Option<Inheritance>,
    pub(crate) warnings: Vec<String>,
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
    http_sockets: Vec<HttpSocket>,
    memory: BoundMemory,
}

/// Where the items of a server will be.
enum BoundMemory {
    Mapped(PreparedStore),
    /// In the file of this name, which is not open yet.
    File(PathBuf),
}

/// Checks the settings and reads the files that they name: all that can fail before anything is bound or made.
///
/// # Errors
/// An invalid setting, a file of users or a certificate that cannot be used, a memory that no store can have.
pub fn check(config: Config) -> Result<CheckedServer, Error> {
    let parts = prepare_parts(config)?;
    Store::file_bytes(&store_config(&parts.config, &parts.slab_classes))?;
    Ok(CheckedServer { parts })
}

/// A server whose settings can be used, as far as the user who starts it can know.
pub struct CheckedServer {
    parts: PreparedParts,
}

impl CheckedServer {
    /// Binds the ports, and maps the memory unless it is in a file.
    ///
    /// # Errors
    /// An address in use, no memory for the store.
    pub fn bind(self) -> Result<BoundServer, Error> {
        let parts = self.parts;
        let config = &parts.config;
        let bound_ports = listener::bind_ports(config)?;
        let http_sockets = HttpSocket::bind_all(&config.http)?;
        let memory = if let Some(path) = &config.memory_file {
            BoundMemory::File(path.clone())
        } else {
            let store = Store::new(store_config(config, &parts.slab_classes))?;
            BoundMemory::Mapped(PreparedStore::empty(store, String::new()))
        };
        Ok(BoundServer { parts, bound_ports, http_sockets, memory })
    }

    /// Checks what the server will read or make as the user that the process now is, without making anything. Returns
    /// warnings.
    ///
    /// # Errors
    /// A file that cannot be read, a memory file or a unix socket that cannot be made.
    pub fn check_as_user(&self) -> Result<Vec<String>, Error> {
        let config = &self.parts.config;
        Cluster::new(config.cluster_file.as_deref())?;
        for listen in &config.listeners {
            listener::check_unix_socket(listen)?;
        }
        if let Some(path) = &config.log_file {
            LogFile::check(path).map_err(|error| Error::LogFile(path.clone(), error))?;
        }
        let mut warnings = self.parts.list_warnings();
        if let Some(path) = &config.memory_file {
            let store_config = store_config(config, &self.parts.slab_classes);
            warnings.extend(MemoryFile::check(path, Store::file_bytes(&store_config)?)?);
        }
        Ok(warnings)
    }
}

/// [`check`] and [`CheckedServer::bind`].
///
/// # Errors
/// Those of the two.
pub fn bind(config: Config) -> Result<BoundServer, Error> {
    check(config)?.bind()
}

impl BoundServer {
    /// Binds the unix sockets as the user that the process now is, which may be another one for [`BoundServer::prepare`].
    ///
    /// # Errors
    /// A socket that cannot be made.
    pub fn bind_unix_sockets(self) -> Result<BoundServer, Error> {
        let bound_sockets = listener::bind_remaining(&self.parts.config, self.bound_ports)?;
        Ok(BoundServer { bound_ports: bound_sockets.into_iter().map(Some).collect(), ..self })
    }

    /// Binds the unix sockets and opens the memory file, as the user that the process now is.
    ///
    /// # Errors
    /// A socket that cannot be made, a memory file that cannot be used, no space for it.
    pub fn prepare(self) -> Result<PreparedServer, Error> {
        let BoundServer { parts, bound_ports, http_sockets, memory } = self;
        let bound_sockets = listener::bind_remaining(&parts.config, bound_ports)?;
        let store_config = store_config(&parts.config, &parts.slab_classes);
        let mut warnings = parts.list_warnings();
        let (memory_file, prepared_store) = match memory {
            BoundMemory::Mapped(prepared_store) => (None, prepared_store),
            BoundMemory::File(path) => match MemoryFile::make_folder(&path) {
                Ok(()) => {
                    let file = MemoryFile::open(&path)?;
                    let restore = || file.make_store(&store_config);
                    let store = http::respond_while(&http_sockets, restore)?;
                    (Some(file), store)
                }
                Err(warning) => {
                    warnings.push(warning);
                    (None, PreparedStore::empty(Store::new(store_config)?, String::new()))
                }
            },
        };
        Ok(PreparedServer {
            parts,
            bound_sockets,
            http_sockets,
            memory_file,
            prepared_store,
            inheritance: None,
            warnings,
        })
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
    config.http.check()?;
    let http_token = config.http.token_file.as_deref().map(HttpToken::read).transpose()?;
    let slab_classes = SlabClassTable::new(&config);
    Ok(PreparedParts { config, slab_classes, logins, tls, http_token })
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
        samples: true,
        slab_chunk_bytes: slab_classes.chunk_sizes().to_vec(),
    }
}

impl PreparedServer {
    /// What will go wrong later, as far as the user that the process now is can know: a sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

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
    config.check_policy()
}
