//! Flushes of prefixes through the public functions of the store: which items die, what each operation then finds, that
//! their memory comes back within one pass of the log, and what happens with too many prefixes.

use std::sync::Arc;

use glasscache_store::{
    ArithOptions, ArithOutcome, CasUnique, Config, DeleteOptions, DeleteOutcome, Error, Expiry,
    GetOptions, Listing, NoRoomYet, Seconds, SetMode, SetOptions, SetOutcome, Store, Worker,
};

const NOW: Seconds = Seconds(10);
const PREFIXES_MAX: usize = 65_536;

fn new_store_and_worker(memory_bytes: u64) -> (Arc<Store>, Worker) {
    let store = Store::new(Config { memory_bytes, workers: 1, ..Config::default() }).unwrap();
    let mut worker = store.worker();
    worker.go_online();
    (store, worker)
}

fn set_with(worker: &Worker, key: &str, value: &[u8], options: SetOptions) -> SetOutcome {
    let hash = worker.store().hash(key.as_bytes());
    worker.set(key.as_bytes(), hash, value, &options, NOW)
}

fn set(worker: &Worker, key: &str) -> CasUnique {
    match set_with(worker, key, b"5", SetOptions::default()) {
        SetOutcome::Stored(unique) => unique,
        other => panic!("{other:?}"),
    }
}

fn is_readable(worker: &Worker, key: &str) -> bool {
    let hash = worker.store().hash(key.as_bytes());
    let hint = worker.prefetch_item(hash, worker.prefetch_bucket(hash));
    let is_minimal = worker.get_minimal_item_value(key.as_bytes(), hash, hint, NOW).is_some();
    let is_found = worker.get(key.as_bytes(), hash, NOW).is_some();
    assert!(is_found || !is_minimal, "{key}");
    is_found
}

#[test]
fn items_under_the_prefix_are_gone_and_all_others_stay() {
    let (store, worker) = new_store_and_worker(8 << 20);
    let keys = ["a", "a:", "a:1", "a:b:1", "b:1", "b:a:", "A:1", "aa:1"];
    for key in keys {
        set(&worker, key);
    }
    store.flush_prefix(b"a:", NOW).unwrap();
    for key in keys {
        assert_eq!(is_readable(&worker, key), !key.starts_with("a:"), "{key}");
    }
    assert_eq!(store.counters().misses_flushed, 3);
}

#[test]
fn what_is_set_after_the_flush_stays_until_the_next_one() {
    let (store, worker) = new_store_and_worker(8 << 20);
    for _ in 0..3 {
        set(&worker, "a:1");
        assert!(is_readable(&worker, "a:1"));
        store.flush_prefix(b"a:", NOW).unwrap();
        assert!(!is_readable(&worker, "a:1"));
    }
    set(&worker, "a:1");
    store.flush_prefix(b"b:", NOW).unwrap();
    assert!(is_readable(&worker, "a:1"));
    store.flush(NOW, NOW);
    assert!(!is_readable(&worker, "a:1"));
    set(&worker, "a:1");
    assert!(is_readable(&worker, "a:1"));
    assert_eq!(store.flushed_prefixes(), 2);
}

#[test]
fn every_operation_takes_a_flushed_item_for_missing() {
    let (store, worker) = new_store_and_worker(8 << 20);
    let key = "a:1";
    let hash = store.hash(key.as_bytes());
    let unique = set(&worker, key);
    let set_and_flush = || {
        set(&worker, key);
        store.flush_prefix(b"a:", NOW).unwrap();
    };
    let with_mode = |mode| SetOptions { mode, ..SetOptions::default() };
    for mode in [SetMode::Replace, SetMode::Append, SetMode::Prepend] {
        set_and_flush();
        let outcome = set_with(&worker, key, b"7", with_mode(mode));
        assert_eq!(outcome, SetOutcome::NotStored, "{mode:?}");
    }
    set_and_flush();
    let compare_and_swap = SetOptions { required_cas: Some(unique), ..SetOptions::default() };
    assert_eq!(set_with(&worker, key, b"7", compare_and_swap), SetOutcome::NotFound);
    set_and_flush();
    let arith = worker.arith(key.as_bytes(), hash, &ArithOptions::default(), NOW);
    assert_eq!(arith, ArithOutcome::NotFound);
    set_and_flush();
    let touch = GetOptions { touch: Some(Expiry::Never), ..GetOptions::default() };
    assert!(worker.get_with(key.as_bytes(), hash, &touch, NOW).is_none());
    set_and_flush();
    let delete = worker.delete(key.as_bytes(), hash, &DeleteOptions::default(), NOW);
    assert_eq!(delete, DeleteOutcome::NotFound);
    set_and_flush();
    let added = set_with(&worker, key, b"7", with_mode(SetMode::Add));
    assert!(matches!(added, SetOutcome::Stored(new_unique) if new_unique > unique));
}

#[test]
fn a_listing_shows_no_flushed_item() {
    let (store, worker) = new_store_and_worker(8 << 20);
    for number in 0..1000 {
        set(&worker, &format!("a:{number}"));
        set(&worker, &format!("b:{number}"));
    }
    store.flush_prefix(b"a:", NOW).unwrap();
    let mut listing = Listing::new(1, store.counters().items);
    let mut listed_count = 0;
    let mut visit = |item: &glasscache_store::Item<'_>| {
        assert!(item.key().starts_with(b"b:"));
        listed_count += 1;
    };
    while worker.list(&mut listing, 100, NOW, &mut visit).is_some() {}
    assert_eq!(listed_count, 1000);
}

#[test]
fn the_memory_of_flushed_items_comes_back_within_one_pass_of_the_log() {
    const MEMORY_BYTES: u64 = 8 << 20;
    const YOUNG_ITEMS: u64 = MEMORY_BYTES / 500 / 20;
    let (store, mut worker) = new_store_and_worker(MEMORY_BYTES);
    let value = [b'v'; 500];
    let mut number = 0;
    let mut fill = |worker: &mut Worker, prefix: &str, total_bytes: u64| {
        for _ in 0..total_bytes / value.len() as u64 {
            number += 1;
            let key = format!("{prefix}{number}");
            set_with(worker, &key, &value, SetOptions::default());
            // Read when the uses count, so that the policy would rather keep it.
            let older_key = format!("{prefix}{}", number - number.min(YOUNG_ITEMS));
            for _ in 0..3 {
                is_readable(worker, &older_key);
            }
            worker.pass();
        }
    };
    fill(&mut worker, "a:", 2 * MEMORY_BYTES);
    store.flush_prefix(b"a:", NOW).unwrap();
    let before = store.counters();
    fill(&mut worker, "b:", MEMORY_BYTES);
    let after = store.counters();
    let expected_items = MEMORY_BYTES / value.len() as u64 * 9 / 10;
    assert_eq!(after.reclaimed - before.reclaimed, before.items, "some are left");
    assert!(after.items >= expected_items, "{} of {expected_items}", after.items);
    // The new items are swept too, and a few of them are evicted before the last old segment is reached.
    let evicted = after.evictions - before.evictions;
    assert!(evicted <= expected_items / 10, "{evicted} evicted instead of reclaimed");
}

#[test]
fn a_prefix_beyond_the_maximum_is_refused_until_older_ones_concern_no_item() {
    let (store, mut worker) = new_store_and_worker(48 << 20);
    set(&worker, "kept");
    for number in 0..PREFIXES_MAX {
        store.flush_prefix(format!("{number}:").as_bytes(), NOW).unwrap();
    }
    let refused = store.flush_prefix(b"more", NOW);
    assert!(matches!(refused, Err(Error::PrefixesFull(PREFIXES_MAX))));
    store.flush_prefix(b"5:", NOW).expect("it is remembered already");
    // All that was stored before those flushes is gone with its segments.
    store.flush(NOW, NOW);
    store.flush_prefix(b"more", NOW).unwrap();
    assert_eq!(store.flushed_prefixes(), 1);
    set(&worker, "more");
    assert!(is_readable(&worker, "more"));
    worker.pass();
}

/// Flushes a prefix as a server does: what has to wait is retried after a pass of all workers.
fn flush_prefix_with_retries(workers: &mut [Worker], flushing: usize, prefix: &[u8]) {
    for _ in 0..1000 {
        match workers[flushing].try_flush_prefix(prefix, NOW) {
            Ok(outcome) => return outcome.unwrap(),
            Err(NoRoomYet) => {
                for worker in &mut *workers {
                    worker.pass();
                    worker.maintain(NOW);
                }
            }
        }
    }
    panic!("a flush waited without end");
}

#[test]
fn prefixes_never_run_out_although_old_items_stay() {
    for (memory_mib, item_count, evict) in [(1, 100, true), (2, 1000, true), (8, 4000, false)] {
        let config =
            Config { memory_bytes: memory_mib << 20, workers: 2, evict, ..Config::default() };
        let store = Store::new(config).unwrap();
        let mut workers = [store.worker(), store.worker()];
        let options = SetOptions::default();
        for number in 0..item_count {
            let (key, value) = (format!("kept{number}"), [b'v'; 300]);
            let outcome = set_with(&workers[number % 2], &key, &value, options);
            assert!(matches!(outcome, SetOutcome::Stored(_)), "{outcome:?}");
        }
        workers.iter_mut().for_each(Worker::go_offline);
        // More than three times as many as can be remembered, by either worker; each flush is effective.
        for number in 0..4 * PREFIXES_MAX {
            let key = format!("{number}:key");
            let flushing = number / 1000 % 2;
            if number % 500 == 0 {
                set(&workers[flushing], &key);
            }
            flush_prefix_with_retries(&mut workers, flushing, format!("{number}:").as_bytes());
            if number % 500 == 0 {
                assert!(!is_readable(&workers[flushing], &key), "{key}");
            }
            workers[flushing].pass();
            workers[flushing].go_offline();
        }
        let is_kept = |number: &usize| is_readable(&workers[0], &format!("kept{number}"));
        assert_eq!((0..item_count).filter(is_kept).count(), item_count, "{memory_mib} MiB");
        assert_eq!(store.counters().evictions, 0);
    }
}

#[test]
fn a_flushed_item_stays_dead_after_its_prefix_was_forgotten() {
    let (store, mut worker) = new_store_and_worker(1 << 20);
    for number in 0..1000 {
        set(&worker, &format!("gone:{number}"));
        set(&worker, &format!("kept:{number}"));
    }
    store.flush_prefix(b"gone:", NOW).unwrap();
    for number in 0..20_000 {
        flush_prefix_with_retries(
            std::slice::from_mut(&mut worker),
            0,
            format!("{number}:").as_bytes(),
        );
    }
    for number in 0..1000 {
        assert!(!is_readable(&worker, &format!("gone:{number}")));
        assert!(is_readable(&worker, &format!("kept:{number}")));
    }
}

#[test]
fn the_table_of_prefixes_leaves_a_small_store_most_of_its_memory() {
    let (store, mut worker) = new_store_and_worker(2 << 20);
    for number in 0..2000 {
        set_with(&worker, &format!("kept{number}"), &[b'v'; 300], SetOptions::default());
    }
    for number in 0..PREFIXES_MAX {
        flush_prefix_with_retries(
            std::slice::from_mut(&mut worker),
            0,
            format!("{number}:").as_bytes(),
        );
        worker.pass();
    }
    let kept = (0..2000).filter(|number| is_readable(&worker, &format!("kept{number}"))).count();
    assert!(kept >= 1900, "{kept} of 2000");
    assert!(store.counters().buffer_bytes <= (2 << 20) / 8 + (32 << 10));
}

#[test]
fn the_table_of_prefixes_is_inside_the_memory_limit() {
    let (store, _worker) = new_store_and_worker(64 << 20);
    assert_eq!(store.counters().buffer_bytes, 0);
    for number in 0..PREFIXES_MAX {
        store.flush_prefix(format!("{number}:").as_bytes(), NOW).unwrap();
    }
    let table_bytes = store.counters().buffer_bytes;
    assert!((1 << 20..=6 << 20).contains(&table_bytes), "{table_bytes}");
}
