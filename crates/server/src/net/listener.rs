//! The listening thread: accepts connections and hands each to a worker, or first to the thread of the handshakes.
//!
//! It serves no requests, so it also backs memory with pages ahead of the workers, which sometimes takes the kernel
//! milliseconds (docs/decisions/store.md, 0071).
//!
//! One acceptor rather than a socket per worker: the kernel spreads connections over sockets unevenly, and an
//! uneven spread causes a long latency tail.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use glasscache_protocol::replies;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::net::accept_queue::{AcceptQueues, AcceptedConnection};
use crate::net::handshakes::HandshakeQueue;
use crate::net::stream::Stream;
use crate::session::{Access, command_log};
use crate::shared::Shared;
use crate::shared::address::Address;
use crate::shared::config::{ClientCertificate, Config, Listen};
use crate::shared::connection_info::{ConnectionId, ConnectionInfo, Peer};
use crate::shared::error::Error;
use crate::shared::events;
use crate::shared::log::LogKind;
use crate::shared::log_output::LogLevel;
use crate::shared::memory_file::check_folder_of;
use crate::shared::unix_socket::{bind_with_mode, change_group_and_mode, identify_file};

/// The event data of the listener's waker.
const WAKE_TOKEN: u64 = u64::MAX;

/// How long a full server (or one without free descriptors) waits before it accepts again.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(10);

/// Connections that have not logged in are at most this fraction of `-c`.
const UNAUTHENTICATED_DIVISOR: u32 = 4;

/// A bound socket and its address.
pub(crate) struct BoundSocket {
    socket: OwnedFd,
    address: Address,
    /// Device and inode of the file of a unix socket.
    file_identity: Option<(u64, u64)>,
    /// Set if its connections begin with a TLS handshake: whether clients need a certificate.
    client_certificate: Option<ClientCertificate>,
    /// The settings that a socket of a predecessor gets once this server owns it.
    settings_to_apply: Option<SocketSettings>,
}

/// Settings of a listening socket that can change while it listens.
struct SocketSettings {
    backlog: i32,
    /// Those of the file of a unix socket.
    file: Option<SocketFile>,
}

/// The permissions of a unix socket.
#[derive(Clone, Copy)]
struct SocketFile {
    mode: u32,
    group: Option<u32>,
}

impl BoundSocket {
    /// Its descriptor and its address, for `stats conns`.
    pub(crate) fn descriptor_and_address(&self) -> (i32, Address) {
        (self.socket.as_raw_fd(), self.address.clone())
    }

    /// The socket alone.
    pub(crate) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// A listening socket of a predecessor, with the settings of `listen`.
    pub(crate) fn inherited(
        socket: OwnedFd,
        address: Address,
        listen: &Listen,
        backlog: u32,
    ) -> BoundSocket {
        let (mut file_identity, mut client_certificate, mut file) = (None, None, None);
        match (listen.transport(), &address) {
            (Listen::Unix { mode, group, .. }, Address::Unix(path)) => {
                file_identity = identify_file(path);
                file = Some(SocketFile { mode: *mode, group: *group });
            }
            (Listen::Tls { client_certificate: demand, .. }, _) => {
                client_certificate = Some(*demand);
            }
            _ => {}
        }
        BoundSocket {
            socket,
            address,
            file_identity,
            client_certificate,
            settings_to_apply: Some(SocketSettings { backlog: clamp_backlog(backlog), file }),
        }
    }

    /// Changes the settings of a socket of a predecessor, which has let go of it.
    fn apply_settings(&self) -> std::io::Result<()> {
        let Some(settings_to_apply) = &self.settings_to_apply else {
            return Ok(());
        };
        rustix::net::listen(&self.socket, settings_to_apply.backlog)?;
        match (&self.address, settings_to_apply.file) {
            (Address::Unix(path), Some(file)) if self.owns_file(path) => {
                change_group_and_mode(path, file.group, file.mode)
            }
            _ => Ok(()),
        }
    }

    /// The socket, to be handed over.
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether its connections begin with a TLS handshake.
    pub(crate) fn is_tls(&self) -> bool {
        self.client_certificate.is_some()
    }

    /// Removes the file of a unix socket, unless the file now belongs to another server.
    fn remove_file(&self) {
        if let Address::Unix(path) = &self.address
            && self.owns_file(path)
        {
            let _ = fs::remove_file(path);
        }
    }

    fn owns_file(&self, path: &Path) -> bool {
        self.file_identity.is_some() && self.file_identity == identify_file(path)
    }
}

fn clamp_backlog(backlog: u32) -> i32 {
    i32::try_from(backlog).unwrap_or(i32::MAX)
}

/// Binds the ports of the settings; the unix sockets follow by [`bind_remaining`].
pub(crate) fn bind_ports(config: &Config) -> Result<Vec<Option<BoundSocket>>, Error> {
    let bind = |listen: &Listen| match listen.transport() {
        Listen::Unix { .. } => Ok(None),
        _ => bind_listener(listen, config.backlog).map(Some),
    };
    config.listeners.iter().map(bind).collect()
}

/// Binds what of the settings is not bound.
pub(crate) fn bind_remaining(
    config: &Config,
    bound_ports: Vec<Option<BoundSocket>>,
) -> Result<Vec<BoundSocket>, Error> {
    let with_settings = config.listeners.iter().zip(bound_ports);
    with_settings
        .map(|(listen, bound)| bound.map_or_else(|| bind_listener(listen, config.backlog), Ok))
        .collect()
}

pub(crate) fn bind_listener(listen: &Listen, backlog: u32) -> Result<BoundSocket, Error> {
    let bind_error = |error: Errno| Error::Bind(listen.to_string(), error.into());
    let queue_length = clamp_backlog(backlog);
    match listen {
        Listen::Tcp(address) => bind_tcp(*address, queue_length).map_err(bind_error),
        Listen::Tls { address, client_certificate } => {
            let bound = bind_tcp(*address, queue_length).map_err(bind_error)?;
            Ok(BoundSocket { client_certificate: Some(*client_certificate), ..bound })
        }
        Listen::Unix { path, mode, group } => {
            let file = SocketFile { mode: *mode, group: *group };
            bind_unix(path, file, queue_length)
                .map_err(|error| Error::Bind(listen.to_string(), error))
        }
        Listen::Statistics(listen) => bind_listener(listen, backlog),
    }
}

fn bind_tcp(address: SocketAddr, backlog: i32) -> Result<BoundSocket, Errno> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = stream_socket(family)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, backlog)?;
    let name = rustix::net::getsockname(&socket)?;
    let bound_address = SocketAddr::try_from(name).unwrap_or(address);
    Ok(BoundSocket {
        socket,
        address: Address::Tcp(bound_address),
        file_identity: None,
        client_certificate: None,
        settings_to_apply: None,
    })
}

/// Checks whether this user can make a unix socket, if it is one, without making it.
pub(crate) fn check_unix_socket(listen: &Listen) -> Result<(), Error> {
    let Listen::Unix { path, .. } = listen.transport() else {
        return Ok(());
    };
    let check = || -> std::io::Result<()> {
        SocketAddrUnix::new(path)?;
        check_folder_of(path)?;
        match fs::symlink_metadata(path) {
            // A socket in use is like an address in use: only binding tells.
            Ok(metadata) if !metadata.file_type().is_socket() => {
                Err(std::io::ErrorKind::AddrInUse.into())
            }
            _ => Ok(()),
        }
    };
    check().map_err(|error| Error::Bind(listen.to_string(), error))
}

/// Binds a unix socket, replacing a dead one; never another kind of file or a socket on which a server still
/// listens.
fn bind_unix(path: &Path, file: SocketFile, backlog: i32) -> std::io::Result<BoundSocket> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket()) {
        if !is_socket_dead(path)? {
            return Err(std::io::ErrorKind::AddrInUse.into());
        }
        fs::remove_file(path)?;
    }
    // Until the file has its group, the process's own has no rights.
    let first_mode = if file.group.is_some() { file.mode & !0o070 } else { file.mode };
    let socket = bind_with_mode(path, first_mode, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    if file.group.is_some() {
        change_group_and_mode(path, file.group, file.mode)
            .inspect_err(|_| drop(fs::remove_file(path)))?;
    }
    rustix::net::listen(&socket, backlog)?;
    Ok(BoundSocket {
        socket,
        address: Address::Unix(path.to_owned()),
        file_identity: identify_file(path),
        client_certificate: None,
        settings_to_apply: None,
    })
}

/// Whether no server listens on the unix socket at `path`. With a full queue or missing permissions a server may
/// still listen.
fn is_socket_dead(path: &Path) -> std::io::Result<bool> {
    let socket = stream_socket(AddressFamily::UNIX)?;
    let connect_result = rustix::net::connect(&socket, &SocketAddrUnix::new(path)?);
    Ok(connect_result == Err(Errno::CONNREFUSED))
}

fn stream_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

/// The state of the listening thread.
pub(crate) struct Listener {
    pub(crate) shared: Arc<Shared>,
    pub(crate) bound_sockets: Vec<BoundSocket>,
    accept_queues: Arc<AcceptQueues>,
    /// For connections that begin with a TLS handshake.
    handshake_queue: Arc<HandshakeQueue>,
    next_serial: AtomicU64,
    epoll_fd: OwnedFd,
}

impl Listener {
    pub(crate) fn new(
        shared: Arc<Shared>,
        bound_sockets: Vec<BoundSocket>,
        accept_queues: Arc<AcceptQueues>,
        handshake_queue: Arc<HandshakeQueue>,
        next_serial: u64,
    ) -> rustix::io::Result<Listener> {
        let epoll_fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake_data = EventData::new_u64(WAKE_TOKEN);
        epoll::add(&epoll_fd, shared.listener_waker.as_fd(), wake_data, EventFlags::IN)?;
        for (listener_index, bound) in bound_sockets.iter().enumerate() {
            let data = EventData::new_u64(listener_index as u64);
            epoll::add(&epoll_fd, &bound.socket, data, EventFlags::IN)?;
        }
        let next_serial = AtomicU64::new(next_serial);
        Ok(Listener {
            shared,
            bound_sockets,
            accept_queues,
            handshake_queue,
            next_serial,
            epoll_fd,
        })
    }

    /// Accepts until the server stops, then closes the sockets.
    pub(crate) fn run(mut self) {
        for bound in &self.bound_sockets {
            if let Err(error) = bound.apply_settings() {
                self.shared.log.queue_line(LogLevel::Warning, format!(
                    "glasscache: {}: group (--unix-group), mode (-a) and backlog (-b) cannot be changed: {error}",
                    bound.address
                ));
            }
        }
        let mut events: Vec<epoll::Event> = Vec::with_capacity(16);
        while !self.shared.phases.is_ending() {
            self.accept_all(&mut events);
            self.shared.phases.pause_listener();
        }
        self.handshake_queue.wake();
        if self.shared.phases.is_replaced() {
            return;
        }
        for bound in &self.bound_sockets {
            bound.remove_file();
        }
    }

    /// Accepts until the server pauses or stops.
    fn accept_all(&mut self, events: &mut Vec<epoll::Event>) {
        let mut must_back_memory = false;
        while self.shared.phases.is_running() {
            events.clear();
            // While there is memory to back, it only checks for new connections.
            let zero_timeout = Timespec { tv_sec: 0, tv_nsec: 0 };
            let _ = epoll::wait(
                &self.epoll_fd,
                rustix::buffer::spare_capacity(events),
                must_back_memory.then_some(&zero_timeout),
            );
            for event in &*events {
                match event.data.u64() {
                    WAKE_TOKEN => self.shared.listener_waker.clear(),
                    listener_index => self.accept_from(listener_index as usize),
                }
            }
            must_back_memory = self.shared.store.back_memory_ahead();
        }
    }

    /// Accepts the pending connections of one socket, and stops when the server pauses or stops.
    fn accept_from(&mut self, listener_index: usize) {
        while self.shared.phases.is_running() {
            let must_wait = !self.shared.config.maxconns_fast && self.is_full();
            if must_wait || !self.has_slot_before_login() {
                return self.wait_before_accepting();
            }
            let Some(bound) = self.bound_sockets.get(listener_index) else {
                return;
            };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match rustix::net::acceptfrom_with(&bound.socket, flags) {
                Ok((socket, peer_address)) => {
                    self.add_connection(socket, peer_address, listener_index);
                }
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    self.log_no_descriptor(error);
                    return self.wait_before_accepting();
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return,
            }
        }
    }

    fn is_full(&self) -> bool {
        let open_connections = self.shared.connections.current.load(Ordering::Relaxed);
        open_connections >= i64::from(self.shared.config.connections_max)
    }

    /// Whether another connection that has not logged in may be open: these have a share of `-c`. A new one takes the
    /// place of one that is silent, or of a source that has more places; else it waits in the kernel, until others have
    /// logged in or are closed.
    fn has_slot_before_login(&self) -> bool {
        let connections = &self.shared.connections;
        let slots = (self.shared.config.connections_max / UNAUTHENTICATED_DIVISOR).max(1) as usize;
        connections.unauthenticated() < slots || connections.displace_unauthenticated()
    }

    /// Waits a little: nothing more can be accepted now, and level-triggered epoll would spin.
    fn wait_before_accepting(&self) {
        let connections = &self.shared.connections;
        let wait_began_at = Instant::now();
        connections.listen_disabled.fetch_add(1, Ordering::Relaxed);
        let timeout = Timespec { tv_sec: 0, tv_nsec: ACCEPT_RETRY_DELAY.as_nanos() as i64 };
        let mut poll_fds =
            [rustix::event::PollFd::new(&self.shared.listener_waker, rustix::event::PollFlags::IN)];
        let _ = rustix::event::poll(&mut poll_fds, Some(&timeout));
        let waited_us = wait_began_at.elapsed().as_micros() as u64;
        connections.listen_disabled_us.fetch_add(waited_us, Ordering::Relaxed);
    }

    fn add_connection(
        &mut self,
        socket: OwnedFd,
        peer_address: Option<SocketAddrAny>,
        listener_index: usize,
    ) {
        let connections = &self.shared.connections;
        let client_certificate =
            self.bound_sockets.get(listener_index).and_then(|bound| bound.client_certificate);
        if self.is_full() {
            connections.rejected.fetch_add(1, Ordering::Relaxed);
            self.log_refused(peer_address.as_ref());
            if client_certificate.is_none() {
                let reply = replies::TOO_MANY_CONNECTIONS;
                let _ = rustix::net::send(&socket, reply, SendFlags::NOSIGNAL);
            }
            return;
        }
        let peer = match peer_address.and_then(|address| SocketAddr::try_from(address).ok()) {
            Some(address) => {
                // A reply is sent at once; without this a pipeline waits for the peer's timer.
                let _ = sockopt::set_tcp_nodelay(&socket, true);
                let _ = sockopt::set_socket_keepalive(&socket, true);
                Peer::Tcp(address)
            }
            None => Peer::Unix,
        };
        let serial = self.next_serial.fetch_add(1, Ordering::Relaxed);
        let id = ConnectionId { descriptor: socket.as_raw_fd(), serial };
        let has_proxy_header = self.is_proxy(&peer);
        let mut info = ConnectionInfo::new(id, peer, listener_index, self.shared.clock.now().0);
        info.has_proxy_header = has_proxy_header;
        info.serves_statistics_only = self.shared.serves_statistics_only(listener_index);
        let info = Arc::new(info);
        connections.current.fetch_add(1, Ordering::Relaxed);
        connections.total.fetch_add(1, Ordering::Relaxed);
        let requires_login = Access::of(&info, &self.shared.logins) == Access::Login;
        if client_certificate.is_none() && requires_login {
            connections.set_awaits_login(&info, true);
        }
        connections.insert(Arc::clone(&info));
        events::publish_connection(&self.shared, &info, None);
        if self.shared.logs_at(2) {
            self.shared
                .log
                .queue_line(LogLevel::Debug, command_log::describe_connection(&info, true));
        }
        match client_certificate {
            Some(client_certificate) => self.handshake_queue.push(socket, info, client_certificate),
            None => self.accept_queues.assign(AcceptedConnection {
                stream: Stream::Plain(socket),
                info,
                inherited_state: None,
            }),
        }
    }

    /// Whether the peer is a proxy, whose connections begin with a header.
    fn is_proxy(&self, peer: &Peer) -> bool {
        let Peer::Tcp(address) = peer else {
            return false;
        };
        let ip = address.ip().to_canonical();
        let proxies = &self.shared.config.proxies;
        proxies.iter().any(|proxy| proxy.contains(&ip))
    }

    fn log_no_descriptor(&self, error: Errno) {
        let format_line = || {
            let remedy = match error {
                Errno::MFILE => "; allow the process more open files (ulimit -n, LimitNOFILE=)",
                Errno::NFILE => "; allow the machine more open files (sysctl fs.file-max)",
                _ => "",
            };
            let open_connections = self.shared.connections.current.load(Ordering::Relaxed);
            format!(
                "glasscache: new connections wait: {error}; {open_connections} are open{remedy}"
            )
        };
        let now_s = self.shared.clock.now().0;
        self.shared.log.queue_line_rate_limited(LogKind::NoDescriptor, now_s, format_line);
    }

    fn log_refused(&self, peer_address: Option<&SocketAddrAny>) {
        let shared = &self.shared;
        let peer_address =
            peer_address.and_then(|address| SocketAddr::try_from(address.clone()).ok());
        let format_line = || {
            let peer = peer_address.map_or(Peer::Unix, Peer::Tcp);
            let connections_max = shared.config.connections_max;
            format!("glasscache: refused a connection from {peer}: {connections_max} are open (-c)")
        };
        if shared.logs_at(1) {
            shared.log.queue_line(LogLevel::Warning, format_line());
        } else {
            let now_s = shared.clock.now().0;
            shared.log.queue_line_rate_limited(LogKind::RefusedConnection, now_s, format_line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_a_predecessor_gets_the_backlog_of_its_next_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listen = Listen::Unix { path: path.clone(), mode: 0o700, group: None };
        let old_socket = bind_listener(&listen, 0).unwrap();
        let connect = || {
            let client = stream_socket(AddressFamily::UNIX).unwrap();
            let address = SocketAddrUnix::new(&path).unwrap();
            rustix::net::connect(&client, &address).map(|()| client)
        };
        let mut clients = Vec::new();
        while let Ok(client) = connect() {
            clients.push(client);
        }
        let connected_before = clients.len();
        let socket = old_socket.socket().try_clone().unwrap();
        let inherited_socket =
            BoundSocket::inherited(socket, old_socket.address.clone(), &listen, 5);
        assert_eq!(connect().err(), Some(Errno::AGAIN));
        inherited_socket.apply_settings().unwrap();
        while let Ok(client) = connect() {
            clients.push(client);
        }
        assert_eq!(clients.len(), connected_before + 5);
    }
}
