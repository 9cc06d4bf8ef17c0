//! `glasscache bench`: load on any server, and comparisons of this binary's server with memcached.
//!
//! A comparison runs the lab's benchmark on both programs, prints the results and stores them with `--keep`. Progress
//! goes to stderr.

mod load;
mod load_values;
mod memory;
mod misses;

use std::path::PathBuf;

use clap::Subcommand;
use glasscache_lab::bench::{Comparison, Error, Programs};
use serde_json::json;

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
  glasscache bench memory -m 64 --size 230
  glasscache bench misses traces/ --fraction 0.2";

/// Put load on a server, or compare this one with a memcached.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = EXAMPLES
)]
pub(crate) struct Args {
    #[command(subcommand)]
    benchmark: Option<Benchmark>,
    #[command(flatten)]
    load: Box<load::Args>,
}

#[derive(Subcommand)]
enum Benchmark {
    /// User bytes per resident byte, beside a memcached
    Memory(memory::Args),
    /// Avoidable misses of real key streams at equal memory, beside a memcached
    Misses(misses::Args),
}

impl Args {
    /// Runs the chosen benchmark.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        match self.benchmark {
            None => self.load.run(out),
            Some(Benchmark::Memory(args)) => args.run(out),
            Some(Benchmark::Misses(args)) => args.run(out),
        }
    }
}

/// Options of the comparisons with a memcached.
#[derive(clap::Args)]
#[group(skip)]
struct CommonOptions {
    #[command(flatten)]
    programs: Programs,
    /// Keep the result as DATE-NAME.json in this folder.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

impl CommonOptions {
    /// Prints what was measured or sets it in JSON, stores it if requested, and prints where.
    fn finish(&self, out: &Output, outcome: Result<Comparison, Error>) -> Result<Exit, Failure> {
        let Comparison { text, record, is_met } = outcome.map_err(failure)?;
        if !out.is_json() {
            out.print_line(text.trim_end())?;
        }
        // What was measured before an end or an error has been printed, and is not kept.
        let record = record.map_err(failure)?;
        if out.is_json() {
            out.set_result(&json!(record));
        }
        if let Some(folder) = &self.keep {
            let path = record.write_to(folder).map_err(failure)?;
            eprintln!("kept as {}", path.display());
        }
        Ok(if is_met { Exit::Success } else { Exit::Finding })
    }
}

/// The exit code of a benchmark's error.
fn failure(error: Error) -> Failure {
    let message = error.to_string();
    let exit = match error {
        error if error.is_stop() => {
            return Failure::new(Exit::Interrupted, "stopped; nothing is left behind");
        }
        Error::NoTrace { found_names, .. } if !found_names.is_empty() => {
            return Failure::usage(message)
                .with_hint(format!("traces there: {}", found_names.join(", ")));
        }
        Error::NoTrace { .. } => Exit::Usage,
        Error::NoMemcached | Error::Start(_) | Error::File(..) => Exit::Unreachable,
        Error::WrongReplies { .. } => Exit::Finding,
        Error::Load { .. } => Exit::BadData,
    };
    Failure::new(exit, message)
}
