//! Objects in classes by how often they were used: the least used class, and in it the first to come, goes first.
//!
//! Each class is a list through one array of links; a use moves an object to the end of the next class. The classes
//! that hold anything are a bitmap, so that the lowest is found without walking empty ones.

use super::positions::Positions;

/// No object.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Links {
    before: u32,
    after: u32,
    /// The object's class; 0 when it is not here.
    uses: u32,
}

#[derive(Debug, Clone, Copy)]
struct Class {
    first: u32,
    last: u32,
}

/// Objects ordered by uses, then by the time they reached that number.
#[derive(Debug)]
pub(super) struct Frequencies {
    links: Vec<Links>,
    classes: Vec<Class>,
    /// A class that may be the lowest; none below it holds anything.
    lowest: u32,
    filled: Positions,
}

impl Frequencies {
    pub(super) fn new(distinct: usize, requests: usize) -> Self {
        Self {
            links: vec![
                Links {
                    before: NONE,
                    after: NONE,
                    uses: 0
                };
                distinct
            ],
            classes: vec![
                Class {
                    first: NONE,
                    last: NONE
                };
                2
            ],
            lowest: 1,
            filled: Positions::new(requests + 2),
        }
    }

    /// Uses of an object that is here; 0 for another.
    #[inline]
    pub(super) fn uses(&self, id: u32) -> u32 {
        self.links[id as usize].uses
    }

    /// Puts in an object with a number of uses.
    #[inline]
    pub(super) fn insert(&mut self, id: u32, uses: u32) {
        self.append(id, uses);
        self.lowest = self.lowest.min(uses);
    }

    /// Notes one more use.
    #[inline]
    pub(super) fn note_use(&mut self, id: u32) {
        let uses = self.links[id as usize].uses;
        self.unlink(id);
        self.append(id, uses + 1);
    }

    /// Takes an object out.
    #[inline]
    pub(super) fn remove(&mut self, id: u32) {
        self.unlink(id);
        self.links[id as usize].uses = 0;
    }

    /// The object that goes first.
    #[inline]
    pub(super) fn first(&mut self) -> Option<u32> {
        let first = self
            .classes
            .get(self.lowest as usize)
            .map_or(NONE, |class| class.first);
        if first != NONE {
            return Some(first);
        }
        self.lowest = self.filled.lowest()?;
        Some(self.classes[self.lowest as usize].first)
    }

    #[inline]
    fn append(&mut self, id: u32, uses: u32) {
        if uses as usize >= self.classes.len() {
            self.classes.resize(
                uses as usize + 1,
                Class {
                    first: NONE,
                    last: NONE,
                },
            );
        }
        let class = &mut self.classes[uses as usize];
        let before = class.last;
        class.last = id;
        if before == NONE {
            class.first = id;
            self.filled.insert(uses);
        } else {
            self.links[before as usize].after = id;
        }
        self.links[id as usize] = Links {
            before,
            after: NONE,
            uses,
        };
    }

    #[inline]
    fn unlink(&mut self, id: u32) {
        let Links {
            before,
            after,
            uses,
        } = self.links[id as usize];
        let class = &mut self.classes[uses as usize];
        if before == NONE {
            class.first = after;
        }
        if after == NONE {
            class.last = before;
        }
        if class.first == NONE {
            self.filled.remove(uses);
        }
        if before != NONE {
            self.links[before as usize].after = after;
        }
        if after != NONE {
            self.links[after as usize].before = before;
        }
    }
}
