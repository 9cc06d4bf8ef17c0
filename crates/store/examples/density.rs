//! User bytes that a store keeps per resident byte, and the cost of a set and a get, by value size.
//!
//! `cargo run --release -p glasscache-store --example density -- [MiB] [workers] [value bytes ...]`; size 0
//! stands for the log-normal mix (median 230, sigma 1.5, at most 1 MB). Each line fills a fresh store with twice
//! its memory in unique keys of 20 bytes, in one process, so the resident figure includes this program's 2 MiB.
//! `density -- MiB workers chain` sends one store through fills of changing sizes, and prints the use of its
//! memory.

#![expect(clippy::disallowed_methods, reason = "an example measures what the kernel reports")]
#![allow(clippy::print_stdout, reason = "an example prints to stdout")]

use glasscache_store::{Config, Seconds, SetOptions, SetOutcome, Store, Worker};

const NOW: Seconds = Seconds(2);

fn next_random(random_state: &mut u64) -> u64 {
    *random_state = random_state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*random_state ^ (*random_state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A size from the mix, by the Box-Muller transform.
fn log_normal_size(random_state: &mut u64) -> usize {
    let to_unit = |bits: u64| ((bits >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
    let (first_unit, second_unit) =
        (to_unit(next_random(random_state)), to_unit(next_random(random_state)));
    let normal = (-2.0 * first_unit.ln()).sqrt() * (std::f64::consts::TAU * second_unit).cos();
    ((230f64.ln() + 1.5 * normal).exp() as usize).clamp(1, 1_000_000)
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Nanoseconds that this thread has run on a processor, so that other load on the machine is not counted.
fn cpu_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0)
}

fn key_of(number: usize) -> String {
    format!("key:{number:016}")
}

fn set_item(worker: &mut Worker, key: &str, value: &[u8]) -> bool {
    let hash = worker.store().hash(key.as_bytes());
    let options = SetOptions::default();
    let outcome = if value.len() < 64 << 10 {
        worker.set(key.as_bytes(), hash, value, &options, NOW)
    } else {
        let Ok(mut upload) =
            worker.reserve(key.as_bytes(), hash, value.len() as u32, &options, NOW)
        else {
            return false;
        };
        let mut remaining = value;
        while !upload.is_complete() {
            let space = upload.space(worker, NOW);
            if space.is_empty() {
                return false;
            }
            let (copied, tail) = remaining.split_at(space.len());
            space.copy_from_slice(copied);
            remaining = tail;
            upload.advance(copied.len());
            worker.pass();
        }
        worker.commit(upload, NOW)
    };
    worker.pass();
    matches!(outcome, SetOutcome::Stored(_))
}

fn fill_and_report(memory_mib: u64, worker_count: usize, value_bytes: usize) {
    let config =
        Config { memory_bytes: memory_mib << 20, workers: worker_count, ..Config::default() };
    let store = Store::new(config).expect("a store");
    let mut worker = store.worker();
    let filler: Vec<u8> = (0..1_000_000u32).map(|index| (index * 7) as u8).collect();
    let (mut sent_bytes, mut set_count, mut refused, mut random_state) = (0u64, 0, 0, 1);
    let start_ns = cpu_ns();
    while sent_bytes < 2 * (memory_mib << 20) {
        let item_value_bytes =
            if value_bytes == 0 { log_normal_size(&mut random_state) } else { value_bytes };
        let value = filler.get(..item_value_bytes).unwrap_or(&filler);
        refused += u64::from(!set_item(&mut worker, &key_of(set_count), value));
        sent_bytes += 20 + item_value_bytes as u64;
        set_count += 1;
    }
    let set_ns = (cpu_ns() - start_ns) / set_count as f64;
    let counters = store.counters();
    let rss_bytes = resident_bytes();
    let (single, batched) = time_gets(&mut worker, set_count);
    println!(
        "{:>7} B  user/RSS {:.3}  user/-m {:.3}  RSS {:.1} MiB  items {}  index {:.1}%  moved {:.2}  set {set_ns:.0} ns  get {single:.0} ns  get in 16s {batched:.0} ns  refused {refused}",
        value_bytes,
        counters.user_bytes as f64 / rss_bytes as f64,
        counters.user_bytes as f64 / (memory_mib << 20) as f64,
        rss_bytes as f64 / 1_048_576.0,
        counters.items,
        counters.index_bytes as f64 * 100.0 / (memory_mib << 20) as f64,
        counters.moved_bytes as f64 / sent_bytes as f64,
    );
}

/// Random gets of resident keys, one by one and with buckets and items fetched sixteen ahead.
fn time_gets(worker: &mut Worker, stored_count: usize) -> (f64, f64) {
    let mut random_state = 7;
    let resident_items = worker.store().counters().items as usize;
    let first_key_number =
        stored_count.saturating_sub(resident_items * 8 / 10).min(stored_count - 1);
    let keys: Vec<String> = (0..400_000)
        .map(|_| {
            key_of(
                first_key_number
                    + next_random(&mut random_state) as usize % (stored_count - first_key_number),
            )
        })
        .collect();
    let time_batches = |batch: usize, worker: &mut Worker| {
        let start_ns = cpu_ns();
        let mut read_bytes = 0u64;
        for chunk in keys.chunks(batch) {
            let hashes: Vec<_> =
                chunk.iter().map(|key| worker.store().hash(key.as_bytes())).collect();
            if batch > 1 {
                let prefetches: Vec<_> =
                    hashes.iter().map(|hash| worker.prefetch_bucket(*hash)).collect();
                for (hash, prefetch) in hashes.iter().zip(prefetches) {
                    worker.prefetch_item(*hash, prefetch);
                }
            }
            for (key, hash) in chunk.iter().zip(hashes) {
                let item = worker.get(key.as_bytes(), hash, NOW);
                read_bytes += item.map_or(0, |item| u64::from(item.value_bytes()));
            }
            worker.pass();
        }
        std::hint::black_box(read_bytes);
        (cpu_ns() - start_ns) / keys.len() as f64
    };
    (time_batches(1, worker), time_batches(16, worker))
}

/// Value sizes of the fills, one after the other; 0 is the mix.
const FILL_VALUE_BYTES: [usize; 6] = [100, 1000, 10_000, 10, 100_000, 0];

/// One store through fills of changing sizes, each as large as its memory; after each, everything in it is read
/// once.
fn fill_with_changing_sizes(memory_mib: u64, worker_count: usize) {
    let config =
        Config { memory_bytes: memory_mib << 20, workers: worker_count, ..Config::default() };
    let store = Store::new(config).expect("a store");
    let mut workers: Vec<Worker> = (0..worker_count).map(|_| store.worker()).collect();
    let filler = vec![7; 1_000_000];
    let (mut first_key_number, mut random_state) = (0, 1);
    for value_bytes in FILL_VALUE_BYTES {
        let (mut sent_bytes, mut set_count) = (0u64, 0);
        while sent_bytes < memory_mib << 20 {
            let item_value_bytes =
                if value_bytes == 0 { log_normal_size(&mut random_state) } else { value_bytes };
            let value = filler.get(..item_value_bytes).unwrap_or(&filler);
            let worker_index = set_count / 64 % workers.len();
            if let Some(worker) = workers.get_mut(worker_index) {
                set_item(worker, &key_of(first_key_number + set_count), value);
            }
            if set_count % 64 == 63 {
                workers.iter_mut().for_each(Worker::go_offline);
            }
            sent_bytes += 20 + item_value_bytes as u64;
            set_count += 1;
        }
        for number in first_key_number..first_key_number + set_count {
            if let Some(worker) = workers.first_mut() {
                let key = key_of(number);
                worker.get(key.as_bytes(), store.hash(key.as_bytes()), NOW);
                worker.pass();
            }
        }
        first_key_number += set_count;
        let counters = store.counters();
        let fraction_of_limit = |bytes: u64| bytes as f64 / (memory_mib << 20) as f64;
        println!(
            "{value_bytes:>7} B  user/-m {:.3}  items {:.3}  segments {:.3}  index {:.3}  ghost {:.3}  RSS {:.1} MiB",
            fraction_of_limit(counters.user_bytes),
            fraction_of_limit(counters.item_bytes),
            fraction_of_limit(counters.segment_bytes),
            fraction_of_limit(counters.index_bytes),
            fraction_of_limit(counters.ghost_bytes),
            resident_bytes() as f64 / 1_048_576.0,
        );
    }
}

fn main() {
    if std::env::args().nth(3).is_some_and(|word| word == "chain") {
        let parse_argument = |index| std::env::args().nth(index).and_then(|text| text.parse().ok());
        return fill_with_changing_sizes(
            parse_argument(1).unwrap_or(64),
            parse_argument(2).unwrap_or(4) as usize,
        );
    }
    let arguments: Vec<usize> =
        std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let memory_mib = arguments.first().copied().unwrap_or(64) as u64;
    let worker_count = arguments.get(1).copied().unwrap_or(2);
    let sizes: &[usize] = arguments.get(2..).unwrap_or_default();
    let default_sizes = [10, 64, 230, 1001, 4000, 10_000, 100_000, 500_000, 0];
    for &value_bytes in if sizes.is_empty() { &default_sizes } else { sizes } {
        fill_and_report(memory_mib, worker_count, value_bytes);
    }
}
