//! All items, one line each: for `lru_crawler metadump` and `mgdump`, and some of them for `stats cachedump`.

use std::io::Write as _;

use glasscache_protocol::percent;
use glasscache_protocol::{base64, replies};
use glasscache_store::{Expiry, Item, Listing};

use crate::session::context::Context;
use crate::session::output::Output;
use crate::shared::key_text::fits_in_line;
use crate::shared::peer_memory::Charge;
use crate::shared::sizes::is_slice_full;

/// Items examined between two checks of the output's size.
const STEP_ITEMS: usize = 64;

/// A listing keeps the hashes of a part of the items at a time: about a byte for this many items of all.
const LISTED_ITEMS_PER_BYTE: usize = 2;

/// Bytes that a listing keeps while there are few items.
const LISTING_BYTES_MIN: usize = 128 << 10;

/// Maximum length of the reply to `stats cachedump` in bytes, as in memcached.
const CACHEDUMP_BYTES_MAX: usize = 2 << 20;

/// The progress of a dump of all items.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ItemDump {
    line_format: LineFormat,
    /// The slab classes of memcached to list; all when empty.
    classes: Vec<usize>,
    /// How far the store has been walked; it reads the items found so far in random order, which `listing_seed` begins.
    listing: Listing,
    /// The charge for the memory of `listing`.
    charge: Charge,
    has_started: bool,
}

/// The form of a line of the dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineFormat {
    /// All metadata of an item.
    Metadump,
    /// A command that fetches the item.
    Mgdump,
    /// Key, length and expiry of some items.
    Cachedump(CachedumpLimits),
}

/// Lines and bytes that `stats cachedump` may still list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedumpLimits {
    lines_left: u32,
    bytes_left: usize,
}

impl CachedumpLimits {
    /// At most `lines_max` lines.
    pub(crate) fn with_lines(lines_max: u32) -> CachedumpLimits {
        CachedumpLimits { lines_left: lines_max, bytes_left: CACHEDUMP_BYTES_MAX }
    }

    fn is_used_up(self) -> bool {
        self.lines_left == 0 || self.bytes_left == 0
    }
}

impl ItemDump {
    /// A dump from the beginning.
    pub(crate) fn new(
        line_format: LineFormat,
        classes: Vec<usize>,
        context: &Context<'_>,
    ) -> ItemDump {
        let item_count = context.store_worker.store().counters().items;
        ItemDump {
            line_format,
            classes,
            listing: Listing::new(context.shared.listing_seed(), item_count),
            charge: context.shared.peer_memory.charge(0),
            has_started: false,
        }
    }

    /// Appends a slice; true when the dump is complete.
    pub(super) fn append_slice(&mut self, context: &Context<'_>, out: &mut Output<'_>) -> bool {
        // As in memcached since 1.6.45, the crawler reports its start before it lists.
        if !std::mem::replace(&mut self.has_started, true) && !self.is_cachedump() {
            out.bytes.extend_from_slice(replies::OK);
        }
        let mut examined_items = 0;
        let is_done = self.write_slice(context, &mut examined_items, out);
        context.counters.examined.add(examined_items as u64);
        let kept_bytes = if is_done { 0 } else { self.listing.held_bytes() };
        if kept_bytes != self.charge.bytes() {
            self.charge.set(kept_bytes);
        }
        if is_done {
            out.bytes.extend_from_slice(match self.line_format {
                LineFormat::Mgdump => b"EN\r\n",
                LineFormat::Metadump | LineFormat::Cachedump(_) => b"END\r\n",
            });
        }
        is_done
    }

    fn write_slice(
        &mut self,
        context: &Context<'_>,
        examined_items: &mut usize,
        out: &mut Output<'_>,
    ) -> bool {
        let ItemDump { line_format, classes, listing, .. } = self;
        while !is_slice_full(*examined_items, out.len()) {
            let mut visit =
                |item: &Item<'_>| write_line(line_format, classes, item, context, &mut out.bytes);
            match context.store_worker.list(listing, STEP_ITEMS, context.now, &mut visit) {
                Some(examined_now) => *examined_items += examined_now,
                None => return true,
            }
            if matches!(line_format, LineFormat::Cachedump(limits) if limits.is_used_up()) {
                return true;
            }
        }
        false
    }

    fn is_cachedump(&self) -> bool {
        matches!(self.line_format, LineFormat::Cachedump(_))
    }

    /// Approximate memory of a listing that has not begun, in bytes.
    pub(super) fn needed_bytes(&self, context: &Context<'_>) -> usize {
        if self.has_started {
            return 0;
        }
        let item_count = context.store_worker.store().counters().items as usize;
        (item_count / LISTED_ITEMS_PER_BYTE).max(LISTING_BYTES_MIN)
    }
}

fn write_line(
    line_format: &mut LineFormat,
    classes: &[usize],
    item: &Item<'_>,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) {
    let key = item.key();
    let (class, size_bytes) =
        context.shared.slab_classes.class_and_size(key.len(), item.value_bytes(), item.flags());
    if !(classes.is_empty() || classes.contains(&class)) {
        return;
    }
    match line_format {
        LineFormat::Metadump => write_metadump_line(item, (class, size_bytes), context, out),
        LineFormat::Mgdump => write_mgdump_line(key, out),
        LineFormat::Cachedump(limits) => write_cachedump_line(limits, item, context, out),
    }
}

fn write_metadump_line(
    item: &Item<'_>,
    (class, size_bytes): (usize, u32),
    context: &Context<'_>,
    out: &mut Vec<u8>,
) {
    let expiry_unix_s = match item.expiry() {
        Expiry::Never => -1,
        Expiry::At(expires_at) => context.shared.clock.unix_time(expires_at),
    };
    out.extend_from_slice(b"key=");
    percent::encode(item.key(), out);
    // Writing to a vector cannot fail.
    let _ = writeln!(
        out,
        " exp={expiry_unix_s} la={} cas={} fetch={} cls={class} size={size_bytes} flags={} ",
        context.shared.clock.unix_time(item.last_access()),
        context.visible_unique(item.unique()),
        if item.was_fetched() { "yes" } else { "no" },
        item.flags(),
    );
}

/// Writes the command that fetches `key`; a key with blanks or control bytes is written in base64.
fn write_mgdump_line(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"mg ");
    if fits_in_line(key) {
        out.extend_from_slice(key);
        out.extend_from_slice(b"\r\n");
    } else {
        base64::encode(key, out);
        out.extend_from_slice(b" b\r\n");
    }
}

/// Writes key, length and expiry; an item whose key has blanks or control bytes is left out, as memcached leaves out
/// binary keys.
fn write_cachedump_line(
    limits: &mut CachedumpLimits,
    item: &Item<'_>,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) {
    let key = item.key();
    if limits.is_used_up() || !fits_in_line(key) {
        return;
    }
    let line_start = out.len();
    let expiry_unix_s = match item.expiry() {
        Expiry::Never => 0,
        Expiry::At(expires_at) => context.shared.clock.unix_time(expires_at),
    };
    out.extend_from_slice(b"ITEM ");
    out.extend_from_slice(key);
    // Writing to a vector cannot fail.
    let _ = write!(out, " [{} b; {expiry_unix_s} s]\r\n", item.value_bytes());
    limits.lines_left -= 1;
    limits.bytes_left = limits.bytes_left.saturating_sub(out.len() - line_start);
}
