//! The server's own store, in the process: the hits of `serve -m`, with headers, index and segments.
//!
//! The capacity is the whole of `-m`, where the other policies count values alone. A key is sixteen bytes, as a hash
//! written in hex; a miss stores a value of the object's size at once. One worker, no expiry.

use glasscache_store::{Config, DeleteOptions, Seconds, SetOptions, Store, Worker};

use super::{Policy, Removable, Weights};

/// The constant time of the replay: nothing expires.
const NOW: Seconds = Seconds(2);

/// Requests between two maintenance passes, as in a worker's event loop.
const MAINTENANCE_INTERVAL: u32 = 64;

/// The store behind the interface of a policy.
pub(crate) struct ServerStore<W> {
    /// `None` if the memory is too small for a store: then everything misses.
    worker: Option<Worker>,
    value: Vec<u8>,
    weights: W,
}

impl<W: Weights> ServerStore<W> {
    pub(crate) fn new(object_count: usize, weights: W, capacity: u64) -> Self {
        let largest_weight = (0..object_count as u32).map(|id| weights.of(id)).max().unwrap_or(0);
        let config = Config {
            memory_bytes: capacity,
            item_bytes_max: (capacity / 2).min(1 << 30) as u32,
            workers: 1,
            ..Config::default()
        };
        let mut worker = Store::new(config).ok().map(|store| store.worker());
        if let Some(worker) = &mut worker {
            worker.go_online();
        }
        Self { worker, value: vec![b'v'; largest_weight.min(capacity) as usize], weights }
    }
}

impl<W: Weights> Policy for ServerStore<W> {
    fn request(&mut self, position: u32, id: u32) -> bool {
        let Some(worker) = &mut self.worker else {
            return false;
        };
        if position.is_multiple_of(MAINTENANCE_INTERVAL) {
            worker.pass();
            worker.maintain(NOW);
        }
        let key = hex_key(id);
        let hash = worker.store().hash(&key);
        if worker.get(&key, hash, NOW).is_some() {
            return true;
        }
        let value = &self.value[..self.weights.of(id) as usize];
        // A refused value is a miss next time, which is all that matters here.
        let _ = worker.set(&key, hash, value, &SetOptions::default(), NOW);
        false
    }
}

impl<W: Weights> Removable for ServerStore<W> {
    fn remove(&mut self, id: u32) {
        if let Some(worker) = &mut self.worker {
            let key = hex_key(id);
            let hash = worker.store().hash(&key);
            worker.delete(&key, hash, &DeleteOptions::default(), NOW);
        }
    }
}

/// An object's number as sixteen hex digits.
fn hex_key(id: u32) -> [u8; 16] {
    std::array::from_fn(|digit_index| {
        b"0123456789abcdef"[(u64::from(id) >> (60 - 4 * digit_index)) as usize & 15]
    })
}
