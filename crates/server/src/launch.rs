//! The start of a prepared server: its state, its threads, and the last message to the one that it replaces.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use glasscache_store::Store;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

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
use crate::shared::logins::LoginMessage;
use crate::shared::memory_file::{MemoryFile, PreparedStore};
use crate::shared::wake::Waker;
use crate::shared::{Shared, SharedParts};
use crate::successor::SuccessorThread;
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
        bound_sockets: bound,
        memory_file,
        memory,
        inheritance,
    } = prepared;
    let PreparedStore {
        store,
        clock,
        outcome,
    } = memory;
    let (shared, lines, attempts) = make_shared(parts, &bound, store, clock)?;
    // Of a predecessor there is none but the one that it saves if it is stopped before it hands over.
    if let Some(file) = memory_file.as_ref().filter(|_| inheritance.is_none()) {
        file.remove_snapshot()?;
    }
    let mut running = RunningServer::new(Arc::clone(&shared));
    if let Some(lines) = lines {
        // Not joined at the end: stderr may be a pipe that nothing reads.
        std::thread::Builder::new()
            .name("gc-log".to_owned())
            .spawn(move || lines.write())
            .map_err(Error::System)?;
    }
    let (mut predecessor, mut control, mut connections) = (None, None, Vec::new());
    if let Some(inheritance) = inheritance {
        predecessor = Some((inheritance.channel, inheritance.cancellation));
        control = Some(inheritance.control);
        connections = inheritance.connections;
    }
    let successor = memory_file
        .as_ref()
        .and_then(|file| make_successor_thread(&shared, &bound, file, control));
    let threads = &mut running.threads;
    let wakers = shared.workers.iter().map(|(_, waker)| waker.clone());
    let accept_queues = Arc::new(AcceptQueues::new(wakers));
    for index in 0..shared.workers.len() {
        start_worker(
            threads,
            &shared,
            index,
            accept_queues.queue_of_worker(index),
        )?;
    }
    let handshakes = Arc::new(HandshakeQueue::new().map_err(system_error)?);
    start_handshakes(threads, &shared, &handshakes, &accept_queues)?;
    let next_serial = connections.len() as u64 + 1;
    adopt_connections(&shared, &accept_queues, connections);
    let listener = Listener::new(
        Arc::clone(&shared),
        bound,
        accept_queues,
        handshakes,
        next_serial,
    );
    let listener = listener.map_err(system_error)?;
    threads.spawn("gc-listener".to_owned(), move || listener.run())?;
    threads.start_login_thread(&shared, attempts)?;
    if let Some(successor) = successor {
        threads.spawn("gc-successor".to_owned(), move || successor.run())?;
    }
    threads.start_watchdog(&shared)?;
    // Nothing can fail after this.
    if let Some((channel, cancellation)) = predecessor {
        replacement::commit(&channel, &cancellation)?;
    }
    running.threads.release_start_latch();
    if let Some(file) = memory_file {
        running.attach_memory_file(file, &outcome);
    }
    Ok(running)
}

/// The state of the threads, and what the threads of the log and of the logins receive.
type SharedAndReceivers = (
    Arc<Shared>,
    Option<LogReceiver>,
    mpsc::Receiver<LoginMessage>,
);

fn make_shared(
    parts: PreparedParts,
    bound: &[BoundSocket],
    store: Arc<Store>,
    clock: Clock,
) -> Result<SharedAndReceivers, Error> {
    let PreparedParts {
        config,
        slab_classes,
        logins,
        tls,
    } = parts;
    let new_counters = || {
        let by_class = (0..=slab_classes.chunks().len())
            .map(|_| ClassCounters::default())
            .collect();
        Arc::new(Counters {
            by_class,
            ..Counters::default()
        })
    };
    let cluster = Cluster::new(config.cluster_file.as_deref())?;
    let workers = (0..config.workers)
        .map(|_| Ok((new_counters(), Waker::new()?)))
        .collect::<rustix::io::Result<Vec<_>>>()
        .map_err(system_error)?;
    let (log, log_receiver) = Log::new();
    let log_receiver = config.log.then_some(log_receiver);
    let (logins, login_receiver) = logins.with_thread();
    let log = if config.log { log } else { Log::default() };
    let shared = Arc::new(Shared::new(SharedParts {
        addresses: bound
            .iter()
            .map(BoundSocket::descriptor_and_address)
            .collect(),
        listener_waker: Waker::new().map_err(system_error)?,
        control_waker: Waker::new().map_err(system_error)?,
        clock,
        store,
        workers,
        slab_classes,
        cluster,
        logins,
        tls,
        config,
        log,
    }));
    Ok((shared, log_receiver, login_receiver))
}

/// Registers the connections of a replaced server and hands them to the workers.
fn adopt_connections(
    shared: &Shared,
    accept_queues: &AcceptQueues,
    connections: Vec<InheritedConnection>,
) {
    for (serial, connection) in (1..).zip(connections) {
        let InheritedConnection {
            socket,
            state,
            info: inherited,
        } = connection;
        let peer = rustix::net::getpeername(&socket).ok().flatten();
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        let id = ConnectionId {
            descriptor: socket.as_raw_fd(),
            serial,
        };
        let peer = peer.map_or(Peer::Unix, Peer::Tcp);
        let mut info = ConnectionInfo::new(id, peer, inherited.listener, inherited.last_command_s);
        info.has_proxy_header = inherited.has_proxy_header;
        if let Some(client) = inherited.proxied_client {
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
            inherited: Some(Box::new(state)),
        });
    }
}

/// The thread that waits for a successor; `control` is the socket of a replaced server. Without it the server runs, and
/// cannot be replaced.
fn make_successor_thread(
    shared: &Arc<Shared>,
    bound: &[BoundSocket],
    memory_file: &MemoryFile,
    control: Option<OwnedFd>,
) -> Option<SuccessorThread> {
    let thread = SuccessorThread::new(shared, bound, memory_file, control);
    let log = |error: &_| {
        shared.log.queue_line(format!(
            "glasscache: this server cannot be replaced while it runs: {error}"
        ));
    };
    thread.inspect_err(log).ok()
}

fn start_worker(
    threads: &mut Threads,
    shared: &Arc<Shared>,
    index: usize,
    accept_queue: AcceptQueue,
) -> Result<(), Error> {
    let Some(counters_and_waker) = shared.workers.get(index).cloned() else {
        return Ok(());
    };
    let store = shared.store.worker();
    let should_pin = shared.config.pin_workers;
    let worker = Worker::new(Arc::clone(shared), store, counters_and_waker, accept_queue);
    let worker = worker.map_err(system_error)?;
    threads.spawn(format!("gc-worker-{index}"), move || {
        if should_pin {
            pin_to_core(index);
        }
        worker.run();
    })
}

/// Starts the thread of the TLS handshakes, if there is TLS.
fn start_handshakes(
    threads: &mut Threads,
    shared: &Arc<Shared>,
    queue: &Arc<HandshakeQueue>,
    workers: &Arc<AcceptQueues>,
) -> Result<(), Error> {
    if shared.tls.is_none() {
        return Ok(());
    }
    let handshakes = Handshakes::new(Arc::clone(shared), Arc::clone(queue), Arc::clone(workers));
    let handshakes = handshakes.map_err(system_error)?;
    threads.spawn("gc-handshakes".to_owned(), move || handshakes.run())
}

/// Pins this thread to the `index`-th of its allowed processors; if that fails it stays unpinned.
fn pin_to_core(index: usize) {
    let Ok(allowed) = sched_getaffinity(None::<Pid>) else {
        return;
    };
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|processor| allowed.is_set(*processor))
        .collect();
    if let Some(processor) = processors.get(index % processors.len().max(1)) {
        let mut cpu_set = CpuSet::new();
        cpu_set.set(*processor);
        let _ = sched_setaffinity(None, &cpu_set);
    }
}

fn system_error(error: rustix::io::Errno) -> Error {
    Error::System(error.into())
}
