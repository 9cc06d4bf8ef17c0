//! What the server did in the last hour, second by second, and in the last day, minute by minute.
//!
//! Two rings of fixed length, a quarter of a megabyte together. Counts are rates between two looks; a second in which
//! nobody looked, because the process was stopped, has no value. Counters are read since the start of the process, so
//! that `stats reset` does not show.

use std::collections::VecDeque;

use crate::shared::Shared;
use crate::shared::counters::Totals;

/// Points of each ring: an hour of seconds, a day of minutes.
const SECONDS_MAX: usize = 3600;
const MINUTES_MAX: usize = 1440;
/// Seconds of a minute.
const MINUTE_S: u64 = 60;

/// The series, in the order of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Series {
    Gets,
    Hits,
    Sets,
    Others,
    Evictions,
    Expirations,
    BytesRead,
    BytesWritten,
    Connections,
    Items,
    UsedBytes,
    LoopP99,
}

/// Each series with its name and its unit, which is a rate where it ends in `/s`.
pub(super) const SERIES: [(Series, &str, &str); 12] = [
    (Series::Gets, "gets", "1/s"),
    (Series::Hits, "hits", "1/s"),
    (Series::Sets, "sets", "1/s"),
    (Series::Others, "other_commands", "1/s"),
    (Series::Evictions, "evictions", "1/s"),
    (Series::Expirations, "expirations", "1/s"),
    (Series::BytesRead, "bytes_read", "bytes/s"),
    (Series::BytesWritten, "bytes_written", "bytes/s"),
    (Series::Connections, "connections", ""),
    (Series::Items, "items", ""),
    (Series::UsedBytes, "used_bytes", "bytes"),
    (Series::LoopP99, "loop_iteration_p99_us", "us"),
];

/// The values of one second or one minute; not a number where there is none.
pub(super) type Point = [f32; SERIES.len()];

const NO_POINT: Point = [f32::NAN; SERIES.len()];

/// The rings.
#[derive(Debug, Default)]
pub(super) struct History {
    seconds: VecDeque<Point>,
    minutes: VecDeque<Point>,
    /// The second of the last point.
    last_second: Option<u64>,
    /// The points of the current minute.
    minute: MinuteSum,
}

/// Sums over the points of a minute.
#[derive(Debug, Default)]
struct MinuteSum {
    sums: Point,
    count: u16,
}

impl MinuteSum {
    fn add(&mut self, point: &Point) {
        let is_p99 = |index: usize| index == Series::LoopP99 as usize;
        for (index, (sum, value)) in self.sums.iter_mut().zip(point).enumerate() {
            *sum = if is_p99(index) { sum.max(*value) } else { *sum + value };
        }
        self.count += 1;
    }

    /// The means, and of the percentile the highest.
    fn take_point(&mut self) -> Point {
        let MinuteSum { mut sums, count } = std::mem::take(self);
        if count == 0 {
            return NO_POINT;
        }
        for sum in sums.iter_mut().take(Series::LoopP99 as usize) {
            *sum /= f32::from(count);
        }
        sums
    }
}

impl History {
    /// Appends the values of `second`, which counts from any moment and does not go back.
    pub(super) fn record(&mut self, second: u64, point: &Point) {
        let last_second = self.last_second.unwrap_or(second.saturating_sub(1));
        if second <= last_second {
            return;
        }
        self.last_second = Some(second);
        // Seconds without a look, no more than the ring holds.
        let gap = (second - last_second - 1).min(SECONDS_MAX as u64);
        for _ in 0..gap {
            push(&mut self.seconds, SECONDS_MAX, NO_POINT);
        }
        let minutes_passed = (second / MINUTE_S - last_second / MINUTE_S).min(MINUTES_MAX as u64);
        for _ in 0..minutes_passed {
            push(&mut self.minutes, MINUTES_MAX, self.minute.take_point());
        }
        push(&mut self.seconds, SECONDS_MAX, *point);
        self.minute.add(point);
    }

    /// The last `count` seconds of a series, the oldest first.
    pub(super) fn seconds(&self, series: Series, count: usize) -> Vec<f32> {
        values(&self.seconds, series, count)
    }

    /// The minutes of a series, the oldest first.
    pub(super) fn minutes(&self, series: Series) -> Vec<f32> {
        values(&self.minutes, series, MINUTES_MAX)
    }

    /// The sum of a series over the last `count` seconds.
    pub(super) fn sum(&self, series: Series, count: usize) -> f64 {
        let values = self.seconds(series, count);
        values.iter().filter(|value| value.is_finite()).map(|value| f64::from(*value)).sum()
    }
}

fn push(ring: &mut VecDeque<Point>, points_max: usize, point: Point) {
    if ring.len() == points_max {
        ring.pop_front();
    }
    ring.push_back(point);
}

fn values(ring: &VecDeque<Point>, series: Series, count: usize) -> Vec<f32> {
    let skipped = ring.len().saturating_sub(count);
    let points = ring.iter().skip(skipped);
    points.map(|point| point.get(series as usize).copied().unwrap_or(f32::NAN)).collect()
}

/// What is counted at a moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Look {
    totals: Totals,
    evictions: u64,
    expirations: u64,
    /// Iterations of the event loops by their time, as [`Shared::iteration_times`].
    iteration_times: Vec<(u64, u64)>,
    connections: i64,
    items: u64,
    used_bytes: u64,
}

impl Look {
    pub(super) fn new(shared: &Shared) -> Look {
        let counters = shared.store.counters();
        Look {
            totals: shared.lifetime_totals(),
            evictions: counters.evictions,
            expirations: counters.reclaimed,
            iteration_times: shared.iteration_times(),
            connections: shared.connections.current.load(std::sync::atomic::Ordering::Relaxed),
            items: counters.items,
            used_bytes: shared.used_bytes(&counters),
        }
    }

    /// The rates since an earlier look, and the values now.
    pub(super) fn point_since(&self, earlier: &Look, elapsed_s: f64) -> Point {
        let delta = self.totals.difference_since(&earlier.totals);
        let rate = |count: u64| (count as f64 / elapsed_s.max(1e-3)) as f32;
        let others = delta.touch_cmds
            + delta.delete_hits
            + delta.delete_misses
            + delta.incr_hits
            + delta.incr_misses
            + delta.decr_hits
            + delta.decr_misses;
        [
            rate(delta.get_cmds),
            rate(delta.get_hits),
            rate(delta.set_cmds),
            rate(others),
            rate(self.evictions.saturating_sub(earlier.evictions)),
            rate(self.expirations.saturating_sub(earlier.expirations)),
            rate(delta.bytes_read),
            rate(delta.bytes_written),
            self.connections as f32,
            self.items as f32,
            self.used_bytes as f32,
            self.loop_quantile_us(earlier, 0.99) as f32,
        ]
    }

    /// A time in microseconds that this part of the iterations since an earlier look did not exceed: the upper end of
    /// a range of a factor of two.
    pub(super) fn loop_quantile_us(&self, earlier: &Look, quantile: f64) -> u64 {
        let earlier_counts = earlier.iteration_times.iter().map(|(_, count)| *count);
        let earlier_counts = earlier_counts.chain(std::iter::repeat(0));
        let deltas: Vec<(u64, u64)> = self
            .iteration_times
            .iter()
            .zip(earlier_counts)
            .map(|((bound_us, count), before)| (*bound_us, count.saturating_sub(before)))
            .collect();
        let total: u64 = deltas.iter().map(|(_, count)| count).sum();
        let mut left = (total as f64 * quantile).ceil() as u64;
        for (bound_us, count) in deltas {
            if count >= left && left > 0 {
                return bound_us;
            }
            left = left.saturating_sub(count);
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(value: f32) -> Point {
        [value; SERIES.len()]
    }

    #[test]
    fn series_stand_in_the_order_of_their_point() {
        for (index, (series, _, _)) in SERIES.iter().enumerate() {
            assert_eq!(*series as usize, index);
        }
    }

    #[test]
    fn a_day_is_kept_in_less_than_two_megabytes() {
        let mut history = History::default();
        for second in 0..100_000_u64 {
            history.record(second, &point((second % 60) as f32));
        }
        assert_eq!(history.seconds(Series::Gets, usize::MAX).len(), SECONDS_MAX);
        let minutes = history.minutes(Series::Gets);
        assert_eq!(minutes.len(), MINUTES_MAX);
        assert_eq!(minutes.last(), Some(&29.5));
        assert_eq!(
            history.minutes(Series::LoopP99).last(),
            Some(&59.0),
            "the highest of the minute"
        );
        let points = history.seconds.capacity() + history.minutes.capacity();
        assert!(points * size_of::<Point>() < 1 << 20);
    }

    #[test]
    fn seconds_without_a_look_have_no_value_and_time_does_not_go_back() {
        let mut history = History::default();
        history.record(10, &point(1.0));
        history.record(13, &point(2.0));
        history.record(12, &point(9.0));
        let seconds = history.seconds(Series::Hits, 10);
        assert_eq!(seconds.len(), 4);
        assert!(seconds[1].is_nan() && seconds[2].is_nan());
        assert_eq!((seconds[0], seconds[3]), (1.0, 2.0));
        assert_eq!(Some(history.sum(Series::Hits, 10)), Some(3.0));
        history.record(u64::MAX / 2, &point(3.0));
        assert_eq!(history.seconds(Series::Hits, usize::MAX).len(), SECONDS_MAX);
        assert_eq!(history.seconds(Series::Hits, 1), [3.0]);
    }

    #[test]
    fn a_quantile_is_the_bound_of_its_range() {
        let look = |counts: &[u64]| Look {
            iteration_times: counts
                .iter()
                .enumerate()
                .map(|(index, count)| (1 << index, *count))
                .collect(),
            ..Look::default()
        };
        let (before, now) = (look(&[0, 5, 0, 0]), look(&[0, 95, 9, 1]));
        assert_eq!(now.loop_quantile_us(&before, 0.5), 2);
        assert_eq!(now.loop_quantile_us(&before, 0.95), 4);
        assert_eq!(now.loop_quantile_us(&before, 1.0), 8);
        assert_eq!(now.loop_quantile_us(&now, 0.99), 0, "no iterations");
    }
}
