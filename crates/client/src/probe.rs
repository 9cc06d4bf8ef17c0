//! The probe: asks a server that is down whether it is back, so that no call has to.
//!
//! One thread while a server is down, and none otherwise. It ends when the server answers, when it
//! is none of the client's any more, or when the client is gone.

use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::health::{PROBE_TIMEOUT, probe_pause};
use crate::pool::Server;
use crate::request::Dialect;
use crate::transport::blocking::{Stop, wait};
use crate::transport::connect;

/// Starts to probe `server`, which has just gone down.
pub(crate) fn start(server: &Arc<Server>) {
    drop(server.take_idle());
    let watched = Arc::downgrade(server);
    let thread = std::thread::Builder::new().name("glasscache-probe".into());
    if thread.spawn(move || watch(&watched)).is_err() {
        // Without a probe nobody would ever ask again: let calls find out.
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
        if server.has_left() || answers(&server) {
            server.health.up();
            return;
        }
    }
}

/// Whether the server answers a harmless question in time.
fn answers(server: &Server) -> bool {
    let deadline = Instant::now() + PROBE_TIMEOUT;
    let Ok(fd) = connect::begin(&server.place, deadline) else {
        return false;
    };
    let ready = |flags| loop {
        match wait(&mut [PollFd::new(&fd, flags)], deadline) {
            Err(Stop::Interrupted) => {}
            ended => return ended.is_ok(),
        }
    };
    if !ready(PollFlags::OUT) || connect::finish(std::os::fd::AsFd::as_fd(&fd)).is_err() {
        return false;
    }
    let (question, answer): (&[u8], &[u8]) = match server.dialect() {
        Some(Dialect::Meta) => (b"mn\r\n", b"MN\r\n"),
        // A proxy may know no `version` and close: that it read the line is answer enough.
        Some(Dialect::Classic) => (b"version\r\n", b""),
        None => (b"version\r\n", b"VERSION"),
    };
    let mut reply = [0; 64];
    if send(&fd, question, SendFlags::NOSIGNAL).is_err() || !ready(PollFlags::IN) {
        return false;
    }
    match recv(&fd, &mut reply, RecvFlags::DONTWAIT) {
        Ok((_, bytes)) => reply
            .get(..bytes)
            .is_some_and(|reply| reply.starts_with(answer)),
        Err(_) => false,
    }
}

/// A number that differs between processes and moments.
fn noise() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_nanos() as u64 ^ u64::from(std::process::id()) << 32
}
