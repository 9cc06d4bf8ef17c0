//! What tuning brings and costs offline: misses of `tuned` over those of the server's policy with its default settings.
//!
//! `cargo run --release -p glasscache-sim --features parquet --example tuning -- [TRACE...]`
//! Loads that are generated here, five kinds with parameters drawn by each seed, and the given traces at 5, 10, 20 and 40 %
//! of their objects (with sizes: of their bytes). A row has the mean, the best and the worst of eight seeds, for the whole
//! load and for its last third; a seed of a trace chooses the sampled keys alone. With sizes the rows are of missed bytes,
//! too, and for both goals. With `SIZES=1` in the environment keys without a size have a log-normal one.

#![expect(
    clippy::disallowed_methods,
    reason = "an example reads its arguments and its environment"
)]
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use glasscache_sim::policy::{Goal, SwitchRecord};
use glasscache_sim::replay::{PreparedTrace, ReplayResult, TunedReplay, replay_tuned};
use glasscache_sim::trace::intern::{Collector, Mode};
use glasscache_sim::trace::{Batch, Columns, open};

const SEEDS: u64 = 8;
const SHARES: [f64; 4] = [0.05, 0.1, 0.2, 0.4];
const REQUESTS: usize = 300_000;
const ITEMS: [u64; 2] = [1000, 3000];

/// A source of numbers that look random (`SplitMix64`).
struct Numbers(u64);

impl Numbers {
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let range = u128::from(high - low + 1);
        low + ((u128::from(mixed ^ (mixed >> 31)) * range) >> 64) as u64
    }

    /// The logarithm of the key is uniform.
    fn skewed(&mut self, keys: u64) -> u64 {
        let uniform = self.between(0, (1 << 53) - 1) as f64 / (1_u64 << 53) as f64;
        (keys as f64).powf(uniform) as u64
    }
}

/// A kind of generated load, and its name.
type Kind = (&'static str, fn(&mut Numbers) -> Vec<u64>);

const KINDS: [Kind; 5] = [
    ("skewed", skewed),
    ("skewed with a loop", with_loop),
    ("skewed with scans", with_scans),
    ("each request three times", repeated),
    ("pairs and loops by turns", pairs_and_loops),
];

fn skewed(numbers: &mut Numbers) -> Vec<u64> {
    let keys = numbers.between(15_000, 90_000);
    (0..REQUESTS).map(|_| numbers.skewed(keys)).collect()
}

fn with_loop(numbers: &mut Numbers) -> Vec<u64> {
    let keys = numbers.between(15_000, 90_000);
    let (length, percent) = (numbers.between(1500, 4500), numbers.between(20, 60));
    let mut next_of_loop = 0;
    let mut draw = || {
        if numbers.between(1, 100) > percent {
            return numbers.skewed(keys);
        }
        next_of_loop = (next_of_loop + 1) % length;
        (1 << 40) + next_of_loop
    };
    (0..REQUESTS).map(|_| draw()).collect()
}

fn with_scans(numbers: &mut Numbers) -> Vec<u64> {
    let keys = numbers.between(15_000, 90_000);
    let (mut load, mut next_scanned) = (Vec::new(), 1 << 40);
    while load.len() < REQUESTS {
        let (between_scans, scanned) = (numbers.between(2000, 12_000), numbers.between(300, 3000));
        load.extend((0..between_scans).map(|_| numbers.skewed(keys)));
        load.extend(next_scanned..next_scanned + scanned);
        next_scanned += scanned;
    }
    load.truncate(REQUESTS);
    load
}

fn repeated(numbers: &mut Numbers) -> Vec<u64> {
    let (keys, within) = (numbers.between(15_000, 90_000), numbers.between(50, 3000));
    let mut timed_keys = Vec::new();
    for step in 0..REQUESTS as u64 / 3 {
        let key = numbers.skewed(keys);
        timed_keys.push((3 * step, key));
        timed_keys.extend((0..2).map(|_| (3 * step + numbers.between(1, within), key)));
    }
    timed_keys.sort_by_key(|(time, _)| *time);
    timed_keys.into_iter().map(|(_, key)| key).collect()
}

fn pairs_and_loops(numbers: &mut Numbers) -> Vec<u64> {
    let (mut load, mut next_pair) = (Vec::new(), 1 << 40);
    while load.len() < REQUESTS {
        let count = numbers.between(40_000, 80_000);
        load.extend((0..count).map(|index| next_pair + index / 20 * 10 + index % 10));
        next_pair += count;
        let (length, count) =
            ([1200, 2500][numbers.between(0, 1) as usize], numbers.between(40_000, 80_000));
        load.extend((0..count).map(|index| index % length));
    }
    load.truncate(REQUESTS);
    load
}

/// A load, and the part of it before its last third.
struct Load {
    whole: PreparedTrace,
    before: PreparedTrace,
}

impl Load {
    /// From keys with their sizes; all objects count 1 if a size is missing.
    fn new(requests: &[(u64, Option<u32>)]) -> Self {
        let has_sizes = requests.iter().all(|(_, size)| size.is_some());
        let mode = if has_sizes { Mode::Bytes } else { Mode::Objects };
        let prepare = |requests: &[(u64, Option<u32>)]| {
            let (key, size) = requests.iter().copied().unzip();
            let mut collector = Collector::new(mode);
            let batch = Batch { key, size, ..Batch::default() };
            collector.add_batch("load", &batch).expect("keys and sizes");
            PreparedTrace::new(collector.finish(has_sizes))
        };
        Self { whole: prepare(requests), before: prepare(&requests[..requests.len() / 3 * 2]) }
    }
}

/// Misses, by number and by bytes.
#[derive(Clone, Copy)]
struct Misses {
    objects: f64,
    bytes: f64,
}

impl Misses {
    fn of(result: &ReplayResult) -> Self {
        Self { objects: result.misses as f64, bytes: result.missed_bytes as f64 }
    }

    fn without(self, other: Self) -> Self {
        Self { objects: self.objects - other.objects, bytes: self.bytes - other.bytes }
    }

    fn ratio_to(self, other: Self) -> Self {
        let ratio = |own: f64, other: f64| if other > 0.0 { own / other } else { 1.0 };
        Self { objects: ratio(self.objects, other.objects), bytes: ratio(self.bytes, other.bytes) }
    }
}

/// The ratios of several seeds, in the whole load and in its last third, and what the controller did.
#[derive(Default)]
struct Ratios {
    seeds: Vec<[Misses; 2]>,
    switches: usize,
    forecasts: usize,
    met: usize,
}

impl Ratios {
    fn add(&mut self, load: &Load, goal: Goal, capacity: u64, seed: u64) {
        let run = |trace| {
            let replay = replay_tuned(trace, capacity, (goal, seed), &|| true);
            replay.expect("it is not stopped")
        };
        let (whole, before) = (run(&load.whole), run(&load.before));
        let [tuned, untuned] =
            [|replay: &TunedReplay| replay.result, |replay: &TunedReplay| replay.untuned]
                .map(|result_of| [&whole, &before].map(|replay| Misses::of(&result_of(replay))));
        let last = |[whole, before]: [Misses; 2]| whole.without(before);
        self.seeds.push([tuned[0].ratio_to(untuned[0]), last(tuned).ratio_to(last(untuned))]);
        let switches = whole.switches;
        self.switches += switches.len();
        let met = switches.iter().filter_map(SwitchRecord::is_forecast_met);
        let met: Vec<bool> = met.collect();
        self.forecasts += met.len();
        self.met += met.iter().filter(|is_met| **is_met).count();
    }

    fn print(&self, name: &str, unit: &str, of: impl Fn(&Misses) -> f64) {
        let part = |index: usize| {
            let ratios: Vec<f64> = self.seeds.iter().map(|parts| of(&parts[index])).collect();
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            let worst = ratios.iter().copied().fold(f64::MIN, f64::max);
            let best = ratios.iter().copied().fold(f64::MAX, f64::min);
            format!("{mean:.4} ({best:.3} to {worst:.3})")
        };
        let Self { switches, forecasts, met, .. } = self;
        println!("{name} | {unit} | {} | {} | {switches} | {met} of {forecasts}", part(0), part(1));
    }
}

/// A size of a key: log-normal, median 230 B, sigma 1.5.
fn drawn_size(key: u64) -> u32 {
    let mut numbers = Numbers(key);
    let mut uniform =
        || (numbers.between(0, (1 << 53) - 1) as f64 + 1.0) / ((1_u64 << 53) as f64 + 1.0);
    let (radius, angle) = ((-2.0 * uniform().ln()).sqrt(), std::f64::consts::TAU * uniform());
    ((230f64.ln() + 1.5 * radius * angle.cos()).exp() as u32).clamp(1, 1_000_000)
}

#[expect(clippy::disallowed_types, reason = "the example opens what the pure crate is handed")]
fn read_requests(path: &str, draws_sizes: bool) -> Vec<(u64, Option<u32>)> {
    let file = std::fs::File::open(path).expect("a trace");
    let columns = Columns { size: true, ..Columns::KEY };
    let mut stream = open(path, file, columns).expect("a key stream");
    let (mut batch, mut requests) = (Batch::default(), Vec::new());
    while stream.read(&mut batch).expect("rows") > 0 {
        let size_of = |row: usize| batch.size.get(row).copied().flatten();
        let given_or_drawn =
            |row: usize, key: u64| size_of(row).or_else(|| draws_sizes.then(|| drawn_size(key)));
        requests.extend(
            batch.key.iter().enumerate().map(|(row, &key)| (key, given_or_drawn(row, key))),
        );
    }
    requests
}

fn main() {
    println!("load | unit | whole: mean (best to worst) | last third | switches | forecasts met");
    for (name, generate) in KINDS {
        let mut ratios = Ratios::default();
        for seed in 1..=SEEDS {
            let keys = generate(&mut Numbers(seed << 32));
            let load = Load::new(&keys.iter().map(|&key| (key, None)).collect::<Vec<_>>());
            for capacity in ITEMS {
                ratios.add(&load, Goal::Objects, capacity, seed);
            }
        }
        ratios.print(name, "misses", |misses| misses.objects);
    }
    let draws_sizes = std::env::var_os("SIZES").is_some();
    for path in std::env::args().skip(1) {
        let load = Load::new(&read_requests(&path, draws_sizes));
        let name = path.rsplit('/').next().unwrap_or(&path).trim_end_matches(".parquet");
        let has_sizes = load.whole.mode() == Mode::Bytes;
        let goals = if has_sizes { &[Goal::Objects, Goal::Bytes][..] } else { &[Goal::Objects] };
        for share in SHARES {
            let capacity = (load.whole.footprint() as f64 * share).round() as u64;
            for &goal in goals {
                let mut ratios = Ratios::default();
                (1..=SEEDS).for_each(|seed| ratios.add(&load, goal, capacity, seed));
                let row_name = format!("{name} {share}, {}", goal.name());
                ratios.print(&row_name, "misses", |misses| misses.objects);
                if has_sizes {
                    ratios.print(&row_name, "missed bytes", |misses| misses.bytes);
                }
            }
        }
    }
}
