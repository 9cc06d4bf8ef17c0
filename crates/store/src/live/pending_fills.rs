//! Misses of the store that clients have not filled so far.

/// A set this long after a miss of the same key fills it.
const FILL_S: u32 = 60;

/// Entries of the table.
const PENDING_FILLS: usize = 512;

/// One miss for each slot, the last: tag and second.
pub(super) struct PendingFills([(u32, u32); PENDING_FILLS]);

impl Default for PendingFills {
    fn default() -> Self {
        PendingFills([(0, 0); PENDING_FILLS])
    }
}

impl PendingFills {
    /// A miss of this key.
    pub(super) fn add(&mut self, tag: u32, now: u32) {
        if let Some(slot) = self.0.get_mut(tag as usize % PENDING_FILLS) {
            *slot = (tag, now);
        }
    }

    /// Whether a set of this key fills a miss, which it ends.
    pub(super) fn take(&mut self, tag: u32, now: u32) -> bool {
        let slot = self.0.get_mut(tag as usize % PENDING_FILLS);
        let Some(slot) = slot.filter(|(slot_tag, _)| *slot_tag == tag) else {
            return false;
        };
        let (_, missed_at) = std::mem::take(slot);
        now.saturating_sub(missed_at) <= FILL_S
    }
}
