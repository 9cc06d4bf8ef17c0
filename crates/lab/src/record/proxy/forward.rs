//! Forwards one direction of a connection: bytes are received, passed to the recorder, and sent on at once.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Bytes that are received at once.
const BUFFER_BYTES: usize = 64 << 10;

/// The direction in which bytes are forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

/// The time that forwarding itself has taken.
#[derive(Debug, Default)]
pub(super) struct ForwardLatency {
    chunks: AtomicU64,
    sum_ns: AtomicU64,
}

impl ForwardLatency {
    pub(super) fn mean_us(&self) -> f64 {
        let chunks = self.chunks.load(Relaxed).max(1);
        self.sum_ns.load(Relaxed) as f64 / chunks as f64 / 1e3
    }
}

/// Passes bytes on until the sender ends, either side fails, or the proxy is stopped.
pub(super) fn forward_bytes(
    (mut sender, mut receiver): (&TcpStream, &TcpStream),
    forward_latency: &ForwardLatency,
    is_stopped: &AtomicBool,
    on_bytes: &mut dyn FnMut(&[u8]),
) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while !is_stopped.load(Relaxed) {
        let received_bytes = match sender.read(&mut buffer) {
            Ok(0) => return,
            Ok(received_bytes) => received_bytes,
            Err(error) if is_timeout(error.kind()) => continue,
            Err(_) => return,
        };
        let started_at = Instant::now();
        let bytes = buffer.get(..received_bytes).unwrap_or_default();
        // Recorded before they are passed on, so that the reply finds its command.
        on_bytes(bytes);
        if receiver.write_all(bytes).is_err() {
            return;
        }
        forward_latency.chunks.fetch_add(1, Relaxed);
        forward_latency.sum_ns.fetch_add(started_at.elapsed().as_nanos() as u64, Relaxed);
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
