//! `glasscache replay`: the recorded requests made again by our client, and what they needed beside the forecast.
//!
//! The forecast is written before the replay begins. It takes its prices from a latency table that is measured on the
//! same server just before, by a rehearsal of the log's first half: nothing is stored unless `--fill` says so.

mod forecast_file;

use std::path::PathBuf;

use glasscache_client::{Address, Error};
use glasscache_lab::bench::record;
use glasscache_lab::replay::{self, ReplayError, Servers, Settings, Speed};
use glasscache_record::FolderLog;
use glasscache_sim::strategy::StrategyFile;
use serde_json::Value;

use crate::files::read_text;
use crate::interrupts::new_stop_flag;
use crate::live_target::new_progress_bar;
use crate::output::{Exit, Failure, Output};
use crate::page_file;
use crate::report::{Detail, into_page, print_report};
use crate::target;
use crate::traces::read_log;
use forecast_file::ForecastFile;

const EXAMPLES: &str = "\
Examples:
  glasscache simulate requests/ --search --save best.strategy
  glasscache replay requests/ --target 127.0.0.1:11211 --strategy best.strategy
  glasscache replay requests/ --target cache1:11211 --strategy best.strategy --html replay.html
  glasscache replay site --target 127.0.0.1:11300 --strategy best.strategy --fill

It reads only, unless --fill is given. Keys that the server does not have are left out if they are at \
most 1 % of the reads and of the fixed set. The exit code is 1 if the forecast did not hold or this \
machine was too disturbed to tell, and 4 if the server lacks more of the fixed set.";

/// Make the requests of a log again under a strategy, and compare what they need with the forecast.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Folder of the request log
    #[arg(id = "log", value_name = "LOG")]
    log_folder: PathBuf,
    /// Server as host:port or path of a unix socket; several by comma share the keys (ketama)
    #[arg(long, value_name = "SERVER")]
    target: String,
    /// Namespace of the client that the log is from, which its keys lack: gc~ for Django without "like"
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    namespace: String,
    /// Strategy file, written by simulate --save
    #[arg(id = "strategy", long = "strategy", value_name = "FILE")]
    strategy_path: PathBuf,
    /// Threads that make requests; each process of the log has its own near cache whatever their number
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    clients: u64,
    /// 1 for the recorded pace, 2 for twice as fast, max for one request after the other
    #[arg(long, value_name = "1|max", default_value = "max", value_parser = parse_speed)]
    speed: Speed,
    /// First store random values of the recorded sizes under the keys of the log
    #[arg(long)]
    fill: bool,
    /// Where to write the forecast [default: forecast-TIME.json in the log's folder]
    #[arg(id = "forecast", long = "forecast", value_name = "FILE")]
    forecast_path: Option<PathBuf>,
    /// The forecast holds if p50 and p95 of the added time are within this share of it
    #[arg(id = "within", long = "within", value_name = "PERCENT", default_value_t = 20.0, value_parser = parse_percent)]
    within_percent: f64,
    /// Write a page with both curves
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn parse_speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed::Max);
    }
    let factor = text.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
    factor.map(Speed::Recorded).ok_or_else(|| format!("{text:?}: expected max or a number above 0"))
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent: &f64| percent.is_finite() && *percent > 0.0);
    percent.ok_or_else(|| format!("{text:?}: expected a number above 0"))
}

impl Args {
    /// Measures, writes the forecast, replays, compares.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let strategy_file = self.read_strategy_file()?;
        let FolderLog { log: recorded_log, left_out } = read_log(&self.log_folder)?;
        let servers = Address::parse_list(&self.target).map_err(|error| client_failure(&error))?;
        let settings = Settings {
            servers: Servers { addresses: &servers, namespace: &self.namespace },
            target: &self.target,
            log_name: self.log_folder.display().to_string(),
            left_out_parts: left_out.iter().map(ToString::to_string).collect(),
            thread_count: self.clients as usize,
            speed: self.speed,
            fills: self.fill,
            tolerance: self.within_percent / 100.0,
        };
        let begin = |forecast: &Value| -> Result<_, Failure> {
            let forecast_file = self.create_forecast_file()?;
            let path = forecast_file.path().to_owned();
            forecast_file.write(forecast)?;
            Ok((path, new_stop_flag()?))
        };
        let bar = new_progress_bar();
        let progress = |made: usize, all: usize| {
            bar.set_length(all as u64);
            bar.set_position(made as u64);
        };
        let outcome = replay::run(&settings, recorded_log, strategy_file, begin, &progress);
        bar.finish_and_clear();
        let (report, has_held) = outcome?;
        print_report(&report, out, Detail::default())?;
        if let Some(path) = &self.html {
            page_file::write(path, into_page(report), &[&self.log_folder])?;
        }
        Ok(if has_held { Exit::Success } else { Exit::Finding })
    }

    fn read_strategy_file(&self) -> Result<StrategyFile, Failure> {
        let text = read_text(&self.strategy_path).map_err(|error| {
            let message = format!("cannot open {}: {error}", self.strategy_path.display());
            Failure::new(Exit::Unreachable, message)
                .with_hint("glasscache simulate LOG --save writes one")
        })?;
        text.parse().map_err(|error| self.strategy_failure(&error))
    }

    fn strategy_failure(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::new(Exit::BadData, format!("{}: {error}", self.strategy_path.display()))
    }

    fn create_forecast_file(&self) -> Result<ForecastFile, Failure> {
        match &self.forecast_path {
            Some(path) => ForecastFile::create(path),
            None => ForecastFile::create_in(&self.log_folder, &record::format_now()),
        }
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        let exit = match &error {
            ReplayError::Client(error) => return client_failure(error),
            ReplayError::NoStrategy | ReplayError::IdleThreads { .. } => Exit::Usage,
            ReplayError::MeasuringThread | ReplayError::ReplayThread => Exit::Finding,
            ReplayError::Stopped { .. } => Exit::Interrupted,
            ReplayError::TooFewRequests { .. }
            | ReplayError::FixedSet { .. }
            | ReplayError::NoReads
            | ReplayError::LatencyTable(_) => Exit::BadData,
        };
        let failure = Failure::new(exit, error.to_string());
        match &error {
            ReplayError::FixedSet { .. } => failure
                .with_hint("store them, or use a separate server with --fill, which stores random values; the keys of a log are without the client's namespace: pass it with --namespace (gc~ for Django without \"like\")"),
            _ => failure,
        }
    }
}

/// The failure of a call to the target: the hints are about the flags of this command.
fn client_failure(error: &Error) -> Failure {
    let general_failure = target::failure(error);
    match error {
        Error::Unavailable(..) => general_failure
            .with_hint("--target names the server; glasscache serve starts one on 127.0.0.1:11211"),
        Error::Deadline(_) => general_failure.with_hint("a replay gives each call ten seconds"),
        _ => general_failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_max_or_a_factor() {
        assert_eq!(parse_speed("max"), Ok(Speed::Max));
        assert_eq!(parse_speed("1"), Ok(Speed::Recorded(1.0)));
        assert!(parse_speed("0").is_err() && parse_speed("fast").is_err());
    }
}
