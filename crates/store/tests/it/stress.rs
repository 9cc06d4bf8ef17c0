//! Threads against one small store, with everything forced: splits, merges, evictions, compaction, expiry,
//! chains, uploads, holds and flushes of everything and of prefixes; every hit is verified.
//!
//! A value names its key and version and is filled from both. Each key has one writer, so a read must show a
//! version between the last one acknowledged when it began and the last one begun when it ended, and one above all
//! that were acknowledged before the last flush, at once or delayed, had been called. Counters are incremented by
//! all threads: a number never goes back while it lives. `STRESS_SECONDS` (default 2) is the
//! length, `STRESS_SEED` repeats a choice of operations; `make stress` runs ten minutes.

#![allow(clippy::disallowed_methods, reason = "a stress test lasts for a real time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use glasscache_store::{
    ArithOptions, ArithOutcome, Config, DeleteOptions, Expiry, GetOptions, HeldValue, Item,
    Seconds, SetMode, SetOptions, SetOutcome, Store, Worker,
};

const THREADS: usize = 4;
const KEYS: usize = 60_000;
const COUNTERS: usize = 64;
/// Milliseconds of real time for which the sizes stay as they are.
const PHASE_MS: u64 = 300;

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

/// The state of a key outside the store.
#[derive(Default)]
struct KeyVersions {
    /// The last version whose write has begun.
    begun: AtomicU64,
    /// The last version that was stored.
    acknowledged: AtomicU64,
    /// The last version that a flush removed.
    flushed: AtomicU64,
}

struct Shared {
    store: Arc<Store>,
    key_versions: Vec<KeyVersions>,
    counter_values: Vec<AtomicU64>,
    stop: AtomicBool,
    started_at: Instant,
}

impl Shared {
    fn now(&self) -> Seconds {
        // Ten seconds of the store's clock in a real one, so that many items expire.
        Seconds(2 + (self.started_at.elapsed().as_millis() / 100) as u32)
    }
}

fn value_of(key_number: usize, version: u64, value_bytes: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(value_bytes.max(16));
    value.extend_from_slice(&(key_number as u64).to_le_bytes());
    value.extend_from_slice(&version.to_le_bytes());
    let mut fill = Rng(key_number as u64 ^ version << 20);
    while value.len() < value_bytes {
        value.extend_from_slice(&fill.next().to_le_bytes());
    }
    value.truncate(value_bytes.max(16));
    value
}

/// The version that a value shows, if it is a value of the key to its last byte.
fn version_of(key_number: usize, value: &[u8]) -> u64 {
    assert!(value.len() >= 16, "a value of key {key_number} is cut to {} bytes", value.len());
    let version = u64::from_le_bytes(value[8..16].try_into().unwrap());
    assert_eq!(
        value,
        value_of(key_number, version, value.len()),
        "a value of key {key_number} is torn or another's"
    );
    version
}

/// A flush that a thread has called, with the versions of each key that were acknowledged before it, as far as it
/// concerns the key.
struct Flush {
    at: Seconds,
    acknowledged_versions: Vec<u64>,
}

impl Flush {
    fn flush_all(shared: &Shared, delay_s: u32) -> Self {
        let load_acknowledged =
            |versions: &KeyVersions| versions.acknowledged.load(Ordering::SeqCst);
        let acknowledged_versions = shared.key_versions.iter().map(load_acknowledged).collect();
        let now = shared.now();
        let at = Seconds(now.0 + delay_s);
        shared.store.flush(at, now);
        Flush { at, acknowledged_versions }
    }

    /// At once, and only the keys whose number begins as `number` does.
    fn flush_prefix(shared: &Shared, number: usize) -> Self {
        let prefix = key_name(number);
        let load_acknowledged = |(key_number, versions): (usize, &KeyVersions)| {
            let is_concerned = key_name(key_number).starts_with(&prefix);
            if is_concerned { versions.acknowledged.load(Ordering::SeqCst) } else { 0 }
        };
        let acknowledged_versions =
            shared.key_versions.iter().enumerate().map(load_acknowledged).collect();
        let at = shared.now();
        shared.store.flush_prefix(prefix.as_bytes(), at).unwrap();
        Flush { at, acknowledged_versions }
    }

    /// From here on no reader may read what was acknowledged before.
    fn record_flushed_versions(&self, shared: &Shared) {
        for (versions, &version) in shared.key_versions.iter().zip(&self.acknowledged_versions) {
            versions.flushed.fetch_max(version, Ordering::SeqCst);
        }
    }
}

/// The minimum version that a reader that starts now may see.
fn oldest_valid_version(shared: &Shared, key_number: usize) -> u64 {
    let versions = &shared.key_versions[key_number];
    let flushed = versions.flushed.load(Ordering::SeqCst);
    versions.acknowledged.load(Ordering::SeqCst).max(flushed + 1)
}

fn check_item(shared: &Shared, key_number: usize, version_min: u64, item: &Item<'_>) {
    assert_eq!(item.key(), key_name(key_number).as_bytes());
    let value: Vec<u8> = item.pieces().flatten().copied().collect();
    let version = version_of(key_number, &value);
    let version_max = shared.key_versions[key_number].begun.load(Ordering::SeqCst);
    assert!(
        (version_min..=version_max).contains(&version),
        "key {key_number}: {version} outside {version_min}..={version_max}"
    );
}

fn key_name(key_number: usize) -> String {
    format!("stress-{key_number}")
}

fn value_bytes_in_phase(rng: &mut Rng, phase: u64) -> usize {
    (match phase % 6 {
        0 => 16 + rng.below(20),
        1 => 100 + rng.below(100),
        2 => 1000 + rng.below(500),
        3 => 10_000 + rng.below(10_000),
        4 => 100_000 + rng.below(200_000),
        _ => {
            let scale = rng.below(13);
            16 + rng.below(16 << scale)
        }
    }) as usize
}

/// Lets the other threads run, because a write found no segment free; false once the test is over.
fn yield_unless_stopped(shared: &Shared) -> bool {
    std::thread::yield_now();
    !shared.stop.load(Ordering::Relaxed)
}

fn write_item(shared: &Shared, worker: &mut Worker, rng: &mut Rng, thread_index: usize) {
    let key_number = (rng.below((KEYS / THREADS) as u64) as usize) * THREADS + thread_index;
    let now = shared.now();
    let phase = shared.started_at.elapsed().as_millis() as u64 / PHASE_MS;
    let value_bytes = value_bytes_in_phase(rng, phase);
    let versions = &shared.key_versions[key_number];
    let version = versions.begun.load(Ordering::SeqCst) + 1;
    versions.begun.store(version, Ordering::SeqCst);
    let value = value_of(key_number, version, value_bytes);
    let expiry = if rng.below(3) == 0 {
        Expiry::At(Seconds(now.0 + rng.below(40) as u32))
    } else {
        Expiry::Never
    };
    let options = SetOptions { expiry, ..SetOptions::default() };
    let hash = worker.store().hash(key_name(key_number).as_bytes());
    let outcome = if value.len() < 64 << 10 {
        worker
            .retry(
                |worker| {
                    worker.try_set(key_name(key_number).as_bytes(), hash, &value, &options, now)
                },
                |_| yield_unless_stopped(shared),
            )
            .unwrap_or(SetOutcome::NoMemory)
    } else {
        let Ok(mut reservation) = worker.reserve(
            key_name(key_number).as_bytes(),
            hash,
            value.len() as u32,
            &options,
            now,
        ) else {
            return;
        };
        let mut written_bytes = 0;
        while !reservation.is_complete() {
            let space = reservation.space(worker, now);
            if space.is_empty() && reservation.awaits_segment() && yield_unless_stopped(shared) {
                worker.pass();
                continue;
            }
            let space = reservation.space(worker, now);
            if space.is_empty() || rng.below(50) == 0 {
                return;
            }
            let len = space.len();
            space.copy_from_slice(&value[written_bytes..written_bytes + len]);
            reservation.advance(len);
            written_bytes += len;
            worker.pass();
        }
        let mut outcome = worker.try_commit(&mut reservation, now);
        while outcome.is_err() && yield_unless_stopped(shared) {
            worker.pass();
            outcome = worker.try_commit(&mut reservation, now);
        }
        outcome.unwrap_or(SetOutcome::NoMemory)
    };
    if matches!(outcome, SetOutcome::Stored(_)) {
        versions.acknowledged.store(version, Ordering::SeqCst);
    }
}

fn read_item(
    shared: &Shared,
    worker: &mut Worker,
    rng: &mut Rng,
    held_values: &mut Vec<(usize, u64, HeldValue)>,
) {
    // Neighbours in the key space, so that some are hot.
    let key_number = (rng.below(KEYS as u64) * rng.below(1000) / 1000) as usize;
    let hash = worker.store().hash(key_name(key_number).as_bytes());
    let hint = worker.prefetch_item(hash, worker.prefetch_bucket(hash));
    let version_min = oldest_valid_version(shared, key_number);
    let now = shared.now();
    let hint = worker.prefetch_next_line(hash, hint);
    if let Some(value) =
        worker.get_minimal_item_value(key_name(key_number).as_bytes(), hash, hint, now)
    {
        let version = version_of(key_number, value);
        assert!(version >= version_min, "a short read found an old value");
    }
    let touch = (rng.below(10) == 0).then_some(Expiry::At(Seconds(now.0 + 30)));
    let recache_s = (rng.below(10) == 0).then_some(20);
    let options =
        GetOptions { touch, recache_s, may_win: recache_s.is_some(), ..GetOptions::default() };
    if let Some((item, _)) = worker.get_with(key_name(key_number).as_bytes(), hash, &options, now) {
        check_item(shared, key_number, version_min, &item);
        if rng.below(20) == 0
            && let Some(held_value) = item.hold()
        {
            held_values.push((key_number, version_min, held_value));
        }
    }
    if held_values.len() > 8 {
        let (key_number, version_min, held_value) = held_values.remove(rng.below(8) as usize);
        let value: Vec<u8> = held_value.pieces().flatten().copied().collect();
        assert!(version_of(key_number, &value) >= version_min, "a held value changed");
    }
}

fn increment_counter(shared: &Shared, worker: &mut Worker, rng: &mut Rng) {
    let counter_index = rng.below(COUNTERS as u64) as usize;
    let key = format!("count-{counter_index}");
    let hash = worker.store().hash(key.as_bytes());
    let now = shared.now();
    // The first number of a life is above all numbers before, so that a number never goes back.
    let first_number = shared.counter_values[counter_index].load(Ordering::SeqCst) + 1;
    let options = ArithOptions { delta: 1, ..ArithOptions::default() };
    let outcome = worker.retry(
        |worker| worker.try_arith(key.as_bytes(), hash, &options, now),
        |_| yield_unless_stopped(shared),
    );
    match outcome.unwrap_or(ArithOutcome::NoMemory) {
        ArithOutcome::Number { value, .. } => {
            shared.counter_values[counter_index].fetch_max(value, Ordering::SeqCst);
            assert!(
                value >= first_number.saturating_sub(COUNTERS as u64),
                "an increment was lost: {value} after {first_number}"
            );
        }
        ArithOutcome::NotFound => {
            // A race of two creators must not reset a number: only one of them may add.
            let text = (first_number + 1000).to_string();
            let options = SetOptions { mode: SetMode::Add, ..SetOptions::default() };
            worker.set(key.as_bytes(), hash, text.as_bytes(), &options, now);
        }
        ArithOutcome::NoMemory => {}
        other => panic!("{other:?}"),
    }
}

fn run_thread(shared: &Shared, thread_index: usize, seed: u64) -> u64 {
    let mut worker = shared.store.worker();
    let mut rng = Rng(seed + thread_index as u64);
    let mut held_values = Vec::new();
    let mut operation_count = 0;
    let mut delayed_flush: Option<Flush> = None;
    while !shared.stop.load(Ordering::Relaxed) {
        worker.go_online();
        for _ in 0..32 {
            match rng.below(20) {
                0..=8 => write_item(shared, &mut worker, &mut rng, thread_index),
                9..=16 => read_item(shared, &mut worker, &mut rng, &mut held_values),
                17..=18 => increment_counter(shared, &mut worker, &mut rng),
                _ => {
                    let key = key_name(rng.below(KEYS as u64) as usize);
                    let hash = worker.store().hash(key.as_bytes());
                    worker.delete(key.as_bytes(), hash, &DeleteOptions::default(), shared.now());
                }
            }
            operation_count += 1;
            worker.pass();
        }
        // Every fourth phase has flushes in a row, the others enough time between them for evictions.
        let phase = shared.started_at.elapsed().as_millis() as u64 / PHASE_MS;
        if rng.below(if phase % 4 == 3 { 300 } else { 20_000 }) == 0 {
            Flush::flush_all(shared, 0).record_flushed_versions(shared);
        }
        if rng.below(500) == 0 {
            let digits = 1 + rng.below(4) as u32;
            let number = rng.below(10_u64.pow(digits)) as usize;
            Flush::flush_prefix(shared, number).record_flushed_versions(shared);
        }
        // Only one thread delays: another's delay would replace its own. A flush at once may, as it comes sooner.
        if thread_index == 0 && delayed_flush.is_none() && phase % 4 == 2 {
            delayed_flush = Some(Flush::flush_all(shared, 1));
        }
        delayed_flush = delayed_flush.filter(|flush| {
            let is_due = flush.at <= shared.now();
            if is_due {
                flush.record_flushed_versions(shared);
            }
            !is_due
        });
        if rng.below(500) == 0 {
            let delta = (rng.below(3) as i64 - 1) * (512 << 10);
            shared.store.charge_buffers(delta);
        }
        worker.maintain(shared.now());
        worker.go_offline();
        if rng.below(3000) == 0 {
            // A worker that ends and is registered again.
            drop(worker);
            worker = shared.store.worker();
        }
    }
    operation_count
}

#[test]
fn every_hit_is_a_value_that_was_written() {
    let seconds: u64 = std::env::var("STRESS_SECONDS").map_or(2, |text| text.parse().unwrap());
    let seed: u64 = std::env::var("STRESS_SEED").map_or(1, |text| text.parse().unwrap());
    let memory_bytes = 12 << 20;
    let config =
        Config { memory_bytes, workers: THREADS, item_bytes_max: 1 << 20, ..Config::default() };
    let shared = Shared {
        store: Store::new(config).unwrap(),
        key_versions: (0..KEYS).map(|_| KeyVersions::default()).collect(),
        counter_values: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
        stop: AtomicBool::new(false),
        started_at: Instant::now(),
    };
    let operation_count: u64 = std::thread::scope(|scope| {
        let shared = &shared;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread_index| scope.spawn(move || run_thread(shared, thread_index, seed)))
            .collect();
        while shared.started_at.elapsed() < Duration::from_secs(seconds)
            && threads.iter().all(|thread| !thread.is_finished())
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        shared.stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let audit = shared.store.audit(&[]);
    let counters = shared.store.counters();
    eprintln!("{operation_count} operations; {audit:?}; {counters:?}");
    assert_eq!(counters.upload_bytes, 0);
    assert_eq!(counters.held_segments, 0);
    assert!(counters.evictions > 0 && counters.moved_items > 0, "nothing was forced");
}
