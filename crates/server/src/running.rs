//! The threads of a server, and the handle on a running one.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use glasscache_store::Store;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

use crate::failure;
use crate::login_thread;
use crate::net::accept_queue::{AcceptQueue, AcceptQueues, AcceptedConnection};
use crate::net::handshakes::{HandshakeQueue, Handshakes};
use crate::net::listener::{BoundSocket, Listener};
use crate::net::stream::Stream;
use crate::net::worker::Worker;
use crate::prepared::{InheritedConnection, PreparedParts, PreparedServer, prepare};
use crate::replacement;
use crate::shared::address::Address;
use crate::shared::clock::Clock;
use crate::shared::cluster::Cluster;
use crate::shared::config::Config;
use crate::shared::control_channel::control_path;
use crate::shared::counters::{ClassCounters, Counters};
use crate::shared::error::Error;
use crate::shared::info::{ConnectionId, ConnectionInfo, Peer};
use crate::shared::log::{Log, LogReceiver};
use crate::shared::logins::LoginMessage;
use crate::shared::memory_file::{MemoryFile, PreparedStore};
use crate::shared::wake::Waker;
use crate::shared::{Shared, SharedParts};
use crate::start_gate::StartGate;
use crate::successor::{ControlSocket, SuccessorThread};
use crate::watchdog;

/// A server that runs in this process. It ends by [`RunningServer::stop`], by the `shutdown` command, or
/// when the handle is dropped.
pub struct RunningServer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    thread_ids: Vec<i32>,
    watchdog: Option<WatchdogThread>,
    /// The thread that verifies passwords.
    login_thread: Option<JoinHandle<()>>,
    /// Locked until the items are saved.
    memory_file: Option<MemoryFile>,
    /// Where the threads wait until they may serve.
    gate: Arc<StartGate>,
}

/// The watchdog's thread, which ends when the sender is dropped.
struct WatchdogThread {
    stop_sender: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

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
    let successor = SuccessorParts::new(&shared, &bound, memory_file.as_ref());
    let mut running = RunningServer {
        shared: Arc::clone(&shared),
        threads: Vec::new(),
        thread_ids: Vec::new(),
        watchdog: None,
        login_thread: None,
        memory_file: None,
        gate: Arc::default(),
    };
    if let Some(lines) = lines {
        // Not joined at the end: stderr may be a pipe that nothing reads.
        std::thread::Builder::new()
            .name("gc-log".to_owned())
            .spawn(move || lines.write())
            .map_err(Error::System)?;
    }
    let wakers = shared.workers.iter().map(|(_, waker)| waker.clone());
    let accept_queues = Arc::new(AcceptQueues::new(wakers));
    for index in 0..shared.workers.len() {
        running.start_worker(index, accept_queues.queue_of_worker(index))?;
    }
    let handshakes = Arc::new(HandshakeQueue::new().map_err(system_error)?);
    running.start_handshakes(&handshakes, &accept_queues)?;
    let (mut channel, mut control, mut connections) = (None, None, Vec::new());
    if let Some(inheritance) = inheritance {
        channel = Some(inheritance.channel);
        control = Some(inheritance.control);
        connections = inheritance.connections;
    }
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
    running.spawn("gc-listener".to_owned(), move || listener.run())?;
    running.start_login_thread(attempts)?;
    running.start_successor_thread(successor, control)?;
    running.start_watchdog()?;
    // Nothing can fail after this.
    if let Some(channel) = channel {
        replacement::commit(channel)?;
    }
    running.gate.open();
    running.memory_file = memory_file;
    running.settle_memory_file(&outcome);
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
        classes,
        logins,
        tls,
    } = parts;
    let new_counters = || {
        let by_class = (0..=classes.chunks().len())
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
        classes,
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
        accept_queues.hand_over(AcceptedConnection {
            stream: Stream::Plain(socket),
            info,
            inherited: Some(Box::new(state)),
        });
    }
}

/// What the thread that waits for a successor needs.
struct SuccessorParts {
    memory_file: OwnedFd,
    listening_sockets: Vec<OwnedFd>,
}

impl SuccessorParts {
    /// `None` without a memory file, or if the process may not have more descriptors.
    fn new(
        shared: &Shared,
        bound: &[BoundSocket],
        memory_file: Option<&MemoryFile>,
    ) -> Option<SuccessorParts> {
        let parts = || {
            let listening_sockets = bound.iter().map(|bound| bound.socket().try_clone());
            Ok(SuccessorParts {
                memory_file: memory_file
                    .map(MemoryFile::descriptor)
                    .transpose()?
                    .ok_or(std::io::ErrorKind::NotFound)?,
                listening_sockets: listening_sockets.collect::<std::io::Result<_>>()?,
            })
        };
        memory_file?;
        let parts: std::io::Result<SuccessorParts> = parts();
        parts.map_err(|error| log_no_successor(shared, &error)).ok()
    }
}

fn log_no_successor(shared: &Shared, error: &std::io::Error) {
    shared.log.line(format!(
        "glasscache: this server cannot be replaced while it runs: {error}"
    ));
}

impl RunningServer {
    /// The addresses on which the server listens, with the ports chosen by the kernel.
    pub fn addresses(&self) -> Vec<Address> {
        self.shared
            .addresses
            .iter()
            .map(|(_, address)| address.clone())
            .collect()
    }

    /// The kernel's ids of the server's threads, workers first, for reading their CPU time.
    pub fn thread_ids(&self) -> &[i32] {
        &self.thread_ids
    }

    /// Stops the server: begun requests are completed, within a second all is over.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Like [`RunningServer::stop`]; then the items are saved if there is a memory file.
    pub fn stop_and_save(&self) {
        self.shared.stop_and_save();
    }

    /// A handle on the server for other threads.
    pub fn control(&self) -> ServerControl {
        ServerControl(Arc::clone(&self.shared))
    }

    /// Waits until the server has stopped: by a [`ServerControl`], or by the `shutdown` command. At this point everything
    /// has been started, so the memory of code that only the start needed is released.
    ///
    /// Returns whether another process has taken its place.
    pub fn join(mut self) -> bool {
        glasscache_store::release_start_pages();
        self.join_threads();
        self.shared.phases.is_replaced()
    }

    /// Logs what came back, and gives a memory file that was made beside another its name.
    fn settle_memory_file(&mut self, outcome: &str) {
        let Some(file) = &mut self.memory_file else {
            return;
        };
        let log = &self.shared.log;
        log.line(format!("glasscache: memory file {outcome}"));
        if let Some(path) = &self.shared.config.memory_file
            && let Err(error) = file.rename_over(path)
        {
            let path = path.display();
            log.line(format!(
                "glasscache: memory file {path}: cannot be renamed: {error}"
            ));
        }
    }

    fn join_threads(&mut self) {
        // The watchdog runs until the last worker has ended: a worker that hangs must not keep the process alive.
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some(thread) = self.login_thread.take() {
            self.shared.logins.end();
            let _ = thread.join();
        }
        if let Some(WatchdogThread {
            stop_sender,
            thread,
        }) = self.watchdog.take()
        {
            drop(stop_sender);
            let _ = thread.join();
        }
        if let Some(file) = self.memory_file.take() {
            self.save(&file);
        }
        self.shared.log.end();
    }

    /// Saves the items if the server was stopped to do so and no successor uses their memory; all threads have ended.
    fn save(&self, file: &MemoryFile) {
        let shared = &self.shared;
        if !shared.is_saved_at_stop() || shared.phases.is_replaced() {
            return;
        }
        let path = file.path().display();
        shared.log.line(match file.save(&shared.store, shared.clock.stop_time()) {
            Ok(()) => {
                let items = shared.store.counters().items;
                format!("glasscache: memory file {path}: {items} items are saved")
            }
            Err(error) => format!(
                "glasscache: memory file {path}: saving failed: {error}; the next server starts empty"
            ),
        });
    }

    /// Starts the thread that verifies passwords, if there are users. It runs until the last worker has ended, so
    /// that begun logins are completed.
    fn start_login_thread(
        &mut self,
        login_receiver: mpsc::Receiver<LoginMessage>,
    ) -> Result<(), Error> {
        if !self.shared.logins.are_required() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        self.spawn("gc-login".to_owned(), move || {
            login_thread::run(&shared, &login_receiver);
        })?;
        self.login_thread = self.threads.pop();
        Ok(())
    }

    /// Starts the thread that waits for a successor; `control` is the socket of a replaced server. Without a socket the
    /// server runs, and cannot be replaced.
    fn start_successor_thread(
        &mut self,
        parts: Option<SuccessorParts>,
        control: Option<OwnedFd>,
    ) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let (Some(parts), Some(file)) = (parts, shared.config.memory_file.as_deref()) else {
            return Ok(());
        };
        let path = control_path(file);
        let control = match control {
            Some(socket) => ControlSocket::inherited(socket, path),
            None => match ControlSocket::bind(path) {
                Ok(control) => control,
                Err(error) => {
                    log_no_successor(&shared, &error);
                    return Ok(());
                }
            },
        };
        let thread = SuccessorThread {
            shared,
            control,
            memory_file: parts.memory_file,
            listening_sockets: parts.listening_sockets,
        };
        self.spawn("gc-successor".to_owned(), move || thread.run())
    }

    /// Starts the thread of the TLS handshakes, if there is TLS.
    fn start_handshakes(
        &mut self,
        queue: &Arc<HandshakeQueue>,
        workers: &Arc<AcceptQueues>,
    ) -> Result<(), Error> {
        if self.shared.tls.is_none() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let handshakes = Handshakes::new(shared, Arc::clone(queue), Arc::clone(workers));
        let handshakes = handshakes.map_err(system_error)?;
        self.spawn("gc-handshakes".to_owned(), move || handshakes.run())
    }

    fn start_watchdog(&mut self) -> Result<(), Error> {
        if self.shared.config.watchdog_ticks == 0 {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let (stop_sender, stop_receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("gc-watchdog".to_owned())
            .spawn(move || watchdog::run(&shared, &stop_receiver))
            .map_err(Error::System)?;
        self.watchdog = Some(WatchdogThread {
            stop_sender,
            thread,
        });
        Ok(())
    }

    fn start_worker(&mut self, index: usize, accept_queue: AcceptQueue) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let Some((counters, waker)) = shared.workers.get(index).cloned() else {
            return Ok(());
        };
        let store = shared.store.worker();
        let should_pin = shared.config.pin_workers;
        let worker =
            Worker::new(shared, store, (counters, waker), accept_queue).map_err(system_error)?;
        self.spawn(format!("gc-worker-{index}"), move || {
            if should_pin {
                pin(index);
            }
            worker.run();
        })
    }

    /// Starts a thread that the server depends on: if it panics, the process ends.
    fn spawn(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let exit_code = self.shared.config.failure_exit_code;
        let thread_name = name.clone();
        let gate = Arc::clone(&self.gate);
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                let _ = sender.send(gettid().as_raw_nonzero().get());
                if !gate.wait() {
                    return;
                }
                // Nothing that the thread leaves behind is used again: the process ends.
                if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
                    let message = failure::panic_message(&*payload);
                    failure::end_process(
                        exit_code,
                        &format!("thread {thread_name} panicked: {message}"),
                    );
                }
            })
            .map_err(Error::System)?;
        self.threads.push(thread);
        self.thread_ids.extend(receiver.recv());
        Ok(())
    }
}

/// Stops a server, or makes it read its files again, from any thread.
#[derive(Clone)]
pub struct ServerControl(Arc<Shared>);

impl ServerControl {
    /// Like [`RunningServer::stop`].
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Like [`RunningServer::stop_and_save`].
    pub fn stop_and_save(&self) {
        self.0.stop_and_save();
    }

    /// Reads again the files that can change while the server runs, which are the cluster file, the file of users and
    /// the certificates, and logs the result.
    /// A file that cannot be read changes nothing.
    pub fn reload(&self) {
        let outcome = self.0.cluster.reload();
        self.0.log.line(format!("glasscache: SIGHUP: {outcome}"));
        if let Some(outcome) = self.0.logins.reload() {
            self.0.log.line(format!("glasscache: SIGHUP: {outcome}"));
        }
        if let Some(tls) = &self.0.tls {
            let (Ok(outcome) | Err(outcome)) = tls.reload(self.0.clock.now().0);
            self.0.log.line(format!("glasscache: SIGHUP: {outcome}"));
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.gate.abandon();
        self.shared.stop();
        self.join_threads();
    }
}

/// Pins this thread to the `index`-th of its allowed processors; if that fails it stays unpinned.
fn pin(index: usize) {
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

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;
    use crate::shared::config::Listen;

    /// A server of one worker whose store another worker reads, which passes only on command.
    struct BlockedServer {
        server: RunningServer,
        reader: glasscache_store::Worker,
    }

    impl BlockedServer {
        fn start() -> BlockedServer {
            let mut prepared = prepare(Config {
                listeners: vec![Listen::Tcp(([127, 0, 0, 1], 0).into())],
                memory_bytes: 2 << 20,
                workers: 1,
                ..Config::default()
            })
            .unwrap();
            prepared.memory.store = Store::new(glasscache_store::Config {
                memory_bytes: 2 << 20,
                workers: 2,
                ..glasscache_store::Config::default()
            })
            .unwrap();
            let mut reader = prepared.memory.store.worker();
            reader.go_online();
            let server = prepared.start().unwrap();
            BlockedServer { server, reader }
        }

        fn connect(&self) -> TcpStream {
            let Some(Address::Tcp(address)) = self.server.addresses().first().cloned() else {
                panic!("no port")
            };
            let stream = TcpStream::connect(address).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            stream
        }

        /// Writes until one of them has to wait, each followed by a read.
        fn write_until_one_waits(&self) -> TcpStream {
            let mut client = self.connect();
            let request = |number: u32| {
                format!(
                    "set key{number} 0 0 1000\r\n{number:01000}\r\ngets key{number}\r\nincr none 1\r\n"
                )
            };
            for number in 0..100_000 {
                let waits_before = self.reader.store().counters().epoch_waits;
                client.write_all(request(number).as_bytes()).unwrap();
                // A connection without a reply for this long is parked.
                let parked_timeout = Duration::from_millis(100);
                client.set_read_timeout(Some(parked_timeout)).unwrap();
                let read_result = client.read(&mut [0]);
                client
                    .set_read_timeout(Some(Duration::from_secs(20)))
                    .unwrap();
                let waits = self.reader.store().counters().epoch_waits;
                match read_result {
                    Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
                    // It was not only slow.
                    Err(_) if waits > waits_before => return client,
                    _ => drop(read_until(&mut client, b"END\r\nNOT_FOUND\r\n")),
                }
            }
            panic!("no write had to wait")
        }
    }

    fn read_until(client: &mut TcpStream, end: &[u8]) -> Vec<u8> {
        let mut reply = Vec::new();
        let mut byte = [0];
        while !reply.ends_with(end) {
            assert_eq!(client.read(&mut byte).unwrap(), 1, "closed");
            reply.push(byte[0]);
        }
        reply
    }

    fn read_stat(client: &mut TcpStream, group: &str, name: &str) -> u64 {
        client
            .write_all(format!("stats{group}\r\n").as_bytes())
            .unwrap();
        let text = String::from_utf8(read_until(client, b"END\r\n")).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap().parse().unwrap()
    }

    #[test]
    fn a_write_waits_for_a_segment_until_a_reader_passes_while_others_are_served() {
        // It is refused instead if this machine stalls for longer than it may wait.
        let is_stored = (0..20).any(|_| {
            let mut blocked_server = BlockedServer::start();
            let mut waits = blocked_server.write_until_one_waits();
            let mut other_client = blocked_server.connect();
            other_client.write_all(b"mn\r\n").unwrap();
            read_until(&mut other_client, b"MN\r\n");
            blocked_server.reader.pass();
            let reply = read_until(&mut waits, b"END\r\nNOT_FOUND\r\n");
            // In order: the following read sees it.
            reply.starts_with(b"STORED\r\nVALUE key")
        });
        assert!(is_stored);
    }

    #[test]
    fn a_write_that_waits_for_too_long_is_refused_and_counted() {
        let refused = b"SERVER_ERROR out of memory storing object\r\nEND\r\nNOT_FOUND\r\n";
        let blocked_server = BlockedServer::start();
        // One that was only slow is stored, and the next has to wait.
        let reply = (0..20).find_map(|_| {
            let mut waits = blocked_server.write_until_one_waits();
            let reply = read_until(&mut waits, b"END\r\nNOT_FOUND\r\n");
            (!reply.starts_with(b"STORED")).then_some(reply)
        });
        assert_eq!(reply.as_deref(), Some(&refused[..]));
        let mut other_client = blocked_server.connect();
        assert_eq!(read_stat(&mut other_client, "", "store_no_memory"), 1);
        // A worker that retried without sleeping would run hundreds of thousands of iterations.
        let iterations = read_stat(&mut other_client, " glasscache", "loop_iterations");
        eprintln!("{iterations} iterations");
        assert!(iterations < 20_000, "{iterations} iterations");
    }
}
