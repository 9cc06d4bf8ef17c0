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
    worker.set(
        key.as_bytes(),
        hash,
        &[b'v'; 32],
        &SetOptions::default(),
        NOW,
    );
    worker.pass();
}

fn is_found(worker: &Worker, key: &str) -> bool {
    let hash = worker.store().hash(key.as_bytes());
    let hint = worker.prefetch_item(hash, worker.prefetch_bucket(hash));
    let minimal_item_value = worker.get_minimal_item_value(key.as_bytes(), hint, NOW);
    minimal_item_value.is_some() || worker.get_hinted(key.as_bytes(), hash, hint, NOW).is_some()
}

/// Makes `reads` reads; returns the number of hits.
#[inline(never)]
fn read_all(worker: &mut Worker, keys: &[String], reads: usize) -> usize {
    let mut hits = 0;
    for read in 0..reads {
        let key = keys.get(read % keys.len()).map_or("", String::as_str);
        hits += usize::from(is_found(worker, key));
        worker.pass();
    }
    hits
}

fn time_flush(items: usize) {
    let config = Config {
        memory_bytes: (items as u64 * 80).max(64 << 20),
        ..Config::default()
    };
    let store = Store::new(config).expect("a store");
    let mut worker = store.worker();
    worker.go_online();
    for item in 0..items {
        set(&mut worker, &format!("shop:item:{item}"));
    }
    let stored = store.counters().items;
    let start = Instant::now();
    store
        .flush_prefix(b"shop:", NOW)
        .expect("room for a prefix");
    let flush_us = start.elapsed().as_secs_f64() * 1e6;
    let step = (items / 100_000).max(1);
    let keys = (0..items)
        .step_by(step)
        .map(|item| format!("shop:item:{item}"));
    let found = keys.filter(|key| is_found(&worker, key)).count();
    println!("{stored} items flushed in {flush_us:.1} us; {found} found afterwards");
}

fn time_reads(prefixes: usize, reads: usize) {
    let store = Store::new(Config::default()).expect("a store");
    let mut worker = store.worker();
    worker.go_online();
    let keys: Vec<String> = (0..ITEMS_READ)
        .map(|item| format!("user:{item}:profile"))
        .collect();
    for key in &keys {
        set(&mut worker, key);
    }
    for prefix in 0..prefixes {
        let prefix = format!("tenant{prefix}:");
        store
            .flush_prefix(prefix.as_bytes(), NOW)
            .expect("room for a prefix");
    }
    let start = Instant::now();
    let hits = read_all(&mut worker, &keys, reads);
    let read_ns = start.elapsed().as_secs_f64() * 1e9 / reads as f64;
    println!("{prefixes} prefixes: {hits} hits of {reads} reads, {read_ns:.1} ns each");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default| {
        let text = arguments.get(index);
        text.and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    match arguments.first().map(String::as_str) {
        Some("read") => time_reads(number(1, 1000), number(2, 1_000_000)),
        _ => time_flush(number(1, 10_000_000)),
    }
}
