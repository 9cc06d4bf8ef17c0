//! Eviction policies compared by replay of key streams through the real store (look-aside: get, on a miss set).
//!
//! `cargo run --release -p glasscache-sim --features parquet --example policies -- FOOTPRINT_MIB TRACE...`
//! A trace without sizes gets log-normal ones (median 230 B, sigma 1.5) drawn by the key's hash; a small one is
//! copied side by side into disjoint key spaces until the footprint (key and value bytes of the distinct keys)
//! is reached. Printed per trace and fraction of the footprint: avoidable misses (all less first uses) as a share
//! of requests, for each policy, and for an exact LRU whose items cost what they cost in memcached's slab classes.
#![allow(clippy::print_stdout, reason = "an example speaks on stdout")]

use std::collections::HashMap;
use std::fmt::Write as _;

use glasscache_sim::trace::{Columns, open};
use glasscache_store::{Config, PolicyKind, Seconds, SetOptions, Store, Worker};

const FRACTIONS: [f64; 4] = [0.1, 0.2, 0.35, 0.5];
const KEY_BYTES: usize = 20;
const NOW: Seconds = Seconds(2);

struct Trace {
    name: String,
    /// Number of the key, and its value's bytes.
    requests: Vec<(u32, u32)>,
    distinct: usize,
    footprint: u64,
}

fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn drawn_bytes(key: u64) -> u32 {
    let unit = |bits: u64| ((bits >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
    let (a, b) = (unit(mix(key)), unit(mix(key ^ 0x5555_5555)));
    let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
    ((230f64.ln() + 1.5 * normal).exp() as u32).clamp(1, 1_000_000)
}

#[expect(
    clippy::disallowed_types,
    reason = "the example opens what the pure crate is handed"
)]
fn load(path: &str, footprint: u64) -> Trace {
    let file = std::fs::File::open(path).expect("a trace");
    let columns = Columns {
        size: true,
        ..Columns::KEY
    };
    let mut stream = open(path, file, columns).expect("a key stream");
    let (mut batch, mut rows) = (glasscache_sim::trace::Batch::default(), Vec::new());
    while stream.read(&mut batch).expect("rows") > 0 {
        for (at, key) in batch.key.iter().enumerate() {
            rows.push((*key, batch.size.get(at).copied().flatten()));
        }
    }
    let once: u64 = {
        let mut seen = HashMap::new();
        for (key, size) in &rows {
            let value_bytes = || u64::from(size.unwrap_or_else(|| drawn_bytes(*key)));
            seen.entry(*key)
                .or_insert_with(|| value_bytes() + KEY_BYTES as u64);
        }
        seen.values().sum()
    };
    let copies = footprint.div_ceil(once).max(1);
    let (mut numbers, mut requests, mut total) = (HashMap::new(), Vec::new(), 0);
    for (key, size) in &rows {
        for copy in 0..copies {
            let next = numbers.len() as u32;
            let bytes = size.unwrap_or_else(|| drawn_bytes(key ^ mix(copy)));
            let number = *numbers.entry((*key, copy)).or_insert_with(|| {
                total += u64::from(bytes) + KEY_BYTES as u64;
                next
            });
            requests.push((number, bytes));
        }
    }
    let name = path
        .rsplit('/')
        .next()
        .unwrap_or(path)
        .trim_end_matches(".parquet")
        .to_string();
    Trace {
        name,
        requests,
        distinct: numbers.len(),
        footprint: total,
    }
}

fn put(worker: &mut Worker, key: &[u8], value: &[u8]) {
    let hash = worker.store().hash(key);
    let options = SetOptions::default();
    if value.len() < 64 << 10 {
        worker.set(key, hash, value, &options, NOW);
    } else if let Ok(mut upload) = worker.reserve(key, hash, value.len() as u32, &options, NOW) {
        let mut sent = 0;
        while !upload.is_complete() {
            let len = upload.space(worker, NOW).len();
            if len == 0 {
                return;
            }
            upload.advance(len);
            sent += len;
            worker.pass();
        }
        debug_assert_eq!(sent, value.len());
        worker.commit(upload, NOW);
    }
}

fn misses(trace: &Trace, memory_bytes: u64, policy: PolicyKind) -> u64 {
    let config = Config {
        memory_bytes,
        workers: 1,
        ..Config::default()
    };
    let store = Store::with_policy(config, policy).expect("a store");
    let mut worker = store.worker();
    let filler = vec![7; 1 << 20];
    let mut missed = 0;
    for (at, (number, bytes)) in trace.requests.iter().enumerate() {
        let key = format!("{number:020}");
        let hash = store.hash(key.as_bytes());
        if worker.get(key.as_bytes(), hash, NOW).is_none() {
            missed += 1;
            worker.pass();
            put(
                &mut worker,
                key.as_bytes(),
                filler.get(..*bytes as usize).unwrap_or(&filler),
            );
        }
        worker.pass();
        if at % 256 == 0 {
            worker.maintain(Seconds(NOW.0 + (at / 65536) as u32));
        }
    }
    missed
}

/// An exact LRU in which an item takes what memcached's chunk for it takes.
fn peer_misses(trace: &Trace, memory_bytes: u64) -> u64 {
    let chunk = |bytes: u32| {
        let wanted = f64::from(bytes) + KEY_BYTES as f64 + 59.0;
        let mut size = 96f64;
        while size < wanted && size < 524_288.0 {
            size = (size * 1.25 / 8.0).ceil() * 8.0;
        }
        size.max(wanted) as u64 + 8
    };
    let (mut order, mut times, mut clock, mut used, mut missed) = (
        std::collections::BTreeMap::new(),
        HashMap::new(),
        0u64,
        0u64,
        0,
    );
    for (number, bytes) in &trace.requests {
        clock += 1;
        if let Some((old, _)) = times.get(number).copied() {
            order.remove(&old);
        } else {
            missed += 1;
            used += chunk(*bytes);
        }
        let size = chunk(*bytes);
        times.insert(*number, (clock, size));
        order.insert(clock, *number);
        while used > memory_bytes {
            let Some((_, victim)) = order.pop_first() else {
                break;
            };
            used -= times.remove(&victim).map_or(0, |(_, size)| size);
        }
    }
    missed
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let footprint = arguments
        .next()
        .and_then(|mib| mib.parse::<u64>().ok())
        .unwrap_or(64)
        << 20;
    let chosen: Vec<_> = std::env::var("POLICIES").map_or(PolicyKind::ALL.to_vec(), |names| {
        PolicyKind::ALL
            .into_iter()
            .filter(|(_, name)| names.split(',').any(|wanted| wanted == *name))
            .collect()
    });
    let names: Vec<&str> = chosen.iter().map(|(_, name)| *name).collect();
    println!("trace fraction -m_MiB peer-lru {}", names.join(" "));
    let mut sums = vec![(0.0, 0.0f64); chosen.len()];
    let mut points = 0;
    for path in arguments {
        let trace = load(&path, footprint);
        for fraction in FRACTIONS {
            let memory = ((trace.footprint as f64 * fraction) as u64).max(1 << 20);
            let avoidable =
                |missed: u64| (missed - trace.distinct as u64) as f64 / trace.requests.len() as f64;
            let peer = avoidable(peer_misses(&trace, memory));
            let mut line = format!("{} {fraction} {} {peer:.4}", trace.name, memory >> 20);
            for ((policy, _), sum) in chosen.iter().zip(&mut sums) {
                let ours = avoidable(misses(&trace, memory, *policy));
                let ratio = ours / peer;
                *sum = (sum.0 + ratio.ln(), sum.1.max(ratio));
                let _ = write!(line, " {ours:.4} ({ratio:.3})");
            }
            points += 1;
            println!("{line}");
        }
    }
    let means: Vec<String> = sums
        .iter()
        .map(|(sum, worst)| format!("{:.3} (worst {worst:.3})", (sum / f64::from(points)).exp()))
        .collect();
    println!(
        "geometric mean of the ratio to peer-lru: {} {}",
        names.join(" "),
        means.join(" ")
    );
}
