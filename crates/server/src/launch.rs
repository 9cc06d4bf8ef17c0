//! Starts a prepared server: its shared state, its threads, and the last message to the server that it replaces.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use glasscache_store::Store;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::http::HttpSocket;
use crate::net::accept_queue::{AcceptQueue, AcceptQueues, AcceptedConnection};
use crate::net::handshakes::{HandshakeQueue, Handshakes};
use crate::net::listener::{BoundSocket, Listener};
use crate::net::stream::Stream;
use crate::net::worker::Worker;
use crate::prepared::{InheritedConnection, PreparedParts, PreparedServer, prepare};
use crate::replacement;
use crate::running::RunningServer;
use crate::shared::clock::Clock;
use crate::shared::cluster::Cluster;
use crate::shared::config::Config;
use crate::shared::connection_info::{ConnectionId, ConnectionInfo, Peer};
use crate::shared::counters::{ClassCounters, Counters};
use crate::shared::error::Error;
use crate::shared::log::{Log, LogReceiver};
use crate::shared::log_output::{LogFile, LogLevel};
use crate::shared::memory_file::{MemoryFile, PreparedStore};
use crate::shared::wake::Waker;
use crate::shared::{Shared, SharedParts};
use crate::successor::HandoverThread;
use crate::threads::Threads;

/// Binds, allocates, starts the threads; when it returns, connections are accepted.
///
/// # Errors
/// An invalid setting, an address in use, no memory for the store, no threads.
pub fn start(config: Config) -> Result<RunningServer, Error> {
    prepare(config)?.start()
}

impl PreparedServer {
    /// Starts the threads; when it returns, connections are accepted.
    ///
    /// # Errors
    /// No threads, a cluster file that cannot be read, or a snapshot of a memory file that cannot be removed.
    pub fn start(self) -> Result<RunningServer, Error> {
        launch(self)
    }
}

fn launch(prepared: PreparedServer) -> Result<RunningServer, Error> {
    let PreparedServer {
        parts,
        bound_sockets,
        http_sockets,
        memory_file,
        prepared_store,
        inheritance,
        ..
    } = prepared;
    let PreparedStore { store, clock, recovery_message } = prepared_store;
    let (shared, log_receiver) = make_shared(parts, &bound_sockets, store, clock)?;
    // If there is a predecessor the snapshot stays: it exists only if the predecessor was stopped before it handed
    // over.
    if let Some(file) = memory_file.as_ref().filter(|_| inheritance.is_none()) {
        file.remove_snapshot()?;
    }
    let mut running_server = RunningServer::new(Arc::clone(&shared));
    log_receiver.map_or(Ok(()), start_log_thread)?;
    let (mut channel_and_cancellation, mut control_socket, mut connections) =
        (None, None, Vec::new());
    if let Some(inheritance) = inheritance {
        channel_and_cancellation = Some((inheritance.channel, inheritance.cancellation));
        control_socket = Some(inheritance.control_socket);
        connections = inheritance.connections;
    }
    let handover_thread = memory_file.as_ref().and_then(|file| {
        let sockets = bound_sockets.iter().map(BoundSocket::socket);
        let sockets = sockets.chain(http_sockets.iter().map(HttpSocket::socket));
        make_handover_thread(&shared, sockets, file, control_socket)
    });
    let threads = &mut running_server.threads;
    let wakers = shared.counters_and_wakers.iter().map(|(_, waker)| waker.clone());
    let accept_queues = Arc::new(AcceptQueues::new(wakers));
    for worker_index in 0..shared.counters_and_wakers.len() {
        start_worker(threads, &shared, worker_index, accept_queues.queue_of_worker(worker_index))?;
    }
    let handshake_queue = Arc::new(HandshakeQueue::new().map_err(system_error)?);
    start_handshakes(threads, &shared, &handshake_queue, &accept_queues)?;
    let next_serial = connections.len() as u64 + 1;
    adopt_connections(&shared, &accept_queues, connections);
    let listener = Listener::new(
        Arc::clone(&shared),
        bound_sockets,
        accept_queues,
        handshake_queue,
        next_serial,
    );
    let listener = listener.map_err(system_error)?;
    threads.spawn_serving("gc-listener".to_owned(), move || listener.run())?;
    threads.start_login_thread(&shared)?;
    running_server.http_addresses = http_sockets.iter().map(HttpSocket::address).collect();
    let threads = &mut running_server.threads;
    threads.start_http_thread(&shared, http_sockets)?;
    if let Some(handover_thread) = handover_thread {
        threads.spawn_serving("gc-successor".to_owned(), move || handover_thread.run())?;
    }
    threads.start_watchdog(&shared)?;
    threads.start_live_thread(&shared)?;
    // Nothing can fail after this.
    if let Some((channel, cancellation)) = channel_and_cancellation {
        replacement::commit(&channel, &cancellation)?;
    }
    running_server.threads.release_start_latch();
    if let Some(file) = memory_file {
        running_server.attach_memory_file(file, &recovery_message);
    }
    Ok(running_server)
}

/// Starts the thread that writes the log. It is not joined at the end: stderr may be a pipe that nothing reads.
fn start_log_thread(log_receiver: LogReceiver) -> Result<(), Error> {
    let thread = std::thread::Builder::new().name("gc-log".to_owned());
    thread.spawn(move || log_receiver.write_lines()).map(drop).map_err(Error::System)
}

/// The state of the threads, and what the thread of the log receives.
type SharedAndReceiver = (Arc<Shared>, Option<LogReceiver>);

fn make_shared(
    parts: PreparedParts,
    bound_sockets: &[BoundSocket],
    store: Arc<Store>,
    clock: Clock,
) -> Result<SharedAndReceiver, Error> {
    let PreparedParts { config, slab_classes, logins, tls, http_token } = parts;
    let new_counters = || {
        let by_class =
            (0..=slab_classes.chunk_sizes().len()).map(|_| ClassCounters::default()).collect();
        Arc::new(Counters { by_class, ..Counters::default() })
    };
    let cluster = Cluster::new(config.cluster_file.as_deref())?;
    let log_file = config.log_file.as_deref().map(open_log_file).transpose()?;
    let counters_and_wakers = (0..config.workers)
        .map(|_| Ok((new_counters(), Waker::new()?)))
        .collect::<rustix::io::Result<Vec<_>>>()
        .map_err(system_error)?;
    let (log, log_receiver) = Log::new(config.log_style, log_file);
    let log_receiver = config.log.then_some(log_receiver);
    let logins = logins.with_queue();
    let log = if config.log { log } else { Log::default() };
    let shared = Arc::new(Shared::new(SharedParts {
        addresses: bound_sockets.iter().map(BoundSocket::descriptor_and_address).collect(),
        listener_waker: Waker::new().map_err(system_error)?,
        control_waker: Waker::new().map_err(system_error)?,
        clock,
        store,
        counters_and_wakers,
        slab_classes,
        cluster,
        logins,
        tls,
        http_token,
        config,
        log,
    }));
    Ok((shared, log_receiver))
}

fn open_log_file(path: &Path) -> Result<LogFile, Error> {
    LogFile::open(path).map_err(|error| Error::LogFile(path.to_owned(), error))
}

/// Registers the connections of a replaced server and hands them to the workers.
fn adopt_connections(
    shared: &Shared,
    accept_queues: &AcceptQueues,
    connections: Vec<InheritedConnection>,
) {
    for (serial, connection) in (1..).zip(connections) {
        let InheritedConnection { socket, state, info: inherited_info } = connection;
        let peer_address = rustix::net::getpeername(&socket).ok().flatten();
        let peer_address = peer_address.and_then(|address| SocketAddr::try_from(address).ok());
        let id = ConnectionId { descriptor: socket.as_raw_fd(), serial };
        let peer = peer_address.map_or(Peer::Unix, Peer::Tcp);
        let mut info = ConnectionInfo::new(
            id,
            peer,
            inherited_info.listener_index,
            inherited_info.last_command_s,
        );
        info.has_proxy_header = inherited_info.has_proxy_header;
        info.serves_statistics_only = shared.serves_statistics_only(inherited_info.listener_index);
        if let Some(client) = inherited_info.proxied_client {
            info.set_proxied_client(client);
        }
        let info = Arc::new(info);
        let registry = &shared.connections;
        registry.current.fetch_add(1, Ordering::Relaxed);
        registry.total.fetch_add(1, Ordering::Relaxed);
        registry.set_awaits_login(&info, state.awaits_login());
        registry.insert(Arc::clone(&info));
        accept_queues.assign(AcceptedConnection {
            stream: Stream::Plain(socket),
            info,
            inherited_state: Some(Box::new(state)),
        });
    }
}

/// The thread that waits for a successor; `control_socket` is that of a replaced server. Without the thread the server
/// runs, and cannot be replaced.
fn make_handover_thread<'s>(
    shared: &Arc<Shared>,
    listening_sockets: impl Iterator<Item = &'s OwnedFd>,
    memory_file: &MemoryFile,
    control_socket: Option<OwnedFd>,
) -> Option<HandoverThread> {
    let result = HandoverThread::new(shared, listening_sockets, memory_file, control_socket);
    let report_error = |error: &_| {
        shared.log.queue_line(
            LogLevel::Warning,
            format!("glasscache: this server cannot be replaced while it runs: {error}"),
        );
    };
    result.inspect_err(report_error).ok()
}

fn start_worker(
    threads: &mut Threads,
    shared: &Arc<Shared>,
    worker_index: usize,
    accept_queue: AcceptQueue,
) -> Result<(), Error> {
    let Some(counters_and_waker) = shared.counters_and_wakers.get(worker_index).cloned() else {
        return Ok(());
    };
    let store_worker = shared.store.worker();
    let should_pin = shared.config.pin_workers;
    let worker = Worker::new(Arc::clone(shared), store_worker, counters_and_waker, accept_queue);
    let worker = worker.map_err(system_error)?;
    threads.spawn_serving(format!("gc-worker-{worker_index}"), move || {
        if should_pin {
            pin_to_core(worker_index);
        }
        worker.run();
    })
}

/// Starts the thread of the TLS handshakes, if there is TLS.
fn start_handshakes(
    threads: &mut Threads,
    shared: &Arc<Shared>,
    handshake_queue: &Arc<HandshakeQueue>,
    accept_queues: &Arc<AcceptQueues>,
) -> Result<(), Error> {
    if shared.tls.is_none() {
        return Ok(());
    }
    let handshakes =
        Handshakes::new(Arc::clone(shared), Arc::clone(handshake_queue), Arc::clone(accept_queues));
    let handshakes = handshakes.map_err(system_error)?;
    threads.spawn_serving("gc-handshakes".to_owned(), move || handshakes.run())
}

/// Pins this thread to the `worker_index`-th of its allowed processors; if that fails it stays unpinned.
fn pin_to_core(worker_index: usize) {
    let Ok(allowed) = sched_getaffinity(None::<Pid>) else {
        return;
    };
    let processors: Vec<usize> =
        (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
    if let Some(processor) = processors.get(worker_index % processors.len().max(1)) {
        let mut cpu_set = CpuSet::new();
        cpu_set.set(*processor);
        let _ = sched_setaffinity(None, &cpu_set);
    }
}

fn system_error(error: rustix::io::Errno) -> Error {
    Error::System(error.into())
}
