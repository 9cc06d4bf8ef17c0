//! The results as text: a table of strategies, a table of routes, and a summary sentence.

use glasscache_sim::page::{Page, Table, format_short_bytes};
use glasscache_sim::strategy::figures::Figures;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::report::Report;

use super::describe::describe;
use super::fixed_items::{FixedItems, find_unknown_sizes};
use super::load::{LoadedLog, describe_prices};
use super::{NamedStrategy, Replays, TableLimits, choice, has_parents};

/// With fewer requests on either side of a share its interval is not meaningful.
const SAMPLES_MIN: f64 = 10.0;
/// Two-sided 95 % of the normal distribution.
const Z_95: f64 = 1.96;
/// The index of "at least 50 % slower" among the shares.
pub(super) const AT_LEAST_50_PERCENT_SLOWER: usize = 2;

/// Tables and sentence, without charts.
pub(super) fn build_page(
    loaded: &LoadedLog,
    prepared: &PreparedLog<'_>,
    replays: &Replays,
    routes: &[String],
    table_limits: TableLimits,
) -> Page {
    let mut tables = vec![build_strategies_table(replays, table_limits)];
    if !routes.is_empty() {
        tables.push(build_route_table(replays, routes));
    }
    tables.extend(build_drawn_table(replays));
    let best_named = choice::find_best_with_fixed_set(replays);
    let fixed_items = best_named.and_then(|named| FixedItems::of_strategy(named, loaded, prepared));
    tables.extend(
        fixed_items.iter().flat_map(|fixed_items| fixed_items.tables(table_limits.items_max)),
    );
    Page {
        title: format!("What requests wait for: {}", loaded.folder_name),
        sentence: format_sentence(replays),
        tables,
        notes: list_notes(loaded, prepared, replays),
        ..Page::default()
    }
}

/// The columns of the table of strategies that fit 80 characters.
const NARROW_COLUMNS: [usize; 8] = [0, 1, 2, 3, 5, DECODE_COLUMN, 8, 12];
/// The column of decoding, left out if the log has no decoding time.
const DECODE_COLUMN: usize = 6;

/// The given columns of a table, with another title.
pub(super) fn select_columns(table: &Table, columns: &[usize], title: &str) -> Table {
    let select =
        |cells: &Vec<String>| columns.iter().map(|&column| cells[column].clone()).collect();
    Table {
        title: title.to_owned(),
        header: select(&table.header),
        rows: table.rows.iter().map(select).collect(),
    }
}

/// The strategies with their reports, that with the least added time first.
fn sort_best_first(replays: &Replays) -> Vec<&(NamedStrategy, Report)> {
    let mut strategy_reports: Vec<&(NamedStrategy, Report)> =
        replays.strategy_reports.iter().collect();
    strategy_reports.sort_by_key(|(_, report)| report.second_half.cache_ns);
    strategy_reports
}

fn build_strategies_table(replays: &Replays, table_limits: TableLimits) -> Table {
    let table = build_wide_strategies_table(replays);
    let has_decoding =
        replays.strategy_reports.iter().any(|(_, report)| report.second_half.decode_ms().is_some());
    let select = |columns: &mut dyn Iterator<Item = usize>, title: &str| {
        let columns = columns.filter(|&column| has_decoding || column != DECODE_COLUMN);
        select_columns(&table, &columns.collect::<Vec<_>>(), title)
    };
    if table_limits.has_all_columns {
        return select(&mut (0..table.header.len()), &table.title);
    }
    let title = "Second half of the requests, least added time first. Per request: calls, keys, added ms. p95: added / \
                 base. >=50 %: share of requests slower by at least that much (--wide: all percentiles)";
    select(&mut NARROW_COLUMNS.into_iter(), title)
}

fn build_wide_strategies_table(replays: &Replays) -> Table {
    let header = [
        "strategy",
        "kept a process",
        "calls",
        "keys",
        "used keys",
        "added ms",
        "decode ms",
        "p50",
        "p95",
        "p99",
        ">=10 %",
        ">=25 %",
        ">=50 %",
        ">=100 %",
    ];
    let format_row = |(named, report): &(NamedStrategy, Report)| {
        let figures = &report.second_half;
        let per_request =
            |count: u64| format!("{:.2}", count as f64 / figures.requests.max(1) as f64);
        let used_share = if figures.keys == 0 {
            "-".into()
        } else {
            format_percent(figures.used_keys as f64 / figures.keys as f64)
        };
        let kept_text = format_short_bytes(report.kept.bytes());
        let mut cells = vec![
            named.notation.clone(),
            kept_text,
            per_request(figures.calls),
            per_request(figures.keys),
            used_share,
        ];
        cells.push(format!("{:.3}", figures.wait_ms()));
        cells.push(figures.decode_ms().map_or_else(|| "-".into(), |ms| format!("{ms:.3}")));
        cells.extend([2, 5, 6].map(|percentile_index| {
            figures
                .slowdown_pct
                .get(percentile_index)
                .map_or("-".into(), |slowdown| format_percent(*slowdown))
        }));
        cells.extend(figures.share_slower.map(format_percent));
        cells
    };
    Table {
        title: "Second half of the requests, least added time first. Per request: calls, keys, added ms. p50 to p99: \
                added / base. Last four: share of requests slower by at least that much"
            .into(),
        header: header.map(String::from).to_vec(),
        rows: sort_best_first(replays).into_iter().map(format_row).collect(),
    }
}

/// The worst routes first, under the first given strategy and under the best.
fn build_route_table(replays: &Replays, routes: &[String]) -> Table {
    let (first_named, first_report) = &replays.strategy_reports[0];
    let (best_named, best_report) = choice::find_best_replay(replays);
    let total_requests = first_report.second_half.requests.max(1);
    let first_figures = |route_index: usize| {
        let (_, figures) = &first_report.routes[route_index];
        figures
    };
    let mut indexes_worst_first: Vec<usize> =
        (0..routes.len()).filter(|&route_index| first_figures(route_index).requests > 0).collect();
    indexes_worst_first
        .sort_by(|&a, &b| first_figures(b).wait_ms().total_cmp(&first_figures(a).wait_ms()));
    let format_row = |&route_index: &usize| {
        let under_first = first_figures(route_index);
        let (_, under_best) = &best_report.routes[route_index];
        vec![
            routes[route_index].clone(),
            under_first.requests.to_string(),
            format_percent(under_first.requests as f64 / total_requests as f64),
            format!("{:.3}", under_first.wait_ms()),
            format_percent_with_interval(under_first),
            format!("{:.3}", under_best.wait_ms()),
            format_percent_with_interval(under_best),
        ]
    };
    let header = [
        "route".into(),
        "requests".into(),
        "share".into(),
        format!("added ms, {}", first_named.notation),
        ">=50 %".into(),
        format!("added ms, {}", best_named.notation),
        ">=50 %".into(),
    ];
    Table {
        title: "By route, the worst first (second half)".into(),
        header: header.to_vec(),
        rows: indexes_worst_first.iter().map(format_row).collect(),
    }
}

fn build_drawn_table(replays: &Replays) -> Option<Table> {
    let format_row = |(named, report): &(NamedStrategy, Report)| {
        let (drawn, upper_bound) = (report.drawn.as_ref()?, report.comonotone.as_ref()?);
        let format_percentile = |figures: &Figures, percentile_index: usize| {
            format!(
                "{:.1}",
                figures.latency_ns_pct.get(percentile_index).map_or(0.0, |&ns| ns as f64 / 1e6)
            )
        };
        let format_slower =
            |figures: &Figures| format_percent(figures.share_slower[AT_LEAST_50_PERCENT_SLOWER]);
        Some(vec![
            named.notation.clone(),
            format_slower(&report.second_half),
            format_slower(drawn),
            format_slower(upper_bound),
            format_percentile(&report.second_half, 6),
            format_percentile(drawn, 6),
            format_percentile(upper_bound, 6),
        ])
    };
    let rows: Vec<Vec<String>> =
        sort_best_first(replays).into_iter().filter_map(format_row).collect();
    let header =
        ["strategy", ">=50 %: median", "drawn", "bound", "p99 ms: median", "drawn", "bound"];
    (!rows.is_empty()).then(|| Table {
        title: "Latencies drawn from the measured distribution (drawn: calls of a request independent; all alike: they share one draw, which bounds the tail)".into(),
        header: header.map(String::from).to_vec(),
        rows,
    })
}

pub(super) fn format_sentence(replays: &Replays) -> String {
    let (first_named, first_report) = &replays.strategy_reports[0];
    let (best_named, best_report) = choice::find_best_replay(replays);
    let format_slower = |report: &Report| format_percent_with_interval(&report.second_half);
    let first_clause = format!(
        "Under `{}` {} of the requests are at least 50 % slower",
        first_named.notation,
        format_slower(first_report)
    );
    if first_named.notation == best_named.notation {
        let others = if choice::has_simulator_only(replays) {
            "no other strategy here that a client can run"
        } else {
            "no other strategy here"
        };
        return format!(
            "{first_clause}, and {others} adds less time. In words: {}.{}",
            describe(&best_named.strategy, &best_report.kept),
            format_decoding(first_report)
        );
    }
    format!(
        "{first_clause}; `{}` adds the least time, {:.2} ms a request instead of {:.2}, with {}. In words: {}.",
        best_named.notation,
        best_report.second_half.wait_ms(),
        first_report.second_half.wait_ms(),
        format_slower(best_report),
        describe(&best_named.strategy, &best_report.kept)
    ) + &format_decoding(first_report)
}

/// What decoding adds under every strategy, as a sentence; empty if the log has no decoding time.
pub(super) fn format_decoding(report: &Report) -> String {
    report.second_half.decode_ms().map_or_else(String::new, |decode_ms| {
        format!(
            " Under every strategy decoding takes another {decode_ms:.2} ms, as it did when the requests were recorded: \
             a process keeps encoded values."
        )
    })
}

/// A note for logs without decoding times.
pub(super) fn find_unknown_decoding(prepared: &PreparedLog<'_>) -> Option<String> {
    prepared
        .decode_ns(0..prepared.len())
        .is_none()
        .then(|| "The log has no decoding times: times are those of calls alone.".to_owned())
}

fn list_notes(loaded: &LoadedLog, prepared: &PreparedLog<'_>, replays: &Replays) -> Vec<String> {
    let mut notes = vec![format!(
        "{} requests over {} items in {} processes; fixed sets chosen on the first half; latencies are medians, calls of a request one after the other.",
        prepared.len(),
        prepared.items.len(),
        prepared.instances()
    )];
    notes.extend(find_unknown_sizes(prepared).map(|(_, note)| note));
    notes.extend(find_unknown_decoding(prepared));
    if !has_parents(prepared) {
        notes.push(
            "No item has a parent: the usual strategies that fetch children are left out."
                .to_owned(),
        );
    }
    notes.extend(loaded.log.truncated_after.map(|complete_requests| {
        format!("The log ends in the middle of a request: it is read up to its last complete request, {complete_requests}.")
    }));
    notes.extend(describe_prices(&loaded.cost_model));
    notes.extend(list_left_out_notes(loaded));
    notes.extend(
        replays
            .is_stopped
            .then(|| "Stopped early: strategies that are missing were not done.".to_owned()),
    );
    notes
}

/// A sentence for each part of the log that is not in it.
pub(super) fn list_left_out_notes(loaded: &LoadedLog) -> impl Iterator<Item = String> {
    loaded.left_out.iter().map(|part| format!("{part}."))
}

/// A share as per cent.
pub(super) fn format_percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The share of requests at least 50 % slower, with its 95 % interval or a note that there are too few samples.
pub(super) fn format_percent_with_interval(figures: &Figures) -> String {
    let (requests, share) =
        (figures.requests as f64, figures.share_slower[AT_LEAST_50_PERCENT_SLOWER]);
    if requests * share < SAMPLES_MIN || requests * (1.0 - share) < SAMPLES_MIN {
        return format!("{:.1} % (too few samples)", share * 100.0);
    }
    let half_width = 100.0 * Z_95 * (share * (1.0 - share) / requests).sqrt();
    // Enough digits to show the interval.
    let decimals = if half_width < 0.1 { 2 } else { 1 };
    format!("{:.decimals$} ± {half_width:.decimals$} %", share * 100.0)
}
