//! The table of `-o name=value` options: memcached's names, the few that act here and the many that do not.
//!
//! Charts and scripts pass most of these without need. Those that only steer slabs, the segmented LRU
//! or the hash table are read, checked against memcached's bounds, shown in `stats settings` and
//! otherwise ignored, with the reason in the help. A `no_` name switches its partner off.

use super::value::{bytes, choice, factor, switch, whole};
use super::{Setting, Settings, Takes};

const KIB: u64 = 1 << 10;
const SLABS: Option<&str> = Some("items lie in segments, not in slabs");
const LRU: Option<&str> = Some("eviction is S3-FIFO weighed by size, not a segmented LRU");
const INDEX: Option<&str> = Some("the index grows and shrinks by itself");
const BUDGET: Option<&str> = Some("buffers count inside -m");
const LATER: Option<&str> = Some("memcached names it for its own history");

impl Settings {
    fn note(&mut self, name: &'static str, value: &str) {
        self.without_effect.retain(|(noted, _)| *noted != name);
        self.without_effect.push((name, value.trim().to_owned()));
    }

    fn noted(&self, name: &str, default: &str) -> String {
        let found = self.without_effect.iter().find(|(noted, _)| *noted == name);
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
                s.note($name, if raw.is_empty() { "yes" } else { raw });
                Ok(())
            },
            show: |s| s.noted($name, $default),
        }
    };
}

/// A switch named by memcached: on as `$name`, off as `no_$name` in the entry after it.
macro_rules! toggle {
    ($name:literal, $no_name:literal, $field:ident, $help:literal) => {
        [
            Setting {
                name: $name,
                letter: None,
                takes: Takes::Nothing,
                help: $help,
                no_effect: None,
                set: |s, raw| switch(raw).map(|yes| s.$field = yes),
                show: |s| s.$field.to_string(),
            },
            Setting {
                name: $no_name,
                letter: None,
                takes: Takes::Nothing,
                help: concat!("switches ", $name, " off"),
                no_effect: None,
                set: |s, raw| switch(raw).map(|yes| s.$field = !yes),
                show: |s| (!s.$field).to_string(),
            },
        ]
    };
}

const NUM: Takes = Takes::Value("NUM");
const KB: Takes = Takes::Value("KB");
const NONE: Takes = Takes::Nothing;

static ACTING: [[Setting; 2]; 3] = [
    toggle!(
        "maxconns_fast",
        "no_maxconns_fast",
        maxconns_fast,
        "refuse connections above -c at once"
    ),
    toggle!(
        "lru_crawler",
        "no_lru_crawler",
        lru_crawler,
        "show the crawler's rows in stats"
    ),
    toggle!(
        "lru_maintainer",
        "no_lru_maintainer",
        lru_maintainer,
        "show the maintainer's rows in stats"
    ),
];

static VALUED: &[Setting] = &[
    Setting {
        name: "idle_timeout",
        letter: None,
        takes: Takes::Value("SECONDS"),
        help: "close connections idle for longer; 0 never",
        no_effect: None,
        set: |s, raw| whole(raw, 0, i64::from(i32::MAX)).map(|n| s.idle_timeout_s = n as u32),
        show: |s| s.idle_timeout_s.to_string(),
    },
    Setting {
        name: "watcher_logbuf_size",
        letter: None,
        takes: KB,
        help: "buffer of one watcher, in kilobytes",
        no_effect: None,
        set: |s, raw| bytes(raw, KIB, KIB, 1 << 30).map(|n| s.watcher_log_bytes = n),
        show: |s| (s.watcher_log_bytes / KIB).to_string(),
    },
    Setting {
        name: "worker_logbuf_size",
        letter: None,
        takes: KB,
        help: "buffer in which a worker collects log lines, in kilobytes",
        no_effect: None,
        set: |s, raw| bytes(raw, KIB, KIB, 1 << 30).map(|n| s.worker_log_bytes = n),
        show: |s| (s.worker_log_bytes / KIB).to_string(),
    },
    Setting {
        name: "slab_chunk_max",
        letter: None,
        takes: KB,
        help: "largest chunk of the slab classes in stats items and stats slabs, in kilobytes",
        no_effect: Some("items lie in segments, only these reports use it"),
        set: |s, raw| bytes(raw, KIB, KIB, 1 << 20).map(|n| s.slab_chunk_bytes_max = Some(n)),
        show: |s| (s.slab_chunk_bytes() / KIB).to_string(),
    },
    Setting {
        name: "no_modern",
        letter: None,
        takes: NONE,
        help: "memcached's old defaults: whole-page chunks, no crawler and no maintainer rows in stats",
        no_effect: None,
        set: |s, raw| {
            if switch(raw)? {
                s.lru_crawler = false;
                s.lru_maintainer = false;
                s.slab_chunk_bytes_max = Some(s.item_bytes_max.min(1 << 20));
            }
            Ok(())
        },
        show: |_| String::new(),
    },
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
        LATER,
        "keep reply text with the item",
        |raw| { switch(raw).map(drop) }
    ),
    inert!(
        "no_inline_ascii_resp",
        NONE,
        "no",
        LATER,
        "keep no reply text with the item",
        |raw| { switch(raw).map(drop) }
    ),
    inert!(
        "modern",
        NONE,
        "yes",
        LATER,
        "the defaults of the next version",
        |raw| { switch(raw).map(drop) }
    ),
];

/// Only under `MEMCACHED_DEBUG=1`, because memcached's own test library always passes it.
static DEBUG: &[Setting] = &[inert!(
    "relaxed_privileges",
    NONE,
    "no",
    Some("no system call filter is installed"),
    "allow what memcached's own tests need",
    |raw| switch(raw).map(drop)
)];

/// Every `-o` option, in the order of the help; those for memcached's own tests only when `debug`.
pub(crate) fn options(debug: bool) -> impl Iterator<Item = &'static Setting> {
    let hidden = if debug { DEBUG } else { &[] };
    ACTING.iter().flatten().chain(VALUED).chain(hidden)
}

/// The option called `name`, or the nearest name there is.
pub(super) fn find(name: &str, debug: bool) -> Result<&'static Setting, &'static str> {
    if let Some(found) = options(debug).find(|setting| setting.name == name) {
        return Ok(found);
    }
    let nearness = |setting: &&Setting| (strsim::jaro_winkler(setting.name, name) * 1e6) as u64;
    Err(options(false)
        .max_by_key(nearness)
        .map_or("", |setting| setting.name))
}
