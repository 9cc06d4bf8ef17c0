//! How long a full store takes to be saved and to come back, in the time of the processor and by the clock.
//!
//! `cargo run --release -p glasscache-store --example restart -- [MiB of -m] [value bytes] [threads]`; the file is one
//! in memory, and it is mapped anew, as the next process does.

#![expect(clippy::disallowed_methods, reason = "an example measures what the kernel reports")]
#![allow(clippy::print_stdout, reason = "an example prints to stdout")]

use std::os::fd::AsFd;
use std::time::Instant;

use glasscache_store::{Config, MappedFile, Seconds, SetOptions, Snapshot, StopTime, Store};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::time::{ClockId, clock_gettime};

const NOW: Seconds = Seconds(2);

/// The seconds of this process's processor time.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Runs `operation` and prints how long it took.
fn print_duration<T>(name: &str, operation: impl FnOnce() -> T) -> T {
    let (start, start_processor_s) = (Instant::now(), processor_s());
    let result = operation();
    println!(
        "{name}: {:.3} s, of the processor {:.3} s",
        start.elapsed().as_secs_f64(),
        processor_s() - start_processor_s
    );
    result
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<u64> = std::env::args().skip(1).flat_map(|text| text.parse()).collect();
    let argument = |index: usize, default| arguments.get(index).copied().unwrap_or(default);
    let (mebibytes, value_bytes) = (argument(0, 1024), argument(1, 1000) as usize);
    let thread_count = argument(2, 2);
    let config = Config { memory_bytes: mebibytes << 20, ..Config::default() };
    let file = memfd_create("memory", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, Store::file_bytes(&config)?)?;
    let mapped_file = || MappedFile { descriptor: file.as_fd(), offset: 0 };
    let store = Store::in_file(config.clone(), mapped_file())?;
    let mut worker = store.worker();
    worker.go_online();
    let value = vec![7; value_bytes];
    let mut key_numbers = 0u64..;
    while store.counters().evictions == 0 {
        for number in key_numbers.by_ref().take(1000) {
            let key = format!("some:key:{number:012}");
            let hash = store.hash(key.as_bytes());
            worker.set(key.as_bytes(), hash, &value, &SetOptions::default(), NOW);
            worker.pass();
        }
    }
    drop(worker);
    let item_count = store.counters().items;
    println!("{item_count} items of {value_bytes} bytes");
    let stop_time = StopTime { second: NOW, unix_ms: 0 };
    let snapshot = print_duration("saved", || store.snapshot(stop_time)).unwrap_or_default();
    drop(store);
    let store = print_duration("recovered", || {
        let snapshot = Snapshot::decode(&snapshot)?;
        Store::recover(config, mapped_file(), &snapshot, |check| {
            std::thread::scope(|scope| (1..thread_count).for_each(|_| drop(scope.spawn(check))));
        })
    })?;
    assert_eq!(store.counters().items, item_count, "items were lost");
    Ok(())
}
