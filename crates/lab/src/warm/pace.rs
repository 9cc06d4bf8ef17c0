//! The pace of a warm-up: when the next batch may start, given what was copied. No clock.

use std::time::Duration;

/// Batches a second at least, where the rate allows more than one item in each: a server should see a small batch
/// often, not a large one now and then.
const BATCHES_PER_SECOND: u64 = 50;

/// A bound on items and on bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    /// Items a second.
    pub items_per_s: u64,
    /// Bytes a second.
    pub bytes_per_s: u64,
}

impl Rate {
    /// When this many items and bytes may have been copied, from the start.
    pub(super) fn due_after(self, items: u64, bytes: u64) -> Duration {
        let seconds = |count: u64, rate: u64| count as f64 / rate.max(1) as f64;
        let due_s = seconds(items, self.items_per_s).max(seconds(bytes, self.bytes_per_s));
        Duration::try_from_secs_f64(due_s).unwrap_or(Duration::MAX)
    }

    /// How many items a batch may have.
    pub(super) fn batch_items(self) -> usize {
        (self.items_per_s / BATCHES_PER_SECOND).max(1) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_items_and_bytes_decides() {
        let rate = Rate { items_per_s: 1000, bytes_per_s: 1 << 20 };
        assert_eq!(rate.due_after(500, 0), Duration::from_millis(500));
        assert_eq!(rate.due_after(500, 2 << 20), Duration::from_secs(2));
        assert_eq!(rate.batch_items(), 20);
    }

    #[test]
    fn a_slow_rate_still_copies_one_item_at_a_time() {
        let rate = Rate { items_per_s: 1, bytes_per_s: 1 };
        assert_eq!(rate.batch_items(), 1);
        assert_eq!(rate.due_after(3, 0), Duration::from_secs(3));
    }
}
