//! Filling a server from another over the wire, so that it does not start cold.
//!
//! The old server, the source, lists its items (`lru_crawler metadump`); they are read in batches with their TTLs and
//! client flags (meta gets that leave its eviction order as it is) and added to the new server, the target, which keeps
//! what it has already. Either may be memcached 1.6 or glasscache (docs/decisions/operation.md, 0089).

mod batch;
mod connection;
mod item_list;
mod listing;
mod pace;
mod report;
mod same_server;
mod server;

use std::time::{Duration, Instant};

use glasscache_protocol::text::request::StoreMode;

use self::batch::Copier;
use self::listing::list_items;
use self::pace::Rate;
pub use self::report::{End, Report, WarmError};
use self::same_server::refuse_same_server;
use self::server::CopyEndpoint;
use crate::access::Access;

/// Refusals without an item stored between them after which the new server counts as one that takes nothing.
const REFUSALS_MAX: u64 = 100;

/// How often the new server's statistics are read, to notice that it evicts.
const STATS_INTERVAL: Duration = Duration::from_secs(1);

/// How long a pause may be before the caller can stop.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// How to copy.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server that has the items.
    pub from: Access,
    /// The server to fill.
    pub to: Access,
    /// Most items to copy in a second.
    pub items_per_s: u64,
    /// Most bytes to copy in a second.
    pub bytes_per_s: u64,
    /// Whether an item replaces one that the new server has.
    pub overwrites: bool,
}

/// Copies until all items are examined, the new server is full or refuses, or `observe`, which sees the report after each
/// batch, returns false. Fills `report` also where it fails.
///
/// # Errors
/// A server cannot be reached, closes the connection, or does not take the commands that are needed; or both are one.
pub fn warm(
    options: &Options,
    report: &mut Report,
    mut observe: impl FnMut(&Report) -> bool,
) -> Result<(), WarmError> {
    let rate = Rate { items_per_s: options.items_per_s, bytes_per_s: options.bytes_per_s };
    let mut target = CopyEndpoint::open(&options.to)?;
    let mut source = CopyEndpoint::open(&options.from)?;
    refuse_same_server(&mut source, &mut target)?;
    let stats = target.read_stats()?;
    let evictions_before = parse_eviction_count(&stats);
    let target_time_s = stats.get("time").map_or(0, |time| *time as i64);
    let time_read_at = Instant::now();
    let Some(item_list) = list_items(&options.from, report, &mut observe)? else {
        report.end = End::Stopped;
        return Ok(());
    };
    let mode = if options.overwrites { StoreMode::Set } else { StoreMode::Add };
    let mut copier = Copier::new(&item_list, mode);
    let started = Instant::now();
    let (mut batch_start, mut listed_bytes, mut stats_read_at) = (0, 0, Instant::now());
    let (mut copied_before, mut refused_before) = (0, 0);
    report.end = loop {
        let range = item_list.batch(batch_start, rate.batch_items());
        if range.is_empty() {
            break End::Complete;
        }
        listed_bytes += item_list
            .items(range.clone())
            .iter()
            .map(|item| u64::from(item.item_bytes))
            .sum::<u64>();
        batch_start = range.end;
        let target_now_s = target_time_s.saturating_add(time_read_at.elapsed().as_secs() as i64);
        copier.copy(range, (&mut source, &mut target), target_now_s, report)?;
        report.examined_items = batch_start as u64;
        report.seconds = started.elapsed().as_secs_f64();
        if !observe(report) {
            break End::Stopped;
        }
        if report.copied_items > copied_before {
            (copied_before, refused_before) = (report.copied_items, report.refused);
        }
        if report.refused - refused_before >= REFUSALS_MAX {
            break End::TargetRefuses;
        }
        if stats_read_at.elapsed() >= STATS_INTERVAL {
            stats_read_at = Instant::now();
            if parse_eviction_count(&target.read_stats()?) > evictions_before {
                break End::TargetFull;
            }
        }
        let due_after = rate.due_after(report.examined_items, listed_bytes);
        if !wait_until(started, due_after, || observe(report)) {
            break End::Stopped;
        }
    };
    report.seconds = started.elapsed().as_secs_f64();
    Ok(())
}

fn parse_eviction_count(stats: &std::collections::HashMap<String, u64>) -> u64 {
    stats.get("evictions").copied().unwrap_or(0)
}

/// Waits until `due_after` has passed since `started`; returns false as soon as `should_continue` does.
fn wait_until(
    started: Instant,
    due_after: Duration,
    mut should_continue: impl FnMut() -> bool,
) -> bool {
    while let Some(pause) = due_after.checked_sub(started.elapsed()) {
        if pause.is_zero() {
            break;
        }
        std::thread::sleep(pause.min(PAUSE_MAX));
        if !should_continue() {
            return false;
        }
    }
    true
}
