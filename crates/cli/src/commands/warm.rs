//! `glasscache warm`: fills a server with the items of another, over the wire.

use std::sync::atomic::Ordering;

use glasscache_lab::access::{Access, Protocol};
use glasscache_lab::text::{format_bytes, format_count, wrap};
use glasscache_lab::warm::{End, Options, Report, WarmError, warm};
use serde_json::json;

use crate::access::{self, find_access};
use crate::interrupts::new_stop_flag;
use crate::live_target::new_progress_bar;
use crate::output::{Exit, Failure, Output};

const EXAMPLES: &str = "\
Examples:
  glasscache warm --from cache1:11211 --to cache2:11211
  glasscache warm cache1:11211 cache2:11211
  glasscache warm --from cache1:11211 --to unix:/run/glasscache/socket --rate 50000
  glasscache warm --from cache1:11211 --to cache2:11211 --tls --tls-ca ca.pem --tls-only to

Either server may be memcached 1.6 or glasscache. Before the copy, move the clients to the new server, and let them \
remove items from both, from the old one first. An item that the new server already has is kept unless --overwrite is \
given, so the copy never replaces a newer value. Items are copied in the order of their last access, the latest first; \
the eviction order of the old server does not change. The copy ends when the new server begins to evict.";

/// Bytes in a megabyte of `--megabytes`.
const MEGABYTE: u64 = 1_000_000;

/// Fill a server with the items of another
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Server that has the items, as host:port or unix:PATH
    #[arg(long, value_name = "OLD", requires = "to")]
    from: Option<String>,
    /// Server to fill, as host:port or unix:PATH
    #[arg(long, value_name = "NEW", requires = "from")]
    to: Option<String>,
    /// The old and the new server, instead of --from and --to
    #[arg(
        value_names = ["OLD", "NEW"],
        num_args = 2,
        required_unless_present = "from",
        conflicts_with_all = ["from", "to"]
    )]
    servers: Vec<String>,
    /// Limit of items copied in a second
    #[arg(long, value_name = "NUM", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,
    /// Limit of megabytes copied in a second
    #[arg(long, value_name = "MB", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    megabytes: u64,
    /// Replace items that the new server has already
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    access: access::Args,
    /// Encrypt connections only to this one of the two servers
    #[arg(long, value_name = "SERVER", requires = "tls")]
    tls_only: Option<Side>,
    /// Log in only to this one of the two servers
    #[arg(long, value_name = "SERVER", requires = "user")]
    login_only: Option<Side>,
}

/// One of the two servers.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The server that has the items.
    From,
    /// The server to fill.
    To,
}

impl Args {
    /// Copies and prints what was copied.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let (from, to) = self.addresses();
        let from = self.access_to(from, Side::From)?;
        let to = self.access_to(to, Side::To)?;
        if from.endpoint == to.endpoint {
            return Err(Failure::usage("--from and --to name the same server; name two servers"));
        }
        let options = Options {
            from,
            to,
            items_per_s: self.rate,
            bytes_per_s: self.megabytes * MEGABYTE,
            overwrites: self.overwrite,
        };
        let stop = new_stop_flag()?;
        let bar = new_progress_bar();
        let mut report = Report::default();
        let outcome = warm(&options, &mut report, |report| {
            bar.set_length(report.listed_items);
            bar.set_position(report.examined_items);
            !stop.load(Ordering::Relaxed)
        });
        bar.finish_and_clear();
        if outcome.is_ok() || report.listed_items > 0 {
            print(&report, out)?;
        }
        outcome.map_err(|error| failure(&error))?;
        match report.end {
            End::Stopped => Err(Failure::new(
                Exit::Interrupted,
                "stopped; another run goes on, for what was copied is kept",
            )),
            End::TargetRefuses => Ok(Exit::Finding),
            _ if report.refused > 0 => Ok(Exit::Finding),
            _ if report.changed > 0 && report.copied_items == 0 => Ok(Exit::Finding),
            End::Complete | End::TargetFull | End::Failed => Ok(Exit::Success),
        }
    }
}

impl Args {
    /// The addresses of the server that has the items and of the one to fill.
    fn addresses(&self) -> (&str, &str) {
        match (&self.from, &self.to, &self.servers[..]) {
            (_, _, [from, to]) => (from, to),
            (from, to, _) => {
                (from.as_deref().unwrap_or_default(), to.as_deref().unwrap_or_default())
            }
        }
    }

    /// How connections reach one of the two servers, with the encryption and the login that are meant for it.
    fn access_to(&self, address: &str, side: Side) -> Result<Access, Failure> {
        let mut credentials = self.access.read_credentials()?;
        if self.tls_only.is_some_and(|only| only != side) {
            credentials.tls = None;
        }
        if self.login_only.is_some_and(|only| only != side) {
            credentials.login = None;
        }
        find_access(address, Protocol::Meta, &credentials)
    }
}

fn print(report: &Report, out: &Output) -> Result<(), Failure> {
    if out.is_json() {
        out.set_result(&json!(report));
        return Ok(());
    }
    out.print_line(wrap(&format_sentence(report)))?;
    for (item_count, reason) in [
        (report.already_present, "were there already and kept"),
        (report.gone, "had expired or were removed before they were read"),
        (report.stale, "are stale, or a client is about to refresh them"),
        (report.changed, "changed while they were copied; the copies were removed"),
        (report.refused, "were refused by the new server"),
        (report.unnameable_keys, "have keys that are too long in base64"),
        (
            report.possibly_missing,
            "more are counted by the old server but not in its list: expired, or moved meanwhile (another run finds those)",
        ),
    ] {
        if item_count > 0 {
            out.print_line(format!("{:>12} {reason}", format_count(item_count)))?;
        }
    }
    if let Some(refusal) = &report.refusal {
        out.print_line(wrap(&format!("the first refusal: {refusal}")))?;
    }
    Ok(())
}

fn format_sentence(report: &Report) -> String {
    let copied_text = format!(
        "{} of {} items copied, {} in {:.1} s",
        format_count(report.copied_items),
        format_count(report.listed_items),
        format_bytes(report.copied_bytes),
        report.seconds
    );
    let remaining_items = format_count(report.listed_items - report.examined_items);
    match report.end {
        End::Complete => format!("{copied_text}."),
        End::TargetFull => {
            format!(
                "{copied_text}. The new server is full and evicts: {remaining_items} older items were left."
            )
        }
        End::TargetRefuses => {
            format!("{copied_text}. The new server refuses items: {remaining_items} were left.")
        }
        End::Stopped | End::Failed => format!("{copied_text} so far; {remaining_items} were left."),
    }
}

fn failure(error: &WarmError) -> Failure {
    let message = error.to_string();
    match error {
        WarmError::SameServer { .. } => Failure::usage(message),
        WarmError::Connection { .. } => Failure::new(Exit::Unreachable, message)
            .with_hint("another run goes on: what was copied is kept"),
        WarmError::Refused { .. } => Failure::new(Exit::BadData, message).with_hint(
            "warm needs meta commands (memcached 1.6 or glasscache), a login where the server wants one (--user), and of \
             the old server `lru_crawler metadump`, which -X refuses",
        ),
        WarmError::Unexpected { .. } => Failure::new(Exit::BadData, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_what_was_left_and_why() {
        let report = Report {
            listed_items: 1000,
            examined_items: 800,
            copied_items: 790,
            copied_bytes: 79_000,
            seconds: 2.0,
            end: End::TargetFull,
            ..Report::default()
        };
        assert_eq!(
            format_sentence(&report),
            "790 of 1,000 items copied, 79.0 KB in 2.0 s. The new server is full and evicts: 200 older items were left."
        );
        let complete = Report { end: End::Complete, ..report };
        assert_eq!(format_sentence(&complete), "790 of 1,000 items copied, 79.0 KB in 2.0 s.");
    }
}
