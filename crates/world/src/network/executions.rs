//! The order in which all servers of a world executed requests.
//!
//! A *run* is one reading of a server from one connection, or its start without the items that it had.

/// An index in that order.
pub(crate) type ExecutionIndex = u64;

/// Bits of an [`ExecutionIndex`] below the number of the run.
const RUN_SHIFT: u32 = 24;
/// The last offset in a run: the index after a run is behind it.
const OFFSET_MAX: u64 = (1 << RUN_SHIFT) - 2;

/// Numbers the runs of all servers.
#[derive(Debug, Default)]
pub(super) struct Executions {
    last_run: u64,
}

impl Executions {
    /// Begins a run; returns its number.
    pub(super) fn begin_run(&mut self) -> u64 {
        self.last_run += 1;
        self.last_run
    }

    /// The index after all that was executed so far.
    pub(super) fn index(&self) -> ExecutionIndex {
        (self.last_run << RUN_SHIFT) + OFFSET_MAX + 1
    }
}

/// The index of what a run executed after using up `offset` bytes.
pub(super) fn index_in_run(run_number: u64, offset: u64) -> ExecutionIndex {
    (run_number << RUN_SHIFT) + offset.min(OFFSET_MAX)
}
