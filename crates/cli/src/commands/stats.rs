//! `glasscache stats`: a summary of each server, one group of its counters, or all of them.

use std::time::Duration;

use crate::layout::two_column_list;
use glasscache_client::pipeline::Reply;
use glasscache_client::request::Request;
use glasscache_lab::counters::Counters;
use serde_json::{Map, Value, json};

use super::target::Target;
use crate::output::{Exit, Failure, Output};
use crate::table::{bytes, count, decimal, duration, percent};

const EXAMPLES: &str = "\
Examples:
  glasscache stats                       ten lines: hit ratio, memory, items, rates
  glasscache stats --interval-ms 10000   rates over ten seconds
  glasscache stats --all                 every general counter
  glasscache stats settings
  glasscache stats detail on             count by key prefix; later: stats detail dump
  glasscache stats reset                 set the counters to 0
  glasscache stats --json | jq .result[0].rows.curr_items

Groups: settings, items, slabs, sizes, conns, detail on|off|dump, reset, and of glasscache itself: glasscache.
Why gets miss: glasscache why.";

/// Print a server's counters.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which group of counters [default: a summary]
    #[arg(value_name = "GROUP", num_args = 0..=2, conflicts_with = "all")]
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
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        out.begin_list();
        let group = self.group.join(" ");
        if group.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(Failure::usage(format!(
                "group {group:?}: must be one or two words"
            )));
        }
        if out.is_json() && self.interval_ms.is_some() {
            return Err(Failure::usage(
                "--interval-ms: only the summary has rates, and --json prints the counters",
            ));
        }
        if group.is_empty() && !self.all && !out.is_json() {
            let interval = self
                .interval_ms
                .map_or(SUMMARY_INTERVAL, Duration::from_millis);
            return self.print_summaries(interval, out);
        }
        let replies = stats_of_servers(&self.target, &group)?;
        let is_multi_server = replies.len() > 1;
        for (server, rows) in replies {
            if out.is_json() {
                let rows: Map<String, Value> = rows
                    .into_iter()
                    .map(|(name, value)| (name, json_value(value)))
                    .collect();
                out.row(&json!({ "server": server, "group": group, "rows": rows }))?;
                continue;
            }
            if is_multi_server {
                out.line(format!("# {server}"))?;
            }
            if rows.is_empty() {
                out.line(empty_reply_text(&group))?;
            }
            out.bytes(two_column_list(rows).as_bytes())?;
        }
        Ok(Exit::Success)
    }

    fn print_summaries(&self, interval: Duration, out: &Output) -> Result<Exit, Failure> {
        let counters_before = counters_of_servers(&self.target)?;
        std::thread::sleep(interval);
        let counters_after = counters_of_servers(&self.target)?;
        for (number, ((server, counters_before), (_, counters_after))) in
            counters_before.iter().zip(&counters_after).enumerate()
        {
            if number > 0 {
                out.line("")?;
            }
            out.line(summary(server, counters_before, counters_after, interval).trim_end())?;
        }
        Ok(Exit::Success)
    }
}

/// The rows of `stats group` of each server.
pub(super) fn stats_of_servers(
    target: &Target,
    group: &str,
) -> Result<Vec<(String, Rows)>, Failure> {
    let replies = target
        .send_to_all(Request::Stats {
            argument: group.as_bytes(),
        })
        .map_err(|failure| match group {
            "" => failure,
            _ => failure.hint(format!(
                "the group was \"{group}\"; groups are settings, items, slabs, sizes, conns, detail on|off|dump, reset, \
                 glasscache"
            )),
        })?;
    let rows_or_failure = |(server, reply)| match reply {
        Reply::Rows(rows) => Ok((server, rows)),
        _ => Err(Failure::new(
            Exit::BadData,
            format!("{server} sent no stats rows"),
        )),
    };
    replies.into_iter().map(rows_or_failure).collect()
}

/// The general counters of each server as numbers.
pub(super) fn counters_of_servers(target: &Target) -> Result<Vec<(String, Counters)>, Failure> {
    let rows = stats_of_servers(target, "")?;
    let parse_counters = |(server, rows): (String, Rows)| {
        let counters = Counters::of(
            rows.iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );
        (server, counters)
    };
    Ok(rows.into_iter().map(parse_counters).collect())
}

/// The message for a group without rows.
fn empty_reply_text(group: &str) -> &'static str {
    match group {
        "reset" => "counters set to 0",
        "detail on" => "counting by key prefix; see glasscache stats detail dump",
        "detail off" => "no longer counting by key prefix",
        _ => "no rows",
    }
}

/// Ten lines about one server.
fn summary(
    server: &str,
    counters_before: &Counters,
    counters_after: &Counters,
    interval: Duration,
) -> String {
    let seconds = interval.as_secs_f64().max(0.001);
    let recent = counters_after.since(counters_before);
    let rate = |number: u64| decimal(number as f64 / seconds);
    let last_interval = format!("in the last {}", duration(interval));
    let used = percent(Some(
        counters_after.bytes as f64 / counters_after.limit_bytes.max(1) as f64,
    ));
    let mut rows = Vec::new();
    let mut line = |name: &str, value: String| rows.push((name.to_owned(), value));
    line("server", server.to_owned());
    line("version", counters_after.version.clone());
    line(
        "uptime",
        duration(Duration::from_secs(counters_after.uptime_s)),
    );
    line(
        "hit ratio",
        format!(
            "{} since start, {} {last_interval}",
            percent(counters_after.hit_ratio()),
            percent(recent.hit_ratio()),
        ),
    );
    line(
        "operations",
        format!(
            "{} /s: {} gets, {} sets, {} others",
            rate(recent.operations()),
            rate(recent.gets),
            rate(recent.sets),
            rate(recent.other_commands)
        ),
    );
    line(
        "memory",
        format!(
            "{} of {} ({used})",
            bytes(counters_after.bytes),
            bytes(counters_after.limit_bytes)
        ),
    );
    line("items", count(counters_after.items));
    line(
        "evictions",
        format!(
            "{} /s; {} since start, {} of them never read",
            rate(recent.evictions),
            count(counters_after.evictions),
            count(counters_after.evicted_unread)
        ),
    );
    line(
        "expired",
        format!(
            "{} gets found an expired item since start",
            count(counters_after.expired)
        ),
    );
    line(
        "connections",
        format!(
            "{} of {}, {} refused since start",
            count(counters_after.connections),
            count(counters_after.connections_max),
            count(counters_after.connections_refused)
        ),
    );
    two_column_list(rows)
}

/// Whole numbers as numbers, everything else as text.
fn json_value(value: String) -> Value {
    value
        .parse::<i64>()
        .map_or_else(|_| Value::String(value), Value::from)
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
        };
        let text = summary(
            "cache.example.org:11211",
            &Counters::default(),
            &counters_after,
            Duration::from_secs(10),
        );
        assert_eq!(text.lines().count(), 10);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.contains("hit ratio    83.8 % since start"), "{text}");
        assert!(text.contains("uptime       1 d 2 h"), "{text}");
    }
}
