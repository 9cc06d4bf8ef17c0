//! `glasscache why`: why is the hit ratio what it is?
//!
//! Watches a server for some seconds and splits its misses into expired, evicted, deleted or flushed, and never set,
//! by key prefix. The lab counts (`why`); with memcached it depends on what its watch reports.

use std::io::{self, BufReader, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use glasscache_client::Address;
use glasscache_client::address::Endpoint;
use glasscache_findings::counters::Counters;
use glasscache_lab::report::{Report, ReportTable};
use glasscache_lab::text::{format_count, format_duration, format_percent};
use glasscache_lab::why::{Causes, Findings, WatchTally, explain, watch};
use serde_json::{Value, json};

use super::stats::request_counters;
use crate::interrupts::new_stop_flag;
use crate::live_figures::{Prefixes, read_advice};
use crate::live_target::{UNAUTHENTICATED, format_not_memcached};
use crate::output::{Exit, Failure, Output};
use crate::report::{Detail, print_report};
use crate::seconds;
use crate::server_reader::ServerReader;
use crate::target::{Stream, Target, failure, read_line, start_server_hint};

const EXAMPLES: &str = "\
Examples:
  glasscache why                         watch ten seconds
  glasscache why --for-s 60 --prefix-of '/:'
  glasscache why -s cache1:11211 --json

Misses are counted by the server and split by what `watch` shows. A key that was stored before the watch \
began and gone by then counts as \"not seen\": watch for longer than most items live to tell more apart. \
Watching costs the server some CPU for each get while it lasts.";

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
    /// Server as host:port or path of a unix socket, instead of --server
    #[arg(value_name = "SERVER")]
    positional_server: Option<String>,
    #[command(flatten)]
    target: Target,
}

impl Args {
    /// Watches the server and prints the causes of its misses.
    pub(crate) fn run(mut self, out: &Output) -> Result<Exit, Failure> {
        self.target.use_positional(self.positional_server.take());
        let watch_time = seconds::to_duration("--for-s", self.for_s)?;
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
            start_watch(&address.endpoint, &self.target, &WATCH_COMMANDS)
                .map(|(stream, command)| (stream, command == WATCH_COMMANDS[0]))
                .map_err(to_unreachable_failure)?;
        let mut tally = WatchTally::new(self.prefix_of.as_bytes());
        let counters_before = read_counters(&self.target)?;
        eprintln!("watching {} for {} ...", self.target.server, format_duration(watch_time));
        let is_stopped = || stop.load(Ordering::Relaxed);
        let watched_for = watch(BufReader::new(stream), &mut tally, watch_time, is_stopped)
            .map_err(to_unreachable_failure)?;
        let counters_after = read_counters(&self.target)?;
        let findings = explain(&counters_before, &counters_after, tally, watched_for.as_secs_f64());
        let own_figures = OwnFigures::read(&self.target, &findings)?;
        let result = json!({ "server": self.target.server, "sees_deletions": sees_deletions,
            "findings": findings, "last_hour": own_figures.to_document() });
        let report = Report { result, ..build_report(&findings, sees_deletions, &own_figures) };
        print_report(&report, out, Detail { prints_all: self.all, is_wide: false })?;
        Ok(Exit::Success)
    }
}

/// What the server knows itself of its load; nothing of a memcached.
struct OwnFigures {
    /// What another size would bring, the most memory first.
    advice: Vec<String>,
    /// The last hour of the prefixes that were watched.
    prefixes: Prefixes,
}

impl OwnFigures {
    fn read(target: &Target, findings: &Findings) -> Result<OwnFigures, Failure> {
        let reader = ServerReader::open_all(target)?.pop();
        let read = |group| reader.as_ref().and_then(|reader| reader.read_rows(group).ok());
        let advice = read("curve").map(|rows| read_advice(&rows)).unwrap_or_default();
        let mut prefixes = Prefixes::of(&read("prefixes").unwrap_or_default());
        prefixes.retain(|prefix| findings.prefixes.iter().any(|watched| watched.prefix == prefix));
        Ok(OwnFigures { advice, prefixes })
    }

    fn to_document(&self) -> Value {
        json!({ "advice": self.advice, "prefixes": self.prefixes.to_documents() })
    }
}

fn read_counters(target: &Target) -> Result<Counters, Failure> {
    let last_server = request_counters(target)?.pop();
    last_server.map_or_else(|| Ok(Counters::default()), |(_, counters)| counters)
}

/// A connection with a running watch, by the first of the commands that the server accepts, and that command.
pub(super) fn start_watch<'c>(
    endpoint: &Endpoint,
    target: &Target,
    commands: &[&'c str],
) -> io::Result<(Box<dyn Stream>, &'c str)> {
    for &command in commands {
        let mut stream = target.connect(endpoint)?;
        stream.write_all(command.as_bytes())?;
        let reply = read_line(&mut *stream)?;
        if reply == "OK" {
            stream.set_read_timeout(READ_TIMEOUT)?;
            return Ok((stream, command));
        }
        if reply.contains(UNAUTHENTICATED) {
            let message = format_not_memcached(&endpoint.to_string(), "watch", &reply);
            return Err(io::Error::other(message));
        }
    }
    Err(io::Error::other(
        "the server refuses to be watched (no `watch` command, too many watchers, or started with -W)",
    ))
}

/// The summary, the causes, the prefixes, and the next step.
fn build_report(findings: &Findings, sees_deletions: bool, own_figures: &OwnFigures) -> Report {
    let causes = &findings.causes;
    let since_start = format_percent(findings.counters_since_start.hit_ratio());
    let watched_for = format_duration(Duration::from_secs_f64(findings.seconds));
    if causes.gets == 0 {
        let sentence =
            format!("No gets in {watched_for}; the hit ratio since start is {since_start}.");
        return Report { sentence, ..Report::default() };
    }
    let sentence = format!(
        "{} of {} gets hit in {watched_for} ({since_start} since start).",
        format_percent(share_of(causes.gets.saturating_sub(causes.misses), causes.gets)),
        format_count(causes.gets),
    );
    if causes.misses == 0 {
        return Report { sentence, ..Report::default() };
    }
    let mut tables = vec![build_causes_table(causes), build_prefixes_table(findings)];
    if !own_figures.prefixes.is_empty() {
        tables.push(own_figures.prefixes.to_table("The last hour, from the server's own sample:"));
    }
    Report {
        sentence,
        tables,
        notes: list_notes(findings, sees_deletions, &own_figures.advice),
        ..Report::default()
    }
}

/// A row for each cause, the greatest first.
fn build_causes_table(causes: &Causes) -> ReportTable {
    let unread_share = format_percent(share_of(causes.evicted_unread, causes.evicted));
    let mut rows = [
        (
            causes.evicted,
            format!("evicted ({unread_share} of them unread): more memory would keep them"),
        ),
        (causes.expired, "expired: a longer TTL would keep them".to_owned()),
        (causes.removed, "deleted or flushed by the application".to_owned()),
        (causes.unknown_cause, "not seen before: never set, or gone before the watch".to_owned()),
    ];
    rows.sort_by_key(|(misses, _)| std::cmp::Reverse(*misses));
    let rows = rows.into_iter().filter(|(misses, _)| *misses > 0).map(|(misses, explanation)| {
        vec![format_percent(share_of(misses, causes.misses)), explanation]
    });
    let title = format!("{} misses:", format_count(causes.misses));
    ReportTable::new(title, ["share", "cause"], rows)
}

fn build_prefixes_table(findings: &Findings) -> ReportTable {
    let rows = findings.prefixes.iter().map(|row| {
        let causes = &row.causes;
        let hits = causes.gets.saturating_sub(causes.misses);
        vec![
            row.prefix.clone(),
            format_count(causes.gets),
            format_percent(share_of(hits, causes.gets)),
            format_count(causes.misses),
            format_count(causes.evicted),
            format_count(causes.expired),
            format_count(causes.removed),
            format_count(causes.unknown_cause),
        ]
    });
    let header = ["prefix", "gets", "hits", "misses", "evicted", "expired", "removed", "unseen"];
    ReportTable { is_best_first: true, ..ReportTable::new("", header, rows) }
}

fn list_notes(findings: &Findings, sees_deletions: bool, advice: &[String]) -> Vec<String> {
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
        notes.push(match advice.first() {
            Some(sentence) => format!("{sentence}."),
            None => "Next: glasscache curve says what more memory would bring.".to_owned(),
        });
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
    use crate::report::format_report;

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
        let own_figures = |advice: &[&str]| OwnFigures {
            advice: advice.iter().map(|&sentence| sentence.to_owned()).collect(),
            prefixes: Prefixes::of(&Vec::new()),
        };
        let to_text = |advice: &[&str]| {
            let report = build_report(&findings, false, &own_figures(advice));
            format_report(&report, Detail::default())
        };
        let text = to_text(&[]);
        assert!(text.contains("glasscache curve says"), "{text}");
        assert!(to_text(&["+1 MB would avoid 2 of 3 misses/s"]).contains("misses/s."), "{text}");
        assert!(
            text.starts_with("81.0 % of 12,345,678 gets hit in 10 s (80.0 % since start)."),
            "{text}"
        );
        assert!(text.contains("a-rather-long-prefix-0:  "), "no name is cut: {text}");
        assert!(text.contains("--all prints 3 more rows."), "{text}");
    }
}
