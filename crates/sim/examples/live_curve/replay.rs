//! A live curve beside exact replays: a sampled replay of a load in the store, and the generated loads. The tests of the
//! live curve use it too.

use glasscache_sim::trace::generate::keys::KeyWorkload;
use glasscache_sim::trace::generate::twitter::twitter_cluster;
use glasscache_sim::trace::{Batch, Effect};
use glasscache_store::{
    Config, Expiry, LiveCurve, LiveInput, LiveModel, Seconds, SetOptions, Store,
};

/// The second at which a replay starts.
const START_S: u32 = 2;

/// Rows between two passes of the worker, and steps of a model that loses no event.
pub(super) const ROWS_PER_PASS: u64 = 64;

/// The size of a value that the trace does not state.
pub(super) const VALUE_BYTES_DEFAULT: u32 = 100;

/// Where the rows come from.
pub(super) trait Load {
    /// Calls `visit` with the batches of rows, their times in microseconds.
    fn for_each(&self, visit: &mut dyn FnMut(&Batch));
}

impl Load for KeyWorkload {
    fn for_each(&self, visit: &mut dyn FnMut(&Batch)) {
        let (mut batch, mut generator) = (Batch::default(), self.clone().start());
        while generator.read(&mut batch) > 0 {
            visit(&batch);
        }
    }
}

/// What a replay showed.
pub(super) struct Outcome {
    pub(super) miss_ratio: f64,
    pub(super) curve: Option<LiveCurve>,
}

/// Replays a look-aside load: what is missed is stored. With `rows_per_step` the store is sampled, and its model takes
/// the events after so many rows.
pub(super) fn replay(
    load: &dyn Load,
    memory_bytes: u64,
    hash_seed: u64,
    rows_per_step: Option<u64>,
) -> Outcome {
    let samples = rows_per_step.is_some();
    let config = Config { memory_bytes, workers: 1, hash_seed, samples, ..Config::default() };
    let store = Store::new(config).unwrap();
    let mut worker = store.worker();
    worker.go_online();
    let mut input = LiveInput { now: Seconds(START_S), ..LiveInput::default() };
    let mut model = samples.then(|| LiveModel::new(&store, b':', None, input));
    let (mut row_number, mut curve) = (0, None);
    let value = vec![b'v'; 1 << 20];
    load.for_each(&mut |batch| {
        for row in 0..batch.len() {
            let now = Seconds(START_S + (batch.time[row] / 1_000_000) as u32);
            if row_number % ROWS_PER_PASS == 0 {
                worker.pass();
                worker.maintain(now);
            }
            if rows_per_step.is_some_and(|rows| row_number % rows == 0) {
                input = LiveInput { now, elapsed_ms: batch.time[row] / 1000, ..input };
                let report = model.as_mut().and_then(|model| model.step(input).1);
                curve = report.map(|report| report.curve).or(curve.take());
            }
            row_number += 1;
            let key = batch.key[row].to_be_bytes();
            let hash = store.hash(&key);
            let op = batch.op.get(row).copied().flatten();
            if op.is_none_or(|op| op.effect() == Effect::Request) {
                input.gets += 1;
                if worker.get(&key, hash, now).is_some() {
                    continue;
                }
                input.misses += 1;
            }
            let expiry = match batch.ttl.get(row).copied().flatten() {
                Some(ttl_s @ 1..) => Expiry::At(Seconds(now.0 + ttl_s)),
                _ => Expiry::Never,
            };
            let value_bytes = batch.size[row].unwrap_or(VALUE_BYTES_DEFAULT) as usize;
            let options = SetOptions { expiry, ..SetOptions::default() };
            worker.set(&key, hash, &value[..value_bytes.min(value.len() / 2)], &options, now);
        }
    });
    Outcome { miss_ratio: input.misses as f64 / input.gets as f64, curve }
}

/// A cluster of Twitter's, with its TTLs.
pub(super) fn cluster_with_ttls() -> KeyWorkload {
    let workload = twitter_cluster(4, 250_000, 1).unwrap();
    KeyWorkload { rate: 500.0, size_mean: 300.0, keys: 40_000, ..workload }
}

/// More than half of the rows overwrite.
pub(super) fn with_overwrites() -> KeyWorkload {
    KeyWorkload {
        requests: 250_000,
        keys: 40_000,
        skew: 0.9,
        size_mean: 300.0,
        read_share: 0.45,
        rate: 500.0,
        ..KeyWorkload::default()
    }
}

/// Sizes that differ much, and keys that are read once.
pub(super) fn with_sizes() -> KeyWorkload {
    KeyWorkload {
        requests: 250_000,
        keys: 40_000,
        skew: 0.9,
        one_hit_share: 0.1,
        size_mean: 600.0,
        rate: 500.0,
        ..KeyWorkload::default()
    }
}
