//! `glasscache why`: why is the hit ratio what it is?
//!
//! Watches a server for some seconds and splits its misses into expired, evicted, deleted or flushed, and never set,
//! by key prefix. The lab counts (`why`); with memcached it depends on what its watch reports.

use std::io::{self, BufReader, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::interrupts::new_stop_flag;
use glasscache_client::Address;
use glasscache_lab::counters::Counters;
use glasscache_lab::text::{
    Table, format_count, format_duration, format_percent, format_two_columns, wrap,
};
use glasscache_lab::why::{Causes, Findings, WatchTally, explain, watch};
use serde_json::json;

use super::stats::request_counters;
use super::target::{Stream, Target, failure, start_server_hint};
use crate::output::{Exit, Failure, Output};

const EXAMPLES: &str = "\
Examples:
  glasscache why                         watch ten seconds
  glasscache why --for-s 60 --prefix-of '/:'
  glasscache why -s cache1:11211 --json

Misses are counted by the server and split by what `watch` shows. A key that was stored before the watch
began and gone by then counts as \"not seen\": watch for longer than most items live to tell more apart.
Watching costs the server some CPU for each get while it lasts.";

/// Number of prefixes shown without `--all`.
const PREFIXES_MAX: usize = 6;

/// Maximum wait of one read, so that Ctrl-C and the end of the interval are noticed.
const READ_TIMEOUT: Duration = Duration::from_millis(100);

/// The watch commands; the second is for memcached before 1.6.20, which does not report deletions.
const WATCH_COMMANDS: [&str; 2] =
    ["watch fetchers mutations evictions deletions\r\n", "watch fetchers mutations evictions\r\n"];

/// Explain a server's hit ratio.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// How long to watch, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    for_s: f64,
    /// A prefix ends at the first of these characters in a key
    #[arg(long, value_name = "CHARS", default_value = ":")]
    prefix_of: String,
    /// Every prefix, not only the six with the most misses
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    target: Target,
}

impl Args {
    /// Watches the server and prints the causes of its misses.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let watch_time = Duration::try_from_secs_f64(self.for_s)
            .ok()
            .filter(|watch_time| !watch_time.is_zero())
            .ok_or_else(|| Failure::usage("--for-s: must be a number of seconds above 0"))?;
        if self.prefix_of.is_empty() {
            return Err(Failure::usage("--prefix-of: name at least one character"));
        }
        let addresses =
            Address::parse_list(&self.target.server).map_err(|error| failure(&error))?;
        let [address] = &addresses[..] else {
            return Err(Failure::usage("--server: why watches one server at a time; name one"));
        };
        let stop = new_stop_flag()?;
        let to_unreachable_failure = |error: io::Error| {
            Failure::new(Exit::Unreachable, format!("{}: {error}", self.target.server))
                .with_hint(start_server_hint(&self.target.server))
        };
        let (stream, sees_deletions) =
            start_watch(address, &self.target).map_err(to_unreachable_failure)?;
        let mut tally = WatchTally::new(self.prefix_of.as_bytes());
        let counters_before = read_counters(&self.target)?;
        eprintln!("watching {} for {} ...", self.target.server, format_duration(watch_time));
        let is_stopped = || stop.load(Ordering::Relaxed);
        let watched_for = watch(BufReader::new(stream), &mut tally, watch_time, is_stopped)
            .map_err(to_unreachable_failure)?;
        let counters_after = read_counters(&self.target)?;
        let findings = explain(&counters_before, &counters_after, tally, watched_for.as_secs_f64());
        if out.is_json() {
            out.set_result(&json!({ "server": self.target.server,
                "sees_deletions": sees_deletions, "findings": findings }));
        } else {
            out.print_line(format_findings(&findings, sees_deletions, self.all).trim_end())?;
        }
        Ok(Exit::Success)
    }
}

fn read_counters(target: &Target) -> Result<Counters, Failure> {
    let mut all_counters = request_counters(target)?;
    Ok(all_counters.pop().map(|(_, counters)| counters).unwrap_or_default())
}

/// A connection with a running watch, and whether it reports deletions.
fn start_watch(address: &Address, target: &Target) -> io::Result<(Box<dyn Stream>, bool)> {
    for command in WATCH_COMMANDS {
        let mut stream = target.connect(&address.endpoint)?;
        stream.write_all(command.as_bytes())?;
        let mut reply = [0; 2];
        stream.read_exact(&mut reply)?;
        if &reply == b"OK" {
            stream.set_read_timeout(READ_TIMEOUT)?;
            return Ok((stream, command == WATCH_COMMANDS[0]));
        }
    }
    Err(io::Error::other(
        "the server refuses to be watched (no `watch` command, too many watchers, or started with -W)",
    ))
}

/// The summary, the table, and the next step.
fn format_findings(findings: &Findings, sees_deletions: bool, prints_all_prefixes: bool) -> String {
    let causes = &findings.causes;
    let hit_ratio = (causes.gets > 0)
        .then(|| causes.gets.saturating_sub(causes.misses) as f64 / causes.gets as f64);
    let since_start = format_percent(findings.counters_since_start.hit_ratio());
    let watched_for = Duration::from_secs_f64(findings.seconds);
    if causes.gets == 0 {
        return wrap(&format!(
            "No gets in {}; the hit ratio since start is {since_start}.",
            format_duration(watched_for)
        ));
    }
    let mut text = wrap(&format!(
        "{} of {} gets hit in {} ({since_start} since start).",
        format_percent(hit_ratio),
        format_count(causes.gets),
        format_duration(watched_for)
    ));
    text.push('\n');
    if causes.misses == 0 {
        return text;
    }
    text.push_str(&format_count(causes.misses));
    text.push_str(" misses:\n");
    text.push_str(&format_causes(causes));
    text.push_str(&format_prefixes(findings, prints_all_prefixes));
    for note in list_notes(findings, sees_deletions) {
        text.push_str(&wrap(&note));
        text.push('\n');
    }
    text
}

/// One line for each cause, the greatest first.
fn format_causes(causes: &Causes) -> String {
    let unread_share = format_percent(share_of(causes.evicted_unread, causes.evicted));
    let mut lines = [
        (
            causes.evicted,
            format!("evicted ({unread_share} of them unread): more memory would keep them"),
        ),
        (causes.expired, "expired: a longer TTL would keep them".to_owned()),
        (causes.removed, "deleted or flushed by the application".to_owned()),
        (causes.unknown_cause, "not seen before: never set, or gone before the watch".to_owned()),
    ];
    lines.sort_by_key(|(misses, _)| std::cmp::Reverse(*misses));
    let format_line = |(misses, explanation): (u64, String)| {
        let share = format_percent(share_of(misses, causes.misses));
        (format!("  {share:>7}"), explanation)
    };
    format_two_columns(lines.into_iter().filter(|(misses, _)| *misses > 0).map(format_line))
}

fn format_prefixes(findings: &Findings, prints_all_prefixes: bool) -> String {
    let rows_max = if prints_all_prefixes { usize::MAX } else { PREFIXES_MAX };
    let mut table = Table::new(&[
        "prefix", "gets", "hits", "misses", "evicted", "expired", "removed", "unseen",
    ]);
    for row in findings.prefixes.iter().take(rows_max) {
        let causes = &row.causes;
        table.push_row([
            row.prefix.clone(),
            format_count(causes.gets),
            format_percent(share_of(causes.gets.saturating_sub(causes.misses), causes.gets)),
            format_count(causes.misses),
            format_count(causes.evicted),
            format_count(causes.expired),
            format_count(causes.removed),
            format_count(causes.unknown_cause),
        ]);
    }
    let hidden_prefixes = findings.prefixes.len().saturating_sub(rows_max);
    let hidden_note = match hidden_prefixes {
        0 => String::new(),
        hidden_prefixes => {
            format!("  and {} more prefixes (--all)\n", format_count(hidden_prefixes as u64))
        }
    };
    format!("\n{table}{hidden_note}\n")
}

fn list_notes(findings: &Findings, sees_deletions: bool) -> Vec<String> {
    let causes = &findings.causes;
    let mut notes = Vec::new();
    if findings.skipped_lines > 0 {
        notes.push(format!(
            "The server skipped {} lines: the prefixes are a sample.",
            format_count(findings.skipped_lines)
        ));
    }
    if !sees_deletions {
        notes.push(
            "This server prints no deletions: a deleted key counts as removed or not seen."
                .to_owned(),
        );
    }
    if causes.unknown_cause > causes.misses / 2 && findings.counters_since_start.evictions == 0 {
        notes.push("Nothing was ever evicted here: more memory would not help.".to_owned());
    }
    if causes.evicted > causes.misses / 4 {
        notes.push("Next: glasscache curve says what more memory would bring.".to_owned());
    }
    notes
}

fn share_of(part: u64, total: u64) -> Option<f64> {
    (total > 0).then(|| part as f64 / total as f64)
}

#[cfg(test)]
mod tests {
    use glasscache_lab::why::PrefixCauses;

    use super::*;

    #[test]
    fn the_summary_is_first_and_the_greatest_prefixes_follow() {
        let causes = Causes {
            gets: 12_345_678,
            misses: 2_345_678,
            expired: 345_678,
            evicted: 1_345_678,
            evicted_unread: 999_999,
            removed: 45_678,
            unknown_cause: 608_644,
        };
        let findings = Findings {
            seconds: 10.0,
            interval_counters: Counters::default(),
            counters_since_start: Counters { gets: 10, hits: 8, ..Counters::default() },
            causes,
            prefixes: (0..9)
                .map(|number| PrefixCauses {
                    prefix: format!("a-rather-long-prefix-{number}:"),
                    causes: Causes {
                        gets: 1_234_567,
                        misses: 999_999,
                        expired: 99_999,
                        evicted: 99_999,
                        evicted_unread: 9,
                        removed: 99_999,
                        unknown_cause: 99_999,
                    },
                })
                .collect(),
            skipped_lines: 12,
        };
        let text = format_findings(&findings, false, false);
        assert!(
            text.starts_with("81.0 % of 12,345,678 gets hit in 10 s (80.0 % since start)."),
            "{text}"
        );
        assert!(text.contains("  a-rather-long-prefix-0:  "), "no name is cut: {text}");
        assert!(text.contains("and 3 more prefixes (--all)"), "{text}");
    }
}
