//! Statistics of latencies: percentiles with intervals, and whether a run was steady. Pure: no clock, no randomness.
//!
//! Nothing is assumed about the shape of a distribution, because latencies have none that holds: intervals are order
//! statistics, changes are found among medians.

mod percentile;
mod ratio;
mod segments;
mod steadiness;

pub(crate) use percentile::find_median_ranks;
pub(crate) use percentile::{Estimate, Percentiles};
pub(crate) use ratio::RatioInterval;
pub(crate) use steadiness::Steadiness;
pub(crate) use steadiness::SteadinessKind;

#[cfg(test)]
mod synthetic;
