//! Objects in classes by number of uses: the first victim is the oldest object of the least used class.
//!
//! Each class is a list through one array of links; a use moves an object to the end of the next class. The classes
//! that hold anything are a bitmap, so that the lowest is found without walking empty ones.

use super::bitmap_tree::BitmapTree;

/// No object.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Node {
    previous: u32,
    next: u32,
    /// The object's class; 0 if it is not in the cache.
    uses: u32,
}

#[derive(Debug, Clone, Copy)]
struct Class {
    first: u32,
    last: u32,
}

/// Objects ordered by uses, then by the time at which they reached that number.
#[derive(Debug)]
pub(super) struct Frequencies {
    nodes: Vec<Node>,
    classes: Vec<Class>,
    /// A lower bound of the lowest class; all classes below are empty.
    lowest_class: u32,
    nonempty_classes: BitmapTree,
}

impl Frequencies {
    pub(super) fn new(object_count: usize, request_count: usize) -> Self {
        Self {
            nodes: vec![Node { previous: NONE, next: NONE, uses: 0 }; object_count],
            classes: vec![Class { first: NONE, last: NONE }; 2],
            lowest_class: 1,
            nonempty_classes: BitmapTree::new(request_count + 2),
        }
    }

    /// Number of uses of an object; 0 if it is not in the cache.
    #[inline]
    pub(super) fn uses(&self, id: u32) -> u32 {
        self.nodes[id as usize].uses
    }

    /// Inserts an object with a number of uses.
    #[inline]
    pub(super) fn insert(&mut self, id: u32, uses: u32) {
        self.append(id, uses);
        self.lowest_class = self.lowest_class.min(uses);
    }

    /// Records a use.
    #[inline]
    pub(super) fn record_use(&mut self, id: u32) {
        let uses = self.nodes[id as usize].uses;
        self.unlink(id);
        self.append(id, uses + 1);
    }

    /// Removes an object.
    #[inline]
    pub(super) fn remove(&mut self, id: u32) {
        self.unlink(id);
        self.nodes[id as usize].uses = 0;
    }

    /// The next victim.
    #[inline]
    pub(super) fn next_victim(&mut self) -> Option<u32> {
        let first = self.classes.get(self.lowest_class as usize).map_or(NONE, |class| class.first);
        if first != NONE {
            return Some(first);
        }
        self.lowest_class = self.nonempty_classes.lowest()?;
        Some(self.classes[self.lowest_class as usize].first)
    }

    #[inline]
    fn append(&mut self, id: u32, uses: u32) {
        if uses as usize >= self.classes.len() {
            self.classes.resize(uses as usize + 1, Class { first: NONE, last: NONE });
        }
        let class = &mut self.classes[uses as usize];
        let previous = class.last;
        class.last = id;
        if previous == NONE {
            class.first = id;
            self.nonempty_classes.insert(uses);
        } else {
            self.nodes[previous as usize].next = id;
        }
        self.nodes[id as usize] = Node { previous, next: NONE, uses };
    }

    #[inline]
    fn unlink(&mut self, id: u32) {
        let Node { previous, next, uses } = self.nodes[id as usize];
        let class = &mut self.classes[uses as usize];
        if previous == NONE {
            class.first = next;
        }
        if next == NONE {
            class.last = previous;
        }
        if class.first == NONE {
            self.nonempty_classes.remove(uses);
        }
        if previous != NONE {
            self.nodes[previous as usize].next = next;
        }
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
    }
}
