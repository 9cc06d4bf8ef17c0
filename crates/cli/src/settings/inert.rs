//! The `-o` options that change nothing here: read, checked against memcached's bounds, remembered and shown.
//!
//! Many Helm charts and scripts pass them unnecessarily. They steer slabs, the segmented LRU or the hash table of
//! memcached; the help gives the reason why each does nothing, and `stats settings` reports the given value.

use super::value::{parse_choice, parse_number, parse_switch, parse_whole_number};
use super::{ArgumentKind, Setting, Settings};

// Why an option has no effect, for the help.
const SEGMENTS_NOT_SLABS: Option<&str> = Some("items are stored in segments, not in slabs");
const S3FIFO_NOT_LRU: Option<&str> =
    Some("eviction is S3-FIFO weighed by size, not a segmented LRU");
const INDEX_RESIZES_ITSELF: Option<&str> = Some("the index grows and shrinks by itself");
const BUFFERS_WITHIN_MEMORY: Option<&str> = Some("buffers count inside -m");
const MEMCACHED_HISTORY: Option<&str> = Some("memcached names it for its own history");

impl Settings {
    fn record_inert(&mut self, name: &'static str, value: &str) {
        self.without_effect.retain(|(recorded_name, _)| *recorded_name != name);
        self.without_effect.push((name, value.trim().to_owned()));
    }

    fn inert_value(&self, name: &str, default: &str) -> String {
        let recorded_setting =
            self.without_effect.iter().find(|(recorded_name, _)| *recorded_name == name);
        recorded_setting.map_or_else(|| default.to_owned(), |(_, value)| value.clone())
    }
}

/// An option that is checked and remembered, and changes nothing.
macro_rules! inert {
    ($name:literal, $argument_kind:expr, $default:literal, $reason:expr, $help:literal, $check:expr) => {
        Setting {
            name: $name,
            letter: None,
            argument_kind: $argument_kind,
            help: $help,
            no_effect_reason: $reason,
            parse_into: |settings, raw| {
                let check: fn(&str) -> Result<(), String> = $check;
                check(raw)?;
                settings.record_inert($name, if raw.is_empty() { "yes" } else { raw });
                Ok(())
            },
            show: |settings| settings.inert_value($name, $default),
        }
    };
}

const NUM: ArgumentKind = ArgumentKind::Value("NUM");
const NO_VALUE: ArgumentKind = ArgumentKind::Nothing;

/// Each such option, in the order of the help.
pub(super) static INERT: &[Setting] = &[
    inert!(
        "hashpower",
        NUM,
        "",
        INDEX_RESIZES_ITSELF,
        "size of the hash table, as a power of two",
        |raw| { parse_whole_number(raw, 12, 64).map(drop) }
    ),
    inert!(
        "no_hashexpand",
        NO_VALUE,
        "no",
        INDEX_RESIZES_ITSELF,
        "keep the hash table at its size",
        |raw| { parse_switch(raw).map(drop) }
    ),
    inert!(
        "hash_algorithm",
        ArgumentKind::Value("NAME"),
        "murmur3",
        INDEX_RESIZES_ITSELF,
        "hash of the keys",
        |raw| { parse_choice(raw, &["jenkins", "murmur3", "xxh3"]).map(drop) }
    ),
    inert!(
        "slab_reassign",
        NO_VALUE,
        "yes",
        SEGMENTS_NOT_SLABS,
        "move pages between classes",
        |raw| { parse_switch(raw).map(drop) }
    ),
    inert!(
        "no_slab_reassign",
        NO_VALUE,
        "no",
        SEGMENTS_NOT_SLABS,
        "leave pages with their class",
        |raw| { parse_switch(raw).map(drop) }
    ),
    inert!(
        "slab_automove",
        NUM,
        "1",
        SEGMENTS_NOT_SLABS,
        "move pages by themselves, 0 to 2",
        |raw| { if raw.is_empty() { Ok(()) } else { parse_whole_number(raw, 0, 2).map(drop) } }
    ),
    inert!("no_slab_automove", NO_VALUE, "no", SEGMENTS_NOT_SLABS, "never move pages", |raw| {
        parse_switch(raw).map(drop)
    }),
    inert!(
        "slab_automove_ratio",
        NUM,
        "0.8",
        SEGMENTS_NOT_SLABS,
        "age ratio that moves a page",
        |raw| { parse_number(raw, 0.0, 0.999_999).map(drop) }
    ),
    inert!(
        "slab_automove_window",
        NUM,
        "30",
        SEGMENTS_NOT_SLABS,
        "seconds between page moves",
        |raw| { parse_whole_number(raw, 3, 1799).map(drop) }
    ),
    inert!(
        "slab_sizes",
        ArgumentKind::Value("SIZES"),
        "",
        SEGMENTS_NOT_SLABS,
        "chunk sizes, joined by -",
        |raw| {
            raw.split('-').try_for_each(|part| parse_whole_number(part, 1, 1 << 20).map(drop))
        }
    ),
    inert!("no_chunked_items", NO_VALUE, "no", SEGMENTS_NOT_SLABS, "one chunk an item", |raw| {
        parse_switch(raw).map(drop)
    }),
    inert!(
        "track_sizes",
        NO_VALUE,
        "no",
        SEGMENTS_NOT_SLABS,
        "count items for stats sizes",
        |raw| { parse_switch(raw).map(drop) }
    ),
    inert!(
        "tail_repair_time",
        NUM,
        "",
        S3FIFO_NOT_LRU,
        "seconds after which a stuck item is freed",
        |raw| { parse_whole_number(raw, 10, i64::from(i32::MAX)).map(drop) }
    ),
    inert!(
        "lru_crawler_sleep",
        NUM,
        "100",
        S3FIFO_NOT_LRU,
        "microseconds between crawled items",
        |raw| { parse_whole_number(raw, 0, 1_000_000).map(drop) }
    ),
    inert!("lru_crawler_tocrawl", NUM, "0", S3FIFO_NOT_LRU, "items to crawl in one run", |raw| {
        parse_whole_number(raw, 0, i64::from(u32::MAX)).map(drop)
    }),
    inert!("hot_lru_pct", NUM, "20", S3FIFO_NOT_LRU, "share of the hot queue", |raw| {
        parse_whole_number(raw, 1, 79).map(drop)
    }),
    inert!("warm_lru_pct", NUM, "40", S3FIFO_NOT_LRU, "share of the warm queue", |raw| {
        parse_whole_number(raw, 1, 79).map(drop)
    }),
    inert!(
        "hot_max_factor",
        NUM,
        "0.2",
        S3FIFO_NOT_LRU,
        "age at which an item leaves the hot queue",
        |raw| { parse_number(raw, 0.0, 1e9).map(drop) }
    ),
    inert!(
        "warm_max_factor",
        NUM,
        "2",
        S3FIFO_NOT_LRU,
        "age at which an item leaves the warm queue",
        |raw| { parse_number(raw, 0.0, 1e9).map(drop) }
    ),
    inert!(
        "temporary_ttl",
        NUM,
        "61",
        S3FIFO_NOT_LRU,
        "items that live shorter are never evicted",
        |raw| { parse_whole_number(raw, 0, i64::from(u32::MAX)).map(drop) }
    ),
    inert!(
        "read_buf_mem_limit",
        NUM,
        "0",
        BUFFERS_WITHIN_MEMORY,
        "megabytes for read buffers",
        |raw| { parse_whole_number(raw, 0, 1 << 20).map(drop) }
    ),
    inert!("resp_obj_mem_limit", NUM, "0", BUFFERS_WITHIN_MEMORY, "megabytes for replies", |raw| {
        parse_whole_number(raw, 0, 1 << 20).map(drop)
    }),
    inert!(
        "inline_ascii_resp",
        NO_VALUE,
        "no",
        MEMCACHED_HISTORY,
        "keep reply text with the item",
        |raw| { parse_switch(raw).map(drop) }
    ),
    inert!(
        "no_inline_ascii_resp",
        NO_VALUE,
        "no",
        MEMCACHED_HISTORY,
        "keep no reply text with the item",
        |raw| { parse_switch(raw).map(drop) }
    ),
    inert!(
        "modern",
        NO_VALUE,
        "yes",
        MEMCACHED_HISTORY,
        "the defaults of the next version",
        |raw| { parse_switch(raw).map(drop) }
    ),
];

/// Only under `MEMCACHED_DEBUG=1`, because memcached's own test library always passes it.
pub(super) static DEBUG_ONLY: &[Setting] = &[inert!(
    "relaxed_privileges",
    NO_VALUE,
    "no",
    Some("no system call filter is installed"),
    "allow what memcached's own tests need",
    |raw| parse_switch(raw).map(drop)
)];
