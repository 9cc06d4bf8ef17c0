//! The counts of the last hour, and what follows from them at each size.
//!
//! A miniature's misses are not taken as they are. The server knows its misses exactly, so the estimate for a size is
//! those and the difference between the miniature of that size and the one of the present size, on the same keys. What
//! is wrong with all miniatures alike, and which hot keys happen to be sampled, cancels.

use std::collections::VecDeque;

/// Sizes of the curve, as parts of the present `-m`.
pub(super) const SIZES: [f64; SIZE_COUNT] = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0];
pub(super) const SIZE_COUNT: usize = 8;
/// The index of the present size.
pub(super) const PRESENT: usize = 3;

/// Disjoint samples of the keys, whose differences give the interval.
pub(super) const GROUPS: usize = 16;

/// A twelfth of the window.
const BUCKET_S: u32 = 300;
const BUCKETS: usize = 12;

/// Student's t at 97.5 % with one degree of freedom less than there are groups.
const T_975: f64 = 2.131;

/// What a miniature may be off besides the sampling, because it evicts items and not segments: a miss ratio, and a part
/// of the difference. Measured against replays (docs/decisions/store.md, 0150).
const MODEL_ERROR: f64 = 0.002;
const MODEL_ERROR_PART: f64 = 0.08;

/// Counts of some minutes; those of the sample are scaled to all keys.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    started_at: u32,
    ended_at: u32,
    /// Reads of the server, and those that missed.
    gets: f64,
    misses: f64,
    /// Misses of each miniature, by group.
    miniature_misses: [[f32; GROUPS]; SIZE_COUNT],
    /// Misses of LRU.
    lru_misses: [f32; SIZE_COUNT],
    /// Misses of the server that no eviction would have caused with enough memory.
    avoidable_misses: f64,
    /// Events that were taken, and those that were lost because the rings were full.
    events: u64,
    dropped_events: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.started_at = self.started_at.min(other.started_at);
        self.ended_at = self.ended_at.max(other.ended_at);
        self.gets += other.gets;
        self.misses += other.misses;
        self.avoidable_misses += other.avoidable_misses;
        self.events += other.events;
        self.dropped_events += other.dropped_events;
        for (sums, added) in self.miniature_misses.iter_mut().zip(&other.miniature_misses) {
            sums.iter_mut().zip(added).for_each(|(sum, added)| *sum += added);
        }
        self.lru_misses.iter_mut().zip(&other.lru_misses).for_each(|(sum, added)| *sum += added);
    }
}

/// Misses per get at one size.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Estimate {
    pub(super) miss_ratio: f64,
    /// Half of the 95 % interval.
    pub(super) error: f64,
    pub(super) lru_miss_ratio: f64,
}

/// The window.
#[derive(Debug, Clone, Default)]
pub(super) struct Window {
    buckets: VecDeque<Counts>,
}

impl Window {
    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<Counts>()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.buckets.clear();
    }

    /// Counts what the server did until `now`.
    pub(super) fn count_requests(&mut self, gets: u64, misses: u64, now: u32) {
        let counts = self.current(now);
        counts.gets += gets as f64;
        counts.misses += misses as f64;
        counts.ended_at = now;
    }

    /// Counts a read of a sampled key, which stands for `scale` of all: at which sizes it missed, and the smallest size
    /// at which LRU hit.
    pub(super) fn count_read(
        &mut self,
        group: usize,
        scale: f32,
        missed: [bool; SIZE_COUNT],
        lru_hit_from: usize,
        now: u32,
    ) {
        let counts = self.current(now);
        for (misses, missed) in counts.miniature_misses.iter_mut().zip(missed) {
            if let Some(misses) = misses.get_mut(group).filter(|_| missed) {
                *misses += scale;
            }
        }
        for misses in counts.lru_misses.iter_mut().take(lru_hit_from) {
            *misses += scale;
        }
    }

    /// Counts a miss of the server that no eviction would have caused with enough memory, for `scale` of them.
    pub(super) fn count_avoidable(&mut self, scale: f64, now: u32) {
        self.current(now).avoidable_misses += scale;
    }

    /// Counts events that were taken and lost.
    pub(super) fn count_events(&mut self, events: u64, dropped_events: u64, now: u32) {
        let counts = self.current(now);
        counts.events += events;
        counts.dropped_events += dropped_events;
    }

    fn current(&mut self, now: u32) -> &mut Counts {
        let is_over = |counts: &Counts| now.saturating_sub(counts.started_at) >= BUCKET_S;
        if self.buckets.back().is_none_or(is_over) {
            if self.buckets.len() >= BUCKETS {
                self.buckets.pop_front();
            }
            let counts = Counts { started_at: now, ended_at: now, ..Counts::default() };
            self.buckets.push_back(counts);
        }
        let last = self.buckets.len() - 1;
        // INVARIANT: one was just added if there was none.
        #[expect(clippy::indexing_slicing, reason = "the last index of a queue that is not empty")]
        &mut self.buckets[last]
    }

    /// The sums.
    pub(super) fn totals(&self) -> Totals {
        let mut buckets = self.buckets.iter();
        let mut sum = buckets.next().copied().unwrap_or_default();
        buckets.for_each(|counts| sum.add(counts));
        Totals(sum)
    }
}

/// The sums of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Totals(Counts);

impl Totals {
    /// Length of the window in seconds, at least 1.
    pub(super) fn seconds(&self) -> u32 {
        self.0.ended_at.saturating_sub(self.0.started_at).max(1)
    }

    /// Reads.
    pub(super) fn gets(&self) -> f64 {
        self.0.gets
    }

    /// The share of the events that were lost, 0 to 1.
    pub(super) fn dropped_share(&self) -> f64 {
        let all = self.0.events + self.0.dropped_events;
        self.0.dropped_events as f64 / all.max(1) as f64
    }

    /// Misses per read.
    pub(super) fn miss_ratio(&self) -> f64 {
        self.ratio(self.0.misses)
    }

    /// Hits per read if nothing were ever evicted.
    pub(super) fn unlimited_hit_ratio(&self) -> f64 {
        (1.0 - self.ratio(self.0.misses - self.0.avoidable_misses)).min(1.0)
    }

    /// The estimates by size.
    pub(super) fn estimates(&self) -> [Estimate; SIZE_COUNT] {
        let present = self.0.miniature_misses.get(PRESENT).copied().unwrap_or_default();
        let present_misses: f64 = present.iter().map(|misses| f64::from(*misses)).sum();
        std::array::from_fn(|size| {
            let misses = self.0.miniature_misses.get(size).copied().unwrap_or_default();
            let differences = misses.iter().zip(present).map(|(at, now)| f64::from(at - now));
            let differences: Vec<f64> = differences.collect();
            let difference: f64 = differences.iter().sum();
            let mean = difference / GROUPS as f64;
            let squares: f64 = differences.iter().map(|d| (d - mean) * (d - mean)).sum();
            let standard_error = (squares / (GROUPS - 1) as f64 * GROUPS as f64).sqrt();
            let lru_misses = self.0.lru_misses.get(size).copied().map_or(0.0, f64::from);
            Estimate {
                miss_ratio: self.ratio(self.0.misses + difference),
                error: self.ratio(T_975 * standard_error + MODEL_ERROR_PART * difference.abs())
                    + MODEL_ERROR,
                lru_miss_ratio: self.ratio(self.0.misses + lru_misses - present_misses),
            }
        })
    }

    fn ratio(&self, count: f64) -> f64 {
        if self.0.gets > 0.0 { (count / self.0.gets).clamp(0.0, 1.0) } else { 0.0 }
    }
}
