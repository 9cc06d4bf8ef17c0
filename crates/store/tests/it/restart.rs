//! A store in a file across processes: what comes back, what is refused, and what damage does.
//!
//! The file is one in memory, mapped again for each process. The operations are those of the model test.

#![expect(
    clippy::disallowed_methods,
    reason = "recovery in threads, which are those of the caller"
)]
#![allow(
    clippy::needless_pass_by_value,
    clippy::single_match_else,
    reason = "reads as the rules it checks"
)]

mod restartable_store;

use std::collections::HashMap;

use glasscache_store::{
    Config, DeleteOptions, Expiry, GetOptions, Seconds, SetOptions, SetOutcome, Snapshot,
    SnapshotError, Store, UncommittedBytes, Worker,
};

use self::restartable_store::{NOW, RestartableStore, STOP_TIME, config, fill};
use crate::model::map::{Model, Rng, stored_item};
use crate::model::operations::operate;

fn set(worker: &Worker, key: &str, value: &[u8], expiry: Expiry) -> u64 {
    let options = SetOptions { expiry, ..SetOptions::default() };
    let hash = worker.store().hash(key.as_bytes());
    match worker.set(key.as_bytes(), hash, value, &options, NOW) {
        SetOutcome::Stored(unique) => unique.0,
        other => panic!("{key}: {other:?}"),
    }
}

fn get(worker: &Worker, key: &str, now: Seconds) -> Option<Vec<u8>> {
    stored_item(worker, key.as_bytes(), now).map(|(value, ..)| value)
}

#[test]
fn operations_before_and_after_restarts_agree_with_a_map() {
    for seed in 0..6 {
        let memory_bytes = [1 << 20, 32 << 20][seed as usize % 2];
        let mut rng = Rng::from_seed(seed);
        let restartable_store = RestartableStore::new(config(memory_bytes));
        let mut store = restartable_store.make_empty();
        let mut model =
            Model { entries: HashMap::new(), now: Seconds(2), may_evict: memory_bytes < 32 << 20 };
        for _ in 0..6 {
            let mut worker = store.worker();
            worker.go_online();
            for _ in 0..1500 {
                operate(&mut rng, &mut worker, &mut model, (800, 100_000));
                worker.pass();
                if rng.below(50) == 0 {
                    worker.maintain(model.now);
                    model.now.0 += rng.below(4) as u32;
                }
            }
            drop(worker);
            let before = store.counters();
            store = if rng.below(2) == 0 {
                restartable_store.restart(store)
            } else {
                restartable_store.take_over_as(store, config(memory_bytes)).unwrap()
            };
            let (audit, after) = (store.audit(&[]), store.counters());
            assert_eq!(audit.items as u64, before.items);
            assert_eq!(audit.live_bytes as u64, before.item_bytes);
            assert_eq!(
                (after.items, after.user_bytes, after.item_bytes),
                (before.items, before.user_bytes, before.item_bytes)
            );
            assert_eq!(after.by_slab_class, before.by_slab_class);
            assert_eq!(after.items_total, before.items);
            let mut worker = store.worker();
            worker.go_online();
            let keys: Vec<Vec<u8>> = model.entries.keys().cloned().collect();
            for key in keys {
                model.remove_if_evicted(&worker, &key);
                let Some(expected) = model.live_entry(&key).cloned() else {
                    continue;
                };
                let (value, flags, unique, expiry) = stored_item(&worker, &key, model.now).unwrap();
                assert_eq!((value, flags), (expected.value.clone(), expected.flags));
                assert_eq!(expiry, expected.expiry);
                assert!(expected.allows_unique(unique));
                model.read_unique(&worker, &key);
            }
        }
    }
}

#[test]
fn a_handover_leaves_behind_what_is_being_uploaded() {
    let restartable_store = RestartableStore::new(config(8 << 20));
    let store = restartable_store.make_empty();
    let mut worker = store.worker();
    worker.go_online();
    for number in 0..1000 {
        let value = vec![number as u8; number % 90];
        set(&worker, &format!("key:{number}"), &value, Expiry::Never);
        worker.pass();
    }
    let expected = read_values(&store, 1000);
    let before = store.counters();
    let hash = store.hash(b"upload");
    let options = SetOptions::default();
    let reserve = || worker.reserve(b"upload", hash, 300_000, &options, NOW);
    let mut reservation = reserve().ok().unwrap();
    let space = reservation.space(&worker, NOW);
    let space_bytes = space.len();
    space.fill(1);
    reservation.advance(space_bytes);
    assert!(restartable_store.take_over_of_live(&store, &UncommittedBytes::default()).is_none());
    worker.close_segments();
    assert!(restartable_store.take_over_of_live(&store, &UncommittedBytes::default()).is_none());
    let mut uncommitted = UncommittedBytes::default();
    uncommitted.add(&reservation);
    let next = restartable_store.take_over_of_live(&store, &uncommitted).unwrap();
    assert_eq!(next.audit(&[]).items as u64, before.items);
    assert_eq!(next.audit(&[]).live_bytes as u64, before.item_bytes);
    assert_eq!(read_values(&next, 1000), expected);
    drop(next);
    // It was not taken over after all: the upload continues.
    while !reservation.is_complete() {
        let space = reservation.space(&worker, NOW);
        let space_bytes = space.len();
        space.fill(1);
        reservation.advance(space_bytes);
    }
    let outcome = worker.commit(reservation, NOW);
    assert!(matches!(outcome, SetOutcome::Stored(_)));
    assert_eq!(get(&worker, "upload", NOW), Some(vec![1; 300_000]));
    store.audit(&[&worker]);
}

#[test]
fn a_handover_to_other_slab_classes_counts_again_and_to_another_size_is_refused() {
    let restartable_store = RestartableStore::new(config(8 << 20));
    let store = restartable_store.make_empty();
    fill(&store);
    // Reading removes what has expired.
    let expected = read_values(&store, 1000);
    let before = store.counters();
    let other_classes =
        Config { slab_chunk_bytes: vec![100, 1 << 20], workers: 3, ..config(8 << 20) };
    let store = restartable_store.take_over_as(store, other_classes).unwrap();
    let after = store.counters();
    assert_eq!(after.items, before.items);
    assert_eq!(after.by_slab_class.len(), 2);
    assert_eq!(read_values(&store, 1000), expected);
    let refused = restartable_store.take_over_as(store, config(16 << 20));
    assert!(refused.err().unwrap().to_string().contains("(-m)"));
}

#[test]
fn uniques_continue_after_a_handover() {
    let restartable_store = RestartableStore::new(config(8 << 20));
    let mut store = restartable_store.make_empty();
    let mut last_unique = 0;
    for number in 0..5 {
        let mut worker = store.worker();
        worker.go_online();
        let unique = set(&worker, &format!("key:{number}"), b"value", Expiry::Never);
        assert!(unique > last_unique);
        last_unique = unique;
        drop(worker);
        store = restartable_store.take_over_as(store, config(8 << 20)).unwrap();
    }
}

#[test]
fn an_index_of_many_segments_with_overflow_lines_comes_back() {
    let restartable_store = RestartableStore::new(config(8 << 20));
    let store = restartable_store.make_empty();
    let mut worker = store.worker();
    worker.go_online();
    for number in 0..60_000 {
        set(&worker, &format!("key:{number}"), b"value", Expiry::Never);
        worker.pass();
        // Deleted again, so that lines of the index are free.
        if number % 3 == 0 {
            let key = format!("key:{}", number / 2);
            let hash = store.hash(key.as_bytes());
            worker.delete(key.as_bytes(), hash, &DeleteOptions::default(), NOW);
        }
    }
    drop(worker);
    let before = store.counters();
    assert!(before.index_bytes > 20 * (8 << 20) / 512, "{before:?}");
    let snapshot = store.snapshot(STOP_TIME).unwrap();
    let expected: Vec<_> = read_values(&store, 60_000);
    drop(store);
    let store = restartable_store.recover(&snapshot).unwrap();
    assert_eq!(store.audit(&[]).items as u64, before.items);
    assert_eq!(read_values(&store, 60_000), expected);
    assert_eq!(store.counters().index_bytes, before.index_bytes);
    // It grows and shrinks as before.
    let mut worker = store.worker();
    worker.go_online();
    for number in 0..60_000 {
        set(&worker, &format!("key:{number}"), b"other", Expiry::Never);
        worker.pass();
    }
    for number in 0..60_000 {
        let key = format!("key:{number}");
        let hash = store.hash(key.as_bytes());
        worker.delete(key.as_bytes(), hash, &DeleteOptions::default(), NOW);
        worker.pass();
    }
    while worker.maintain(NOW) {
        worker.pass();
    }
    assert_eq!(store.audit(&[&worker]).items, 0);
}

fn read_values(store: &std::sync::Arc<Store>, key_count: usize) -> Vec<Option<Vec<u8>>> {
    let mut worker = store.worker();
    worker.go_online();
    let read_value = |number| get(&worker, &format!("key:{number}"), NOW);
    (0..key_count).map(read_value).collect()
}

#[test]
fn uniques_grow_across_restarts() {
    let restartable_store = RestartableStore::new(config(1 << 20));
    let mut store = restartable_store.make_empty();
    let mut last_unique = 0;
    for round in 0..5 {
        let mut worker = store.worker();
        worker.go_online();
        for number in 0..300 {
            let unique = set(&worker, &format!("{round}:{number}"), b"x", Expiry::Never);
            assert!(unique > last_unique, "{unique} after {last_unique}");
            last_unique = unique;
            worker.pass();
        }
        drop(worker);
        store = restartable_store.restart(store);
    }
}

#[test]
fn flushed_items_stay_flushed_and_a_pending_flush_takes_effect() {
    let restartable_store = RestartableStore::new(config(4 << 20));
    let store = restartable_store.make_empty();
    let mut worker = store.worker();
    worker.go_online();
    for number in 0..2000 {
        let prefix = number % 700;
        set(&worker, &format!("{prefix}:{number}"), b"x", Expiry::Never);
        worker.pass();
    }
    for prefix in 0..699 {
        store.flush_prefix(format!("{prefix}:").as_bytes(), NOW).unwrap();
    }
    set(&worker, "0:again", b"y", Expiry::Never);
    store.flush(Seconds(100), NOW);
    drop(worker);
    let store = restartable_store.restart(store);
    assert_eq!(store.flushed_prefixes(), 699);
    let mut worker = store.worker();
    worker.go_online();
    for number in 0..2000 {
        let prefix = number % 700;
        let value = get(&worker, &format!("{prefix}:{number}"), NOW);
        assert_eq!(value.is_some(), prefix == 699, "{prefix}:{number}");
    }
    assert!(get(&worker, "0:again", Seconds(99)).is_some());
    store.flush_prefix(b"0:a", NOW).unwrap();
    assert_eq!(get(&worker, "0:again", Seconds(99)), None);
    assert!(get(&worker, "699:699", Seconds(99)).is_some());
    assert_eq!(get(&worker, "699:699", Seconds(100)), None);
}

#[test]
fn marks_and_accesses_of_an_item_come_back() {
    let restartable_store = RestartableStore::new(config(1 << 20));
    let store = restartable_store.make_empty();
    let mut worker = store.worker();
    worker.go_online();
    set(&worker, "won", b"x", Expiry::At(Seconds(50)));
    let options = GetOptions { recache_s: Some(60), may_win: true, ..GetOptions::default() };
    let hash = store.hash(b"won");
    let (_, lease) = worker.get_with(b"won", hash, &options, Seconds(7)).unwrap();
    assert!(lease.won);
    drop(worker);
    let store = restartable_store.restart(store);
    let mut worker = store.worker();
    worker.go_online();
    let hash = store.hash(b"won");
    let (item, lease) = worker.get_with(b"won", hash, &options, Seconds(9)).unwrap();
    assert!(lease.already_won && !lease.won);
    assert!(item.was_fetched());
    assert_eq!(item.last_access(), Seconds(7));
    assert_eq!(item.expiry(), Expiry::At(Seconds(50)));
}

#[test]
fn no_snapshot_is_made_while_a_worker_has_an_open_segment() {
    let restartable_store = RestartableStore::new(config(1 << 20));
    let store = restartable_store.make_empty();
    let mut worker = store.worker();
    worker.go_online();
    set(&worker, "key", b"value", Expiry::Never);
    assert!(store.snapshot(STOP_TIME).is_none());
    drop(worker);
    assert!(store.snapshot(STOP_TIME).is_some());
}

#[test]
fn an_upload_that_was_not_committed_is_gone() {
    let restartable_store = RestartableStore::new(config(4 << 20));
    let store = restartable_store.make_empty();
    let mut worker = store.worker();
    worker.go_online();
    set(&worker, "key", b"value", Expiry::Never);
    let hash = store.hash(b"key");
    let options = SetOptions::default();
    let mut upload = worker.reserve(b"key", hash, 300_000, &options, NOW).unwrap();
    let space = upload.space(&worker, NOW).len();
    upload.advance(space);
    drop(upload);
    drop(worker);
    let store = restartable_store.restart(store);
    let audit = store.audit(&[]);
    assert_eq!((audit.items, audit.live_bytes as u64), (1, store.counters().item_bytes));
}

#[test]
fn settings_that_change_the_layout_are_refused_and_others_are_not() {
    let restartable_store = RestartableStore::new(config(2 << 20));
    let store = restartable_store.make_empty();
    fill(&store);
    let snapshot = store.snapshot(STOP_TIME).unwrap();
    let item_count = store.counters().items;
    drop(store);
    let decoded = Snapshot::decode(&snapshot).unwrap();
    assert_eq!(decoded.stop(), STOP_TIME);
    let error = decoded.memory_bytes(&config(4 << 20)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "it was made with 2097152 bytes of memory, now there are 4194304 (-m)"
    );
    for workers in [1, 9] {
        let other_config =
            Config { workers, item_bytes_max: 1 << 19, hash_seed: 99, ..config(2 << 20) };
        let store = restartable_store.recover_as(&snapshot, other_config).unwrap();
        let audit = store.audit(&[]);
        assert_eq!(audit.items as u64, item_count);
    }
}

#[test]
fn other_bytes_another_version_and_damage_are_distinguished() {
    let restartable_store = RestartableStore::new(config(1 << 20));
    let snapshot = restartable_store.make_empty().snapshot(STOP_TIME).unwrap();
    for foreign in [&b""[..], b"GLASSMEM", b"Tmain\nKslab_config 1.25\n"] {
        assert_eq!(Snapshot::decode(foreign), Err(SnapshotError::Foreign));
    }
    let refusal_reason = |bytes: &[u8]| Snapshot::decode(bytes).unwrap_err().to_string();
    let mut other_version = snapshot.clone();
    other_version[8] += 1;
    assert_eq!(refusal_reason(&other_version), "its layout has version 3, this server has 2");
    for cut in 12..snapshot.len() {
        assert_eq!(refusal_reason(&snapshot[..cut]), "it is damaged: its checksum is wrong");
    }
    for offset in 12..snapshot.len() {
        let mut flipped = snapshot.clone();
        flipped[offset] ^= 1;
        assert_eq!(refusal_reason(&flipped), "it is damaged: its checksum is wrong");
    }
}

#[test]
fn a_changed_byte_of_the_memory_is_found() {
    let restartable_store = RestartableStore::new(config(1 << 20));
    let store = restartable_store.make_empty();
    fill(&store);
    let snapshot = store.snapshot(STOP_TIME).unwrap();
    drop(store);
    let mut rng = Rng::from_seed(5);
    let (mut found_count, memory) = (0, restartable_store.read());
    for _ in 0..60 {
        let offset = rng.below(memory.len() as u64 / 4);
        restartable_store.write(offset, &[memory[offset as usize] ^ 0x10]);
        if let Err(error) = restartable_store.recover(&snapshot) {
            let reason = "it is damaged: the checksum of the memory is wrong";
            assert_eq!(error.to_string(), reason);
            found_count += 1;
        }
        restartable_store.write(offset, &[memory[offset as usize]]);
    }
    assert!(found_count > 10, "only {found_count}, the others were in free segments");
    assert!(restartable_store.recover(&snapshot).is_ok());
}

/// Behind the checksums: whatever a byte is changed to, the store is refused or whole, and nothing panics.
#[test]
fn damage_with_right_checksums_is_refused_or_harmless() {
    let restartable_store = RestartableStore::new(config(1 << 20));
    let store = restartable_store.make_empty();
    fill(&store);
    let snapshot = store.snapshot(STOP_TIME).unwrap();
    drop(store);
    let memory = restartable_store.read();
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..1500 {
        let mut rng = Rng::from_seed(seed);
        let is_accepted =
            restartable_store::recover_damaged(&restartable_store, &snapshot, &memory, |bound| {
                rng.below(bound)
            });
        *(if is_accepted { &mut accepted } else { &mut refused }) += 1;
    }
    eprintln!("{accepted} accepted, {refused} refused");
    assert!(accepted > 50 && refused > 50);
}

/// Some have their number of segment wrap around to an existing one.
#[test]
fn an_entry_with_an_address_beyond_the_memory_is_refused() {
    const ADDRESS_BITS: u32 = 48;
    let restartable_store = RestartableStore::new(config(1 << 20));
    let store = restartable_store.make_empty();
    fill(&store);
    let snapshot = store.snapshot(STOP_TIME).unwrap();
    drop(store);
    let memory = restartable_store.read();
    // The first line of the index with an entry: a control word and seven slots.
    let words = memory.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let (slot_index, entry) =
        words.enumerate().find(|(index, word)| index % 8 != 0 && *word != 0).unwrap();
    for bit in memory.len().ilog2() + 1..ADDRESS_BITS {
        let mut damaged = memory.clone();
        damaged[slot_index * 8..][..8].copy_from_slice(&(entry ^ 1 << bit).to_le_bytes());
        let snapshot = Store::with_checksums_of(&snapshot, &damaged).unwrap();
        restartable_store.write(0, &damaged);
        let Err(error) = restartable_store.recover(&snapshot) else {
            panic!("an address with bit {bit} changed was accepted");
        };
        assert!(error.to_string().contains("outside of the items"), "{error}");
    }
}
