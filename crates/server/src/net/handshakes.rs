//! The thread that does TLS handshakes, so that a worker never signs: a handshake takes as long as hundreds of
//! requests.
//!
//! The listener hands it accepted sockets; a connection whose handshake is complete goes to a worker. A handshake may
//! take [`HANDSHAKE_TIME_MAX`]. At most a quarter of `-c` are ongoing; beyond that the oldest is closed, because the
//! handshake of an honest client takes a few round trips. The header of a proxy comes before the handshake.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use glasscache_protocol::proxy_header::{self, Parsed};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::nice;

use crate::net::accept_queue::{AcceptQueues, AcceptedConnection};
use crate::net::stream::{HandshakeProgress, Stream, TlsStream};
use crate::session::command_log;
use crate::shared::Shared;
use crate::shared::config::ClientCertificate;
use crate::shared::connection_info::{CloseReason, ConnectionInfo};
use crate::shared::events;
use crate::shared::lock::lock;
use crate::shared::log::LogKind;
use crate::shared::wake::Waker;

/// How long a handshake may take: several round trips around the world, with a lost packet.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);

/// Handshakes that have begun are at most this fraction of `-c`.
const HANDSHAKE_DIVISOR: u32 = 4;

/// Bytes of a proxy's header that are parsed; a longer one is invalid.
const HEADER_BYTES_MAX: usize = 2 << 10;

/// The event data of the waker.
const WAKE_TOKEN: u64 = u64::MAX;

/// Maximum number of events per poll.
const EVENTS_MAX: usize = 64;

/// How much nicer the thread is than the workers: where processors are short, connected clients go first.
const NICE_INCREMENT: i32 = 5;

/// Sockets handed to the thread and not yet taken by it.
pub(crate) struct HandshakeQueue {
    accepted_sockets: Mutex<Vec<AcceptedSocket>>,
    waker: Waker,
}

/// A socket before its handshake.
struct AcceptedSocket {
    socket: OwnedFd,
    info: Arc<ConnectionInfo>,
    client_certificate: ClientCertificate,
}

impl HandshakeQueue {
    pub(crate) fn new() -> rustix::io::Result<HandshakeQueue> {
        Ok(HandshakeQueue { accepted_sockets: Mutex::default(), waker: Waker::new()? })
    }

    /// Hands an accepted socket to the thread.
    pub(crate) fn push(
        &self,
        socket: OwnedFd,
        info: Arc<ConnectionInfo>,
        client_certificate: ClientCertificate,
    ) {
        lock(&self.accepted_sockets).push(AcceptedSocket { socket, info, client_certificate });
        self.waker.wake();
    }

    /// Wakes the thread, which then sees that the server stops.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }
}

/// The state of the thread.
pub(crate) struct Handshakes {
    shared: Arc<Shared>,
    queue: Arc<HandshakeQueue>,
    accept_queues: Arc<AcceptQueues>,
    epoll_fd: OwnedFd,
    /// Handshakes that have begun, by the serial number of the connection, and so the oldest first.
    ongoing: BTreeMap<u64, OngoingHandshake>,
}

/// A handshake that has begun.
struct OngoingHandshake {
    info: Arc<ConnectionInfo>,
    began_at: Instant,
    state: HandshakeState,
}

/// The stage of a handshake.
enum HandshakeState {
    /// A proxy's header has to come first.
    ProxyHeader(OwnedFd, ClientCertificate),
    Tls(Box<TlsStream>),
}

impl OngoingHandshake {
    fn socket(&self) -> &OwnedFd {
        match &self.state {
            HandshakeState::ProxyHeader(socket, _) => socket,
            HandshakeState::Tls(stream) => stream.socket(),
        }
    }
}

impl Handshakes {
    pub(crate) fn new(
        shared: Arc<Shared>,
        queue: Arc<HandshakeQueue>,
        accept_queues: Arc<AcceptQueues>,
    ) -> rustix::io::Result<Handshakes> {
        let epoll_fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake_data = EventData::new_u64(WAKE_TOKEN);
        epoll::add(&epoll_fd, queue.waker.as_fd(), wake_data, EventFlags::IN)?;
        Ok(Handshakes { shared, queue, accept_queues, epoll_fd, ongoing: BTreeMap::new() })
    }

    /// Does handshakes until the server stops; those that have begun are closed then.
    pub(crate) fn run(mut self) {
        // On Linux this is the priority of one thread. If it cannot be lowered the thread shares as the others do.
        let _ = nice(NICE_INCREMENT);
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
        while !self.shared.phases.is_ending() {
            events.clear();
            let sleep = self.time_to_oldest_deadline();
            let buffer = rustix::buffer::spare_capacity(&mut events);
            let _ = epoll::wait(&self.epoll_fd, buffer, sleep.as_ref());
            for event in &events {
                // The kernel's structure is packed: its fields are copied, never borrowed.
                match { event.data }.u64() {
                    WAKE_TOKEN => self.begin_queued_handshakes(),
                    serial => self.advance(serial),
                }
            }
            self.close_late(Instant::now());
        }
        while let Some((_, handshake)) = self.ongoing.pop_first() {
            self.close(&handshake.info, CloseReason::Shutdown);
        }
    }

    /// How long to sleep at most: until the oldest handshake is late.
    fn time_to_oldest_deadline(&self) -> Option<Timespec> {
        let (_, oldest) = self.ongoing.first_key_value()?;
        let time_left = HANDSHAKE_TIME_MAX.saturating_sub(oldest.began_at.elapsed());
        Some(Timespec {
            tv_sec: time_left.as_secs() as i64,
            tv_nsec: i64::from(time_left.subsec_nanos()),
        })
    }

    fn begin_queued_handshakes(&mut self) {
        self.queue.waker.clear();
        let accepted_sockets = std::mem::take(&mut *lock(&self.queue.accepted_sockets));
        for AcceptedSocket { socket, info, client_certificate } in accepted_sockets {
            let ongoing_max = (self.shared.config.connections_max / HANDSHAKE_DIVISOR).max(1);
            while self.ongoing.len() >= ongoing_max as usize
                && let Some((_, oldest)) = self.ongoing.pop_first()
            {
                self.fail(&oldest.info, "newer ones needed its place");
            }
            let state = if info.has_proxy_header {
                HandshakeState::ProxyHeader(socket, client_certificate)
            } else {
                match self.begin_tls(socket, client_certificate) {
                    Ok(stream) => HandshakeState::Tls(stream),
                    Err(reason) => {
                        self.fail(&info, &reason);
                        continue;
                    }
                }
            };
            self.add(info, state);
        }
    }

    fn begin_tls(
        &self,
        socket: OwnedFd,
        client_certificate: ClientCertificate,
    ) -> Result<Box<TlsStream>, String> {
        let tls = self.shared.tls.as_ref().ok_or("the server has no TLS")?;
        let session = tls.accept(client_certificate)?;
        let charge = self.shared.peer_memory.charge(0);
        Ok(Box::new(TlsStream::new(socket, session, charge)))
    }

    fn add(&mut self, info: Arc<ConnectionInfo>, state: HandshakeState) {
        let serial = info.id.serial;
        let handshake = OngoingHandshake { info, began_at: Instant::now(), state };
        // Edge-triggered, and served until the socket has no more, so that a peeked header causes no second event.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(serial);
        match epoll::add(&self.epoll_fd, handshake.socket(), data, flags) {
            Ok(()) => {
                self.ongoing.insert(serial, handshake);
                self.advance(serial);
            }
            Err(error) => self.fail(&handshake.info, &error.to_string()),
        }
    }

    /// Continues a handshake as far as its socket allows.
    fn advance(&mut self, serial: u64) {
        let Some(OngoingHandshake { info, began_at, state }) = self.ongoing.remove(&serial) else {
            return;
        };
        let begun_stream = match state {
            HandshakeState::Tls(stream) => Ok(stream),
            HandshakeState::ProxyHeader(socket, client_certificate) => {
                match read_header(&socket, &info) {
                    Ok(true) => self.begin_tls(socket, client_certificate),
                    Ok(false) => {
                        let state = HandshakeState::ProxyHeader(socket, client_certificate);
                        self.ongoing.insert(serial, OngoingHandshake { info, began_at, state });
                        return;
                    }
                    Err(reason) => Err(reason),
                }
            }
        };
        let mut stream = match begun_stream {
            Ok(stream) => stream,
            Err(reason) => return self.fail(&info, &reason),
        };
        match stream.continue_handshake() {
            Ok(HandshakeProgress::InProgress) => {
                let state = HandshakeState::Tls(stream);
                self.ongoing.insert(serial, OngoingHandshake { info, began_at, state });
            }
            Ok(HandshakeProgress::ClientClosed) => self.close(&info, CloseReason::Normal),
            Ok(HandshakeProgress::Complete { is_full_handshake }) => {
                self.assign_to_worker(stream, info, is_full_handshake);
            }
            Err(reason) => self.fail(&info, &reason),
        }
    }

    fn assign_to_worker(
        &self,
        stream: Box<TlsStream>,
        info: Arc<ConnectionInfo>,
        is_full_handshake: bool,
    ) {
        if let Some(tls) = &self.shared.tls
            && is_full_handshake
            && tls.settings.session_tickets
        {
            tls.counters.new_sessions.fetch_add(1, Ordering::Relaxed);
        }
        if let Err(error) = epoll::delete(&self.epoll_fd, stream.socket()) {
            return self.fail(&info, &error.to_string());
        }
        if self.shared.logins.are_required() {
            self.shared.connections.set_awaits_login(&info, true);
        }
        let stream = Stream::Tls(stream);
        self.accept_queues.assign(AcceptedConnection { stream, info, inherited_state: None });
    }

    fn close_late(&mut self, now: Instant) {
        while let Some(oldest) = self.ongoing.first_entry()
            && now.duration_since(oldest.get().began_at) >= HANDSHAKE_TIME_MAX
        {
            let late_handshake = oldest.remove();
            let seconds = HANDSHAKE_TIME_MAX.as_secs();
            self.fail(&late_handshake.info, &format!("it took longer than {seconds} seconds"));
        }
    }

    /// Counts and logs a handshake that failed.
    fn fail(&self, info: &ConnectionInfo, reason: &str) {
        if let Some(tls) = &self.shared.tls {
            tls.counters.handshake_errors.fetch_add(1, Ordering::Relaxed);
        }
        let format_line = || {
            let (client, descriptor) = (info.client(), info.id.descriptor);
            format!(
                "glasscache: closed {client} (descriptor {descriptor}): its TLS handshake failed: {reason}"
            )
        };
        if self.shared.logs_at(1) {
            self.shared.log.queue_line(format_line());
        } else {
            let now_s = self.shared.clock.now().0;
            self.shared.log.queue_line_rate_limited(
                LogKind::FailedTlsHandshake,
                now_s,
                format_line,
            );
        }
        self.close(info, CloseReason::FailedTlsHandshake);
    }

    fn close(&self, info: &ConnectionInfo, reason: CloseReason) {
        events::publish_connection(&self.shared, info, Some(reason.name()));
        if self.shared.logs_at(2) {
            self.shared.log.queue_line(command_log::describe_connection(info, false));
        }
        self.shared.connections.remove(info.id.serial);
    }
}

/// Reads a proxy's header and leaves what follows in the socket; false while it is incomplete.
fn read_header(socket: &OwnedFd, info: &ConnectionInfo) -> Result<bool, String> {
    let mut buffer = [0; HEADER_BYTES_MAX];
    let peeked_bytes = match rustix::net::recv(socket, &mut buffer, RecvFlags::PEEK) {
        Ok((0, _)) => return Err("the proxy closed the connection".to_owned()),
        Ok((peeked_bytes, _)) => peeked_bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
        Err(error) => return Err(error.to_string()),
    };
    match proxy_header::parse(buffer.get(..peeked_bytes).unwrap_or_default()) {
        Parsed::Incomplete if peeked_bytes < HEADER_BYTES_MAX => Ok(false),
        Parsed::Incomplete | Parsed::Invalid => {
            Err("it did not begin with a header of the PROXY protocol".to_owned())
        }
        Parsed::Header { client, used } => {
            if let Some(client) = client {
                info.set_proxied_client(client);
            }
            let header = buffer.get_mut(..used).unwrap_or_default();
            match rustix::net::recv(socket, header, RecvFlags::empty()) {
                Ok((read_bytes, _)) if read_bytes == used => Ok(true),
                _ => Err("the socket failed".to_owned()),
            }
        }
    }
}
