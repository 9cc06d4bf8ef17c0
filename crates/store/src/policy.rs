//! Policies over segments: the one that is used, and the others it was measured against.
//!
//! A policy never sees an item, only its queue, how often it was used lately (0 to 3) and how large it is, so
//! each is a few lines. The measurements are in docs/decisions/0012-eviction-policy.md.

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

/// What a policy may know of an item in a victim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) queue: Queue,
    /// How often it was used lately, 0 to 3.
    pub(crate) frequency: u8,
    /// Key and value bytes.
    pub(crate) bytes: usize,
    /// Key and value bytes of a newcomer of late, on the mean.
    pub(crate) mean_bytes: usize,
}

impl Standing {
    /// Whether it is larger than `times` newcomers.
    fn is_over(&self, times: usize) -> bool {
        self.bytes > self.mean_bytes.saturating_mul(times)
    }
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
    /// What becomes of an item.
    fn judge(&self, item: &Standing) -> Verdict;
    /// How many tags the ghost should keep per hundred resident items.
    fn ghost_percent(&self) -> usize {
        0
    }
}

/// The policies that a store can be made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PolicyKind {
    /// As S3-FIFO, but an item takes its uses along when it is promoted, and a large one needs more of them.
    #[default]
    Weighed,
    /// As S3-FIFO, but an item takes its uses along when it is promoted.
    Carried,
    /// Small queue, main queue and ghost (Yang et al., SOSP 2023).
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
    pub const ALL: [(PolicyKind, &'static str); 8] = [
        (PolicyKind::Weighed, "weighed"),
        (PolicyKind::Carried, "carried"),
        (PolicyKind::S3Fifo, "s3fifo"),
        (PolicyKind::Fifo, "fifo"),
        (PolicyKind::Clock, "clock"),
        (PolicyKind::Sieve, "sieve"),
        (PolicyKind::Lru, "lru"),
        (PolicyKind::TwoQueue, "2q"),
    ];

    pub(crate) fn make(self) -> Box<dyn Policy> {
        match self {
            PolicyKind::Weighed => Box::new(Queues {
                ghost_percent: 50,
                carries_uses: true,
                weighs: true,
                ..Queues::S3_FIFO
            }),
            PolicyKind::Carried => Box::new(Queues {
                carries_uses: true,
                ..Queues::S3_FIFO
            }),
            PolicyKind::S3Fifo => Box::new(Queues::S3_FIFO),
            PolicyKind::TwoQueue => Box::new(Queues {
                small_percent: 25,
                promote_from: 4,
                ghost_percent: 50,
                ..Queues::S3_FIFO
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
    /// A promoted item starts in the main queue with its uses less one, not with none.
    carries_uses: bool,
    /// What takes the room of many items needs more uses; three are enough for any.
    weighs: bool,
}

impl Queues {
    const S3_FIFO: Self = Queues {
        small_percent: 10,
        promote_from: 1,
        ghost_percent: 90,
        carries_uses: false,
        weighs: false,
    };

    /// Uses that make an item stay. One use is worth a factor of four in size: an item four times as large takes
    /// the place of four, which together are used more often than it.
    fn uses_wanted(&self, item: &Standing) -> u8 {
        let (least, (twice, thrice)) = match item.queue {
            Queue::Small => (self.promote_from, (1, 4)),
            Queue::Main => (1, (4, 16)),
        };
        least
            + u8::from(self.weighs && item.is_over(twice))
            + u8::from(self.weighs && item.is_over(thrice))
    }
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

    fn judge(&self, item: &Standing) -> Verdict {
        let stays = item.frequency >= self.uses_wanted(item);
        let less_one = item.frequency.saturating_sub(1);
        match item.queue {
            Queue::Small if stays => Verdict::Promote {
                frequency: if self.carries_uses { less_one } else { 0 },
            },
            Queue::Small => Verdict::Evict { remember: true },
            Queue::Main if stays => Verdict::Promote {
                frequency: less_one,
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

    fn judge(&self, item: &Standing) -> Verdict {
        if item.frequency == 0 {
            Verdict::Evict { remember: false }
        } else {
            (self.used)(item.frequency)
        }
    }
}
