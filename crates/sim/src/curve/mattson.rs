//! The exact curve of LRU, in one pass.

use super::distances::Distances;
use super::{Curve, Histogram};
use crate::replay::Prepared;

/// Requests between two looks at whether to go on.
const STRIDE: usize = 1 << 18;

/// The curve of LRU over all sizes; `None` if `goes_on`, asked every few hundred thousand requests, said no.
///
/// In objects it equals a replay at every size. In bytes it does at every size that the largest object fits; sizes
/// are whole steps of a millionth of the footprint. `requests` of the curve are requests, not bytes.
pub fn mattson(trace: &Prepared, goes_on: &dyn Fn() -> bool) -> Option<Curve> {
    let mut distances = Distances::new(trace.distinct(), trace.distinct());
    let mut histogram = Histogram::new(trace.footprint());
    for ids in trace.ids().chunks(STRIDE) {
        if !goes_on() {
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
