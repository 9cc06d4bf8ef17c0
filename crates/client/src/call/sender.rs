//! The thread that sends buffered writes that no call has sent first.
//!
//! Each server has one while there are bursts of quiet writes: the thread ends after a while
//! without any, or when the client is gone. It wakes once a millisecond at most, and keeps the server
//! alive only while it is awake.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::pool::Server;
use crate::write_buffer::SenderStep;

/// How long the thread waits for the next burst before it ends.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// Starts the thread; false if the system refuses to create it.
pub(super) fn start(server: &Arc<Server>) -> bool {
    let weak_server = Arc::downgrade(server);
    let thread = thread::Builder::new().name("glasscache-send".into());
    thread.spawn(move || send_until_idle(&weak_server)).is_ok()
}

fn send_until_idle(weak_server: &Weak<Server>) {
    let mut is_idle = false;
    loop {
        let Some(server) = weak_server.upgrade() else {
            return;
        };
        match server.write_buffer.next_sender_step(Instant::now(), is_idle) {
            None => return,
            Some(SenderStep::Send) => {
                is_idle = false;
                let now = Instant::now();
                // No caller waits for the result; lost writes are counted.
                let _ = server.flush_buffered_writes(now, now + server.options.timeout, &|| true);
            }
            Some(SenderStep::Sleep(sleep_time)) => {
                is_idle = false;
                drop(server);
                thread::sleep(sleep_time);
            }
            Some(SenderStep::Park) => {
                drop(server);
                let park_started = Instant::now();
                thread::park_timeout(IDLE_MAX);
                is_idle = park_started.elapsed() >= IDLE_MAX;
            }
        }
    }
}
