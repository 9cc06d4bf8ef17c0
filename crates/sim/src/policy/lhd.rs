//! LHD: evicts from a random sample the object with the least expected hits per unit of space and time.
//!
//! Ages are counted in steps of requests; for each class of object, by the ages of its last two hits, hits and
//! evictions are counted by age, which give the hit density of an age: the expected remaining hits, divided by the
//! expected remaining time (Beckmann, Chen and Cidon, NSDI 2018). Counts fade by a tenth at each new estimate.

use super::{Policy, Removable, Weights, fitting_objects};
use crate::random::Random;

/// Classes by the last hits' ages: powers of two.
const CLASSES: usize = 16;
/// Number of distinct ages, in steps.
const AGES: usize = 4096;
/// Number of objects sampled for one eviction.
const SAMPLE: u32 = 32;
/// One of this many new objects is kept for a while regardless of its density, so that long ages are sampled.
const EXPLORERS: u32 = 32;
/// Factor by which counts decay at each new estimate.
const FADE: f32 = 0.9;

/// Index of an object that is not resident.
const ABSENT: u32 = u32::MAX;

/// An object in the cache.
#[derive(Clone, Copy)]
struct Resident {
    id: u32,
    /// The request that last used it.
    used_at: u32,
    /// Age, in steps, at the last hit.
    last_age: u16,
    is_explorer: bool,
    class: u8,
}

struct Class {
    hits: Vec<f32>,
    evictions: Vec<f32>,
    density: Vec<f32>,
}

/// An LHD cache.
pub(crate) struct Lhd<W> {
    /// The index of each object in `residents`.
    indices: Vec<u32>,
    residents: Vec<Resident>,
    classes: Vec<Class>,
    /// A step is 2 to this many requests.
    step_bits: u32,
    next_estimate: u32,
    estimate_every: u32,
    random: Random,
    used: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Lhd<W> {
    pub(crate) fn new(
        distinct: usize,
        requests: usize,
        weights: W,
        capacity: u64,
        seed: u64,
    ) -> Self {
        let fitting = fitting_objects(weights, distinct, capacity);
        // Ages up to 16 times as many requests as objects fit are distinguished, and there is an estimate after as
        // many. Of 4 to 256 times, 16 gave the fewest misses on four real traces; estimates from fewer than 65,536
        // requests were worse than the densities it starts with.
        let step_bits = (fitting * 16.0 / AGES as f64).max(1.0).log2().ceil() as u32;
        let estimate_every = (fitting as u32).saturating_mul(16).clamp(1 << 16, 1 << 20);
        let class = |number: usize| Class {
            hits: vec![0.0; AGES],
            evictions: vec![0.0; AGES],
            density: (0..AGES)
                .map(|age| (number + 1) as f32 / (age + 1) as f32)
                .collect(),
        };
        Self {
            indices: vec![ABSENT; distinct],
            residents: Vec::new(),
            classes: (0..CLASSES).map(class).collect(),
            step_bits,
            next_estimate: estimate_every.min(requests as u32),
            estimate_every,
            random: Random::new(seed),
            used: 0,
            capacity,
            weights,
        }
    }

    #[inline]
    fn age(&self, resident: &Resident, at: u32) -> usize {
        (((at - resident.used_at) >> self.step_bits) as usize).min(AGES - 1)
    }

    /// Expected hits per unit of space and time.
    #[inline]
    fn density(&self, resident: &Resident, at: u32) -> f32 {
        let age = self.age(resident, at);
        if age == AGES - 1 {
            return -1.0;
        }
        let density = self.classes[resident.class as usize].density[age];
        let bonus = if resident.is_explorer { 1.0 } else { 0.0 };
        (density + bonus) / self.weights.of(resident.id) as f32
    }

    fn hit(&mut self, at: u32, index: usize) {
        let resident = self.residents[index];
        let age = self.age(&resident, at);
        self.classes[resident.class as usize].hits[age] += 1.0;
        let class = class_of(age + usize::from(resident.last_age));
        self.residents[index] = Resident {
            used_at: at,
            last_age: age as u16,
            is_explorer: false,
            class,
            ..resident
        };
    }

    fn evict(&mut self, at: u32) {
        let count = self.residents.len() as u32;
        let mut victim = 0;
        let mut least = f32::INFINITY;
        for _ in 0..SAMPLE {
            let index = self.random.below(count) as usize;
            let density = self.density(&self.residents[index], at);
            if density < least {
                (victim, least) = (index, density);
            }
        }
        let evicted = self.take_out(victim);
        let age = self.age(&evicted, at);
        self.classes[evicted.class as usize].evictions[age] += 1.0;
        self.used -= self.weights.of(evicted.id);
    }

    /// Removes the resident at an index; the last one takes the index.
    #[inline]
    fn take_out(&mut self, index: usize) -> Resident {
        let resident = self.residents.swap_remove(index);
        self.indices[resident.id as usize] = ABSENT;
        if let Some(moved) = self.residents.get(index) {
            self.indices[moved.id as usize] = index as u32;
        }
        resident
    }

    /// Computes new densities from the counts, which then decay.
    #[cold]
    fn estimate(&mut self, at: u32) {
        self.next_estimate = at.saturating_add(self.estimate_every);
        for class in &mut self.classes {
            let (mut hits, mut events, mut time) = (0.0, 0.0, 0.0);
            for age in (0..AGES).rev() {
                hits += class.hits[age];
                events += class.hits[age] + class.evictions[age];
                time += events;
                class.density[age] = if events > 1e-5 { hits / time } else { 0.0 };
                class.hits[age] *= FADE;
                class.evictions[age] *= FADE;
            }
        }
    }

    fn store(&mut self, at: u32, id: u32) {
        let is_explorer = self.random.below(EXPLORERS) == 0;
        self.indices[id as usize] = self.residents.len() as u32;
        self.residents.push(Resident {
            id,
            used_at: at,
            last_age: AGES as u16 - 1,
            is_explorer,
            class: class_of(AGES - 1),
        });
    }
}

/// The class for a sum of ages: 0 for the longest, up to the last for the shortest.
fn class_of(ages: usize) -> u8 {
    let bits = usize::BITS - ages.leading_zeros();
    let longest = usize::BITS - (AGES - 1).leading_zeros();
    longest.saturating_sub(bits).min(CLASSES as u32 - 1) as u8
}

impl<W: Weights> Policy for Lhd<W> {
    #[inline]
    fn request(&mut self, at: u32, id: u32) -> bool {
        if at >= self.next_estimate {
            self.estimate(at);
        }
        let index = self.indices[id as usize];
        if index != ABSENT {
            self.hit(at, index as usize);
            return true;
        }
        let weight = self.weights.of(id);
        while self.used + weight > self.capacity {
            self.evict(at);
        }
        self.used += weight;
        self.store(at, id);
        false
    }

    fn prefetch(&self, ids: &[u32]) -> u32 {
        ids.iter()
            .fold(0, |sum, &id| sum ^ self.indices[id as usize])
    }
}

impl<W: Weights> Removable for Lhd<W> {
    fn remove(&mut self, id: u32) {
        let index = self.indices[id as usize];
        if index != ABSENT {
            self.take_out(index as usize);
            self.used -= self.weights.of(id);
        }
    }
}
