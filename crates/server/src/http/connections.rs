//! The open connections of the thread: accepted, served and closed within their bounds.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SocketFlags;

use super::connection::HttpConnection;
use super::request::{HostNames, Refusal, Request};
use super::response::Response;
use super::{HttpSocket, Port};
use crate::shared::wake::Waker;

/// Connections at once.
const CONNECTIONS_MAX: usize = 64;
/// Connections that are accepted before those that are open are served again.
const ACCEPTED_AT_ONCE: usize = 16;

/// The open connections.
#[derive(Default)]
pub(super) struct Connections {
    open: Vec<HttpConnection>,
    next_serial: u64,
}

impl Connections {
    /// Waits until something is ready, a connection ends or `until`; returns for each connection whether it is ready, or
    /// `None` if the waker is.
    pub(super) fn wait(
        &self,
        waker: &Waker,
        sockets: &[HttpSocket],
        until: Instant,
    ) -> Option<Vec<bool>> {
        let deadlines = self.open.iter().filter_map(HttpConnection::deadline);
        let wait = deadlines.chain([until]).min().unwrap_or(until);
        let wait = wait.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut poll_fds = vec![PollFd::new(waker, PollFlags::IN)];
        poll_fds.extend(self.open.iter().map(|connection| {
            PollFd::from_borrowed_fd(connection.stream().as_fd(), connection.interest())
        }));
        poll_fds.extend(sockets.iter().map(|socket| PollFd::new(&socket.socket, PollFlags::IN)));
        let _ = poll(&mut poll_fds, Some(&timeout));
        let mut ready = poll_fds.iter().map(|poll_fd| !poll_fd.revents().is_empty());
        let is_woken = ready.next().unwrap_or(false);
        (!is_woken).then(|| ready.take(self.open.len()).collect())
    }

    /// Goes on with those that are ready; `respond` makes the response to a request, given the names of its port's host
    /// and how many streams there are. Then closes those whose time is over.
    pub(super) fn advance(
        &mut self,
        ready: &[bool],
        sockets: &[HttpSocket],
        mut respond: impl FnMut(Port, Option<&HostNames>, Result<&Request, &Refusal>, usize) -> Response,
    ) {
        let now = Instant::now();
        let mut streams = self.open.iter().filter(|other| other.is_stream()).count();
        let all = self.open.iter_mut().zip(ready);
        for (connection, _) in all.filter(|(_, is_ready)| **is_ready) {
            connection.advance(now, |port, request| {
                let names = sockets.iter().find(|socket| socket.port == port);
                respond(port, names.map(|socket| &socket.host_names), request, streams)
            });
            streams += usize::from(connection.is_stream());
        }
        for connection in &mut self.open {
            connection.expire(now);
        }
        self.open.retain(|connection| !connection.is_closed());
    }

    /// Accepts new ones.
    pub(super) fn accept(&mut self, sockets: &[HttpSocket]) {
        let now = Instant::now();
        for socket in sockets {
            for _ in 0..ACCEPTED_AT_ONCE {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                let Ok(accepted) = rustix::net::accept_with(&socket.socket, flags) else {
                    break;
                };
                self.make_room();
                let stream = TcpStream::from(accepted);
                let _ = stream.set_nodelay(true);
                self.next_serial += 1;
                self.open.push(HttpConnection::new(stream, socket.port, self.next_serial, now));
            }
        }
    }

    /// If there are as many as there may be, closes the oldest, so that those that are never complete keep nobody out.
    fn make_room(&mut self) {
        if self.open.len() >= CONNECTIONS_MAX {
            let closable = self.open.iter().enumerate().filter(|(_, other)| !other.is_stream());
            let oldest = closable.min_by_key(|(_, other)| other.serial).map(|(index, _)| index);
            self.open.remove(oldest.unwrap_or(0));
        }
    }

    pub(super) fn has_streams(&self) -> bool {
        self.open.iter().any(HttpConnection::is_stream)
    }

    /// Sends events to the streams.
    pub(super) fn push_events(&mut self, events: &[u8], now: Instant) {
        for connection in &mut self.open {
            connection.push_events(events, now);
        }
    }

    /// Closes all.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }
}
