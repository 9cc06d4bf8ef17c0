//! A server's general counters as numbers, and their difference between two times.
//!
//! The rows are those of plain `stats`, which memcached and glasscache print alike (memcached `doc/protocol.txt`,
//! section "General-purpose statistics"). A row that a server does not print counts as 0.

use std::collections::HashMap;

use serde::Serialize;

/// The counters of a server at one time.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Version as the server reports it.
    pub version: String,
    /// Process id of the server; 0 where it is not reported.
    pub pid: u32,
    /// Seconds since the server started.
    pub uptime_s: u64,
    /// Unix time at the server, in seconds.
    pub time_unix_s: u64,
    /// Keys requested.
    pub gets: u64,
    /// Keys found.
    pub hits: u64,
    /// Keys not found because the item was past its TTL.
    pub expired: u64,
    /// Keys not found because the item was flushed.
    pub flushed: u64,
    /// Values stored.
    pub sets: u64,
    /// Touches, deletes, increments and decrements, found or not.
    pub other_commands: u64,
    /// Items evicted.
    pub evictions: u64,
    /// Of them never read.
    pub evicted_unread: u64,
    /// Values refused because they were larger than `-I` allows.
    pub values_too_large: u64,
    /// Values refused because there was no memory for them.
    pub values_without_memory: u64,
    /// Bytes received from clients.
    pub read_bytes: u64,
    /// Bytes sent to clients.
    pub written_bytes: u64,
    /// Items resident now.
    pub items: u64,
    /// Bytes of the items resident now.
    pub bytes: u64,
    /// Memory limit (`-m`) in bytes.
    pub limit_bytes: u64,
    /// Connections open now.
    pub connections: u64,
    /// Connections allowed at once (`-c`).
    pub connections_max: u64,
    /// Connections refused because of that limit.
    pub connections_refused: u64,
}

impl Counters {
    /// Reads the rows of one `stats` reply.
    pub fn of<'r>(rows: impl IntoIterator<Item = (&'r str, &'r str)>) -> Counters {
        let rows: HashMap<&str, &str> = rows.into_iter().collect();
        let parse_counter = |name: &str| -> u64 {
            rows.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
        };
        let sum_counters = |names: &[&str]| names.iter().map(|name| parse_counter(name)).sum();
        Counters {
            version: rows.get("version").map_or_else(String::new, |text| (*text).to_owned()),
            pid: u32::try_from(parse_counter("pid")).unwrap_or(0),
            uptime_s: parse_counter("uptime"),
            time_unix_s: parse_counter("time"),
            gets: parse_counter("get_hits") + parse_counter("get_misses"),
            hits: parse_counter("get_hits"),
            expired: parse_counter("get_expired"),
            flushed: parse_counter("get_flushed"),
            sets: parse_counter("cmd_set"),
            other_commands: sum_counters(&[
                "cmd_touch",
                "delete_hits",
                "delete_misses",
                "incr_hits",
                "incr_misses",
                "decr_hits",
                "decr_misses",
            ]),
            evictions: parse_counter("evictions"),
            evicted_unread: parse_counter("evicted_unfetched"),
            values_too_large: parse_counter("store_too_large"),
            values_without_memory: parse_counter("store_no_memory"),
            read_bytes: parse_counter("bytes_read"),
            written_bytes: parse_counter("bytes_written"),
            items: parse_counter("curr_items"),
            bytes: parse_counter("bytes"),
            limit_bytes: parse_counter("limit_maxbytes"),
            connections: parse_counter("curr_connections"),
            connections_max: parse_counter("max_connections"),
            connections_refused: parse_counter("rejected_connections"),
        }
    }

    /// Keys requested but not found.
    pub fn misses(&self) -> u64 {
        self.gets.saturating_sub(self.hits)
    }

    /// Hits over gets, 0 to 1; `None` before the first get.
    pub fn hit_ratio(&self) -> Option<f64> {
        (self.gets > 0).then(|| self.hits as f64 / self.gets as f64)
    }

    /// Bytes of the items over the memory limit, 0 to 1; `None` where the limit is not reported.
    pub fn fill(&self) -> Option<f64> {
        (self.limit_bytes > 0).then(|| self.bytes as f64 / self.limit_bytes as f64)
    }

    /// Keys read, values stored and all other commands that name a key.
    pub fn operations(&self) -> u64 {
        self.gets + self.sets + self.other_commands
    }

    /// What was counted since `earlier`; levels (items, bytes, connections) are the current ones.
    ///
    /// Counters that decreased, by `stats reset` or a restart, count from 0.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        let delta = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Counters {
            gets: delta(self.gets, earlier.gets),
            hits: delta(self.hits, earlier.hits),
            expired: delta(self.expired, earlier.expired),
            flushed: delta(self.flushed, earlier.flushed),
            sets: delta(self.sets, earlier.sets),
            other_commands: delta(self.other_commands, earlier.other_commands),
            evictions: delta(self.evictions, earlier.evictions),
            evicted_unread: delta(self.evicted_unread, earlier.evicted_unread),
            values_too_large: delta(self.values_too_large, earlier.values_too_large),
            values_without_memory: delta(self.values_without_memory, earlier.values_without_memory),
            read_bytes: delta(self.read_bytes, earlier.read_bytes),
            written_bytes: delta(self.written_bytes, earlier.written_bytes),
            connections_refused: delta(self.connections_refused, earlier.connections_refused),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters_of(hits: &str, misses: &str) -> Counters {
        Counters::of([("get_hits", hits), ("get_misses", misses), ("curr_items", "7")])
    }

    #[test]
    fn since_subtracts_counters_and_keeps_levels() {
        let interval = counters_of("90", "20").since(&counters_of("50", "10"));
        assert_eq!((interval.hits, interval.misses(), interval.items), (40, 10, 7));
        assert_eq!(interval.hit_ratio(), Some(0.8));
    }

    #[test]
    fn counters_that_were_reset_count_from_zero() {
        let interval = counters_of("3", "1").since(&counters_of("50", "10"));
        assert_eq!((interval.hits, interval.gets), (3, 4));
    }

    #[test]
    fn no_gets_have_no_ratio() {
        assert_eq!(Counters::default().hit_ratio(), None);
    }
}
