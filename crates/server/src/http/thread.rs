//! The thread of HTTP: it accepts, serves and closes, and looks at the workers at each tick.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SocketFlags;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

use super::HttpSocket;
use super::connection::Connection;
use super::health::TICK_MS;
use super::routes::Routes;
use crate::shared::Shared;
use crate::shared::wake::Waker;

/// Connections at once.
const CONNECTIONS_MAX: usize = 64;
/// Connections that are accepted before those that are open are served again.
const ACCEPTED_AT_ONCE: usize = 16;
/// The priority: a flood of requests takes no more than a tenth of what a busy worker gets of a processor.
const NICENESS: i32 = 10;
/// Time between two ticks.
const TICK: Duration = Duration::from_millis(TICK_MS);

/// The state of the thread.
pub(super) struct HttpThread {
    shared: Arc<Shared>,
    sockets: Vec<HttpSocket>,
    /// Wakes the thread to end it.
    waker: Waker,
    connections: Vec<Connection>,
    next_serial: u64,
    routes: Routes,
    next_tick: Instant,
}

impl HttpThread {
    pub(super) fn new(shared: Arc<Shared>, sockets: Vec<HttpSocket>, waker: Waker) -> HttpThread {
        HttpThread {
            routes: Routes::new(Arc::clone(&shared)),
            shared,
            sockets,
            waker,
            connections: Vec::new(),
            next_serial: 0,
            next_tick: Instant::now(),
        }
    }

    /// Serves until it is woken.
    pub(super) fn run(mut self) {
        // Of this thread alone: in Linux each has its own.
        let _ = setpriority_process(Some(gettid()), NICENESS);
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.serve())) {
                Ok(()) => return,
                // The cache goes on; the panic hook has logged it.
                Err(_) => self.connections.clear(),
            }
        }
    }

    fn serve(&mut self) {
        loop {
            let ready = self.wait();
            let Some(ready) = ready else { return };
            let now = Instant::now();
            self.advance(&ready, now);
            self.tick(now);
            for connection in &mut self.connections {
                connection.expire(now);
            }
            self.connections.retain(|connection| !connection.is_closed());
            // A successor accepts on the same sockets.
            if !self.shared.phases.is_replaced() {
                self.accept(now);
            }
        }
    }

    /// Waits until something is ready; returns for each connection whether it is, or `None` to end.
    fn wait(&self) -> Option<Vec<bool>> {
        let now = Instant::now();
        let deadlines = self.connections.iter().filter_map(Connection::deadline);
        let next = deadlines.chain([self.next_tick]).min().unwrap_or(self.next_tick);
        let wait = next.saturating_duration_since(now);
        let timeout =
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut poll_fds = vec![PollFd::new(&self.waker, PollFlags::IN)];
        let connections = self.connections.iter();
        poll_fds.extend(connections.map(|connection| {
            PollFd::from_borrowed_fd(connection.stream().as_fd(), connection.interest())
        }));
        if !self.shared.phases.is_replaced() {
            let sockets = self.sockets.iter();
            poll_fds.extend(sockets.map(|socket| PollFd::new(&socket.socket, PollFlags::IN)));
        }
        let _ = poll(&mut poll_fds, Some(&timeout));
        let mut ready = poll_fds.iter().map(|poll_fd| !poll_fd.revents().is_empty());
        let is_woken = ready.next().unwrap_or(false);
        (!is_woken).then(|| ready.take(self.connections.len()).collect())
    }

    fn advance(&mut self, ready: &[bool], now: Instant) {
        let stream_count = self.connections.iter().filter(|other| other.is_stream()).count();
        let mut streams = stream_count;
        for (connection, _) in
            self.connections.iter_mut().zip(ready).filter(|(_, is_ready)| **is_ready)
        {
            let sockets = &self.sockets;
            let routes = &mut self.routes;
            connection.advance(now, |port, request| {
                let names = sockets.iter().find(|socket| socket.port == port);
                routes.respond(port, names.map(|socket| &socket.host_names), request, streams)
            });
            streams += usize::from(connection.is_stream());
        }
    }

    fn tick(&mut self, now: Instant) {
        if now < self.next_tick {
            return;
        }
        // Ticks that were missed, as in a suspended process, are left out.
        self.next_tick = now + TICK;
        let has_streams = self.connections.iter().any(Connection::is_stream);
        if let Some(event) = self.routes.tick(now, has_streams) {
            for connection in &mut self.connections {
                connection.push_events(&event, now);
            }
        }
    }

    fn accept(&mut self, now: Instant) {
        for socket in &self.sockets {
            for _ in 0..ACCEPTED_AT_ONCE {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                let Ok(accepted) = rustix::net::accept_with(&socket.socket, flags) else {
                    break;
                };
                if self.connections.len() >= CONNECTIONS_MAX {
                    // The oldest makes room, so that those that are never complete keep nobody out.
                    let oldest =
                        self.connections.iter().enumerate().filter(|(_, other)| !other.is_stream());
                    let oldest =
                        oldest.min_by_key(|(_, other)| other.serial).map(|(index, _)| index);
                    self.connections.remove(oldest.unwrap_or(0));
                }
                let stream = TcpStream::from(accepted);
                let _ = stream.set_nodelay(true);
                self.next_serial += 1;
                self.connections.push(Connection::new(stream, socket.port, self.next_serial, now));
            }
        }
    }
}
