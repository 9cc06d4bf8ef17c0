//! The results as a web page: the tables of the terminal, and how slowdown is distributed under each strategy.

use glasscache_sim::page::{Chart, Page, Series, Table};
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::report::Report;

use super::describe::describe;
use super::load::LoadedLog;
use super::{NamedStrategy, Replays, TableLimits, table};

/// Maximum number of curves on one chart.
const CURVES_MAX: usize = 10;

/// The page with its charts.
pub(super) fn build_page(
    loaded: &LoadedLog,
    prepared: &PreparedLog<'_>,
    replays: &Replays,
    routes: &[String],
    seed: u64,
) -> Page {
    let mut page = table::build_page(loaded, prepared, replays, routes, TableLimits::HTML);
    page.charts = vec![build_slowdown_chart(replays), build_memory_chart(replays)];
    let format_row = |(named, report): &(NamedStrategy, Report)| {
        vec![named.notation.clone(), describe(&named.strategy, &report.kept)]
    };
    page.tables.push(Table {
        title: "The strategies in words".to_owned(),
        header: vec!["strategy".to_owned(), "what a process does".to_owned()],
        rows: replays.strategy_reports.iter().map(format_row).collect(),
    });
    page.notes.push(format!("Seed {seed}."));
    page
}

/// Share of requests that are slower by at least x.
fn build_slowdown_chart(replays: &Replays) -> Chart {
    let mut compared_strategies: Vec<&(NamedStrategy, Report)> =
        replays.strategy_reports.iter().collect();
    // The first strategy is what the others are compared with; of those, the best are shown.
    compared_strategies[1..].sort_by_key(|(_, report)| report.second_half.cache_ns);
    compared_strategies.truncate(CURVES_MAX);
    Chart {
        title: "How many requests get slower, and by how much (second half)".into(),
        x_label: "slower by at least (added / base, %)".into(),
        y_label: "share of requests (%)".into(),
        series: compared_strategies
            .into_iter()
            .map(|(named, report)| build_survival_series(&named.notation, report))
            .collect(),
        ..Chart::default()
    }
}

fn build_survival_series(notation: &str, report: &Report) -> Series {
    let mut slowdowns_percent: Vec<f64> = report
        .second_half_ns
        .iter()
        .map(|&(added_ns, base_ns)| 100.0 * added_ns as f64 / base_ns.max(1000) as f64)
        .collect();
    slowdowns_percent.sort_unstable_by(f64::total_cmp);
    let request_count = slowdowns_percent.len().max(1) as f64;
    let share_at_least = |percent: f64| {
        100.0
            * (slowdowns_percent.len()
                - slowdowns_percent.partition_point(|&slowdown| slowdown < percent))
                as f64
            / request_count
    };
    // The chart ends at 300 %: beyond that there is only a tail.
    let points =
        (0..=300).map(|percent| (f64::from(percent), share_at_least(f64::from(percent)))).collect();
    Series { label: notation.into(), points, is_step: false, ..Series::default() }
}

/// Memory against added time: one colour for each kind of strategy.
fn build_memory_chart(replays: &Replays) -> Chart {
    let mut series_by_kind: Vec<Series> = Vec::new();
    for (named, report) in &replays.strategy_reports {
        let point = (report.kept.bytes() as f64 / f64::from(1 << 20), report.second_half.wait_ms());
        let label = remove_amounts(&named.notation);
        match series_by_kind.iter_mut().find(|series| series.label == label) {
            Some(series) => series.points.push(point),
            None => series_by_kind.push(Series { label, points: vec![point], ..Series::default() }),
        }
    }
    for series in &mut series_by_kind {
        series.points.sort_unstable_by(|(a_mib, _), (b_mib, _)| a_mib.total_cmp(b_mib));
        // A line between two strategies would claim what was not replayed.
        series.is_scatter = true;
    }
    // The first ones have colours: those that do best.
    let least_added_ms = |series: &Series| {
        series.points.iter().map(|&(_, added_ms)| added_ms).fold(f64::MAX, f64::min)
    };
    series_by_kind.sort_by(|a, b| least_added_ms(a).total_cmp(&least_added_ms(b)));
    Chart {
        title: "What memory buys (second half)".into(),
        x_label: "kept in each process (MiB)".into(),
        y_label: "added time (ms a request)".into(),
        series: series_by_kind,
        ..Chart::default()
    }
}

/// A strategy without its amounts: `fixed:206+subtree:2` is of the kind `fixed:N+subtree:2`.
fn remove_amounts(notation: &str) -> String {
    let without_amount = |term: &str| match term.split_once(':') {
        Some((rule, _)) if rule != "subtree" => format!("{rule}:N"),
        _ => term.to_owned(),
    };
    notation.split('+').map(without_amount).collect::<Vec<_>>().join("+")
}

#[cfg(test)]
mod tests {
    use super::remove_amounts;

    #[test]
    fn amounts_are_removed_and_depths_are_kept() {
        assert_eq!(
            remove_amounts("fixed:206+lru-bytes:4M+subtree:2"),
            "fixed:N+lru-bytes:N+subtree:2"
        );
        assert_eq!(remove_amounts("remote"), "remote");
    }
}
