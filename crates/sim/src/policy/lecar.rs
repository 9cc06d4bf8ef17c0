//! `LeCaR`: at each eviction LRU or LFU decides, by probabilities that change when a missed object is in the ghost of one of them.
//!
//! Learning rate 0.45; the regret of a miss fades with the time since the eviction, to 0.005 after as many requests
//! as the cache holds objects (Vietri et al., `HotStorage` 2018). Each ghost holds half of the capacity.

use super::frequency::Frequencies;
use super::ghost::Ghost;
use super::queue::{Locations, Queue};
use super::{Policy, Removable, Weights, capacity_share, fitting_objects};
use crate::random::Random;

const LEARNING_RATE: f64 = 0.45;

/// A `LeCaR` cache.
pub(crate) struct LeCar<W> {
    locations: Locations,
    recency_queue: Queue,
    frequencies: Frequencies,
    /// The ghosts of what LRU and of what LFU evicted.
    ghosts: [Ghost; 2],
    /// Time of eviction and number of uses of each evicted object.
    last_evictions: Vec<(u32, u32)>,
    /// Probability that LRU decides; LFU has the rest.
    lru_share: f64,
    log_discount: f64,
    random: Random,
    used_weight: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> LeCar<W> {
    pub(crate) fn new(
        object_count: usize,
        request_count: usize,
        weights: W,
        capacity: u64,
        seed: u64,
    ) -> Self {
        let ghost = || Ghost::new(object_count, capacity_share(capacity, 0.5));
        let objects_that_fit = fitting_objects(weights, object_count, capacity);
        Self {
            locations: vec![0; object_count],
            recency_queue: Queue::new(1),
            frequencies: Frequencies::new(object_count, request_count),
            ghosts: [ghost(), ghost()],
            last_evictions: vec![(0, 0); object_count],
            lru_share: 0.5,
            log_discount: 0.005_f64.ln() / objects_that_fit,
            random: Random::new(seed),
            used_weight: 0,
            capacity,
            weights,
        }
    }

    /// Adjusts the probabilities if one of the two evicted the object recently; returns the object's uses at that time.
    fn learn(&mut self, position: u32, id: u32, weight: u64) -> u32 {
        let Some(ghost_index) =
            self.ghosts.iter_mut().position(|ghost| ghost.remove_if_present(id, weight))
        else {
            return 0;
        };
        let (evicted_at, uses) = self.last_evictions[id as usize];
        let regret = (f64::from(position - evicted_at) * self.log_discount).exp();
        let penalty = (-LEARNING_RATE * regret).exp();
        let (mut lru_odds, mut lfu_odds) = (self.lru_share, 1.0 - self.lru_share);
        if ghost_index == 0 {
            lru_odds *= penalty;
        } else {
            lfu_odds *= penalty;
        }
        self.lru_share = (lru_odds / (lru_odds + lfu_odds)).clamp(0.01, 0.99);
        uses
    }

    fn evict(&mut self, position: u32) {
        let weights = self.weights;
        let lru_decides = self.random.next_fraction() < self.lru_share;
        let lru_victim = self.recency_queue.peek(&self.locations);
        let lfu_victim = self.frequencies.next_victim();
        let Some(victim) = (if lru_decides { lru_victim } else { lfu_victim }) else {
            return;
        };
        self.last_evictions[victim as usize] = (position, self.frequencies.uses(victim));
        self.frequencies.remove(victim);
        self.recency_queue.subtract_member(weights.of(victim));
        self.locations[victim as usize] = 0;
        self.used_weight -= weights.of(victim);
        // If both agree, neither is penalised.
        if lru_victim != lfu_victim {
            self.ghosts[usize::from(!lru_decides)].remember(victim, weights);
        }
    }
}

impl<W: Weights> Policy for LeCar<W> {
    #[inline]
    fn request(&mut self, position: u32, id: u32) -> bool {
        if self.locations[id as usize] != 0 {
            self.recency_queue.move_to_end(&mut self.locations, id);
            self.frequencies.record_use(id);
            return true;
        }
        let weight = self.weights.of(id);
        let uses = self.learn(position, id, weight);
        while self.used_weight + weight > self.capacity {
            self.evict(position);
        }
        self.used_weight += weight;
        self.recency_queue.push(&mut self.locations, id, weight);
        self.frequencies.insert(id, uses + 1);
        false
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ self.locations[id as usize])
    }
}

impl<W: Weights> Removable for LeCar<W> {
    fn remove(&mut self, id: u32) {
        if self.locations[id as usize] != 0 {
            let weight = self.weights.of(id);
            self.recency_queue.subtract_member(weight);
            self.locations[id as usize] = 0;
            self.frequencies.remove(id);
            self.used_weight -= weight;
        }
    }
}
