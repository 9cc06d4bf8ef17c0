//! What a server holds and misses with a given `-m`: the forecast for memcached and for our own store.
//!
//! Both are replayed: memcached as a model of its slab classes and its LRU, ours as the store itself. The number of items
//! follows from the sizes of all objects of the trace (docs/decisions/lab.md, 0086).

use crate::policy::PolicyKind;
use crate::replay::{PreparedTrace, Task};
use crate::slabs::classes::{PAGE_BYTES, SlabClasses, SlabConfig, head_bytes};
use crate::slabs::demand::Demand;
use crate::slabs::plan::{Plan, count_items_in_segments};

/// The fewest pages for each class in use with which the mix of sizes decides how many items a memcached holds: each
/// class gets its first page even beyond -m.
const PAGES_PER_CLASS_MIN: u64 = 2;

/// Bytes of a key in a replay of the server's own store.
const REPLAYED_KEY_BYTES: u32 = 16;

/// The memory in which two lengths of keys are compared.
const COMPARED_BYTES: u64 = 1 << 30;

/// The smallest replay of the server's own store: its lower limit, plus the segments that one worker opens.
pub const SERVER_STORE_BYTES_MIN: u64 = 2 << 20;

/// Forecasts for a trace whose objects count their bytes.
pub struct ServerMemory<'t> {
    trace: &'t PreparedTrace,
    demand: Demand,
    plan: Plan,
    key_bytes: u32,
    /// Memory in a replay over the memory of a server with keys of the requested length.
    memory_scale: f64,
}

impl<'t> ServerMemory<'t> {
    /// Prepares the forecasts for keys of `key_bytes`.
    pub fn new(trace: &'t PreparedTrace, key_bytes: u32) -> Self {
        let demand = count_demand(trace, key_bytes);
        let plan = Plan::new(&SlabClasses::new(&SlabConfig::default()), &demand);
        // The replay has keys of its own length: the same share of the memory is left for values.
        let replayed_items =
            count_items_in_segments(&count_demand(trace, REPLAYED_KEY_BYTES), COMPARED_BYTES);
        let memory_scale =
            count_items_in_segments(&demand, COMPARED_BYTES) as f64 / replayed_items.max(1) as f64;
        Self { trace, demand, plan, key_bytes, memory_scale }
    }

    /// Items of a memcached, of the mix of sizes of the whole trace; `None` where its classes would have a page or two
    /// each, and the mix decides nothing.
    pub fn memcached_items(&self, memory_bytes: u64) -> Option<u64> {
        let pages_min = PAGES_PER_CLASS_MIN * self.plan.used_classes() as u64;
        (memory_bytes >= pages_min * u64::from(PAGE_BYTES))
            .then(|| self.plan.items_that_fit(memory_bytes))
    }

    /// The miss ratio of a memcached, by a replay of its classes and its LRU.
    pub fn memcached_miss_ratio(&self, memory_bytes: u64) -> f64 {
        self.miss_ratio(Task {
            policy: PolicyKind::Memcached { key_bytes: self.key_bytes },
            capacity: memory_bytes,
            seed: 0,
        })
    }

    /// Items of our server.
    pub fn glasscache_items(&self, memory_bytes: u64) -> u64 {
        count_items_in_segments(&self.demand, memory_bytes)
    }

    /// The miss ratio of our server, by a replay in its store.
    pub fn glasscache_miss_ratio(&self, memory_bytes: u64, seed: u64) -> f64 {
        let capacity = (memory_bytes as f64 * self.memory_scale) as u64;
        self.miss_ratio(Task {
            policy: PolicyKind::ServerStore,
            capacity: capacity.max(SERVER_STORE_BYTES_MIN),
            seed,
        })
    }

    fn miss_ratio(&self, task: Task) -> f64 {
        let result = task.run(self.trace, &|| true);
        result.map_or(1.0, |result| result.miss_ratio())
    }
}

/// The chunks that one item for each object needs.
fn count_demand(trace: &PreparedTrace, key_bytes: u32) -> Demand {
    let (config, item_head_bytes) = (SlabConfig::default(), head_bytes(key_bytes, false));
    let mut demand = Demand::default();
    for &size in trace.sizes() {
        demand.add(&config, item_head_bytes, size, 1);
    }
    demand
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::trace::intern::InternedTrace;

    /// 60,000 skewed requests of values of 1,000 bytes.
    fn small_trace() -> PreparedTrace {
        let (mut random, key_count) = (Random::new(3), 20_000_u64);
        let mut draw_id = || random.below(key_count as u32).min(random.below(key_count as u32));
        PreparedTrace::new(InternedTrace {
            ids: (0..60_000).map(|_| draw_id()).collect(),
            keys: (0..key_count).collect(),
            sizes: vec![1_000; key_count as usize],
            ..InternedTrace::default()
        })
    }

    #[test]
    fn more_memory_holds_more_items_and_misses_less_on_both_servers() {
        let trace = small_trace();
        let server_memory = ServerMemory::new(&trace, 20);
        let (small, large) = (4 << 20, 16 << 20);
        assert!(server_memory.memcached_items(small) < server_memory.memcached_items(large));
        assert!(
            server_memory.memcached_miss_ratio(large) < server_memory.memcached_miss_ratio(small)
        );
        assert!(server_memory.glasscache_items(small) < server_memory.glasscache_items(large));
        assert!(
            server_memory.glasscache_miss_ratio(large, 1)
                < server_memory.glasscache_miss_ratio(small, 1)
        );
    }

    #[test]
    fn longer_keys_leave_room_for_fewer_items() {
        let trace = small_trace();
        let items_of_both = |key_bytes| {
            let server_memory = ServerMemory::new(&trace, key_bytes);
            (
                server_memory.memcached_items(8 << 20).unwrap(),
                server_memory.glasscache_items(8 << 20),
            )
        };
        let (memcached_short, glasscache_short) = items_of_both(20);
        let (memcached_long, glasscache_long) = items_of_both(200);
        assert!(memcached_long < memcached_short);
        assert!(glasscache_long < glasscache_short);
    }
}
