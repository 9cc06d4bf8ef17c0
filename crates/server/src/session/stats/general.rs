//! The 93 rows of plain `stats`; 84 without crawler and maintainer, three or four more with TLS, as in memcached.

use std::sync::atomic::Ordering;

use super::table::{Row, Snapshot, StatsContext, Value};
use crate::session::rows::Rows;
use crate::shared::sizes::INPUT_BYTES;
use crate::shared::tls::Tls;

/// Appends all rows and END.
pub(super) fn write_general_rows(context: StatsContext<'_>, out: &mut Vec<u8>) {
    let mut rows = Rows::new(out);
    Snapshot::new(context).write_table(GENERAL_ROWS, &mut rows);
    rows.end();
}

/// Whether connections beyond `-c` are refused or have not been reached.
fn accepts_connections(snapshot: &Snapshot<'_>) -> bool {
    let shared = snapshot.context.shared;
    let current = shared.connections.current.load(Ordering::Relaxed);
    shared.config.maxconns_fast || current < i64::from(shared.config.connections_max)
}

fn current_connections(snapshot: &Snapshot<'_>) -> Value {
    let current = &snapshot.context.shared.connections.current;
    Value::from(current.load(Ordering::Relaxed).max(0) as u64)
}

/// The rows, in memcached's order.
#[rustfmt::skip]
pub(crate) static GENERAL_ROWS: &[Row] = &[
    Row::new("pid", "", "process id", |_| std::process::id().into()),
    Row::new("uptime", "s", "time since the start", |s| s.context.shared.clock.uptime_s(s.context.now).into()),
    Row::new("time", "s", "Unix time", |s| s.context.shared.clock.unix_time(s.context.now).to_string().into()),
    Row::new("version", "", "memcached's version whose commands are supported, then our own", |s| s.context.shared.version.text.clone().into()),
    // Not linked: exporters that print it need a value that looks like a version.
    Row::new("libevent", "", "always \"none\"; libevent is not used", |_| "none".into()),
    Row::new("pointer_size", "bits", "size of a pointer", |_| usize::BITS.into()),
    Row::new("rusage_user", "s", "CPU time in user mode", |s| s.user_cpu_s.clone().into()),
    Row::new("rusage_system", "s", "CPU time in kernel mode", |s| s.system_cpu_s.clone().into()),
    Row::new("max_connections", "", "limit of open connections (`-c`)", |s| s.context.shared.config.connections_max.into()),
    Row::new("curr_connections", "", "open connections", current_connections),
    Row::new("total_connections", "", "connections accepted since the start", |s| s.context.shared.connections.total.load(Ordering::Relaxed).into()),
    Row::new("rejected_connections", "", "connections refused because of `-c`", |s| s.context.shared.connections.rejected.load(Ordering::Relaxed).into()),
    Row::new("connection_structures", "", "the same as `curr_connections`", current_connections),
    Row::zero("response_obj_oom"),
    Row::zero("response_obj_count"),
    Row::zero("response_obj_bytes"),
    Row::new("read_buf_count", "", "input buffers, one for each worker", |s| s.context.shared.config.workers.into()),
    Row::new("read_buf_bytes", "bytes", "memory of the input buffers", |s| (INPUT_BYTES * s.context.shared.config.workers).into()),
    Row::new("read_buf_bytes_free", "bytes", "memory charged for buffers of connections", |s| s.store_counters.buffer_bytes.into()),
    Row::zero("read_buf_oom"),
    Row::new("reserved_fds", "", "file descriptors that the server itself uses", |s| (5 * s.context.shared.config.workers).into()),
    Row::new("cmd_get", "", "keys requested by get, gets and mg", |s| s.totals.get_cmds.into()),
    Row::new("cmd_set", "", "storage commands", |s| s.totals.set_cmds.into()),
    Row::new("cmd_flush", "", "`flush_all` commands", |s| s.totals.flush_cmds.into()),
    Row::new("cmd_touch", "", "touch, gat and gats commands", |s| s.totals.touch_cmds.into()),
    Row::new("cmd_meta", "", "me commands", |s| s.totals.meta_cmds.into()),
    Row::new("get_hits", "", "requested keys that were found", |s| s.totals.get_hits.into()),
    Row::new("get_misses", "", "requested keys that were not found", |s| s.totals.get_cmds.saturating_sub(s.totals.get_hits).into()),
    Row::new("get_expired", "", "misses because the item had expired", |s| s.store_counters.misses_expired.into()),
    Row::new("get_flushed", "", "misses because the item had been flushed", |s| s.store_counters.misses_flushed.into()),
    Row::new("delete_misses", "", "deletions of a missing item", |s| s.totals.delete_misses.into()),
    Row::new("delete_hits", "", "deletions of an item", |s| s.totals.delete_hits.into()),
    Row::new("incr_misses", "", "increments of a missing item", |s| s.totals.incr_misses.into()),
    Row::new("incr_hits", "", "increments of an item", |s| s.totals.incr_hits.into()),
    Row::new("decr_misses", "", "decrements of a missing item", |s| s.totals.decr_misses.into()),
    Row::new("decr_hits", "", "decrements of an item", |s| s.totals.decr_hits.into()),
    Row::new("cas_misses", "", "cas on a missing item", |s| s.totals.cas_misses.into()),
    Row::new("cas_hits", "", "cas that stored", |s| s.totals.cas_hits.into()),
    Row::new("cas_badval", "", "cas whose unique had changed", |s| s.totals.cas_badval.into()),
    Row::new("touch_hits", "", "touches of an item", |s| s.totals.touch_hits.into()),
    Row::new("touch_misses", "", "touches of a missing item", |s| s.totals.touch_cmds.saturating_sub(s.totals.touch_hits).into()),
    Row::new("store_too_large", "", "values refused because of `-I`", |s| s.totals.store_too_large.into()),
    Row::new("store_no_memory", "", "values refused because there was no memory", |s| s.totals.store_no_memory.into()),
    Row::new("auth_cmds", "", "attempts to log in", |s| s.totals.auth_cmds.into()),
    Row::new("auth_errors", "", "attempts to log in that failed", |s| s.totals.auth_errors.into()),
    Row::new("idle_kicks", "", "connections closed by `-o idle_timeout`; only with that option", |s| Value::only_if(s.context.shared.config.idle_timeout_s > 0, s.totals.idle_kicks)),
    Row::new("bytes_read", "bytes", "received from clients", |s| s.totals.bytes_read.into()),
    Row::new("bytes_written", "bytes", "sent to clients", |s| s.totals.bytes_written.into()),
    Row::new("limit_maxbytes", "bytes", "memory limit (`-m`, `cache_memlimit`)", |s| s.context.shared.tuning.get().memory_bytes.into()),
    Row::new("accepting_conns", "", "1 while new connections are accepted", |s| u32::from(accepts_connections(s)).into()),
    Row::new("listen_disabled_num", "", "times that accepting paused because of `-c`", |s| s.context.shared.connections.listen_disabled.load(Ordering::Relaxed).into()),
    Row::new("time_in_listen_disabled_us", "us", "total time of these pauses", |s| s.context.shared.connections.listen_disabled_us.load(Ordering::Relaxed).into()),
    Row::new("threads", "", "worker threads (`-t`)", |s| s.context.shared.config.workers.into()),
    Row::new("conn_yields", "", "times that a connection yielded to others (`-R`, large transfers)", |s| s.totals.conn_yields.into()),
    Row::new("hash_power_level", "", "logarithm to base 2 of an eighth of `hash_bytes`", |s| (s.store_counters.index_bytes.max(8).ilog2() - 3).into()),
    Row::new("hash_bytes", "bytes", "memory of the index", |s| s.store_counters.index_bytes.into()),
    Row::zero("hash_is_expanding"),
    Row::zero("slab_reassign_rescues"),
    Row::zero("slab_reassign_chunk_rescues"),
    Row::zero("slab_reassign_inline_reclaim"),
    Row::zero("slab_reassign_busy_items"),
    Row::zero("slab_reassign_busy_deletes"),
    Row::zero("slab_reassign_busy_nomem"),
    Row::new("slab_reassign_last_busy_status", "", "always \"none\"; only memcached has this", |_| "none".into()),
    Row::zero("slab_reassign_running"),
    Row::zero("slabs_moved"),
    Row::new("lru_crawler_running", "", CRAWLER_MEANING, |s| Value::only_if(s.context.shared.config.lru_crawler, 0)),
    Row::new("lru_crawler_starts", "", CRAWLER_MEANING, |s| Value::only_if(s.context.shared.config.lru_crawler, 0)),
    Row::new("lru_maintainer_juggles", "", MAINTAINER_MEANING, zero_if_maintainer_enabled),
    Row::zero("malloc_fails"),
    Row::zero("log_worker_dropped"),
    Row::zero("log_worker_written"),
    Row::zero("log_watcher_skipped"),
    Row::zero("log_watcher_sent"),
    Row::new("log_watchers", "", "connections with `watch`", |s| s.context.shared.watchers.count().into()),
    Row::zero("unexpected_napi_ids"),
    Row::zero("round_robin_fallback"),
    Row::new("ssl_new_sessions", "", "TLS sessions that can be resumed; only with `-o ssl_session_cache`", |s| tls_value(s, |tls| tls.settings.session_tickets.then(|| tls.counters.new_sessions.load(Ordering::Relaxed)))),
    Row::new("ssl_handshake_errors", "", "TLS handshakes that failed; only with `-Z`", |s| tls_value(s, |tls| Some(tls.counters.handshake_errors.load(Ordering::Relaxed)))),
    Row::new("ssl_proto_errors", "", "connections closed because a TLS record could not be decrypted; only with `-Z`", |s| tls_value(s, |tls| Some(tls.counters.protocol_errors.load(Ordering::Relaxed)))),
    Row::new("ssl_cert_not_after", "s", "Unix time at which the certificate expires; only with `-Z`", |s| tls_value(s, |tls| Some(tls.certificate_end_s()))),
    Row::new("time_since_server_cert_refresh", "s", "time since the certificate was last read; only with `-Z`", |s| tls_value(s, |tls| Some(tls.seconds_since_reload(&s.context.shared.clock, s.context.now).into()))),
    Row::new("bytes", "bytes", "memory in use: items, their index and buffers; never more than `limit_maxbytes`", |s| s.context.shared.used_bytes(&s.store_counters).into()),
    Row::new("curr_items", "", "items; expired ones count until they are found", |s| s.store_counters.items.into()),
    Row::new("total_items", "", "items stored since the start or `stats reset`", |s| s.store_counters.items_total.into()),
    Row::zero("slab_global_page_pool"),
    Row::new("expired_unfetched", "", "expired items that were never read", |s| s.store_counters.expired_unfetched.into()),
    Row::new("evicted_unfetched", "", "evicted items that were never read", |s| s.store_counters.evicted_unfetched.into()),
    Row::new("evicted_active", "", MAINTAINER_MEANING, zero_if_maintainer_enabled),
    Row::new("evictions", "", "items removed for room", |s| s.store_counters.evictions.into()),
    Row::new("reclaimed", "", "expired items whose memory was reclaimed", |s| s.store_counters.reclaimed.into()),
    Row::zero("crawler_reclaimed"),
    Row::zero("crawler_items_checked"),
    Row::zero("lrutail_reflocked"),
    Row::new("moves_to_cold", "", MAINTAINER_MEANING, zero_if_maintainer_enabled),
    Row::new("moves_to_warm", "", MAINTAINER_MEANING, zero_if_maintainer_enabled),
    Row::new("moves_within_lru", "", MAINTAINER_MEANING, zero_if_maintainer_enabled),
    Row::new("direct_reclaims", "", MAINTAINER_MEANING, zero_if_maintainer_enabled),
    Row::new("lru_bumps_dropped", "", MAINTAINER_MEANING, zero_if_maintainer_enabled),
];

const CRAWLER_MEANING: &str = "always 0; absent with `-o no_lru_crawler`";
const MAINTAINER_MEANING: &str = "always 0; absent with `-o no_lru_maintainer`";

/// A row that only a server with TLS has.
fn tls_value(snapshot: &Snapshot<'_>, read_value: impl FnOnce(&Tls) -> Option<u64>) -> Value {
    let tls = snapshot.context.shared.tls.as_ref();
    tls.and_then(read_value).map_or(Value::Absent, Value::from)
}

/// A row of memcached's LRU maintainer.
fn zero_if_maintainer_enabled(snapshot: &Snapshot<'_>) -> Value {
    Value::only_if(snapshot.context.shared.config.lru_maintainer, 0)
}
