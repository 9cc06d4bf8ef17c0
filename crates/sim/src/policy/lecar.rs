//! `LeCaR`: at each eviction LRU or LFU decides, by weights that a miss in the loser's ghost moves.
//!
//! Learning rate 0.45; the regret of a miss fades with the time since the eviction, to 0.005 after as many requests
//! as the cache holds objects (Vietri et al., `HotStorage` 2018). Each ghost holds half of the capacity.

use super::frequency::Frequencies;
use super::ghost::Ghost;
use super::queue::{Locations, Queue};
use super::{Policy, Removable, Weights, fitting_objects, share};
use crate::random::Random;

const LEARNING_RATE: f64 = 0.45;

/// A `LeCaR` cache.
pub(crate) struct LeCar<W> {
    locations: Locations,
    recent: Queue,
    objects: Frequencies,
    ghosts: [Ghost; 2],
    /// Time of eviction and number of uses of each evicted object.
    evicted: Vec<(u32, u32)>,
    /// Probability that LRU decides; LFU has the rest.
    lru_share: f64,
    log_discount: f64,
    random: Random,
    used: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> LeCar<W> {
    pub(crate) fn new(
        distinct: usize,
        requests: usize,
        weights: W,
        capacity: u64,
        seed: u64,
    ) -> Self {
        let ghost = || Ghost::new(distinct, share(capacity, 0.5));
        let fitting = fitting_objects(weights, distinct, capacity);
        Self {
            locations: vec![0; distinct],
            recent: Queue::new(1),
            objects: Frequencies::new(distinct, requests),
            ghosts: [ghost(), ghost()],
            evicted: vec![(0, 0); distinct],
            lru_share: 0.5,
            log_discount: 0.005_f64.ln() / fitting,
            random: Random::new(seed),
            used: 0,
            capacity,
            weights,
        }
    }

    /// Adjusts the weights if one of the two evicted the object recently; returns its uses at that time.
    fn learn(&mut self, at: u32, id: u32, weight: u64) -> u32 {
        let Some(loser) = self
            .ghosts
            .iter_mut()
            .position(|ghost| ghost.recall(id, weight))
        else {
            return 0;
        };
        let (when, uses) = self.evicted[id as usize];
        let regret = (f64::from(at - when) * self.log_discount).exp();
        let factor = (-LEARNING_RATE * regret).exp();
        let (mut lru, mut lfu) = (self.lru_share, 1.0 - self.lru_share);
        if loser == 0 {
            lru *= factor;
        } else {
            lfu *= factor;
        }
        self.lru_share = (lru / (lru + lfu)).clamp(0.01, 0.99);
        uses
    }

    fn evict(&mut self, at: u32) {
        let weights = self.weights;
        let is_lru = self.random.unit() < self.lru_share;
        let by_recency = self.recent.peek(&self.locations);
        let by_use = self.objects.first();
        let Some(victim) = (if is_lru { by_recency } else { by_use }) else {
            return;
        };
        self.evicted[victim as usize] = (at, self.objects.uses(victim));
        self.objects.remove(victim);
        self.recent.detach(weights.of(victim));
        self.locations[victim as usize] = 0;
        self.used -= weights.of(victim);
        // If both agree, neither is penalised.
        if by_recency != by_use {
            self.ghosts[usize::from(!is_lru)].remember(victim, weights);
        }
    }
}

impl<W: Weights> Policy for LeCar<W> {
    #[inline]
    fn request(&mut self, at: u32, id: u32) -> bool {
        if self.locations[id as usize] != 0 {
            self.recent.move_to_end(&mut self.locations, id);
            self.objects.note_use(id);
            return true;
        }
        let weight = self.weights.of(id);
        let uses = self.learn(at, id, weight);
        while self.used + weight > self.capacity {
            self.evict(at);
        }
        self.used += weight;
        self.recent.push(&mut self.locations, id, weight);
        self.objects.insert(id, uses + 1);
        false
    }

    fn prefetch(&self, ids: &[u32]) -> u32 {
        ids.iter()
            .fold(0, |sum, &id| sum ^ self.locations[id as usize])
    }
}

impl<W: Weights> Removable for LeCar<W> {
    fn remove(&mut self, id: u32) {
        if self.locations[id as usize] != 0 {
            let weight = self.weights.of(id);
            self.recent.detach(weight);
            self.locations[id as usize] = 0;
            self.objects.remove(id);
            self.used -= weight;
        }
    }
}
