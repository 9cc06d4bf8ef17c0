//! The cost of flushing a prefix, and what the flushed prefixes add to a read.
//!
//! `cargo run --release -p glasscache-store --example flush_prefix -- flush [items]` fills a store, flushes the
//! prefix of all items, reads some of them and prints the time of the flush. `-- read [prefixes] [reads]` reads items
//! that were stored before that many other prefixes were flushed; counted under `valgrind --tool=callgrind
//! --toggle-collect='*read_all*'` with several numbers of prefixes, it shows the instructions that they add.

#![expect(clippy::disallowed_methods, reason = "an example measures real time")]
#![allow(clippy::print_stdout, reason = "an example prints to stdout")]

use std::time::Instant;

use glasscache_store::{Config, Seconds, SetOptions, Store, Worker};

const NOW: Seconds = Seconds(2);
/// Items that are read in turn: few, so that the processor's caches hold them and instructions are what counts.
const ITEMS_READ: usize = 1000;

fn set(worker: &mut Worker, key: &str) {
    let hash = worker.store().hash(key.as_bytes());
    worker.set(key.as_bytes(), hash, &[b'v'; 32], &SetOptions::default(), NOW);
    worker.pass();
}

fn is_found(worker: &Worker, key: &str) -> bool {
    let hash = worker.store().hash(key.as_bytes());
    let hint = worker.prefetch_item(hash, worker.prefetch_bucket(hash));
    let minimal_item_value = worker.get_minimal_item_value(key.as_bytes(), hash, hint, NOW);
    minimal_item_value.is_some() || worker.get_hinted(key.as_bytes(), hash, hint, NOW).is_some()
}

/// Makes `read_count` reads; returns the number of hits.
#[inline(never)]
fn read_all(worker: &mut Worker, keys: &[String], read_count: usize) -> usize {
    let mut hits = 0;
    for read_number in 0..read_count {
        let key = keys.get(read_number % keys.len()).map_or("", String::as_str);
        hits += usize::from(is_found(worker, key));
        worker.pass();
    }
    hits
}

fn time_flush(item_count: usize) {
    let config =
        Config { memory_bytes: (item_count as u64 * 80).max(64 << 20), ..Config::default() };
    let store = Store::new(config).expect("a store");
    let mut worker = store.worker();
    worker.go_online();
    for number in 0..item_count {
        set(&mut worker, &format!("shop:item:{number}"));
    }
    let stored_count = store.counters().items;
    let start = Instant::now();
    store.flush_prefix(b"shop:", NOW).expect("room for a prefix");
    let flush_us = start.elapsed().as_secs_f64() * 1e6;
    let step = (item_count / 100_000).max(1);
    let keys = (0..item_count).step_by(step).map(|number| format!("shop:item:{number}"));
    let found_count = keys.filter(|key| is_found(&worker, key)).count();
    println!("{stored_count} items flushed in {flush_us:.1} us; {found_count} found afterwards");
}

fn time_reads(prefix_count: usize, read_count: usize) {
    let store = Store::new(Config::default()).expect("a store");
    let mut worker = store.worker();
    worker.go_online();
    let keys: Vec<String> =
        (0..ITEMS_READ).map(|number| format!("user:{number}:profile")).collect();
    for key in &keys {
        set(&mut worker, key);
    }
    for number in 0..prefix_count {
        let prefix = format!("tenant{number}:");
        store.flush_prefix(prefix.as_bytes(), NOW).expect("room for a prefix");
    }
    let start = Instant::now();
    let hits = read_all(&mut worker, &keys, read_count);
    let read_ns = start.elapsed().as_secs_f64() * 1e9 / read_count as f64;
    println!("{prefix_count} prefixes: {hits} hits of {read_count} reads, {read_ns:.1} ns each");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parse_argument = |index: usize, default| {
        let text = arguments.get(index);
        text.and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    match arguments.first().map(String::as_str) {
        Some("read") => time_reads(parse_argument(1, 1000), parse_argument(2, 1_000_000)),
        _ => time_flush(parse_argument(1, 10_000_000)),
    }
}
