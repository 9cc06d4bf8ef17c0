//! `BeladySize`: of a sample of the cache, evicts the object with the largest size times distance to its next use.
//!
//! No exact optimum is known to be cheap when sizes differ; this greedy form is the usual stand-in.

use super::links::{Links, NEVER};
use super::{Policy, Weights};
use crate::random::Random;

/// Objects looked at for one eviction.
const SAMPLE: u32 = 128;

/// No place among the residents.
const ABSENT: u32 = u32::MAX;

/// A `BeladySize` cache.
pub(crate) struct BeladySize<'a, W> {
    links: &'a Links,
    /// The place of each object among the residents.
    places: Vec<u32>,
    /// Each resident with its next use.
    residents: Vec<(u32, u32)>,
    /// Residents never used again: they go first.
    done: Vec<u32>,
    random: Random,
    used: u64,
    capacity: u64,
    weights: W,
}

impl<'a, W: Weights> BeladySize<'a, W> {
    pub(crate) fn new(
        distinct: usize,
        links: &'a Links,
        weights: W,
        capacity: u64,
        seed: u64,
    ) -> Self {
        Self {
            links,
            places: vec![ABSENT; distinct],
            residents: Vec::new(),
            done: Vec::new(),
            random: Random::new(seed),
            used: 0,
            capacity,
            weights,
        }
    }

    fn evict(&mut self, at: u32) {
        let victim = self.done.pop().unwrap_or_else(|| self.choose(at));
        self.used -= self.weights.of(victim);
        self.drop_resident(victim);
    }

    fn choose(&mut self, at: u32) -> u32 {
        let count = self.residents.len() as u32;
        let cost = |&(id, next): &(u32, u32)| u64::from(next - at) * self.weights.of(id);
        if count <= SAMPLE {
            let worst = self.residents.iter().max_by_key(|resident| cost(resident));
            return worst.map_or(0, |&(id, _)| id);
        }
        let mut worst = (0, 0);
        for _ in 0..SAMPLE {
            let resident = &self.residents[self.random.below(count) as usize];
            worst = worst.max((cost(resident), resident.0));
        }
        worst.1
    }

    fn drop_resident(&mut self, id: u32) {
        let place = std::mem::replace(&mut self.places[id as usize], ABSENT) as usize;
        if place < self.residents.len() {
            self.residents.swap_remove(place);
            if let Some(&(moved, _)) = self.residents.get(place) {
                self.places[moved as usize] = place as u32;
            }
        }
    }
}

/// The place of a resident that is never used again.
const DONE: u32 = u32::MAX - 1;

impl<W: Weights> Policy for BeladySize<'_, W> {
    #[inline]
    fn request(&mut self, at: u32, id: u32) -> bool {
        let next = self.links.next[at as usize];
        let place = self.places[id as usize];
        let is_hit = place != ABSENT;
        if is_hit {
            if next == NEVER {
                self.drop_resident(id);
            } else {
                self.residents[place as usize].1 = next;
                return true;
            }
        } else {
            let weight = self.weights.of(id);
            while self.used + weight > self.capacity {
                self.evict(at);
            }
            self.used += weight;
        }
        if next == NEVER {
            self.places[id as usize] = DONE;
            self.done.push(id);
        } else {
            self.places[id as usize] = self.residents.len() as u32;
            self.residents.push((id, next));
        }
        is_hit
    }
}
