//! The predicted number of items compared with those that a real memcached holds when it begins to evict.
//!
//! Run by `make oracle-slabs`, with the program named by `MEMCACHED`, else `memcached` of the path.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the peer is a process of its own"
)]

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

use glasscache_sim::slabs::classes::{SlabClasses, SlabConfig, head_bytes};
use glasscache_sim::slabs::demand::Demand;
use glasscache_sim::slabs::optimum::find_optimal_sizes;
use glasscache_sim::slabs::plan::Plan;

const MEMORY_MIB: u64 = 256;
const KEY_BYTES: u32 = 10;
const SEED: u64 = 1234;
/// Memories of fewer pages than there are classes in use, and of few pages for each.
const SMALL_MEMORIES_MIB: [u64; 4] = [2, 8, 24, 48];

/// Log-normal value sizes with a median of 300 bytes, the same in every run.
struct RandomSizes(u64);

impl RandomSizes {
    fn next_fraction(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn next_size(&mut self) -> u32 {
        let normal = (-2.0 * (1.0 - self.next_fraction()).ln()).sqrt()
            * (std::f64::consts::TAU * self.next_fraction()).cos();
        (300.0 * normal.exp()).min(100_000.0) as u32
    }
}

struct Server {
    process: Child,
    socket: BufReader<UnixStream>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(name: &str, memory_mib: u64, options: &[String]) -> Self {
        let program = std::env::var("MEMCACHED").unwrap_or_else(|_| "memcached".into());
        let socket_path =
            std::env::temp_dir().join(format!("slab-fill-{name}-{}.sock", std::process::id()));
        let process = Command::new(program)
            .args(["-u", "root", "-p", "0", "-m", &memory_mib.to_string(), "-s"])
            .arg(&socket_path)
            .args(options)
            .spawn()
            .expect("memcached starts");
        // The socket appears when memcached listens; connecting is tried until then.
        let stream = std::iter::repeat_with(|| UnixStream::connect(&socket_path))
            .take(2_000_000)
            .find_map(Result::ok);
        Self { process, socket: BufReader::new(stream.expect("memcached listens")) }
    }

    fn store_values(&mut self, numbers: Range<usize>, sizes: &mut RandomSizes) {
        let mut commands = Vec::new();
        for number in numbers {
            let size = sizes.next_size();
            write!(commands, "set k{number:09} 0 0 {size} noreply\r\n").unwrap();
            commands.resize(commands.len() + size as usize, b'x');
            commands.extend(b"\r\n");
        }
        self.socket.get_mut().write_all(&commands).unwrap();
    }

    /// Items held and items evicted.
    fn read_items_and_evictions(&mut self) -> (u64, u64) {
        self.socket.get_mut().write_all(b"stats\r\n").unwrap();
        let (mut items, mut evictions) = (0, 0);
        loop {
            let mut line = String::new();
            self.socket.read_line(&mut line).unwrap();
            let mut words = line.split_whitespace().skip(1);
            match (words.next(), words.next()) {
                (Some("curr_items"), Some(number)) => items = number.parse().unwrap(),
                (Some("evictions"), Some(number)) => evictions = number.parse().unwrap(),
                (None, _) => return (items, evictions),
                _ => {}
            }
        }
    }

    /// Stores items until one is evicted and returns how many are held then; checks after each `sets_per_check` sets.
    fn fill_until_first_eviction(&mut self, sets_per_check: usize) -> u64 {
        let mut sizes = RandomSizes(SEED);
        for check in 0.. {
            let numbers = check * sets_per_check..(check + 1) * sets_per_check;
            self.store_values(numbers, &mut sizes);
            let (items, evictions) = self.read_items_and_evictions();
            if evictions > 0 {
                return items;
            }
        }
        unreachable!("a bounded memory fills")
    }
}

/// The demand of the first sizes that a server is filled with.
fn demand_of_first_items(items: u64) -> Demand {
    let (mut demand, mut sizes) = (Demand::default(), RandomSizes(SEED));
    for _ in 0..items {
        demand.add(&SlabConfig::default(), head_bytes(KEY_BYTES, false), sizes.next_size(), 1);
    }
    demand
}

#[test]
#[ignore = "needs a memcached: run by `make oracle-slabs`"]
fn predicts_item_counts_within_1_percent_of_memcached() {
    let default_config = SlabConfig::default();
    let explicit_sizes = find_optimal_sizes(&default_config, &demand_of_first_items(400_000), 40);
    let size_texts: Vec<String> = explicit_sizes.iter().map(u32::to_string).collect();
    let cases = [
        ("f125", vec!["-f1.25".to_owned()], default_config.clone()),
        ("f200", vec!["-f2".to_owned()], SlabConfig { factor: 2.0, ..default_config.clone() }),
        ("f108", vec!["-f1.08".to_owned()], SlabConfig { factor: 1.08, ..default_config.clone() }),
        (
            "optimal",
            vec!["-o".to_owned(), format!("slab_sizes={}", size_texts.join("-"))],
            SlabConfig { slab_sizes: Some(explicit_sizes), ..default_config },
        ),
    ];
    for (name, options, config) in cases {
        let held_items = Server::start(name, MEMORY_MIB, &options).fill_until_first_eviction(500);
        let plan = Plan::new(&SlabClasses::new(&config), &demand_of_first_items(held_items));
        let predicted_items = plan.items_that_fit(MEMORY_MIB << 20);
        let error = predicted_items as f64 / held_items as f64 - 1.0;
        eprintln!(
            "{name:8} predicted {predicted_items}, held {held_items}, error {:+.2} %",
            100.0 * error
        );
        assert!(error.abs() < 0.01, "{name}");
    }
}

#[test]
#[ignore = "needs a memcached: run by `make oracle-slabs`"]
fn predicts_item_counts_of_small_memories_where_first_pages_lie_beyond_the_limit() {
    let classes = SlabClasses::new(&SlabConfig::default());
    for memory_mib in SMALL_MEMORIES_MIB {
        let held_items =
            Server::start(&format!("m{memory_mib}"), memory_mib, &[]).fill_until_first_eviction(1);
        let plan = Plan::new(&classes, &demand_of_first_items(held_items));
        let predicted_items = plan.items_that_fit(memory_mib << 20);
        let error = predicted_items as f64 / held_items as f64 - 1.0;
        eprintln!(
            "-m {memory_mib}: predicted {predicted_items}, held {held_items}, error {:+.2} %",
            100.0 * error
        );
        assert!(error.abs() < 0.01, "-m {memory_mib}");
    }
}
