//! The thread that verifies passwords: one at a time, so that logins take at most one processor.
//!
//! A failed attempt is reported only after a delay, during which its connection can do nothing else; meanwhile other
//! attempts are verified.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::process::nice;

use crate::shared::Shared;
use crate::shared::attempt_queue::{AttemptQueue, Taken};
use crate::shared::logins::Attempt;

/// How long the outcome of a failed attempt is held back. One connection can thus try ten passwords a second.
const FAILURE_DELAY: Duration = Duration::from_millis(100);

/// How much nicer the thread is than the workers: where processors are short, connected clients go first.
const NICE_INCREMENT: i32 = 10;

/// Verifies attempts until the server has stopped.
pub(crate) fn run(shared: &Shared, queue: &AttemptQueue<Attempt>) {
    // On Linux this is the priority of one thread. If it cannot be lowered the thread shares as the others do.
    let _ = nice(NICE_INCREMENT);
    // All wait equally long, so the oldest is due first. A connection that is closed meanwhile takes its attempt along.
    let mut failed_attempts: VecDeque<(Instant, Weak<Attempt>)> = VecDeque::new();
    loop {
        match queue.take(failed_attempts.front().map(|(due_at, _)| *due_at)) {
            Taken::Entry(attempt) => {
                if let Some(outcome) = shared.logins.reload_if_changed() {
                    shared.log.queue_outcome("glasscache", outcome);
                }
                if shared.logins.verify(&attempt) {
                    attempt.decide(true);
                } else {
                    let due_at = Instant::now() + FAILURE_DELAY;
                    failed_attempts.push_back((due_at, Arc::downgrade(&attempt)));
                }
            }
            Taken::Nothing => {}
            Taken::End => return,
        }
        let now = Instant::now();
        while failed_attempts.front().is_some_and(|(due_at, _)| *due_at <= now) {
            if let Some(attempt) = failed_attempts.pop_front().and_then(|(_, weak)| weak.upgrade())
            {
                attempt.decide(false);
            }
        }
    }
}
