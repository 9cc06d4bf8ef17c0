//! The report of `curve`: LRU's curve with its interval, the other policies' points, the knee.

use glasscache_lab::report::Report;
use glasscache_sim::page::{Chart, Mark, Series};
use glasscache_sim::policy::PolicyKind;
use glasscache_sim::replay::PreparedTrace;
use serde_json::Value;

use super::jobs::CurveResults;
use super::summary::{Summary, format_size};
use super::table::{Grid, describe_trace};
use super::{Args, ModeFlag};

/// The report of the curve and of the replayed policies; `document` is its result in JSON.
pub(super) fn build_report(
    args: &Args,
    trace: &PreparedTrace,
    results: &CurveResults,
    summary: &Summary,
    document: Value,
) -> Report {
    let grid = Grid::best_first(results, summary);
    let star_note = (!grid.policies.is_empty()).then_some(
        "* marks the fewest misses of a realisable policy; the Belady policies know the future: no cache can have them.",
    );
    let trace_note = format!("{}. Seed {}.", describe_trace(args, trace), args.seed);
    let start_note = "Cold start; every request counts and every miss stores.".to_owned();
    Report {
        title: format!("Miss-ratio curve of {}", describe_trace(args, trace)),
        sentence: summary.format_text(),
        tables: vec![grid.to_table(args, trace)],
        series: vec![build_chart(args, trace, results, summary)],
        notes: [trace_note, start_note].into_iter().chain(star_note.map(str::to_owned)).collect(),
        result: document,
        ..Report::default()
    }
}

fn build_chart(
    args: &Args,
    trace: &PreparedTrace,
    results: &CurveResults,
    summary: &Summary,
) -> Chart {
    let points = summary.chart_points();
    let is_sampled = results.curves.len() > 1;
    let to_band = |(size, range): &(u64, glasscache_sim::curve::MissRatioRange)| {
        (*size as f64, range.low, range.high)
    };
    let lru = Series {
        label: if is_sampled { "LRU (sampled, all seeds)" } else { "LRU (exact)" }.to_owned(),
        points: points.iter().map(|(size, range)| (*size as f64, range.mean)).collect(),
        band: if is_sampled { points.iter().map(to_band).collect() } else { Vec::new() },
        ..Series::default()
    };
    Chart {
        title: "Miss ratio by size".to_owned(),
        x_label: match args.mode {
            ModeFlag::Objects => "size of the cache (objects, logarithmic)".to_owned(),
            ModeFlag::Bytes => "size of the cache (bytes, logarithmic)".to_owned(),
        },
        is_x_log: true,
        y_label: "miss ratio (misses / requests)".to_owned(),
        series: std::iter::once(lru).chain(list_other_policy_series(results)).collect(),
        marks: list_chart_marks(trace, summary),
        ..Chart::default()
    }
}

/// The knee, the size that has the wanted miss ratio, and the size at which memory and policies are compared.
fn list_chart_marks(trace: &PreparedTrace, summary: &Summary) -> Vec<Mark> {
    let new_mark = |name: &str, size: u64| Mark {
        x: size as f64,
        label: format!("{name}: {}", format_size(trace.mode(), size)),
    };
    let knee = summary.knee().map(|knee| new_mark("knee", knee.size));
    let wanted_mark = summary.wanted_ratio_and_size().map(|(ratio, size)| {
        let name = format!("{} misses", super::summary::format_percent(ratio));
        new_mark(&name, size)
    });
    let compared_mark = summary.compared_size().map(|size| new_mark("compared at", size));
    knee.into_iter().chain(wanted_mark).chain(compared_mark).collect()
}

/// A series of points for each replayed policy except LRU, which has a curve.
fn list_other_policy_series(results: &CurveResults) -> Vec<Series> {
    let grid = Grid::from_results(results);
    let other_policies = grid.policies.iter().filter(|&&policy| policy != PolicyKind::Lru);
    let new_series = |&policy: &_| {
        let policy_points = results.points.iter().filter(|point| point.policy == policy);
        let mut points: Vec<(f64, f64)> =
            policy_points.map(|point| (point.capacity as f64, point.result.miss_ratio())).collect();
        points.sort_by(|(a_size, _), (b_size, _)| a_size.total_cmp(b_size));
        Series {
            label: policy.to_string(),
            points,
            // A line between two replayed sizes would claim what was not replayed.
            is_scatter: true,
            ..Series::default()
        }
    };
    // The first ones have colours: those that miss least without knowing the future.
    let mut policies: Vec<_> = other_policies.collect();
    let count_misses = |policy: &PolicyKind| -> u64 {
        let policy_points = results.points.iter().filter(|point| point.policy == *policy);
        policy_points.map(|point| point.result.misses).sum()
    };
    policies.sort_by_key(|policy| (policy.is_offline(), count_misses(policy)));
    policies.into_iter().map(new_series).collect()
}
