//! Policies of a cache in which a miss does not store: its owner fetches the object, and perhaps others with it, first.

use super::Removable;

/// A cache in which an object is looked up first and stored later.
pub(crate) trait LookUp: Removable {
    /// Whether the object is in the cache; changes nothing.
    fn contains(&self, id: u32) -> bool;

    /// Counts a request and returns whether it hit; a miss stores nothing.
    fn get(&mut self, id: u32) -> bool {
        self.contains(id) && self.request(0, id)
    }

    /// Stores an object, unless the cache has it.
    fn insert(&mut self, id: u32) {
        if !self.contains(id) {
            self.request(0, id);
        }
    }
}
