//! Policies over segments: the one that is used, and the others that it was compared with.
//!
//! A policy never sees an item, only its queue, how often it was used recently (0 to 3) and its size, so each is a
//! few lines. The measurements are in docs/decisions/store.md, 0012.

use crate::segments::Queue;
use crate::tuning::{ChangeableSettings, PolicySettings};

/// What a policy knows about the whole store.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QueueSizes {
    /// Live bytes in sealed segments of the small queue.
    pub(crate) small_bytes: usize,
    /// Live bytes in sealed segments of the main queue.
    pub(crate) main_bytes: usize,
    /// Position of the last swept segment in its queue.
    pub(crate) last_swept_position: u64,
}

/// The choice of the next victim: the oldest segment of a queue with a position after `after_position`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VictimChoice {
    pub(crate) queue: Queue,
    /// Only segments with a larger position; 0 for all. When there is none, the oldest of all.
    pub(crate) after_position: u64,
}

/// What a policy knows about an item in a victim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EvictionCandidate {
    pub(crate) queue: Queue,
    /// How often it was used recently, 0 to 3.
    pub(crate) frequency: u8,
    /// Key and value bytes.
    pub(crate) bytes: usize,
    /// Mean key and value bytes of recent new items.
    pub(crate) mean_bytes: usize,
}

/// The decision about a live item in a victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It is evicted, and the ghost remembers it if `remember`.
    Evict {
        /// Whether its return should be recognised.
        remember: bool,
    },
    /// It is copied to the young end of the main queue.
    Promote {
        /// Its frequency there.
        frequency: u8,
    },
    /// It is copied and keeps its position in the queue.
    Stay {
        /// The frequency that it keeps.
        frequency: u8,
    },
}

/// An eviction policy over segments.
pub(crate) trait Policy: Send + Sync {
    /// The queue of a new item; `is_remembered` if the ghost knows it.
    fn queue_of_new_item(&self, is_remembered: bool) -> Queue;
    /// The queue of the next victim.
    fn choose_victim_queue(&self, queue_sizes: &QueueSizes) -> VictimChoice;
    /// The decision about an item.
    fn decide(&self, candidate: &EvictionCandidate) -> Decision;
    /// Number of tags that the ghost should keep per hundred resident items.
    fn ghost_percent(&self) -> usize {
        0
    }
    /// Bytes of new items that have to be written after one before its uses count, if `capacity_bytes` fit.
    fn young_bytes(&self, _capacity_bytes: u64) -> u64 {
        0
    }
    /// The settings that can be changed while it runs, if it has any.
    fn settings(&self) -> Option<&ChangeableSettings> {
        None
    }
}

/// The policies that a store can be made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PolicyKind {
    /// Like S3-FIFO, but an item keeps its frequency when it is promoted, and a large one needs more of them.
    #[default]
    S3FifoSizeAware,
    /// Like S3-FIFO, but an item keeps its frequency when it is promoted.
    S3FifoKeepFrequency,
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
    /// Like S3-FIFO with a quarter for new items, and promotion only for keys that the ghost knew (Johnson and
    /// Shasha, VLDB 1994).
    TwoQueue,
}

impl PolicyKind {
    /// Every policy, with its name in tables.
    pub const ALL: [(PolicyKind, &'static str); 8] = [
        (PolicyKind::S3FifoSizeAware, "weighed"),
        (PolicyKind::S3FifoKeepFrequency, "carried"),
        (PolicyKind::S3Fifo, "s3fifo"),
        (PolicyKind::Fifo, "fifo"),
        (PolicyKind::Clock, "clock"),
        (PolicyKind::Sieve, "sieve"),
        (PolicyKind::Lru, "lru"),
        (PolicyKind::TwoQueue, "2q"),
    ];

    pub(crate) fn new_policy(self) -> Box<dyn Policy> {
        match self {
            PolicyKind::S3FifoSizeAware => TwoQueuePolicy::OWN.changeable(),
            PolicyKind::S3FifoKeepFrequency => {
                TwoQueuePolicy { keeps_frequency: true, ..TwoQueuePolicy::S3_FIFO }.changeable()
            }
            PolicyKind::S3Fifo => TwoQueuePolicy::S3_FIFO.changeable(),
            PolicyKind::TwoQueue => {
                let settings = PolicySettings::TWO_QUEUE;
                TwoQueuePolicy { settings, ..TwoQueuePolicy::S3_FIFO }.changeable()
            }
            PolicyKind::Fifo => Box::new(SingleQueuePolicy {
                decide_used: |_| Decision::Evict { remember: false },
                continues_after_last_swept: false,
            }),
            PolicyKind::Clock => Box::new(SingleQueuePolicy {
                decide_used: |frequency| Decision::Promote { frequency: frequency - 1 },
                continues_after_last_swept: false,
            }),
            PolicyKind::Lru => Box::new(SingleQueuePolicy {
                decide_used: |_| Decision::Promote { frequency: 0 },
                continues_after_last_swept: false,
            }),
            PolicyKind::Sieve => Box::new(SingleQueuePolicy {
                decide_used: |_| Decision::Stay { frequency: 0 },
                continues_after_last_swept: true,
            }),
        }
    }
}

/// Two queues and a ghost: a new item starts in the small one, and stays if it is used there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TwoQueuePolicy {
    /// Its numbers.
    pub(crate) settings: PolicySettings,
    /// A promoted item starts in the main queue with its frequency less one, not with 0.
    pub(crate) keeps_frequency: bool,
    /// An item as large as many others needs more uses; three are enough for any.
    pub(crate) is_size_aware: bool,
}

impl TwoQueuePolicy {
    const S3_FIFO: Self = TwoQueuePolicy {
        settings: PolicySettings::S3_FIFO,
        keeps_frequency: false,
        is_size_aware: false,
    };

    /// The policy of the server.
    pub(crate) const OWN: Self = TwoQueuePolicy {
        settings: PolicySettings::DEFAULT,
        keeps_frequency: true,
        is_size_aware: true,
    };

    /// The same with settings that can be changed while it runs.
    fn changeable(self) -> Box<dyn Policy> {
        Box::new(ChangeablePolicy { start: self, settings: ChangeableSettings::new(self.settings) })
    }

    /// Uses that make an item stay.
    fn frequency_required(self, candidate: &EvictionCandidate) -> u8 {
        let mean_bytes = if self.is_size_aware { candidate.mean_bytes } else { usize::MAX };
        let (bytes, mean_bytes) = (candidate.bytes as u64, mean_bytes as u64);
        match candidate.queue {
            Queue::Small => self.settings.uses_to_promote(bytes, mean_bytes),
            Queue::Main => PolicySettings::uses_to_stay(bytes, mean_bytes),
        }
    }
}

impl Policy for TwoQueuePolicy {
    fn queue_of_new_item(&self, is_remembered: bool) -> Queue {
        if is_remembered && self.settings.ghost_promotes { Queue::Main } else { Queue::Small }
    }

    fn choose_victim_queue(&self, queue_sizes: &QueueSizes) -> VictimChoice {
        let takes_from_small = self
            .settings
            .takes_from_small(queue_sizes.small_bytes as u64, queue_sizes.main_bytes as u64);
        VictimChoice {
            queue: if takes_from_small { Queue::Small } else { Queue::Main },
            after_position: 0,
        }
    }

    fn decide(&self, candidate: &EvictionCandidate) -> Decision {
        let stays = candidate.frequency >= self.frequency_required(candidate);
        let decremented_frequency = candidate.frequency.saturating_sub(1);
        match candidate.queue {
            Queue::Small if stays => Decision::Promote {
                frequency: if self.keeps_frequency { decremented_frequency } else { 0 },
            },
            Queue::Small => Decision::Evict { remember: true },
            Queue::Main if stays => Decision::Promote { frequency: decremented_frequency },
            Queue::Main => Decision::Evict { remember: false },
        }
    }

    fn ghost_percent(&self) -> usize {
        usize::from(self.settings.ghost_percent)
    }

    fn young_bytes(&self, capacity_bytes: u64) -> u64 {
        self.settings.young_bytes(capacity_bytes)
    }
}

/// Two queues with settings that can be changed: each decision is by those of its moment.
struct ChangeablePolicy {
    /// The policy with the settings of the start.
    start: TwoQueuePolicy,
    settings: ChangeableSettings,
}

impl ChangeablePolicy {
    fn now(&self) -> TwoQueuePolicy {
        TwoQueuePolicy { settings: self.settings.get(), ..self.start }
    }
}

impl Policy for ChangeablePolicy {
    fn queue_of_new_item(&self, is_remembered: bool) -> Queue {
        self.now().queue_of_new_item(is_remembered)
    }

    fn choose_victim_queue(&self, queue_sizes: &QueueSizes) -> VictimChoice {
        self.now().choose_victim_queue(queue_sizes)
    }

    fn decide(&self, candidate: &EvictionCandidate) -> Decision {
        self.now().decide(candidate)
    }

    fn ghost_percent(&self) -> usize {
        self.now().ghost_percent()
    }

    fn young_bytes(&self, capacity_bytes: u64) -> u64 {
        self.now().young_bytes(capacity_bytes)
    }

    fn settings(&self) -> Option<&ChangeableSettings> {
        Some(&self.settings)
    }
}

/// One queue: unused items are evicted, used ones handled as `decide_used` decides.
struct SingleQueuePolicy {
    decide_used: fn(u8) -> Decision,
    continues_after_last_swept: bool,
}

impl Policy for SingleQueuePolicy {
    fn queue_of_new_item(&self, _is_remembered: bool) -> Queue {
        Queue::Main
    }

    fn choose_victim_queue(&self, queue_sizes: &QueueSizes) -> VictimChoice {
        VictimChoice {
            queue: Queue::Main,
            after_position: if self.continues_after_last_swept {
                queue_sizes.last_swept_position
            } else {
                0
            },
        }
    }

    fn decide(&self, candidate: &EvictionCandidate) -> Decision {
        if candidate.frequency == 0 {
            Decision::Evict { remember: false }
        } else {
            (self.decide_used)(candidate.frequency)
        }
    }
}
