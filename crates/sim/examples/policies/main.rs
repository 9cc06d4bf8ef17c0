//! Eviction policies compared by replay of key streams through the real store (look-aside: get, on a miss set).
//!
//! `POLICIES=weighed,s3fifo cargo run --release -p glasscache-sim --features parquet --example policies -- MIB
//! TRACE...` The replay is that of `glasscache bench misses`: a key with two sizes counts as two keys, unknown sizes
//! are log-normal (median 230 B, sigma 1.5), and a small trace is copied side by side until the footprint reaches
//! `MIB`. Printed per trace and fraction of the footprint: avoidable misses (all less first uses) as a share of
//! requests, missed bytes likewise, and the ratio to the model of memcached (`memcached_lru`).

#![expect(
    clippy::disallowed_methods,
    reason = "an example reads its arguments and its environment"
)]
#![allow(clippy::print_stdout, reason = "an example prints its results")]

mod memcached_lru;

use std::collections::HashMap;
use std::fmt::Write as _;

use glasscache_sim::trace::{Batch, Columns, open};
use glasscache_store::{Config, PolicyKind, Seconds, SetOptions, Store, Worker};

const FRACTIONS: [f64; 4] = [0.1, 0.2, 0.35, 0.5];
const KEY_BYTES: u32 = 20;
const VALUE_BYTES_MAX: u32 = 1_000_000;
/// Requests per second of the replay's clock, roughly the rate of a server.
const REQUESTS_PER_S: u64 = 300_000;
const START: Seconds = Seconds(2);

struct Trace {
    name: String,
    /// Numbers of the distinct (key, size) pairs of one copy, in order.
    requests: Vec<u32>,
    object_count: usize,
    copies: usize,
    /// All pairs of the first copy, then of the second, and so on.
    value_bytes: Vec<u32>,
}

impl Trace {
    /// Calls `visit` with the number of each request's item and its bytes, all copies side by side.
    fn replay(&self, mut visit: impl FnMut(usize, u32)) {
        for &number in &self.requests {
            for copy in 0..self.copies {
                let slot = copy * self.object_count + number as usize;
                visit(slot, self.value_bytes[slot]);
            }
        }
    }

    fn footprint_bytes(&self) -> u64 {
        let bytes = self
            .value_bytes
            .iter()
            .map(|bytes| u64::from(bytes + KEY_BYTES));
        bytes.sum()
    }
}

/// Misses beyond the first uses, as shares of the requests and of the requested value bytes.
#[derive(Clone, Copy)]
struct AvoidableMisses {
    request_share: f64,
    byte_share: f64,
}

impl AvoidableMisses {
    /// Replays with `get_or_set`, which returns whether it hit.
    fn measure(trace: &Trace, mut get_or_set: impl FnMut(usize, u32) -> bool) -> Self {
        // All of them, and those that missed.
        let (mut requests, mut bytes) = ([0u64; 2], [0u64; 2]);
        trace.replay(|slot, value_bytes| {
            let miss = u64::from(!get_or_set(slot, value_bytes));
            requests = [requests[0] + 1, requests[1] + miss];
            bytes = [
                bytes[0] + u64::from(value_bytes),
                bytes[1] + miss * u64::from(value_bytes),
            ];
        });
        let first_use_bytes: u64 = trace
            .value_bytes
            .iter()
            .map(|&bytes| u64::from(bytes))
            .sum();
        let avoidable_share =
            |[all, missed]: [u64; 2], first_uses: u64| (missed - first_uses) as f64 / all as f64;
        AvoidableMisses {
            request_share: avoidable_share(requests, trace.value_bytes.len() as u64),
            byte_share: avoidable_share(bytes, first_use_bytes),
        }
    }
}

fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn random_value_bytes(number: u64) -> u32 {
    let to_unit_interval = |bits: u64| ((bits >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
    let (first_uniform, second_uniform) = (
        to_unit_interval(mix(number)),
        to_unit_interval(mix(number ^ 0x5555_5555)),
    );
    let normal =
        (-2.0 * first_uniform.ln()).sqrt() * (std::f64::consts::TAU * second_uniform).cos();
    ((230f64.ln() + 1.5 * normal).exp() as u32).clamp(1, VALUE_BYTES_MAX)
}

#[expect(
    clippy::disallowed_types,
    reason = "the example opens what the pure crate is handed"
)]
fn load_trace(path: &str, footprint_bytes: u64) -> Trace {
    let file = std::fs::File::open(path).expect("a trace");
    let columns = Columns {
        size: true,
        ..Columns::KEY
    };
    let mut stream = open(path, file, columns).expect("a key stream");
    let (mut batch, mut numbers) = (Batch::default(), HashMap::new());
    let (mut requests, mut sizes) = (Vec::new(), Vec::<Option<u32>>::new());
    while stream.read(&mut batch).expect("rows") > 0 {
        for (row, &key) in batch.key.iter().enumerate() {
            let size = batch.size.get(row).copied().flatten();
            let number = *numbers.entry((key, size)).or_insert_with(|| {
                sizes.push(size);
                sizes.len() as u32 - 1
            });
            requests.push(number);
        }
    }
    let name = path
        .rsplit('/')
        .next()
        .unwrap_or(path)
        .trim_end_matches(".parquet");
    let mut trace = Trace {
        name: name.to_string(),
        requests,
        object_count: sizes.len(),
        copies: 0,
        value_bytes: Vec::new(),
    };
    while trace.footprint_bytes() < footprint_bytes {
        let first_number = (trace.copies as u64) << 32;
        let value_bytes = (first_number..)
            .zip(&sizes)
            .map(|(number, size)| size.unwrap_or_else(|| random_value_bytes(number)));
        trace
            .value_bytes
            .extend(value_bytes.map(|bytes| bytes.min(VALUE_BYTES_MAX)));
        trace.copies += 1;
    }
    trace
}

fn store_value(worker: &mut Worker, key: &[u8], value: &[u8], now: Seconds) {
    let hash = worker.store().hash(key);
    let options = SetOptions::default();
    if value.len() < 64 << 10 {
        worker.set(key, hash, value, &options, now);
    } else if let Ok(mut upload) = worker.reserve(key, hash, value.len() as u32, &options, now) {
        while !upload.is_complete() {
            let len = upload.space(worker, now).len();
            if len == 0 {
                return;
            }
            upload.advance(len);
            worker.pass();
        }
        worker.commit(upload, now);
    }
}

fn replay(trace: &Trace, memory_bytes: u64, policy: PolicyKind) -> AvoidableMisses {
    let config = Config {
        memory_bytes,
        ..Config::default()
    };
    let store = Store::with_policy(config, policy).expect("a store");
    let mut worker = store.worker();
    worker.go_online();
    let longest_value = vec![7; VALUE_BYTES_MAX as usize];
    let mut request_count = 0;
    AvoidableMisses::measure(trace, |slot, value_bytes| {
        request_count += 1;
        let now = Seconds(START.0 + (request_count / REQUESTS_PER_S) as u32);
        let key = format!("key-{slot:016x}");
        let hash = store.hash(key.as_bytes());
        let is_hit = worker.get(key.as_bytes(), hash, now).is_some();
        worker.pass();
        if !is_hit {
            store_value(
                &mut worker,
                key.as_bytes(),
                &longest_value[..value_bytes as usize],
                now,
            );
            worker.pass();
        }
        if request_count % 256 == 0 {
            worker.maintain(now);
        }
        is_hit
    })
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let footprint_mib = arguments
        .next()
        .and_then(|footprint_mib| footprint_mib.parse::<u64>().ok());
    let policies: Vec<_> =
        std::env::var("POLICIES").map_or(PolicyKind::ALL.to_vec(), |chosen_names| {
            let is_chosen = |name: &str| chosen_names.split(',').any(|wanted| wanted == name);
            PolicyKind::ALL
                .into_iter()
                .filter(|(_, name)| is_chosen(name))
                .collect()
        });
    let names: Vec<&str> = policies.iter().map(|(_, name)| *name).collect();
    println!("trace fraction -m_MiB memcached {}", names.join(" "));
    // For each policy the sum of the logarithms of its ratios, and the largest ratio.
    let mut sums_and_largest = vec![(0.0, 0.0f64); policies.len()];
    let mut ratio_count = 0;
    for path in arguments {
        let trace = load_trace(&path, footprint_mib.unwrap_or(64) << 20);
        for fraction in FRACTIONS {
            let memory_mib =
                (trace.footprint_bytes() as f64 * fraction / f64::from(1 << 20)).round() as u64;
            let mut memcached_model =
                memcached_lru::SegmentedLru::new(trace.value_bytes.len(), memory_mib << 20);
            let memcached = AvoidableMisses::measure(&trace, |slot, bytes| {
                memcached_model.get_or_set(slot, bytes + KEY_BYTES)
            });
            let mut line = format!(
                "{} {fraction} {memory_mib} {:.4} b{:.4}",
                trace.name, memcached.request_share, memcached.byte_share
            );
            for ((policy, _), (log_sum, largest)) in policies.iter().zip(&mut sums_and_largest) {
                let ours = replay(&trace, memory_mib << 20, *policy);
                let ratio = ours.request_share / memcached.request_share;
                *log_sum += ratio.ln();
                *largest = largest.max(ratio);
                let _ = write!(
                    line,
                    " | {:.4} ({ratio:.3}) b{:.4}",
                    ours.request_share, ours.byte_share
                );
            }
            ratio_count += 1;
            println!("{line}");
        }
    }
    for (name, (log_sum, worst)) in names.iter().zip(sums_and_largest) {
        let mean = (log_sum / f64::from(ratio_count)).exp();
        println!("{name}: geometric mean of the ratio to memcached {mean:.3}, worst {worst:.3}");
    }
}
