//! `glasscache bench`: load on any server, and comparisons of this binary's server with memcached or with another
//! build of itself.
//!
//! Finds both programs, runs the lab's benchmark, prints the results and stores them with `--keep`. Progress goes to
//! stderr. Without a subcommand and without a target it runs the scenarios that compare with memcached.

mod builds;
mod load;
mod load_page;
mod load_table;
mod load_values;
mod memory;
mod misses;
mod speed;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use glasscache_lab::bench::record::Record;
use glasscache_lab::bench::{CpuLayout, Error, Peer, Scenario, ServerPair};
use glasscache_lab::server_process::find_memcached;

use crate::interrupts::new_stop_flag;
use crate::output::{Exit, Failure, Output};

const EXAMPLES: &str = "\
Examples:
  glasscache bench cache1:11211 --rate 20000 --for 30s     open loop on any server
  glasscache bench cache1:11211 --vs cache2:11211          two servers, interleaved
  glasscache bench cache1:11211 --protocol binary --user app --depth 16
                                                           binary, with a login by SASL
  glasscache bench cache1:11211 --search 'p99.9<1ms'        the highest rate that holds it
  glasscache bench cache1:11211 --popularity trace:t.parquet --size stats:cache1:11211 --fill
                                                           your keys in your order, sizes as stored there
  glasscache bench --list                                  the scenarios
  glasscache bench --scenario get-50 --scenario set-1k     two of them, some minutes
  glasscache bench --memcached ./memcached --json --keep results
  glasscache bench memory -m 64 --size 230
  glasscache bench misses traces/ --fraction 0.2
  glasscache bench builds --old ./glasscache-before        this binary beside an older one, a quarter of an hour";

/// Put load on a server, or compare this one with a memcached.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    benchmark: Option<Benchmark>,
    #[command(flatten)]
    load: Box<load::Args>,
    #[command(flatten)]
    speed: speed::Args,
}

#[derive(Subcommand)]
enum Benchmark {
    /// User bytes per resident byte, and the bounds that a server always keeps
    Memory(memory::Args),
    /// Avoidable misses of real key streams at equal memory
    Misses(misses::Args),
    /// CPU per request compared with another build of glasscache, every scenario in interleaved pairs
    Builds(builds::Args),
}

impl Args {
    /// Runs the chosen benchmark.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        match self.benchmark {
            None if self.load.is_requested() => self.load.run(out),
            None => {
                self.load.refuse_options_without_load()?;
                self.speed.run(out)
            }
            Some(Benchmark::Memory(args)) => args.run(out),
            Some(Benchmark::Misses(args)) => args.run(out),
            Some(Benchmark::Builds(args)) => args.run(out),
        }
    }
}

/// Options of all benchmarks.
#[derive(clap::Args)]
#[group(skip)]
struct CommonOptions {
    /// The memcached to compare with [default: $MEMCACHED, or the one on the path].
    // Not clap's `env`: a load test excludes this option, and clap would refuse it where the variable is set.
    #[arg(long, value_name = "PROGRAM")]
    memcached: Option<PathBuf>,
    /// The glasscache to measure [default: this binary].
    #[arg(long, value_name = "PROGRAM")]
    glasscache: Option<PathBuf>,
    /// Keep the result as DATE-NAME.json in this folder.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

impl CommonOptions {
    /// Finds both programs and assigns CPUs to them; Ctrl-C sets their stop flag.
    fn find_servers(&self) -> Result<ServerPair, Failure> {
        let memcached = self
            .memcached
            .clone()
            .filter(|path| !path.as_os_str().is_empty())
            .or_else(find_memcached);
        let memcached = memcached.ok_or_else(|| {
            Failure::new(Exit::Unreachable, "no memcached is on the path")
                .with_hint("install one, or name it: --memcached PROGRAM")
        })?;
        new_pinned_servers(self.glasscache.as_deref(), Peer::Memcached(memcached))
    }

    /// Stores a result if requested, and prints where.
    fn write_record(&self, record: &Record) -> Result<(), Failure> {
        write_record(self.keep.as_deref(), record)
    }
}

/// A pinned benchmark of `glasscache`, by default this binary, against `peer`.
fn new_pinned_servers(glasscache: Option<&Path>, peer: Peer) -> Result<ServerPair, Failure> {
    let glasscache = match glasscache {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()?,
    };
    let stop = new_stop_flag()?;
    Ok(ServerPair { glasscache, peer, layout: CpuLayout::of_this_machine(), is_pinned: true, stop })
}

/// Stores a result in `folder`, if given, and prints where.
fn write_record(folder: Option<&Path>, record: &Record) -> Result<(), Failure> {
    if let Some(folder) = folder {
        let path = record.write_to(folder).map_err(failure)?;
        eprintln!("kept as {}", path.display());
    }
    Ok(())
}

/// The built-in scenarios with these names; all scenarios if no name is given.
fn select_scenarios(scenarios: Vec<Scenario>, names: &[String]) -> Result<Vec<Scenario>, Failure> {
    if let Some(unknown) =
        names.iter().find(|name| scenarios.iter().all(|scenario| scenario.name != **name))
    {
        return Err(Failure::usage(format!("no scenario is called {unknown:?}"))
            .with_hint("--list shows them"));
    }
    let is_selected = |scenario: &Scenario| names.is_empty() || names.contains(&scenario.name);
    Ok(scenarios.into_iter().filter(is_selected).collect())
}

/// The name of a stored result: a run of some parts must not replace a complete run.
fn format_record_name(benchmark: &str, parts: impl Iterator<Item = String>) -> String {
    parts.fold(benchmark.to_owned(), |name, part| format!("{name}-{part}"))
}

/// The exit code of a benchmark's error.
fn failure(error: Error) -> Failure {
    match error {
        error if error.is_stop() => {
            Failure::new(Exit::Interrupted, "stopped; nothing is left behind")
        }
        error @ (Error::Start(_) | Error::File(..)) => {
            Failure::new(Exit::Unreachable, error.to_string())
        }
        error @ Error::WrongReplies { .. } => Failure::new(Exit::Finding, error.to_string()),
        error @ Error::Load { .. } => Failure::new(Exit::BadData, error.to_string()),
    }
}
