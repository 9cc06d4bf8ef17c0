//! Watching the servers of a client whose near cache is coherent: one thread and one connection for each server.
//!
//! A thread begins with the first read of a process, never before: a process that only forks others stays without
//! threads. It connects again whenever the connection is lost, and ends when the server leaves the client, and when
//! the client is closed or gone. `near::watch` interprets what it receives; this file only moves the bytes.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::near::ClientNearCache;
use crate::near::watch::{ReportLevel, WatchConversation, WatchEvent};
use crate::pool::Server;
use crate::transport::background::{BackgroundConnection, Received};

/// How long connecting may take, and the reply to the request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a thread checks whether it should end.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// A server that sends heartbeats and is silent for so long is connected to again.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Pause before connecting again: the first one, which then doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Time until a server that refused is tried again: it may admit a watcher when another one has left.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

/// Bytes that are received at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Starts the thread of a server, unless it has one.
pub(crate) fn start(slot: usize, server: &Arc<Server>, near: &Arc<ClientNearCache>) {
    if !server.begin_watch() {
        return;
    }
    let watch_thread = WatchThread {
        slot,
        server_name: server.endpoint.to_string(),
        namespace: server.options.namespace.clone(),
        server: Arc::downgrade(server),
        near: Arc::downgrade(near),
    };
    let thread = std::thread::Builder::new().name("glasscache-watch".into());
    if thread.spawn(move || watch_thread.run()).is_err() {
        // Without a watch nothing is served from the process; the next change of the servers tries again.
        server.end_watch();
    }
}

struct WatchThread {
    slot: usize,
    server_name: String,
    namespace: Vec<u8>,
    server: Weak<Server>,
    near: Weak<ClientNearCache>,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchEnd {
    /// It could not be connected, or was lost.
    Lost,
    /// The server refused to report changes.
    Refused,
    /// The thread is to end.
    Stopped,
}

impl WatchThread {
    fn run(&self) {
        let mut reconnect_pause = PAUSE_MIN;
        while self.is_wanted() {
            let attempt_started = Instant::now();
            let watch_end = self.watch_once();
            if watch_end == WatchEnd::Lost
                && let Some(near) = self.near.upgrade()
            {
                near.handle_watch_loss(self.slot);
            }
            let next_pause = match watch_end {
                WatchEnd::Stopped => return,
                WatchEnd::Refused => REFUSED_PAUSE,
                WatchEnd::Lost => {
                    if attempt_started.elapsed() > PAUSE_MAX {
                        reconnect_pause = PAUSE_MIN;
                    }
                    let next_pause = reconnect_pause;
                    reconnect_pause = (reconnect_pause * 2).min(PAUSE_MAX);
                    next_pause
                }
            };
            let pause_end = Instant::now() + next_pause;
            while Instant::now() < pause_end && self.is_wanted() {
                std::thread::sleep(
                    pause_end.saturating_duration_since(Instant::now()).min(CHECK_INTERVAL),
                );
            }
        }
    }

    /// Whether the server is one of the client's, and the client is in use.
    fn is_wanted(&self) -> bool {
        let server = self.server.upgrade();
        let has_wanted_server = server.is_some_and(|server| {
            let is_server_wanted = server.is_watched() && !server.pool.has_server_left();
            if !is_server_wanted {
                server.end_watch();
            }
            is_server_wanted
        });
        has_wanted_server && self.near.strong_count() > 0
    }

    /// Watches on one connection until it ends.
    fn watch_once(&self) -> WatchEnd {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let Some((mut connection, mut conversation)) = self.connect(deadline) else {
            return WatchEnd::Lost;
        };
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut report_level = None;
        let mut last_received_at = Instant::now();
        loop {
            let output = conversation.take_output();
            if connection.send(&output, Instant::now() + CONNECT_TIMEOUT).is_none() {
                return WatchEnd::Lost;
            }
            let receive_result = connection.receive(&mut buffer, Instant::now() + CHECK_INTERVAL);
            if !self.is_wanted() {
                return WatchEnd::Stopped;
            }
            let now = Instant::now();
            match receive_result {
                Received::Bytes(received_bytes) => {
                    last_received_at = now;
                    let received = buffer.get(..received_bytes).unwrap_or_default();
                    let Some(near) = self.near.upgrade() else {
                        return WatchEnd::Stopped;
                    };
                    let mut handle_event = |event| {
                        if let WatchEvent::Began(level) = event {
                            report_level = Some(level);
                        }
                        near.handle_watch_event((self.slot, &self.server_name), event, now);
                    };
                    if conversation.receive(received, now, &mut handle_event).is_err() {
                        return WatchEnd::Lost;
                    }
                }
                Received::Closed => return WatchEnd::Lost,
                Received::Nothing => {}
            }
            let silence_max = match report_level {
                Some(ReportLevel::Nothing) => return WatchEnd::Refused,
                Some(ReportLevel::StoresAndDeletes) => continue,
                Some(ReportLevel::Changes) => SILENCE_MAX,
                None => CONNECT_TIMEOUT,
            };
            if now.saturating_duration_since(last_received_at) > silence_max {
                return WatchEnd::Lost;
            }
        }
    }

    fn connect(&self, deadline: Instant) -> Option<(BackgroundConnection, WatchConversation)> {
        let server = self.server.upgrade()?;
        let connection = server.connect_in_background(deadline)?;
        let mut login_request = Vec::new();
        if let Some(login) = &server.options.login {
            login.write(&mut login_request).ok()?;
        }
        let login_request = (!login_request.is_empty()).then_some(login_request.as_slice());
        let conversation = WatchConversation::new(&self.namespace, login_request);
        Some((connection, conversation))
    }
}
