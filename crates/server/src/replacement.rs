//! A server that takes the place of a running one: `serve --replace`.
//!
//! It prepares all that needs no memory, requests the sockets and the memory of the running server, and maps that; only
//! then the other one pauses. Whatever fails before the last message leaves the other one as it was.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use glasscache_store::{MappedMemory, MemoryHandover, MemorySize, Store};
use rustix::net::SocketAddrUnix;

use crate::http::HttpSocket;
use crate::net::connection::{InheritedState, LoginRules};
use crate::net::listener::{self, BoundSocket};
use crate::prepared::{
    Inheritance, InheritedConnection, PreparedParts, PreparedServer, prepare_parts, store_config,
};
use crate::shared::address::Address;
use crate::shared::cancellation::Cancellation;
use crate::shared::clock::Clock;
use crate::shared::config::{Config, Listen};
use crate::shared::control_channel::{
    CONTROL_VERSION, ControlChannel, Frame, FrameKind, HANDOVER_STEP_TIME_MAX, control_path,
};
use crate::shared::error::Error;
use crate::shared::fields::{FieldReader, FieldWriter};
use crate::shared::memory_file::{MemoryFile, PreparedStore};

/// How long the running server may take for one step.
const STEP_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the running server may take to reply or end after the commit was sent to it.
const COMMIT_TIME_MAX: Duration = Duration::from_mins(10);

/// What counting an item again takes: twice what was measured (docs/decisions/operation.md, 0101), as the machine may
/// be busy.
const RECOUNT_TIME_PER_ITEM: Duration = Duration::from_nanos(125);
/// The maximum for all of them: the running server gives up a step after that time, and there is more to do in it.
const RECOUNT_TIME_MAX: Duration = HANDOVER_STEP_TIME_MAX.saturating_sub(Duration::from_secs(1));

/// A server that can take the place of a running one, and has read its settings.
pub struct PreparedReplacement {
    parts: PreparedParts,
    cancellation: Cancellation,
}

/// A replacement that has the sockets of the running server and has mapped its memory, while that server still serves.
pub struct ConnectedReplacement {
    parts: PreparedParts,
    cancellation: Cancellation,
    channel: Arc<ControlChannel>,
    control_socket: OwnedFd,
    bound_sockets: Vec<BoundSocket>,
    http_sockets: Vec<HttpSocket>,
    /// For each listening socket of the running server, which of the bound ones it is.
    adopted_listeners: Vec<Option<usize>>,
    replacement_memory: ReplacementMemory,
    login_rules: LoginRules,
}

/// Reads and checks what needs no memory and no sockets.
///
/// # Errors
/// As [`crate::prepare`]; or there is no memory file.
pub fn prepare_replacement(config: Config) -> Result<PreparedReplacement, Error> {
    if config.memory_file.is_none() {
        let reason = "replace (--replace): no memory file is set; add -e FILE, with which the running server was started";
        return Err(Error::Setting(reason.to_owned()));
    }
    let parts = prepare_parts(config)?;
    Ok(PreparedReplacement { parts, cancellation: Cancellation::default() })
}

impl PreparedReplacement {
    /// As [`PreparedServer::warnings`]: a server that takes over reports them here.
    pub fn warnings(&self) -> Vec<String> {
        self.parts.list_warnings()
    }

    /// Gives it up from another thread.
    pub fn cancellation(&self) -> Cancellation {
        self.cancellation.clone()
    }

    /// Gets the sockets and the memory of the running server, binds what that does not have, and maps the memory.
    ///
    /// # Errors
    /// No server runs with the memory file, it refuses, something it has cannot be used, or this was cancelled.
    pub fn connect(self) -> Result<ConnectedReplacement, Error> {
        let cancellation = self.cancellation.clone();
        replace_error_if_cancelled(&cancellation, self.connect_to_server())
    }

    fn connect_to_server(self) -> Result<ConnectedReplacement, Error> {
        let PreparedReplacement { parts, cancellation } = self;
        let path = parts.config.memory_file.clone().unwrap_or_default();
        let channel = Arc::new(open_channel(&path)?);
        cancellation.shut_down_when_cancelled(&channel);
        let (offer, mut descriptors) = exchange_hello(&channel, &parts.config)?;
        if descriptors.len() < 2 {
            return Err(replacement_error("the running server sent no sockets"));
        }
        let listening_sockets = descriptors.split_off(2);
        let (Some(control_socket), Some(memory_descriptor)) =
            (descriptors.pop(), descriptors.pop())
        else {
            return Err(replacement_error("the running server sent no sockets"));
        };
        let AdoptedSockets { bound_sockets, http_sockets, adopted_listeners } =
            adopt_listeners(&parts.config, listening_sockets)?;
        let replacement_memory =
            ReplacementMemory::prepare(&path, &parts, memory_descriptor, &offer)?;
        let login_rules = LoginRules {
            requires_login: parts.logins.are_required(),
            previous_required_login: offer.required_login,
            protocols: parts.config.protocol,
        };
        Ok(ConnectedReplacement {
            parts,
            cancellation,
            channel,
            control_socket,
            bound_sockets,
            http_sockets,
            adopted_listeners,
            replacement_memory,
            login_rules,
        })
    }
}

impl ConnectedReplacement {
    /// Gets the connections of the running server, which pauses, and continues unless the returned server is started.
    ///
    /// # Errors
    /// The running server refuses or ends, or this was cancelled.
    pub fn take_over(self) -> Result<PreparedServer, Error> {
        let cancellation = self.cancellation.clone();
        replace_error_if_cancelled(&cancellation, self.receive_handover())
    }

    fn receive_handover(self) -> Result<PreparedServer, Error> {
        let ConnectedReplacement {
            parts,
            cancellation,
            channel,
            control_socket,
            bound_sockets,
            http_sockets,
            adopted_listeners,
            replacement_memory,
            login_rules,
        } = self;
        send(&channel, FrameKind::Ready, &[])?;
        let (connections, memory_frame) = receive_connections_and_memory(
            &channel,
            login_rules,
            &adopted_listeners,
            &bound_sockets,
        )?;
        let (memory_file, prepared_store) = replacement_memory.into_store(&parts, &memory_frame)?;
        Ok(PreparedServer {
            parts,
            bound_sockets,
            http_sockets,
            memory_file: Some(memory_file),
            prepared_store,
            inheritance: Some(Inheritance { channel, cancellation, control_socket, connections }),
            warnings: Vec::new(),
        })
    }
}

/// The outcome of a step, or that it was cancelled, which makes every step fail in some way.
fn replace_error_if_cancelled<T>(
    cancellation: &Cancellation,
    outcome: Result<T, Error>,
) -> Result<T, Error> {
    outcome.map_err(|error| {
        if cancellation.is_cancelled() { replacement_error("it was cancelled") } else { error }
    })
}

/// Notifies the running server that this one can serve, and waits until the running one has released everything.
pub(crate) fn commit(channel: &ControlChannel, cancellation: &Cancellation) -> Result<(), Error> {
    if !cancellation.begin_commit() {
        return Err(replacement_error("it was cancelled"));
    }
    send(channel, FrameKind::Commit, &[])?;
    // Whether it has released everything is known only from its reply or its end.
    let frame = channel.receive_within(COMMIT_TIME_MAX).map_err(replacement_error)?;
    match check_not_refused(frame)?.kind {
        FrameKind::Committed => Ok(()),
        _ => Err(malformed_frame_error()),
    }
}

fn replacement_error(reason: impl std::fmt::Display) -> Error {
    Error::Replace(format!("{reason}; the running server goes on"))
}

fn open_channel(memory_file: &Path) -> Result<ControlChannel, Error> {
    let socket_path = control_path(memory_file);
    ControlChannel::connect(&socket_path, STEP_TIME_MAX).map_err(|error| {
        Error::Replace(format!(
            "no server can be reached at {}: {error}; run this as the user of that server, or start the first one without --replace",
            socket_path.display()
        ))
    })
}

/// The settings and state that the running server reports.
struct Offer {
    /// Of the layout of its memory.
    layout_version: u64,
    size: MemorySize,
    required_login: bool,
    /// Its items and its slab classes; `None` if it has an earlier version.
    items: Option<(u64, Vec<u32>)>,
}

fn exchange_hello(
    channel: &ControlChannel,
    config: &Config,
) -> Result<(Offer, Vec<OwnedFd>), Error> {
    let mut hello = FieldWriter::default();
    hello.u32(CONTROL_VERSION);
    hello.u64(u64::from(config.drain_s) * 1000);
    send(channel, FrameKind::Hello, &hello.0)?;
    let frame = receive(channel)?;
    let mut fields = FieldReader(&frame.body);
    let mut read_offer = || {
        Some(Offer {
            layout_version: fields.u64()?,
            size: MemorySize { memory_bytes: fields.u64()?, segments: fields.u64()? },
            required_login: fields.bool()?,
            items: read_items(&mut fields),
        })
    };
    match (frame.kind, read_offer()) {
        (FrameKind::Offer, Some(offer)) => Ok((offer, frame.descriptors)),
        _ => Err(malformed_frame_error()),
    }
}

fn read_items(fields: &mut FieldReader<'_>) -> Option<(u64, Vec<u32>)> {
    let (item_count, class_count) = (fields.u64()?, fields.u32()?);
    let slab_chunk_bytes = (0..class_count).map(|_| fields.u32()).collect::<Option<_>>()?;
    Some((item_count, slab_chunk_bytes))
}

/// Refuses a handover in which so many items would have to be counted again that the running server would give up: it
/// would only have paused.
fn check_recount_time(offer: &Offer, config: &glasscache_store::Config) -> Result<(), Error> {
    let Some((item_count, slab_chunk_bytes)) = &offer.items else {
        return Ok(());
    };
    let estimated_time =
        RECOUNT_TIME_PER_ITEM.saturating_mul((*item_count).try_into().unwrap_or(u32::MAX));
    if *slab_chunk_bytes == config.slab_chunk_bytes || estimated_time <= RECOUNT_TIME_MAX {
        return Ok(());
    }
    Err(replacement_error(format!(
        "its {item_count} items would have to be counted again, because -f, -n or -I are not those of the running server, and that takes about {:.0} seconds without any request served; keep -f, -n and -I, or restart the server (SIGUSR1)",
        estimated_time.as_secs_f64()
    )))
}

fn malformed_frame_error() -> Error {
    replacement_error("the running server sent a malformed message")
}

fn send(channel: &ControlChannel, kind: FrameKind, body: &[u8]) -> Result<(), Error> {
    channel.send(kind, body, &[]).map_err(replacement_error)
}

fn receive(channel: &ControlChannel) -> Result<Frame, Error> {
    check_not_refused(channel.receive().map_err(replacement_error)?)
}

/// The frame, unless it is a refusal.
fn check_not_refused(frame: Frame) -> Result<Frame, Error> {
    if frame.kind == FrameKind::Refused {
        return Err(replacement_error(String::from_utf8_lossy(&frame.body)));
    }
    Ok(frame)
}

/// The listening sockets of a server that replaces another.
struct AdoptedSockets {
    bound_sockets: Vec<BoundSocket>,
    http_sockets: Vec<HttpSocket>,
    /// For each socket of the running server, which of `bound_sockets` it is.
    adopted_listeners: Vec<Option<usize>>,
}

/// The listening sockets for these settings: those of the running server where the address is the same, others bound
/// anew.
fn adopt_listeners(config: &Config, sockets: Vec<OwnedFd>) -> Result<AdoptedSockets, Error> {
    let mut adopted_listeners = vec![None; sockets.len()];
    let mut unclaimed_sockets: Vec<_> = sockets.into_iter().map(Some).collect();
    let mut bound_sockets = Vec::new();
    for (index, listen) in config.listeners.iter().enumerate() {
        let matching_position = unclaimed_sockets.iter().position(|socket| {
            let address = socket.as_ref().and_then(listening_address);
            address.is_some_and(|address| matches_address(listen, &address))
        });
        let socket = matching_position.and_then(|position| {
            let adopted = adopted_listeners.get_mut(position)?;
            *adopted = Some(index);
            unclaimed_sockets.get_mut(position)?.take()
        });
        let address = socket.as_ref().and_then(listening_address);
        bound_sockets.push(match (socket, address) {
            (Some(socket), Some(address)) => {
                BoundSocket::inherited(socket, address, listen, config.backlog)
            }
            _ => listener::bind_listener(listen, config.backlog)?,
        });
    }
    let http_sockets = HttpSocket::bind_all_with(&config.http, |address| {
        let matches = |socket: &Option<OwnedFd>| {
            let bound = socket.as_ref().and_then(listening_address);
            bound.is_some_and(|bound| matches_address(&Listen::Tcp(address), &bound))
        };
        let position = unclaimed_sockets.iter().position(matches)?;
        unclaimed_sockets.get_mut(position)?.take()
    })?;
    Ok(AdoptedSockets { bound_sockets, http_sockets, adopted_listeners })
}

fn listening_address(socket: &OwnedFd) -> Option<Address> {
    let name = rustix::net::getsockname(socket).ok()?;
    if let Ok(address) = SocketAddr::try_from(name.clone()) {
        return Some(Address::Tcp(address));
    }
    let unix_address = SocketAddrUnix::try_from(name).ok()?;
    let path = unix_address.path()?.to_str().ok()?.to_owned();
    Some(Address::Unix(path.into()))
}

/// Whether a socket at `address` is the one that `listen` configures; port 0 is any.
fn matches_address(listen: &Listen, address: &Address) -> bool {
    match (listen.transport(), address) {
        (
            Listen::Tcp(configured) | Listen::Tls { address: configured, .. },
            Address::Tcp(address),
        ) => configured.ip() == address.ip() && [0, address.port()].contains(&configured.port()),
        (Listen::Unix { path, .. }, Address::Unix(bound_path)) => path == bound_path,
        _ => false,
    }
}

/// The content of the last message of the running server.
struct MemoryFrame {
    clock_state: [i64; 3],
    uniques_end: u64,
    encoded_handover: Vec<u8>,
}

/// The connections of the running server, and the rest of what it sends while it pauses. `adopted_listeners` has, for
/// each of its sockets, the index among `bound_sockets`.
fn receive_connections_and_memory(
    channel: &ControlChannel,
    login_rules: LoginRules,
    adopted_listeners: &[Option<usize>],
    bound_sockets: &[BoundSocket],
) -> Result<(Vec<InheritedConnection>, MemoryFrame), Error> {
    let mut connections = Vec::new();
    loop {
        let frame = receive(channel)?;
        let mut fields = FieldReader(&frame.body);
        match frame.kind {
            FrameKind::Connections => {
                for socket in frame.descriptors {
                    let (state, mut info) = InheritedState::read(&mut fields, login_rules)
                        .ok_or_else(malformed_frame_error)?;
                    let listener_index =
                        adopted_listeners.get(info.listener_index).copied().flatten();
                    // Closed if its listener is gone or has TLS now, where no client is served without it.
                    let plain_listener = listener_index.filter(|&listener_index| {
                        let bound = bound_sockets.get(listener_index);
                        bound.is_some_and(|bound| !bound.is_tls())
                    });
                    if let Some(listener_index) = plain_listener {
                        info.listener_index = listener_index;
                        connections.push(InheritedConnection { socket, state, info });
                    }
                }
            }
            FrameKind::Memory => {
                let mut read_memory_frame = || {
                    Some(MemoryFrame {
                        clock_state: [fields.i64()?, fields.i64()?, fields.i64()?],
                        uniques_end: fields.u64()?,
                        encoded_handover: fields.bytes()?.to_vec(),
                    })
                };
                let memory_frame = read_memory_frame().ok_or_else(malformed_frame_error)?;
                return Ok((connections, memory_frame));
            }
            _ => return Err(malformed_frame_error()),
        }
        if !fields.is_at_end() {
            return Err(malformed_frame_error());
        }
    }
}

/// The memory that the new server will have.
enum ReplacementMemory {
    /// That of the running server.
    Continued(MemoryFile, MappedMemory),
    /// A new one, with the reason.
    Empty(MemoryFile, Arc<Store>, String),
}

impl ReplacementMemory {
    /// Maps the memory of the running server; if it cannot be continued, makes a new one.
    fn prepare(
        path: &Path,
        parts: &PreparedParts,
        descriptor: OwnedFd,
        offer: &Offer,
    ) -> Result<ReplacementMemory, Error> {
        let store_config = store_config(&parts.config, &parts.slab_classes);
        let file = MemoryFile::inherited(path, descriptor);
        let map_result = if offer.layout_version == MemoryHandover::VERSION {
            if offer.size.file_bytes(&store_config).is_ok() {
                check_recount_time(offer, &store_config)?;
            }
            file.map_ahead(&store_config, offer.size)?
        } else {
            Err("the running server has another layout".to_owned())
        };
        match map_result {
            Ok(mapped) => Ok(ReplacementMemory::Continued(file, mapped)),
            Err(reason) => {
                let file = MemoryFile::make_replacement(path)?;
                let store = file.make_empty_store(&store_config)?;
                Ok(ReplacementMemory::Empty(file, store, reason))
            }
        }
    }

    fn into_store(
        self,
        parts: &PreparedParts,
        memory_frame: &MemoryFrame,
    ) -> Result<(MemoryFile, PreparedStore), Error> {
        let clock = Clock::inherited(memory_frame.clock_state);
        let path = parts.config.memory_file.clone().unwrap_or_default();
        match self {
            ReplacementMemory::Continued(file, mapped) => {
                let store_config = store_config(&parts.config, &parts.slab_classes);
                let workers = store_config.workers;
                let handover = MemoryHandover::decode(&memory_frame.encoded_handover)
                    .map_err(replacement_error)?;
                let store = Store::take_over(store_config, mapped, &handover, |check| {
                    std::thread::scope(|scope| (1..workers).for_each(|_| drop(scope.spawn(check))));
                });
                let store = store.map_err(replacement_error)?;
                let item_count = store.counters().items;
                let recovery_message =
                    format!("{}: {item_count} items are taken over", path.display());
                let prepared_store = PreparedStore { store, clock, recovery_message };
                Ok((file, prepared_store))
            }
            ReplacementMemory::Empty(file, store, reason) => {
                store.begin_uniques_at(memory_frame.uniques_end);
                let recovery_message = format!("{} starts empty: {reason}", path.display());
                let prepared_store = PreparedStore { store, clock, recovery_message };
                Ok((file, prepared_store))
            }
        }
    }
}
