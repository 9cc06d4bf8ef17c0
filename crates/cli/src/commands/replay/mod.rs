//! `glasscache replay`: the recorded requests made again by our client, and what they needed beside the forecast.
//!
//! The forecast is written before the replay begins. It takes its prices from a latency table that is measured on the
//! same server just before, by a rehearsal of the log's first half: nothing is stored unless `--fill` says so.

mod forecast_file;
mod results;
mod table;

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use glasscache_client::{Address, Error};
use glasscache_lab::bench::record;
use glasscache_lab::replay::{
    AbsentKeys, Replay, ReplayError, ReplayOutcome, ReplayPlan, Speed, fill,
};
use glasscache_lab::text::{format_count_of, wrap};
use glasscache_record::FolderLog;
use glasscache_sim::strategy::StrategyFile;
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::noise::compute_error_intervals;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::replay_file::{run_file, with_tree_of};
use glasscache_sim::trace::log::RequestLog;

use crate::files::read_text;
use crate::interrupts::new_stop_flag;
use crate::live_target::new_progress_bar;
use crate::output::{Exit, Failure, Output};
use crate::page_file;
use crate::page_table::format_sentence_and_tables;
use crate::target;
use crate::traces::read_log;
use forecast_file::ForecastFile;
use results::{Conclusion, ReplaySetup, Results};

const EXAMPLES: &str = "\
Examples:
  glasscache simulate requests/ --search --save best.strategy
  glasscache replay requests/ --target 127.0.0.1:11211 --strategy best.strategy
  glasscache replay requests/ --target cache1:11211 --strategy best.strategy --html replay.html
  glasscache replay site --target 127.0.0.1:11300 --strategy best.strategy --fill

It reads only, unless --fill is given. Keys that the server does not have are left out if they are at
most 1 % of the reads and of the fixed set. The exit code is 1 if the forecast did not hold or this
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
        let mut strategy_file = self.read_strategy_file()?;
        let FolderLog { log: mut recorded_log, left_out } = read_log(&self.log_folder)?;
        let servers = Address::parse_list(&self.target).map_err(|error| client_failure(&error))?;
        let (log, absent_keys) =
            self.prepare_log(&servers, &mut recorded_log, &mut strategy_file)?;
        let prepared =
            PreparedLog::with_never(&log, strategy_file.never.clone(), |_| true).without_ttls();
        let plan = ReplayPlan {
            servers: &servers,
            strategy_file: &strategy_file,
            log: &log,
            prepared: &prepared,
            thread_count: self.clients as usize,
            speed: self.speed,
        };
        let replay = Replay::prepare(plan).map_err(|error| failure(&error))?;
        let latency_before = replay.measure_latency_table().map_err(|error| failure(&error))?;
        let forecast = run_file(&prepared, latency_before.cost_model(), &strategy_file);
        let forecast_file = self.create_forecast_file()?;
        let setup = ReplaySetup {
            log_name: self.log_folder.display().to_string(),
            left_out_parts: left_out.iter().map(ToString::to_string).collect(),
            target: self.target.clone(),
            strategy: strategy_file.strategy.to_string(),
            instances: prepared.instances(),
            clients: self.clients as usize,
            forecast_path: forecast_file.path().to_owned(),
            absent_keys,
        };
        forecast_file.write(&results::build_forecast_document(
            &setup,
            &prepared,
            &forecast,
            &latency_before,
        ))?;
        let replay_outcome = run_until_stopped(&replay, prepared.len())?;
        let latency_after = replay.measure_latency_table().map_err(|error| failure(&error))?;
        let forecast_second_half = |cost_model: &CostModel| {
            run_file(&prepared, cost_model, &strategy_file).split_off(prepared.second_half_start())
        };
        let added_errors = compute_error_intervals(
            &latency_before.round_forecasts(forecast_second_half),
            &latency_after.round_forecasts(forecast_second_half),
            &replay_outcome.request_stats[prepared.second_half_start()..],
        );
        let results = Results::new(
            setup,
            &prepared,
            (&forecast, replay_outcome),
            (latency_before, latency_after),
            (added_errors, self.within_percent / 100.0),
        );
        self.print(out, &results)
    }

    /// The log with the tree of the strategy file; keys that the servers lack are left out of both if they are few.
    fn prepare_log(
        &self,
        servers: &[Address],
        recorded_log: &mut RequestLog,
        strategy_file: &mut StrategyFile,
    ) -> Result<(RequestLog, AbsentKeys), Failure> {
        let log = with_tree_of(recorded_log, strategy_file);
        let prepared =
            PreparedLog::with_never(&log, strategy_file.never.clone(), |_| true).without_ttls();
        super::simulate::check_halves(&self.log_folder, &prepared)?;
        self.check_clients(prepared.instances())?;
        if self.fill {
            fill(servers, &log.items).map_err(|error| failure(&error))?;
            return Ok((log, AbsentKeys::default()));
        }
        let absent_keys = AbsentKeys::find(servers, &log, strategy_file);
        let absent_keys = absent_keys.map_err(|error| failure(&error))?;
        if !absent_keys.can_be_left_out() {
            return Ok((log, absent_keys));
        }
        absent_keys.leave_out(recorded_log, strategy_file);
        Ok((with_tree_of(recorded_log, strategy_file), absent_keys))
    }

    fn print(&self, out: &Output, results: &Results) -> Result<Exit, Failure> {
        let page = table::build_page(results);
        if out.is_json() {
            out.set_result(&results.to_document(&page.sentence));
        } else {
            out.print_line(format_sentence_and_tables(&page.sentence, &page.tables))?;
            page.notes.iter().try_for_each(|note| out.print_line(wrap(note)))?;
        }
        if let Some(path) = &self.html {
            page_file::write(path, page, &[&self.log_folder])?;
        }
        Ok(match results.conclusion() {
            Conclusion::Held => Exit::Success,
            Conclusion::Missed | Conclusion::Undecided => Exit::Finding,
        })
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

    /// Refuses threads that would make no request, for the latency table would be measured with their calls.
    fn check_clients(&self, instance_count: usize) -> Result<(), Failure> {
        let clients = self.clients;
        if clients as usize <= instance_count {
            return Ok(());
        }
        let process_text = format_count_of(instance_count as u64, "process", "processes");
        Err(Failure::usage(format!(
            "--clients {clients} has no effect: the log has {process_text}, and one thread makes the requests of each"
        )))
    }

    fn create_forecast_file(&self) -> Result<ForecastFile, Failure> {
        match &self.forecast_path {
            Some(path) => ForecastFile::create(path),
            None => ForecastFile::create_in(&self.log_folder, &record::format_now()),
        }
    }
}

/// Replays the requests with a progress bar, until Ctrl-C.
fn run_until_stopped(replay: &Replay<'_>, request_count: usize) -> Result<ReplayOutcome, Failure> {
    let stop = new_stop_flag()?;
    let bar = new_progress_bar();
    bar.set_length(request_count as u64);
    let replay_outcome = replay.run(&stop, &|| bar.inc(1));
    let requests_made = bar.position();
    bar.finish_and_clear();
    if stop.load(Ordering::Relaxed) {
        let message = format!("stopped after {requests_made} of {request_count} requests");
        return Err(Failure::new(Exit::Interrupted, message));
    }
    replay_outcome.map_err(|error| failure(&error))
}

fn failure(error: &ReplayError) -> Failure {
    let exit = match error {
        ReplayError::Client(error) => return client_failure(error),
        ReplayError::Key(_) | ReplayError::NoStrategy => Exit::Usage,
        ReplayError::MeasuringThread | ReplayError::ReplayThread => Exit::Finding,
        ReplayError::FixedSet { .. } | ReplayError::NoReads | ReplayError::LatencyTable(_) => {
            Exit::BadData
        }
    };
    let failure = Failure::new(exit, error.to_string());
    match error {
        ReplayError::FixedSet { .. } => {
            failure.with_hint("store them, or add --fill for random values of the recorded sizes")
        }
        _ => failure,
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
