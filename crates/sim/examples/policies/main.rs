//! Eviction policies compared by replay of key streams through the real store (look-aside: get, on a miss set).
//!
//! `POLICIES=weighed,s3fifo cargo run --release -p glasscache-sim --features parquet --example policies -- MIB
//! TRACE...` The replay is that of `glasscache bench misses`: a key with two sizes is two objects, unknown sizes are
//! log-normal (median 230 B, sigma 1.5), and a small trace is copied side by side until the footprint reaches `MIB`. Printed per trace and fraction of the footprint: avoidable misses (all less first uses) as a share of
//! requests, missed bytes likewise, and the ratio to the model of memcached (`memcached_lru`), or `-` where one of the
//! two has no avoidable misses. `tuned` is `weighed` with settings that follow the load, as with `serve -o policy=tuned`;
//! what it has done is on stderr. `GOAL=bytes` or `GOAL=time` is what it minimises. A miss of an object takes 1 to 256 ms to
//! fill, by its number; `t` is the time of avoidable misses as a share of that of all requests.
//! `SIZE_FACTOR=100` multiplies the unknown sizes. It needs 2,000 sampled items in 0.7 % of the memory: `VALUE_BYTES=30000` gives all
//! objects that size.

#![expect(
    clippy::disallowed_methods,
    reason = "an example reads its arguments and its environment"
)]
#![allow(clippy::print_stdout, reason = "an example prints its results")]

mod memcached_lru;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use glasscache_sim::trace::{Batch, Columns, open};
use glasscache_store::tuning::Goal;
use glasscache_store::{
    Config, LiveInput, LiveModel, PolicyKind, Seconds, SetOptions, Store, Worker,
};

const FRACTIONS: [f64; 4] = [0.1, 0.2, 0.35, 0.5];
const KEY_BYTES: u32 = 20;
const VALUE_BYTES_MAX: u32 = 1_000_000;
/// Requests per second of the replay's clock, roughly the rate of a server.
const REQUESTS_PER_S: u64 = 300_000;
/// Requests per second of the clock of `tuned`, whose windows have at least a minute.
const TUNED_REQUESTS_PER_S: u64 = 500;
const START: Seconds = Seconds(2);
const USAGE: &str =
    "usage: [POLICIES=NAME,...] [VALUE_BYTES=N] [SIZE_FACTOR=N] [GOAL=NAME] policies MIB TRACE...";

/// A trace, and copies of it with objects of their own. An object is a key with one of its sizes.
struct Trace {
    name: String,
    /// The object of each request, as its number within a copy.
    object_numbers: Vec<u32>,
    /// Objects of one copy.
    object_count: usize,
    copies: usize,
    /// By id, a number over all copies: the objects of the first copy, then those of the second, and so on.
    value_bytes_by_id: Vec<u32>,
}

impl Trace {
    /// Calls `request` with the id and the value bytes of each request's object, all copies side by side.
    fn for_each_request(&self, mut request: impl FnMut(usize, u32)) {
        for &object_number in &self.object_numbers {
            for copy in 0..self.copies {
                let id = copy * self.object_count + object_number as usize;
                request(id, self.value_bytes_by_id[id]);
            }
        }
    }

    fn footprint_bytes(&self) -> u64 {
        let object_bytes = |value_bytes: &u32| u64::from(value_bytes + KEY_BYTES);
        self.value_bytes_by_id.iter().map(object_bytes).sum()
    }
}

/// Misses beyond the first uses, as shares of the requests and of the requested value bytes.
#[derive(Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "shares of three totals")]
struct AvoidableMisses {
    request_share: f64,
    byte_share: f64,
    time_share: f64,
}

impl AvoidableMisses {
    /// Replays with `get_or_set`, which returns whether it hit.
    fn measure(trace: &Trace, mut get_or_set: impl FnMut(usize, u32) -> bool) -> Self {
        let (mut requests, mut misses) = (0u64, 0u64);
        let (mut requested_bytes, mut missed_bytes) = (0u64, 0u64);
        let (mut requested_us, mut missed_us) = (0u64, 0u64);
        trace.for_each_request(|id, value_bytes| {
            requests += 1;
            requested_bytes += u64::from(value_bytes);
            requested_us += fill_us(id);
            if !get_or_set(id, value_bytes) {
                misses += 1;
                missed_bytes += u64::from(value_bytes);
                missed_us += fill_us(id);
            }
        });
        let first_uses = trace.value_bytes_by_id.len() as u64;
        let first_use_bytes: u64 =
            trace.value_bytes_by_id.iter().map(|&value_bytes| u64::from(value_bytes)).sum();
        let first_use_us: u64 = (0..trace.value_bytes_by_id.len()).map(fill_us).sum();
        AvoidableMisses {
            request_share: (misses - first_uses) as f64 / requests as f64,
            byte_share: (missed_bytes - first_use_bytes) as f64 / requested_bytes as f64,
            time_share: (missed_us - first_use_us) as f64 / requested_us as f64,
        }
    }

    /// The ratio of the avoidable misses; `None` if one of the two has none.
    fn ratio_to(self, other: Self) -> Option<f64> {
        (self.request_share > 0.0 && other.request_share > 0.0)
            .then(|| self.request_share / other.request_share)
    }
}

/// The ratios of one policy to memcached, over all traces and fractions.
#[derive(Clone, Copy, Default)]
struct RatioSummary {
    count: u32,
    log_sum: f64,
    largest: f64,
}

impl RatioSummary {
    fn add(&mut self, ratio: f64) {
        self.count += 1;
        self.log_sum += ratio.ln();
        self.largest = self.largest.max(ratio);
    }

    fn geometric_mean(&self) -> f64 {
        (self.log_sum / f64::from(self.count)).exp()
    }
}

fn mix(seed: u64) -> u64 {
    let mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// How long a miss of an object takes to fill, in microseconds: 1 to 256 ms.
fn fill_us(id: usize) -> u64 {
    1000 << (mix(id as u64 ^ 0xf111) % 9)
}

fn random_value_bytes(size_seed: u64, size_factor: f64) -> u32 {
    let to_unit_interval = |bits: u64| ((bits >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
    let (first_uniform, second_uniform) =
        (to_unit_interval(mix(size_seed)), to_unit_interval(mix(size_seed ^ 0x5555_5555)));
    let normal =
        (-2.0 * first_uniform.ln()).sqrt() * (std::f64::consts::TAU * second_uniform).cos();
    ((size_factor * (230f64.ln() + 1.5 * normal).exp()) as u32).clamp(1, VALUE_BYTES_MAX)
}

#[expect(clippy::disallowed_types, reason = "the example opens what the pure crate is handed")]
fn load_trace(
    path: &str,
    footprint_bytes_min: u64,
    (value_bytes, size_factor): (Option<u32>, f64),
) -> Result<Trace, String> {
    let file = std::fs::File::open(path).expect("a trace");
    let columns = Columns { size: true, ..Columns::KEY };
    let mut stream = open(path, file, columns).expect("a key stream");
    let (mut batch, mut number_by_object) = (Batch::default(), HashMap::new());
    let (mut object_numbers, mut sizes) = (Vec::new(), Vec::<Option<u32>>::new());
    while stream.read(&mut batch).expect("rows") > 0 {
        for (row, &key) in batch.key.iter().enumerate() {
            let size = batch.size.get(row).copied().flatten();
            let object_number = *number_by_object.entry((key, size)).or_insert_with(|| {
                sizes.push(size);
                sizes.len() as u32 - 1
            });
            object_numbers.push(object_number);
        }
    }
    if object_numbers.is_empty() {
        return Err(format!("{path} has no requests"));
    }
    let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".parquet");
    let mut trace = Trace {
        name: name.to_string(),
        object_numbers,
        object_count: sizes.len(),
        copies: 0,
        value_bytes_by_id: Vec::new(),
    };
    while trace.footprint_bytes() < footprint_bytes_min {
        let first_size_seed = (trace.copies as u64) << 32;
        let value_bytes_of_copy = (first_size_seed..).zip(&sizes).map(|(size_seed, size)| {
            let value_bytes =
                value_bytes.or(*size).unwrap_or_else(|| random_value_bytes(size_seed, size_factor));
            value_bytes.min(VALUE_BYTES_MAX)
        });
        trace.value_bytes_by_id.extend(value_bytes_of_copy);
        trace.copies += 1;
    }
    Ok(trace)
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

/// A policy that is measured.
#[derive(Clone, Copy)]
struct Measured {
    name: &'static str,
    kind: PolicyKind,
    is_tuned: bool,
}

/// The server's policy with settings that follow the load.
const TUNED: Measured =
    Measured { name: "tuned", kind: PolicyKind::S3FifoSizeAware, is_tuned: true };

/// Measures a policy of the real store.
fn measure_store(
    trace: &Trace,
    memory_bytes: u64,
    policy: Measured,
    goal: Goal,
) -> AvoidableMisses {
    let config = Config { memory_bytes, samples: policy.is_tuned, ..Config::default() };
    let store = Store::with_policy(config, policy.kind).expect("a store");
    let mut worker = store.worker();
    worker.go_online();
    let mut input = LiveInput { now: START, ..LiveInput::default() };
    let mut model = policy.is_tuned.then(|| LiveModel::new(&store, b':', Some(goal), input));
    let longest_value = vec![7; VALUE_BYTES_MAX as usize];
    let mut request_count = 0;
    let misses = AvoidableMisses::measure(trace, |id, value_bytes| {
        request_count += 1;
        let now = Seconds(START.0 + (request_count / REQUESTS_PER_S) as u32);
        let key = format!("key-{id:016x}");
        let hash = store.hash(key.as_bytes());
        let is_hit = worker.get(key.as_bytes(), hash, now).is_some();
        worker.pass();
        if !is_hit {
            store_value(&mut worker, key.as_bytes(), &longest_value[..value_bytes as usize], now);
            worker.note_fill(hash, Duration::from_micros(fill_us(id)), now);
            worker.pass();
        }
        input.gets += 1;
        input.misses += u64::from(!is_hit);
        if request_count % 256 == 0 {
            worker.maintain(now);
            input =
                LiveInput { now, elapsed_ms: request_count * 1000 / TUNED_REQUESTS_PER_S, ..input };
            if let Some(model) = &mut model {
                model.step(input);
            }
        }
        is_hit
    });
    if let Some(model) = &model {
        eprintln!("{:#?}", model.policy());
    }
    misses
}

/// The policies that the variable `POLICIES` names, all without it; each with its name.
fn choose_policies() -> Result<Vec<Measured>, String> {
    let fixed = PolicyKind::ALL.map(|(kind, name)| Measured { name, kind, is_tuned: false });
    let all = [&fixed[..], &[TUNED]].concat();
    let Ok(chosen_names) = std::env::var("POLICIES") else {
        return Ok(all);
    };
    let find_policy = |chosen_name: &str| {
        let policy = all.iter().find(|policy| policy.name == chosen_name).copied();
        policy.ok_or_else(|| format!("no policy is called \"{chosen_name}\""))
    };
    chosen_names.split(',').map(find_policy).collect()
}

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let footprint_mib = arguments.next().ok_or(USAGE)?;
    let footprint_mib: u64 = footprint_mib
        .parse()
        .map_err(|_| format!("MIB is not a number: {footprint_mib}; {USAGE}"))?;
    let policies = choose_policies()?;
    let value_bytes = std::env::var("VALUE_BYTES").ok().map(|bytes| {
        bytes.parse().map_err(|_| format!("VALUE_BYTES is not a number: {bytes}; {USAGE}"))
    });
    let value_bytes = value_bytes.transpose()?;
    let size_factor = match std::env::var("SIZE_FACTOR") {
        Ok(factor) => {
            factor.parse().map_err(|_| format!("SIZE_FACTOR is not a number: {factor}"))?
        }
        Err(_) => 1.0,
    };
    let goal = match std::env::var("GOAL") {
        Ok(name) => Goal::by_name(&name).ok_or_else(|| format!("no goal is called \"{name}\""))?,
        Err(_) => Goal::Objects,
    };
    let names: Vec<&str> = policies.iter().map(|policy| policy.name).collect();
    println!("trace fraction -m_MiB memcached {}", names.join(" "));
    let mut summaries = vec![RatioSummary::default(); policies.len()];
    for path in arguments {
        let trace = load_trace(&path, footprint_mib << 20, (value_bytes, size_factor))?;
        for fraction in FRACTIONS {
            let memory_mib =
                (trace.footprint_bytes() as f64 * fraction / f64::from(1 << 20)).round() as u64;
            let object_count = trace.value_bytes_by_id.len();
            let mut memcached_model =
                memcached_lru::SegmentedLru::new(object_count, memory_mib << 20);
            let memcached = AvoidableMisses::measure(&trace, |id, value_bytes| {
                memcached_model.get_or_set(id, value_bytes + KEY_BYTES)
            });
            let mut line = format!(
                "{} {fraction} {memory_mib} {:.4} b{:.4}",
                trace.name, memcached.request_share, memcached.byte_share
            );
            for (policy, summary) in policies.iter().zip(&mut summaries) {
                let ours = measure_store(&trace, memory_mib << 20, *policy, goal);
                let ratio = ours.ratio_to(memcached);
                if let Some(ratio) = ratio {
                    summary.add(ratio);
                }
                let ratio_text = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
                let _ = write!(
                    line,
                    " | {:.4} ({ratio_text}) b{:.4} t{:.4}",
                    ours.request_share, ours.byte_share, ours.time_share
                );
            }
            println!("{line}");
        }
    }
    for (name, summary) in names.iter().zip(&summaries) {
        let (mean, worst) = (summary.geometric_mean(), summary.largest);
        println!("{name}: geometric mean of the ratio to memcached {mean:.3}, worst {worst:.3}");
    }
    Ok(())
}
