//! `simulate --search`: the best combinations for each amount of memory, evaluated on requests that the search has
//! not used.

use std::sync::{Mutex, PoisonError};

use glasscache_sim::page::{Chart, Page, Series, Table, format_short_bytes};
use glasscache_sim::search::{
    BestSoFar, Candidate, Evaluation, LearnedByShare, evaluate, find_pareto_front, list_candidates,
};
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::report::{Report, ReportOptions, report, report_as_recorded};
use glasscache_sim::strategy::{Strategy, parse_bytes};
use serde_json::json;

use super::describe::describe;
use super::fixed_items::{FixedItems, find_unknown_sizes};
use super::load::{LoadedLog, describe_prices};
use super::table::{
    find_unknown_decoding, format_decoding, format_percent, format_percent_with_interval,
    list_left_out_notes, select_columns,
};
use super::{Args, NamedStrategy, TableLimits, choice, document, print};
use crate::files::write_atomically;
use crate::output::{Exit, Failure, Output};
use crate::page_file;
use crate::parallel;

/// An evaluated point of the front.
struct FrontPoint {
    named: NamedStrategy,
    memory_bytes: u64,
    report: Report,
    /// Added milliseconds per request that hindsight could reach with the same memory; `None` if the search was
    /// stopped before.
    hindsight_ms: Option<f64>,
}

/// Searches, evaluates the front, prints.
pub(super) fn run(
    args: &Args,
    out: &Output,
    loaded: &LoadedLog,
    prepared: &PreparedLog<'_>,
) -> Result<Exit, Failure> {
    let memory_bytes_max = parse_bytes(&args.memory).ok_or_else(|| {
        Failure::usage(format!("`{}` is not a number of bytes such as 64M (--memory)", args.memory))
    })?;
    if prepared.second_half_start() < 2 {
        return Err(Failure::new(
            Exit::BadData,
            "a search needs at least 4 requests: it splits the first half again",
        ));
    }
    let Front { candidates, tried_count, hindsight_bound, is_stopped } =
        find_front(args, loaded, prepared, memory_bytes_max)?;
    let points = evaluate_front(args, loaded, prepared, candidates, &hindsight_bound)?;
    let today_ms = compute_today_ms(loaded, prepared);
    let build_page_within = |table_limits| {
        build_page(
            args,
            (loaded, prepared, table_limits),
            (&points[..], today_ms),
            tried_count,
            is_stopped,
        )
    };
    // First, because a reader of the output may close it early.
    if !is_stopped {
        let html_page = || build_page_within(TableLimits::HTML);
        write_files(args, html_page, (loaded, prepared), points.last())?;
    }
    if out.is_json() {
        let mut document = build_document(loaded, prepared, &points, tried_count, is_stopped);
        document["sentence"] = json!(format_sentence(args, (&points[..], today_ms)));
        document["today_added_ms"] = json!(today_ms);
        let best = points.last();
        let fixed_items =
            best.and_then(|best| FixedItems::of_strategy(&best.named, loaded, prepared));
        document["fixed_set"] = json!(fixed_items.map(|fixed_items| fixed_items.to_document()));
        out.set_result(&document);
    } else {
        let saved_path = args.save.as_deref().filter(|_| !is_stopped);
        print(out, &build_page_within(args.table_limits()), (args.all, args.all), saved_path)?;
    }
    if is_stopped {
        return Err(Failure::stopped());
    }
    Ok(Exit::Success)
}

/// The combinations that no other beats with the same or less memory.
struct Front {
    candidates: Vec<Candidate>,
    tried_count: usize,
    /// What hindsight could reach.
    hindsight_bound: BestSoFar,
    is_stopped: bool,
}

fn find_front(
    args: &Args,
    loaded: &LoadedLog,
    prepared: &PreparedLog<'_>,
    memory_bytes_max: u64,
) -> Result<Front, Failure> {
    let learned_by_share = LearnedByShare::learn(prepared, Evaluation::OutOfSample);
    let candidates = list_candidates(prepared, memory_bytes_max, &learned_by_share);
    let past = evaluate_all(args, loaded, prepared, candidates, Evaluation::OutOfSample)?;
    if past.candidate_times.is_empty() {
        return Err(Failure::new(
            Exit::Interrupted,
            "stopped before the first combination was done",
        ));
    }
    let front_indices = find_pareto_front(&past.candidate_times).into_iter();
    let mut front = Front {
        candidates: front_indices.map(|index| past.candidate_times[index].0).collect(),
        tried_count: past.candidate_times.len(),
        hindsight_bound: BestSoFar::default(),
        is_stopped: past.is_stopped,
    };
    if !front.is_stopped {
        // The best of that evaluation first: they are likely to be good again, which stops the replays of others early.
        let mut replay_order = past.candidate_times;
        replay_order.sort_by_key(|&(_, added_ns)| added_ns);
        let replay_order = replay_order.into_iter().map(|(candidate, _)| candidate).collect();
        let hindsight = evaluate_all(args, loaded, prepared, replay_order, Evaluation::Hindsight)?;
        (front.hindsight_bound, front.is_stopped) = (hindsight.best_so_far, hindsight.is_stopped);
    }
    Ok(front)
}

/// Writes the page and the best strategy, if they are wanted.
fn write_files(
    args: &Args,
    html_page: impl FnOnce() -> Page,
    (loaded, prepared): (&LoadedLog, &PreparedLog<'_>),
    best: Option<&FrontPoint>,
) -> Result<(), Failure> {
    if let Some(path) = &args.html {
        page_file::write(path, html_page(), &[&args.log_folder])?;
    }
    if let Some((path, best)) = args.save.as_ref().zip(best) {
        let text = choice::build_strategy_file(&best.named, loaded, prepared);
        write_atomically(path, text.as_bytes())?;
    }
    Ok(())
}

/// What each request adds today, as the log has it, on the second half.
fn compute_today_ms(loaded: &LoadedLog, prepared: &PreparedLog<'_>) -> f64 {
    let options = ReportOptions { draw_seed: None, route_of: &[], route_count: 0 };
    let today = report(prepared, &loaded.cost_model, &Strategy::default(), options);
    today.second_half.wait_ms()
}

/// Beyond this multiple of the forecast, what `inspect` says of today seems to contradict the search.
const UNEXPLAINED_WAIT: f64 = 1.2;

/// How long the recorded requests waited, if a good part of it was for what the forecast does not include.
fn find_other_waits(
    loaded: &LoadedLog,
    prepared: &PreparedLog<'_>,
    today_ms: f64,
) -> Option<String> {
    let options = ReportOptions { draw_seed: None, route_of: &[], route_count: 0 };
    let recorded = report_as_recorded(prepared, &loaded.log.requests, options)?;
    let wait_ms = recorded.second_half.wait_ms();
    (wait_ms > today_ms * UNEXPLAINED_WAIT).then(|| {
        format!(
            "The recorded requests waited {wait_ms:.2} ms, besides decoding. That includes calls that write, which a strategy does not change and the forecast leaves out."
        )
    })
}

/// A note if the log ends before a process would refresh its fixed set.
fn find_missing_refreshes(args: &Args, loaded: &LoadedLog) -> Option<String> {
    let times_us = &loaded.log.requests.times_us;
    let log_us = times_us.last()?.saturating_sub(*times_us.first()?);
    let is_missing = args.near_ttl_s.is_some_and(|near_ttl_s| (log_us as f64) < near_ttl_s * 1e6);
    is_missing.then(|| {
        "The log is shorter than --near-ttl: what refreshing a fixed set costs is not in the forecast.".to_owned()
    })
}

/// The added time of the candidates in one evaluation.
struct EvaluationResult {
    /// The candidates with their added nanoseconds.
    candidate_times: Vec<(Candidate, u64)>,
    best_so_far: BestSoFar,
    is_stopped: bool,
}

/// Replays candidates, each until it cannot beat the best so far.
fn evaluate_all(
    args: &Args,
    loaded: &LoadedLog,
    prepared: &PreparedLog<'_>,
    candidates: Vec<Candidate>,
    evaluation: Evaluation,
) -> Result<EvaluationResult, Failure> {
    let best_so_far = Mutex::new(BestSoFar::default());
    let learned_by_share = LearnedByShare::learn(prepared, evaluation);
    let lock_best = || best_so_far.lock().unwrap_or_else(PoisonError::into_inner);
    let label = match evaluation {
        Evaluation::OutOfSample => "searching",
        Evaluation::Hindsight => "in hindsight",
    };
    let outcome = parallel::run_in_parallel(candidates.len(), args.threads, label, |index| {
        let candidate = &candidates[index];
        let limit_ns = lock_best().least_added_ns_within(candidate.memory_bytes);
        let added_ns = evaluate(
            prepared,
            &loaded.cost_model,
            candidate,
            evaluation,
            &learned_by_share,
            limit_ns,
        );
        lock_best().record(candidate.memory_bytes, added_ns);
        added_ns
    })?;
    let evaluated = candidates.into_iter().zip(outcome.results);
    let evaluated = evaluated.filter_map(|(candidate, added_ns)| Some((candidate, added_ns?)));
    Ok(EvaluationResult {
        candidate_times: evaluated.collect(),
        best_so_far: best_so_far.into_inner().unwrap_or_else(PoisonError::into_inner),
        is_stopped: outcome.is_stopped,
    })
}

/// Replays the front with fixed sets chosen on the first half.
fn evaluate_front(
    args: &Args,
    loaded: &LoadedLog,
    prepared: &PreparedLog<'_>,
    front_candidates: Vec<Candidate>,
    hindsight_bound: &BestSoFar,
) -> Result<Vec<FrontPoint>, Failure> {
    let options = ReportOptions { draw_seed: None, route_of: &[], route_count: 0 };
    let outcome =
        parallel::run_in_parallel(front_candidates.len(), args.threads, "evaluating", |index| {
            report(prepared, &loaded.cost_model, &front_candidates[index].strategy, options)
        })?;
    let points =
        front_candidates.into_iter().zip(outcome.results).filter_map(|(candidate, report)| {
            let report = report?;
            let request_count = report.second_half.requests as f64;
            // With refreshes of a fixed set, which the report counts apart.
            let hindsight_ns = hindsight_bound.least_added_ns_within(candidate.memory_bytes);
            let hindsight_ns = hindsight_ns.map(|ns| ns.min(report.second_half.added_ns));
            let named = NamedStrategy {
                notation: candidate.strategy.to_string(),
                strategy: candidate.strategy,
            };
            Some(FrontPoint {
                named,
                memory_bytes: candidate.memory_bytes,
                report,
                hindsight_ms: hindsight_ns.map(|ns| ns as f64 / request_count / 1e6),
            })
        });
    Ok(points.collect())
}

fn build_page(
    args: &Args,
    (loaded, prepared, table_limits): (&LoadedLog, &PreparedLog<'_>, TableLimits),
    (points, today_ms): (&[FrontPoint], f64),
    tried_count: usize,
    is_stopped: bool,
) -> Page {
    let mut notes = vec![format!(
        "{tried_count} combinations tried: fixed sets chosen on the first quarter, combinations on the second, the table evaluated on the second half. \
         Hindsight: the best for the same memory when everything is chosen on the half that evaluates it."
    )];
    notes.extend(
        is_stopped
            .then(|| "Stopped early: combinations that were not tried may be better.".to_owned()),
    );
    notes.extend(find_unknown_sizes(prepared).map(|(_, note)| note));
    notes.extend(find_unknown_decoding(prepared));
    notes.extend(find_other_waits(loaded, prepared, today_ms));
    notes.extend(find_missing_refreshes(args, loaded));
    notes.extend(describe_prices(&loaded.cost_model));
    notes.extend(list_left_out_notes(loaded));
    let best = points.last();
    let fixed_items = best.and_then(|best| FixedItems::of_strategy(&best.named, loaded, prepared));
    let mut tables = vec![build_table(points, table_limits)];
    tables.extend(
        fixed_items.iter().flat_map(|fixed_items| fixed_items.tables(table_limits.items_max)),
    );
    Page {
        title: format!("Best use of memory: {}", loaded.folder_name),
        sentence: format_sentence(args, (points, today_ms)),
        tables,
        charts: vec![build_chart(points)],
        notes,
        ..Page::default()
    }
}

fn format_sentence(args: &Args, (points, today_ms): (&[FrontPoint], f64)) -> String {
    let (Some(first), Some(best)) = (points.first(), points.last()) else {
        return "No combination was evaluated.".into();
    };
    let hindsight_text =
        best.hindsight_ms.map_or(String::new(), |ms| format!("; hindsight could reach {ms:.2} ms"));
    if best.report.kept.bytes() == 0 {
        return format!(
            "Today: {today_ms:.2} ms added a request. Within {} a process nothing worth keeping fits: `{}`, which keeps nothing, adds {:.2} ms a request.{}",
            args.memory,
            best.named.notation,
            best.report.second_half.wait_ms(),
            format_decoding(&best.report),
        );
    }
    let keeps_nothing = if first.report.kept.bytes() == 0 {
        format!(
            " Keeping nothing, so that no value is stale, `{}` adds {:.2} ms.",
            first.named.notation,
            first.report.second_half.wait_ms()
        )
    } else {
        String::new()
    };
    format!(
        "Today: {today_ms:.2} ms added a request.{keeps_nothing} Within {} a process `{}` does best: {:.2} ms, with which {} of the requests are at least 50 % slower than without waiting{hindsight_text}. In words: {}.{}",
        args.memory,
        best.named.notation,
        best.report.second_half.wait_ms(),
        format_percent_with_interval(&best.report.second_half),
        describe(&best.named.strategy, &best.report.kept),
        format_decoding(&best.report)
    )
}

/// The columns of the front that fit 80 characters.
const NARROW_COLUMNS: [usize; 5] = [0, 1, 2, 3, 7];

fn build_table(points: &[FrontPoint], table_limits: TableLimits) -> Table {
    let header = [
        "memory",
        "strategy",
        "added ms",
        "in hindsight",
        "calls",
        ">=10 %",
        ">=25 %",
        ">=50 %",
        ">=100 %",
    ];
    let format_row = |point: &FrontPoint| {
        let figures = &point.report.second_half;
        let mut cells = vec![
            format_short_bytes(point.memory_bytes),
            point.named.notation.clone(),
            format!("{:.3}", figures.wait_ms()),
            point.hindsight_ms.map_or_else(|| "-".into(), |ms| format!("{ms:.3}")),
            format!("{:.2}", figures.calls as f64 / figures.requests.max(1) as f64),
        ];
        cells.extend(figures.share_slower.map(format_percent));
        cells
    };
    let title = "The front, the least added time first: what each amount of memory (a process) can buy, judged on the \
                 second half";
    let table = Table {
        title: title.into(),
        header: header.map(String::from).to_vec(),
        rows: points.iter().rev().map(format_row).collect(),
    };
    if table_limits.has_all_columns {
        table
    } else {
        select_columns(&table, &NARROW_COLUMNS, title)
    }
}

fn build_chart(points: &[FrontPoint]) -> Chart {
    let new_series = |label: &str, ms: fn(&FrontPoint) -> Option<f64>| Series {
        label: label.into(),
        points: points
            .iter()
            .filter_map(|point| Some((point.memory_bytes as f64 / f64::from(1 << 20), ms(point)?)))
            .collect(),
        ..Series::default()
    };
    Chart {
        title: "Memory against added time".into(),
        x_label: "memory in each process (MiB)".into(),
        y_label: "added time (ms a request)".into(),
        series: vec![
            new_series("chosen on the past, evaluated on the second half", |point| {
                Some(point.report.second_half.wait_ms())
            }),
            new_series("in hindsight", |point| point.hindsight_ms),
        ],
        ..Chart::default()
    }
}

fn build_document(
    loaded: &LoadedLog,
    prepared: &PreparedLog<'_>,
    points: &[FrontPoint],
    tried_count: usize,
    is_stopped: bool,
) -> serde_json::Value {
    let point_document = |point: &FrontPoint| {
        json!({
            "memory_bytes": point.memory_bytes,
            "strategy": point.named.notation,
            "words": describe(&point.named.strategy, &point.report.kept),
            "all": point.report.all.to_document(),
            "second_half": point.report.second_half.to_document(),
            "hindsight_added_ms": point.hindsight_ms,
        })
    };
    json!({
        "log": document::build_log_document(loaded, prepared),
        "tried": tried_count,
        "stopped": is_stopped,
        "front": points.iter().map(point_document).collect::<Vec<_>>(),
    })
}
