//! What others do between an operation's look at a key and its publication, one case after the other.

use std::sync::Arc;

use crate::attempts::Attempts;
use crate::item::bits;
use crate::log::Unique;
use crate::request::{
    CasUnique, DeleteOptions, Expiry, GetOptions, KeyHash, Seconds, SetOptions, SetOutcome,
};
use crate::write::{Change, Found, New, Part, Swap};
use crate::{Config, Store, Worker};

const NOW: Seconds = Seconds(10);
const KEY: &[u8] = b"key";

fn store() -> Arc<Store> {
    let config = Config {
        memory_bytes: 2 << 20,
        ..Config::default()
    };
    Store::new(config).unwrap()
}

fn worker(store: &Arc<Store>) -> Worker {
    let mut worker = store.worker();
    worker.go_online();
    worker
}

fn hash(worker: &Worker) -> KeyHash {
    worker.store().hash(KEY)
}

fn set(worker: &Worker) -> CasUnique {
    match worker.set(KEY, hash(worker), b"5", &SetOptions::default(), NOW) {
        SetOutcome::Stored(unique) => unique,
        other => panic!("{other:?}"),
    }
}

fn look(worker: &Worker) -> Found {
    worker.look(KEY, hash(worker), &Attempts::default(), NOW)
}

fn is_readable(worker: &Worker) -> bool {
    worker.get(KEY, hash(worker), NOW).is_some()
}

fn touched(worker: &Worker, found: &Found) -> Swap {
    let old = found.present.unwrap();
    let change = Change {
        expiry: Expiry::At(Seconds(500)),
        unique: Unique::Exactly(worker.store().unique_of(&old)),
        marks: 0,
        keeps: bits::MARKS,
        is_use: true,
    };
    worker.rewrite(KEY, hash(worker), found, &old, change, NOW)
}

fn replaced(worker: &Worker, found: &Found, keeps: u16) -> Swap {
    let new = New {
        flags: 0,
        expiry: Expiry::Never,
        unique: worker.above(found),
        marks: bits::STALE,
        keeps,
        access: NOW,
        parts: &[Part::Bytes(b"6")],
        is_growing: false,
    };
    worker.swap(KEY, hash(worker), found, &new, NOW)
}

#[test]
fn a_copy_of_an_item_that_was_flushed_meanwhile_is_not_published() {
    let store = store();
    let worker = worker(&store);
    for publish in [touched as fn(&Worker, &Found) -> Swap, |worker, found| {
        replaced(worker, found, 0)
    }] {
        set(&worker);
        let found = look(&worker);
        store.flush(NOW, NOW);
        assert_eq!(publish(&worker, &found), Swap::Changed);
        assert!(!is_readable(&worker));
    }
}

#[test]
fn what_replaces_an_item_that_was_dead_is_published_whatever_its_generation() {
    let store = store();
    let worker = worker(&store);
    set(&worker);
    store.flush(NOW, NOW);
    let found = look(&worker);
    store.flush(NOW, NOW);
    assert!(matches!(replaced(&worker, &found, 0), Swap::Done { .. }));
    assert!(is_readable(&worker));
}

#[test]
fn a_win_that_is_sent_before_a_stale_write_is_published_stays_sent() {
    let store = store();
    let worker = worker(&store);
    let unique = set(&worker);
    let invalidate = DeleteOptions {
        invalidate: true,
        ..DeleteOptions::default()
    };
    worker.delete(KEY, hash(&worker), &invalidate, NOW);
    let found = look(&worker);
    let wins = || {
        let options = GetOptions {
            may_win: true,
            ..GetOptions::default()
        };
        let (_, lease) = worker.get_with(KEY, hash(&worker), &options, NOW).unwrap();
        lease.won
    };
    let options = SetOptions {
        compare: Some(unique),
        invalidate: true,
        ..SetOptions::default()
    };
    let copy = worker.compare(&found.present.unwrap(), &options).unwrap();
    assert!(wins());
    assert!(matches!(
        worker.overwrite(
            KEY,
            hash(&worker),
            &found,
            &[Part::Bytes(b"6")],
            &options,
            copy,
            NOW
        ),
        Swap::Done { .. }
    ));
    assert!(!wins(), "two clients were told to refill");
}

#[test]
fn a_unique_that_was_told_does_not_come_back_after_a_delete_and_a_set_by_another_worker() {
    let store = store();
    let (older, newer) = (worker(&store), worker(&store));
    // Each opens a segment with its first write: those of `newer` give the larger uniques.
    older.set(b"a", store.hash(b"a"), b"1", &SetOptions::default(), NOW);
    newer.set(b"b", store.hash(b"b"), b"1", &SetOptions::default(), NOW);
    let mut told = std::collections::HashSet::new();
    for _ in 0..20 {
        assert!(told.insert(set(&newer)));
        for _ in 0..20 {
            assert!(told.insert(set(&older)));
        }
        newer.delete(KEY, hash(&newer), &DeleteOptions::default(), NOW);
    }
}

#[test]
fn a_unique_that_a_client_chose_is_followed_by_larger_ones_for_that_key_alone() {
    let store = store();
    let worker = worker(&store);
    for chosen in [1 << 50, u64::MAX - 1, u64::MAX] {
        let options = SetOptions {
            new_unique: Some(CasUnique(chosen)),
            ..SetOptions::default()
        };
        worker.set(KEY, hash(&worker), b"5", &options, NOW);
        assert_eq!(set(&worker).0, chosen.wrapping_add(1).max(1));
        let other = worker.set(b"b", store.hash(b"b"), b"1", &SetOptions::default(), NOW);
        assert!(matches!(other, SetOutcome::Stored(unique) if unique.0 < 1 << 40));
    }
}
