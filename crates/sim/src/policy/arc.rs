//! ARC: objects used once and objects used again, whose shares adapt to the hits in their ghosts.
//!
//! Names as in the paper (Megiddo and Modha, FAST 2003): T1 and T2 hold the cache, B1 and B2 are their ghosts, and
//! `t1_target` is the target weight of T1. An object is in at most one of the four.

use super::queue::{Locations, Queue, queue_of};
use super::{Policy, Removable, Weights};

const T1: u32 = 1;
const T2: u32 = 2;
const B1: u32 = 3;
const B2: u32 = 4;

/// An ARC cache.
pub(crate) struct Arc<W> {
    locations: Locations,
    t1: Queue,
    t2: Queue,
    b1: Queue,
    b2: Queue,
    t1_target: f64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Arc<W> {
    pub(crate) fn new(object_count: usize, weights: W, capacity: u64) -> Self {
        Self {
            locations: vec![0; object_count],
            t1: Queue::new(T1),
            t2: Queue::new(T2),
            b1: Queue::new(B1),
            b2: Queue::new(B2),
            t1_target: 0.0,
            capacity,
            weights,
        }
    }

    /// Moves the oldest object of T1 or T2 to its ghost; `is_from_b2`: it is evicted for an object that was in B2.
    fn evict_to_ghost(&mut self, is_from_b2: bool) {
        let weights = self.weights;
        let weight_of = |id: u32| weights.of(id);
        let t1_weight = self.t1.weight() as f64;
        let is_t1_over = t1_weight > self.t1_target || (is_from_b2 && t1_weight >= self.t1_target);
        let evicts_from_t1 = self.t1.count() > 0 && (is_t1_over || self.t2.count() == 0);
        let (queue, ghost) = if evicts_from_t1 {
            (&mut self.t1, &mut self.b1)
        } else {
            (&mut self.t2, &mut self.b2)
        };
        if let Some(id) = queue.pop(&mut self.locations, weight_of) {
            ghost.push(&mut self.locations, id, weight_of(id));
        }
    }

    /// Evicts until an object of this weight fits into T1 and T2.
    fn make_room(&mut self, weight: u64, is_from_b2: bool) {
        while self.t1.weight() + self.t2.weight() + weight > self.capacity {
            self.evict_to_ghost(is_from_b2);
        }
    }

    /// A hit in a ghost: the target moves in favour of that list, the more the shorter the ghost is.
    fn readmit_from_ghost(&mut self, id: u32, weight: u64, is_from_b2: bool) {
        let (b1_weight, b2_weight) = (self.b1.weight() as f64, self.b2.weight() as f64);
        let adjustment = |other_weight: f64, own_weight: f64| {
            (other_weight / own_weight).max(1.0) * weight as f64
        };
        self.t1_target = if is_from_b2 {
            (self.t1_target - adjustment(b1_weight, b2_weight)).max(0.0)
        } else {
            (self.t1_target + adjustment(b2_weight, b1_weight)).min(self.capacity as f64)
        };
        // The object is removed from its ghost first, so that evictions cannot push it out.
        self.locations[id as usize] = 0;
        if is_from_b2 {
            self.b2.subtract_member(weight);
        } else {
            self.b1.subtract_member(weight);
        }
        self.make_room(weight, is_from_b2);
        self.t2.push(&mut self.locations, id, weight);
    }

    /// Admits an unknown object. The four lists together are bounded by twice the capacity, T1 and B1 by the
    /// capacity.
    fn admit(&mut self, id: u32, weight: u64) {
        let weights = self.weights;
        let weight_of = |id: u32| weights.of(id);
        while self.t1.weight() + self.b1.weight() + weight > self.capacity {
            if self.b1.pop(&mut self.locations, weight_of).is_none()
                && self.t1.pop(&mut self.locations, weight_of).is_none()
            {
                break;
            }
        }
        self.make_room(weight, false);
        let total_weight =
            |arc: &Self| arc.t1.weight() + arc.t2.weight() + arc.b1.weight() + arc.b2.weight();
        while total_weight(self) + weight > 2 * self.capacity {
            if self.b2.pop(&mut self.locations, weight_of).is_none() {
                break;
            }
        }
        self.t1.push(&mut self.locations, id, weight);
    }
}

impl<W: Weights> Policy for Arc<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        let weight = self.weights.of(id);
        match queue_of(self.locations[id as usize]) {
            T1 => {
                self.t1.subtract_member(weight);
                self.t2.push(&mut self.locations, id, weight);
                return true;
            }
            T2 => {
                self.t2.move_to_end(&mut self.locations, id);
                return true;
            }
            B1 => self.readmit_from_ghost(id, weight, false),
            B2 => self.readmit_from_ghost(id, weight, true),
            _ => self.admit(id, weight),
        }
        false
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ self.locations[id as usize])
    }
}

impl<W: Weights> Removable for Arc<W> {
    fn remove(&mut self, id: u32) {
        let (locations, weight) = (&mut self.locations, self.weights.of(id));
        let _ = self.t1.remove(locations, id, weight) || self.t2.remove(locations, id, weight);
    }
}
