//! The server's policy over items instead of segments: its decisions, one item at a time, with settings that can be changed.
//!
//! What a segment wastes, headers and index are not counted: the capacity is objects, or bytes of values. Large objects need
//! more uses, as in the store.

use glasscache_store::tuning::PolicySettings;

use super::ghost::Ghost;
use super::queue::{Locations, Queue, queue_of};
use super::{LookUp, Policy, Removable, Weights};

/// Uses are counted up to 3.
const USES_MAX: u8 = 3;

/// Numbers of the queues in an object's location.
const SMALL_QUEUE: u32 = 1;
const MAIN_QUEUE: u32 = 2;

/// A cache with the server's policy.
#[derive(Debug, Clone)]
pub(crate) struct OwnItems<W> {
    settings: PolicySettings,
    locations: Locations,
    uses: Vec<u8>,
    /// For each object, the weight that had entered the small queue when it did.
    entry_weights: Vec<u64>,
    /// The weight that has entered the small queue so far.
    entered_weight: u64,
    /// Weight that enters the small queue after an object before its uses count.
    young_weight: u64,
    small_queue: Queue,
    main_queue: Queue,
    capacity: u64,
    ghost: Ghost,
    /// Mean weight of recent new objects.
    mean_weight: f64,
    weights: W,
}

/// New objects over which the mean weight is taken, about.
const MEAN_OBJECTS: f64 = 1000.0;

impl<W: Weights> OwnItems<W> {
    pub(crate) fn new(
        object_count: usize,
        weights: W,
        capacity: u64,
        settings: PolicySettings,
    ) -> Self {
        let mut cache = Self {
            settings,
            locations: vec![0; object_count],
            uses: vec![0; object_count],
            entry_weights: vec![0; object_count],
            entered_weight: 0,
            young_weight: 0,
            small_queue: Queue::new(SMALL_QUEUE),
            main_queue: Queue::new(MAIN_QUEUE),
            capacity,
            ghost: Ghost::new(object_count, 0),
            mean_weight: 0.0,
            weights,
        };
        cache.change_settings(settings);
        cache
    }

    /// A cache with the settings of the server.
    #[cfg(feature = "own-policy")]
    pub(crate) fn with_defaults(object_count: usize, weights: W, capacity: u64) -> Self {
        Self::new(object_count, weights, capacity, PolicySettings::DEFAULT)
    }

    /// Changes the settings; what no longer fits a queue leaves with the next insertions.
    pub(crate) fn change_settings(&mut self, settings: PolicySettings) {
        self.settings = settings;
        self.young_weight = settings.young_bytes(self.capacity);
        let ghost_capacity = self.capacity * u64::from(settings.ghost_percent) / 100;
        self.ghost.set_capacity(ghost_capacity, self.weights);
    }

    /// Weight of what it holds.
    pub(crate) fn weight(&self) -> u64 {
        self.small_queue.weight() + self.main_queue.weight()
    }

    /// Number of objects that it holds.
    pub(crate) fn count(&self) -> u32 {
        self.small_queue.count() + self.main_queue.count()
    }

    fn evict(&mut self) {
        let (small, main) = (self.small_queue.weight(), self.main_queue.weight());
        let takes_from_small = self.settings.takes_from_small(small, main);
        if (takes_from_small || main == 0) && small > 0 {
            self.examine_small();
        } else {
            self.examine_main();
        }
    }

    /// Moves the oldest object of the small queue to the main queue if it was used, else to the ghost.
    fn examine_small(&mut self) {
        let weights = self.weights;
        let Some(id) = self.small_queue.pop(&mut self.locations, |id| weights.of(id)) else {
            return;
        };
        let uses_required =
            self.settings.uses_to_promote(weights.of(id), self.mean_weight.round() as u64);
        let uses = &mut self.uses[id as usize];
        if *uses < uses_required {
            self.ghost.remember(id, weights);
            return;
        }
        *uses = uses.saturating_sub(1);
        self.main_queue.push(&mut self.locations, id, weights.of(id));
    }

    /// Gives the oldest object of the main queue another round if it was used, else evicts it.
    fn examine_main(&mut self) {
        let weights = self.weights;
        let Some(id) = self.main_queue.pop(&mut self.locations, |id| weights.of(id)) else {
            return;
        };
        let uses_required =
            PolicySettings::uses_to_stay(weights.of(id), self.mean_weight.round() as u64);
        let uses = &mut self.uses[id as usize];
        if *uses >= uses_required {
            *uses -= 1;
            self.main_queue.push(&mut self.locations, id, weights.of(id));
        }
    }

    /// Stores an object; one that is larger than the cache, as it may be in miniature, is not.
    fn store(&mut self, id: u32, weight: u64) {
        if weight > self.capacity {
            return;
        }
        let is_remembered = self.ghost.remove_if_present(id, weight);
        while self.weight() + weight > self.capacity {
            self.evict();
        }
        self.uses[id as usize] = 0;
        let first_weight = if self.mean_weight == 0.0 { weight as f64 } else { self.mean_weight };
        self.mean_weight = first_weight + (weight as f64 - first_weight) / MEAN_OBJECTS;
        if is_remembered && self.settings.ghost_promotes {
            self.main_queue.push(&mut self.locations, id, weight);
        } else {
            self.small_queue.push(&mut self.locations, id, weight);
            self.entered_weight += weight;
            self.entry_weights[id as usize] = self.entered_weight;
        }
    }
}

impl<W: Weights> Policy for OwnItems<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        let queue = queue_of(self.locations[id as usize]);
        if queue == 0 {
            self.store(id, self.weights.of(id));
            return false;
        }
        let is_young = queue == SMALL_QUEUE
            && self.entered_weight - self.entry_weights[id as usize] < self.young_weight;
        if !is_young {
            let uses = &mut self.uses[id as usize];
            *uses = (*uses + 1).min(USES_MAX);
        }
        true
    }
}

impl<W: Weights> Removable for OwnItems<W> {
    fn remove(&mut self, id: u32) {
        let (locations, weight) = (&mut self.locations, self.weights.of(id));
        let _ = self.small_queue.remove(locations, id, weight)
            || self.main_queue.remove(locations, id, weight);
    }
}

impl<W: Weights> LookUp for OwnItems<W> {
    fn contains(&self, id: u32) -> bool {
        self.locations[id as usize] != 0
    }
}
