//! `glasscache replay`: the recorded requests made again by our client, and what they needed beside the forecast.
//!
//! The forecast is written before the replay begins. It takes its prices from a latency table that is measured on the
//! same server just before, by a rehearsal of the log's first half: nothing is stored unless `--fill` says so.

mod fill;
mod forecast_file;
mod instance;
mod rehearsal;
mod results;
mod run;
mod single_gets;
mod table;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use glasscache_client::{Address, Error};
use glasscache_lab::bench::record;
use glasscache_record::FolderLog;
use glasscache_sim::strategy::StrategyFile;
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::noise::compute_error_intervals;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::replay_file::{run_file, with_tree_of};
use glasscache_sim::trace::log::RequestLog;

use super::target;
use crate::files::read_text;
use crate::interrupts::new_stop_flag;
use crate::live_target::new_progress_bar;
use crate::output::{Exit, Failure, Output};
use crate::page_file;
use crate::page_table::format_sentence_and_tables;
use crate::table::format_count_of;
use crate::traces::read_log;
use crate::word_wrap::wrap;
use forecast_file::ForecastFile;
use instance::AppInstance;
use rehearsal::Rehearsal;
use results::{ReplaySetup, Results};
use run::{AppInstances, ReplayOptions, ReplayOutcome};
use single_gets::SingleGets;

/// How long a call may take: long enough that a slow server is measured, not refused.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  glasscache simulate requests/ --search --save best.strategy
  glasscache replay requests/ --target 127.0.0.1:11211 --strategy best.strategy
  glasscache replay requests/ --target cache1:11211 --strategy best.strategy --html replay.html
  glasscache replay site --target 127.0.0.1:11300 --strategy best.strategy --fill

It reads only, unless --fill is given. The exit code is 1 if the forecast did not hold, and 4 if the
server lacks a key of the fixed set.";

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

/// When each request is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Speed {
    /// At its recorded time, sped up by this factor.
    Recorded(f64),
    /// After the one before.
    Max,
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
        let FolderLog { log, left_out } = read_log(&self.log_folder)?;
        let log = with_tree_of(&log, &strategy_file);
        let prepared = PreparedLog::new(&log, |_| true);
        super::simulate::check_halves(&self.log_folder, &prepared)?;
        self.check_clients(prepared.instances())?;
        let servers = Address::parse_list(&self.target).map_err(|error| failure(&error))?;
        if self.fill {
            fill::fill(&servers, &log.items)?;
        }
        let instances = AppInstances::load(&servers, &strategy_file, &log)?;
        let single_gets = SingleGets::new(&list_used_items(&prepared))?;
        let uncached_instances = self.new_uncached_instances(&servers)?;
        let rehearsal = Rehearsal {
            servers: &servers,
            strategy_file: &strategy_file,
            log: &log,
            prepared: &prepared,
            thread_count: uncached_instances.len(),
        };
        let latency_before = rehearsal.measure_latency_table(&single_gets, &uncached_instances)?;
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
        };
        forecast_file.write(&results::build_forecast_document(
            &setup,
            &prepared,
            &forecast,
            &latency_before,
        ))?;
        let replay_outcome = self.replay(&instances, &log, &prepared)?;
        let latency_after = rehearsal.measure_latency_table(&single_gets, &uncached_instances)?;
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
        Ok(if results.is_forecast_within() { Exit::Success } else { Exit::Finding })
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

    /// Instances that keep nothing, for the latency table: as many as make calls at the same time.
    fn new_uncached_instances(&self, servers: &[Address]) -> Result<Vec<AppInstance>, Failure> {
        let concurrent_calls = match self.speed {
            Speed::Max => self.clients,
            Speed::Recorded(_) => 1,
        };
        (0..concurrent_calls).map(|_| AppInstance::new(servers, &StrategyFile::default())).collect()
    }

    fn replay(
        &self,
        instances: &AppInstances,
        log: &RequestLog,
        prepared: &PreparedLog<'_>,
    ) -> Result<ReplayOutcome, Failure> {
        let stop = new_stop_flag()?;
        let bar = new_progress_bar();
        bar.set_length(prepared.len() as u64);
        let replay_options = ReplayOptions {
            thread_count: self.clients as usize,
            speed: self.speed,
            stop: &stop,
            bar: &bar,
        };
        let replay_outcome = instances.replay((log, prepared), &replay_options);
        let requests_made = bar.position();
        bar.finish_and_clear();
        if stop.load(Ordering::Relaxed) {
            let message = format!("stopped after {requests_made} of {} requests", prepared.len());
            return Err(Failure::new(Exit::Interrupted, message));
        }
        replay_outcome
    }
}

/// The failure of a call to the target: the hints are about the flags of this command.
fn failure(error: &Error) -> Failure {
    let general_failure = target::failure(error);
    match error {
        Error::Unavailable(..) => general_failure
            .with_hint("--target names the server; glasscache serve starts one on 127.0.0.1:11211"),
        Error::Deadline(_) => general_failure.with_hint("a replay gives each call ten seconds"),
        _ => general_failure,
    }
}

/// Key and bytes of each item that a request reads.
fn list_used_items<'l>(prepared: &PreparedLog<'l>) -> Vec<(&'l str, u32)> {
    let uses = prepared.uses(0..prepared.len());
    let items = prepared.items.keys.iter().zip(&prepared.items.sizes).zip(uses);
    let items_in_use = items.filter(|(_, uses)| *uses > 0);
    items_in_use.map(|((key, &size), _)| (key.as_str(), size)).collect()
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
