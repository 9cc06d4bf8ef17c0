//! `simulate --search`: the best combinations for each amount of memory, evaluated on requests that the search has
//! not used.

use std::sync::{Mutex, PoisonError};

use glasscache_sim::page::{Chart, Page, Series, Table, short_bytes};
use glasscache_sim::search::{
    BestSoFar, Candidate, Evaluation, Lessons, added_ns, candidates, pareto_front,
};
use glasscache_sim::strategy::parse_bytes;
use glasscache_sim::strategy::prepare::Prepared;
use glasscache_sim::strategy::report::{Report, ReportOptions, report};
use serde_json::json;

use super::kept::{FixedItems, unknown_sizes};
use super::load::LoadedLog;
use super::table::{percent, percent_with_interval};
use super::words::describe;
use super::{Args, NamedStrategy, choice, document, print};
use crate::files::write_whole;
use crate::output::{Exit, Failure, Output};
use crate::parallel;

/// An evaluated point of the front.
struct Point {
    named: NamedStrategy,
    memory_bytes: u64,
    report: Report,
    /// Added milliseconds per request that hindsight could reach with the same memory; `None` if the search was
    /// stopped before.
    bound_ms: Option<f64>,
}

/// Searches, evaluates the front, prints.
pub(super) fn run(
    args: &Args,
    out: &Output,
    loaded: &LoadedLog,
    prepared: &Prepared<'_>,
) -> Result<Exit, Failure> {
    let memory = parse_bytes(&args.memory).ok_or_else(|| {
        Failure::usage(format!(
            "`{}` is not a number of bytes such as 64M (--memory)",
            args.memory
        ))
    })?;
    if prepared.half() < 2 {
        return Err(Failure::new(
            Exit::BadData,
            "a search needs at least 4 requests: it splits the first half again",
        ));
    }
    let lessons = Lessons::learn(prepared, Evaluation::Past);
    let candidates = candidates(prepared, memory, &lessons);
    let past = evaluate_all(args, loaded, prepared, candidates, Evaluation::Past)?;
    if past.found.is_empty() {
        return Err(Failure::new(
            Exit::Finding,
            "stopped before the first combination was done",
        ));
    }
    let chosen = pareto_front(&past.found)
        .into_iter()
        .map(|i| past.found[i].0);
    let chosen: Vec<Candidate> = chosen.collect();
    let count = past.found.len();
    let mut is_stopped = past.is_stopped;
    let mut bound = BestSoFar::default();
    if !is_stopped {
        // The best of the past first: they are likely to be good again, which stops the replays of others early.
        let mut order = past.found;
        order.sort_by_key(|&(_, ns)| ns);
        let order = order.into_iter().map(|(candidate, _)| candidate).collect();
        let hindsight = evaluate_all(args, loaded, prepared, order, Evaluation::Hindsight)?;
        (bound, is_stopped) = (hindsight.best_so_far, hindsight.is_stopped);
    }
    let points = evaluate_front(args, loaded, prepared, chosen, &bound)?;
    let page = page(args, (loaded, prepared), &points, count, is_stopped);
    if out.is_json() {
        let mut document = json(loaded, prepared, &points, count, is_stopped);
        document["sentence"] = json!(page.sentence);
        let best = points.last();
        let fixed = best.and_then(|best| FixedItems::of(&best.named, loaded, prepared));
        document["fixed_set"] = json!(fixed.map(|fixed| fixed.document()));
        out.document(&document);
    } else {
        print(
            out,
            &Page {
                charts: Vec::new(),
                ..page.clone()
            },
        )?;
    }
    if let Some(file) = &args.html {
        write_whole(file, page.to_html().as_bytes())?;
    }
    if let (Some(file), Some(best)) = (&args.save, points.into_iter().next_back()) {
        let text = choice::strategy_file(&(best.named, best.report), loaded, prepared);
        write_whole(file, text.as_bytes())?;
    }
    Ok(if is_stopped {
        Exit::Finding
    } else {
        Exit::Success
    })
}

/// The added time of the candidates in one evaluation.
struct Evaluated {
    found: Vec<(Candidate, u64)>,
    best_so_far: BestSoFar,
    is_stopped: bool,
}

/// Replays candidates, each until it cannot beat the best so far.
fn evaluate_all(
    args: &Args,
    loaded: &LoadedLog,
    prepared: &Prepared<'_>,
    candidates: Vec<Candidate>,
    evaluation: Evaluation,
) -> Result<Evaluated, Failure> {
    let best_so_far = Mutex::new(BestSoFar::default());
    let lessons = Lessons::learn(prepared, evaluation);
    let lock = || best_so_far.lock().unwrap_or_else(PoisonError::into_inner);
    let what = match evaluation {
        Evaluation::Past => "searching",
        Evaluation::Hindsight => "in hindsight",
    };
    let done = parallel::in_parallel(candidates.len(), args.threads, what, |index| {
        let candidate = &candidates[index];
        let limit_ns = lock().within(candidate.memory_bytes);
        let ns = added_ns(
            prepared,
            &loaded.cost,
            candidate,
            evaluation,
            &lessons,
            limit_ns,
        );
        lock().note(candidate.memory_bytes, ns);
        ns
    })?;
    let found = candidates.into_iter().zip(done.results);
    let found = found.filter_map(|(candidate, ns)| Some((candidate, ns?)));
    Ok(Evaluated {
        found: found.collect(),
        best_so_far: best_so_far
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner),
        is_stopped: done.is_stopped,
    })
}

/// Replays the front with fixed sets chosen on the first half.
fn evaluate_front(
    args: &Args,
    loaded: &LoadedLog,
    prepared: &Prepared<'_>,
    chosen: Vec<Candidate>,
    bound: &BestSoFar,
) -> Result<Vec<Point>, Failure> {
    let options = ReportOptions {
        draw_seed: None,
        route_of: &[],
        routes: 0,
    };
    let done = parallel::in_parallel(chosen.len(), args.threads, "evaluating", |index| {
        report(prepared, &loaded.cost, &chosen[index].strategy, options)
    })?;
    let points = chosen
        .into_iter()
        .zip(done.results)
        .filter_map(|(candidate, report)| {
            let report = report?;
            let requests = report.second_half.requests as f64;
            let bound_ns = bound.within(candidate.memory_bytes);
            let named = NamedStrategy {
                notation: candidate.strategy.to_string(),
                strategy: candidate.strategy,
            };
            Some(Point {
                named,
                memory_bytes: candidate.memory_bytes,
                report,
                bound_ms: bound_ns.map(|ns| ns as f64 / requests / 1e6),
            })
        });
    Ok(points.collect())
}

fn page(
    args: &Args,
    (loaded, prepared): (&LoadedLog, &Prepared<'_>),
    points: &[Point],
    tried: usize,
    is_stopped: bool,
) -> Page {
    let mut notes = vec![format!(
        "{tried} combinations tried: fixed sets chosen on the first quarter, combinations on the second, the table evaluated on the second half. \
         Hindsight: the best for the same memory when everything is chosen on the half that evaluates it."
    )];
    notes.extend(
        is_stopped
            .then(|| "Stopped early: combinations that were not tried may be better.".to_owned()),
    );
    notes.extend(unknown_sizes(prepared).map(|(_, note)| note));
    notes.push(format!("glasscache {}.", env!("CARGO_PKG_VERSION")));
    let best = points.last();
    let fixed = best.and_then(|best| FixedItems::of(&best.named, loaded, prepared));
    let mut tables = vec![table(points)];
    tables.extend(fixed.iter().flat_map(FixedItems::tables));
    Page {
        title: format!("Best use of memory: {}", loaded.name),
        sentence: sentence(args, points),
        tables,
        charts: vec![chart(points)],
        notes,
    }
}

fn sentence(args: &Args, points: &[Point]) -> String {
    let (Some(first), Some(best)) = (points.first(), points.last()) else {
        return "No combination was evaluated.".into();
    };
    let bound = best.bound_ms.map_or(String::new(), |ms| {
        format!("; hindsight could reach {ms:.2} ms")
    });
    if best.report.kept.bytes() == 0 {
        return format!(
            "Within {} a process nothing worth keeping fits: `{}`, which keeps nothing, adds {:.2} ms a request.",
            args.memory,
            best.named.notation,
            best.report.second_half.added_ms(),
        );
    }
    format!(
        "Within {} a process `{}` does best: {:.2} ms added a request and {} at least 50 % slower, where nothing kept adds {:.2} ms{bound}. In words: {}.",
        args.memory,
        best.named.notation,
        best.report.second_half.added_ms(),
        percent_with_interval(&best.report.second_half),
        first.report.second_half.added_ms(),
        describe(&best.named.strategy, &best.report.kept)
    )
}

fn table(points: &[Point]) -> Table {
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
    let row = |point: &Point| {
        let figures = &point.report.second_half;
        let mut cells = vec![
            short_bytes(point.memory_bytes),
            point.named.notation.clone(),
            format!("{:.3}", figures.added_ms()),
            point
                .bound_ms
                .map_or_else(|| "-".into(), |ms| format!("{ms:.3}")),
            format!(
                "{:.2}",
                figures.calls as f64 / figures.requests.max(1) as f64
            ),
        ];
        cells.extend(figures.share_slower.map(percent));
        cells
    };
    Table {
        title:
            "The front: what each amount of memory (a process) can buy, judged on the second half"
                .into(),
        header: header.map(String::from).to_vec(),
        rows: points.iter().map(row).collect(),
    }
}

fn chart(points: &[Point]) -> Chart {
    let series = |label: &str, ms: fn(&Point) -> Option<f64>| Series {
        label: label.into(),
        points: points
            .iter()
            .filter_map(|p| Some((p.memory_bytes as f64 / f64::from(1 << 20), ms(p)?)))
            .collect(),
        ..Series::default()
    };
    Chart {
        title: "Memory against added time".into(),
        x_label: "memory in each process (MiB)".into(),
        y_label: "added time (ms a request)".into(),
        series: vec![
            series("chosen on the past, evaluated on the second half", |p| {
                Some(p.report.second_half.added_ms())
            }),
            series("in hindsight", |p| p.bound_ms),
        ],
        ..Chart::default()
    }
}

fn json(
    loaded: &LoadedLog,
    prepared: &Prepared<'_>,
    points: &[Point],
    tried: usize,
    is_stopped: bool,
) -> serde_json::Value {
    let point = |point: &Point| {
        json!({
            "memory_bytes": point.memory_bytes,
            "strategy": point.named.notation,
            "words": describe(&point.named.strategy, &point.report.kept),
            "all": point.report.all.document(),
            "second_half": point.report.second_half.document(),
            "hindsight_added_ms": point.bound_ms,
        })
    };
    json!({
        "log": document::log(loaded, prepared),
        "tried": tried,
        "stopped": is_stopped,
        "front": points.iter().map(point).collect::<Vec<_>>(),
    })
}
