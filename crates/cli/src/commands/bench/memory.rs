//! `glasscache bench memory`: user bytes per resident byte, compared with memcached.

use clap::builder::PossibleValuesParser;
use glasscache_lab::bench::memory::{self, Settings};

use super::CommonOptions;
use crate::interrupts::new_stop_flag;
use crate::output::{Exit, Failure, Output};

/// Options of the memory benchmark.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: CommonOptions,
    /// `-m` of the fills, in MiB; may be repeated.
    #[arg(short = 'm', long = "memory", value_name = "MIB", default_values_t = [256, 64, 100, 400])]
    memory_mib: Vec<u64>,
    /// Only this value size; may be repeated.
    #[arg(id = "size", long = "size", value_name = "BYTES", value_parser = PossibleValuesParser::from(memory::size_names()))]
    size_names: Vec<String>,
    /// Leave memcached out, for a quick check of a change.
    #[arg(long)]
    alone: bool,
}

impl Args {
    /// Fills both servers.
    pub(super) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let settings = Settings {
            programs: self.common.programs.clone(),
            memory_mib: self.memory_mib,
            size_names: self.size_names,
            is_alone: self.alone,
            stop: new_stop_flag()?,
        };
        self.common.finish(out, memory::run(&settings, |line| eprintln!("  {line}")))
    }
}
