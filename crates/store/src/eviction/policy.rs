//! Policies over segments: S3-FIFO, and the others it was measured against.
//!
//! A policy never sees an item, only its queue and how often it was used lately (0 to 3), so each is a few
//! lines. The measurements are in docs/decisions/0012-eviction-policy.md.

use crate::segments::Queue;

/// What a policy may know of the whole.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Census {
    /// Live bytes in sealed segments of the small queue.
    pub(crate) small_bytes: usize,
    /// Live bytes in sealed segments of the main queue.
    pub(crate) main_bytes: usize,
    /// Order of the segment that was swept last.
    pub(crate) hand: u64,
}

/// Which segment is the next victim: the oldest of a queue that is younger than `after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) queue: Queue,
    /// Only segments with a larger order; 0 for all. When there is none, the oldest of all.
    pub(crate) after: u64,
}

/// What becomes of a live item in a victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes, and the ghost remembers it if `remember`.
    Evict {
        /// Whether its return should be recognised.
        remember: bool,
    },
    /// It is copied to the young end of the main queue.
    Promote {
        /// The frequency that it starts with there.
        frequency: u8,
    },
    /// It is copied and keeps its place in the order.
    Stay {
        /// The frequency that it keeps.
        frequency: u8,
    },
}

/// A way to choose, over segments.
pub(crate) trait Policy: Send + Sync {
    /// Where a newcomer goes; `is_remembered` if the ghost knew it.
    fn enter(&self, is_remembered: bool) -> Queue;
    /// Which queue gives the next victim.
    fn pick(&self, census: &Census) -> Pick;
    /// What becomes of an item of that queue.
    fn judge(&self, queue: Queue, frequency: u8) -> Verdict;
    /// How many tags the ghost should keep per hundred resident items.
    fn ghost_percent(&self) -> usize {
        0
    }
}

/// The policies that a store can be made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PolicyKind {
    /// Small queue, main queue and ghost (Yang et al., SOSP 2023).
    #[default]
    S3Fifo,
    /// Evicts in the order of arrival.
    Fifo,
    /// One queue; used items get another round with their use forgotten (second chance).
    Clock,
    /// One queue and a hand; used items stay where they are (Zhang et al., NSDI 2024).
    Sieve,
    /// One queue; used items are copied to its young end, whatever their frequency: LRU by segments.
    Lru,
    /// As S3-FIFO with a quarter for newcomers, and promotion only for what the ghost knew (Johnson and Shasha, VLDB 1994).
    TwoQueue,
}

impl PolicyKind {
    /// Every policy, with its name in tables.
    pub const ALL: [(PolicyKind, &'static str); 6] = [
        (PolicyKind::S3Fifo, "s3fifo"),
        (PolicyKind::Fifo, "fifo"),
        (PolicyKind::Clock, "clock"),
        (PolicyKind::Sieve, "sieve"),
        (PolicyKind::Lru, "lru"),
        (PolicyKind::TwoQueue, "2q"),
    ];

    pub(crate) fn make(self) -> Box<dyn Policy> {
        match self {
            PolicyKind::S3Fifo => Box::new(Queues {
                small_percent: 10,
                promote_from: 1,
                ghost_percent: 90,
            }),
            PolicyKind::TwoQueue => Box::new(Queues {
                small_percent: 25,
                promote_from: 4,
                ghost_percent: 50,
            }),
            PolicyKind::Fifo => Box::new(One {
                used: |_| Verdict::Evict { remember: false },
                has_hand: false,
            }),
            PolicyKind::Clock => Box::new(One {
                used: |frequency| Verdict::Promote {
                    frequency: frequency - 1,
                },
                has_hand: false,
            }),
            PolicyKind::Lru => Box::new(One {
                used: |_| Verdict::Promote { frequency: 0 },
                has_hand: false,
            }),
            PolicyKind::Sieve => Box::new(One {
                used: |_| Verdict::Stay { frequency: 0 },
                has_hand: true,
            }),
        }
    }
}

/// Two queues and a ghost: a newcomer is tried in the small one, and stays if it is used there.
struct Queues {
    /// Share of the live bytes that newcomers may take.
    small_percent: usize,
    /// Uses in the small queue that make an item stay (above 3: never).
    promote_from: u8,
    ghost_percent: usize,
}

impl Policy for Queues {
    fn enter(&self, is_remembered: bool) -> Queue {
        if is_remembered {
            Queue::Main
        } else {
            Queue::Small
        }
    }

    fn pick(&self, census: &Census) -> Pick {
        let all = census.small_bytes + census.main_bytes;
        let is_small = census.small_bytes * 100 > all * self.small_percent;
        Pick {
            queue: if is_small { Queue::Small } else { Queue::Main },
            after: 0,
        }
    }

    fn judge(&self, queue: Queue, frequency: u8) -> Verdict {
        match queue {
            Queue::Small if frequency >= self.promote_from => Verdict::Promote { frequency: 0 },
            Queue::Small => Verdict::Evict { remember: true },
            Queue::Main if frequency > 0 => Verdict::Promote {
                frequency: frequency - 1,
            },
            Queue::Main => Verdict::Evict { remember: false },
        }
    }

    fn ghost_percent(&self) -> usize {
        self.ghost_percent
    }
}

/// One queue: unused items go, used ones as `used` says.
struct One {
    used: fn(u8) -> Verdict,
    has_hand: bool,
}

impl Policy for One {
    fn enter(&self, _is_remembered: bool) -> Queue {
        Queue::Main
    }

    fn pick(&self, census: &Census) -> Pick {
        Pick {
            queue: Queue::Main,
            after: if self.has_hand { census.hand } else { 0 },
        }
    }

    fn judge(&self, _queue: Queue, frequency: u8) -> Verdict {
        if frequency == 0 {
            Verdict::Evict { remember: false }
        } else {
            (self.used)(frequency)
        }
    }
}
