//! The probe: checks whether a server that is down is back, so that no call has to.
//!
//! One thread while a server is down, and none otherwise. It ends when the server replies, when it
//! left the client, or when the client is gone.

use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::engine::health::{PROBE_TIMEOUT, probe_pause};
use crate::pool::Server;
use crate::transport::background::Received;

/// Starts to probe `server`, which has just gone down.
pub(crate) fn start(server: &Arc<Server>) {
    server.pool.close_idle();
    let weak_server = Arc::downgrade(server);
    let thread = std::thread::Builder::new().name("glasscache-probe".into());
    if thread.spawn(move || probe_until_back(&weak_server)).is_err() {
        // Without a probe it would stay down for ever: let calls find out.
        server.health.mark_up();
    }
}

fn probe_until_back(weak_server: &Weak<Server>) {
    loop {
        std::thread::sleep(probe_pause(jitter_seed()));
        let Some(server) = weak_server.upgrade() else {
            return;
        };
        // Should a server that left come back, its calls find out.
        if server.pool.has_server_left() || probe_once(&server) {
            server.health.mark_up();
            return;
        }
    }
}

/// Whether the server replies to a harmless request in time.
fn probe_once(server: &Server) -> bool {
    let deadline = Instant::now() + PROBE_TIMEOUT;
    let Some((request, reply_start)) = server.probe_request_and_reply() else {
        return false;
    };
    let Some(mut connection) = server.connect_in_background(deadline) else {
        return false;
    };
    if connection.send(&request, deadline).is_none() {
        return false;
    }
    let mut reply = [0; 64];
    match connection.receive(&mut reply, deadline) {
        Received::Bytes(received_bytes) => {
            reply.get(..received_bytes).is_some_and(|received| received.starts_with(reply_start))
        }
        Received::Nothing | Received::Closed => false,
    }
}

/// A number that differs between processes and moments.
fn jitter_seed() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since_epoch.as_nanos() as u64 ^ u64::from(std::process::id()) << 32
}
