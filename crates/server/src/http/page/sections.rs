//! The sections of the page, in the order of an operator's questions.

use std::fmt::Write as _;

use glasscache_protocol::percent;
use glasscache_sim::page::{Series as Line, escape};
use glasscache_store::{HotKey, HotKeyOrder, HotKeyWindow, LiveReport};

use super::figures::{
    bytes, count, curve_chart, duration_s, duration_us, number, percent, sparkline, time_chart,
};
use super::{write_paragraph, write_table};
use crate::http::findings::Finding;
use crate::http::history::{History, Series};
use crate::session::stats::StatRows;
use crate::session::stats::policy::{waiting, weighing};
use crate::session::stats::slow::SlowRow;
use crate::shared::command_times::COMMANDS;
use crate::shared::slow_commands::to_us;
use crate::shared::time_histogram::Times;

/// Seconds of the window of ratios and rates.
const WINDOW_S: usize = 60;
/// Seconds of a sparkline.
const SPARK_S: usize = 600;
/// Seconds of the charts of the last hour.
const HOUR_S: usize = 3600;
/// Findings that are displayed.
const FINDINGS_MAX: usize = 3;
/// Hot keys and prefixes that are displayed.
const KEYS_MAX: usize = 10;
const MIB: f64 = 1_048_576.0;

/// What the sections are rendered from.
pub(in crate::http) struct View<'v> {
    pub(in crate::http) general: &'v StatRows,
    pub(in crate::http) settings: &'v StatRows,
    pub(in crate::http) own: &'v StatRows,
    pub(in crate::http) history: &'v History,
    /// The 50th, 99th and 99.9th percentile of the time of an iteration in the last minute, in microseconds.
    pub(in crate::http) loop_quantiles_us: [u64; 3],
    pub(in crate::http) command_times: &'v [Times; COMMANDS.len()],
    /// From how many milliseconds on a command is slow; 0: none is recorded.
    pub(in crate::http) slow_ms: u32,
    /// The slowest commands, the slowest first.
    pub(in crate::http) slow_commands: &'v [SlowRow],
    pub(in crate::http) fill_times: &'v Times,
    pub(in crate::http) live: &'v LiveReport,
    pub(in crate::http) findings: &'v [Finding],
    /// Why the server is not healthy.
    pub(in crate::http) problem: Option<String>,
    pub(in crate::http) addresses: &'v str,
    /// Whether keys may be listed.
    pub(in crate::http) shows_keys: bool,
}

impl View<'_> {
    fn general(&self, name: &str) -> f64 {
        read(self.general, name)
    }

    fn own(&self, name: &str) -> f64 {
        read(self.own, name)
    }

    /// The mean rate of a series in the last minute.
    fn rate(&self, series: Series) -> f64 {
        let seconds = self.history.seconds(series, WINDOW_S).len().max(1);
        self.history.sum(series, WINDOW_S) / seconds as f64
    }

    fn hit_ratio(&self) -> String {
        percent(self.rate(Series::Hits), self.rate(Series::Gets))
    }

    fn fill(&self) -> String {
        percent(self.general("bytes"), self.general("limit_maxbytes"))
    }
}

fn read(rows: &StatRows, name: &str) -> f64 {
    rows.get(name).and_then(|value| value.parse().ok()).unwrap_or(0.0)
}

/// One section.
pub(super) struct Section {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// Whether it takes the whole width.
    pub(super) is_wide: bool,
    pub(super) write: fn(&View<'_>, &mut String),
}

const fn section(
    id: &'static str,
    title: &'static str,
    write: fn(&View<'_>, &mut String),
) -> Section {
    Section { id, title, is_wide: false, write }
}

/// What stands at the top.
pub(super) static HEADER: Section = section("head", "", write_header);

/// What follows, in order.
pub(super) static SECTIONS: [Section; 11] = [
    Section { is_wide: true, ..section("findings", "Findings", write_findings) },
    Section { is_wide: true, ..section("figures", "Now", write_figures) },
    section("commands", "Commands", write_commands),
    section("loops", "Time inside the server", write_loops),
    section("slow", "Slow commands of the last hour", write_slow),
    section("memory", "Memory", write_memory),
    section("curve", "More or less memory", write_curve),
    section("hot", "Hot keys of the last minute", write_hot_keys),
    section("prefixes", "Prefixes of the last hour", write_prefixes),
    section("policy", "Policy", write_policy),
    section("connections", "Connections", write_connections),
];

fn write_header(view: &View<'_>, html: &mut String) {
    let (class, health) = match &view.problem {
        None => ("dot", "healthy".to_owned()),
        Some(problem) => ("dot bad", problem.clone()),
    };
    let version = view.own.get("version").map_or("", String::as_str);
    let facts = [
        format!("version {version}"),
        view.addresses.to_owned(),
        format!("up {}", duration_s(view.general("uptime") as u64)),
        format!("{} full", view.fill()),
    ];
    let _ = write!(html, "<p><span class=\"{class}\">{}</span>", escape(&health));
    for fact in facts {
        let _ = write!(html, "<span>{}</span>", escape(&fact));
    }
    html.push_str("</p>");
}

fn write_findings(view: &View<'_>, html: &mut String) {
    if view.findings.is_empty() {
        write_paragraph(html, "note", "No rule finds anything to change.");
        return;
    }
    html.push_str("<ol>");
    for finding in view.findings.iter().take(FINDINGS_MAX) {
        let advice = [finding.setting.as_str(), finding.gain.as_str()];
        let advice =
            advice.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
        let _ = write!(
            html,
            "<li><b>{}</b><span>{}</span></li>",
            escape(&finding.sentence),
            escape(&advice)
        );
    }
    html.push_str("</ol>");
    if let Some(rest) = view.findings.len().checked_sub(FINDINGS_MAX).filter(|rest| *rest > 0) {
        write_paragraph(html, "note", &format!("{rest} more in /api/findings"));
    }
}

fn write_figures(view: &View<'_>, html: &mut String) {
    let series = |series| view.history.seconds(series, SPARK_S);
    let operations = add(&[series(Series::Gets), series(Series::Sets), series(Series::Others)]);
    let rate = view.rate(Series::Gets) + view.rate(Series::Sets) + view.rate(Series::Others);
    let ratios = divide(&series(Series::Hits), &series(Series::Gets));
    let [_, p99_us, _] = view.loop_quantiles_us;
    let cards = [
        (number(rate), "operations a second, mean of a minute", operations),
        (view.hit_ratio(), "hits of the gets of a minute", ratios),
        (
            duration_us(p99_us as f64),
            "99 % of the event loop's iterations take less",
            series(Series::LoopP99),
        ),
        (view.fill(), "of the memory limit in use", series(Series::UsedBytes)),
    ];
    html.push_str("<div class=\"cards\">");
    for (value, label, values) in cards {
        let _ = write!(
            html,
            "<div><b>{}</b><span>{label}</span>{}</div>",
            escape(&value),
            sparkline(&values)
        );
    }
    html.push_str("</div>");
}

/// The sums of several series.
fn add(series: &[Vec<f32>]) -> Vec<f32> {
    let length = series.first().map_or(0, Vec::len);
    (0..length).map(|index| series.iter().filter_map(|values| values.get(index)).sum()).collect()
}

/// The quotients of two series; not a number where there is nothing to divide by.
fn divide(parts: &[f32], wholes: &[f32]) -> Vec<f32> {
    parts
        .iter()
        .zip(wholes)
        .map(|(part, whole)| if *whole > 0.0 { part / whole } else { f32::NAN })
        .collect()
}

fn write_commands(view: &View<'_>, html: &mut String) {
    let hour = |series| view.history.seconds(series, HOUR_S);
    let day = |series| view.history.minutes(series);
    let ratio = |hits: Vec<f32>, gets: Vec<f32>| {
        divide(&hits, &gets).into_iter().map(|ratio| ratio * 100.0).collect::<Vec<f32>>()
    };
    html.push_str("<div class=\"charts\">");
    let lines =
        [("gets", hour(Series::Gets)), ("hits", hour(Series::Hits)), ("sets", hour(Series::Sets))];
    html.push_str(&time_chart(
        "Commands of the last hour",
        "a second",
        "minutes before now",
        60.0,
        &lines,
    ));
    let ratios = ratio(day(Series::Hits), day(Series::Gets));
    // A line needs two minutes.
    if ratios.iter().filter(|ratio| ratio.is_finite()).count() > 1 {
        html.push_str(&time_chart(
            "Hit ratio of the last day",
            "hits (% of gets)",
            "hours before now",
            60.0,
            &[("hit ratio", ratios)],
        ));
    }
    html.push_str("</div>");
    let commands = [
        ("get", "get_hits", "get_misses"),
        ("delete", "delete_hits", "delete_misses"),
        ("touch", "touch_hits", "touch_misses"),
        ("incr", "incr_hits", "incr_misses"),
        ("decr", "decr_hits", "decr_misses"),
        ("cas", "cas_hits", "cas_misses"),
    ];
    let to_row = |(name, hits, misses): (&str, &str, &str)| {
        let (hits, misses) = (view.general(hits), view.general(misses));
        vec![name.to_owned(), number(hits), number(misses), percent(hits, hits + misses)]
    };
    let mut rows: Vec<Vec<String>> = commands.into_iter().map(to_row).collect();
    rows.push(vec![
        "set".to_owned(),
        number(view.general("cmd_set")),
        "-".to_owned(),
        "-".to_owned(),
    ]);
    write_table(
        html,
        "Commands since the start",
        &["since the start", "hits", "misses", "hit ratio"],
        &rows,
    );
    let traffic = format!(
        "{}/s received, {}/s sent (mean of a minute)",
        bytes(view.rate(Series::BytesRead)),
        bytes(view.rate(Series::BytesWritten)),
    );
    write_paragraph(html, "note", &traffic);
}

fn write_loops(view: &View<'_>, html: &mut String) {
    let lines = [("p99", view.history.seconds(Series::LoopP99, HOUR_S))];
    let chart =
        time_chart("99th percentile of the last hour", "us", "minutes before now", 60.0, &lines);
    let _ = write!(html, "<div class=\"charts\">{chart}</div>");
    let [p50, p99, p999] = view.loop_quantiles_us.map(|us| duration_us(us as f64));
    let mut rows = vec![vec!["iteration, last minute".to_owned(), p50, p99, p999]];
    let by_command = COMMANDS.iter().copied().zip(view.command_times);
    let with_fills = by_command.chain([("fill of a miss under a lease", view.fill_times)]);
    for (name, times) in with_fills.filter(|(_, times)| times.count() > 0) {
        let percentiles = [0.5, 0.99, 0.999].map(|share| duration_us(times.percentile_us(share)));
        rows.push([vec![format!("{name}, since the start")], percentiles.to_vec()].concat());
    }
    write_table(
        html,
        "Time inside the server",
        &["time", "50 % below", "99 % below", "99.9 % below"],
        &rows,
    );
    write_paragraph(
        html,
        "note",
        "An iteration serves all connections that are ready. Clients see the network and their own queues as well: measure there what they wait.",
    );
}

fn write_slow(view: &View<'_>, html: &mut String) {
    let limit_ms = view.slow_ms;
    if limit_ms == 0 {
        return write_paragraph(html, "note", "Slow commands are not recorded (-o slow_ms=0).");
    }
    if view.slow_commands.is_empty() {
        let none = format!("No command was seen that took {limit_ms} ms (-o slow_ms).");
        return write_paragraph(html, "note", &none);
    }
    let rows: Vec<Vec<String>> = view.slow_commands.iter().take(KEYS_MAX).map(slow_row).collect();
    html.push_str("<div class=\"key\">");
    write_table(html, "Slow commands", &["command", "time", "waited for", "bytes", "ago"], &rows);
    html.push_str("</div>");
    let not_listed = view.own("slow_commands") - rows.len() as f64;
    let mut note = format!(
        "From {limit_ms} ms (-o slow_ms): all that had to wait, and a sample of the others."
    );
    if not_listed > 0.0 {
        let _ = write!(note, " {} more since the start.", number(not_listed));
    }
    write_paragraph(html, "note", &note);
}

fn slow_row(row: &SlowRow) -> Vec<String> {
    let slow = &row.slow;
    let key = row.key().map_or(String::new(), percent::to_printable);
    let us = |time| duration_us(to_us(time) as f64);
    vec![
        format!("{} {key}", slow.command.name).trim_end().to_owned(),
        us(slow.time),
        format!("{}, {}", slow.reason.name().replace('_', " "), us(slow.waited)),
        slow.bytes.map_or("-".to_owned(), |moved_bytes| bytes(moved_bytes as f64)),
        duration_s(u64::from(row.age_s)),
    ]
}

fn write_memory(view: &View<'_>, html: &mut String) {
    let limit = view.general("limit_maxbytes").max(1.0);
    let parts = [
        ("k0", "segments of items", view.own("segment_bytes")),
        ("k1", "index", view.own("index_bytes")),
        ("k2", "buffers of connections", view.own("buffer_bytes")),
    ];
    let mut left = 1000;
    let _ = write!(
        html,
        "<svg class=\"bar\" viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"k9\" width=\"1000\" height=\"20\"/>"
    );
    let mut offset = 0;
    for (class, _, value) in parts {
        let width = ((value / limit * 1000.0) as u32).min(left);
        left -= width;
        let _ = write!(
            html,
            "<rect class=\"{class}\" x=\"{offset}\" width=\"{width}\" height=\"20\"/>"
        );
        offset += width;
    }
    html.push_str("</svg>");
    let mut rows: Vec<Vec<String>> = parts
        .into_iter()
        .map(|(_, name, value)| vec![name.to_owned(), bytes(value), percent(value, limit)])
        .collect();
    rows.push(vec!["limit (-m)".to_owned(), bytes(limit), String::new()]);
    rows.push(vec![
        "resident memory of the process".to_owned(),
        bytes(view.own("resident_bytes")),
        String::new(),
    ]);
    write_table(html, "Memory", &["memory", "bytes", "of the limit"], &rows);
    let hour = |series| view.history.seconds(series, HOUR_S);
    let lines =
        [("evictions", hour(Series::Evictions)), ("expirations", hour(Series::Expirations))];
    let chart = time_chart(
        "Evictions and expirations of the last hour",
        "a second",
        "minutes before now",
        60.0,
        &lines,
    );
    let _ = write!(html, "<div class=\"charts\">{chart}</div>");
    let age_s = view.own("eviction_age_s");
    let age = if view.general("evictions") > 0.0 {
        duration_s(age_s as u64)
    } else {
        "nothing evicted yet".to_owned()
    };
    let rows = [
        vec!["items".to_owned(), number(view.general("curr_items"))],
        vec!["evicted since the start".to_owned(), number(view.general("evictions"))],
        vec![
            "of them never read".to_owned(),
            percent(view.general("evicted_unfetched"), view.general("evictions")),
        ],
        vec!["last evicted item was not used for".to_owned(), age],
        vec!["expired, never read".to_owned(), number(view.general("expired_unfetched"))],
    ];
    write_table(html, "Evictions", &["items", "figure"], &rows);
}

fn write_curve(view: &View<'_>, html: &mut String) {
    let curve = &view.live.curve;
    if let Some(reason) = curve.state.reason() {
        write_paragraph(html, "note", &format!("There is no curve: {reason}."));
        return;
    }
    let point = |f: fn(&glasscache_store::CurvePoint) -> f64| {
        curve
            .rows
            .iter()
            .map(|row| (row.memory_bytes as f64 / MIB, 100.0 * f(row)))
            .collect::<Vec<_>>()
    };
    let band = curve
        .rows
        .iter()
        .map(|row| (row.memory_bytes as f64 / MIB, 100.0 * row.low, 100.0 * row.high));
    let series = vec![
        Line {
            label: "this server".to_owned(),
            points: point(|row| row.miss_ratio),
            band: band.collect(),
            ..Line::default()
        },
        Line {
            label: "LRU".to_owned(),
            points: point(|row| row.lru_miss_ratio),
            ..Line::default()
        },
    ];
    let _ = write!(
        html,
        "<div class=\"charts\">{}</div>",
        curve_chart(series, curve.memory_bytes as f64 / MIB)
    );
    let rows: Vec<Vec<String>> = curve
        .advice
        .iter()
        .map(|advice| {
            vec![
                format!("{:+} %", advice.change_percent),
                bytes(advice.memory_bytes as f64),
                number(advice.avoided_per_second),
                format!("{} to {}", number(advice.low), number(advice.high)),
            ]
        })
        .collect();
    write_table(
        html,
        "Misses avoided at other sizes",
        &["memory", "-m", "misses avoided a second", "95 % interval"],
        &rows,
    );
    let facts = format!(
        "Working set of the last hour: {}. Hit ratio if nothing were evicted: {:.1} %. From {} sampled items.",
        bytes(curve.working_set_bytes as f64),
        100.0 * curve.unlimited_hit_ratio,
        count(curve.sampled_items),
    );
    write_paragraph(html, "note", &facts);
}

fn write_hot_keys(view: &View<'_>, html: &mut String) {
    if !view.shows_keys {
        write_paragraph(
            html,
            "note",
            "Keys are not listed: the server runs with -X (disable-dumping).",
        );
        return;
    }
    for (order, title) in [(HotKeyOrder::Requests, "By requests"), (HotKeyOrder::Bytes, "By bytes")]
    {
        let keys = view.live.hot_keys(HotKeyWindow::Minute, order);
        let _ = write!(html, "<h3>{title}</h3>");
        if keys.is_empty() {
            write_paragraph(html, "note", "No key was requested often enough.");
            continue;
        }
        html.push_str("<div class=\"key\">");
        let rows: Vec<Vec<String>> = keys.iter().take(KEYS_MAX).map(hot_key_row).collect();
        write_table(html, title, &["key", "requests", "bytes", "share"], &rows);
        html.push_str("</div>");
    }
}

fn hot_key_row(hot_key: &HotKey) -> Vec<String> {
    vec![
        percent::to_printable(&hot_key.key),
        count(hot_key.requests),
        bytes(hot_key.bytes as f64),
        format!("{:.1} ± {:.1} %", 100.0 * hot_key.share, 100.0 * hot_key.error),
    ]
}

fn write_prefixes(view: &View<'_>, html: &mut String) {
    if !view.shows_keys {
        write_paragraph(
            html,
            "note",
            "Keys are not listed: the server runs with -X (disable-dumping).",
        );
        return;
    }
    let to_row = |prefix: &glasscache_store::PrefixUse| {
        let name = if prefix.prefix.is_empty() {
            "(none)".to_owned()
        } else {
            percent::to_printable(&prefix.prefix)
        };
        let ttl = if prefix.no_ttl_share >= 0.5 {
            "none".to_owned()
        } else {
            duration_s(u64::from(prefix.ttl_s_median))
        };
        vec![
            name,
            count(prefix.requests),
            format!("{:.1} %", 100.0 * prefix.hit_ratio),
            bytes(prefix.bytes as f64),
            bytes(prefix.item_bytes_mean as f64),
            ttl,
        ]
    };
    let rows: Vec<Vec<String>> = view.live.prefixes.iter().take(KEYS_MAX).map(to_row).collect();
    if rows.is_empty() {
        write_paragraph(html, "note", "No prefix was requested often enough.");
        return;
    }
    html.push_str("<div class=\"key\">");
    write_table(
        html,
        "Prefixes",
        &["prefix", "gets", "hit ratio", "bytes sent", "mean item", "TTL"],
        &rows,
    );
    html.push_str("</div>");
}

fn write_policy(view: &View<'_>, html: &mut String) {
    let setting = |name: &str| view.settings.get(name).cloned().unwrap_or_default();
    let costs = &view.live.costs;
    let policy = &view.live.policy;
    let rows = [
        vec![
            "when memory is full".to_owned(),
            if setting("evictions") == "on" {
                "evict (S3-FIFO, weighed by size)".to_owned()
            } else {
                "refuse (-M)".to_owned()
            },
        ],
        vec![
            format!("its settings, for {}", duration_s(policy.age_s)),
            policy.settings.to_string(),
        ],
        vec!["they are not changed because".to_owned(), waiting(policy)],
        vec![
            "how misses are weighed".to_owned(),
            weighing(policy).unwrap_or_else(|| "not at all: the settings are fixed".to_owned()),
        ],
        vec!["largest item (-I)".to_owned(), bytes(read(view.settings, "item_size_max"))],
        vec!["keys in the sample".to_owned(), format!("1 in {}", costs.keys_per_sample.max(1))],
        vec!["memory of the sample".to_owned(), bytes(costs.memory_bytes as f64)],
        vec!["flushed prefixes remembered".to_owned(), number(view.own("flushed_prefixes"))],
    ];
    write_table(html, "Policy", &["setting", "value"], &rows);
}

fn write_connections(view: &View<'_>, html: &mut String) {
    let hour = view.history.seconds(Series::Connections, HOUR_S);
    let chart = time_chart(
        "Connections of the last hour",
        "open",
        "minutes before now",
        60.0,
        &[("open", hour)],
    );
    let _ = write!(html, "<div class=\"charts\">{chart}</div>");
    let rows = [
        vec!["open".to_owned(), number(view.general("curr_connections"))],
        vec!["limit (-c)".to_owned(), number(view.general("max_connections"))],
        vec!["accepted since the start".to_owned(), number(view.general("total_connections"))],
        vec![
            "refused because of the limit".to_owned(),
            number(view.general("rejected_connections")),
        ],
        vec!["memory that they hold".to_owned(), bytes(view.own("peer_bytes"))],
        vec![
            "closed because they stalled".to_owned(),
            number(view.own("stalled_connections_closed")),
        ],
        vec!["failed logins".to_owned(), number(view.general("auth_errors"))],
        vec!["worker threads (-t)".to_owned(), number(view.general("threads"))],
        vec!["broken invariants".to_owned(), number(view.own("invariants_broken"))],
    ];
    write_table(html, "Connections", &["connections", "figure"], &rows);
}
