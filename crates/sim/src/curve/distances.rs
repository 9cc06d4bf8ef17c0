//! Stack distances: how much distinct weight was used since an object's last use.
//!
//! Every use takes the next slot; an object's weight is stored in the slot of its last use, so its distance is the
//! sum from that slot to the end. A Fenwick tree (1994) holds the sums of blocks of slots, and the slots within a
//! block are added one by one, so the tree fits the second-level cache. When the slots run out, the used slots are
//! compacted and the tree is rebuilt, once in as many uses as there are objects.

/// Slots per block: two cache lines of weights, which are added faster than a deeper tree is traversed.
const SLOTS_PER_BLOCK: usize = 32;

/// Marks an object without a slot, and a slot without an object.
const NONE: u32 = u32::MAX;

/// The last uses of objects, in order.
pub(super) struct Distances {
    /// Where each object was last used.
    slot_of: Vec<u32>,
    /// The object whose last use took each slot, or [`NONE`].
    object_of: Vec<u32>,
    /// The weight of the object in each slot; 0 for none.
    weights: Vec<u32>,
    /// Fenwick tree of the blocks' sums, from index 1.
    block_sums: Vec<u64>,
    next_slot: usize,
    total_weight: u64,
}

impl Distances {
    /// For objects below `object_count`, of which up to `live_objects` are held at once.
    pub(super) fn new(object_count: usize, live_objects: usize) -> Self {
        let slot_count =
            (live_objects * 2).max(SLOTS_PER_BLOCK * 32).next_multiple_of(SLOTS_PER_BLOCK);
        Self {
            slot_of: vec![NONE; object_count],
            object_of: vec![NONE; slot_count],
            weights: vec![0; slot_count],
            block_sums: vec![0; slot_count / SLOTS_PER_BLOCK + 1],
            next_slot: 0,
            total_weight: 0,
        }
    }

    /// Records a use and returns the distance to the previous one, including the object's own weight.
    #[inline]
    pub(super) fn record_use(&mut self, object: u32, weight: u32) -> Option<u64> {
        let distance = self.remove(object);
        if self.next_slot == self.object_of.len() {
            self.compact();
        }
        let slot = self.next_slot;
        self.next_slot += 1;
        self.slot_of[object as usize] = slot as u32;
        self.object_of[slot] = object;
        self.weights[slot] = weight;
        self.add_to_block(slot / SLOTS_PER_BLOCK, u64::from(weight));
        self.total_weight += u64::from(weight);
        distance
    }

    /// Forgets an object and returns its distance.
    #[inline]
    pub(super) fn remove(&mut self, object: u32) -> Option<u64> {
        let slot = std::mem::replace(&mut self.slot_of[object as usize], NONE);
        if slot == NONE {
            return None;
        }
        let slot = slot as usize;
        let distance = self.total_weight - self.weight_before(slot);
        let weight = std::mem::take(&mut self.weights[slot]);
        self.object_of[slot] = NONE;
        self.add_to_block(slot / SLOTS_PER_BLOCK, u64::from(weight).wrapping_neg());
        self.total_weight -= u64::from(weight);
        Some(distance)
    }

    /// Sum of the weights before a slot.
    #[inline]
    fn weight_before(&self, slot: usize) -> u64 {
        let block = slot / SLOTS_PER_BLOCK;
        let sum_in_block: u64 =
            self.weights[block * SLOTS_PER_BLOCK..slot].iter().copied().map(u64::from).sum();
        let mut tree_index = block;
        let mut sum = sum_in_block;
        while tree_index > 0 {
            sum = sum.wrapping_add(self.block_sums[tree_index]);
            tree_index &= tree_index - 1;
        }
        sum
    }

    /// Adds to the sum of a block; a weight that is taken away is the wrapping negative.
    #[inline]
    fn add_to_block(&mut self, block: usize, weight_change: u64) {
        let mut tree_index = block + 1;
        while tree_index < self.block_sums.len() {
            self.block_sums[tree_index] = self.block_sums[tree_index].wrapping_add(weight_change);
            tree_index += tree_index & tree_index.wrapping_neg();
        }
    }

    #[cold]
    fn compact(&mut self) {
        let mut next_slot = 0;
        for slot in 0..self.object_of.len() {
            let object = self.object_of[slot];
            if object != NONE {
                self.object_of[next_slot] = object;
                self.weights[next_slot] = self.weights[slot];
                self.slot_of[object as usize] = next_slot as u32;
                next_slot += 1;
            }
        }
        self.object_of[next_slot..].fill(NONE);
        self.weights[next_slot..].fill(0);
        self.next_slot = next_slot;
        self.block_sums.fill(0);
        for block in 0..next_slot.div_ceil(SLOTS_PER_BLOCK) {
            let sum = self.weights[block * SLOTS_PER_BLOCK..][..SLOTS_PER_BLOCK]
                .iter()
                .copied()
                .map(u64::from)
                .sum();
            self.add_to_block(block, sum);
        }
    }
}
