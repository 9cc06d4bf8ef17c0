//! The server's clock: whole seconds since shortly before the start, and the meaning of an exptime on it.
//!
//! As in memcached the clock starts at 2, so that second 0 means "never" and second 1 "already expired". It follows
//! the kernel's clock since boot, which also runs while the machine is suspended: a jump of the wall clock expires
//! nothing, and a suspension does not extend a TTL. Only absolute exptimes follow the wall clock, so that a clock
//! that was wrong at the start does not shift them forever.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use glasscache_store::{Expiry, Seconds, StopTime};
use rustix::time::{ClockId, clock_gettime};

/// The first second of the clock.
const FIRST_SECOND: i64 = 2;

/// Above this an exptime is a Unix time, below it a number of seconds from now: 30 days.
const RELATIVE_S_MAX: i64 = 60 * 60 * 24 * 30;

/// The wall clock is followed when it has moved by this many seconds; one second can be rounding.
const ORIGIN_JUMP_S_MIN: u64 = 2;

/// 2020-01-01 in milliseconds of Unix time.
const FIRST_UNIQUES_BEGIN_UNIX_MS: i64 = 1_577_836_800_000;

/// The number from which the CAS uniques of an empty store go on: seconds since 2020, with 32 bits of fractions.
///
/// A store counts its uniques up by one for each byte that is written. So this is above each unique that an earlier
/// server sent to a client and could not save, unless that was written with more than 4 GB a second for as long as it
/// ran; and the numbers have 63 bits until 2054.
pub(crate) fn read_first_unique() -> u64 {
    first_unique_at(read_wall_unix_ms())
}

fn first_unique_at(wall_unix_ms: i64) -> u64 {
    let since_ms = wall_unix_ms.saturating_sub(FIRST_UNIQUES_BEGIN_UNIX_MS).max(0).cast_unsigned();
    let (seconds, milliseconds) = (since_ms / 1000, since_ms % 1000);
    (seconds.min((1 << 30) - 1) << 32) | ((milliseconds << 32) / 1000)
}

/// The clock of one server.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Nanoseconds since boot at the start.
    start_since_boot_ns: i64,
    /// The second at which this server started.
    start_second: Seconds,
    /// The Unix time at second 0 of this clock.
    origin_unix_s: AtomicI64,
    /// Seconds by which `debugtime` moved the clock.
    shift_s: AtomicI64,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock::new_at(read_since_boot_ns(), read_wall_unix_s())
    }

    /// The clock of a server that was stopped, later by the time since then; `None` if the wall clock is before that
    /// time, because then the time since is not known.
    pub(crate) fn resumed_from(stop: StopTime) -> Option<Clock> {
        Clock::resumed_from_at(stop, read_since_boot_ns(), read_wall_unix_ms())
    }

    fn resumed_from_at(stop: StopTime, since_boot_ns: i64, wall_unix_ms: i64) -> Option<Clock> {
        let since_stop_ms = wall_unix_ms.checked_sub(stop.unix_ms)?;
        if since_stop_ms < 0 {
            return None;
        }
        let ran_before_stop_ms = (i64::from(stop.second.0) - FIRST_SECOND) * 1000;
        let run_ns = ran_before_stop_ms.saturating_add(since_stop_ms).saturating_mul(1_000_000);
        let clock = Clock::new_at(since_boot_ns.saturating_sub(run_ns), 0);
        let start_second = clock.second_at(since_boot_ns);
        clock.set_wall_clock(wall_unix_ms.div_euclid(1000), start_second);
        Some(Clock { start_second, ..clock })
    }

    /// The current time, as the time of a stop.
    pub(crate) fn stop_time(&self) -> StopTime {
        let since_boot_ns = read_since_boot_ns();
        let since_second_ns = (since_boot_ns - self.start_since_boot_ns).rem_euclid(1_000_000_000);
        StopTime {
            second: self.second_at(since_boot_ns),
            unix_ms: read_wall_unix_ms() - since_second_ns / 1_000_000,
        }
    }

    fn new_at(since_boot_ns: i64, wall_unix_s: i64) -> Clock {
        Clock {
            start_since_boot_ns: since_boot_ns,
            start_second: Seconds(FIRST_SECOND as u32),
            origin_unix_s: AtomicI64::new(wall_unix_s - FIRST_SECOND),
            shift_s: AtomicI64::new(0),
        }
    }

    /// What a server that replaces this one needs to continue the clock on the same machine: the argument of
    /// [`Clock::inherited`].
    pub(crate) fn handover_state(&self) -> [i64; 3] {
        let shift_s = self.shift_s.load(Ordering::Relaxed);
        [self.start_since_boot_ns, shift_s, self.origin_unix_s()]
    }

    /// The clock of the server that this one replaces.
    pub(crate) fn inherited([start_since_boot_ns, shift_s, origin_unix_s]: [i64; 3]) -> Clock {
        let mut clock = Clock {
            start_since_boot_ns,
            start_second: Seconds(FIRST_SECOND as u32),
            origin_unix_s: AtomicI64::new(origin_unix_s),
            shift_s: AtomicI64::new(shift_s),
        };
        clock.start_second = clock.now();
        clock
    }

    /// The second at which this server started.
    pub(crate) fn start_second(&self) -> Seconds {
        self.start_second
    }

    /// Seconds from the start to `now`.
    pub(crate) fn uptime_s(&self, now: Seconds) -> u32 {
        now.0.saturating_sub(self.start_second.0)
    }

    pub(crate) fn now(&self) -> Seconds {
        self.second_at(read_since_boot_ns())
    }

    /// The second that is this many nanoseconds after boot.
    fn second_at(&self, since_boot_ns: i64) -> Seconds {
        let elapsed_s = (since_boot_ns - self.start_since_boot_ns).max(0) / 1_000_000_000;
        // LOSSY: a worker may see a moved clock one command late.
        let second = elapsed_s + FIRST_SECOND + self.shift_s.load(Ordering::Relaxed);
        Seconds(u32::try_from(second.max(FIRST_SECOND)).unwrap_or(u32::MAX))
    }

    /// Follows the wall clock if it was set; called about once a second.
    pub(crate) fn follow_wall_clock(&self) {
        self.follow_wall_clock_at(read_since_boot_ns(), read_wall_unix_s());
    }

    fn follow_wall_clock_at(&self, since_boot_ns: i64, wall_unix_s: i64) {
        self.set_wall_clock(wall_unix_s, self.second_at(since_boot_ns));
    }

    /// Follows the wall clock, which is at `wall_unix_s` in the second `now` of this clock.
    pub(crate) fn set_wall_clock(&self, wall_unix_s: i64, now: Seconds) {
        let shift_s = self.shift_s.load(Ordering::Relaxed);
        let origin_unix_s = wall_unix_s - (i64::from(now.0) - shift_s);
        if origin_unix_s.abs_diff(self.origin_unix_s()) >= ORIGIN_JUMP_S_MIN {
            self.origin_unix_s.store(origin_unix_s, Ordering::Relaxed);
        }
    }

    fn origin_unix_s(&self) -> i64 {
        // LOSSY: a worker may see a wall clock that was set one command late.
        self.origin_unix_s.load(Ordering::Relaxed)
    }

    /// Moves the clock (`debugtime`).
    pub(crate) fn shift(&self, seconds: i64) {
        self.shift_s.fetch_add(seconds, Ordering::Relaxed);
    }

    /// The Unix time of a second of this clock.
    pub(crate) fn unix_time(&self, second: Seconds) -> i64 {
        self.origin_unix_s() + i64::from(second.0)
    }

    /// The expiry that an exptime in a request means at `now`: 0 never, negative expired at once, up to 30 days
    /// relative, above that a Unix time. Nothing wraps: the far future is the last second.
    pub(crate) fn expiry(&self, exptime: i64, now: Seconds) -> Expiry {
        let second = match exptime {
            0 => return Expiry::Never,
            ..0 => 1,
            1..=RELATIVE_S_MAX => i64::from(now.0) + exptime,
            _ => exptime.saturating_sub(self.origin_unix_s()).max(1),
        };
        Expiry::At(Seconds(u32::try_from(second).unwrap_or(u32::MAX)))
    }
}

/// Nanoseconds since boot, suspensions included.
fn read_since_boot_ns() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn read_wall_unix_s() -> i64 {
    read_wall_unix_ms() / 1000
}

fn read_wall_unix_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;

    #[test]
    fn first_uniques_grow_with_the_clock_and_stay_below_63_bits() {
        let times_ms = [i64::MIN, 0, FIRST_UNIQUES_BEGIN_UNIX_MS + 1, 1_795_000_000_999];
        let uniques = times_ms.map(first_unique_at);
        assert_eq!(uniques[..2], [0, 0]);
        assert!(uniques[1] < uniques[2] && uniques[2] < uniques[3]);
        // Four gigabytes in a second, within a millisecond of it.
        let later = first_unique_at(1_795_000_001_999);
        assert_eq!(later - uniques[3], 1 << 32);
        assert!(first_unique_at(i64::MAX) < 1 << 62);
    }

    #[test]
    fn a_suspension_counts_as_time() {
        let clock = Clock::new_at(100 * SECOND_NS, 1_000_000_000);
        assert_eq!(clock.second_at(100 * SECOND_NS), Seconds(2));
        assert_eq!(clock.second_at(3700 * SECOND_NS), Seconds(3602));
        // The clock of the kernel that also runs while the machine sleeps.
        let (before, clock) = (clock_gettime(ClockId::Boottime), Clock::start());
        assert!(clock.start_since_boot_ns >= before.tv_sec * SECOND_NS + before.tv_nsec);
    }

    #[test]
    fn an_absolute_time_follows_the_wall_clock_after_it_was_set() {
        let (wrong_unix_s, right_unix_s) = (1_000_000_000, 1_700_000_000);
        let clock = Clock::new_at(0, wrong_unix_s);
        let now = clock.second_at(10 * SECOND_NS);
        clock.follow_wall_clock_at(10 * SECOND_NS, right_unix_s + 10);
        let in_an_hour_unix_s = right_unix_s + 10 + 3600;
        assert_eq!(clock.expiry(in_an_hour_unix_s, now), Expiry::At(Seconds(12 + 3600)));
        assert_eq!(clock.expiry(60, now), Expiry::At(Seconds(12 + 60)));
        assert_eq!(clock.unix_time(now), right_unix_s + 10);
        assert_eq!(clock.second_at(10 * SECOND_NS), now, "the clock itself did not move");
    }

    #[test]
    fn rounding_and_debugtime_are_not_taken_for_a_wall_clock_that_was_set() {
        let clock = Clock::new_at(SECOND_NS / 2, 1_700_000_000);
        let origin_unix_s = clock.origin_unix_s();
        clock.follow_wall_clock_at(10 * SECOND_NS, 1_700_000_010);
        clock.follow_wall_clock_at(10 * SECOND_NS, 1_700_000_009);
        clock.shift(1000);
        clock.follow_wall_clock_at(20 * SECOND_NS, 1_700_000_020);
        assert_eq!(clock.origin_unix_s(), origin_unix_s);
    }

    #[test]
    fn the_time_between_two_servers_counts_to_the_millisecond() {
        let stop = StopTime { second: Seconds(1000), unix_ms: 1_700_000_000_300 };
        let resumed_since_boot_ns = 50 * SECOND_NS;
        let resume_at = |wall_ms| Clock::resumed_from_at(stop, resumed_since_boot_ns, wall_ms);
        let at_once = resume_at(1_700_000_000_300).unwrap();
        assert_eq!(at_once.second_at(resumed_since_boot_ns), Seconds(1000));
        assert_eq!(at_once.second_at(resumed_since_boot_ns + SECOND_NS - 1), Seconds(1000));
        assert_eq!(at_once.second_at(resumed_since_boot_ns + SECOND_NS), Seconds(1001));
        let later = resume_at(1_700_000_060_299).unwrap();
        assert_eq!(later.second_at(resumed_since_boot_ns), Seconds(1059));
        assert_eq!(later.second_at(resumed_since_boot_ns + 1_000_000), Seconds(1060));
        assert_eq!(later.unix_time(Seconds(1059)), 1_700_000_060);
        assert_eq!(later.start_second(), Seconds(1059));
        assert_eq!(later.uptime_s(Seconds(1060)), 1);
        assert!(resume_at(1_700_000_000_299).is_none(), "the time is not known");
        // The present, saved and resumed.
        let clock = Clock::new_at(read_since_boot_ns() - 77 * SECOND_NS, read_wall_unix_s());
        let resumed = Clock::resumed_from(clock.stop_time()).unwrap();
        assert!(
            resumed.start_since_boot_ns.abs_diff(clock.start_since_boot_ns)
                < 3 * SECOND_NS.unsigned_abs()
        );
    }

    #[test]
    fn a_server_that_replaces_another_continues_its_clock() {
        let clock = Clock::new_at(read_since_boot_ns() - 77 * SECOND_NS, read_wall_unix_s() - 77);
        clock.shift(1000);
        let inherited = Clock::inherited(clock.handover_state());
        let since_boot_ns = read_since_boot_ns();
        assert_eq!(inherited.second_at(since_boot_ns), clock.second_at(since_boot_ns));
        assert_eq!(inherited.origin_unix_s(), clock.origin_unix_s());
        assert!(inherited.start_second().0 >= 1079);
    }

    #[test]
    fn an_exptime_follows_the_protocol_and_never_wraps() {
        let clock = Clock::start();
        let now = Seconds(100);
        let expires_at = |second| Expiry::At(Seconds(second));
        assert_eq!(clock.expiry(0, now), Expiry::Never);
        assert_eq!(clock.expiry(-1, now), expires_at(1));
        assert_eq!(clock.expiry(60, now), expires_at(160));
        assert_eq!(clock.expiry(RELATIVE_S_MAX, now), expires_at(100 + 2_592_000));
        assert_eq!(clock.expiry(clock.unix_time(Seconds(500)), now), expires_at(500));
        assert_eq!(clock.expiry(RELATIVE_S_MAX + 1, now), expires_at(1));
        assert_eq!(clock.expiry(i64::MAX, now), expires_at(u32::MAX));
        assert!(clock.expiry(1 << 32, now) != expires_at(1));
    }
}
