//! The store compared with a plain map: random operations and time steps, equal results.
//!
//! While nothing is evicted, results are equal to the byte. Under eviction a hit is always the last write, and keys
//! that the map does not have are never found. After each run the audit counts every byte and every item. The seed
//! of a failure is printed; `MODEL_SEED` repeats it, `MODEL_RUNS` lengthens the search.

#![expect(clippy::disallowed_methods, reason = "the environment repeats a choice of operations")]
#![allow(
    clippy::needless_pass_by_value,
    clippy::single_match_else,
    reason = "reads as the rules it checks"
)]

pub(crate) mod map;
pub(crate) mod operations;

use std::collections::HashMap;

use glasscache_store::tuning::PolicySettings;
use glasscache_store::{Config, Expiry, Item, Listing, PolicyKind, Seconds, Store, Worker};

use map::{Model, Rng, stored_item};
use operations::operate;

struct RunShape {
    memory_bytes: u64,
    key_count: u64,
    value_bytes_max: usize,
    step_count: usize,
    evict: bool,
    policy: PolicyKind,
    /// Whether the settings of the policy change while it runs.
    changes_settings: bool,
}

fn run_seed(seed: u64, shape: &RunShape) {
    let mut rng = Rng::from_seed(seed);
    let config = Config {
        memory_bytes: shape.memory_bytes,
        item_bytes_max: 1 << 20,
        workers: 2,
        evict: shape.evict,
        hash_seed: seed,
        samples: true,
        slab_chunk_bytes: vec![96, 120, 152, 192, 240, 1184, 8192, 1 << 20],
    };
    let store = Store::with_policy(config, shape.policy).unwrap();
    let mut workers = [store.worker(), store.worker()];
    workers.iter_mut().for_each(Worker::go_online);
    let mut model = Model {
        entries: HashMap::new(),
        now: Seconds(2),
        may_evict: shape.memory_bytes < 32 << 20,
    };
    for step in 0..shape.step_count {
        let worker_index = rng.below(2) as usize;
        // The other worker must not lag: memory that it might still read cannot be reused.
        workers[1 - worker_index].go_offline();
        let (worker, bounds) =
            (&mut workers[worker_index], (shape.key_count, shape.value_bytes_max));
        operate(&mut rng, worker, &mut model, bounds);
        if rng.below(50) == 0 {
            model.now.0 += rng.below(4) as u32;
        }
        workers[worker_index].pass();
        if rng.below(20) == 0 {
            let now = model.now;
            for worker in &mut workers {
                worker.maintain(now);
                worker.pass();
            }
        }
        if shape.changes_settings && rng.below(100) == 0 {
            let candidates = PolicySettings::CANDIDATES;
            store.set_policy_settings(candidates[rng.below(candidates.len() as u64) as usize]);
        }
        if step % (shape.step_count / 4).max(1) == 0 {
            check_all(&workers, &mut model);
        }
    }
    check_all(&workers, &mut model);
}

fn check_all(workers: &[Worker; 2], model: &mut Model) {
    let keys: Vec<Vec<u8>> = model.entries.keys().cloned().collect();
    for key in keys {
        model.remove_if_evicted(&workers[0], &key);
        let now = model.now;
        let found = stored_item(&workers[1], &key, now);
        match model.live_entry(&key) {
            None => assert!(found.is_none(), "found what had expired"),
            Some(entry) => {
                let (value, flags, unique, expiry) = found.expect("peeked a moment ago");
                assert!(entry.allows_unique(unique), "an exposed unique changed");
                (entry.unique, entry.is_unique_exposed) = (unique, true);
                assert_eq!(
                    (value, flags, expiry),
                    (entry.value.clone(), entry.flags, entry.expiry)
                );
            }
        }
    }
    let mut listed_items = HashMap::new();
    let mut listing = Listing::new(1, workers[0].store().counters().items);
    let mut visit = |item: &Item<'_>| {
        let previous = listed_items.insert(item.key().to_vec(), item.unique());
        assert_eq!(previous, None, "listed twice");
    };
    while workers[0].list(&mut listing, 100, model.now, &mut visit).is_some() {}
    let now = model.now;
    let alive_count = model
        .entries
        .values()
        .filter(|entry| !matches!(entry.expiry, Expiry::At(at) if at <= now))
        .count();
    assert_eq!(listed_items.len(), alive_count, "the walk and the map differ");
    let audit = workers[0].store().audit(&[&workers[0], &workers[1]]);
    assert!(audit.items >= listed_items.len());
    let counters = workers[0].store().counters();
    assert_eq!(
        counters.item_bytes as usize, audit.live_bytes,
        "counted and audited bytes of items"
    );
    assert_eq!(counters.by_slab_class.iter().map(|&(items, _)| items).sum::<u64>(), counters.items);
}

fn seeds(default_runs: u64) -> Vec<u64> {
    if let Ok(seed) = std::env::var("MODEL_SEED") {
        return vec![seed.parse().unwrap()];
    }
    let runs = std::env::var("MODEL_RUNS").map_or(default_runs, |runs| runs.parse().unwrap());
    (1..=runs).collect()
}

fn search(shape: &RunShape, runs: u64) {
    for seed in seeds(runs) {
        let outcome = std::panic::catch_unwind(|| run_seed(seed, shape));
        assert!(outcome.is_ok(), "failed with MODEL_SEED={seed}");
    }
}

const ROOMY: RunShape = RunShape {
    memory_bytes: 64 << 20,
    key_count: 300,
    value_bytes_max: 300_000,
    step_count: 4000,
    evict: true,
    policy: PolicyKind::S3FifoSizeAware,
    changes_settings: false,
};

#[test]
fn with_room_for_everything_the_store_equals_a_map() {
    search(&ROOMY, 8);
}

#[test]
fn small_items_in_a_growing_index_equal_a_map() {
    search(&RunShape { key_count: 20_000, value_bytes_max: 60, step_count: 40_000, ..ROOMY }, 2);
}

#[test]
fn under_eviction_a_hit_is_the_last_write() {
    search(
        &RunShape {
            memory_bytes: 2 << 20,
            key_count: 3000,
            value_bytes_max: 100_000,
            step_count: 12_000,
            ..ROOMY
        },
        6,
    );
}

#[test]
fn under_every_policy_a_hit_is_the_last_write() {
    for (policy, _) in PolicyKind::ALL {
        search(
            &RunShape {
                memory_bytes: 2 << 20,
                key_count: 4000,
                value_bytes_max: 30_000,
                step_count: 10_000,
                policy,
                ..ROOMY
            },
            1,
        );
    }
}

#[test]
fn in_a_store_of_one_mebibyte_a_hit_is_the_last_write() {
    search(
        &RunShape {
            memory_bytes: 1 << 20,
            key_count: 2000,
            value_bytes_max: 20_000,
            step_count: 12_000,
            ..ROOMY
        },
        2,
    );
}

#[test]
fn while_settings_of_the_policy_change_a_hit_is_the_last_write() {
    search(
        &RunShape {
            memory_bytes: 2 << 20,
            key_count: 4000,
            value_bytes_max: 30_000,
            step_count: 12_000,
            changes_settings: true,
            ..ROOMY
        },
        3,
    );
}
