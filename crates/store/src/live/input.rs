//! What the model of the load is told at each step.

use crate::request::Seconds;

/// What the caller knows at each step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LiveInput {
    /// The store's clock.
    pub now: Seconds,
    /// Milliseconds that never go back, from any start.
    pub elapsed_ms: u64,
    /// Reads of the server since its start.
    pub gets: u64,
    /// Those that missed.
    pub misses: u64,
    /// The mean time in microseconds that clients took to fill misses, if it is known.
    pub miss_time_us: Option<u64>,
    /// CPU time of the thread that calls.
    pub cpu_us: u64,
    /// CPU time of the whole process.
    pub process_cpu_us: u64,
}
