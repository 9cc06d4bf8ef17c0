//! The cost of eviction: real key streams replayed look-aside against both servers at equal `-m`.
//!
//! An application gets a key and stores it after a miss; every miss of a key that was stored before could have been
//! avoided by a better server. A key with two sizes counts as two keys, so values are never resized. Small traces are
//! copied side by side into key spaces of their own, request by request, until memory limits are large enough that
//! memcached's page size does not matter.
//!
//! All copies are driven by one thread, so that none runs ahead of the others. A connection reads its next
//! keys, none twice, by one multi-get, then stores what was missing and reads on: per key that is exactly
//! get, then set, then get.

mod lru;
mod trace;

use std::sync::Arc;

use serde::Serialize;

pub use lru::lru_misses;
pub use trace::{Trace, traces_in};

use super::{Error, Sides};
use crate::load::{self, Batch, KEY_BYTES, KeyResult, Plan, Pool, Step, Workload, key_text};
use crate::target::Spawn;

/// Longer values are cut: memcached's default item size must take them.
const VALUE_BYTES_MAX: u32 = 1_000_000;

/// Keys of a multi-get.
const WINDOW: usize = 100;

/// Connections of a replay, each with its share of the copies.
const CONNECTIONS: u32 = 8;

/// The results of a replay against one server.
#[derive(Debug, Clone, Serialize)]
pub struct Replayed {
    /// Gets without a value.
    pub misses: u64,
    /// Misses of keys that had been stored.
    pub avoidable: u64,
    /// Sets that were refused.
    pub refused: u64,
    /// `VmRSS` and huge pages at the end.
    pub resident_bytes: u64,
    /// Key and value bytes that could be read back at the end.
    pub user_bytes: u64,
    /// Requests (gets) per second.
    pub requests_per_s: f64,
}

/// Both servers at one size.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// Which trace.
    pub trace: String,
    /// Requests of all copies.
    pub requests: u64,
    /// Copies.
    pub copies: u32,
    /// Misses that no cache avoids.
    pub first_uses: u64,
    /// `-m` as a share of the footprint.
    pub fraction: f64,
    /// `-m`.
    pub memory_mib: u64,
    /// glasscache.
    pub ours: Replayed,
    /// memcached.
    pub theirs: Option<Replayed>,
    /// Avoidable misses of an exact LRU that holds as many user bytes as glasscache did.
    pub lru_avoidable: u64,
}

impl Point {
    /// Avoidable misses, ours over memcached's; at least one miss is assumed on each side.
    pub fn ratio(&self) -> Option<f64> {
        let theirs = self.theirs.as_ref()?.avoidable.max(1) as f64;
        Some(self.ours.avoidable.max(1) as f64 / theirs)
    }
}

/// Replays `trace` at one fraction of its footprint; `skip_peer` leaves memcached out.
pub fn point(
    sides: &Sides,
    trace: &Arc<Trace>,
    fraction: f64,
    skip_peer: bool,
) -> Result<Point, Error> {
    let footprint = trace.footprint_bytes() as f64;
    let memory_mib = ((footprint * fraction / f64::from(1 << 20)).round() as u64).max(64);
    let ours = replay(sides, &sides.ours(memory_mib), trace)?;
    let theirs = if skip_peer {
        None
    } else {
        Some(replay(sides, &sides.theirs(memory_mib), trace)?)
    };
    let lru_avoidable = lru_misses(trace, ours.user_bytes) - trace.first_uses();
    Ok(Point {
        trace: trace.name.clone(),
        requests: trace.requests_all(),
        copies: trace.copies,
        first_uses: trace.first_uses(),
        fraction,
        memory_mib,
        ours,
        theirs,
        lru_avoidable,
    })
}

fn replay(sides: &Sides, spawn: &Spawn, trace: &Arc<Trace>) -> Result<Replayed, Error> {
    let server = spawn.start().map_err(Error::Start)?;
    let connections = CONNECTIONS.min(trace.copies);
    let plan = Plan {
        connections: connections as usize,
        depth: WINDOW + 1,
        cpus: sides.pinned_cpus(&sides.layout.reader().generator),
        stop: sides.stop.clone(),
        ..Plan::new(server.address)
    };
    let workload = Replay::new(Arc::clone(trace), connections);
    let run = |workload| {
        load::run(&plan, vec![workload], &server.meter()).map_err(Error::load(server.name))
    };
    let (report, mut workloads) = run(workload)?;
    if report.tally.wrong > 0 {
        let what = report.tally.difference.unwrap_or_default();
        return Err(Error::Wrong {
            server: server.name.to_owned(),
            count: report.tally.wrong,
            what,
        });
    }
    let resident_bytes = server.resident_bytes();
    let misses = workloads
        .iter()
        .map(|workload| workload.misses)
        .sum::<u64>();
    let refused = workloads.iter().map(|workload| workload.refused).sum();
    let requests_per_s = trace.requests_all() as f64 / report.seconds;
    // The same workload then reads every key once, without storing, to find the remaining items.
    let (_, workloads) = run(workloads.remove(0).into_inventory())?;
    Ok(Replayed {
        misses,
        avoidable: misses.saturating_sub(trace.first_uses()),
        refused,
        resident_bytes,
        user_bytes: workloads.iter().map(|workload| workload.hit_bytes).sum(),
        requests_per_s,
    })
}

/// The look-aside application.
struct Replay {
    trace: Arc<Trace>,
    pool: Pool,
    cursors: Vec<Cursor>,
    /// Walks through each distinct key once instead of the requests, and stores nothing.
    is_inventory: bool,
    misses: u64,
    refused: u64,
    hit_bytes: u64,
}

/// The position of a connection in the replay.
#[derive(Default)]
struct Cursor {
    copies: Vec<u32>,
    /// Index of the request, and of the copy within it.
    request: usize,
    copy: usize,
    window: Vec<u64>,
    /// Missed keys not stored yet.
    missing: Vec<u64>,
    is_reading: bool,
}

impl Replay {
    fn new(trace: Arc<Trace>, connections: u32) -> Self {
        let mut cursors: Vec<Cursor> = (0..connections).map(|_| Cursor::default()).collect();
        for (copy, at) in (0..trace.copies).zip((0..connections as usize).cycle()) {
            if let Some(cursor) = cursors.get_mut(at) {
                cursor.copies.push(copy);
            }
        }
        let pool = Pool::new(VALUE_BYTES_MAX as usize, 1);
        Self {
            trace,
            pool,
            cursors,
            is_inventory: false,
            misses: 0,
            refused: 0,
            hit_bytes: 0,
        }
    }

    fn into_inventory(self) -> Self {
        let connections = self.cursors.len() as u32;
        Self {
            is_inventory: true,
            ..Self::new(self.trace, connections)
        }
    }
}

impl Cursor {
    /// Fills the window with the next requests up to the first duplicate key.
    fn advance(&mut self, trace: &Trace, is_inventory: bool) {
        self.window.clear();
        let end = if is_inventory {
            trace.distinct
        } else {
            trace.requests.len()
        };
        while self.window.len() < WINDOW && self.request < end {
            let Some(&copy) = self.copies.get(self.copy) else {
                (self.request, self.copy) = (self.request + 1, 0);
                continue;
            };
            let number = match trace.requests.get(self.request) {
                Some(&number) if !is_inventory => number as usize,
                _ => self.request,
            };
            let slot = trace.slot(copy, number);
            if self.window.contains(&slot) {
                break;
            }
            self.window.push(slot);
            self.copy += 1;
        }
    }
}

impl Workload for Replay {
    fn next(&mut self, connection: usize, batch: &mut Batch<'_>) -> Step {
        let Some(cursor) = self.cursors.get_mut(connection) else {
            return Step::Finished;
        };
        if let Some(id) = cursor.missing.pop() {
            cursor.is_reading = false;
            batch.set(self, id, 0);
            return Step::Sent;
        }
        if cursor.is_reading {
            cursor.is_reading = false;
            return Step::Wait;
        }
        cursor.advance(&self.trace, self.is_inventory);
        if cursor.window.is_empty() {
            return Step::Finished;
        }
        cursor.is_reading = true;
        let window = std::mem::take(&mut cursor.window);
        batch.get(self, &window);
        if let Some(cursor) = self.cursors.get_mut(connection) {
            cursor.window = window;
        }
        Step::Sent
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(&key_text(id));
    }

    fn value(&self, id: u64) -> &[u8] {
        self.pool.value(id, 0, self.trace.bytes_of(id))
    }

    fn done(&mut self, connection: usize, id: u64, result: KeyResult) {
        match result {
            KeyResult::Hit if self.is_inventory => {
                self.hit_bytes += (KEY_BYTES + self.trace.bytes_of(id)) as u64;
            }
            KeyResult::Miss => {
                self.misses += 1;
                if let Some(cursor) = self
                    .cursors
                    .get_mut(connection)
                    .filter(|_| !self.is_inventory)
                {
                    cursor.missing.push(id);
                }
            }
            KeyResult::Refused => self.refused += 1,
            KeyResult::Hit | KeyResult::Stored | KeyResult::Wrong => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::trace::test_trace;
    use super::*;

    #[test]
    fn a_window_has_no_duplicates_and_all_copies_of_a_request() {
        let trace = test_trace(&[0, 1, 0, 2], 2);
        let mut cursor = Cursor {
            copies: vec![0, 1],
            ..Cursor::default()
        };
        cursor.advance(&trace, false);
        assert_eq!(cursor.window, [0, 3, 1, 4]);
        cursor.advance(&trace, false);
        assert_eq!(cursor.window, [0, 3, 2, 5]);
        cursor.advance(&trace, false);
        assert!(cursor.window.is_empty());
    }
}
