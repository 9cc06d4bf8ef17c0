//! The server's clock: whole seconds since shortly before the start, and what an exptime means on it.
//!
//! As in memcached the clock starts at 2, so that second 0 is free for "never" and second 1 for
//! "already dead". It follows the monotonic clock: a jump of the wall clock expires nothing.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use glasscache_store::{Expiry, Seconds};

/// What the clock shows at the start.
const FIRST_SECOND: i64 = 2;

/// Above this an exptime is a Unix time, below it a number of seconds from now: 30 days.
const RELATIVE_S_MAX: i64 = 60 * 60 * 24 * 30;

/// The clock of one server.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    /// The Unix time at second 0 of this clock.
    origin_unix: i64,
    /// Seconds by which `debugtime` moved the clock.
    moved_s: AtomicI64,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        Clock {
            started: Instant::now(),
            origin_unix: unix as i64 - FIRST_SECOND,
            moved_s: AtomicI64::new(0),
        }
    }

    pub(crate) fn now(&self) -> Seconds {
        self.at(Instant::now())
    }

    /// What the clock shows at `instant`.
    pub(crate) fn at(&self, instant: Instant) -> Seconds {
        let elapsed = instant.saturating_duration_since(self.started).as_secs() as i64;
        // LOSSY: a worker may see a moved clock one command late.
        let shown = elapsed + FIRST_SECOND + self.moved_s.load(Ordering::Relaxed);
        Seconds(u32::try_from(shown.max(FIRST_SECOND)).unwrap_or(u32::MAX))
    }

    /// Moves the clock (`debugtime`).
    pub(crate) fn shift(&self, seconds: i64) {
        self.moved_s.fetch_add(seconds, Ordering::Relaxed);
    }

    /// The Unix time of a second of this clock.
    pub(crate) fn unix(&self, at: Seconds) -> i64 {
        self.origin_unix + i64::from(at.0)
    }

    /// What an exptime of the wire means at `now`: 0 never, negative dead at once, up to 30 days
    /// relative, above that a Unix time. Nothing wraps: the far future is the last second there is.
    pub(crate) fn expiry(&self, exptime: i64, now: Seconds) -> Expiry {
        let at = match exptime {
            0 => return Expiry::Never,
            ..0 => 1,
            1..=RELATIVE_S_MAX => i64::from(now.0) + exptime,
            _ => exptime.saturating_sub(self.origin_unix).max(1),
        };
        Expiry::At(Seconds(u32::try_from(at).unwrap_or(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exptime_means_what_the_protocol_says_and_never_wraps() {
        let clock = Clock::start();
        let now = Seconds(100);
        let at = |second| Expiry::At(Seconds(second));
        assert_eq!(clock.expiry(0, now), Expiry::Never);
        assert_eq!(clock.expiry(-1, now), at(1));
        assert_eq!(clock.expiry(60, now), at(160));
        assert_eq!(clock.expiry(RELATIVE_S_MAX, now), at(100 + 2_592_000));
        assert_eq!(clock.expiry(clock.unix(Seconds(500)), now), at(500));
        assert_eq!(clock.expiry(RELATIVE_S_MAX + 1, now), at(1));
        assert_eq!(clock.expiry(i64::MAX, now), at(u32::MAX));
        assert!(clock.expiry(1 << 32, now) != at(1));
    }
}
