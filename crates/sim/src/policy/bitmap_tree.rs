//! A set of small numbers as a tree of bitmaps: insert, remove, lowest and highest in one step a level.
//!
//! A level has one bit for each word of the level below, set while that word is not 0. Five million numbers need four
//! levels, and all but the lowest stay in the first-level cache.

/// A set of numbers below a bound.
#[derive(Debug, Clone)]
pub(super) struct BitmapTree {
    /// Bitmaps from the numbers themselves up to a single word.
    levels: Vec<Vec<u64>>,
}

impl BitmapTree {
    /// An empty set of numbers below `bound`.
    pub(super) fn new(bound: usize) -> Self {
        let mut levels = Vec::new();
        let mut word_count = bound.max(1);
        loop {
            word_count = word_count.div_ceil(64);
            levels.push(vec![0; word_count]);
            if word_count == 1 {
                return Self { levels };
            }
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, number: u32) {
        let mut index = number as usize;
        for level in &mut self.levels {
            let word = &mut level[index / 64];
            let was_empty = *word == 0;
            *word |= 1 << (index % 64);
            if !was_empty {
                return;
            }
            index /= 64;
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, number: u32) {
        let mut index = number as usize;
        for level in &mut self.levels {
            let word = &mut level[index / 64];
            *word &= !(1 << (index % 64));
            if *word != 0 {
                return;
            }
            index /= 64;
        }
    }

    #[inline]
    pub(super) fn contains(&self, number: u32) -> bool {
        self.levels[0][number as usize / 64] >> (number % 64) & 1 == 1
    }

    /// The highest number of the set.
    #[inline]
    pub(super) fn highest(&self) -> Option<u32> {
        self.descend(|word| word.ilog2())
    }

    /// The lowest number of the set.
    #[inline]
    pub(super) fn lowest(&self) -> Option<u32> {
        self.descend(u64::trailing_zeros)
    }

    #[inline]
    fn descend(&self, choose_bit: impl Fn(u64) -> u32) -> Option<u32> {
        let mut index = 0;
        for level in self.levels.iter().rev() {
            let word = level[index];
            if word == 0 {
                return None;
            }
            index = index * 64 + choose_bit(word) as usize;
        }
        Some(index as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn equals_a_btree_set() {
        let mut random = crate::random::Random::new(7);
        let mut expected = BTreeSet::new();
        let mut set = BitmapTree::new(300_000);
        for _ in 0..50_000 {
            let number = random.below(300_000);
            set.insert(number);
            expected.insert(number);
            if random.below(3) == 0 {
                let highest = set.highest().unwrap();
                set.remove(highest);
                expected.remove(&highest);
            }
            assert!(set.contains(number) == expected.contains(&number));
            assert_eq!(
                (set.lowest(), set.highest()),
                (expected.first().copied(), expected.last().copied())
            );
        }
    }
}
