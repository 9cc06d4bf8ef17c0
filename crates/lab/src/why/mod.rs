//! Why gets miss: expired, evicted, deleted or flushed, or never set.
//!
//! Two sources are combined. The server's counters give the exact number of misses in the interval, and how many of
//! them found an expired or flushed item. The lines of `watch` show which keys missed and their earlier events during
//! the watch; their proportions split the remaining misses.

mod event;
mod tally;

use std::io::{self, BufRead};
use std::time::{Duration, Instant};

use serde::Serialize;

pub(crate) use event::Event;
pub use glasscache_protocol::percent::to_printable;
use glasscache_sim::trace::watch::{WatchLine, unescape_key};
pub use tally::{Causes, WatchTally};

use glasscache_findings::counters::Counters;

/// The longest line of `watch` that is read: a key of 250 bytes, all percent-encoded, and its fields.
const LINE_BYTES_MAX: u64 = 4096;

/// The results of an interval.
#[derive(Debug, Serialize)]
pub struct Findings {
    /// How long was watched, in seconds.
    pub seconds: f64,
    /// What the server counted in the interval.
    #[serde(rename = "counted")]
    pub interval_counters: Counters,
    /// What the server counted since it started.
    #[serde(rename = "since_start")]
    pub counters_since_start: Counters,
    /// Every get of the interval, split by cause.
    pub causes: Causes,
    /// The gets that the watch saw, by key prefix, most misses first.
    pub prefixes: Vec<PrefixCauses>,
    /// Lines that the server dropped because they were not read in time.
    pub skipped_lines: u64,
}

/// The gets of one key prefix.
#[derive(Debug, Serialize)]
pub struct PrefixCauses {
    /// The prefix, with the delimiter that ends it.
    pub prefix: String,
    /// Its gets, as the watch saw them.
    #[serde(flatten)]
    pub causes: Causes,
}

/// Combines the counters and the watch of an interval of `seconds`.
pub fn explain(before: &Counters, after: &Counters, tally: WatchTally, seconds: f64) -> Findings {
    let interval_counters = after.since(before);
    let (watched_causes, causes_by_prefix, skipped_lines) = tally.finish();
    Findings {
        seconds,
        causes: split_misses(&interval_counters, &watched_causes),
        interval_counters,
        counters_since_start: after.clone(),
        prefixes: causes_by_prefix
            .into_iter()
            .map(|(prefix, causes)| PrefixCauses { prefix, causes })
            .collect(),
        skipped_lines,
    }
}

/// The counted misses by cause. Expired and flushed are at least the server's counts; the proportions of the watch
/// split the rest, and what remains has an unknown cause.
fn split_misses(interval_counters: &Counters, watched_causes: &Causes) -> Causes {
    let misses = interval_counters.misses();
    let scale_to_total = |watched_misses: u64| {
        watched_misses as f64 / watched_causes.misses.max(1) as f64 * misses as f64
    };
    let expired = (scale_to_total(watched_causes.expired).round() as u64)
        .max(interval_counters.expired)
        .min(misses);
    let removed = (scale_to_total(watched_causes.removed).round() as u64)
        .max(interval_counters.flushed)
        .min(misses - expired);
    let evicted =
        (scale_to_total(watched_causes.evicted).round() as u64).min(misses - expired - removed);
    let evicted_unread =
        (scale_to_total(watched_causes.evicted_unread).round() as u64).min(evicted);
    Causes {
        gets: interval_counters.gets,
        misses,
        expired,
        evicted,
        evicted_unread,
        removed,
        unknown_cause: misses - expired - removed - evicted,
    }
}

/// Reads lines of a running `watch` into `tally` until `duration` has passed or `is_stopped` returns true.
pub fn watch(
    lines: impl BufRead,
    tally: &mut WatchTally,
    duration: Duration,
    is_stopped: impl Fn() -> bool,
) -> io::Result<Duration> {
    read_watch(lines, duration, is_stopped, &mut |line| {
        if let Some((time_s, event)) = Event::parse(&String::from_utf8_lossy(line)) {
            tally.record(time_s, &event);
        }
    })
}

/// Passes the key of each lookup of a running `watch fetchers` to `visit` until `duration` has passed.
pub fn watch_keys(
    lines: impl BufRead,
    duration: Duration,
    visit: &mut dyn FnMut(&[u8]),
) -> io::Result<Duration> {
    read_watch(lines, duration, || false, &mut |line| {
        let watch_line = WatchLine::parse(line);
        if watch_line.event_type == b"item_get" {
            visit(&unescape_key(watch_line.key));
        }
    })
}

/// Passes each line of a running `watch` to `visit` until `duration` has passed or `is_stopped` returns true.
///
/// The stream should time out reads now and then (`WouldBlock` or `TimedOut`), so that a silent server does not block
/// the caller. The end of the stream is an error: a server does not end a watch by itself.
fn read_watch(
    mut lines: impl BufRead,
    duration: Duration,
    is_stopped: impl Fn() -> bool,
    visit: &mut dyn FnMut(&[u8]),
) -> io::Result<Duration> {
    let started = Instant::now();
    let mut line = Vec::new();
    while started.elapsed() < duration && !is_stopped() {
        let bytes_left = LINE_BYTES_MAX.saturating_sub(line.len() as u64);
        match io::Read::take(&mut lines, bytes_left).read_until(b'\n', &mut line) {
            Ok(0) if bytes_left > 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if is_timeout(&error) => continue,
            Err(error) => return Err(error),
        }
        if line.last() == Some(&b'\n') {
            visit(&line);
            line.clear();
        } else if line.len() as u64 >= LINE_BYTES_MAX {
            let message = "a line of watch is longer than 4,096 bytes";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
    }
    Ok(started.elapsed())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(gets: u64, hits: u64, expired: u64, flushed: u64) -> Counters {
        Counters { gets, hits, expired, flushed, ..Counters::default() }
    }

    #[test]
    fn counters_give_the_total_and_the_watch_the_split() {
        let watched_causes = Causes {
            gets: 100,
            misses: 50,
            evicted: 25,
            evicted_unread: 5,
            unknown_cause: 25,
            ..Causes::default()
        };
        let causes = split_misses(&counters(200, 100, 20, 4), &watched_causes);
        assert_eq!((causes.misses, causes.expired, causes.removed), (100, 20, 4));
        assert_eq!((causes.evicted, causes.evicted_unread, causes.unknown_cause), (50, 10, 26));
    }

    #[test]
    fn misses_that_the_watch_did_not_see_have_an_unknown_cause() {
        let causes = split_misses(&counters(10, 0, 3, 0), &Causes::default());
        assert_eq!((causes.expired, causes.unknown_cause, causes.evicted), (3, 7, 0));
    }

    #[test]
    fn a_watch_that_ends_is_an_error() {
        let mut tally = WatchTally::new(b":");
        let lines = &b"OK\r\nts=1.0 type=item_get key=a status=found cfd=1\n"[..];
        let error = watch(lines, &mut tally, Duration::from_mins(1), || false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(tally.finish().0.gets, 1);
    }

    #[test]
    fn rejects_a_line_without_an_end() {
        let mut tally = WatchTally::new(b":");
        let lines = vec![b'x'; 10_000];
        let error = watch(&lines[..], &mut tally, Duration::from_mins(1), || false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
