//! `stats glasscache`: the statistics that only this server has.

use std::sync::atomic::Ordering;

use glasscache_store::Seconds;

use super::process;
use crate::session::context::Context;
use crate::session::rows::Rows;
use crate::shared::counters::{Counter, Counters};

/// Appends all rows and END.
pub(super) fn write(context: &Context<'_>, out: &mut Vec<u8>) {
    let store = context.store.store().counters();
    let totals = context.shared.totals();
    let memory = &context.shared.memory;
    let mut rows = Rows::new(out);
    rows.row("version", env!("CARGO_PKG_VERSION"));
    rows.row("commit", context.shared.config.commit.unwrap_or("unknown"));
    rows.row("started_unix", context.shared.clock.unix(Seconds(2)));
    for (name, value) in [
        ("resident_bytes", process::resident_bytes()),
        ("user_bytes", store.user_bytes),
        ("item_bytes", store.item_bytes),
        ("segment_bytes", store.segment_bytes),
        ("index_bytes", store.index_bytes),
        ("buffer_bytes", store.buffer_bytes),
        ("ready_bytes", store.ready_bytes),
        ("items", store.items),
        ("items_total", store.items_total),
        ("evictions", store.evictions),
        ("evicted_unfetched", store.evicted_unfetched),
        ("expired_unfetched", store.expired_unfetched),
        ("reclaimed", store.reclaimed),
        ("loop_iterations", totals.iterations),
        ("recv_calls", totals.recv_calls),
        ("send_calls", totals.send_calls),
        ("full_batches", totals.batches),
        ("peer_bytes", memory.charged()),
        ("peer_bytes_limit", memory.limit()),
        ("peer_waits", totals.memory_waits),
        ("peers_waiting", memory.waiting() as u64),
        ("prefix_table_bytes", context.shared.detail.bytes()),
        ("prefix_table_left_out", context.shared.detail.left_out()),
        ("stalled_connections_closed", totals.stalled_closed),
        ("idle_connections_closed", totals.idle_kicks),
        ("binary_connections_closed", totals.binary_refused),
        ("upload_tries", totals.upload_tries),
        ("invariants_broken", totals.invariant_broken),
        (
            "connections_total",
            context.shared.connections.total.load(Ordering::Relaxed),
        ),
    ] {
        rows.row(name, value);
    }
    let longest = |of: fn(&Counters) -> &Counter| {
        let workers = context.shared.workers.iter();
        workers
            .map(|(counters, _)| of(counters).get())
            .max()
            .unwrap_or(0)
    };
    rows.row(
        "iteration_us_max",
        longest(|counters| &counters.iteration_us_max),
    );
    rows.row(
        "iteration_examined_max",
        longest(|counters| &counters.iteration_examined_max),
    );
    if context.shared.config.debug {
        let cpu_us = longest(|counters| &counters.iteration_cpu_us_max);
        rows.row("iteration_cpu_us_max", cpu_us);
    }
    iteration_times(context, &mut rows);
    rows.end();
}

/// How long iterations of the event loop took: the time that a request can wait for other requests.
fn iteration_times(context: &Context<'_>, rows: &mut Rows<'_>) {
    for (bound_us, count) in context.shared.iteration_times() {
        rows.row(format_args!("turn_us_below_{bound_us}"), count);
    }
}
