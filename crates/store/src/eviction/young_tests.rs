//! Uses in the young part of the small queue, which do not count.

use std::sync::Arc;

use crate::segments::Queue;
use crate::tuning::PolicySettings;
use crate::{Config, Expiry, GetOptions, PolicyKind, Seconds, SetOptions, Store, Worker};

const NOW: Seconds = Seconds(2);
const VALUE_BYTES: usize = 200;

/// A store of `memory_bytes` in segments of 2^`shift` bytes, and what its policy takes for young.
fn new_worker(memory_bytes: u64, policy: PolicyKind, shift: u32) -> (Worker, u64) {
    let config = Config { memory_bytes, item_bytes_max: 16 << 10, workers: 1, ..Config::default() };
    let store: Arc<Store> = Store::with_segments(config, policy, shift).unwrap();
    let mut worker = store.worker();
    worker.go_online();
    // The index takes its segments.
    set(&mut worker, "first");
    (worker, store.young_bytes())
}

fn set(worker: &mut Worker, key: &str) {
    let hash = worker.store().hash(key.as_bytes());
    worker.set(key.as_bytes(), hash, &[b'v'; VALUE_BYTES], &SetOptions::default(), NOW);
    worker.pass();
}

/// Writes new items of this many bytes together.
fn write(worker: &mut Worker, prefix: &str, bytes: u64) {
    let record_bytes = crate::record_bytes(prefix.len() + 6, VALUE_BYTES as u32) as u64;
    for number in 0..bytes / record_bytes {
        set(worker, &format!("{prefix}{number:06}"));
    }
}

fn read(worker: &Worker, key: &str) {
    assert!(worker.get(key.as_bytes(), worker.store().hash(key.as_bytes()), NOW).is_some());
}

fn frequency(worker: &Worker, key: &str) -> u8 {
    let store = worker.store();
    store.find(key.as_bytes(), store.hash(key.as_bytes())).unwrap().entry.frequency()
}

#[test]
fn a_use_counts_once_enough_was_written_after_the_item() {
    // With many segments in the young part, and with a fraction of one.
    for (memory_bytes, shift) in [(32 << 20, 12), (32 << 20, 16), (1 << 20, 16), (4 << 20, 18)] {
        let (mut worker, young_bytes) = new_worker(memory_bytes, PolicyKind::default(), shift);
        assert_eq!(young_bytes, worker.store().segments.item_bytes_max() / 200);
        set(&mut worker, "item");
        read(&worker, "item");
        write(&mut worker, "a", young_bytes * 8 / 10);
        read(&worker, "item");
        assert_eq!(frequency(&worker, "item"), 0, "{memory_bytes} of {shift}");
        // A part of a segment is counted when it is full.
        write(&mut worker, "b", young_bytes * 3 / 10 + (1 << shift) / 8);
        read(&worker, "item");
        assert_eq!(frequency(&worker, "item"), 1, "{memory_bytes} of {shift}");
    }
}

#[test]
fn a_touch_is_a_use_at_the_age_that_the_item_had_before() {
    let (mut worker, young_bytes) = new_worker(8 << 20, PolicyKind::default(), 16);
    set(&mut worker, "item");
    write(&mut worker, "a", young_bytes * 3 / 2);
    let touch = GetOptions { touch: Some(Expiry::Never), ..GetOptions::default() };
    let hash = worker.store().hash(b"item");
    for _ in 0..2 {
        assert!(worker.get_with(b"item", hash, &touch, NOW).is_some());
        // The second finds the copy that the first has written.
        assert_eq!(frequency(&worker, "item"), 1);
    }
}

#[test]
fn every_use_counts_in_the_main_queue_and_under_other_policies() {
    let (mut worker, _) = new_worker(8 << 20, PolicyKind::S3Fifo, 16);
    set(&mut worker, "item");
    read(&worker, "item");
    assert_eq!(frequency(&worker, "item"), 1);

    let (mut worker, _) = new_worker(1 << 20, PolicyKind::default(), 14);
    set(&mut worker, "item");
    write(&mut worker, "a", 2 << 20);
    let hash = worker.store().hash(b"item");
    assert!(worker.get(b"item", hash, NOW).is_none());
    // The ghost remembers it: it starts in the main queue.
    set(&mut worker, "item");
    let addr = worker.store().find(b"item", hash).unwrap().entry.item_addr();
    assert_eq!(worker.store().queue_of(addr), Queue::Main);
    read(&worker, "item");
    assert_eq!(frequency(&worker, "item"), 1);
}

#[test]
fn a_changed_age_applies_to_segments_that_are_filled_from_then_on() {
    let (mut worker, young_bytes) = new_worker(32 << 20, PolicyKind::default(), 12);
    let store = Arc::clone(worker.store());
    set(&mut worker, "before");
    write(&mut worker, "a", 2 << 12);
    store.set_policy_settings(PolicySettings { skip_percent: 0, ..PolicySettings::DEFAULT });
    write(&mut worker, "b", 2 << 12);
    set(&mut worker, "after");
    for key in ["before", "after"] {
        read(&worker, key);
    }
    // Nothing was rewritten: the segment of the first item still knows its age.
    assert_eq!((frequency(&worker, "before"), frequency(&worker, "after")), (0, 1));
    write(&mut worker, "c", young_bytes);
    read(&worker, "before");
    assert_eq!(frequency(&worker, "before"), 1);
    store.set_policy_settings(PolicySettings::DEFAULT);
    write(&mut worker, "d", 2 << 12);
    set(&mut worker, "last");
    read(&worker, "last");
    assert_eq!(frequency(&worker, "last"), 0);
}
