//! Miss-ratio curves: the miss ratio of LRU at every size at once, and what follows from it.
//!
//! LRU is a stack algorithm (Mattson et al., IBM Systems Journal 1970): a request hits in every cache at least as
//! large as its stack distance, the weight of the distinct objects used since the object's last use, itself
//! included. So one histogram of distances is the whole curve: exact (`mattson`), or from a sample of the keys
//! (`shards`). Other policies have no such order and are replayed size by size (`replay`).

mod analysis;
mod distances;
mod mattson;
#[cfg(feature = "own-policy")]
mod server_memory;
mod shards;

pub use analysis::{Knee, MemoryTradeOff, compare_memory_and_policies};
pub use mattson::mattson;
#[cfg(feature = "own-policy")]
pub use server_memory::{SERVER_STORE_BYTES_MIN, ServerMemory};
pub use shards::{MissRatioRange, SampleOptions, miss_ratio_range, shards};

/// Maximum number of steps of a curve: finer than any chart, small enough to keep in memory.
const STEPS_MAX: u64 = 1 << 20;

/// Misses by size.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    requests: f64,
    /// Size of one step, in objects or bytes.
    step: u64,
    /// Misses at size `index * step`; the last entry is for a cache that holds everything.
    misses: Vec<f64>,
}

/// Hits by stack distance, from which a curve is made.
struct Histogram {
    step: u64,
    hits: Vec<f64>,
}

impl Histogram {
    /// For distances up to `footprint`.
    fn new(footprint: u64) -> Self {
        let step = footprint.div_ceil(STEPS_MAX).max(1);
        Self { step, hits: vec![0.0; (footprint / step + 2) as usize] }
    }

    /// Counts requests that hit at `distance` and above, rounded up to whole steps.
    #[inline]
    fn add(&mut self, distance: u64, request_count: f64) {
        let index = (distance.div_ceil(self.step) as usize).min(self.hits.len() - 1);
        self.hits[index] += request_count;
    }

    fn into_curve(self, requests: f64) -> Curve {
        let mut requests_left = requests;
        let misses_above = |&hits: &f64| {
            requests_left -= hits;
            requests_left.max(0.0)
        };
        Curve { requests, step: self.step, misses: self.hits.iter().map(misses_above).collect() }
    }
}

impl Curve {
    /// The curve through points (size, misses) whose sizes rise from 0 in multiples of `step`, linear between.
    fn from_points(points: &[(u64, f64)], step: u64, requests: f64) -> Self {
        let mut misses = Vec::new();
        for pair in points.windows(2) {
            let ((from_size, from_misses), (to_size, to_misses)) = (pair[0], pair[1]);
            let step_count = (to_size - from_size) / step;
            let interpolate = |index: u64| {
                from_misses + (to_misses - from_misses) * index as f64 / step_count as f64
            };
            misses.extend((0..step_count).map(interpolate));
        }
        misses.extend(points.last().map(|&(_, last_misses)| last_misses));
        Self { requests, step, misses }
    }

    /// The miss ratio at a size in objects or bytes; sizes between two steps count as the lower one.
    pub fn miss_ratio(&self, size: u64) -> f64 {
        let index = ((size / self.step) as usize).min(self.misses.len() - 1);
        if self.requests == 0.0 { 0.0 } else { self.misses[index] / self.requests }
    }

    /// The smallest size with at most this miss ratio, `None` if no size has it.
    pub fn size_for(&self, miss_ratio: f64) -> Option<u64> {
        // Not a binary search: with TTLs a larger cache may miss a little more.
        let index = self.misses.iter().position(|&misses| misses <= miss_ratio * self.requests)?;
        Some(index as u64 * self.step)
    }

    /// The largest size of the curve: the footprint of the trace.
    pub fn footprint(&self) -> u64 {
        (self.misses.len() as u64).saturating_sub(2) * self.step
    }

    /// Up to `count` points (size, miss ratio) from 0 to the end, evenly spaced.
    pub fn points(&self, count: u64) -> Vec<(u64, f64)> {
        let footprint = self.footprint().max(1);
        let count = count.clamp(1, footprint);
        let size_at =
            |index: u64| (u128::from(footprint) * u128::from(index) / u128::from(count)) as u64;
        (0..=count).map(|index| (size_at(index), self.miss_ratio(size_at(index)))).collect()
    }

    /// Up to `count` sizes from 1/2000 of the footprint to the footprint, with a constant ratio between neighbours.
    pub fn sizes_by_ratio(&self, count: u32) -> Vec<u64> {
        let footprint = self.footprint().max(1) as f64;
        let smallest_size = (footprint / 2000.0).max(1.0);
        let size_at = |index: u32| {
            let fraction = f64::from(index) / f64::from(count.max(2) - 1);
            (smallest_size * (footprint / smallest_size).powf(fraction)).round() as u64
        };
        let mut sizes: Vec<u64> = (0..count.max(2)).map(size_at).collect();
        sizes.dedup();
        sizes
    }
}
