//! Runs worlds of many seeds on all processors: `world [FIRST SEED] [SEEDS] [HISTORIES]`.
//!
//! It stops after so many seeds that break an invariant, one unless said otherwise, and prints their shortest histories.
//! With 0 it runs all seeds and counts those that break an invariant.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use glasscache_world::{Violation, history, plan, simulate};

/// What is to be run.
struct Settings {
    first: u64,
    seeds: u64,
    histories: usize,
}

/// What the threads have found.
#[derive(Default)]
struct Found {
    counts: BTreeMap<&'static str, u64>,
    violations: BTreeMap<u64, Violation>,
}

fn settings() -> Option<Settings> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| match arguments.next() {
        None => Some(default),
        Some(text) => text.parse().ok(),
    };
    Some(Settings {
        first: number(0)?,
        seeds: number(1)?,
        histories: number(1)? as usize,
    })
}

fn main() -> ExitCode {
    let Some(settings) = settings() else {
        eprintln!("usage: world [FIRST SEED] [SEEDS] [HISTORIES]");
        return ExitCode::from(2);
    };
    let begun = Instant::now();
    let found = run(&settings);
    let seconds = begun.elapsed().as_secs_f64();
    for (what, count) in &found.counts {
        eprintln!("{count:>12} {what}");
    }
    for (seed, violation) in found.violations.iter().take(settings.histories) {
        eprintln!("{}", history(&plan(*seed), violation));
    }
    let mut broken: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for (seed, violation) in &found.violations {
        broken.entry(violation.invariant).or_default().push(*seed);
    }
    for (invariant, seeds) in broken {
        eprintln!(
            "{invariant:?} broken by {} seeds, the first is {}",
            seeds.len(),
            seeds[0]
        );
    }
    let Settings { first, seeds, .. } = settings;
    let rate = seeds as f64 / seconds;
    let failed = found.violations.len();
    eprintln!("{seeds} seeds from {first} in {seconds:.1} s, {rate:.0} a second, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run(settings: &Settings) -> Found {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, stop) = (AtomicU64::new(settings.first), AtomicBool::new(false));
    let end = settings.first + settings.seeds;
    let found = Mutex::new(Found::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let outcome = simulate(&plan(seed), false);
                    let mut found = found.lock().expect("no thread panics with it");
                    for (what, count) in outcome.counts {
                        *found.counts.entry(what).or_default() += count;
                    }
                    if let Some(violation) = outcome.violation {
                        found.violations.insert(seed, violation);
                        let is_enough = found.violations.len() >= settings.histories;
                        stop.store(settings.histories > 0 && is_enough, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    found.into_inner().expect("no thread panics with it")
}
