//! Queues without links whose members can leave from the middle or move to the end.
//!
//! Each object has one location word: its queue and its position there. A move to the end appends the object a second
//! time and changes the location; the first entry is then stale and is skipped when it reaches the front. Compared
//! with a linked list, a hit writes the object's own location and the end of one ring instead of three neighbours.
//! When a ring is full it is compacted, or doubled if more than half of it is alive: a constant cost for each entry.

/// Bits of a location that hold the position; the others hold the queue, 0 for none.
const POSITION_BITS: u32 = 29;
const POSITION_MASK: u32 = (1 << POSITION_BITS) - 1;

/// The location of every object: its queue and its position there.
pub(super) type Locations = Vec<u32>;

/// The queue an object is in, 0 for none.
#[inline]
pub(super) fn queue_of(location: u32) -> u32 {
    location >> POSITION_BITS
}

/// One of up to seven queues over the same locations.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    location_bits: u32,
    ring: Vec<u32>,
    end_position: u32,
    front_position: u32,
    count: u32,
    weight: u64,
}

impl Queue {
    /// The queue number `number`, from 1 to 7.
    pub(super) fn new(number: u32) -> Self {
        Self {
            location_bits: number << POSITION_BITS,
            ring: vec![0; 1024],
            end_position: 0,
            front_position: 0,
            count: 0,
            weight: 0,
        }
    }

    /// Sum of the members' weights.
    #[inline]
    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    /// Number of members.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Appends an object that is in no queue, or that [`Queue::subtract_member`] has just removed.
    #[inline]
    pub(super) fn push(&mut self, locations: &mut Locations, id: u32, weight: u64) {
        self.append(locations, id);
        self.count += 1;
        self.weight += weight;
    }

    /// Moves a member to the end.
    #[inline]
    pub(super) fn move_to_end(&mut self, locations: &mut Locations, id: u32) {
        self.append(locations, id);
    }

    /// Takes a member out of the count and the weight. Its entry stays in the ring and is skipped as stale, because the
    /// caller pushes the object to another queue or clears its location.
    #[inline]
    pub(super) fn subtract_member(&mut self, weight: u64) {
        self.count -= 1;
        self.weight -= weight;
    }

    /// Removes an object and clears its location; false if it is not a member.
    pub(super) fn remove(&mut self, locations: &mut Locations, id: u32, weight: u64) -> bool {
        let location = &mut locations[id as usize];
        let is_member = *location & !POSITION_MASK == self.location_bits;
        if is_member {
            *location = 0;
            self.subtract_member(weight);
        }
        is_member
    }

    /// Removes the oldest member and clears its location.
    #[inline]
    pub(super) fn pop(
        &mut self,
        locations: &mut Locations,
        weight_of: impl Fn(u32) -> u64,
    ) -> Option<u32> {
        let id = self.peek(locations)?;
        self.front_position = self.front_position.wrapping_add(1);
        self.subtract_member(weight_of(id));
        locations[id as usize] = 0;
        Some(id)
    }

    /// The oldest member.
    #[inline]
    pub(super) fn peek(&mut self, locations: &Locations) -> Option<u32> {
        while self.front_position != self.end_position {
            let id = self.ring[self.slot(self.front_position)];
            if locations[id as usize] == self.location(self.front_position) {
                return Some(id);
            }
            self.front_position = self.front_position.wrapping_add(1);
        }
        None
    }

    #[inline]
    fn slot(&self, position: u32) -> usize {
        position as usize & (self.ring.len() - 1)
    }

    #[inline]
    fn location(&self, position: u32) -> u32 {
        self.location_bits | (position & POSITION_MASK)
    }

    #[inline]
    fn append(&mut self, locations: &mut Locations, id: u32) {
        if self.end_position.wrapping_sub(self.front_position) as usize == self.ring.len() {
            self.compact_or_grow(locations);
        }
        let slot = self.slot(self.end_position);
        self.ring[slot] = id;
        locations[id as usize] = self.location(self.end_position);
        self.end_position = self.end_position.wrapping_add(1);
    }

    /// Drops the stale entries, and doubles the ring if that leaves it more than half full.
    #[cold]
    fn compact_or_grow(&mut self, locations: &mut Locations) {
        let ring_len = self.ring.len();
        let mut ring = Vec::with_capacity(ring_len * 2);
        for offset in 0..ring_len as u32 {
            let position = self.front_position.wrapping_add(offset);
            let id = self.ring[self.slot(position)];
            if locations[id as usize] == self.location(position) {
                locations[id as usize] = self.location_bits | ring.len() as u32;
                ring.push(id);
            }
        }
        self.front_position = 0;
        self.end_position = ring.len() as u32;
        let is_over_half_full = ring.len() * 2 > ring_len;
        ring.resize(if is_over_half_full { ring_len * 2 } else { ring_len }, 0);
        // INVARIANT: positions within the ring are distinguished by their low bits, so the ring is not longer than
        // those bits can count.
        assert!(
            ring.len() <= 1 << POSITION_BITS,
            "more than {} objects in a queue",
            1 << (POSITION_BITS - 1)
        );
        self.ring = ring;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pops_members_in_order_of_their_last_push() {
        let mut locations = vec![0; 5000];
        let mut queue = Queue::new(3);
        for id in 0..5000 {
            queue.push(&mut locations, id, 2);
        }
        for round in 0..20 {
            for id in 0..2500 {
                queue.move_to_end(&mut locations, (id * 2 + round) % 5000);
            }
        }
        assert_eq!((queue.count(), queue.weight()), (5000, 10_000));
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop(&mut locations, |_| 2)).collect();
        let even = (18..5000).step_by(2).chain((0..18).step_by(2));
        let odd = (19..5000).step_by(2).chain((1..19).step_by(2));
        assert_eq!(order, even.chain(odd).collect::<Vec<u32>>());
        assert_eq!((queue.count(), queue.weight()), (0, 0));
    }
}
