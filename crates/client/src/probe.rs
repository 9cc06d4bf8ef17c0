//! The probe: checks whether a server that is down is back, so that no call has to.
//!
//! One thread while a server is down, and none otherwise. It ends when the server replies, when it
//! left the client, or when the client is gone.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::engine::health::{PROBE_TIMEOUT, probe_pause};
use crate::pool::Server;
use crate::transport::blocking::{Stop, wait};
use crate::transport::connect;
use crate::transport::tls::Session;

/// Starts to probe `server`, which has just gone down.
pub(crate) fn start(server: &Arc<Server>) {
    drop(server.take_idle());
    let watched = Arc::downgrade(server);
    let thread = std::thread::Builder::new().name("glasscache-probe".into());
    if thread.spawn(move || watch(&watched)).is_err() {
        // Without a probe it would stay down for ever: let calls find out.
        server.health.up();
    }
}

fn watch(server: &Weak<Server>) {
    loop {
        std::thread::sleep(probe_pause(noise()));
        let Some(server) = server.upgrade() else {
            return;
        };
        // Should a server that left come back, its calls find out.
        if server.has_left() || responds(&server) {
            server.health.up();
            return;
        }
    }
}

/// Whether the server replies to a harmless request in time.
fn responds(server: &Server) -> bool {
    let deadline = Instant::now() + PROBE_TIMEOUT;
    let Some(fd) = connected(server, deadline) else {
        return false;
    };
    let Some((request, expected)) = server.probe() else {
        return false;
    };
    let mut reply = [0; 64];
    if let Some(tls) = &server.options.tls {
        let Ok(session) = tls.session(&server.endpoint) else {
            return false;
        };
        let mut session = Session::new(session);
        let received = exchange(&fd, &mut session, &request, &mut reply, deadline);
        let reply = received.and_then(|bytes| reply.get(..bytes));
        return reply.is_some_and(|reply| reply.starts_with(expected));
    }
    if send(&fd, &request, SendFlags::NOSIGNAL).is_err() || !is_ready(&fd, PollFlags::IN, deadline)
    {
        return false;
    }
    match recv(&fd, &mut reply, RecvFlags::DONTWAIT) {
        Ok((_, bytes)) => reply
            .get(..bytes)
            .is_some_and(|reply| reply.starts_with(expected)),
        Err(_) => false,
    }
}

/// Sends a request by TLS and receives the beginning of the reply, in time; returns its length.
fn exchange(
    fd: &OwnedFd,
    session: &mut Session,
    request: &[u8],
    reply: &mut [u8],
    deadline: Instant,
) -> Option<usize> {
    retry(fd, session, deadline, |session| {
        session.handshake(fd.as_fd())
    })?;
    let request = [IoSlice::new(request)];
    retry(fd, session, deadline, |session| {
        session.send(fd.as_fd(), &request)
    })?;
    retry(fd, session, deadline, |session| {
        session.receive(fd.as_fd(), reply, RecvFlags::DONTWAIT)
    })
}

/// Repeats a step until the socket allows it; `None` if it fails or takes too long.
fn retry<T>(
    fd: &OwnedFd,
    session: &mut Session,
    deadline: Instant,
    mut step: impl FnMut(&mut Session) -> Result<T, Errno>,
) -> Option<T> {
    loop {
        match step(session) {
            Ok(done) => return Some(done),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return None,
        }
        let flags = if session.wants_write() {
            PollFlags::OUT
        } else {
            PollFlags::IN
        };
        if !is_ready(fd, flags, deadline) {
            return None;
        }
    }
}

/// A connection to the first of the server's addresses that takes one.
fn connected(server: &Server, deadline: Instant) -> Option<OwnedFd> {
    let (mut fd, mut candidates) =
        connect::begin(&server.endpoint, &server.resolver, deadline).ok()?;
    loop {
        let is_ready = is_ready(&fd, PollFlags::OUT, candidates.wait_ends(deadline));
        if is_ready && connect::finish(fd.as_fd()).is_ok() {
            server.resolver.remember(candidates.current());
            return Some(fd);
        }
        fd = candidates.begin_next(deadline, String::new()).ok()?;
    }
}

fn is_ready(fd: &OwnedFd, flags: PollFlags, deadline: Instant) -> bool {
    loop {
        match wait(&mut [PollFd::new(fd, flags)], deadline) {
            Err(Stop::Interrupted) => {}
            ended => return ended.is_ok(),
        }
    }
}

/// A number that differs between processes and moments.
fn noise() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_nanos() as u64 ^ u64::from(std::process::id()) << 32
}
