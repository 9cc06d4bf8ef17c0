//! LHD: evicts from a random sample the object with the least expected hits per unit of space and time.
//!
//! Ages are counted in steps of requests; for each class of object, by the ages of its last two hits, hits and
//! evictions are counted by age, which give the hit density of an age: the expected remaining hits, divided by the
//! expected remaining time (Beckmann, Chen and Cidon, NSDI 2018). Counts fade by a tenth at each new estimate.

use super::{Policy, Removable, Weights, fitting_objects};
use crate::random::Random;

/// Classes by the sum of the ages at the last two hits, each up to twice the one before.
const CLASS_COUNT: usize = 16;
/// Number of distinct ages, in steps.
const AGE_COUNT: usize = 4096;
/// Number of objects sampled for one eviction.
const SAMPLE_SIZE: u32 = 32;
/// One of this many new objects is kept for a while regardless of its density, so that long ages are sampled.
const EXPLORER_INTERVAL: u32 = 32;
/// Factor by which counts decay at each new estimate.
const COUNT_DECAY: f32 = 0.9;

/// Stands for the index of an object that is not resident.
const ABSENT: u32 = u32::MAX;

/// An object in the cache.
#[derive(Clone, Copy)]
struct Resident {
    id: u32,
    /// The request that last used it.
    used_at: u32,
    /// Age, in steps, at the last hit.
    last_hit_age: u16,
    is_explorer: bool,
    class_index: u8,
}

struct Class {
    hits: Vec<f32>,
    evictions: Vec<f32>,
    densities: Vec<f32>,
}

/// An LHD cache.
pub(crate) struct Lhd<W> {
    /// The index of each object in `residents`.
    indices: Vec<u32>,
    residents: Vec<Resident>,
    classes: Vec<Class>,
    /// A step is 2 to the power of this many requests.
    step_bits: u32,
    next_estimate_at: u32,
    estimate_interval: u32,
    random: Random,
    used_weight: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Lhd<W> {
    pub(crate) fn new(
        object_count: usize,
        request_count: usize,
        weights: W,
        capacity: u64,
        seed: u64,
    ) -> Self {
        let objects_that_fit = fitting_objects(weights, object_count, capacity);
        // Ages up to 16 times as many requests as objects fit are distinguished, and there is an estimate after as
        // many. Of 4 to 256 times, 16 gave the fewest misses on four real traces; estimates from fewer than 65,536
        // requests were worse than the densities it starts with.
        let step_bits = (objects_that_fit * 16.0 / AGE_COUNT as f64).max(1.0).log2().ceil() as u32;
        let estimate_interval =
            (objects_that_fit as u32).saturating_mul(16).clamp(1 << 16, 1 << 20);
        let new_class = |class_index: usize| Class {
            hits: vec![0.0; AGE_COUNT],
            evictions: vec![0.0; AGE_COUNT],
            densities: (0..AGE_COUNT)
                .map(|age| (class_index + 1) as f32 / (age + 1) as f32)
                .collect(),
        };
        Self {
            indices: vec![ABSENT; object_count],
            residents: Vec::new(),
            classes: (0..CLASS_COUNT).map(new_class).collect(),
            step_bits,
            next_estimate_at: estimate_interval.min(request_count as u32),
            estimate_interval,
            random: Random::new(seed),
            used_weight: 0,
            capacity,
            weights,
        }
    }

    #[inline]
    fn age(&self, resident: &Resident, position: u32) -> usize {
        (((position - resident.used_at) >> self.step_bits) as usize).min(AGE_COUNT - 1)
    }

    /// Expected hits per unit of space and time.
    #[inline]
    fn density(&self, resident: &Resident, position: u32) -> f32 {
        let age = self.age(resident, position);
        if age == AGE_COUNT - 1 {
            return -1.0;
        }
        let density = self.classes[resident.class_index as usize].densities[age];
        let bonus = if resident.is_explorer { 1.0 } else { 0.0 };
        (density + bonus) / self.weights.of(resident.id) as f32
    }

    fn record_hit(&mut self, position: u32, index: usize) {
        let resident = self.residents[index];
        let age = self.age(&resident, position);
        self.classes[resident.class_index as usize].hits[age] += 1.0;
        let class_index = class_index_of(age + usize::from(resident.last_hit_age));
        self.residents[index] = Resident {
            used_at: position,
            last_hit_age: age as u16,
            is_explorer: false,
            class_index,
            ..resident
        };
    }

    fn evict(&mut self, position: u32) {
        let count = self.residents.len() as u32;
        let mut victim_index = 0;
        let mut lowest_density = f32::INFINITY;
        for _ in 0..SAMPLE_SIZE {
            let index = self.random.below(count) as usize;
            let density = self.density(&self.residents[index], position);
            if density < lowest_density {
                (victim_index, lowest_density) = (index, density);
            }
        }
        let evicted = self.remove_at(victim_index);
        let age = self.age(&evicted, position);
        self.classes[evicted.class_index as usize].evictions[age] += 1.0;
        self.used_weight -= self.weights.of(evicted.id);
    }

    /// Removes the resident at an index; the last one takes the index.
    #[inline]
    fn remove_at(&mut self, index: usize) -> Resident {
        let resident = self.residents.swap_remove(index);
        self.indices[resident.id as usize] = ABSENT;
        if let Some(moved) = self.residents.get(index) {
            self.indices[moved.id as usize] = index as u32;
        }
        resident
    }

    /// Computes new densities from the counts, which then decay.
    #[cold]
    fn update_densities(&mut self, position: u32) {
        self.next_estimate_at = position.saturating_add(self.estimate_interval);
        for class in &mut self.classes {
            let (mut hits, mut events, mut time) = (0.0, 0.0, 0.0);
            for age in (0..AGE_COUNT).rev() {
                hits += class.hits[age];
                events += class.hits[age] + class.evictions[age];
                time += events;
                class.densities[age] = if events > 1e-5 { hits / time } else { 0.0 };
                class.hits[age] *= COUNT_DECAY;
                class.evictions[age] *= COUNT_DECAY;
            }
        }
    }

    fn store(&mut self, position: u32, id: u32) {
        let is_explorer = self.random.below(EXPLORER_INTERVAL) == 0;
        self.indices[id as usize] = self.residents.len() as u32;
        self.residents.push(Resident {
            id,
            used_at: position,
            last_hit_age: AGE_COUNT as u16 - 1,
            is_explorer,
            class_index: class_index_of(AGE_COUNT - 1),
        });
    }
}

/// The index of the class for a sum of ages: 0 for the longest, up to the last for the shortest.
fn class_index_of(age_sum: usize) -> u8 {
    let bits = usize::BITS - age_sum.leading_zeros();
    let longest_bits = usize::BITS - (AGE_COUNT - 1).leading_zeros();
    longest_bits.saturating_sub(bits).min(CLASS_COUNT as u32 - 1) as u8
}

impl<W: Weights> Policy for Lhd<W> {
    #[inline]
    fn request(&mut self, position: u32, id: u32) -> bool {
        if position >= self.next_estimate_at {
            self.update_densities(position);
        }
        let index = self.indices[id as usize];
        if index != ABSENT {
            self.record_hit(position, index as usize);
            return true;
        }
        let weight = self.weights.of(id);
        while self.used_weight + weight > self.capacity {
            self.evict(position);
        }
        self.used_weight += weight;
        self.store(position, id);
        false
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ self.indices[id as usize])
    }
}

impl<W: Weights> Removable for Lhd<W> {
    fn remove(&mut self, id: u32) {
        let index = self.indices[id as usize];
        if index != ABSENT {
            self.remove_at(index as usize);
            self.used_weight -= self.weights.of(id);
        }
    }
}
