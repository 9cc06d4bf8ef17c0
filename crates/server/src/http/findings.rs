//! What the rules of `glasscache doctor` find in this server, from its own figures.

use std::collections::VecDeque;
use std::fs;
use std::time::{Duration, Instant};

use glasscache_findings::counters::Counters;
use glasscache_findings::curve::{Curve, CurvePoint};
use glasscache_findings::{Figures, HotKey, Machine};
use glasscache_protocol::percent;
use glasscache_store::{HotKeyOrder, HotKeyWindow, LiveReport};

pub(super) use glasscache_findings::Finding;

use crate::session::stats::StatRows;

/// Time between two copies of the counters, and the number of copies: a minute.
const COPY_INTERVAL: Duration = Duration::from_secs(5);
const COPIES_MAX: usize = 13;

/// The counters of the last minute.
#[derive(Default)]
pub(super) struct RecentCounters(VecDeque<(Instant, Counters)>);

impl RecentCounters {
    /// Whether it is time for another copy.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.0.back().is_none_or(|(copied_at, _)| now.duration_since(*copied_at) >= COPY_INTERVAL)
    }

    /// Copies the rows of plain `stats`.
    pub(super) fn copy(&mut self, general: &StatRows, now: Instant) {
        if self.0.len() == COPIES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, read_counters(general)));
    }

    /// What the rules find.
    pub(super) fn find(
        &self,
        general: &StatRows,
        own: &StatRows,
        live: &LiveReport,
        shows_keys: bool,
        now: Instant,
    ) -> Vec<Finding> {
        let counters = read_counters(general);
        let oldest = self.0.front();
        let seconds =
            oldest.map_or(0.0, |(copied_at, _)| now.duration_since(*copied_at).as_secs_f64());
        let recent = oldest.filter(|_| seconds >= 1.0).map(|(_, earlier)| counters.since(earlier));
        let has_evicted = counters.evictions > 0;
        let eviction_age_s = own.get("eviction_age_s").and_then(|age| age.parse().ok());
        glasscache_findings::find(&Figures {
            now: counters,
            recent,
            seconds,
            eviction_age_s: eviction_age_s.filter(|_| has_evicted),
            hot_keys: read_hot_keys(live, shows_keys),
            curve: read_curve(live),
            machine: read_machine(),
            ..Figures::default()
        })
    }
}

fn read_counters(general: &StatRows) -> Counters {
    Counters::of(general.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

fn read_hot_keys(live: &LiveReport, shows_keys: bool) -> Vec<HotKey> {
    let keys = live.hot_keys(HotKeyWindow::Minute, HotKeyOrder::Requests).iter();
    let to_hot_key = |key: &glasscache_store::HotKey| HotKey {
        key: if shows_keys {
            percent::to_printable(&key.key)
        } else {
            "(not listed: -X)".to_owned()
        },
        requests: key.requests,
        share: key.share,
    };
    keys.map(to_hot_key).collect()
}

fn read_curve(live: &LiveReport) -> Option<Curve> {
    let to_point = |row: &glasscache_store::CurvePoint| CurvePoint {
        memory_bytes: row.memory_bytes,
        miss_ratio: row.miss_ratio,
        low: row.low,
        high: row.high,
    };
    let points: Vec<CurvePoint> = live.curve.rows.iter().map(to_point).collect();
    (!points.is_empty()).then_some(Curve { points })
}

fn read_machine() -> Option<Machine> {
    fs::read_to_string("/proc/self/status").ok().map(|status| Machine::of_status(&status))
}
