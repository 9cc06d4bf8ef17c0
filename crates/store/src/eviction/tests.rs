//! The cost of choosing a victim among very many segments, counted in segments examined.

use std::sync::Arc;

use super::choose::SweepReason;
use super::sweep::{RecordOutcome, Sweep};
use crate::{
    Config, DeleteOptions, PolicyKind, Seconds, SetMode, SetOptions, SetOutcome, Store, Worker,
};

/// 65,536 segments, as a store of 64 GiB has, of 1 KiB each.
const MEMORY_BYTES: u64 = 64 << 20;
const SEGMENT_SHIFT: u32 = 10;
/// A choice examines the first in each of five orders, in one of them eight.
const EXAMINED_PER_CHOICE_MAX: u64 = 13;
const NOW: Seconds = Seconds(2);

fn new_store(evict: bool) -> Arc<Store> {
    let config = Config { memory_bytes: MEMORY_BYTES, evict, workers: 1, ..Config::default() };
    Store::with_segments(config, PolicyKind::default(), SEGMENT_SHIFT).unwrap()
}

/// Sets `key{number}` to 200 bytes.
fn set(worker: &mut Worker, number: u64) -> SetOutcome {
    let key = format!("key{number}");
    let hash = worker.store().hash(key.as_bytes());
    let options = SetOptions::default();
    let outcome = worker.set(key.as_bytes(), hash, &[b'v'; 200], &options, NOW);
    worker.pass();
    outcome
}

#[test]
fn choosing_among_65536_segments_examines_a_few_when_all_are_full() {
    let store = new_store(true);
    let mut worker = store.worker();
    let mut number = 0;
    while store.counters().evictions == 0 {
        set(&mut worker, number);
        number += 1;
        assert!(number < 1 << 20, "nothing was evicted");
    }
    assert!(store.segments.usage.in_use() >= 65_000);
    let (examined_before, evictions_before) =
        (store.segments.ranking.examined(), store.counters().evictions);
    let writes = 2_000;
    for new_number in number..number + writes {
        assert!(matches!(set(&mut worker, new_number), SetOutcome::Stored(_)));
    }
    let examined = store.segments.ranking.examined() - examined_before;
    let evictions = store.counters().evictions - evictions_before;
    eprintln!("{writes} sets, {evictions} evictions, {examined} segments examined");
    assert!(evictions > writes / 2);
    // A segment has three or four of these items, so less than one is chosen for each.
    assert!(examined <= writes * EXAMINED_PER_CHOICE_MAX, "{examined} examined");
}

#[test]
fn a_full_store_without_eviction_searches_for_a_victim_once_and_not_at_every_write() {
    let store = new_store(false);
    let mut worker = store.worker();
    let mut number = 0;
    while matches!(set(&mut worker, number), SetOutcome::Stored(_)) {
        number += 1;
        assert!(number < 1 << 20, "never full");
    }
    assert!(store.segments.usage.in_use() >= 65_000);
    let examined_before = store.segments.ranking.examined();
    let writes = 2_000;
    // Keys that were never stored: a refused set of an existing one would remove its value.
    for new_number in number + 1..=number + writes {
        assert_eq!(set(&mut worker, new_number), SetOutcome::NoMemory);
    }
    let examined = store.segments.ranking.examined() - examined_before;
    eprintln!("{writes} sets refused, {examined} segments examined");
    assert!(examined <= EXAMINED_PER_CHOICE_MAX, "{examined} examined");
}

#[test]
fn a_segment_that_becomes_free_is_found_after_an_empty_choice() {
    let store = new_store(false);
    let mut worker = store.worker();
    let mut stored_count = 0;
    while matches!(set(&mut worker, stored_count), SetOutcome::Stored(_)) {
        stored_count += 1;
    }
    // The first eighth is removed, and with it whole segments; then every second item, so that the others are worth
    // compacting.
    for number in (0..stored_count / 8).chain((stored_count / 8..stored_count).step_by(2)) {
        let key = format!("key{number}");
        let hash = store.hash(key.as_bytes());
        worker.delete(key.as_bytes(), hash, &DeleteOptions::default(), NOW);
        worker.pass();
    }
    for number in stored_count..stored_count + stored_count / 4 {
        let outcome = set(&mut worker, number);
        assert!(
            matches!(outcome, SetOutcome::Stored(_)),
            "after {} of {stored_count}: {outcome:?}, {:?}",
            number - stored_count,
            store.counters()
        );
    }
    let audit = store.audit(&[&worker]);
    assert_eq!(audit.total(), store.arena().segment_count() << SEGMENT_SHIFT);
}

#[test]
fn a_slice_of_a_sweep_moves_no_more_pieces_of_a_large_value_than_it_may_write() {
    const PIECE_BYTES: usize = 8 << 10;
    let config = Config { item_bytes_max: 16 << 20, workers: 1, ..Config::default() };
    let store = Store::with_segments(config, PolicyKind::default(), 20).unwrap();
    let mut worker = store.worker();
    let append = SetOptions { mode: SetMode::Append, ..SetOptions::default() };
    // Two values that grow alternately share their segments; when one is removed, half of each segment is worth
    // moving.
    for round in 0..400 {
        for key in [b"one", b"two"] {
            let options = if round == 0 { SetOptions::default() } else { append };
            let outcome = worker.set(key, store.hash(key), &[b'v'; PIECE_BYTES], &options, NOW);
            assert!(matches!(outcome, SetOutcome::Stored(_)));
            worker.pass();
        }
    }
    worker.delete(b"two", store.hash(b"two"), &DeleteOptions::default(), NOW);
    let view = store.segments.candidates(NOW.0, 0).emptiest.unwrap();
    assert!(store.segments.start_sweep(view.id));
    let mut sweep = Sweep::new(&view, SweepReason::Compact);
    let count_moved_items = || store.counters().moved_items;
    let (moved_at_start, mut moved_per_slice_max) = (count_moved_items(), 0);
    for _ in 0..40 {
        let moved_before = count_moved_items();
        assert!(
            worker.sweeper.sweep_slice(worker.context(NOW), &mut sweep, &mut 1024)
                == RecordOutcome::Continue
        );
        moved_per_slice_max = moved_per_slice_max.max(count_moved_items() - moved_before);
    }
    eprintln!(
        "{} pieces moved, {moved_per_slice_max} at most in one slice",
        count_moved_items() - moved_at_start
    );
    assert!(count_moved_items() - moved_at_start > 10);
    // Each is larger than the slice may write.
    assert!(moved_per_slice_max <= 1, "{moved_per_slice_max} pieces in one slice");
    store.segments.end_sweep(view.id);
    let hash = store.hash(b"one");
    let item = worker.get(b"one", hash, NOW).unwrap();
    let value_bytes: usize = item.pieces().map(<[u8]>::len).sum();
    assert_eq!(value_bytes, 400 * PIECE_BYTES);
}
