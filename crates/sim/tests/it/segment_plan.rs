//! The row "glasscache segments" of a slab plan, against a store that is filled with the same items.

use glasscache_sim::slabs::classes::{SlabConfig, head_bytes};
use glasscache_sim::slabs::demand::Demand;
use glasscache_sim::slabs::plan::count_items_in_segments;
use glasscache_store::{Config, Seconds, SetOptions, Store};

const MEMORY_BYTES: u64 = 32 << 20;
const KEY_BYTES: u32 = 20;
const NOW: Seconds = Seconds(2);

/// The size of an item's value: from 40 to below 80 bytes, doubled up to `doublings_max` times, each as often.
fn choose_value_bytes(item: u64, doublings_max: u32) -> u32 {
    let mixed_bits = item.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let doublings = (mixed_bits >> 32) as u32 % (doublings_max + 1);
    (40 << doublings) + (mixed_bits >> 48) as u32 % (40 << doublings)
}

/// Fills a store with twice what fits, and returns how many items were planned and how many it holds.
fn count_planned_and_stored_items(doublings_max: u32) -> (f64, f64) {
    let config = Config { memory_bytes: MEMORY_BYTES, workers: 1, ..Config::default() };
    let store = Store::new(config).unwrap();
    let mut worker = store.worker();
    worker.go_online();
    let (mut demand, longest_value) = (Demand::default(), vec![b'v'; 1 << 13]);
    for item in 0.. {
        if demand.segment_bytes() > 2 * u128::from(MEMORY_BYTES) {
            break;
        }
        let key = format!("{item:020}");
        let value_bytes = choose_value_bytes(item, doublings_max);
        let item_head_bytes = head_bytes(KEY_BYTES, false);
        demand.add(&SlabConfig::default(), item_head_bytes, value_bytes, 1);
        let hash = store.hash(key.as_bytes());
        let value = &longest_value[..value_bytes as usize];
        worker.set(key.as_bytes(), hash, value, &SetOptions::default(), NOW);
        worker.pass();
        worker.maintain(NOW);
    }
    assert!(store.counters().evictions > 0, "the store is not full");
    let planned = count_items_in_segments(&demand, MEMORY_BYTES);
    (planned as f64, store.counters().items as f64)
}

#[test]
fn the_planned_number_of_items_is_that_of_a_full_store() {
    for doublings_max in [0, 3, 6] {
        let (planned, stored) = count_planned_and_stored_items(doublings_max);
        let difference = planned / stored - 1.0;
        eprintln!("up to {} bytes: {difference:+.4}", 80 << doublings_max);
        assert!(difference.abs() < 0.02, "planned {planned}, held {stored}");
    }
}
