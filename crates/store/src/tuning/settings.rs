//! The five settings of the eviction policy that can be changed while it runs, and the ones that a tuned policy chooses from.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Settings of a small queue, a main queue and a ghost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PolicySettings {
    /// Share of the stored bytes that the small queue has, in per cent.
    pub small_percent: u8,
    /// Uses in the small queue that move an item to the main queue. Uses are counted up to 3, so 4 is never.
    pub promotion_uses: u8,
    /// Whether an item that the ghost remembers starts in the main queue.
    pub ghost_promotes: bool,
    /// Keys that the ghost remembers per hundred stored items.
    pub ghost_percent: u16,
    /// Share of the small queue, from its young end, in which uses do not count, in per cent.
    pub skip_percent: u8,
}

impl PolicySettings {
    /// The settings of a server whose policy is fixed.
    pub const DEFAULT: Self = Self::new(10, 1, true, 50, 5);

    /// The published settings of S3-FIFO.
    pub(crate) const S3_FIFO: Self = Self::new(10, 1, true, 90, 0);

    /// The published settings of 2Q: what is used in the small queue does not stay for that.
    pub(crate) const TWO_QUEUE: Self = Self::new(25, 4, true, 50, 0);

    /// What a tuned policy chooses from; the first is the default.
    pub const CANDIDATES: [Self; 10] = [
        Self::DEFAULT,
        Self::new(10, 1, true, 50, 0),
        Self::new(20, 2, true, 50, 30),
        Self::new(5, 1, true, 50, 30),
        Self::new(5, 4, true, 50, 0),
        Self::new(5, 2, true, 200, 0),
        Self::new(1, 2, true, 50, 0),
        Self::new(90, 4, true, 50, 0),
        Self::new(50, 1, true, 50, 30),
        Self::new(1, 1, true, 400, 0),
    ];

    pub(crate) const fn new(
        small_percent: u8,
        promotion_uses: u8,
        ghost_promotes: bool,
        ghost_percent: u16,
        skip_percent: u8,
    ) -> Self {
        Self { small_percent, promotion_uses, ghost_promotes, ghost_percent, skip_percent }
    }

    /// The settings of one of [`Self::CANDIDATES`].
    pub fn of_candidate(index: usize) -> Self {
        Self::CANDIDATES.get(index).copied().unwrap_or(Self::DEFAULT)
    }

    /// Whether the next victim is in the small queue, when the queues hold so many bytes.
    pub fn takes_from_small(&self, small_bytes: u64, main_bytes: u64) -> bool {
        small_bytes * 100 > (small_bytes + main_bytes) * u64::from(self.small_percent)
    }

    /// Bytes of new items that have to enter the small queue after one before its uses count, if `capacity_bytes` fit.
    pub fn young_bytes(&self, capacity_bytes: u64) -> u64 {
        let share = u64::from(self.small_percent) * u64::from(self.skip_percent);
        (u128::from(capacity_bytes) * u128::from(share) / 10_000) as u64
    }

    /// Uses that move an item of `bytes` bytes to the main queue, where new ones have `mean_bytes` on average.
    ///
    /// One use is worth a factor of four in size: an item four times as large displaces four others, which together are
    /// used more often.
    pub fn uses_to_promote(&self, bytes: u64, mean_bytes: u64) -> u8 {
        self.promotion_uses + additional_uses(bytes, mean_bytes)
    }

    /// Uses that give an item of the main queue another round.
    pub fn uses_to_stay(bytes: u64, mean_bytes: u64) -> u8 {
        1 + additional_uses(bytes, mean_bytes.saturating_mul(4))
    }
}

/// Settings that are changed while others read them.
#[derive(Debug)]
pub(crate) struct ChangeableSettings(AtomicU64);

impl ChangeableSettings {
    pub(crate) fn new(settings: PolicySettings) -> Self {
        Self(AtomicU64::new(to_word(settings)))
    }

    /// The settings at this moment.
    pub(crate) fn get(&self) -> PolicySettings {
        let word = self.0.load(Ordering::Relaxed);
        let [small_percent, promotion_uses, ghost_promotes, skip_percent, ghost @ ..] =
            word.to_le_bytes();
        let [ghost_low, ghost_high, ..] = ghost;
        PolicySettings {
            small_percent,
            promotion_uses,
            ghost_promotes: ghost_promotes != 0,
            ghost_percent: u16::from_le_bytes([ghost_low, ghost_high]),
            skip_percent,
        }
    }

    /// Changes all of them at once.
    pub(crate) fn set(&self, settings: PolicySettings) {
        self.0.store(to_word(settings), Ordering::Relaxed);
    }
}

fn to_word(settings: PolicySettings) -> u64 {
    let [ghost_low, ghost_high] = settings.ghost_percent.to_le_bytes();
    u64::from_le_bytes([
        settings.small_percent,
        settings.promotion_uses,
        u8::from(settings.ghost_promotes),
        settings.skip_percent,
        ghost_low,
        ghost_high,
        0,
        0,
    ])
}

/// Uses that an item needs more than one of `bytes_max` bytes.
fn additional_uses(bytes: u64, bytes_max: u64) -> u8 {
    u8::from(bytes > bytes_max) + u8::from(bytes > bytes_max.saturating_mul(4))
}

impl fmt::Display for PolicySettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { small_percent, promotion_uses, ghost_promotes, ghost_percent, skip_percent } =
            self;
        let ghost_main = u8::from(!ghost_promotes);
        write!(
            out,
            "small={small_percent}%,main={promotion_uses},ghost-main={ghost_main},\
             ghost={ghost_percent}%,skip={skip_percent}%"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changeable_settings_keep_each_of_them() {
        let without_ghost = PolicySettings::new(90, 4, false, 65_535, 100);
        let shared = ChangeableSettings::new(PolicySettings::DEFAULT);
        assert_eq!(shared.get(), PolicySettings::DEFAULT);
        for settings in PolicySettings::CANDIDATES.into_iter().chain([without_ghost]) {
            shared.set(settings);
            assert_eq!(shared.get(), settings);
        }
    }
}
