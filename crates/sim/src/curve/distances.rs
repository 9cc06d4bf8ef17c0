//! Stack distances: how much distinct weight was used since an object's last use.
//!
//! Every use gets a place in time; an object's weight stands at the place of its last use, so a distance is the sum
//! from there to now. Sums are a Fenwick tree (1994) over blocks of places, the rest of a block added plainly: the
//! tree then fits the second-level cache. When the places run out, the objects are moved together and the tree is
//! made anew, once in as many uses as there are objects.

/// Places of a block: two cache lines of weights, added faster than a tree of them is walked.
const BLOCK: usize = 32;

/// An object that has no place.
const NONE: u32 = u32::MAX;

/// The last uses of objects, in order.
pub(super) struct Distances {
    /// Where each object was last used.
    place_of: Vec<u32>,
    /// The object at each place, by last use or by an earlier one.
    objects: Vec<u32>,
    weights: Vec<u32>,
    /// Fenwick tree of the blocks' sums, from index 1.
    tree: Vec<u64>,
    next: usize,
    total: u64,
}

impl Distances {
    /// For objects below `distinct`, of which up to `live` are held at once.
    pub(super) fn new(distinct: usize, live: usize) -> Self {
        let places = (live * 2).max(BLOCK * 32).next_multiple_of(BLOCK);
        Self {
            place_of: vec![NONE; distinct],
            objects: vec![NONE; places],
            weights: vec![0; places],
            tree: vec![0; places / BLOCK + 1],
            next: 0,
            total: 0,
        }
    }

    /// Notes a use and returns the distance from the last one, the object's own weight included.
    #[inline]
    pub(super) fn note_use(&mut self, object: u32, weight: u32) -> Option<u64> {
        let distance = self.remove(object);
        if self.next == self.objects.len() {
            self.move_together();
        }
        let place = self.next;
        self.next += 1;
        self.place_of[object as usize] = place as u32;
        self.objects[place] = object;
        self.weights[place] = weight;
        self.add(place / BLOCK, u64::from(weight));
        self.total += u64::from(weight);
        distance
    }

    /// Forgets an object and returns its distance.
    #[inline]
    pub(super) fn remove(&mut self, object: u32) -> Option<u64> {
        let place = std::mem::replace(&mut self.place_of[object as usize], NONE);
        if place == NONE {
            return None;
        }
        let place = place as usize;
        let distance = self.total - self.before(place);
        let weight = std::mem::take(&mut self.weights[place]);
        self.objects[place] = NONE;
        self.add(place / BLOCK, u64::from(weight).wrapping_neg());
        self.total -= u64::from(weight);
        Some(distance)
    }

    /// Sum of the weights before a place.
    #[inline]
    fn before(&self, place: usize) -> u64 {
        let block = place / BLOCK;
        let within: u64 = self.weights[block * BLOCK..place]
            .iter()
            .copied()
            .map(u64::from)
            .sum();
        let mut at = block;
        let mut sum = within;
        while at > 0 {
            sum = sum.wrapping_add(self.tree[at]);
            at &= at - 1;
        }
        sum
    }

    #[inline]
    fn add(&mut self, block: usize, weight: u64) {
        let mut at = block + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add(weight);
            at += at & at.wrapping_neg();
        }
    }

    #[cold]
    fn move_together(&mut self) {
        let mut next = 0;
        for place in 0..self.objects.len() {
            let object = self.objects[place];
            if object != NONE {
                self.objects[next] = object;
                self.weights[next] = self.weights[place];
                self.place_of[object as usize] = next as u32;
                next += 1;
            }
        }
        self.objects[next..].fill(NONE);
        self.weights[next..].fill(0);
        self.next = next;
        self.tree.fill(0);
        for block in 0..next.div_ceil(BLOCK) {
            let sum = self.weights[block * BLOCK..][..BLOCK]
                .iter()
                .copied()
                .map(u64::from)
                .sum();
            self.add(block, sum);
        }
    }
}
