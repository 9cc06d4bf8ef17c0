//! Uniques while items are moved: exposed ones stay, others may only grow.

use std::collections::HashMap;
use std::sync::Arc;

use glasscache_store::{CasUnique, Config, Seconds, SetOptions, SetOutcome, Store, Worker};

const NOW: Seconds = Seconds(2);
/// Keys whose uniques are watched.
const WATCHED: usize = 600;
/// Other keys that pass through the memory meanwhile, so that the watched ones are moved.
const OTHER_KEYS_PER_ROUND: usize = 60_000;

fn store() -> Arc<Store> {
    let config = Config {
        memory_bytes: 2 << 20,
        ..Config::default()
    };
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
    worker
        .get(key.as_bytes(), hash, NOW)
        .map(|item| item.unique())
}

fn read(worker: &Worker, key: &str) {
    worker.get(key.as_bytes(), worker.store().hash(key.as_bytes()), NOW);
}

fn watched_keys(kind: &str) -> impl Iterator<Item = String> + use<'_> {
    (0..WATCHED).map(move |number| format!("{kind}:{number}"))
}

/// Sends other keys through the memory and reads the watched ones, so that they are moved and stay.
fn move_items(worker: &mut Worker, round: usize) {
    let hidden = SetOptions {
        hides_unique: true,
        ..SetOptions::default()
    };
    for number in 0..OTHER_KEYS_PER_ROUND {
        set(worker, &format!("passing:{round}:{number}"), &hidden);
        for kind in ["set", "got", "unseen"] {
            read(worker, &format!("{kind}:{}", number % WATCHED));
        }
        worker.pass();
    }
}

#[test]
fn an_exposed_unique_stays_and_a_hidden_one_only_grows() {
    let store = store();
    let mut worker = store.worker();
    worker.go_online();
    let hidden = SetOptions {
        hides_unique: true,
        ..SetOptions::default()
    };
    let mut exposed: HashMap<String, CasUnique> = HashMap::new();
    let mut unseen: HashMap<String, CasUnique> = HashMap::new();
    for key in watched_keys("set") {
        exposed.insert(key.clone(), set(&worker, &key, &SetOptions::default()));
    }
    for key in watched_keys("got") {
        set(&worker, &key, &hidden);
        exposed.insert(key.clone(), unique_of(&worker, &key).unwrap());
    }
    for key in watched_keys("unseen") {
        unseen.insert(key.clone(), set(&worker, &key, &hidden));
    }
    worker.pass();
    for round in 0..2 {
        move_items(&mut worker, round);
        exposed.retain(|key, unique| {
            let now = unique_of(&worker, key);
            assert!(now.is_none_or(|now| now == *unique), "{key}: {now:?}");
            now.is_some()
        });
    }
    assert!(
        exposed.len() > WATCHED,
        "{} of the exposed ones are left",
        exposed.len()
    );
    assert!(
        store.counters().moved_items > 2 * WATCHED as u64,
        "nothing was moved"
    );
    let mut grown = 0;
    for (key, before) in &unseen {
        let now = unique_of(&worker, key);
        assert!(now.is_none_or(|now| now >= *before), "{key}");
        grown += usize::from(now > Some(*before));
    }
    assert!(
        grown > WATCHED / 2,
        "only {grown} moved items spare their uniques"
    );
}
