//! A recording proxy, for programs that cannot be changed: it runs between them and the server and records what each
//! connection reads.
//!
//! Bytes are passed on as they are, whatever they mean; text and meta are recorded, and a connection in another
//! protocol is counted. A connection is an instance of the log, a pause of its own ends a request. What happens inside
//! the program is not seen: a request has no page, no route, and `base_us` is 0.

mod commands;
mod connection_recorder;
mod forward;
mod replies;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use glasscache_record::{Options, RecordError, Recorder};

use commands::CommandScanner;
use connection_recorder::ConnectionRecorder;
use forward::{Direction, ForwardLatency, forward_bytes};
use replies::ReplyScanner;

/// How soon threads notice that the proxy ends.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A proxy that runs until it is stopped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<ProxyShared>,
    accept_thread: Option<JoinHandle<()>>,
}

/// What all connections share.
#[derive(Debug)]
struct ProxyShared {
    server_address: String,
    options: Options,
    request_gap: Duration,
    is_stopped: AtomicBool,
    connections: AtomicU64,
    refused_connections: AtomicU64,
    unrecorded_connections: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    recorded_requests: AtomicU64,
    dropped_requests: AtomicU64,
    warning: Mutex<Option<String>>,
    forward_latency: ForwardLatency,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What a proxy did.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct ProxyStats {
    /// Connections of clients.
    pub connections: u64,
    /// Connections that were closed because the server could not be reached.
    #[serde(rename = "refused")]
    pub refused_connections: u64,
    /// Connections that were passed on and not recorded, or not to their end: another protocol than text and meta.
    #[serde(rename = "unrecorded")]
    pub unrecorded_connections: u64,
    /// Keys that were read.
    pub reads: u64,
    /// Commands that write.
    pub writes: u64,
    /// Requests in the log.
    #[serde(rename = "recorded")]
    pub recorded_requests: u64,
    /// Requests that are not in the log: no memory was left, or the folder cannot be written.
    #[serde(rename = "dropped")]
    pub dropped_requests: u64,
    /// Mean time from receiving bytes to having passed them on, in microseconds, of either direction.
    pub hop_us: f64,
}

impl Proxy {
    /// Listens on `listen` and passes every connection on to `server_address` (host:port). Requests are recorded as
    /// `options` say; a pause of `request_gap` ends one.
    ///
    /// # Errors
    /// The address cannot be listened on, or the options have no meaning.
    pub fn start(
        listen: &str,
        server_address: &str,
        options: Options,
        request_gap: Duration,
    ) -> Result<Self, ProxyError> {
        let options = Options { has_base: false, ..options };
        options.check()?;
        let listener = TcpListener::bind(listen)?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(ProxyShared {
            server_address: server_address.to_owned(),
            options,
            request_gap,
            is_stopped: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            refused_connections: AtomicU64::new(0),
            unrecorded_connections: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            recorded_requests: AtomicU64::new(0),
            dropped_requests: AtomicU64::new(0),
            warning: Mutex::new(None),
            forward_latency: ForwardLatency::default(),
            threads: Mutex::new(Vec::new()),
        });
        let accept_shared = Arc::clone(&shared);
        let accept_thread = std::thread::Builder::new()
            .name("glasscache-proxy".to_owned())
            .spawn(move || accept_connections(&listener, &accept_shared))?;
        Ok(Self { address, shared, accept_thread: Some(accept_thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections, completes the log and returns what was done.
    pub fn stop(mut self) -> ProxyStats {
        self.shut_down();
        self.stats()
    }

    /// Why requests are not recorded, once.
    pub fn take_warning(&self) -> Option<String> {
        lock(&self.shared.warning).take()
    }

    /// What was done so far, by connections that have ended.
    pub(crate) fn stats(&self) -> ProxyStats {
        let read_counter = |counter: &AtomicU64| counter.load(Relaxed);
        let shared = &self.shared;
        ProxyStats {
            connections: read_counter(&shared.connections),
            refused_connections: read_counter(&shared.refused_connections),
            unrecorded_connections: read_counter(&shared.unrecorded_connections),
            reads: read_counter(&shared.reads),
            writes: read_counter(&shared.writes),
            recorded_requests: read_counter(&shared.recorded_requests),
            dropped_requests: read_counter(&shared.dropped_requests),
            hop_us: shared.forward_latency.mean_us(),
        }
    }

    fn shut_down(&mut self) {
        self.shared.is_stopped.store(true, Relaxed);
        // A thread that panicked has nothing more to write.
        let _ = self.accept_thread.take().map(JoinHandle::join);
        let threads = std::mem::take(&mut *lock(&self.shared.threads));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Why a proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] io::Error),
    /// The options have no meaning.
    #[error(transparent)]
    Options(#[from] RecordError),
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a connection would be found to have sent and received if both were `bytes`, in pieces of `piece_bytes`.
///
/// For the fuzz target, which compares the findings of any two cuts.
pub fn scan_in_pieces(bytes: &[u8], piece_bytes: usize) -> String {
    let (mut command_scanner, mut commands) = (CommandScanner::default(), Vec::new());
    let (mut reply_scanner, mut replies) = (ReplyScanner::default(), Vec::new());
    for piece in bytes.chunks(piece_bytes.max(1)) {
        command_scanner.scan(piece, &mut |event| commands.push(event));
        reply_scanner.scan(piece, &mut |event| replies.push(event));
    }
    format!("{commands:?}, out of sync: {}; {replies:?}", command_scanner.is_out_of_sync())
}

/// Accepts connections until the proxy ends; each has a thread.
fn accept_connections(listener: &TcpListener, shared: &Arc<ProxyShared>) {
    while !shared.is_stopped.load(Relaxed) {
        let Ok((client, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        shared.connections.fetch_add(1, Relaxed);
        let connection_shared = Arc::clone(shared);
        let thread = std::thread::spawn(move || {
            if forward_connection(&client, &connection_shared).is_err() {
                connection_shared.refused_connections.fetch_add(1, Relaxed);
            }
        });
        let mut threads = lock(&shared.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }
}

/// Passes on one connection in both directions until both have ended.
fn forward_connection(client: &TcpStream, shared: &ProxyShared) -> io::Result<()> {
    let server = TcpStream::connect(&shared.server_address)?;
    for stream in [client, &server] {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
    }
    // Before any byte is passed on, and under no lock: two connections at once never share an instance.
    let recorder =
        Recorder::open_with_instance(shared.options.clone()).map_err(io::Error::other)?;
    let connection_recorder =
        Mutex::new(ConnectionRecorder::new(recorder.clone(), shared.request_gap));
    let record_bytes = |direction: Direction, bytes: &[u8]| {
        let mut connection_recorder = lock(&connection_recorder);
        match direction {
            Direction::ToServer => connection_recorder.on_client_bytes(bytes, Instant::now()),
            Direction::ToClient => connection_recorder.on_server_bytes(bytes, Instant::now()),
        }
    };
    let forward_direction = |direction: Direction, sender: &TcpStream, receiver: &TcpStream| {
        forward_bytes(
            (sender, receiver),
            &shared.forward_latency,
            &shared.is_stopped,
            &mut |bytes| {
                record_bytes(direction, bytes);
            },
        );
        // A client that ended may still wait for replies; without a server there are none.
        let shutdown_mode = match direction {
            Direction::ToServer => Shutdown::Write,
            Direction::ToClient => Shutdown::Both,
        };
        let _ = receiver.shutdown(shutdown_mode);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| forward_direction(Direction::ToServer, client, &server));
        forward_direction(Direction::ToClient, &server, client);
    });
    let connection_recorder =
        connection_recorder.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (counts, is_out_of_sync) =
        (connection_recorder.counts, connection_recorder.is_out_of_sync());
    drop(connection_recorder);
    shared.reads.fetch_add(counts.reads, Relaxed);
    shared.writes.fetch_add(counts.writes, Relaxed);
    shared.unrecorded_connections.fetch_add(u64::from(is_out_of_sync), Relaxed);
    let stats = recorder.stats();
    shared.recorded_requests.fetch_add(stats.recorded, Relaxed);
    shared.dropped_requests.fetch_add(stats.dropped, Relaxed);
    if let Some(warning) = recorder.take_warning() {
        lock(&shared.warning).get_or_insert(warning);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_found_in_bytes_whatever_their_cut() {
        let bytes =
            b"get a b\r\nmg c v\r\nset d 0 0 2\r\nxy\r\nVALUE a 0 1\r\nz\r\nEND\r\n\xff\0HD\r\n";
        let found = scan_in_pieces(bytes, bytes.len());
        assert!(found.contains("Get"), "{found}");
        for piece_bytes in 1..bytes.len() {
            assert_eq!(scan_in_pieces(bytes, piece_bytes), found, "pieces of {piece_bytes}");
        }
    }
}
