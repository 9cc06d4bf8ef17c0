//! Replacement policies over dense object numbers: which requests of a trace hit, at a given size.
//!
//! A policy never sees a key. Its state is one array entry an object and a few rings, so that a request costs one or
//! two cache lines; what a hash table and linked nodes would cost is paid once, when the trace is interned. Every
//! policy works on objects that count 1 and on objects that count their bytes, as a type parameter.
//!
//! All start empty, count every request and insert on every miss. An object larger than the cache is never stored.
//!
//! An *object* is an interned key, its *id* the dense number, its *weight* what it counts against the capacity: 1 or
//! its bytes.

mod arc;
mod belady;
mod belady_size;
mod bitmap_tree;
mod clock;
mod fifo;
mod frequency;
mod gdsf;
mod ghost;
mod kind;
mod lecar;
mod lfu;
mod lhd;
mod links;
mod lirs;
mod look_up;
mod lru;
mod memcached;
mod own_items;
mod queue;
mod queue_policy;
mod s3fifo;
mod s4fifo;
#[cfg(feature = "own-policy")]
mod server_store;
mod sieve;
mod slru;
mod tinylfu;
mod tuned;
mod twoq;

pub use glasscache_store::tuning::{Goal, PolicySettings, SwitchRecord};
pub use glasscache_strategy::s4fifo_settings::{InvalidS4FifoSetting, S4FifoSettings};
pub use kind::{PolicyKind, SizesMissing, UnknownPolicy};

pub(crate) use arc::Arc;
pub(crate) use belady::Belady;
pub(crate) use belady_size::BeladySize;
pub(crate) use clock::Clock;
pub(crate) use fifo::Fifo;
pub(crate) use gdsf::Gdsf;
pub(crate) use lecar::LeCar;
pub(crate) use lfu::Lfu;
pub(crate) use lhd::Lhd;
pub(crate) use links::RequestLinks;
pub(crate) use lirs::Lirs;
pub(crate) use look_up::LookUp;
pub(crate) use lru::Lru;
pub(crate) use memcached::Memcached;
pub(crate) use own_items::OwnItems;
pub(crate) use queue_policy::QueuePolicy;
pub(crate) use s3fifo::S3Fifo;
pub(crate) use s4fifo::S4Fifo;
#[cfg(feature = "own-policy")]
pub(crate) use server_store::ServerStore;
pub(crate) use sieve::Sieve;
pub(crate) use slru::Slru;
pub(crate) use tinylfu::TinyLfu;
pub(crate) use tuned::{Tuned, TunedOptions};
pub(crate) use twoq::TwoQ;

/// A cache of some policy.
pub(crate) trait Policy {
    /// Processes request number `position` for object `id`, which fits; returns whether it hit. A miss stores the object.
    fn request(&mut self, position: u32, id: u32) -> bool;

    /// Reads the state that the next requests need, so that their cache misses overlap; the result has no meaning.
    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        let _ = ids;
        0
    }
}

/// A cache from which objects can leave without being evicted: past their TTL, or deleted.
pub(crate) trait Removable: Policy {
    /// Takes an object out and frees its space; nothing happens if it is not in the cache.
    fn remove(&mut self, id: u32);

    /// Stores an object without a request for it.
    fn write(&mut self, position: u32, id: u32) {
        self.request(position, id);
    }
}

impl<P: Policy> Policy for &mut P {
    fn request(&mut self, position: u32, id: u32) -> bool {
        (**self).request(position, id)
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        (**self).prefetch_cache_lines(ids)
    }
}

impl<P: Removable> Removable for &mut P {
    fn remove(&mut self, id: u32) {
        (**self).remove(id);
    }

    fn write(&mut self, position: u32, id: u32) {
        (**self).write(position, id);
    }
}

/// The weight of an object against the capacity.
pub(crate) trait Weights: Copy {
    /// The weight of an object, at least 1.
    fn of(self, id: u32) -> u64;
}

/// Every object counts 1.
#[derive(Clone, Copy)]
pub(crate) struct UnitWeights;

impl Weights for UnitWeights {
    #[inline]
    fn of(self, _: u32) -> u64 {
        1
    }
}

/// An object counts its bytes.
#[derive(Clone, Copy)]
pub(crate) struct ByteWeights<'a>(pub(crate) &'a [u32]);

impl Weights for ByteWeights<'_> {
    #[inline]
    fn of(self, id: u32) -> u64 {
        self.0[id as usize].into()
    }
}

/// How many objects fit, at least 1; in bytes this is an estimate from the mean object size of the trace.
fn fitting_objects<W: Weights>(weights: W, object_count: usize, capacity: u64) -> f64 {
    let total_weight: u64 = (0..object_count as u32).map(|id| weights.of(id)).sum();
    (capacity as f64 * object_count as f64 / total_weight.max(1) as f64).max(1.0)
}

/// A share of a capacity, at least 1.
fn capacity_share(capacity: u64, fraction: f64) -> u64 {
    ((capacity as f64 * fraction) as u64).max(1)
}
