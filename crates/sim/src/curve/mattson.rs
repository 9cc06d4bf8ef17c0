//! The exact curve of LRU, in one pass.

use super::distances::Distances;
use super::{Curve, Histogram};
use crate::policy::PolicyKind;
use crate::replay::{PreparedTrace, Task};

/// Number of requests between two calls of `should_continue`.
const REQUESTS_PER_CHECK: usize = 1 << 18;

/// Sizes at which the curve of a trace with TTLs is replayed.
const REPLAYED_SIZES_MAX: u64 = 100;

/// The curve of LRU, replayed at sizes with a constant ratio; every size of a small trace.
fn replay_curve(trace: &PreparedTrace, should_continue: &dyn Fn() -> bool) -> Option<Curve> {
    let footprint = trace.footprint();
    let step = Histogram::new(footprint).step;
    let mut sizes: Vec<u64> = if footprint <= REPLAYED_SIZES_MAX {
        (0..=footprint).collect()
    } else {
        let smallest_size = (footprint as f64 / 2000.0).max(1.0);
        let size_at = |index: u64| {
            let fraction = index as f64 / (REPLAYED_SIZES_MAX - 1) as f64;
            (smallest_size * (footprint as f64 / smallest_size).powf(fraction)).round() as u64
        };
        std::iter::once(0).chain((0..REPLAYED_SIZES_MAX).map(size_at)).collect()
    };
    for size in &mut sizes {
        *size -= *size % step;
    }
    sizes.push(footprint.next_multiple_of(step) + step);
    sizes.dedup();
    let count_misses = |capacity: u64| {
        let task = Task { policy: PolicyKind::Lru, capacity, seed: 0 };
        Some(task.run(trace, should_continue)?.misses as f64)
    };
    let points: Option<Vec<(u64, f64)>> =
        sizes.into_iter().map(|size| Some((size, count_misses(size)?))).collect();
    Some(Curve::from_points(&points?, step, trace.requests() as f64))
}

/// The curve of LRU over all sizes; `None` if `should_continue`, which is called every few hundred thousand requests,
/// returned false.
///
/// In objects it equals a replay at every size. In bytes this holds for every size that can hold the largest object;
/// sizes are multiples of a millionth of the footprint. `requests` of the curve are requests, not bytes.
///
/// Where objects expire or are deleted, stack distances do not decide: a miss in a small cache stores the object anew,
/// with a later end than a large cache has for it. The curve is then replayed at up to a hundred sizes, exact
/// at each of them, and linear between.
pub fn mattson(trace: &PreparedTrace, should_continue: &dyn Fn() -> bool) -> Option<Curve> {
    if trace.timeline().is_some() {
        return replay_curve(trace, should_continue);
    }
    let mut distances = Distances::new(trace.distinct(), trace.distinct());
    let mut histogram = Histogram::new(trace.footprint());
    for ids in trace.ids().chunks(REQUESTS_PER_CHECK) {
        if !should_continue() {
            return None;
        }
        for &id in ids {
            let weight = trace.sizes().get(id as usize).copied().unwrap_or(1);
            if let Some(distance) = distances.record_use(id, weight) {
                histogram.add(distance, 1.0);
            }
        }
    }
    Some(histogram.into_curve(trace.requests() as f64))
}
