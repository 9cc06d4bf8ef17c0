//! `glasscache simulate`: what would every request have waited, under each strategy?
//!
//! Reads a request log and a latency table, replays the log under every strategy and compares them on
//! the half of the requests that no choice has used. `--search` finds the best combination itself.

mod choice;
mod describe;
mod document;
mod fixed_items;
mod load;
mod search;
mod table;
mod web;

use std::path::{Path, PathBuf};
use std::time::Duration;

use glasscache_lab::text::wrap;
use glasscache_sim::page::Page;
use glasscache_sim::strategy::Strategy;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::report::{Report, ReportOptions, report, report_as_recorded};
use glasscache_sim::trace::log::NONE;

use crate::files::write_atomically;
use crate::output::{Exit, Failure, Output};
use crate::page_file;
use crate::page_table::{ROWS_WITHOUT_ALL, format_first_rows};
use crate::parallel;
use crate::seconds;
use load::LoadedLog;

const EXAMPLES: &str = "\
Strategies; + joins several, as in lru:206+children:
  remote               keep nothing in the process
  lru:N, s3fifo:N      a near cache of N items a process, by LRU or S3-FIFO
  lru-bytes:B          a near cache of B bytes a process, by LRU
  fixed:N              a fixed set of the N items that most requests use
  fixed-time:N         a fixed set of the N items whose calls take most time
  fixed-bytes:B        a fixed set of B bytes, by that time for each byte
  fixed-hindsight:N    fixed:N chosen on all requests: a bound, not a choice
  children             fetch the children of an item with it when it is missing
  children-always      fetch the children of every item that is read
  subtree:D            fetch D levels below the page of a request with the page
  together:P           fetch with an item what P % of its requests also read
  s4fifo:N, tuned:N    only compared, as no client has them; settings:
                       s4fifo:N:small=0.05,main=2 (also ghost-main, ghost, skip)

B may end in k, m or g. docs/reference/formats.md defines each strategy exactly.

Examples:
  glasscache generate topic-tree site        a made-up log to try it on
  glasscache simulate site                   the usual strategies, at two sizes
  glasscache simulate site --strategies remote,lru:206,fixed:206+children --json
  glasscache simulate site --search --memory 8M --html best.html
  glasscache simulate site --by route --exclude export";

/// Replay a request log under strategies: what would each request have waited?
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Folder of the request log: items and requests as .parquet or .jsonl
    #[arg(id = "log", value_name = "LOG")]
    log_folder: PathBuf,
    /// Latency table, taken as it is. Without it a call costs what the log's latency.json says and what the log's requests
    /// waited beyond that
    #[arg(long, value_name = "FILE")]
    latency: Option<PathBuf>,
    /// Strategies to compare; without it the usual ones at 1 % and 5 % of the items
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    strategies: Vec<String>,
    /// Search the best combination of fixed set, local cache, prefetch and depth
    #[arg(long, conflicts_with = "strategies")]
    search: bool,
    /// Memory that the search may use in each process
    #[arg(long, default_value = "64M", value_name = "BYTES", requires = "search")]
    memory: String,
    /// Seconds that a process may serve what it keeps, 10 in a client by default; without it for ever
    #[arg(id = "near_ttl", long = "near-ttl", value_name = "SECS")]
    near_ttl_s: Option<f64>,
    /// Show the figures of each route
    #[arg(long, value_parser = ["route"], conflicts_with = "search")]
    by: Option<String>,
    /// Leave the requests of these routes out, as if they had never been recorded
    #[arg(long, value_delimiter = ',', value_name = "ROUTE")]
    exclude: Vec<String>,
    /// Neither keep nor prefetch keys with this prefix; may be repeated. Sessions and keys that the log has as
    /// changed by add, cas, incr or append never are
    #[arg(long, value_name = "PREFIX")]
    never: Vec<String>,
    /// Keep keys with this prefix although they are sessions or changed in place; may be repeated
    #[arg(long, value_name = "PREFIX")]
    allow: Vec<String>,
    /// Also draw each call's latency from the measured distribution, with the same random draws for every strategy
    #[arg(long, conflicts_with = "search")]
    draw: bool,
    /// Seed of the draws
    #[arg(long, default_value_t = 1, requires = "draw")]
    seed: u64,
    /// Print every strategy, route and kept item, not only the first six; strategies that are named are all printed
    #[arg(long)]
    all: bool,
    /// Print every column
    #[arg(long)]
    wide: bool,
    /// Write the best strategy and its fixed set to a file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Also write a web page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Threads; 0 is one a core
    #[arg(long, default_value_t = 0, value_name = "N")]
    threads: usize,
}

/// How much the tables have.
#[derive(Debug, Clone, Copy)]
struct TableLimits {
    /// Items of a fixed set.
    items_max: usize,
    /// Whether they have every column, not only those that fit 80 characters.
    has_all_columns: bool,
}

impl TableLimits {
    /// What a page has: its tables scroll, and lists of items stay short.
    const HTML: Self = Self { items_max: ROWS_WITHOUT_ALL, has_all_columns: true };
}

/// A strategy with its notation as given.
struct NamedStrategy {
    notation: String,
    strategy: Strategy,
}

/// What the replays found.
struct Replays {
    /// Strategies with their reports, in the given order; those skipped after Ctrl-C are missing.
    strategy_reports: Vec<(NamedStrategy, Report)>,
    is_stopped: bool,
}

impl Args {
    /// Loads, replays, prints.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let loaded = load::load(&self.log_folder, self.latency.as_deref())?;
        let has_routes = loaded.log.requests.routes.iter().any(|&route_id| route_id != NONE);
        if self.by.is_some() && !has_routes {
            return Err(Failure::usage(
                "--by route has no effect: the requests of this log have no routes; leave it out",
            ));
        }
        let routes = load::choose_routes(&loaded.log, self.by.is_some());
        let excluded_ids = load::find_excluded_route_ids(&loaded.log, &self.exclude)?;
        let route_ids = &loaded.log.requests.routes;
        let never = load::build_never_rules(&loaded.log, &self.never, &self.allow)?;
        let prepared = PreparedLog::with_never(&loaded.log, never, |request| {
            !excluded_ids.contains(&route_ids[request])
        });
        let prepared = prepared.with_near_ttl(self.near_ttl()?);
        load::check_halves(&self.log_folder, &prepared)?;
        if self.search {
            return search::run(&self, out, &loaded, &prepared);
        }
        let replays =
            self.replay(&loaded, &prepared, &routes.route_of_request, routes.names.len())?;
        if replays.strategy_reports.is_empty() {
            return Err(Failure::new(
                Exit::Interrupted,
                "stopped before the first strategy was done",
            ));
        }
        // First, because a reader of the output may close it early.
        if let Some(path) = self.html.as_ref().filter(|_| !replays.is_stopped) {
            let html_page = web::build_page(&loaded, &prepared, &replays, &routes.names, self.seed);
            page_file::write(path, html_page, &[&self.log_folder])?;
        }
        if let Some(path) = self.save.as_ref().filter(|_| !replays.is_stopped) {
            let (best, _) = choice::find_best_replay(&replays);
            write_atomically(
                path,
                choice::build_strategy_file(best, &loaded, &prepared).as_bytes(),
            )?;
        }
        if out.is_json() {
            out.set_result(&document::build_document(&loaded, &prepared, &replays, &routes.names));
        } else {
            let page =
                table::build_page(&loaded, &prepared, &replays, &routes.names, self.table_limits());
            // Strategies that are named are all of interest.
            let prints_all_strategies = self.all || !self.strategies.is_empty();
            let saved_path = self.save.as_deref().filter(|_| !replays.is_stopped);
            print(out, &page, (prints_all_strategies, self.all), saved_path)?;
        }
        if replays.is_stopped {
            return Err(Failure::stopped());
        }
        Ok(Exit::Success)
    }

    /// How long a process may serve what it keeps.
    fn near_ttl(&self) -> Result<Option<Duration>, Failure> {
        let seconds = self.near_ttl_s;
        seconds.map(|seconds| seconds::to_duration("--near-ttl", seconds)).transpose()
    }

    fn table_limits(&self) -> TableLimits {
        TableLimits { items_max: usize::MAX, has_all_columns: self.wide }
    }

    fn replay(
        &self,
        loaded: &LoadedLog,
        prepared: &PreparedLog<'_>,
        route_of: &[u32],
        route_count: usize,
    ) -> Result<Replays, Failure> {
        let named_strategies = if self.strategies.is_empty() {
            choice::list_default_strategies(prepared.items.len(), has_parents(prepared))
        } else {
            choice::parse_strategies(&self.strategies)?
        };
        if self.save.is_some() {
            choice::check_savable(&named_strategies)?;
        }
        let draw_seed = self.draw.then_some(self.seed);
        if self.draw && loaded.cost_model.dependence_of_draws().is_none() {
            let message =
                "the latency table has no distribution (`single_pct`) to draw from (--draw)";
            return Err(Failure::new(Exit::BadData, message));
        }
        let options = ReportOptions { draw_seed, route_of, route_count };
        let outcome = parallel::run_in_parallel(
            named_strategies.len(),
            self.threads,
            "replaying",
            |strategy_index| {
                report(
                    prepared,
                    &loaded.cost_model,
                    &named_strategies[strategy_index].strategy,
                    options,
                )
            },
        )?;
        let mut strategy_reports: Vec<(NamedStrategy, Report)> = named_strategies
            .into_iter()
            .zip(outcome.results)
            .filter_map(|(named, report_or_stop)| Some((named, report_or_stop?)))
            .collect();
        let as_recorded = report_as_recorded(prepared, &loaded.log.requests, options);
        strategy_reports.extend(as_recorded.map(|report| {
            let notation = choice::AS_RECORDED.to_owned();
            (NamedStrategy { notation, strategy: Strategy::default() }, report)
        }));
        Ok(Replays { strategy_reports, is_stopped: outcome.is_stopped })
    }
}

/// Whether an item has a parent: without, strategies that fetch children cannot differ from those that do not.
fn has_parents(prepared: &PreparedLog<'_>) -> bool {
    prepared.items.parents.iter().any(|&parent| parent != NONE)
}

/// Prints the summary sentence, the tables and the notes. A table is printed with all its rows if
/// `prints_all_strategies`, for a table of strategies, or `prints_all_others`, for another table. Then what to do with a
/// strategy that was saved.
fn print(
    out: &Output,
    page: &Page,
    (prints_all_strategies, prints_all_others): (bool, bool),
    saved_path: Option<&Path>,
) -> Result<(), Failure> {
    out.print_line(wrap(&page.sentence))?;
    for table in &page.tables {
        let is_of_strategies = table.header.first().is_some_and(|name| name == "strategy");
        let prints_all = if is_of_strategies { prints_all_strategies } else { prints_all_others };
        out.print_line("")?;
        out.print_bytes(format_first_rows(table, None, prints_all).as_bytes())?;
    }
    out.print_line("")?;
    page.notes.iter().try_for_each(|note| out.print_line(wrap(note)))?;
    if let Some(path) = saved_path {
        let path = path.display();
        let next_step = format!(
            "Saved to {path}. Check it against your cache: glasscache replay LOG --target HOST:PORT --strategy {path}; then run it for a tenth of the requests: Client(..., strategy=\"{path}\", share=0.1)."
        );
        out.print_line(wrap(&next_step))?;
    }
    Ok(())
}
