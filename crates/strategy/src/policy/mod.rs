//! Which local items are kept: the policies of a near cache, over slots instead of keys.
//!
//! A policy knows slots (small numbers assigned by its owner) but no keys or values: the simulator
//! uses the item's number as its slot and pays no hash, a client maps keys to slots in its near
//! cache. Both run the same code.

mod lru;
mod lru_bytes;
mod queue;
mod s3fifo;

pub use lru::Lru;
pub use lru_bytes::LruBytes;
pub use s3fifo::S3Fifo;

/// What the policy gave up of a slot to make room for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The value was evicted, but the policy still remembers the slot: the owner keeps the key.
    Value,
    /// The policy has forgotten the slot: the owner may give it to another key.
    Slot,
}

/// A replacement policy over slots.
pub trait Policy {
    /// Whether the slot's item is in the cache; changes nothing.
    fn contains(&self, slot: u32) -> bool;

    /// Looks the slot's item up and records the use; false is a miss.
    fn get(&mut self, slot: u32) -> bool;

    /// Inserts an absent item and calls `on_release` for each slot that was evicted for it; false if the item cannot be
    /// kept at all: then the policy does not remember the slot either.
    fn insert(&mut self, slot: u32, bytes: u32, on_release: &mut impl FnMut(u32, Released))
    -> bool;

    /// Removes the slot's item, or its ghost entry, from the policy; the slot is then free.
    fn remove(&mut self, slot: u32);

    /// Removes an item whose value is too old to be served; what the policy remembers of an evicted one stays.
    fn remove_stale(&mut self, slot: u32) {
        if self.contains(slot) {
            self.remove(slot);
        }
    }

    /// Forgets everything; the cost is that of what was held and remembered.
    fn clear(&mut self);
}

/// The policy of a local cache, chosen at run time.
#[derive(Debug)]
pub enum AnyPolicy {
    /// Nothing is kept.
    Nothing,
    /// Least recently used, bounded in items.
    Lru(Lru),
    /// Least recently used, bounded in bytes.
    LruBytes(LruBytes),
    /// S3-FIFO, bounded in items.
    S3Fifo(S3Fifo),
}

impl Policy for AnyPolicy {
    fn contains(&self, slot: u32) -> bool {
        match self {
            Self::Nothing => false,
            Self::Lru(policy) => policy.contains(slot),
            Self::LruBytes(policy) => policy.contains(slot),
            Self::S3Fifo(policy) => policy.contains(slot),
        }
    }

    fn get(&mut self, slot: u32) -> bool {
        match self {
            Self::Nothing => false,
            Self::Lru(policy) => policy.get(slot),
            Self::LruBytes(policy) => policy.get(slot),
            Self::S3Fifo(policy) => policy.get(slot),
        }
    }

    fn insert(
        &mut self,
        slot: u32,
        bytes: u32,
        on_release: &mut impl FnMut(u32, Released),
    ) -> bool {
        match self {
            Self::Nothing => false,
            Self::Lru(policy) => policy.insert(slot, bytes, on_release),
            Self::LruBytes(policy) => policy.insert(slot, bytes, on_release),
            Self::S3Fifo(policy) => policy.insert(slot, bytes, on_release),
        }
    }

    fn remove(&mut self, slot: u32) {
        match self {
            Self::Nothing => {}
            Self::Lru(policy) => policy.remove(slot),
            Self::LruBytes(policy) => policy.remove(slot),
            Self::S3Fifo(policy) => policy.remove(slot),
        }
    }

    fn clear(&mut self) {
        match self {
            Self::Nothing => {}
            Self::Lru(policy) => policy.clear(),
            Self::LruBytes(policy) => policy.clear(),
            Self::S3Fifo(policy) => policy.clear(),
        }
    }
}
