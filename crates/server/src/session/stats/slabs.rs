//! `stats items` and `stats slabs`: what the stored items would occupy in memcached's slab classes.
//!
//! There are no slabs here. The figures show in which classes the items would be at the same `-f` and `-n`, so that
//! dashboards continue to work; actual memory is reported by `stats glasscache`.

use glasscache_store::EvictedOfClass;

use super::table::StatsContext;
use crate::session::rows::Rows;
use crate::shared::counters::ClassCounters;

/// Bytes of a slab page.
const PAGE_BYTES: u64 = 1 << 20;

/// One class that has items.
struct ClassInUse {
    /// Its number, which counts from 1.
    class: usize,
    item_count: u64,
    item_bytes: u64,
    chunk_bytes: u64,
    evicted: EvictedOfClass,
}

fn classes_in_use(context: StatsContext<'_>) -> Vec<ClassInUse> {
    let counters = context.shared.store_counters();
    let chunk_sizes = context.shared.slab_classes.chunk_sizes();
    let describe_class =
        |(index, ((item_count, item_bytes), chunk_size)): (usize, (&(u64, u64), &u32))| {
            let chunk_bytes = u64::from(*chunk_size);
            let evicted = counters.evicted_by_slab_class.get(index).copied().unwrap_or_default();
            let class_in_use = ClassInUse {
                class: index + 1,
                item_count: *item_count,
                item_bytes: *item_bytes,
                chunk_bytes,
                evicted,
            };
            (*item_count > 0).then_some(class_in_use)
        };
    counters.by_slab_class.iter().zip(chunk_sizes).enumerate().filter_map(describe_class).collect()
}

/// Rows of a class that have no meaning without LRU segments.
const ITEM_ZERO_FIELDS: [&str; 4] =
    ["outofmemory", "tailrepairs", "reclaimed", "expired_unfetched"];
const CRAWLER_ZERO_FIELDS: [&str; 3] =
    ["crawler_reclaimed", "crawler_items_checked", "lrutail_reflocked"];
const LRU_SEGMENT_ZERO_FIELDS: [&str; 4] =
    ["moves_to_cold", "moves_to_warm", "moves_within_lru", "direct_reclaims"];

/// Executes `stats items`.
pub(super) fn write_items(context: StatsContext<'_>, out: &mut Vec<u8>) {
    let has_lru_segments = context.shared.config.lru_maintainer;
    let mut rows = Rows::new(out);
    // Segments hold items of all classes: the oldest of each is about as old.
    let age_s = context.shared.store.oldest_items_age_s(context.now).unwrap_or(0);
    for ClassInUse { class, item_count, item_bytes, evicted, .. } in classes_in_use(context) {
        let row_name = |field: &str| format!("items:{class}:{field}");
        rows.write_row(row_name("number"), item_count);
        if has_lru_segments {
            rows.write_row(row_name("number_hot"), 0);
            rows.write_row(row_name("number_warm"), 0);
            rows.write_row(row_name("number_cold"), item_count);
            rows.write_row(row_name("age_hot"), 0);
            rows.write_row(row_name("age_warm"), 0);
        }
        rows.write_row(row_name("age"), age_s);
        rows.write_row(row_name("mem_requested"), item_bytes);
        rows.write_row(row_name("evicted"), evicted.items);
        rows.write_row(row_name("evicted_nonzero"), evicted.with_ttl);
        rows.write_row(row_name("evicted_time"), evicted.last_idle_s);
        for field in ITEM_ZERO_FIELDS {
            rows.write_row(row_name(field), 0);
        }
        rows.write_row(row_name("evicted_unfetched"), evicted.unfetched);
        if has_lru_segments {
            rows.write_row(row_name("evicted_active"), 0);
        }
        for field in CRAWLER_ZERO_FIELDS {
            rows.write_row(row_name(field), 0);
        }
        if has_lru_segments {
            for field in LRU_SEGMENT_ZERO_FIELDS {
                rows.write_row(row_name(field), 0);
            }
            rows.write_row(row_name("hits_to_hot"), 0);
            rows.write_row(row_name("hits_to_warm"), 0);
            rows.write_row(
                row_name("hits_to_cold"),
                total_count(context, class, |counters| counters.get_hits.get()),
            );
            rows.write_row(row_name("hits_to_temp"), 0);
        }
    }
    rows.end();
}

/// Executes `stats slabs`.
pub(super) fn write_slabs(context: StatsContext<'_>, out: &mut Vec<u8>) {
    let mut rows = Rows::new(out);
    let (mut active_classes, mut malloced_bytes) = (0, 0);
    let used_bytes = context.shared.used_bytes(&context.shared.store_counters());
    let is_full = used_bytes >= context.shared.tuning.get().memory_bytes;
    for ClassInUse { class, item_count, chunk_bytes, .. } in classes_in_use(context) {
        let row_name = |field: &str| format!("{class}:{field}");
        let chunks_per_page = PAGE_BYTES / chunk_bytes.max(1);
        let page_count = item_count.div_ceil(chunks_per_page.max(1));
        // By this tools recognise a class that evicts.
        let chunk_count = if is_full { item_count } else { page_count * chunks_per_page };
        active_classes += 1;
        malloced_bytes += page_count * PAGE_BYTES;
        rows.write_row(row_name("chunk_size"), chunk_bytes);
        rows.write_row(row_name("chunks_per_page"), chunks_per_page);
        rows.write_row(row_name("total_pages"), page_count);
        rows.write_row(row_name("total_chunks"), chunk_count);
        rows.write_row(row_name("used_chunks"), item_count);
        rows.write_row(row_name("free_chunks"), chunk_count.saturating_sub(item_count));
        rows.write_row(row_name("free_chunks_end"), 0);
        for (field, read_count) in COUNTED_FIELDS {
            rows.write_row(row_name(field), total_count(context, class, read_count));
        }
    }
    rows.write_row("active_slabs", active_classes);
    rows.write_row("total_malloced", malloced_bytes.min(used_bytes));
    rows.end();
}

/// Reads one count of a class.
type ReadCount = fn(&ClassCounters) -> u64;

/// What is counted of a class, in memcached's order.
const COUNTED_FIELDS: [(&str, ReadCount); 8] = [
    ("get_hits", |counters| counters.get_hits.get()),
    ("cmd_set", |counters| counters.set_cmds.get()),
    ("delete_hits", |counters| counters.delete_hits.get()),
    ("incr_hits", |counters| counters.incr_hits.get()),
    ("decr_hits", |counters| counters.decr_hits.get()),
    ("cas_hits", |counters| counters.cas_hits.get()),
    ("cas_badval", |counters| counters.cas_badval.get()),
    ("touch_hits", |counters| counters.touch_hits.get()),
];

/// One count of a class, added up over all workers.
fn total_count(context: StatsContext<'_>, class: usize, read_count: ReadCount) -> u64 {
    let count_of_worker =
        |counters: &crate::shared::counters::Counters| counters.by_class.get(class).map(read_count);
    context
        .shared
        .counters_and_wakers
        .iter()
        .filter_map(|(counters, _)| count_of_worker(counters))
        .sum()
}
