//! The circuit breaker of one server: calls to a server that is down fail at once.
//!
//! A server that cannot be connected to, or whose name cannot be looked up, is down; one that
//! answers badly or not at all is down after three calls in a row. While it is down a probe asks it every 100 ms, give or take, so that no
//! call pays for finding out that it is back. The first good answer closes the breaker.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Bad calls in a row until a server that can be connected to counts as down.
const BAD_CALLS_MAX: u32 = 3;

/// A call that was allowed less than this says nothing about the server when it gives up.
pub const PATIENCE: Duration = Duration::from_millis(50);

/// Mean pause between two probes; the real one lies 30 % below to 30 % above.
const PROBE_PAUSE_MS: u64 = 100;

/// Longest a probe waits for an answer. Together with the pause: back in use within 230 ms.
pub const PROBE_TIMEOUT: Duration = Duration::from_millis(100);

/// Whether a server is worth asking.
#[derive(Debug, Default)]
pub struct Health {
    is_down: AtomicBool,
    bad_calls: AtomicU32,
    times_down: AtomicU64,
}

impl Health {
    /// Whether calls should fail at once.
    pub fn is_down(&self) -> bool {
        // Relaxed throughout: each field is a hint on its own and guards no other memory.
        self.is_down.load(Ordering::Relaxed)
    }

    /// How often the server went down.
    pub fn times_down(&self) -> u64 {
        self.times_down.load(Ordering::Relaxed)
    }

    /// Notes a good answer.
    pub fn good(&self) {
        if self.bad_calls.load(Ordering::Relaxed) != 0 {
            self.bad_calls.store(0, Ordering::Relaxed);
        }
    }

    /// Notes a call that failed on a connection; true if the server has just gone down by it.
    pub fn bad(&self) -> bool {
        let bad_calls = self.bad_calls.fetch_add(1, Ordering::Relaxed) + 1;
        bad_calls >= BAD_CALLS_MAX && self.down()
    }

    /// Notes that no connection can be made; true if the server has just gone down by it.
    pub fn down(&self) -> bool {
        let is_news = !self.is_down.swap(true, Ordering::Relaxed);
        if is_news {
            self.times_down.fetch_add(1, Ordering::Relaxed);
        }
        is_news
    }

    /// Notes that a probe was answered.
    pub fn up(&self) {
        self.bad_calls.store(0, Ordering::Relaxed);
        self.is_down.store(false, Ordering::Relaxed);
    }
}

/// The next pause between probes. `noise` is any number that differs between clients, so that a
/// thousand of them do not knock together.
pub fn probe_pause(noise: u64) -> Duration {
    let spread = noise.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let percent = 70 + spread % 61;
    Duration::from_millis(PROBE_PAUSE_MS * percent / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_bad_calls_in_a_row_open_the_breaker_and_a_good_one_between_does_not() {
        let health = Health::default();
        assert!(!health.bad() && !health.bad());
        health.good();
        assert!(!health.bad() && !health.bad() && !health.is_down());
        assert!(health.bad() && health.is_down());
        assert!(
            !health.down(),
            "only the first is news: one probe is enough"
        );
        health.up();
        assert!(!health.is_down());
    }

    #[test]
    fn pauses_keep_within_their_bounds() {
        for noise in 0..1000 {
            let pause = probe_pause(noise).as_millis();
            assert!((70..=130).contains(&pause));
        }
    }
}
