//! The `-o` options that change nothing here: read, checked against memcached's bounds, remembered and shown.
//!
//! Many Helm charts and scripts pass them unnecessarily. They steer slabs, the segmented LRU or the hash table of
//! memcached; the help gives the reason why each does nothing, and `stats settings` reports the given value.

use super::value::{choice, factor, switch, whole};
use super::{Setting, Settings, Takes};

// Why an option has no effect, for the help.
const SLABS: Option<&str> = Some("items are stored in segments, not in slabs");
const LRU: Option<&str> = Some("eviction is S3-FIFO weighed by size, not a segmented LRU");
const INDEX: Option<&str> = Some("the index grows and shrinks by itself");
const BUDGET: Option<&str> = Some("buffers count inside -m");
const HISTORY: Option<&str> = Some("memcached names it for its own history");

impl Settings {
    fn record_inert(&mut self, name: &'static str, value: &str) {
        self.without_effect
            .retain(|(recorded, _)| *recorded != name);
        self.without_effect.push((name, value.trim().to_owned()));
    }

    fn inert_value(&self, name: &str, default: &str) -> String {
        let found = self
            .without_effect
            .iter()
            .find(|(recorded, _)| *recorded == name);
        found.map_or_else(|| default.to_owned(), |(_, value)| value.clone())
    }
}

/// An option that is checked and remembered, and changes nothing.
macro_rules! inert {
    ($name:literal, $takes:expr, $default:literal, $why:expr, $help:literal, $check:expr) => {
        Setting {
            name: $name,
            letter: None,
            takes: $takes,
            help: $help,
            no_effect: $why,
            set: |s, raw| {
                let check: fn(&str) -> Result<(), String> = $check;
                check(raw)?;
                s.record_inert($name, if raw.is_empty() { "yes" } else { raw });
                Ok(())
            },
            show: |s| s.inert_value($name, $default),
        }
    };
}

const NUM: Takes = Takes::Value("NUM");
const NONE: Takes = Takes::Nothing;

/// Each such option, in the order of the help.
pub(super) static INERT: &[Setting] = &[
    inert!(
        "hashpower",
        NUM,
        "",
        INDEX,
        "size of the hash table, as a power of two",
        |raw| { whole(raw, 12, 64).map(drop) }
    ),
    inert!(
        "no_hashexpand",
        NONE,
        "no",
        INDEX,
        "keep the hash table at its size",
        |raw| { switch(raw).map(drop) }
    ),
    inert!(
        "hash_algorithm",
        Takes::Value("NAME"),
        "murmur3",
        INDEX,
        "hash of the keys",
        |raw| { choice(raw, &["jenkins", "murmur3", "xxh3"]).map(drop) }
    ),
    inert!(
        "slab_reassign",
        NONE,
        "yes",
        SLABS,
        "move pages between classes",
        |raw| { switch(raw).map(drop) }
    ),
    inert!(
        "no_slab_reassign",
        NONE,
        "no",
        SLABS,
        "leave pages with their class",
        |raw| { switch(raw).map(drop) }
    ),
    inert!(
        "slab_automove",
        NUM,
        "1",
        SLABS,
        "move pages by themselves, 0 to 2",
        |raw| {
            if raw.is_empty() {
                Ok(())
            } else {
                whole(raw, 0, 2).map(drop)
            }
        }
    ),
    inert!(
        "no_slab_automove",
        NONE,
        "no",
        SLABS,
        "never move pages",
        |raw| switch(raw).map(drop)
    ),
    inert!(
        "slab_automove_ratio",
        NUM,
        "0.8",
        SLABS,
        "age ratio that moves a page",
        |raw| { factor(raw, 0.0, 0.999_999).map(drop) }
    ),
    inert!(
        "slab_automove_window",
        NUM,
        "30",
        SLABS,
        "seconds between page moves",
        |raw| { whole(raw, 3, 1799).map(drop) }
    ),
    inert!(
        "slab_sizes",
        Takes::Value("SIZES"),
        "",
        SLABS,
        "chunk sizes, joined by -",
        |raw| {
            raw.split('-')
                .try_for_each(|part| whole(part, 1, 1 << 20).map(drop))
        }
    ),
    inert!(
        "no_chunked_items",
        NONE,
        "no",
        SLABS,
        "one chunk an item",
        |raw| switch(raw).map(drop)
    ),
    inert!(
        "track_sizes",
        NONE,
        "no",
        SLABS,
        "count items for stats sizes",
        |raw| { switch(raw).map(drop) }
    ),
    inert!(
        "tail_repair_time",
        NUM,
        "",
        LRU,
        "seconds after which a stuck item is freed",
        |raw| { whole(raw, 10, i64::from(i32::MAX)).map(drop) }
    ),
    inert!(
        "lru_crawler_sleep",
        NUM,
        "100",
        LRU,
        "microseconds between crawled items",
        |raw| { whole(raw, 0, 1_000_000).map(drop) }
    ),
    inert!(
        "lru_crawler_tocrawl",
        NUM,
        "0",
        LRU,
        "items to crawl in one run",
        |raw| { whole(raw, 0, i64::from(u32::MAX)).map(drop) }
    ),
    inert!(
        "hot_lru_pct",
        NUM,
        "20",
        LRU,
        "share of the hot queue",
        |raw| whole(raw, 1, 79).map(drop)
    ),
    inert!(
        "warm_lru_pct",
        NUM,
        "40",
        LRU,
        "share of the warm queue",
        |raw| whole(raw, 1, 79).map(drop)
    ),
    inert!(
        "hot_max_factor",
        NUM,
        "0.2",
        LRU,
        "age at which an item leaves the hot queue",
        |raw| { factor(raw, 0.0, 1e9).map(drop) }
    ),
    inert!(
        "warm_max_factor",
        NUM,
        "2",
        LRU,
        "age at which an item leaves the warm queue",
        |raw| { factor(raw, 0.0, 1e9).map(drop) }
    ),
    inert!(
        "temporary_ttl",
        NUM,
        "61",
        LRU,
        "items that live shorter are never evicted",
        |raw| { whole(raw, 0, i64::from(u32::MAX)).map(drop) }
    ),
    inert!(
        "read_buf_mem_limit",
        NUM,
        "0",
        BUDGET,
        "megabytes for read buffers",
        |raw| { whole(raw, 0, 1 << 20).map(drop) }
    ),
    inert!(
        "resp_obj_mem_limit",
        NUM,
        "0",
        BUDGET,
        "megabytes for replies",
        |raw| { whole(raw, 0, 1 << 20).map(drop) }
    ),
    inert!(
        "inline_ascii_resp",
        NONE,
        "no",
        HISTORY,
        "keep reply text with the item",
        |raw| { switch(raw).map(drop) }
    ),
    inert!(
        "no_inline_ascii_resp",
        NONE,
        "no",
        HISTORY,
        "keep no reply text with the item",
        |raw| { switch(raw).map(drop) }
    ),
    inert!(
        "modern",
        NONE,
        "yes",
        HISTORY,
        "the defaults of the next version",
        |raw| { switch(raw).map(drop) }
    ),
];

/// Only under `MEMCACHED_DEBUG=1`, because memcached's own test library always passes it.
pub(super) static DEBUG: &[Setting] = &[inert!(
    "relaxed_privileges",
    NONE,
    "no",
    Some("no system call filter is installed"),
    "allow what memcached's own tests need",
    |raw| switch(raw).map(drop)
)];
