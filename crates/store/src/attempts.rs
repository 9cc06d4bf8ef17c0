//! Attempts: how often one operation starts again because others were faster, so that none does for ever.
//!
//! Between the look at a key and the publication of what was decided, another worker may change the key. Then the
//! operation looks again. Each such round means that another operation on the key succeeded, so a few are the
//! rule and many are not; the bounds below are for what nobody foresaw.

/// Looks without a lock before the key is looked up under the bucket's lock, whose answer no reader's bound limits.
const UNLOCKED_LOOKS: u32 = 8;
/// An operation that was overtaken so often is refused as if there were no memory. At under a microsecond a round
/// other workers wait for this one's epoch for a millisecond at most.
const LOOKS_MAX: u32 = 1024;

/// Times an operation that found no segment passes by itself and starts again. What the first pass makes free other
/// writers may take; then it is the caller who waits.
const PASSES_MAX: u32 = 2;

/// What an operation counts of its own rounds.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    overtaken: u32,
    /// Passes of the worker for want of a segment.
    passed: u32,
}

impl Attempts {
    /// Whether the next look at the key takes the bucket's lock.
    #[inline]
    pub(crate) fn want_lock(&self) -> bool {
        self.overtaken >= UNLOCKED_LOOKS
    }

    /// Counts a pass within the operation; false when there were enough.
    pub(crate) fn may_pass(&mut self) -> bool {
        self.passed += 1;
        self.passed <= PASSES_MAX
    }

    /// Counts that another worker was faster; false when the operation must end.
    pub(crate) fn may_look_again(&mut self) -> bool {
        self.overtaken += 1;
        strict_assert!(
            self.overtaken < LOOKS_MAX,
            "an operation is overtaken again and again"
        );
        self.overtaken < LOOKS_MAX
    }
}
