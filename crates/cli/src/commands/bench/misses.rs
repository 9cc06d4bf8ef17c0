//! `glasscache bench misses`: real key streams replayed look-aside against both servers at equal `-m`.

use std::path::PathBuf;

use glasscache_lab::bench::misses::{self, Settings};

use super::CommonOptions;
use crate::interrupts::new_stop_flag;
use crate::output::{Exit, Failure, Output};

/// Options of the replay.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: CommonOptions,
    /// A folder of key streams (Parquet).
    #[arg(id = "traces", value_name = "TRACES")]
    traces_folder: PathBuf,
    /// Only the trace of this name (the file name without its extension); may be repeated.
    #[arg(id = "trace", long = "trace", value_name = "NAME")]
    trace_names: Vec<String>,
    /// `-m` as a share of the footprint; may be repeated.
    #[arg(id = "fraction", long = "fraction", value_name = "SHARE", default_values_t = [0.1, 0.2, 0.35, 0.5])]
    fractions: Vec<f64>,
    /// Only this many requests from the start of each trace.
    #[arg(id = "requests", long = "requests", value_name = "N")]
    requests_max: Option<usize>,
    /// Give each value N bytes, whatever the trace says.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    value_bytes: Option<u32>,
    /// Compare the measured miss ratios with those that `curve --server` forecasts.
    #[arg(long)]
    forecast: bool,
    /// Leave memcached out, for a quick check of a change.
    #[arg(long)]
    alone: bool,
}

impl Args {
    /// Replays the chosen traces.
    pub(super) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let settings = Settings {
            programs: self.common.programs.clone(),
            traces_folder: self.traces_folder,
            trace_names: self.trace_names,
            fractions: self.fractions,
            requests_max: self.requests_max,
            value_bytes: self.value_bytes,
            has_forecasts: self.forecast,
            is_alone: self.alone,
            stop: new_stop_flag()?,
        };
        self.common.finish(out, misses::run(&settings, |line| eprintln!("  {line}")))
    }
}
