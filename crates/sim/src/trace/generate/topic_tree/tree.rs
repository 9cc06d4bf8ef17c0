//! The items of the generated site: six levels from the root to the pages.

use super::rng::TopicTreeRandom;
use crate::trace::log::{Items, NONE};

/// Root, subjects, topics, units, lessons, pages.
pub(super) const LEVELS: usize = 6;
/// Median size of an item by level, in bytes, and the deviation of its logarithm: text with markup.
const MEDIAN_BYTES: [f64; LEVELS] = [2500.0, 3000.0, 2500.0, 2000.0, 3500.0, 6000.0];
const SIZE_LOG_SIGMA: f64 = 0.8;
/// Bounds of a size: an empty item, and the longest text that an editor accepts.
const BYTES_MIN: f64 = 120.0;
const BYTES_MAX: f64 = 400_000.0;

/// The tree; item numbers rise level by level, and the children of an item are neighbours.
#[derive(Debug)]
pub(super) struct TopicTree {
    pub(super) parents: Vec<u32>,
    /// The first item of each level, and the number of items at the end.
    pub(super) level_starts: [u32; LEVELS + 1],
    first_child: Vec<u32>,
    sizes: Vec<u32>,
}

impl TopicTree {
    pub(super) fn new(item_count: u32, rng: &mut TopicTreeRandom) -> Self {
        let level_starts = split_into_levels(item_count);
        let mut parents = vec![NONE];
        for level in 1..LEVELS {
            let parent_level = level_starts[level - 1]..level_starts[level];
            let level_size = level_starts[level + 1] - level_starts[level];
            let mut level_parents: Vec<u32> =
                parent_level.clone().take(level_size as usize).collect();
            // Half of the rest are spread uniformly, half prefer the front, so some parents have many children.
            while level_parents.len() < level_size as usize {
                let parent_count = parent_level.end - parent_level.start;
                let choice_count =
                    if rng.chance(0.5) { parent_count } else { 1 + rng.below(parent_count) };
                level_parents.push(parent_level.start + rng.below(choice_count));
            }
            level_parents.sort_unstable();
            parents.extend(level_parents);
        }
        let level_of_items = (0..LEVELS).flat_map(|level| {
            vec![level; (level_starts[level + 1] - level_starts[level]) as usize]
        });
        let sizes = level_of_items.map(|level| {
            let bytes = MEDIAN_BYTES[level] * rng.log_normal(SIZE_LOG_SIGMA);
            bytes.clamp(BYTES_MIN, BYTES_MAX) as u32
        });
        let sizes = sizes.collect();
        Self { first_child: first_children(&parents), parents, level_starts, sizes }
    }

    /// The children of an item, which are neighbours.
    pub(super) fn children(&self, item: u32) -> std::ops::Range<u32> {
        self.first_child[item as usize]..self.first_child[item as usize + 1]
    }

    /// The items from the root down to the item, both included.
    pub(super) fn path_from_root(&self, item: u32) -> Vec<u32> {
        let ancestors = std::iter::successors(Some(item), |&item| {
            Some(self.parents[item as usize]).filter(|&parent| parent != NONE)
        });
        let mut path: Vec<u32> = ancestors.collect();
        path.reverse();
        path
    }

    /// The ancestor of an item at a level above it.
    pub(super) fn ancestor(&self, mut item: u32, level: usize) -> u32 {
        while item >= self.level_starts[level + 1] {
            item = self.parents[item as usize];
        }
        item
    }

    pub(super) fn into_items(self) -> Items {
        let level_of =
            |item: u32| self.level_starts.partition_point(|&level_start| level_start <= item) - 1;
        let key = |item: u32| format!("c:{}:{:x}", level_of(item), item);
        let keys = (0..self.parents.len() as u32).map(key).collect();
        Items { keys, parents: self.parents, sizes: self.sizes, ..Items::default() }
    }
}

/// Seven in ten items are pages, and each level above has about a sixth of the level below.
fn split_into_levels(item_count: u32) -> [u32; LEVELS + 1] {
    let page_count = (item_count * 7 / 10).max(1);
    let mut items_left = item_count - page_count - 1;
    let mut level_sizes = [1u32; LEVELS];
    level_sizes[5] = page_count;
    for level in [1, 2, 3] {
        level_sizes[level] =
            (f64::from(items_left) / [250.0, 42.0, 7.0][level - 1]).ceil().max(2.0) as u32;
        items_left -= level_sizes[level];
    }
    level_sizes[4] = items_left;
    let mut level_starts = [0; LEVELS + 1];
    for level in 0..LEVELS {
        level_starts[level + 1] = level_starts[level] + level_sizes[level];
    }
    level_starts
}

/// For each item where its children begin, which is where those of the one before end.
fn first_children(parents: &[u32]) -> Vec<u32> {
    let mut first_child = vec![0u32; parents.len() + 1];
    for &parent in &parents[1..] {
        first_child[parent as usize + 1] += 1;
    }
    first_child[0] = 1;
    for item in 1..first_child.len() {
        first_child[item] += first_child[item - 1];
    }
    first_child
}
