//! `glasscache stats`: a summary of each server, one group of its counters, or all of them.

use std::time::Duration;

use glasscache_client::pipeline::Reply;
use glasscache_client::request::Request;
use glasscache_findings::counters::Counters;
use glasscache_lab::text::{
    format_bytes, format_count, format_decimal, format_duration, format_percent, format_two_columns,
};
use serde_json::{Map, Value, json};

use crate::live_figures::read_advice;
use crate::output::{Exit, Failure, Output};
use crate::target::{ByServer, Target};

const EXAMPLES: &str = "\
Examples:
  glasscache stats                       a summary: hit ratio, memory, rates
  glasscache stats 10.0.0.5:11211
  glasscache stats --interval-ms 10000   rates over ten seconds
  glasscache stats --all                 every general counter
  glasscache stats settings
  glasscache stats detail on             count by key prefix, for detail dump
  glasscache stats reset                 set the counters to 0
  glasscache stats --json | jq .result[0].rows.curr_items

Groups that memcached has too: settings, items, slabs, sizes, conns, detail on|off|dump. Groups of glasscache alone: \
glasscache, policy, curve, hotkeys, prefixes, latency, slow. Their rows are explained in docs/reference/statistics.md.

Why gets miss: glasscache why.";

/// Print a server's counters.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which group of counters [default: a summary]; before it the server may stand, instead of --server
    #[arg(value_name = "[SERVER] [GROUP]", num_args = 0..=3, conflicts_with = "all")]
    group: Vec<String>,
    /// Every general counter instead of the summary
    #[arg(long)]
    all: bool,
    /// How long the summary watches for its rates, in milliseconds [default: 1000]
    #[arg(long, value_name = "MS", conflicts_with_all = ["all", "group"])]
    interval_ms: Option<u64>,
    #[command(flatten)]
    target: Target,
}

/// Default interval of the summary.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(1);

type Rows = Vec<(String, String)>;

impl Args {
    /// Prints the summary or the rows of each server.
    pub(crate) fn run(mut self, out: &Output) -> Result<Exit, Failure> {
        out.begin_list();
        // No group has these in its name.
        if self.group.first().is_some_and(|word| word.contains([':', '/'])) {
            self.target.use_positional(Some(self.group.remove(0)));
        }
        let group = self.group.join(" ");
        if group.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(Failure::usage(format!("group {group:?}: must be one or two words")));
        }
        if out.is_json() && self.interval_ms.is_some() {
            return Err(Failure::usage(
                "--interval-ms: only the summary has rates, and --json prints the counters",
            ));
        }
        if group.is_empty() && !self.all && !out.is_json() {
            let interval = self.interval_ms.map_or(SUMMARY_INTERVAL, Duration::from_millis);
            return self.print_summaries(interval, out);
        }
        let rows_by_server = request_stats(&self.target, &group)?;
        let is_multi_server = rows_by_server.len() > 1;
        let mut failures = Vec::new();
        for (server, rows) in rows_by_server {
            let rows = match rows {
                Ok(rows) => rows,
                Err(failure) => {
                    failures.push(failure);
                    continue;
                }
            };
            if out.is_json() {
                let rows_document: Map<String, Value> =
                    rows.into_iter().map(|(name, value)| (name, to_json_value(value))).collect();
                out.print_row(&json!({ "server": server, "group": group, "rows": rows_document }))?;
                continue;
            }
            if is_multi_server {
                out.print_line(format!("# {server}"))?;
            }
            if rows.is_empty() {
                out.print_line(describe_empty_reply(&group))?;
            }
            out.print_bytes(format_two_columns(rows).as_bytes())?;
        }
        Failure::join(failures).map_or(Ok(Exit::Success), Err)
    }

    fn print_summaries(&self, interval: Duration, out: &Output) -> Result<Exit, Failure> {
        let all_before = request_counters(&self.target)?;
        std::thread::sleep(interval);
        let all_after = request_counters(&self.target)?;
        // Only a glasscache has a curve.
        let curves = request_stats(&self.target, "curve")?;
        let all_after = all_after.into_iter().zip(curves);
        let (mut is_first, mut failures) = (true, Vec::new());
        for ((server, before), ((_, after), (_, curve))) in all_before.into_iter().zip(all_after) {
            let (before, after) = match (before, after) {
                (Ok(before), Ok(after)) => (before, after),
                (Err(failure), _) | (_, Err(failure)) => {
                    failures.push(failure);
                    continue;
                }
            };
            if !std::mem::take(&mut is_first) {
                out.print_line("")?;
            }
            let advice = curve.map(|rows| read_advice(&rows)).unwrap_or_default();
            let summary = format_summary(&server, (&before, &after), interval, &advice);
            out.print_line(summary.trim_end())?;
        }
        Failure::join(failures).map_or(Ok(Exit::Success), Err)
    }
}

/// The rows of `stats group` of each server.
fn request_stats(target: &Target, group: &str) -> Result<ByServer<Rows>, Failure> {
    let replies = target.send_to_all(Request::Stats { argument: group.as_bytes() })?;
    let add_hint = |failure: Failure| {
        match group {
        "" => failure,
        _ => failure.or_hint(format!(
            "the group was \"{group}\"; groups are settings, items, slabs, sizes, conns, detail on|off|dump, reset, \
             glasscache"
        )),
    }
    };
    let to_rows = |(server, reply): (String, Result<Reply, Failure>)| {
        let rows = match reply {
            Ok(Reply::Rows(rows)) => Ok(rows),
            Ok(_) => Err(Failure::new(Exit::BadData, format!("{server} sent no stats rows"))),
            Err(failure) => Err(add_hint(failure)),
        };
        (server, rows)
    };
    Ok(replies.into_iter().map(to_rows).collect())
}

/// The general counters of each server as numbers.
pub(super) fn request_counters(target: &Target) -> Result<ByServer<Counters>, Failure> {
    let rows_by_server = request_stats(target, "")?;
    let parse_counters =
        |rows: Rows| Counters::of(rows.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let rows_by_server = rows_by_server.into_iter();
    Ok(rows_by_server.map(|(server, rows)| (server, rows.map(parse_counters))).collect())
}

/// The message for a group without rows.
fn describe_empty_reply(group: &str) -> &'static str {
    match group {
        "reset" => "counters set to 0",
        "detail on" => "counting by key prefix; see glasscache stats detail dump",
        "detail off" => "no longer counting by key prefix",
        _ => "no rows",
    }
}

/// Ten lines about one server, and what more memory would bring if the server knows that.
fn format_summary(
    server: &str,
    (counters_before, counters_after): (&Counters, &Counters),
    interval: Duration,
    advice: &[String],
) -> String {
    let seconds = interval.as_secs_f64().max(0.001);
    let recent = counters_after.since(counters_before);
    let rate = |count: u64| format_decimal(count as f64 / seconds);
    let last_interval = format!("in the last {}", format_duration(interval));
    let mut rows = Vec::new();
    let mut push_row = |name: &str, value: String| rows.push((name.to_owned(), value));
    push_row("server", server.to_owned());
    push_row("version", counters_after.version.clone());
    push_row("uptime", format_duration(Duration::from_secs(counters_after.uptime_s)));
    push_row(
        "hit ratio",
        format!(
            "{} since start, {} {last_interval}",
            format_percent(counters_after.hit_ratio()),
            format_percent(recent.hit_ratio()),
        ),
    );
    push_row(
        "operations",
        format!(
            "{} /s: {} gets, {} sets, {} others",
            rate(recent.operations()),
            rate(recent.gets),
            rate(recent.sets),
            rate(recent.other_commands)
        ),
    );
    push_row("memory", format_memory(counters_after));
    push_row("items", format_count(counters_after.items));
    push_row(
        "evictions",
        format!(
            "{} /s; {} since start, {} of them never read",
            rate(recent.evictions),
            format_count(counters_after.evictions),
            format_count(counters_after.evicted_unread)
        ),
    );
    push_row(
        "expired",
        format!("{} gets found an expired item since start", format_count(counters_after.expired)),
    );
    push_row(
        "connections",
        format!(
            "{} of {}, {} refused since start",
            format_count(counters_after.connections),
            format_count(counters_after.connections_max),
            format_count(counters_after.connections_refused)
        ),
    );
    if let Some(sentence) = advice.first() {
        // What is after the interval, the time of the backend, has a line of its own.
        match sentence.split_once("), ") {
            Some((misses, backend)) => {
                push_row("more memory", format!("{misses}),"));
                push_row("", backend.to_owned());
            }
            None => push_row("more memory", sentence.clone()),
        }
    }
    format_two_columns(rows)
}

/// What is used of the limit.
fn format_memory(counters: &Counters) -> String {
    let used_share = counters.bytes as f64 / counters.limit_bytes.max(1) as f64;
    format!(
        "{} of {} ({})",
        format_bytes(counters.bytes),
        format_bytes(counters.limit_bytes),
        format_percent(Some(used_share))
    )
}

/// Whole numbers as numbers, everything else as text.
fn to_json_value(value: String) -> Value {
    value.parse::<i64>().map_or_else(|_| Value::String(value), Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_ten_lines_that_fit_80_columns() {
        let counters_after = Counters {
            version: "1.6.45-glasscache".into(),
            uptime_s: 93_784,
            gets: 12_345_678,
            hits: 10_345_678,
            expired: 98_765,
            flushed: 0,
            sets: 2_345_678,
            other_commands: 345_678,
            evictions: 1_234_567,
            evicted_unread: 234_567,
            items: 3_456_789,
            bytes: 987_654_321,
            limit_bytes: 1 << 30,
            connections: 1_000,
            connections_max: 1_024,
            connections_refused: 12_345,
            ..Counters::default()
        };
        let format = |advice: &[String]| {
            let counters = (&Counters::default(), &counters_after);
            format_summary("cache.example.org:11211", counters, Duration::from_secs(10), advice)
        };
        assert_eq!(format(&[]).lines().count(), 10);
        let advice = "+256 MB (+25 %) would avoid 1234 of 5678 misses/s (22 % +- 3), 0.40 s of backend time a second";
        let text = format(&[advice.to_owned(), "less".to_owned()]);
        assert_eq!(text.lines().count(), 12);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.contains("hit ratio    83.8 % since start"), "{text}");
        assert!(text.contains("uptime       1 d 2 h"), "{text}");
    }
}
