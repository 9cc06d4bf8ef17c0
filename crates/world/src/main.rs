//! Runs worlds of many seeds on all processors: `world [FIRST SEED] [SEEDS] [HISTORIES]`.
//!
//! It stops after a number of seeds that break an invariant, one by default, and prints their shortest histories.
//! With 0 it runs all seeds and counts those that break an invariant.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use glasscache_world::{Violation, generate_plan, shortest_failing_history, simulate};

/// What is to be run.
struct Settings {
    first_seed: u64,
    seed_count: u64,
    /// How many shortest histories are printed at most; 0 also runs all seeds.
    history_count_max: usize,
}

/// What the threads have found.
#[derive(Default)]
struct SimulationTotals {
    counts: BTreeMap<&'static str, u64>,
    seed_count: u64,
    violations: BTreeMap<u64, Violation>,
}

fn parse_arguments() -> Option<Settings> {
    let mut arguments = std::env::args().skip(1);
    let mut parse_number = |default: u64| match arguments.next() {
        None => Some(default),
        Some(text) => text.parse().ok(),
    };
    Some(Settings {
        first_seed: parse_number(0)?,
        seed_count: parse_number(1)?,
        history_count_max: parse_number(1)? as usize,
    })
}

fn main() -> ExitCode {
    let Some(settings) = parse_arguments() else {
        eprintln!("usage: world [FIRST SEED] [SEEDS] [HISTORIES]");
        return ExitCode::from(2);
    };
    let started = Instant::now();
    let totals = run(&settings);
    let seconds = started.elapsed().as_secs_f64();
    for (event_name, count) in &totals.counts {
        eprintln!("{count:>12} {event_name}");
    }
    for (seed, violation) in totals.violations.iter().take(settings.history_count_max) {
        eprintln!("{}", shortest_failing_history(&generate_plan(*seed), violation));
    }
    let mut seeds_by_invariant: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for (seed, violation) in &totals.violations {
        seeds_by_invariant.entry(violation.invariant).or_default().push(*seed);
    }
    for (invariant, seeds) in seeds_by_invariant {
        eprintln!("{invariant:?} broken by {} seeds, the first is {}", seeds.len(), seeds[0]);
    }
    let (first_seed, seed_count) = (settings.first_seed, totals.seed_count);
    let rate = seed_count as f64 / seconds;
    let failed_count = totals.violations.len();
    eprintln!(
        "{seed_count} seeds from {first_seed} in {seconds:.1} s, {rate:.0} a second, {failed_count} failed"
    );
    if failed_count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(settings: &Settings) -> SimulationTotals {
    let thread_count = std::thread::available_parallelism().map_or(1, usize::from);
    let (next_seed, should_stop) = (AtomicU64::new(settings.first_seed), AtomicBool::new(false));
    let end_seed = settings.first_seed + settings.seed_count;
    let totals = Mutex::new(SimulationTotals::default());
    std::thread::scope(|scope| {
        for _ in 0..thread_count {
            scope.spawn(|| {
                while !should_stop.load(Ordering::Relaxed) {
                    let seed = next_seed.fetch_add(1, Ordering::Relaxed);
                    if seed >= end_seed {
                        return;
                    }
                    let result = simulate(&generate_plan(seed), false);
                    let mut totals = totals.lock().expect("no thread panics with it");
                    totals.seed_count += 1;
                    for (event_name, count) in result.counts {
                        *totals.counts.entry(event_name).or_default() += count;
                    }
                    if let Some(violation) = result.violation {
                        totals.violations.insert(seed, violation);
                        let is_enough = totals.violations.len() >= settings.history_count_max;
                        should_stop
                            .store(settings.history_count_max > 0 && is_enough, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    totals.into_inner().expect("no thread panics with it")
}
