//! The exact curve of LRU, in one pass.

use super::distances::Distances;
use super::{Curve, Histogram};
use crate::replay::Prepared;

/// Number of requests between two calls of `should_continue`.
const STRIDE: usize = 1 << 18;

/// The curve of LRU over all sizes; `None` if `should_continue`, which is called every few hundred thousand requests,
/// returned false.
///
/// In objects it equals a replay at every size. In bytes this holds for every size that can hold the largest object;
/// sizes are multiples of a millionth of the footprint. `requests` of the curve are requests, not bytes.
pub fn mattson(trace: &Prepared, should_continue: &dyn Fn() -> bool) -> Option<Curve> {
    let mut distances = Distances::new(trace.distinct(), trace.distinct());
    let mut histogram = Histogram::new(trace.footprint());
    for ids in trace.ids().chunks(STRIDE) {
        if !should_continue() {
            return None;
        }
        for &id in ids {
            let weight = trace.sizes().get(id as usize).copied().unwrap_or(1);
            if let Some(distance) = distances.note_use(id, weight) {
                histogram.add(distance, 1.0);
            }
        }
    }
    Some(histogram.curve(trace.requests() as f64))
}
