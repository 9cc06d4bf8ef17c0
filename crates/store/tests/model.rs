//! The store beside a plain map: random operations and time steps, equal answers.
//!
//! While nothing is evicted, answers are equal to the byte. Under eviction a hit is always the last write, and
//! what the map does not know is never found. After each run the audit counts every byte and every item. The
//! seed of a failure is printed; `MODEL_SEED` repeats it, `MODEL_RUNS` lengthens the search.

#![allow(
    clippy::needless_pass_by_value,
    clippy::single_match_else,
    reason = "reads as the rules it checks"
)]

use std::collections::HashMap;

use glasscache_store::{
    ArithOptions, ArithOutcome, CasUnique, Config, DeleteOptions, DeleteOutcome, Expiry,
    GetOptions, PolicyKind, Seconds, SetMode, SetOptions, SetOutcome, Store, Worker,
};

/// A small generator (splitmix64), so that a seed is a whole run.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[derive(Clone, Debug)]
struct Entry {
    value: Vec<u8>,
    flags: u32,
    expiry: Expiry,
    unique: CasUnique,
}

struct Model {
    entries: HashMap<Vec<u8>, Entry>,
    now: Seconds,
    /// The highest unique seen under each key, dead or alive: a new write must be above the item it replaces.
    uniques: HashMap<Vec<u8>, CasUnique>,
    may_evict: bool,
}

impl Model {
    fn alive(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = self.now;
        if self
            .entries
            .get(key)
            .is_some_and(|e| matches!(e.expiry, Expiry::At(at) if at <= now))
        {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }

    /// Under eviction the store may have forgotten: then the model forgets too.
    fn settle(&mut self, worker: &Worker, key: &[u8]) {
        let hash = worker.store().hash(key);
        let now = self.now;
        let there = worker.peek(key, hash, now).is_some();
        if self.alive(key).is_some() && !there {
            assert!(
                self.may_evict,
                "lost {:?} at {:?} although memory is free: {:?}",
                self.entries[key],
                self.now,
                worker.store().counters()
            );
            self.entries.remove(key);
        }
    }
}

fn value_of(rng: &mut Rng, large: usize) -> Vec<u8> {
    let bytes = match rng.below(20) {
        0 => 0,
        1..=9 => rng.below(40),
        10..=15 => rng.below(400),
        16..=18 => rng.below(6000),
        _ => rng.below(large as u64),
    };
    let seed = rng.next();
    (0..bytes)
        .map(|at| (seed.wrapping_mul(at + 1) >> 32) as u8)
        .collect()
}

fn expiry_of(rng: &mut Rng, now: Seconds) -> Expiry {
    match rng.below(6) {
        0 => Expiry::At(Seconds(now.0 + 1 + rng.below(5) as u32)),
        1 => Expiry::At(Seconds(now.0 + rng.below(1000) as u32)),
        2 => Expiry::At(Seconds(now.0 + rng.below(3_000_000) as u32)),
        _ => Expiry::Never,
    }
}

fn bytes_of(
    worker: &Worker,
    key: &[u8],
    now: Seconds,
) -> Option<(Vec<u8>, u32, CasUnique, Expiry)> {
    let item = worker.peek(key, worker.store().hash(key), now)?;
    assert_eq!(item.key(), key);
    let value: Vec<u8> = item.pieces().flatten().copied().collect();
    assert_eq!(value.len(), item.value_bytes() as usize);
    Some((value, item.flags(), item.unique(), item.expiry()))
}

struct Shape {
    memory_bytes: u64,
    keys: u64,
    large: usize,
    steps: usize,
    evict: bool,
    policy: PolicyKind,
}

fn run(seed: u64, shape: &Shape) {
    let mut rng = Rng(seed);
    let config = Config {
        memory_bytes: shape.memory_bytes,
        item_bytes_max: 1 << 20,
        workers: 2,
        evict: shape.evict,
        hash_seed: seed,
        slab_chunk_bytes: vec![96, 120, 152, 192, 240, 1184, 8192, 1 << 20],
    };
    let store = Store::with_policy(config, shape.policy).unwrap();
    let mut workers = [store.worker(), store.worker()];
    workers.iter_mut().for_each(Worker::go_online);
    let mut model = Model {
        entries: HashMap::new(),
        now: Seconds(2),
        uniques: HashMap::new(),
        may_evict: shape.memory_bytes < 32 << 20,
    };
    for step in 0..shape.steps {
        let which = rng.below(2) as usize;
        // The other must not lag: what it might still read cannot be reused.
        workers[1 - which].go_offline();
        operate(&mut rng, &mut workers[which], &mut model, shape);
        if rng.below(50) == 0 {
            model.now.0 += rng.below(4) as u32;
        }
        workers[which].pass();
        if rng.below(20) == 0 {
            let now = model.now;
            for worker in &mut workers {
                worker.maintain(now);
                worker.pass();
            }
        }
        if step % (shape.steps / 4).max(1) == 0 {
            check_all(&workers, &mut model);
        }
    }
    check_all(&workers, &mut model);
}

fn check_all(workers: &[Worker; 2], model: &mut Model) {
    let keys: Vec<Vec<u8>> = model.entries.keys().cloned().collect();
    for key in keys {
        model.settle(&workers[0], &key);
        let now = model.now;
        let found = bytes_of(&workers[1], &key, now);
        match model.alive(&key) {
            None => assert!(found.is_none(), "found what had expired"),
            Some(entry) => {
                let (value, flags, unique, expiry) = found.expect("peeked a moment ago");
                assert_eq!(
                    (value, flags, unique, expiry),
                    (entry.value.clone(), entry.flags, entry.unique, entry.expiry)
                );
            }
        }
    }
    let mut scanned = HashMap::new();
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        cursor = workers[0].scan(at, 100, model.now, &mut |item| {
            scanned.insert(item.key().to_vec(), item.unique());
        });
    }
    let now = model.now;
    let alive = model
        .entries
        .values()
        .filter(|e| !matches!(e.expiry, Expiry::At(at) if at <= now))
        .count();
    assert_eq!(scanned.len(), alive, "the walk and the map differ");
    let audit = workers[0].store().audit(&[&workers[0], &workers[1]]);
    assert!(audit.items >= scanned.len());
    let counters = workers[0].store().counters();
    assert_eq!(
        counters.item_bytes as usize, audit.live_bytes,
        "counted and audited bytes of items"
    );
    assert_eq!(
        counters
            .by_slab_class
            .iter()
            .map(|class| class.0)
            .sum::<u64>(),
        counters.items
    );
}

fn operate(rng: &mut Rng, worker: &mut Worker, model: &mut Model, shape: &Shape) {
    let key = format!("key-{}", rng.below(shape.keys)).into_bytes();
    let hash = worker.store().hash(&key);
    let now = model.now;
    model.settle(worker, &key);
    let old = model.alive(&key).cloned();
    match rng.below(20) {
        0..=7 => write(rng, worker, model, &key, old, shape),
        8..=10 => {
            let item = worker.get(&key, hash, now);
            assert_eq!(item.is_some(), old.is_some());
        }
        11 => {
            let expiry = expiry_of(rng, now);
            let options = GetOptions {
                touch: Some(expiry),
                ..GetOptions::default()
            };
            let found = worker.get_with(&key, hash, &options, now);
            let Some(old) = old else {
                return assert!(found.is_none());
            };
            match found {
                Some((item, _)) => {
                    assert_eq!(
                        (item.unique(), item.expiry()),
                        (old.unique, expiry),
                        "touch keeps the unique"
                    );
                    model.entries.get_mut(&key).unwrap().expiry = expiry;
                }
                None => {
                    assert!(model.may_evict, "a touch failed although memory is free");
                    model.entries.remove(&key);
                }
            }
        }
        12..=13 => {
            let options = DeleteOptions {
                compare: (rng.below(3) == 0).then(|| {
                    old.as_ref()
                        .map_or(CasUnique(7), |o| CasUnique(o.unique.0 + rng.below(2)))
                }),
                invalidate: rng.below(4) == 0,
                ..DeleteOptions::default()
            };
            let outcome = worker.delete(&key, hash, &options, now);
            let Some(old) = old else {
                return assert_eq!(outcome, DeleteOutcome::NotFound);
            };
            if options.compare.is_some_and(|c| c != old.unique) {
                return assert_eq!(outcome, DeleteOutcome::Exists);
            }
            assert_eq!(outcome, DeleteOutcome::Deleted);
            if options.invalidate {
                let Some((_, _, unique, _)) = bytes_of(worker, &key, now) else {
                    assert!(model.may_evict);
                    model.entries.remove(&key);
                    return;
                };
                assert!(unique > old.unique, "invalidation gives a new unique");
                model.entries.get_mut(&key).unwrap().unique = unique;
                let lease_of = |may_win| {
                    let options = GetOptions {
                        may_win,
                        ..GetOptions::default()
                    };
                    worker.get_with(&key, hash, &options, now).unwrap().1
                };
                let blind = lease_of(false);
                assert!(blind.is_stale && !blind.won && !blind.win_sent);
                let first = lease_of(true);
                assert!(first.is_stale && first.won);
                let second = lease_of(true);
                assert!(second.is_stale && second.win_sent && !second.won);
            } else {
                model.entries.remove(&key);
            }
        }
        14..=16 => count(rng, worker, model, &key, old),
        17 if rng.below(200) == 0 => {
            worker.store().flush(now, now);
            model.entries.clear();
        }
        _ => upload(rng, worker, model, &key, old, shape),
    }
}

fn stored(model: &mut Model, key: &[u8], entry: Entry, old: Option<&Entry>) {
    if let Some(old) = old {
        assert!(entry.unique > old.unique, "a new write has a larger unique");
    }
    model.uniques.insert(key.to_vec(), entry.unique);
    model.entries.insert(key.to_vec(), entry);
}

fn write(
    rng: &mut Rng,
    worker: &mut Worker,
    model: &mut Model,
    key: &[u8],
    old: Option<Entry>,
    shape: &Shape,
) {
    let now = model.now;
    let value = value_of(rng, shape.large.min(60_000));
    let expiry = expiry_of(rng, now);
    let flags = [0, 1, 300, 70_000][rng.below(4) as usize];
    let mode = match rng.below(8) {
        0 => SetMode::Add,
        1 => SetMode::Replace,
        2 => SetMode::Append,
        3 => SetMode::Prepend,
        _ => SetMode::Set,
    };
    let compare = (rng.below(6) == 0).then(|| {
        old.as_ref()
            .map_or(CasUnique(3), |o| CasUnique(o.unique.0 + rng.below(2)))
    });
    let options = SetOptions {
        mode,
        flags,
        expiry,
        compare,
        ..SetOptions::default()
    };
    let outcome = worker.set(key, worker.store().hash(key), &value, &options, now);
    judge_write(model, worker, key, old, value, &options, outcome);
}

fn judge_write(
    model: &mut Model,
    worker: &Worker,
    key: &[u8],
    old: Option<Entry>,
    value: Vec<u8>,
    options: &SetOptions,
    outcome: SetOutcome,
) {
    let extends = matches!(options.mode, SetMode::Append | SetMode::Prepend);
    let replaces = matches!(options.mode, SetMode::Set | SetMode::Replace);
    let mismatch = old
        .as_ref()
        .is_some_and(|o| options.compare.is_some_and(|c| c != o.unique));
    match outcome {
        SetOutcome::Stored(unique) => {
            assert!(!mismatch || options.mode == SetMode::Add);
            let mut entry = Entry {
                value,
                flags: options.flags,
                expiry: options.expiry,
                unique,
            };
            if extends {
                let old = old.clone().expect("appended to something");
                entry.value = match options.mode {
                    SetMode::Append => [old.value, entry.value].concat(),
                    _ => [entry.value, old.value].concat(),
                };
                (entry.flags, entry.expiry) = (old.flags, old.expiry);
            }
            assert!(options.mode != SetMode::Add || old.is_none());
            assert!(options.mode != SetMode::Replace || old.is_some());
            stored(model, key, entry, old.as_ref());
            model.settle(worker, key);
        }
        SetOutcome::Exists => assert!(mismatch && (extends || replaces)),
        SetOutcome::NotFound => assert!(replaces && old.is_none() && options.compare.is_some()),
        SetOutcome::NotStored => match options.mode {
            SetMode::Add => assert!(old.is_some()),
            SetMode::Set => panic!("a set is stored or refused for a reason"),
            SetMode::Replace => assert!(old.is_none()),
            _ => {
                assert!(old.is_none_or(|o| o.value.len() + value.len() > 900_000));
            }
        },
        SetOutcome::TooLarge => panic!("no value here is over the limit"),
        SetOutcome::NoMemory => panic!(
            "refused a write although something can be evicted: {:?}",
            worker.store().counters()
        ),
    }
}

fn count(rng: &mut Rng, worker: &mut Worker, model: &mut Model, key: &[u8], old: Option<Entry>) {
    let now = model.now;
    let options = ArithOptions {
        decrement: rng.below(2) == 0,
        delta: rng.below(1000),
        initial: (rng.below(2) == 0).then_some((500, Expiry::Never)),
        ..ArithOptions::default()
    };
    match worker.arith(key, worker.store().hash(key), &options, now) {
        ArithOutcome::Number {
            value,
            unique,
            expiry,
            expiry_before,
            created,
        } => {
            assert_eq!(created, old.is_none());
            assert_eq!(
                expiry_before,
                old.as_ref().map_or(Expiry::Never, |old| old.expiry)
            );
            let (text, _, found_unique, _) = bytes_of(worker, key, now).expect("just written");
            assert_eq!(found_unique, unique);
            assert_eq!(
                String::from_utf8(text.clone()).unwrap().trim_end(),
                value.to_string()
            );
            if let Some(old) = &old {
                let digits: String = old
                    .value
                    .trim_ascii_start()
                    .iter()
                    .map(|&b| b as char)
                    .take_while(char::is_ascii_digit)
                    .collect();
                let before: u64 = digits.parse().unwrap();
                let after = if options.decrement {
                    before.saturating_sub(options.delta)
                } else {
                    before.wrapping_add(options.delta)
                };
                assert_eq!(value, after);
                assert_eq!(
                    text.len(),
                    old.value.len().max(value.to_string().len()),
                    "padded to the old length"
                );
            }
            let flags = old.as_ref().map_or(0, |o| o.flags);
            stored(
                model,
                key,
                Entry {
                    value: text,
                    flags,
                    expiry,
                    unique,
                },
                old.as_ref(),
            );
        }
        ArithOutcome::NotFound => assert!(old.is_none() && options.initial.is_none()),
        ArithOutcome::NotANumber => assert!(old.is_some()),
        ArithOutcome::Exists => panic!("nothing was compared"),
        ArithOutcome::NoMemory => panic!("refused a number although something can be evicted"),
    }
}

fn upload(
    rng: &mut Rng,
    worker: &mut Worker,
    model: &mut Model,
    key: &[u8],
    old: Option<Entry>,
    shape: &Shape,
) {
    let value = value_of(rng, shape.large);
    let mode = [SetMode::Set, SetMode::Append][usize::from(rng.below(4) == 0)];
    let options = SetOptions {
        mode,
        flags: 9,
        expiry: expiry_of(rng, model.now),
        ..SetOptions::default()
    };
    let hash = worker.store().hash(key);
    let now = model.now;
    let mut reservation = worker
        .reserve(key, hash, value.len() as u32, &options, now)
        .unwrap();
    let mut sent = 0;
    let gives_up = rng.below(8) == 0;
    while !reservation.is_complete() {
        let space = reservation.space(worker, now);
        assert!(!space.is_empty(), "no room for the next piece");
        let len = space.len().min(1 + rng.below(70_000) as usize);
        space[..len].copy_from_slice(&value[sent..sent + len]);
        reservation.advance(len);
        sent += len;
        worker.pass();
        if gives_up && rng.below(3) == 0 {
            return;
        }
    }
    model.settle(worker, key);
    let old = model.alive(key).cloned().or(old.filter(|_| false));
    let outcome = worker.commit(reservation, now);
    judge_write(model, worker, key, old, value, &options, outcome);
}

fn seeds(default_runs: u64) -> Vec<u64> {
    if let Ok(seed) = std::env::var("MODEL_SEED") {
        return vec![seed.parse().unwrap()];
    }
    let runs = std::env::var("MODEL_RUNS").map_or(default_runs, |runs| runs.parse().unwrap());
    (1..=runs).collect()
}

fn search(shape: &Shape, runs: u64) {
    for seed in seeds(runs) {
        let outcome = std::panic::catch_unwind(|| run(seed, shape));
        assert!(outcome.is_ok(), "failed with MODEL_SEED={seed}");
    }
}

const ROOMY: Shape = Shape {
    memory_bytes: 64 << 20,
    keys: 300,
    large: 300_000,
    steps: 4000,
    evict: true,
    policy: PolicyKind::Weighed,
};

#[test]
fn with_room_for_everything_the_store_equals_a_map() {
    search(&ROOMY, 8);
}

#[test]
fn small_items_in_a_growing_index_equal_a_map() {
    search(
        &Shape {
            keys: 20_000,
            large: 60,
            steps: 40_000,
            ..ROOMY
        },
        2,
    );
}

#[test]
fn under_eviction_a_hit_is_the_last_write() {
    search(
        &Shape {
            memory_bytes: 2 << 20,
            keys: 3000,
            large: 100_000,
            steps: 12_000,
            ..ROOMY
        },
        6,
    );
}

#[test]
fn every_policy_obeys_the_same_rules() {
    for (policy, _) in PolicyKind::ALL {
        search(
            &Shape {
                memory_bytes: 2 << 20,
                keys: 4000,
                large: 30_000,
                steps: 10_000,
                policy,
                ..ROOMY
            },
            1,
        );
    }
}

#[test]
fn a_store_of_one_mebibyte_works() {
    search(
        &Shape {
            memory_bytes: 1 << 20,
            keys: 2000,
            large: 20_000,
            steps: 12_000,
            ..ROOMY
        },
        2,
    );
}
