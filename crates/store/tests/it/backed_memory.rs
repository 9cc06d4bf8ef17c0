//! Memory backed ahead of the writers: a huge page's worth, once something was written, inside the limit.

use std::sync::Arc;

use glasscache_store::{Config, Seconds, SetOptions, SetOutcome, Store, Worker};

const NOW: Seconds = Seconds(2);
const MEMORY_BYTES: u64 = 64 << 20;
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Four segments, which eviction keeps free for one worker.
const RESERVE_BYTES: u64 = 4 << 17;
const VALUE_BYTES: usize = 4_000;

fn new_store_and_worker(memory_bytes: u64) -> (Arc<Store>, Worker) {
    let config = Config { memory_bytes, workers: 1, ..Config::default() };
    let store = Store::new(config).unwrap();
    let mut worker = store.worker();
    worker.go_online();
    (store, worker)
}

/// Stores an item under a key of its own.
fn set(worker: &mut Worker, number: usize) {
    let key = format!("key:{number}").into_bytes();
    let (hash, options) = (worker.store().hash(&key), SetOptions::default());
    let outcome = worker.set(&key, hash, &[7; VALUE_BYTES], &options, NOW);
    assert!(matches!(outcome, SetOutcome::Stored(_)), "{outcome:?}");
    worker.pass();
}

/// Backs memory as needed and returns the number of ready bytes.
fn back_all_needed(store: &Store) -> u64 {
    while store.back_memory_ahead() {}
    assert!(!store.needs_backing());
    store.counters().ready_bytes
}

fn taken_bytes(store: &Store) -> u64 {
    let counters = store.counters();
    counters.segment_bytes + counters.index_bytes + counters.ghost_bytes
}

#[test]
fn a_written_store_has_a_huge_page_ready_and_an_empty_one_nothing() {
    let (store, mut worker) = new_store_and_worker(MEMORY_BYTES);
    assert!(!store.needs_backing());
    assert_eq!(back_all_needed(&store), 0);
    set(&mut worker, 0);
    assert!(store.needs_backing());
    assert_eq!(back_all_needed(&store), HUGE_PAGE_BYTES);
}

#[test]
fn writes_take_ready_memory_before_unused_memory() {
    let (store, mut worker) = new_store_and_worker(MEMORY_BYTES);
    set(&mut worker, 0);
    back_all_needed(&store);
    let mut refills = 0;
    for number in 1..5_000 {
        let (taken_before, ready_before) = (taken_bytes(&store), store.counters().ready_bytes);
        set(&mut worker, number);
        let (taken_after, ready_after) = (taken_bytes(&store), store.counters().ready_bytes);
        assert_eq!(taken_after - taken_before, ready_before - ready_after, "at {number}");
        assert_eq!(store.needs_backing(), ready_after < HUGE_PAGE_BYTES);
        refills += u32::from(store.needs_backing());
        assert_eq!(back_all_needed(&store), HUGE_PAGE_BYTES);
    }
    assert!(refills > 100, "{refills} times");
    store.audit(&[&worker]);
}

#[test]
fn ready_memory_is_inside_the_limit_and_returned_first_when_it_falls() {
    let (store, mut worker) = new_store_and_worker(MEMORY_BYTES);
    set(&mut worker, 0);
    assert_eq!(back_all_needed(&store), HUGE_PAGE_BYTES);
    store.set_memory(1 << 20).unwrap();
    assert!(back_all_needed(&store) < HUGE_PAGE_BYTES);
    store.set_memory(MEMORY_BYTES).unwrap();
    assert_eq!(back_all_needed(&store), HUGE_PAGE_BYTES);
    let mut number = 1;
    while store.counters().evictions == 0 {
        set(&mut worker, number);
        back_all_needed(&store);
        number += 1;
    }
    let ready_bytes = back_all_needed(&store);
    let bytes_max = MEMORY_BYTES + MEMORY_BYTES / 8 + RESERVE_BYTES;
    assert!(taken_bytes(&store) + ready_bytes <= bytes_max);
    assert!(ready_bytes <= RESERVE_BYTES, "{ready_bytes}");
}

#[test]
fn a_store_without_huge_pages_backs_nothing_ahead() {
    let (store, mut worker) = new_store_and_worker(8 << 20);
    for number in 0..1_000 {
        set(&mut worker, number);
        assert_eq!(back_all_needed(&store), 0);
    }
}
