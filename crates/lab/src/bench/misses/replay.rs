//! A replay of a trace against one server, and against both.
//!
//! All copies are driven by one thread, so that none runs ahead of the others. A connection reads its next
//! keys, none twice, by one multi-get, then stores what was missing and reads on: per key that is exactly
//! get, then set, then get.

use std::sync::Arc;

use glasscache_sim::curve::ServerMemory;
use serde::Serialize;

use super::super::{Error, ServerPair};
use super::VALUE_BYTES_MAX;
use super::lru::count_lru_misses;
use super::trace::Trace;
use crate::load::{
    self, Batch, KEY_BYTES, KeyResult, LoadPlan, NextStep, ValueSource, Workload, format_key,
};
use crate::server_process::ServerCommand;

/// Keys of a multi-get.
const MULTI_GET_KEYS: usize = 100;

/// Connections of a replay, each with its share of the copies.
const CONNECTIONS: u32 = 8;

/// The results of a replay against one server.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ReplayResult {
    /// Gets without a value.
    pub misses: u64,
    /// Misses of keys that had been stored.
    #[serde(rename = "avoidable")]
    pub avoidable_misses: u64,
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
pub(super) struct ReplayComparison {
    /// The name of the trace.
    #[serde(rename = "trace")]
    pub trace_name: String,
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
    pub ours: ReplayResult,
    /// memcached.
    pub theirs: Option<ReplayResult>,
    /// Miss ratios that `curve --server` forecasts, if they were requested.
    pub forecast: Option<Forecast>,
    /// Avoidable misses of an exact LRU that holds as many user bytes as glasscache did.
    #[serde(rename = "lru_avoidable")]
    pub lru_avoidable_misses: u64,
}

/// Miss ratios of both servers as forecast from the trace alone.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Forecast {
    /// Of glasscache.
    pub ours: f64,
    /// Of memcached.
    pub theirs: f64,
}

/// Calls `use_forecasts` with the forecasts of a trace, which are prepared once for all sizes.
pub(super) fn with_forecasts<R>(
    trace: &Trace,
    use_forecasts: impl FnOnce(&ServerMemory<'_>) -> R,
) -> R {
    let prepared = trace.to_prepared_trace();
    use_forecasts(&ServerMemory::new(&prepared, KEY_BYTES as u32))
}

impl ReplayComparison {
    /// How far the forecasts are from the measured miss ratios: of ours, and of memcached.
    pub(super) fn forecast_errors(&self) -> Option<(f64, Option<f64>)> {
        let forecast = self.forecast?;
        let miss_ratio_of =
            |replayed: &ReplayResult| replayed.misses as f64 / self.requests.max(1) as f64;
        let theirs_error = |replayed| (forecast.theirs - miss_ratio_of(replayed)).abs();
        Some((
            (forecast.ours - miss_ratio_of(&self.ours)).abs(),
            self.theirs.as_ref().map(theirs_error),
        ))
    }

    /// Avoidable misses, ours over memcached's; at least one miss is assumed on each side.
    pub(super) fn ratio(&self) -> Option<f64> {
        let theirs = self.theirs.as_ref()?.avoidable_misses.max(1) as f64;
        Some(self.ours.avoidable_misses.max(1) as f64 / theirs)
    }
}

/// Replays `trace` at one fraction of its footprint; `without_theirs` leaves memcached out.
pub(super) fn measure_point(
    servers: &ServerPair,
    trace: &Arc<Trace>,
    fraction: f64,
    without_theirs: bool,
    forecasts: Option<&ServerMemory<'_>>,
) -> Result<ReplayComparison, Error> {
    let footprint = trace.footprint_bytes() as f64;
    let memory_mib = ((footprint * fraction / f64::from(1 << 20)).round() as u64).max(64);
    let ours = replay(servers, &servers.ours(memory_mib), trace)?;
    let theirs = if without_theirs {
        None
    } else {
        Some(replay(servers, &servers.theirs(memory_mib), trace)?)
    };
    let lru_avoidable_misses = count_lru_misses(trace, ours.user_bytes) - trace.first_uses();
    Ok(ReplayComparison {
        trace_name: trace.name.clone(),
        requests: trace.requests_of_all_copies(),
        copies: trace.copies,
        first_uses: trace.first_uses(),
        fraction,
        memory_mib,
        ours,
        theirs,
        forecast: forecasts.map(|server_memory| Forecast {
            ours: server_memory.glasscache_miss_ratio(memory_mib << 20, 1),
            theirs: server_memory.memcached_miss_ratio(memory_mib << 20),
        }),
        lru_avoidable_misses,
    })
}

fn replay(
    servers: &ServerPair,
    server_command: &ServerCommand,
    trace: &Arc<Trace>,
) -> Result<ReplayResult, Error> {
    let server = server_command.start().map_err(Error::Start)?;
    let connections = CONNECTIONS.min(trace.copies);
    let plan = LoadPlan {
        connections: connections as usize,
        depth: MULTI_GET_KEYS + 1,
        cpus: servers.pinned_cpus(&servers.layout.reader_layout().generator),
        stop: servers.stop.clone(),
        ..LoadPlan::new(server.address)
    };
    let workload = Replay::new(Arc::clone(trace), connections);
    let run = |workload| {
        load::run(&plan, vec![workload], &server.meter()).map_err(Error::load(server.name))
    };
    let (report, mut workloads) = run(workload)?;
    if report.tally.wrong > 0 {
        let difference = report.tally.first_difference.unwrap_or_default();
        return Err(Error::WrongReplies {
            server: server.name.to_owned(),
            count: report.tally.wrong,
            description: difference,
        });
    }
    let resident_bytes = server.read_resident_bytes();
    let misses = workloads.iter().map(|workload| workload.misses).sum::<u64>();
    let refused = workloads.iter().map(|workload| workload.refused).sum();
    let requests_per_s = trace.requests_of_all_copies() as f64 / report.seconds;
    // The same workload then reads every key once, without storing, to find the remaining items.
    let (_, workloads) = run(workloads.remove(0).into_final_read())?;
    Ok(ReplayResult {
        misses,
        avoidable_misses: misses.saturating_sub(trace.first_uses()),
        refused,
        resident_bytes,
        user_bytes: workloads.iter().map(|workload| workload.hit_bytes).sum(),
        requests_per_s,
    })
}

/// The look-aside application.
struct Replay {
    trace: Arc<Trace>,
    value_source: ValueSource,
    cursors: Vec<Cursor>,
    /// Walks through each distinct key once instead of the requests, and stores nothing.
    is_final_read: bool,
    misses: u64,
    refused: u64,
    hit_bytes: u64,
}

/// The position of a connection in the replay.
#[derive(Default)]
struct Cursor {
    /// The copies of the key space that this connection requests.
    copy_numbers: Vec<u32>,
    /// Index of the request, and of the copy within it.
    request_index: usize,
    copy_index: usize,
    requested_key_ids: Vec<u64>,
    /// Missed keys not stored yet.
    missed_key_ids: Vec<u64>,
    /// The last request was a multi-get, whose replies come before the next request.
    must_await_replies: bool,
}

impl Replay {
    fn new(trace: Arc<Trace>, connections: u32) -> Self {
        let mut cursors: Vec<Cursor> = (0..connections).map(|_| Cursor::default()).collect();
        for (copy_number, connection) in (0..trace.copies).zip((0..connections as usize).cycle()) {
            if let Some(cursor) = cursors.get_mut(connection) {
                cursor.copy_numbers.push(copy_number);
            }
        }
        let value_source = ValueSource::new(VALUE_BYTES_MAX as usize, 1);
        Self {
            trace,
            value_source,
            cursors,
            is_final_read: false,
            misses: 0,
            refused: 0,
            hit_bytes: 0,
        }
    }

    fn into_final_read(self) -> Self {
        let connections = self.cursors.len() as u32;
        Self { is_final_read: true, ..Self::new(self.trace, connections) }
    }
}

impl Cursor {
    /// Chooses the keys of the next multi-get: those of the next requests, up to the first duplicate key.
    fn advance(&mut self, trace: &Trace, is_final_read: bool) {
        self.requested_key_ids.clear();
        let end = if is_final_read {
            trace.distinct_sized_keys
        } else {
            trace.requested_sized_keys.len()
        };
        while self.requested_key_ids.len() < MULTI_GET_KEYS && self.request_index < end {
            let Some(&copy_number) = self.copy_numbers.get(self.copy_index) else {
                (self.request_index, self.copy_index) = (self.request_index + 1, 0);
                continue;
            };
            let sized_key_index = match trace.requested_sized_keys.get(self.request_index) {
                Some(&sized_key_index) if !is_final_read => sized_key_index as usize,
                _ => self.request_index,
            };
            let key_id = trace.key_id(copy_number, sized_key_index);
            if self.requested_key_ids.contains(&key_id) {
                break;
            }
            self.requested_key_ids.push(key_id);
            self.copy_index += 1;
        }
    }
}

impl Workload for Replay {
    fn next(&mut self, connection: usize, batch: &mut Batch<'_>) -> NextStep {
        let Some(cursor) = self.cursors.get_mut(connection) else {
            return NextStep::Finished;
        };
        if let Some(id) = cursor.missed_key_ids.pop() {
            cursor.must_await_replies = false;
            batch.set(self, id, 0);
            return NextStep::Sent;
        }
        if cursor.must_await_replies {
            cursor.must_await_replies = false;
            return NextStep::Wait;
        }
        cursor.advance(&self.trace, self.is_final_read);
        if cursor.requested_key_ids.is_empty() {
            return NextStep::Finished;
        }
        cursor.must_await_replies = true;
        let requested_key_ids = std::mem::take(&mut cursor.requested_key_ids);
        batch.get(self, &requested_key_ids);
        if let Some(cursor) = self.cursors.get_mut(connection) {
            cursor.requested_key_ids = requested_key_ids;
        }
        NextStep::Sent
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(&format_key(id));
    }

    fn value(&self, id: u64) -> &[u8] {
        self.value_source.value(id, 0, self.trace.bytes_of(id))
    }

    fn on_result(&mut self, connection: usize, id: u64, result: KeyResult) {
        match result {
            KeyResult::Hit if self.is_final_read => {
                self.hit_bytes += (KEY_BYTES + self.trace.bytes_of(id)) as u64;
            }
            KeyResult::Miss => {
                self.misses += 1;
                if let Some(cursor) =
                    self.cursors.get_mut(connection).filter(|_| !self.is_final_read)
                {
                    cursor.missed_key_ids.push(id);
                }
            }
            KeyResult::Refused => self.refused += 1,
            KeyResult::Hit | KeyResult::Stored | KeyResult::Wrong => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::test_trace;
    use super::*;

    #[test]
    fn a_forecast_counts_every_copy_as_keys_of_its_own() {
        let trace = test_trace(&[0, 1, 0, 2], 3);
        let prepared = trace.to_prepared_trace();
        assert_eq!((prepared.requests(), prepared.distinct()), (12, 9));
        // Everything fits: only first uses miss.
        let ratios = with_forecasts(&trace, |server_memory| {
            let limit_bytes = 64 << 20;
            [
                server_memory.glasscache_miss_ratio(limit_bytes, 1),
                server_memory.memcached_miss_ratio(limit_bytes),
            ]
        });
        assert_eq!(ratios.map(Some), [Some(9.0 / 12.0); 2]);
    }

    #[test]
    fn a_multi_get_has_no_duplicates_and_all_copies_of_a_request() {
        let trace = test_trace(&[0, 1, 0, 2], 2);
        let mut cursor = Cursor { copy_numbers: vec![0, 1], ..Cursor::default() };
        cursor.advance(&trace, false);
        assert_eq!(cursor.requested_key_ids, [0, 3, 1, 4]);
        cursor.advance(&trace, false);
        assert_eq!(cursor.requested_key_ids, [0, 3, 2, 5]);
        cursor.advance(&trace, false);
        assert!(cursor.requested_key_ids.is_empty());
    }
}
