//! The cost of an overwrite, and the memory touched, while a fixed set of keys is set repeatedly.
//!
//! `cargo run --release -p glasscache-store --example overwrite -- [MiB of -m] [value bytes] [keys] [rounds]`; the
//! first round sets each key in order, the others as many random ones. Prints processor time per set and the resident memory, which
//! should stay near a small multiple of the keys' bytes however large `-m` is.

#![expect(clippy::disallowed_methods, reason = "an example measures what the kernel reports")]
#![allow(clippy::print_stdout, reason = "an example prints to stdout")]

use glasscache_store::{Config, Seconds, SetOptions, Store, Worker};

const NOW: Seconds = Seconds(2);

fn next_random(random_state: &mut u64) -> u64 {
    *random_state = random_state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*random_state ^ (*random_state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 31)
}

/// The first number after `name` in a file of /proc, or the first of all.
fn read_proc_number(file: &str, name: &str) -> f64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let remaining = text.split_once(name).map_or("", |(_, remaining)| remaining);
    let mut words = remaining.split_whitespace();
    words.find_map(|word| word.parse().ok()).unwrap_or(0.0)
}

fn set_item(worker: &mut Worker, key: &str, value: &[u8]) {
    let hash = worker.store().hash(key.as_bytes());
    let options = SetOptions::default();
    if value.len() < 64 << 10 {
        worker.set(key.as_bytes(), hash, value, &options, NOW);
    } else if let Ok(mut upload) =
        worker.reserve(key.as_bytes(), hash, value.len() as u32, &options, NOW)
    {
        let mut remaining = value;
        while !upload.is_complete() {
            let space = upload.space(worker, NOW);
            let (copied, tail) = remaining.split_at(space.len());
            space.copy_from_slice(copied);
            remaining = tail;
            upload.advance(copied.len());
            worker.pass();
        }
        worker.commit(upload, NOW);
    }
    worker.pass();
}

fn main() {
    let arguments: Vec<usize> =
        std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let argument = |index: usize, default| arguments.get(index).copied().unwrap_or(default);
    let (value_bytes, key_count) = (argument(1, 1000), argument(2, 200_000));
    let config = Config { memory_bytes: (argument(0, 1024) as u64) << 20, ..Config::default() };
    let store = Store::new(config).expect("a store");
    let mut worker = store.worker();
    let value = vec![7; value_bytes];
    let mut random_state = 1;
    for round in 0..argument(3, 8) {
        let start_ns = read_proc_number("/proc/thread-self/schedstat", "");
        for write_number in 0..key_count {
            let random_number = next_random(&mut random_state) as usize % key_count;
            let key_number = if round == 0 { write_number } else { random_number };
            set_item(&mut worker, &format!("key:{key_number:016}"), &value);
        }
        let ns_per_set =
            (read_proc_number("/proc/thread-self/schedstat", "") - start_ns) / key_count as f64;
        println!(
            "round {round}: {ns_per_set:.0} ns per set, {:.0} MB resident for {:.0} MB of items, {:.2} moved",
            read_proc_number("/proc/self/status", "VmRSS:") / 1e3,
            store.counters().item_bytes as f64 / 1e6,
            store.counters().moved_bytes as f64 / store.counters().item_bytes as f64,
        );
    }
}
