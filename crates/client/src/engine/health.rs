//! The circuit breaker of one server: calls to a server that is down fail at once.
//!
//! A server that cannot be connected to, or whose name cannot be looked up, is down; one that replies badly or not at
//! all is down after three consecutive calls. While it is down it is probed about every 100 ms, so that no call is
//! delayed to find out that it is back. The first good reply to a probe closes the breaker.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use glasscache_protocol::binary::{HEADER_BYTES, MAGIC_REQUEST, MAGIC_RESPONSE, opcode};

use crate::request::CommandSet;

/// Consecutive bad calls until a server that accepts connections counts as down.
const BAD_CALLS_MAX: u32 = 3;

/// A call that was allowed less than this does not count against the server when it gives up.
pub const COUNTED_TIMEOUT_MIN: Duration = Duration::from_millis(50);

/// Mean pause between two probes; the real one lies 30 % below to 30 % above.
const PROBE_PAUSE_MS: u64 = 100;

/// Longest a probe waits for a reply. Together with the pause: back in use within 230 ms.
pub const PROBE_TIMEOUT: Duration = Duration::from_millis(100);

/// What a failure means for the health of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum HealthEffect {
    /// Nothing.
    #[default]
    None,
    /// One more bad call.
    Bad,
    /// It is down.
    Down,
}

/// Whether calls to a server should be tried.
#[derive(Debug, Default)]
pub struct Health {
    is_down: AtomicBool,
    /// It went down, and no probe was started yet.
    needs_probe: AtomicBool,
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

    /// Notes a good reply.
    pub fn mark_good(&self) {
        if self.bad_calls.load(Ordering::Relaxed) != 0 {
            self.bad_calls.store(0, Ordering::Relaxed);
        }
    }

    fn mark_bad(&self) {
        let bad_calls = self.bad_calls.fetch_add(1, Ordering::Relaxed) + 1;
        if bad_calls >= BAD_CALLS_MAX {
            self.mark_down();
        }
    }

    fn mark_down(&self) {
        if !self.is_down.swap(true, Ordering::Relaxed) {
            self.times_down.fetch_add(1, Ordering::Relaxed);
            self.needs_probe.store(true, Ordering::Relaxed);
        }
    }

    /// Notes a failure.
    pub fn apply_effect(&self, effect: HealthEffect) {
        match effect {
            HealthEffect::None => {}
            HealthEffect::Bad => self.mark_bad(),
            HealthEffect::Down => self.mark_down(),
        }
    }

    /// Whether a probe of the server must be started: true once for each time it goes down.
    pub fn take_needs_probe(&self) -> bool {
        self.is_down() && self.needs_probe.swap(false, Ordering::Relaxed)
    }

    /// Notes that a probe got its reply.
    pub fn mark_up(&self) {
        self.bad_calls.store(0, Ordering::Relaxed);
        self.is_down.store(false, Ordering::Relaxed);
    }
}

/// The next pause between probes. `jitter_seed` is any number that differs between clients, so that a
/// thousand of them do not probe at the same moment.
pub fn probe_pause(jitter_seed: u64) -> Duration {
    let hashed_jitter = jitter_seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let percent = 70 + hashed_jitter % 61;
    Duration::from_millis(PROBE_PAUSE_MS * percent / 100)
}

/// A noop in binary.
const BINARY_NOOP: [u8; HEADER_BYTES] = {
    let mut packet = [0; HEADER_BYTES];
    packet[0] = MAGIC_REQUEST;
    packet[1] = opcode::NOOP;
    packet
};

/// How its response begins.
const BINARY_NOOP_RESPONSE: [u8; 2] = [MAGIC_RESPONSE, opcode::NOOP];

/// What a probe sends to a server with this command set, and what a good reply begins with.
pub fn probe_request_and_reply(command_set: Option<CommandSet>) -> (&'static [u8], &'static [u8]) {
    match command_set {
        Some(CommandSet::Binary) => (&BINARY_NOOP, &BINARY_NOOP_RESPONSE),
        Some(CommandSet::Meta) => (b"mn\r\n", b"MN\r\n"),
        // A proxy may not know `version` and close: that it read the line is enough.
        Some(CommandSet::Classic) => (b"version\r\n", b""),
        None => (b"version\r\n", b"VERSION"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_consecutive_bad_calls_open_the_breaker_and_a_good_one_between_prevents_it() {
        let health = Health::default();
        health.apply_effect(HealthEffect::Bad);
        health.apply_effect(HealthEffect::Bad);
        health.mark_good();
        health.apply_effect(HealthEffect::Bad);
        health.apply_effect(HealthEffect::Bad);
        assert!(!health.is_down() && !health.take_needs_probe());
        health.apply_effect(HealthEffect::Bad);
        assert!(health.is_down() && health.take_needs_probe());
        health.apply_effect(HealthEffect::Down);
        assert!(!health.take_needs_probe(), "one probe is enough");
        health.mark_up();
        assert!(!health.is_down());
        health.apply_effect(HealthEffect::Down);
        assert!(health.take_needs_probe(), "it went down once more");
    }

    #[test]
    fn pauses_keep_within_their_bounds() {
        for jitter_seed in 0..1000 {
            let pause_ms = probe_pause(jitter_seed).as_millis();
            assert!((70..=130).contains(&pause_ms));
        }
    }
}
