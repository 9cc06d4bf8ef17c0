//! The limits of retries: how often one operation restarts because others were faster, bounded so that it ends.
//!
//! Between the lookup of a key and the publication of the decision, another worker may change the key. Then the
//! operation looks it up again. Each such round means that another operation on the key succeeded, so a few are
//! normal and many are not; the bounds below are for the unforeseen.

/// Lookups without a lock before the key is looked up under the bucket's lock, whose result no reader's bound
/// limits.
const UNLOCKED_TRIES_MAX: u32 = 8;
/// An operation that was overtaken this often is refused as if there were no memory. At under a microsecond a round
/// other workers wait for this one's epoch for a millisecond at most.
const LOST_RACES_MAX: u32 = 1024;

/// Times an operation that found no segment passes by itself and restarts. Other writers may take the memory freed
/// by the first pass; then the caller waits.
const PASSES_MAX: u32 = 2;

/// The retries of one operation so far.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    lost_races: u32,
    /// Passes of the worker for lack of a segment.
    passes: u32,
}

impl Attempts {
    /// Whether the next lookup of the key takes the bucket's lock.
    #[inline]
    pub(crate) fn should_lock(&self) -> bool {
        self.lost_races >= UNLOCKED_TRIES_MAX
    }

    /// Counts a pass within the operation; false when the maximum is reached.
    pub(crate) fn count_pass(&mut self) -> bool {
        self.passes += 1;
        self.passes <= PASSES_MAX
    }

    /// Counts that another worker was faster; false when the operation must end.
    pub(crate) fn count_lost_race(&mut self) -> bool {
        self.lost_races += 1;
        strict_assert!(
            self.lost_races < LOST_RACES_MAX,
            "an operation loses races again and again"
        );
        self.lost_races < LOST_RACES_MAX
    }
}
