//! The five settings of the eviction policy that can be changed while it runs, and the ones that a tuned policy chooses from.

use std::fmt;

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
    pub const DEFAULT: Self = Self::new(10, 1, true, 50, 0);

    /// What a tuned policy chooses from; the first is the default.
    pub const CANDIDATES: [Self; 10] = [
        Self::DEFAULT,
        Self::new(10, 1, true, 50, 30),
        Self::new(20, 2, true, 50, 30),
        Self::new(5, 1, true, 50, 30),
        Self::new(5, 4, true, 50, 0),
        Self::new(5, 2, true, 200, 0),
        Self::new(1, 2, true, 50, 0),
        Self::new(90, 4, true, 50, 0),
        Self::new(50, 1, true, 50, 30),
        Self::new(1, 1, true, 400, 0),
    ];

    const fn new(
        small_percent: u8,
        promotion_uses: u8,
        ghost_promotes: bool,
        ghost_percent: u16,
        skip_percent: u8,
    ) -> Self {
        Self { small_percent, promotion_uses, ghost_promotes, ghost_percent, skip_percent }
    }

    /// Whether the next victim is in the small queue, when the queues hold so many bytes.
    pub fn takes_from_small(&self, small_bytes: u64, main_bytes: u64) -> bool {
        small_bytes * 100 > (small_bytes + main_bytes) * u64::from(self.small_percent)
    }
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
