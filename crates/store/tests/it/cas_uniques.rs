//! CAS uniques while items are moved: exposed ones stay the same, unexposed ones may only grow.

use std::collections::HashMap;
use std::sync::Arc;

use glasscache_store::{CasUnique, Config, Seconds, SetOptions, SetOutcome, Store, Worker};

const NOW: Seconds = Seconds(2);
/// Keys of each kind whose uniques are compared before and after items were moved. The kinds: stored with the unique
/// exposed, exposed by a read, and unexposed.
const TRACKED_KEYS_PER_KIND: usize = 600;
/// Other keys that are stored in each round, more than fit, so that the tracked items are moved.
const OTHER_KEYS_PER_ROUND: usize = 60_000;

fn new_store() -> Arc<Store> {
    let config = Config { memory_bytes: 2 << 20, ..Config::default() };
    Store::new(config).unwrap()
}

fn set(worker: &Worker, key: &str, options: &SetOptions) -> CasUnique {
    let hash = worker.store().hash(key.as_bytes());
    match worker.set(key.as_bytes(), hash, &[7; 100], options, NOW) {
        SetOutcome::Stored(unique) => unique,
        other => panic!("{key}: {other:?}"),
    }
}

fn unique_of(worker: &Worker, key: &str) -> Option<CasUnique> {
    let hash = worker.store().hash(key.as_bytes());
    worker.get(key.as_bytes(), hash, NOW).map(|item| item.unique())
}

fn read(worker: &Worker, key: &str) {
    worker.get(key.as_bytes(), worker.store().hash(key.as_bytes()), NOW);
}

fn tracked_keys(kind: &str) -> impl Iterator<Item = String> + use<'_> {
    (0..TRACKED_KEYS_PER_KIND).map(move |number| format!("{kind}:{number}"))
}

/// Stores other keys and reads the tracked ones between them, so that the tracked items are moved and not evicted.
fn move_items(worker: &mut Worker, round: usize) {
    let unexposed_options = SetOptions { hides_unique: true, ..SetOptions::default() };
    for number in 0..OTHER_KEYS_PER_ROUND {
        set(worker, &format!("other:{round}:{number}"), &unexposed_options);
        for kind in ["set", "got", "unexposed"] {
            read(worker, &format!("{kind}:{}", number % TRACKED_KEYS_PER_KIND));
        }
        worker.pass();
    }
}

#[test]
fn an_exposed_unique_stays_and_an_unexposed_one_only_grows() {
    let store = new_store();
    let mut worker = store.worker();
    worker.go_online();
    let unexposed_options = SetOptions { hides_unique: true, ..SetOptions::default() };
    let mut exposed_uniques: HashMap<String, CasUnique> = HashMap::new();
    let mut unexposed_uniques: HashMap<String, CasUnique> = HashMap::new();
    for key in tracked_keys("set") {
        exposed_uniques.insert(key.clone(), set(&worker, &key, &SetOptions::default()));
    }
    for key in tracked_keys("got") {
        set(&worker, &key, &unexposed_options);
        exposed_uniques.insert(key.clone(), unique_of(&worker, &key).unwrap());
    }
    for key in tracked_keys("unexposed") {
        unexposed_uniques.insert(key.clone(), set(&worker, &key, &unexposed_options));
    }
    worker.pass();
    for round in 0..2 {
        move_items(&mut worker, round);
        exposed_uniques.retain(|key, unique| {
            let current = unique_of(&worker, key);
            assert!(current.is_none_or(|current| current == *unique), "{key}: {current:?}");
            current.is_some()
        });
    }
    assert!(
        exposed_uniques.len() > TRACKED_KEYS_PER_KIND,
        "{} of the exposed ones are left",
        exposed_uniques.len()
    );
    assert!(store.counters().moved_items > 2 * TRACKED_KEYS_PER_KIND as u64, "nothing was moved");
    let mut grown_count = 0;
    for (key, before) in &unexposed_uniques {
        let current = unique_of(&worker, key);
        assert!(current.is_none_or(|current| current >= *before), "{key}");
        grown_count += usize::from(current > Some(*before));
    }
    assert!(
        grown_count > TRACKED_KEYS_PER_KIND / 2,
        "only {grown_count} unexposed uniques grew: items that are moved need not keep them"
    );
}
