//! The 93 rows of plain `stats`; 84 without crawler and maintainer, as in memcached.

use std::sync::atomic::Ordering;

use super::process;
use crate::session::context::Context;
use crate::session::rows::Rows;
use crate::shared::sizes::INPUT_BYTES;
use crate::shared::version::VERSION;

/// Appends all rows and END.
pub(super) fn write(context: &Context<'_>, out: &mut Vec<u8>) {
    let mut rows = Rows::new(out);
    server(context, &mut rows);
    commands(context, &mut rows);
    limits(context, &mut rows);
    slabs(context, &mut rows);
    items(context, &mut rows);
    rows.end();
}

fn server(context: &Context<'_>, rows: &mut Rows<'_>) {
    let shared = context.shared;
    let (user, system) = process::cpu_time();
    let buffers = context.store.store().counters().buffer_bytes;
    rows.row("pid", std::process::id());
    rows.row("uptime", context.now.0.saturating_sub(2));
    rows.row("time", shared.clock.unix(context.now));
    rows.row("version", VERSION);
    // Not linked: exporters that print it need a value that looks like a version.
    rows.row("libevent", "none");
    rows.row("pointer_size", usize::BITS);
    rows.row("rusage_user", user);
    rows.row("rusage_system", system);
    rows.row("max_connections", shared.config.connections_max);
    rows.row(
        "curr_connections",
        shared.connections.current.load(Ordering::Relaxed),
    );
    rows.row(
        "total_connections",
        shared.connections.total.load(Ordering::Relaxed),
    );
    rows.row(
        "rejected_connections",
        shared.connections.rejected.load(Ordering::Relaxed),
    );
    rows.row(
        "connection_structures",
        shared.connections.current.load(Ordering::Relaxed),
    );
    rows.zeros(&[
        "response_obj_oom",
        "response_obj_count",
        "response_obj_bytes",
    ]);
    rows.row("read_buf_count", shared.config.workers);
    rows.row("read_buf_bytes", INPUT_BYTES * shared.config.workers);
    rows.row("read_buf_bytes_free", buffers);
    rows.row("read_buf_oom", 0);
    rows.row("reserved_fds", 5 * shared.config.workers);
}

fn commands(context: &Context<'_>, rows: &mut Rows<'_>) {
    let totals = context.shared.totals();
    let lost = context.shared.lost();
    let list = [
        ("cmd_get", totals.get_cmds),
        ("cmd_set", totals.set_cmds),
        ("cmd_flush", totals.flush_cmds),
        ("cmd_touch", totals.touch_cmds),
        ("cmd_meta", totals.meta_cmds),
        ("get_hits", totals.get_hits),
        (
            "get_misses",
            totals.get_cmds.saturating_sub(totals.get_hits),
        ),
        ("get_expired", lost.expired),
        ("get_flushed", lost.flushed),
        ("delete_misses", totals.delete_misses),
        ("delete_hits", totals.delete_hits),
        ("incr_misses", totals.incr_misses),
        ("incr_hits", totals.incr_hits),
        ("decr_misses", totals.decr_misses),
        ("decr_hits", totals.decr_hits),
        ("cas_misses", totals.cas_misses),
        ("cas_hits", totals.cas_hits),
        ("cas_badval", totals.cas_badval),
        ("touch_hits", totals.touch_hits),
        (
            "touch_misses",
            totals.touch_cmds.saturating_sub(totals.touch_hits),
        ),
        ("store_too_large", totals.store_too_large),
        ("store_no_memory", totals.store_no_memory),
        ("auth_cmds", 0),
        ("auth_errors", 0),
    ];
    for (name, value) in list {
        rows.row(name, value);
    }
    if context.shared.config.idle_timeout_s > 0 {
        rows.row("idle_kicks", totals.idle_kicks);
    }
    rows.row("bytes_read", totals.bytes_read);
    rows.row("bytes_written", totals.bytes_written);
}

fn limits(context: &Context<'_>, rows: &mut Rows<'_>) {
    let shared = context.shared;
    let connections = &shared.connections;
    let is_full =
        connections.current.load(Ordering::Relaxed) >= i64::from(shared.config.connections_max);
    rows.row("limit_maxbytes", shared.tuning.get().memory_bytes);
    rows.row(
        "accepting_conns",
        u8::from(shared.config.maxconns_fast || !is_full),
    );
    rows.row(
        "listen_disabled_num",
        connections.listen_disabled.load(Ordering::Relaxed),
    );
    rows.row(
        "time_in_listen_disabled_us",
        connections.listen_disabled_us.load(Ordering::Relaxed),
    );
    rows.row("threads", shared.config.workers);
    rows.row("conn_yields", shared.totals().conn_yields);
}

fn slabs(context: &Context<'_>, rows: &mut Rows<'_>) {
    let index_bytes = context.store.store().counters().index_bytes;
    rows.row("hash_power_level", index_bytes.max(8).ilog2() - 3);
    rows.row("hash_bytes", index_bytes);
    rows.row("hash_is_expanding", 0);
    rows.zeros(&[
        "slab_reassign_rescues",
        "slab_reassign_chunk_rescues",
        "slab_reassign_inline_reclaim",
        "slab_reassign_busy_items",
        "slab_reassign_busy_deletes",
        "slab_reassign_busy_nomem",
    ]);
    rows.row("slab_reassign_last_busy_status", "none");
    rows.zeros(&["slab_reassign_running", "slabs_moved"]);
    if context.shared.config.lru_crawler {
        rows.zeros(&["lru_crawler_running", "lru_crawler_starts"]);
    }
    if context.shared.config.lru_maintainer {
        rows.zeros(&["lru_maintainer_juggles"]);
    }
    rows.zeros(&["malloc_fails", "log_worker_dropped", "log_worker_written"]);
    rows.zeros(&["log_watcher_skipped", "log_watcher_sent"]);
    rows.row("log_watchers", context.shared.watchers.count());
    rows.zeros(&["unexpected_napi_ids", "round_robin_fallback"]);
}

fn items(context: &Context<'_>, rows: &mut Rows<'_>) {
    let store = context.store.store().counters();
    let lost = context.shared.lost();
    rows.row(
        "bytes",
        store
            .by_slab_class
            .iter()
            .map(|(_, bytes)| bytes)
            .sum::<u64>(),
    );
    rows.row("curr_items", store.items);
    rows.row("total_items", store.items_total);
    rows.row("slab_global_page_pool", 0);
    rows.row("expired_unfetched", store.expired_unfetched);
    rows.row("evicted_unfetched", store.evicted_unfetched);
    if context.shared.config.lru_maintainer {
        rows.row("evicted_active", 0);
    }
    rows.row("evictions", lost.evictions);
    rows.row("reclaimed", lost.reclaimed);
    rows.zeros(&[
        "crawler_reclaimed",
        "crawler_items_checked",
        "lrutail_reflocked",
    ]);
    if context.shared.config.lru_maintainer {
        rows.zeros(&[
            "moves_to_cold",
            "moves_to_warm",
            "moves_within_lru",
            "direct_reclaims",
        ]);
        rows.zeros(&["lru_bumps_dropped"]);
    }
}
