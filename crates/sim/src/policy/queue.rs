//! Queues whose members may leave from the middle or go to the end, without links.
//!
//! Each object has one word: the queue it is in and its place there. A move to the end writes the object a second
//! time and changes the word; the first entry is then stale, and is skipped when its turn to leave comes. Against a
//! linked list, a hit writes the object's own word and the end of one ring, in place of three neighbours. When a ring
//! is full it is compacted, or doubled if more than half of it is alive: a constant cost for each entry.

/// Bits of a word that hold the place; the others hold the queue, 0 for none.
const PLACE_BITS: u32 = 29;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;

/// The word of every object.
pub(super) type Words = Vec<u32>;

/// The queue an object is in, 0 for none.
#[inline]
pub(super) fn queue_of(word: u32) -> u32 {
    word >> PLACE_BITS
}

/// One queue of up to seven over the same words.
#[derive(Debug)]
pub(super) struct Queue {
    tag: u32,
    ring: Vec<u32>,
    head: u32,
    tail: u32,
    count: u32,
    weight: u64,
}

impl Queue {
    /// The queue number `number`, from 1 to 7.
    pub(super) fn new(number: u32) -> Self {
        Self {
            tag: number << PLACE_BITS,
            ring: vec![0; 1024],
            head: 0,
            tail: 0,
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

    /// Appends an object that is in no queue, or was just taken out of one by `leave`.
    #[inline]
    pub(super) fn push(&mut self, words: &mut Words, id: u32, weight: u64) {
        self.append(words, id);
        self.count += 1;
        self.weight += weight;
    }

    /// Moves a member to the end.
    #[inline]
    pub(super) fn renew(&mut self, words: &mut Words, id: u32) {
        self.append(words, id);
    }

    /// Takes a member out; the caller pushes it elsewhere or clears its word.
    #[inline]
    pub(super) fn leave(&mut self, weight: u64) {
        self.count -= 1;
        self.weight -= weight;
    }

    /// Takes the member that has been here longest, and clears its word.
    #[inline]
    pub(super) fn pop(&mut self, words: &mut Words, weight: impl Fn(u32) -> u64) -> Option<u32> {
        let id = self.peek(words)?;
        self.tail = self.tail.wrapping_add(1);
        self.leave(weight(id));
        words[id as usize] = 0;
        Some(id)
    }

    /// The member that has been here longest.
    #[inline]
    pub(super) fn peek(&mut self, words: &Words) -> Option<u32> {
        while self.tail != self.head {
            let id = self.ring[self.slot(self.tail)];
            if words[id as usize] == self.word(self.tail) {
                return Some(id);
            }
            self.tail = self.tail.wrapping_add(1);
        }
        None
    }

    #[inline]
    fn slot(&self, place: u32) -> usize {
        place as usize & (self.ring.len() - 1)
    }

    #[inline]
    fn word(&self, place: u32) -> u32 {
        self.tag | (place & PLACE_MASK)
    }

    #[inline]
    fn append(&mut self, words: &mut Words, id: u32) {
        if self.head.wrapping_sub(self.tail) as usize == self.ring.len() {
            self.make_room(words);
        }
        let slot = self.slot(self.head);
        self.ring[slot] = id;
        words[id as usize] = self.word(self.head);
        self.head = self.head.wrapping_add(1);
    }

    /// Drops the stale entries, and doubles the ring if that leaves it more than half full.
    #[cold]
    fn make_room(&mut self, words: &mut Words) {
        let size = self.ring.len();
        let mut ring = Vec::with_capacity(size * 2);
        for step in 0..size as u32 {
            let place = self.tail.wrapping_add(step);
            let id = self.ring[self.slot(place)];
            if words[id as usize] == self.word(place) {
                words[id as usize] = self.tag | ring.len() as u32;
                ring.push(id);
            }
        }
        self.tail = 0;
        self.head = ring.len() as u32;
        let is_crowded = ring.len() * 2 > size;
        ring.resize(if is_crowded { size * 2 } else { size }, 0);
        // INVARIANT: a place within the ring is told apart by its low bits, so the ring is no longer than they count.
        assert!(
            ring.len() <= 1 << PLACE_BITS,
            "more than {} objects in a queue",
            1 << (PLACE_BITS - 1)
        );
        self.ring = ring;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_leave_in_the_order_of_their_last_push() {
        let mut words = vec![0; 5000];
        let mut queue = Queue::new(3);
        for id in 0..5000 {
            queue.push(&mut words, id, 2);
        }
        for round in 0..20 {
            for id in 0..2500 {
                queue.renew(&mut words, (id * 2 + round) % 5000);
            }
        }
        assert_eq!((queue.count(), queue.weight()), (5000, 10_000));
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop(&mut words, |_| 2)).collect();
        let even = (18..5000).step_by(2).chain((0..18).step_by(2));
        let odd = (19..5000).step_by(2).chain((1..19).step_by(2));
        assert_eq!(order, even.chain(odd).collect::<Vec<u32>>());
        assert_eq!((queue.count(), queue.weight()), (0, 0));
    }
}
