//! The thread that verifies passwords: one at a time, so that logins take at most one processor.
//!
//! A failed attempt is reported only after a delay, during which its connection can do nothing else; meanwhile other
//! attempts are verified.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::nice;

use crate::shared::Shared;
use crate::shared::logins::{Attempt, LoginMessage};

/// How long the outcome of a failed attempt is held back. One connection can thus try ten passwords a second.
const FAILURE_DELAY: Duration = Duration::from_millis(100);

/// How much nicer the thread is than the workers: where processors are short, connected clients go first.
const NICE_INCREMENT: i32 = 10;

/// Verifies attempts until the server has stopped.
pub(crate) fn run(shared: &Shared, message_receiver: &Receiver<LoginMessage>) {
    // On Linux this is the priority of one thread. If it cannot be lowered the thread shares as the others do.
    let _ = nice(NICE_INCREMENT);
    // All wait equally long, so the oldest is due first.
    let mut failed_attempts: VecDeque<(Instant, Arc<Attempt>)> = VecDeque::new();
    loop {
        let message = match failed_attempts.front() {
            Some((due_at, _)) => {
                message_receiver.recv_timeout(due_at.saturating_duration_since(Instant::now()))
            }
            None => message_receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match message {
            Ok(LoginMessage::Attempt(attempt)) => {
                if let Some(line) = shared.logins.reload_if_changed() {
                    shared.log.queue_line(format!("glasscache: {line}"));
                }
                if shared.logins.verify(&attempt) {
                    attempt.decide(true);
                } else {
                    failed_attempts.push_back((Instant::now() + FAILURE_DELAY, attempt));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(LoginMessage::End) | Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        while failed_attempts.front().is_some_and(|(due_at, _)| *due_at <= now) {
            if let Some((_, attempt)) = failed_attempts.pop_front() {
                attempt.decide(false);
            }
        }
    }
}
