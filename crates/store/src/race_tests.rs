//! Races: what other workers do between the lookup of an operation and its publication, one case per test.

use std::sync::Arc;

use crate::chain::ValuePart;
use crate::item::bits;
use crate::open_segments::UniqueSource;
use crate::request::{
    CasUnique, DeleteOptions, Expiry, GetOptions, KeyHash, Seconds, SetOptions, SetOutcome,
};
use crate::set::SetOperation;
use crate::write::{CopyChanges, NewCopy, PublishedCopy, RetryReason, WriteOperation};
use crate::{Config, Store, Worker};

const NOW: Seconds = Seconds(10);
const KEY: &[u8] = b"key";

fn new_store() -> Arc<Store> {
    let config = Config { memory_bytes: 2 << 20, ..Config::default() };
    Store::new(config).unwrap()
}

fn new_worker(store: &Arc<Store>) -> Worker {
    let mut worker = store.worker();
    worker.go_online();
    worker
}

fn key_hash(worker: &Worker) -> KeyHash {
    worker.store().hash(KEY)
}

fn set_key(worker: &Worker) -> CasUnique {
    match worker.set(KEY, key_hash(worker), b"5", &SetOptions::default(), NOW) {
        SetOutcome::Stored(unique) => unique,
        other => panic!("{other:?}"),
    }
}

/// An operation on the key after its lookup.
fn begin_write(worker: &Worker) -> WriteOperation<'_> {
    let mut write = worker.new_write(KEY, key_hash(worker), NOW);
    write.look_up();
    write
}

fn is_readable(worker: &Worker) -> bool {
    worker.get(KEY, key_hash(worker), NOW).is_some()
}

fn publish_touch(write: &WriteOperation<'_>) -> Result<PublishedCopy, RetryReason> {
    let old = write.found.present.unwrap();
    let changes = CopyChanges {
        expiry: Expiry::At(Seconds(500)),
        unique_source: UniqueSource::Exactly(write.store().unique_of(&old)),
        state_bits: 0,
        inherited_bits: bits::COPIED_MARKS,
        counts_as_access: true,
    };
    write.rewrite(&old, changes)
}

fn publish_replacement(write: &WriteOperation<'_>) -> Result<PublishedCopy, RetryReason> {
    let new_copy = NewCopy {
        flags: 0,
        expiry: Expiry::Never,
        unique_source: write.unique_source(None),
        state_bits: bits::STALE,
        inherited_bits: 0,
        last_access: NOW,
        parts: &[ValuePart::Bytes(b"6")],
        is_growing: false,
        is_same_item: false,
    };
    write.publish(&new_copy)
}

#[test]
fn a_copy_of_an_item_that_was_flushed_meanwhile_is_not_published() {
    let store = new_store();
    let worker = new_worker(&store);
    for publish in [publish_touch, publish_replacement] {
        set_key(&worker);
        let write = begin_write(&worker);
        store.flush(NOW, NOW);
        assert_eq!(publish(&write), Err(RetryReason::Changed));
        assert!(!is_readable(&worker));
    }
}

#[test]
fn a_copy_of_an_item_whose_prefix_was_flushed_meanwhile_is_not_published() {
    let store = new_store();
    let worker = new_worker(&store);
    for publish in [publish_touch, publish_replacement] {
        set_key(&worker);
        let write = begin_write(&worker);
        store.flush_prefix(b"ke", NOW).unwrap();
        assert_eq!(publish(&write), Err(RetryReason::Changed));
        assert!(!is_readable(&worker));
    }
}

#[test]
fn a_copy_of_an_item_is_published_though_another_prefix_was_flushed_meanwhile() {
    let store = new_store();
    let worker = new_worker(&store);
    for publish in [publish_touch, publish_replacement] {
        set_key(&worker);
        let write = begin_write(&worker);
        store.flush_prefix(b"other", NOW).unwrap();
        assert!(publish(&write).is_ok());
        assert!(is_readable(&worker));
    }
}

#[test]
fn an_item_is_not_copied_to_a_segment_that_a_flush_of_its_prefix_closed() {
    let store = new_store();
    let (older, newer) = (new_worker(&store), new_worker(&store));
    // The older worker's segment is open since before the flush, and stays open for other keys.
    older.set(b"other", store.hash(b"other"), b"1", &SetOptions::default(), NOW);
    store.flush_prefix(KEY, NOW).unwrap();
    older.set(b"other", store.hash(b"other"), b"2", &SetOptions::default(), NOW);
    set_key(&newer);
    let write = begin_write(&older);
    assert!(publish_touch(&write).is_ok());
    assert!(is_readable(&newer));
}

#[test]
fn a_replacement_of_a_dead_item_is_published_for_any_generation() {
    let store = new_store();
    let worker = new_worker(&store);
    set_key(&worker);
    store.flush(NOW, NOW);
    let write = begin_write(&worker);
    store.flush(NOW, NOW);
    assert!(publish_replacement(&write).is_ok());
    assert!(is_readable(&worker));
}

#[test]
fn a_win_that_is_sent_before_a_stale_write_is_published_stays_sent() {
    let store = new_store();
    let worker = new_worker(&store);
    let unique = set_key(&worker);
    let invalidate_options = DeleteOptions { invalidate: true, ..DeleteOptions::default() };
    worker.delete(KEY, key_hash(&worker), &invalidate_options, NOW);
    let write = begin_write(&worker);
    let client_wins = || {
        let options = GetOptions { may_win: true, ..GetOptions::default() };
        let (_, lease) = worker.get_with(KEY, key_hash(&worker), &options, NOW).unwrap();
        lease.won
    };
    let options =
        SetOptions { required_cas: Some(unique), invalidate: true, ..SetOptions::default() };
    let stale_set = SetOperation { value_parts: &[ValuePart::Bytes(b"6")], options: &options };
    let overwrite = stale_set.decide_overwrite(&write, &write.found.present.unwrap()).unwrap();
    assert!(client_wins());
    assert!(stale_set.overwrite(&write, overwrite).is_ok());
    assert!(!client_wins(), "two clients won the right to store the item again");
}

#[test]
fn an_exposed_unique_does_not_return_after_a_delete_and_a_set_by_another_worker() {
    let store = new_store();
    let (older, newer) = (new_worker(&store), new_worker(&store));
    // Each opens a segment with its first write: those of `newer` give the larger uniques.
    older.set(b"a", store.hash(b"a"), b"1", &SetOptions::default(), NOW);
    newer.set(b"b", store.hash(b"b"), b"1", &SetOptions::default(), NOW);
    let mut earlier_uniques = std::collections::HashSet::new();
    for _ in 0..20 {
        assert!(earlier_uniques.insert(set_key(&newer)));
        for _ in 0..20 {
            assert!(earlier_uniques.insert(set_key(&older)));
        }
        newer.delete(KEY, key_hash(&newer), &DeleteOptions::default(), NOW);
    }
}

#[test]
fn a_unique_that_a_client_chose_is_followed_by_larger_ones_for_that_key_alone() {
    let store = new_store();
    let worker = new_worker(&store);
    for chosen in [1 << 50, u64::MAX - 1, u64::MAX] {
        let options = SetOptions { new_unique: Some(CasUnique(chosen)), ..SetOptions::default() };
        worker.set(KEY, key_hash(&worker), b"5", &options, NOW);
        assert_eq!(set_key(&worker).0, chosen.wrapping_add(1).max(1));
        let other = worker.set(b"b", store.hash(b"b"), b"1", &SetOptions::default(), NOW);
        assert!(matches!(other, SetOutcome::Stored(unique) if unique.0 < 1 << 40));
    }
}
