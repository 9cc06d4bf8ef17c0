//! Keys that all fit are overwritten: nothing may be evicted, and no reader may miss one, whatever is moved
//! meanwhile.
//!
//! Some keys are much hotter than others, so that segments become nearly dead and are emptied while their rest is
//! read. `STRESS_SECONDS` (default 2) is the length.

#![allow(clippy::disallowed_methods, reason = "a stress test lasts for a real time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use glasscache_store::{Config, Item, Seconds, SetOptions, SetOutcome, Store, Worker};

const THREADS: u64 = 3;
const KEYS: u64 = 20_000;
/// Eight times what the keys take: never full.
const AMPLE_MEMORY_BYTES: u64 = 160 << 20;
/// One and a half times: full of overwritten items, soon and from then on.
const TIGHT_MEMORY_BYTES: u64 = 32 << 20;
const VALUE_BYTES: usize = 1000;

fn next_random(random_state: &mut u64) -> u64 {
    *random_state ^= *random_state << 13;
    *random_state ^= *random_state >> 7;
    *random_state ^= *random_state << 17;
    *random_state
}

/// A key number: the product of two is small far more often than large.
fn random_key_number(random_state: &mut u64) -> u64 {
    (next_random(random_state) % KEYS) * (next_random(random_state) % KEYS) / KEYS
}

fn key_name(number: u64) -> Vec<u8> {
    format!("fitting-{number:08}").into_bytes()
}

fn write_key(worker: &mut Worker, number: u64, now: Seconds) {
    let (key, value) = (key_name(number), [number as u8; VALUE_BYTES]);
    let hash = worker.store().hash(&key);
    let outcome = worker.retry(
        |worker| worker.try_set(&key, hash, &value, &SetOptions::default(), now),
        |tries| {
            std::thread::yield_now();
            tries < 100_000
        },
    );
    assert!(matches!(outcome, Ok(SetOutcome::Stored(_))), "key {number}: {outcome:?}");
}

/// Reads up to sixteen keys as the server does, all prefetched before the first is read.
fn read_keys(worker: &Worker, numbers: &[u64], now: Seconds) {
    let keys: Vec<Vec<u8>> = numbers.iter().map(|&number| key_name(number)).collect();
    let store = worker.store();
    let prefetches: Vec<_> =
        keys.iter().map(|key| (store.hash(key), worker.prefetch_bucket(store.hash(key)))).collect();
    let hints: Vec<_> =
        prefetches.iter().map(|&(hash, prefetch)| worker.prefetch_item(hash, prefetch)).collect();
    for ((key, number), ((hash, _), hint)) in
        keys.iter().zip(numbers).zip(prefetches.iter().zip(hints))
    {
        let hint = worker.prefetch_next_line(*hash, hint);
        let item = worker.get_hinted(key, *hash, hint, now);
        let value = item.as_ref().and_then(Item::value);
        let is_right = value.is_some_and(|value| value == [*number as u8; VALUE_BYTES]);
        assert!(is_right, "key {number}: {:?}", value.map(|value| value.first()));
    }
}

fn run_thread(store: &Arc<Store>, seed: u64, started_at: Instant, stop: &AtomicBool) -> u64 {
    let mut worker = store.worker();
    let (mut random_state, mut operations) = (seed, 0);
    while !stop.load(Ordering::Relaxed) {
        let now = Seconds(2 + started_at.elapsed().as_secs() as u32);
        worker.go_online();
        for _ in 0..next_random(&mut random_state) % 40 {
            if next_random(&mut random_state).is_multiple_of(4) {
                write_key(&mut worker, random_key_number(&mut random_state), now);
            } else {
                let key_count = next_random(&mut random_state) % 16 + 1;
                let numbers: Vec<u64> =
                    (0..key_count).map(|_| random_key_number(&mut random_state)).collect();
                read_keys(&worker, &numbers, now);
            }
            worker.pass();
            operations += 1;
        }
        worker.maintain(now);
        worker.go_offline();
    }
    operations
}

/// A store with all keys in it.
fn store_with_all_keys(memory_bytes: u64) -> Arc<Store> {
    let config = Config { memory_bytes, workers: THREADS as usize + 1, ..Config::default() };
    let store = Store::new(config).unwrap();
    let mut worker = store.worker();
    worker.go_online();
    for number in 0..KEYS {
        write_key(&mut worker, number, Seconds(2));
        worker.pass();
    }
    drop(worker);
    store
}

#[test]
fn items_that_fit_are_compacted_and_not_evicted() {
    let store = store_with_all_keys(TIGHT_MEMORY_BYTES);
    let (mut worker, mut random_state) = (store.worker(), 7);
    worker.go_online();
    for _ in 0..200_000 {
        write_key(&mut worker, random_key_number(&mut random_state), Seconds(2));
        worker.pass();
    }
    (0..KEYS).for_each(|number| read_keys(&worker, &[number], Seconds(2)));
    let counters = store.counters();
    assert_eq!(counters.evictions, 0);
    assert!(counters.moved_items > 0, "nothing was moved");
}

#[test]
fn no_key_that_fits_is_ever_missed() {
    let seconds: u64 = std::env::var("STRESS_SECONDS").map_or(2, |text| text.parse().unwrap());
    let store = store_with_all_keys(AMPLE_MEMORY_BYTES);
    let (started_at, stop) = (Instant::now(), AtomicBool::new(false));
    let operations: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=THREADS)
            .map(|seed| {
                scope.spawn({
                    let (store, stop) = (&store, &stop);
                    move || run_thread(store, seed * 0x9e37_79b9, started_at, stop)
                })
            })
            .collect();
        while started_at.elapsed() < Duration::from_secs(seconds)
            && threads.iter().all(|thread| !thread.is_finished())
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let counters = store.counters();
    eprintln!("{operations} operations; {counters:?}");
    assert_eq!(counters.evictions, 0);
    assert!(counters.moved_items > 0, "nothing was moved");
}
