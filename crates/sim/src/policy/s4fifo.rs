//! S4-FIFO: S3-FIFO with its constants as settings, and uses that do not count right after the insertion (Xia et al., OSDI 2026).
//!
//! With the default settings it is S3-FIFO, request by request.

use super::ghost::Ghost;
use super::queue::{Locations, Queue, queue_of};
use super::{LookUp, Policy, Removable, S4FifoSettings, Weights, capacity_share};

/// The main queue is a Clock with counts up to 3.
const MAIN_USES_MAX: u8 = 3;

/// Numbers of the queues in an object's location.
const SMALL_QUEUE: u32 = 1;
const MAIN_QUEUE: u32 = 2;

/// An S4-FIFO cache.
pub(crate) struct S4Fifo<W> {
    settings: S4FifoSettings,
    locations: Locations,
    uses: Vec<u8>,
    /// Ghost hits of each object that did not move it to the main queue.
    ghost_hits: Vec<u8>,
    /// For each object, the weight that had entered the small queue when it did; empty if all uses count.
    entry_weights: Vec<u64>,
    /// The weight that has entered the small queue so far.
    entered_weight: u64,
    /// Weight that enters the small queue after an object before its uses count.
    skipped_weight: u64,
    small_queue: Queue,
    main_queue: Queue,
    small_capacity: u64,
    capacity: u64,
    ghost: Ghost,
    has_evicted: bool,
    weights: W,
}

impl<W: Weights> S4Fifo<W> {
    pub(crate) fn new(
        object_count: usize,
        weights: W,
        capacity: u64,
        settings: S4FifoSettings,
    ) -> Self {
        let small_capacity = capacity_share(capacity, settings.small_share());
        let skipped_weight = (small_capacity as f64 * settings.skip_share()) as u64;
        let ghost_capacity = (capacity as f64 * settings.ghost_share()) as u64;
        Self {
            settings,
            locations: vec![0; object_count],
            uses: vec![0; object_count],
            ghost_hits: vec![0; object_count],
            entry_weights: vec![0; if skipped_weight > 0 { object_count } else { 0 }],
            entered_weight: 0,
            skipped_weight,
            small_queue: Queue::new(SMALL_QUEUE),
            main_queue: Queue::new(MAIN_QUEUE),
            small_capacity,
            capacity,
            ghost: Ghost::new(object_count, ghost_capacity),
            has_evicted: false,
            weights,
        }
    }

    fn evict(&mut self) {
        self.has_evicted = true;
        let main_capacity = self.capacity - self.small_capacity;
        if self.main_queue.weight() > main_capacity || self.small_queue.count() == 0 {
            self.evict_from_main();
        } else {
            self.evict_from_small();
        }
    }

    /// Moves used objects to the main queue until one is evicted.
    fn evict_from_small(&mut self) {
        let weights = self.weights;
        while let Some(id) = self.small_queue.pop(&mut self.locations, |id| weights.of(id)) {
            if self.uses[id as usize] < self.settings.uses_to_promote() {
                self.ghost.remember(id, weights);
                return;
            }
            self.uses[id as usize] = 0;
            self.ghost_hits[id as usize] = 0;
            self.main_queue.push(&mut self.locations, id, weights.of(id));
        }
    }

    fn evict_from_main(&mut self) {
        let weights = self.weights;
        while let Some(id) = self.main_queue.pop(&mut self.locations, |id| weights.of(id)) {
            let uses = &mut self.uses[id as usize];
            if *uses == 0 {
                return;
            }
            *uses = (*uses).min(MAIN_USES_MAX) - 1;
            self.main_queue.push(&mut self.locations, id, weights.of(id));
        }
    }

    /// Whether the ghost hits of an object that returns move it to the main queue; counts this one.
    fn is_promoted_by_ghost(&mut self, id: u32, weight: u64) -> bool {
        let ghost_hits = &mut self.ghost_hits[id as usize];
        if !self.ghost.remove_if_present(id, weight) {
            *ghost_hits = 0;
            return false;
        }
        *ghost_hits = ghost_hits.saturating_add(1);
        let is_promoted = *ghost_hits > self.settings.ghost_hits_ignored();
        if is_promoted {
            *ghost_hits = 0;
        }
        is_promoted
    }

    fn store(&mut self, id: u32, weight: u64) {
        let is_promoted = self.is_promoted_by_ghost(id, weight);
        while self.small_queue.weight() + self.main_queue.weight() + weight > self.capacity {
            self.evict();
        }
        self.uses[id as usize] = 0;
        // Before the first eviction a full small queue has no information about its objects, so new ones go to the
        // main queue.
        let is_filling = !self.has_evicted && self.small_queue.weight() >= self.small_capacity;
        if is_promoted || is_filling {
            self.main_queue.push(&mut self.locations, id, weight);
            return;
        }
        self.small_queue.push(&mut self.locations, id, weight);
        self.entered_weight += weight;
        if let Some(entry_weight) = self.entry_weights.get_mut(id as usize) {
            *entry_weight = self.entered_weight;
        }
    }

    /// Whether an object in the small queue is among the youngest, whose uses do not count.
    fn is_skipped(&self, id: u32) -> bool {
        self.entry_weights
            .get(id as usize)
            .is_some_and(|entry_weight| self.entered_weight - entry_weight < self.skipped_weight)
    }
}

impl<W: Weights> Policy for S4Fifo<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        match queue_of(self.locations[id as usize]) {
            SMALL_QUEUE if self.is_skipped(id) => true,
            SMALL_QUEUE | MAIN_QUEUE => {
                let uses = &mut self.uses[id as usize];
                *uses = uses.saturating_add(1);
                true
            }
            _ => {
                self.store(id, self.weights.of(id));
                false
            }
        }
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ self.locations[id as usize])
    }
}

impl<W: Weights> Removable for S4Fifo<W> {
    fn remove(&mut self, id: u32) {
        let (locations, weight) = (&mut self.locations, self.weights.of(id));
        let _ = self.small_queue.remove(locations, id, weight)
            || self.main_queue.remove(locations, id, weight);
    }
}

impl<W: Weights> LookUp for S4Fifo<W> {
    fn contains(&self, id: u32) -> bool {
        self.locations[id as usize] != 0
    }
}
