//! The thread that does TLS handshakes, so that a worker never signs: a handshake takes as long as hundreds of
//! requests.
//!
//! The listener hands it accepted sockets; a connection whose handshake is complete goes to a worker. A handshake may
//! take [`HANDSHAKE_TIME_MAX`]. At most a quarter of `-c` are ongoing; beyond that the one whose client has sent least is
//! closed. Their memory has a share of its own (`shared/tls_memory`): where it is short, the one that takes most of it is
//! closed. One that is complete waits for the memory of an open connection as long as that may become free. The header
//! of a proxy comes before the handshake.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
use crate::net::stream::{HandshakeProgress, READ_BYTES_MAX, Stream, TlsStream};
use crate::session::{Access, command_log};
use crate::shared::Shared;
use crate::shared::config::ClientCertificate;
use crate::shared::connection_info::{CloseReason, ConnectionInfo};
use crate::shared::events;
use crate::shared::lock::lock;
use crate::shared::log::LogKind;
use crate::shared::log_output::LogLevel;
use crate::shared::slots::{KEPT_TIME, Slots};
use crate::shared::source::Source;
use crate::shared::stalled;
use crate::shared::tls_charge::{HANDSHAKE_BYTES, OpenRoom, TlsCharge};
use crate::shared::wake::Waker;

/// How long a handshake may take: several round trips around the world, with a lost packet.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);

/// Handshakes that have begun are at most this fraction of `-c`.
const HANDSHAKE_DIVISOR: u32 = 4;

/// How often those that wait for a place or for memory try again.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

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
    /// Sockets that wait to begin their handshake, the oldest first.
    backlog: VecDeque<AcceptedSocket>,
    /// Handshakes that have a place, by the serial number of the connection, and so the oldest first.
    ongoing: BTreeMap<u64, OngoingHandshake>,
    /// Their places.
    slots: Slots,
    /// The serial numbers of those that wait for memory, of which no event of their socket reports anything. A set,
    /// because their clients may cause events meanwhile.
    starved: BTreeSet<u64>,
}

/// A handshake that has a place.
struct OngoingHandshake {
    info: Arc<ConnectionInfo>,
    began_at: Instant,
    state: HandshakeState,
}

/// The stage of a handshake.
enum HandshakeState {
    /// A proxy's header has to come first.
    ProxyHeader(OwnedFd, ClientCertificate),
    /// The client has sent nothing, so nothing but its socket is kept.
    Silent(OwnedFd, ClientCertificate),
    /// TLS has begun, with the time when its memory was granted.
    Tls(Box<TlsStream>, Instant),
    /// The handshake is complete, and the connection waits for the memory of an open one.
    Complete(Box<TlsStream>, bool),
}

/// How a step of a handshake ended.
enum Step {
    /// It goes on when its socket reports an event.
    Wait(HandshakeState),
    /// It goes on when there is memory for it.
    Starve(HandshakeState),
    Complete(Box<TlsStream>, bool),
    /// The client closed before it sent anything.
    Closed,
    Failed(String),
}

/// Whether a connection whose handshake is complete may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Now,
    /// Perhaps later, when others have released memory.
    Later,
    /// All others are in use.
    Never,
}

impl HandshakeState {
    fn socket(&self) -> &OwnedFd {
        match self {
            HandshakeState::ProxyHeader(socket, _) | HandshakeState::Silent(socket, _) => socket,
            HandshakeState::Tls(stream, _) | HandshakeState::Complete(stream, _) => stream.socket(),
        }
    }

    /// What the client has done, for its place.
    fn effort(&self) -> u32 {
        match self {
            HandshakeState::ProxyHeader(..) | HandshakeState::Silent(..) => 0,
            HandshakeState::Tls(stream, _) => stream.handshake_bytes() as u32,
            HandshakeState::Complete(..) => u32::MAX - 1,
        }
    }

    /// Bytes of memory that its handshake takes, until it is complete.
    fn memory(&self) -> usize {
        self.memory_and_time().map_or(0, |(memory, _)| memory)
    }

    /// Bytes of memory that its handshake takes, and since when; `None` before it has any and once it is complete.
    fn memory_and_time(&self) -> Option<(usize, Instant)> {
        match self {
            HandshakeState::ProxyHeader(..)
            | HandshakeState::Silent(..)
            | HandshakeState::Complete(..) => None,
            HandshakeState::Tls(stream, granted_at) => {
                Some((stream.handshake_memory(), *granted_at))
            }
        }
    }
}

/// The serial number and memory of the handshake that takes most memory, among those that have had their memory for at
/// least [`KEPT_TIME`]; the oldest if several take the same. Each is given with its serial number, its memory in bytes and
/// the time when it was granted: a client that waited for memory waited for the server, so that time does not count.
fn largest_handshake(
    handshakes: impl Iterator<Item = (u64, usize, Instant)>,
    now: Instant,
) -> Option<(u64, usize)> {
    handshakes
        .filter(|(_, _, granted_at)| now.saturating_duration_since(*granted_at) >= KEPT_TIME)
        .map(|(serial, memory, _)| (memory, Reverse(serial)))
        .max()
        .map(|(memory, Reverse(serial))| (serial, memory))
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
        Ok(Handshakes {
            shared,
            queue,
            accept_queues,
            epoll_fd,
            backlog: VecDeque::new(),
            ongoing: BTreeMap::new(),
            slots: Slots::default(),
            starved: BTreeSet::new(),
        })
    }

    /// Does handshakes until the server stops; those that have begun are closed then.
    pub(crate) fn run(mut self) {
        // On Linux this is the priority of one thread. If it cannot be lowered the thread shares as the others do.
        let _ = nice(NICE_INCREMENT);
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
        while !self.shared.phases.is_ending() {
            events.clear();
            let sleep = self.time_to_next_check();
            let buffer = rustix::buffer::spare_capacity(&mut events);
            let _ = epoll::wait(&self.epoll_fd, buffer, sleep.as_ref());
            for event in &events {
                // The kernel's structure is packed: its fields are copied, never borrowed.
                match { event.data }.u64() {
                    WAKE_TOKEN => self.take_accepted_sockets(),
                    serial => self.advance(serial),
                }
            }
            self.close_late(Instant::now());
            self.begin_handshakes(Instant::now());
            for serial in std::mem::take(&mut self.starved) {
                self.advance(serial);
            }
        }
        while let Some((_, handshake)) = self.ongoing.pop_first() {
            self.close(&handshake.info, CloseReason::Shutdown);
        }
        while let Some(accepted) = self.backlog.pop_front() {
            self.close(&accepted.info, CloseReason::Shutdown);
        }
    }

    /// How long to sleep at most: until the oldest handshake is late, shorter if some wait for a place or for memory.
    fn time_to_next_check(&self) -> Option<Timespec> {
        let sleep = if self.backlog.is_empty() && self.starved.is_empty() {
            let (_, oldest) = self.ongoing.first_key_value()?;
            HANDSHAKE_TIME_MAX.saturating_sub(oldest.began_at.elapsed())
        } else {
            RETRY_INTERVAL
        };
        Some(Timespec { tv_sec: sleep.as_secs() as i64, tv_nsec: i64::from(sleep.subsec_nanos()) })
    }

    fn take_accepted_sockets(&mut self) {
        self.queue.waker.clear();
        self.backlog.extend(std::mem::take(&mut *lock(&self.queue.accepted_sockets)));
    }

    /// Begins handshakes as long as there are places: one whose client has sent least gives up its own.
    fn begin_handshakes(&mut self, now: Instant) {
        let slots_max = (self.shared.config.connections_max / HANDSHAKE_DIVISOR).max(1) as usize;
        while !self.backlog.is_empty() {
            if self.slots.len() >= slots_max {
                let Some(serial) = self.slots.first_to_go(u32::MAX, now) else {
                    return;
                };
                self.end(serial, "newer ones needed its place");
            }
            if let Some(accepted) = self.backlog.pop_front() {
                self.add(accepted, now);
            }
        }
    }

    fn add(&mut self, accepted: AcceptedSocket, now: Instant) {
        let AcceptedSocket { socket, info, client_certificate } = accepted;
        let serial = info.id.serial;
        let state = if info.has_proxy_header {
            HandshakeState::ProxyHeader(socket, client_certificate)
        } else {
            HandshakeState::Silent(socket, client_certificate)
        };
        // Edge-triggered, and served until the socket has no more, so that a peeked header causes no second event.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(serial);
        if let Err(error) = epoll::add(&self.epoll_fd, state.socket(), data, flags) {
            return self.fail(&info, &error.to_string());
        }
        self.slots.insert(serial, Source::of(&info.client()), now);
        self.ongoing.insert(serial, OngoingHandshake { info, began_at: now, state });
        self.advance(serial);
    }

    /// Continues a handshake as far as its socket and the memory for handshakes allow.
    fn advance(&mut self, serial: u64) {
        let Some(OngoingHandshake { info, began_at, state }) = self.ongoing.remove(&serial) else {
            return;
        };
        let mut step = self.step(state, &info);
        while let Step::Starve(state) = step {
            if !self.free_memory(state.memory()) {
                if state.memory() >= 2 * HANDSHAKE_BYTES {
                    // It takes more than the others, and several times what an honest client needs.
                    step = Step::Failed("memory for handshakes is short".to_owned());
                } else {
                    self.starved.insert(serial);
                    step = Step::Wait(state);
                }
                break;
            }
            step = self.step(state, &info);
        }
        match step {
            Step::Wait(state) | Step::Starve(state) => {
                return self.keep(serial, OngoingHandshake { info, began_at, state });
            }
            Step::Complete(stream, is_full_handshake) => match self.admit(&stream) {
                Admission::Now => self.assign_to_worker(stream, info, is_full_handshake),
                Admission::Later => {
                    self.starved.insert(serial);
                    let state = HandshakeState::Complete(stream, is_full_handshake);
                    return self.keep(serial, OngoingHandshake { info, began_at, state });
                }
                Admission::Never => self.refuse(&info),
            },
            Step::Closed => self.close(&info, CloseReason::Normal),
            Step::Failed(reason) => self.fail(&info, &reason),
        }
        self.slots.remove(serial);
    }

    /// Keeps a handshake until it can go on.
    fn keep(&mut self, serial: u64, handshake: OngoingHandshake) {
        self.slots.set_effort(serial, handshake.state.effort());
        self.ongoing.insert(serial, handshake);
    }

    fn step(&self, state: HandshakeState, info: &ConnectionInfo) -> Step {
        let (socket, client_certificate) = match state {
            HandshakeState::Tls(stream, granted_at) => {
                return continue_handshake(stream, granted_at);
            }
            HandshakeState::Complete(stream, is_full_handshake) => {
                return Step::Complete(stream, is_full_handshake);
            }
            HandshakeState::ProxyHeader(socket, client_certificate) => {
                match read_header(&socket, info) {
                    Ok(true) => (socket, client_certificate),
                    Ok(false) => {
                        let state = HandshakeState::ProxyHeader(socket, client_certificate);
                        return Step::Wait(state);
                    }
                    Err(reason) => return Step::Failed(reason),
                }
            }
            HandshakeState::Silent(socket, client_certificate) => (socket, client_certificate),
        };
        match rustix::net::recv(&socket, &mut [0; 1], RecvFlags::PEEK) {
            Ok((0, _)) => Step::Closed,
            Ok(_) => self.begin_tls(socket, client_certificate),
            Err(Errno::AGAIN | Errno::INTR) => {
                Step::Wait(HandshakeState::Silent(socket, client_certificate))
            }
            Err(error) => Step::Failed(error.to_string()),
        }
    }

    /// Begins TLS once the client has sent something: until then a connection takes no memory.
    fn begin_tls(&self, socket: OwnedFd, client_certificate: ClientCertificate) -> Step {
        let mut state_charge = TlsCharge::for_handshake(&self.shared.peer_memory);
        if !state_charge.try_set(HANDSHAKE_BYTES + READ_BYTES_MAX) {
            return Step::Starve(HandshakeState::Silent(socket, client_certificate));
        }
        let Some(tls) = self.shared.tls.as_ref() else {
            return Step::Failed("the server has no TLS".to_owned());
        };
        match tls.accept(client_certificate) {
            Ok(session) => {
                let charge = self.shared.peer_memory.charge(0);
                let stream = TlsStream::new(socket, session, charge, state_charge);
                continue_handshake(Box::new(stream), Instant::now())
            }
            Err(reason) => Step::Failed(reason),
        }
    }

    /// Ends the handshake that takes most memory, if it takes at least `memory_min` and has had that memory for a while:
    /// that of an honest client is small, and complete after a few round trips.
    fn free_memory(&mut self, memory_min: usize) -> bool {
        let handshakes = self.ongoing.iter().filter_map(|(serial, handshake)| {
            let (memory, granted_at) = handshake.state.memory_and_time()?;
            Some((*serial, memory, granted_at))
        });
        match largest_handshake(handshakes, Instant::now()) {
            Some((serial, memory)) if memory >= memory_min => {
                self.end(serial, "it took most of the memory that newer ones needed");
                true
            }
            _ => false,
        }
    }

    /// Whether a connection whose handshake is complete may be open now: one that has not sent a request is closed for
    /// it, if that is needed.
    fn admit(&self, stream: &TlsStream) -> Admission {
        let room = stream.room_for_open();
        if room == OpenRoom::Free {
            return Admission::Now;
        }
        let shared = &self.shared;
        if room == OpenRoom::AfterClose && stalled::close_unproven(shared) {
            shared.peer_memory.tls.displaced.fetch_add(1, Ordering::Relaxed);
            return Admission::Now;
        }
        if stream.is_open_share_full() && !shared.connections.has_unproven() {
            return Admission::Never;
        }
        Admission::Later
    }

    fn refuse(&self, info: &ConnectionInfo) {
        self.shared.peer_memory.tls.refused.fetch_add(1, Ordering::Relaxed);
        self.fail(info, "open connections take all the memory for TLS");
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
        if Access::of(&info, &self.shared.logins) == Access::Login {
            self.shared.connections.set_awaits_login(&info, true);
        }
        self.shared.connections.add_unproven(&info);
        let stream = Stream::Tls(stream.into_open());
        self.accept_queues.assign(AcceptedConnection { stream, info, inherited_state: None });
    }

    fn close_late(&mut self, now: Instant) {
        while let Some((serial, oldest)) = self.ongoing.first_key_value()
            && now.duration_since(oldest.began_at) >= HANDSHAKE_TIME_MAX
        {
            let seconds = HANDSHAKE_TIME_MAX.as_secs();
            match oldest.state {
                HandshakeState::Complete(..) => self.end_refused(*serial),
                _ => self.end(*serial, &format!("it took longer than {seconds} seconds")),
            }
        }
    }

    /// Ends an ongoing handshake, which has failed.
    fn end(&mut self, serial: u64, reason: &str) {
        self.slots.remove(serial);
        if let Some(handshake) = self.ongoing.remove(&serial) {
            self.fail(&handshake.info, reason);
        }
    }

    /// Ends a complete handshake, for which no memory became free.
    fn end_refused(&mut self, serial: u64) {
        self.shared.peer_memory.tls.refused.fetch_add(1, Ordering::Relaxed);
        self.end(serial, "requests take all the memory for TLS");
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
            self.shared.log.queue_line(LogLevel::Warning, format_line());
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
            self.shared
                .log
                .queue_line(LogLevel::Debug, command_log::describe_connection(info, false));
        }
        self.shared.connections.remove(info.id.serial);
    }
}

fn continue_handshake(mut stream: Box<TlsStream>, granted_at: Instant) -> Step {
    match stream.continue_handshake() {
        Ok(HandshakeProgress::InProgress) => Step::Wait(HandshakeState::Tls(stream, granted_at)),
        Ok(HandshakeProgress::NeedsMemory) => Step::Starve(HandshakeState::Tls(stream, granted_at)),
        Ok(HandshakeProgress::ClientClosed) => Step::Closed,
        Ok(HandshakeProgress::Complete { is_full_handshake }) => {
            Step::Complete(stream, is_full_handshake)
        }
        Err(reason) => {
            stream.discard_received();
            Step::Failed(reason)
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_a_handshake_waited_for_memory_does_not_count() {
        let began_at = Instant::now();
        let now = began_at + Duration::from_secs(1);
        let young = now.checked_sub(KEPT_TIME / 2).unwrap();
        let largest = |handshakes: &[(u64, usize, Instant)]| {
            largest_handshake(handshakes.iter().copied(), now)
        };
        assert_eq!(largest(&[]), None);
        assert_eq!(largest(&[(1, 16_384, young), (2, 20_480, young)]), None);
        assert_eq!(
            largest(&[(1, 20_480, young), (2, 16_384, began_at), (3, 16_384, began_at)]),
            Some((2, 16_384))
        );
        assert_eq!(largest(&[(2, 16_384, began_at), (3, 20_480, began_at)]), Some((3, 20_480)));
    }
}
