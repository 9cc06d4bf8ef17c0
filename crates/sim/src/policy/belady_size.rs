//! `BeladySize`: of a sample of the cache, evicts the object with the largest size times distance to its next use.
//!
//! No cheap exact optimum is known for objects of different sizes; this greedy form is the usual approximation.

use super::links::{NEVER, RequestLinks};
use super::{Policy, Removable, Weights};
use crate::random::Random;

/// Number of objects sampled for one eviction.
const SAMPLE_SIZE: u32 = 128;

/// Index of an object that is not resident.
const ABSENT: u32 = u32::MAX;

/// An object in the cache that is used again.
#[derive(Clone, Copy)]
struct Resident {
    id: u32,
    /// The position of its next request.
    next_use: u32,
}

/// A `BeladySize` cache.
pub(crate) struct BeladySize<'a, W> {
    links: &'a RequestLinks,
    /// The index of each object in `residents`.
    indices: Vec<u32>,
    residents: Vec<Resident>,
    /// Residents that are never used again; they are evicted first.
    never_used_again: Vec<u32>,
    random: Random,
    used_weight: u64,
    capacity: u64,
    weights: W,
}

impl<'a, W: Weights> BeladySize<'a, W> {
    pub(crate) fn new(
        object_count: usize,
        links: &'a RequestLinks,
        weights: W,
        capacity: u64,
        seed: u64,
    ) -> Self {
        Self {
            links,
            indices: vec![ABSENT; object_count],
            residents: Vec::new(),
            never_used_again: Vec::new(),
            random: Random::new(seed),
            used_weight: 0,
            capacity,
            weights,
        }
    }

    fn evict(&mut self, position: u32) {
        let indices = &self.indices;
        let is_still_resident = |&id: &u32| indices[id as usize] == NEVER_USED_AGAIN;
        let never_used_victim =
            std::iter::from_fn(|| self.never_used_again.pop()).find(is_still_resident);
        let victim = never_used_victim.unwrap_or_else(|| self.choose_victim(position));
        self.used_weight -= self.weights.of(victim);
        self.drop_resident(victim);
    }

    fn choose_victim(&mut self, position: u32) -> u32 {
        let count = self.residents.len() as u32;
        let cost_of = |resident: &Resident| {
            u64::from(resident.next_use - position) * self.weights.of(resident.id)
        };
        if count <= SAMPLE_SIZE {
            let costliest = self.residents.iter().max_by_key(|resident| cost_of(resident));
            return costliest.map_or(0, |resident| resident.id);
        }
        let mut highest_cost_and_id = (0, 0);
        for _ in 0..SAMPLE_SIZE {
            let resident = &self.residents[self.random.below(count) as usize];
            highest_cost_and_id = highest_cost_and_id.max((cost_of(resident), resident.id));
        }
        let (_, victim) = highest_cost_and_id;
        victim
    }

    fn drop_resident(&mut self, id: u32) {
        let index = std::mem::replace(&mut self.indices[id as usize], ABSENT) as usize;
        if index < self.residents.len() {
            self.residents.swap_remove(index);
            if let Some(moved) = self.residents.get(index) {
                self.indices[moved.id as usize] = index as u32;
            }
        }
    }
}

/// Index of a resident that is never used again.
const NEVER_USED_AGAIN: u32 = u32::MAX - 1;

impl<W: Weights> Policy for BeladySize<'_, W> {
    #[inline]
    fn request(&mut self, position: u32, id: u32) -> bool {
        let next_use = self.links.next[position as usize];
        let index = self.indices[id as usize];
        let is_hit = index != ABSENT;
        if is_hit {
            if next_use == NEVER {
                self.drop_resident(id);
            } else {
                self.residents[index as usize].next_use = next_use;
                return true;
            }
        } else {
            let weight = self.weights.of(id);
            while self.used_weight + weight > self.capacity {
                self.evict(position);
            }
            self.used_weight += weight;
        }
        if next_use == NEVER {
            self.indices[id as usize] = NEVER_USED_AGAIN;
            self.never_used_again.push(id);
        } else {
            self.indices[id as usize] = self.residents.len() as u32;
            self.residents.push(Resident { id, next_use });
        }
        is_hit
    }
}

impl<W: Weights> Removable for BeladySize<'_, W> {
    fn remove(&mut self, id: u32) {
        if self.indices[id as usize] != ABSENT {
            self.drop_resident(id);
            self.used_weight -= self.weights.of(id);
        }
    }
}
