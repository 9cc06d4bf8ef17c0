//! `stats glasscache`: the statistics that only this server has.

use std::sync::atomic::Ordering;

use glasscache_store::EvictedOfClass;

use super::process;
use super::table::{Row, Snapshot, StatsContext, Value};
use crate::session::rows::Rows;
use crate::shared::counters::{Counter, Counters};

/// Appends all rows and END.
pub(super) fn write_glasscache_rows(context: StatsContext<'_>, out: &mut Vec<u8>) {
    let mut rows = Rows::new(out);
    Snapshot::new(context).write_table(GLASSCACHE_ROWS, &mut rows);
    for (bound_us, count) in context.shared.iteration_times() {
        rows.write_row(format_args!("{ITERATIONS_BELOW_PREFIX}{bound_us}"), count);
    }
    rows.end();
}

/// Below the bound in microseconds: iterations of the event loop that took less, and at least the previous bound.
pub(crate) const ITERATIONS_BELOW_PREFIX: &str = "iteration_us_below_";

/// The largest value of a counter among the workers.
fn largest_of_workers(snapshot: &Snapshot<'_>, counter: fn(&Counters) -> &Counter) -> u64 {
    let counters_and_wakers = snapshot.context.shared.counters_and_wakers.iter();
    let values = counters_and_wakers.map(|(counters, _)| counter(counters).get());
    values.max().unwrap_or(0)
}

/// What was evicted of the slab class whose last eviction is the latest.
fn latest_eviction(snapshot: &Snapshot<'_>) -> EvictedOfClass {
    let classes = snapshot.store_counters.evicted_by_slab_class.iter().copied();
    classes.max_by_key(|class| (class.last_at, class.last_idle_s)).unwrap_or_default()
}

/// The rows, in order.
#[rustfmt::skip]
pub(crate) static GLASSCACHE_ROWS: &[Row] = &[
    Row::new("version", "", "version of this server", |_| env!("CARGO_PKG_VERSION").into()),
    Row::new("commit", "", "commit that the program was built from", |s| s.context.shared.config.commit.unwrap_or("unknown").into()),
    Row::new("started_unix", "s", "Unix time of the start", |s| s.context.shared.clock.unix_time(s.context.shared.clock.start_second()).to_string().into()),
    Row::new("resident_bytes", "bytes", "resident memory of the process", |_| process::resident_bytes().into()),
    Row::new("user_bytes", "bytes", "keys and values of the items", |s| s.store_counters.user_bytes.into()),
    Row::new("item_bytes", "bytes", "items in segments, headers included", |s| s.store_counters.item_bytes.into()),
    Row::new("bytes_in_memcached", "bytes", "memory that the items would take in memcached", |s| s.store_counters.by_slab_class.iter().map(|(_, bytes)| bytes).sum::<u64>().into()),
    Row::new("eviction_age_s", "s", "how long nobody had used the last evicted item; 0 before the first eviction", |s| latest_eviction(s).last_idle_s.into()),
    Row::new("segment_bytes", "bytes", "segments of items", |s| s.store_counters.segment_bytes.into()),
    Row::new("index_bytes", "bytes", "segments of the index", |s| s.store_counters.index_bytes.into()),
    Row::new("buffer_bytes", "bytes", "charged for buffers of connections", |s| s.store_counters.buffer_bytes.into()),
    Row::new("ready_bytes", "bytes", "memory backed ahead of need and not yet used", |s| s.store_counters.ready_bytes.into()),
    Row::new("items", "", "items; expired ones count until they are found", |s| s.store_counters.items.into()),
    Row::counter("items_total", "", "items ever stored", |s| s.store_counters.items_total.into()),
    Row::counter("evictions", "", "items removed for room", |s| s.store_counters.evictions.into()),
    Row::counter("evicted_unfetched", "", "evicted items that were never read", |s| s.store_counters.evicted_unfetched.into()),
    Row::counter("expired_unfetched", "", "expired items that were never read", |s| s.store_counters.expired_unfetched.into()),
    Row::counter("reclaimed", "", "expired items whose memory was reclaimed", |s| s.store_counters.reclaimed.into()),
    Row::counter("prefix_flushes", "", "`flush_prefix` and `mf` commands", |s| s.totals.flush_prefix_cmds.into()),
    Row::new("flushed_prefixes", "", "prefixes that are remembered because they were flushed, at most 65,536; in less than 48 MB fewer", |s| (s.context.shared.store.flushed_prefixes() as u64).into()),
    Row::counter("loop_iterations", "", "iterations of the event loops", |s| s.totals.iterations.into()),
    Row::counter("recv_calls", "", "receive calls", |s| s.totals.recv_calls.into()),
    Row::counter("send_calls", "", "send calls", |s| s.totals.send_calls.into()),
    Row::counter("full_batches", "", "times that a full batch of lookups was prefetched", |s| s.totals.batches.into()),
    Row::new("peer_bytes", "bytes", "memory outside the store that connections hold", |s| s.context.shared.peer_memory.held_bytes().into()),
    Row::new("peer_bytes_limit", "bytes", "limit of `peer_bytes`", |s| s.context.shared.peer_memory.limit_bytes().into()),
    Row::counter("peer_bytes_faults", "", "times that `peer_bytes` exceeded its limit by more than a tenth, which is a fault of the server", |s| s.context.shared.peer_memory.faults().into()),
    Row::new("tls_bytes", "bytes", "the part of `peer_bytes` that TLS keeps for handshakes and open connections", |s| s.context.shared.peer_memory.tls.held_bytes().into()),
    Row::counter("tls_connections_refused", "", "connections closed after their handshake because others took all the memory for TLS", |s| s.context.shared.peer_memory.tls.refused.load(Ordering::Relaxed).into()),
    Row::counter("tls_connections_displaced", "", "connections with TLS that had sent no request and were closed for newer ones", |s| s.context.shared.peer_memory.tls.displaced.load(Ordering::Relaxed).into()),
    Row::counter("peer_waits", "", "times that a connection waited for this memory", |s| s.totals.memory_waits.into()),
    Row::new("peers_waiting", "", "connections that wait for it now", |s| (s.context.shared.peer_memory.waiting_connections() as u64).into()),
    Row::new("prefix_table_bytes", "bytes", "memory of the table of `stats detail`", |s| s.context.shared.prefix_table.memory_bytes().into()),
    Row::counter("prefix_table_left_out", "", "commands not counted because that table was full", |s| s.context.shared.prefix_table.uncounted_commands().into()),
    Row::counter("stalled_connections_closed", "", "connections closed because they held memory that others needed", |s| s.totals.stalled_closed.into()),
    Row::counter("idle_connections_closed", "", "connections closed by `-o idle_timeout`", |s| s.totals.idle_kicks.into()),
    Row::counter("binary_connections_closed", "", "connections closed because they used the binary protocol where it is off", |s| s.totals.binary_refused.into()),
    Row::new("unauthenticated_connections", "", "open connections that have not logged in, where `-Y` or `-S` requires it", |s| (s.context.shared.connections.unauthenticated() as u64).into()),
    Row::counter("login_timeouts", "", "connections closed because they did not log in within a second", |s| s.totals.login_timeouts.into()),
    Row::counter("logins_displaced", "", "connections closed before their login because newer ones needed their place", |s| s.context.shared.connections.displaced.load(Ordering::Relaxed).into()),
    Row::counter("upload_tries", "", "times that an upload that waits for memory tried again", |s| s.totals.upload_tries.into()),
    Row::counter("invariants_broken", "", "broken invariants, each of which closed a connection", |s| s.totals.invariant_broken.into()),
    Row::counter("connections_total", "", "connections accepted since the start", |s| s.context.shared.connections.total.load(Ordering::Relaxed).into()),
    Row::counter("slow_commands", "", "commands that took longer than `-o slow_ms`, as far as that was seen (`stats slow`)", |s| s.context.shared.slow_commands.total().into()),
    Row::new("iteration_us_max", "us", "longest iteration of an event loop", |s| largest_of_workers(s, |counters| &counters.iteration_us_max).into()),
    Row::new("iteration_examined_max", "", "most items, connections and prefixes examined in one iteration", |s| largest_of_workers(s, |counters| &counters.iteration_examined_max).into()),
    Row::new("iteration_cpu_us_max", "us", "CPU time of the longest iteration; only with `MEMCACHED_DEBUG=1`", |s| Value::only_if(s.context.shared.config.debug, largest_of_workers(s, |counters| &counters.iteration_cpu_us_max))),
];
