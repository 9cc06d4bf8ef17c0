//! The table of `-o name=value` options, under memcached's names: the few that act here, then the many that do not.
//!
//! A `no_` name switches its partner off. The options that change nothing are listed in `inert`.

use super::inert::{DEBUG, INERT};
use super::value::{bytes, switch, whole};
use super::{Setting, Takes};

const KIB: u64 = 1 << 10;
const KB: Takes = Takes::Value("KB");

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

/// The switches that act.
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

/// The other options that act.
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
        no_effect: Some("items are stored in segments, only these reports use it"),
        set: |s, raw| bytes(raw, KIB, KIB, 1 << 20).map(|n| s.slab_chunk_bytes_max = Some(n)),
        show: |s| (s.slab_chunk_bytes() / KIB).to_string(),
    },
    Setting {
        name: "no_modern",
        letter: None,
        takes: Takes::Nothing,
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
];

/// Every `-o` option, in the order of the help; those for memcached's own tests only when `debug`.
pub(crate) fn options(debug: bool) -> impl Iterator<Item = &'static Setting> {
    let hidden = if debug { DEBUG } else { &[] };
    ACTING
        .iter()
        .flatten()
        .chain(VALUED)
        .chain(INERT)
        .chain(hidden)
}
