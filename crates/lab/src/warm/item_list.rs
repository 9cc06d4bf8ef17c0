//! The items that the old server lists, in the order in which they are copied. No I/O.
//!
//! The last access decides the order, newest first: the dump has nothing that says more about the next access. Among
//! items of one second those that were read come before those that were only stored.

use std::ops::Range;

use glasscache_protocol::limits::KEY_BYTES_MAX;
use glasscache_protocol::meta::request::WireKey;
use glasscache_protocol::{ascii, base64};
use glasscache_sim::trace::watch::unescape_key;

/// Most items of a batch.
const BATCH_ITEMS_MAX: usize = 256;

/// Bytes of items after which a batch is complete; a single larger item is a batch of its own.
const BATCH_ITEM_BYTES_MAX: u64 = 1 << 20;

/// Bytes of keys in a batch. Its requests are written before the first reply is read, so they have to fit the socket
/// buffers of both sides.
const BATCH_KEY_BYTES_MAX: usize = 16 << 10;

/// An item that the old server lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedItem {
    key_start: usize,
    last_access_s: u32,
    /// Bytes of the item as its server counts them.
    pub(super) item_bytes: u32,
    key_bytes: u16,
    was_fetched: bool,
    is_base64: bool,
}

impl ListedItem {
    fn key_range(&self) -> Range<usize> {
        self.key_start..self.key_start + usize::from(self.key_bytes)
    }
}

/// A line of a dump that cannot be understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidLine;

/// The items that the old server lists.
#[derive(Debug, Default)]
pub(super) struct ItemList {
    /// The keys as they are sent, one after the other.
    keys: Vec<u8>,
    items: Vec<ListedItem>,
    /// Bytes of all items.
    pub(super) total_bytes: u64,
    /// Keys that no meta command can name, because their base64 form is too long.
    pub(super) unnameable_keys: u64,
}

impl ItemList {
    /// Adds the item of one line of `lru_crawler metadump`.
    pub(super) fn push(&mut self, line: &[u8]) -> Result<(), InvalidLine> {
        let mut fields = line.split(|byte| *byte == b' ');
        let first_field = fields.next().ok_or(InvalidLine)?;
        let key = unescape_key(first_field.strip_prefix(b"key=").ok_or(InvalidLine)?);
        let (mut last_access_s, mut item_bytes, mut was_fetched) = (None, None, false);
        for field in fields {
            if let Some(digits) = field.strip_prefix(b"la=") {
                last_access_s = ascii::parse_u32(digits);
            } else if let Some(digits) = field.strip_prefix(b"size=") {
                item_bytes = ascii::parse_u32(digits);
            } else if let Some(text) = field.strip_prefix(b"fetch=") {
                was_fetched = text == b"yes";
            }
        }
        let (Some(last_access_s), Some(item_bytes)) = (last_access_s, item_bytes) else {
            return Err(InvalidLine);
        };
        let key_start = self.keys.len();
        let is_base64 = !key.iter().all(|byte| (0x21..0x7f).contains(byte) || *byte >= 0x80);
        if is_base64 {
            base64::encode(&key, &mut self.keys);
        } else {
            self.keys.extend_from_slice(&key);
        }
        let key_bytes = self.keys.len() - key_start;
        if key_bytes == 0 || key_bytes > KEY_BYTES_MAX {
            self.keys.truncate(key_start);
            self.unnameable_keys += 1;
            return Ok(());
        }
        self.total_bytes += u64::from(item_bytes);
        self.items.push(ListedItem {
            key_start,
            last_access_s,
            item_bytes,
            key_bytes: key_bytes as u16,
            was_fetched,
            is_base64,
        });
        Ok(())
    }

    /// Keeps one of several entries of a key: the one that was accessed last.
    pub(super) fn keep_latest_of_each_key(&mut self) {
        let keys = std::mem::take(&mut self.keys);
        let key_of =
            |item: &ListedItem| (keys.get(item.key_range()).unwrap_or_default(), item.is_base64);
        self.items.sort_unstable_by(|a, b| {
            let newest_first =
                (b.last_access_s, b.was_fetched).cmp(&(a.last_access_s, a.was_fetched));
            key_of(a).cmp(&key_of(b)).then(newest_first)
        });
        self.items.dedup_by(|later, kept| key_of(later) == key_of(kept));
        for item in &mut self.items {
            let key_range = item.key_range();
            item.key_start = self.keys.len();
            self.keys.extend_from_slice(keys.get(key_range).unwrap_or_default());
        }
        self.total_bytes = self.items.iter().map(|item| u64::from(item.item_bytes)).sum();
    }

    /// Puts the items into the order in which they are copied.
    pub(super) fn sort_hottest_first(&mut self) {
        self.items
            .sort_unstable_by_key(|item| std::cmp::Reverse((item.last_access_s, item.was_fetched)));
    }

    /// The number of items.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The items of a range.
    pub(super) fn items(&self, range: Range<usize>) -> &[ListedItem] {
        self.items.get(range).unwrap_or_default()
    }

    /// The key of an item, as it is sent.
    pub(super) fn key(&self, item: &ListedItem) -> WireKey<'_> {
        let bytes = self.keys.get(item.key_range()).unwrap_or_default();
        WireKey { bytes, is_base64: item.is_base64 }
    }

    /// The batch that begins with the item at `start`, of at most `items_max` items; empty behind the last.
    pub(super) fn batch(&self, start: usize, items_max: usize) -> Range<usize> {
        let (mut batch_item_bytes, mut batch_key_bytes) = (0, 0);
        let items = self.items.get(start..).unwrap_or_default();
        let candidates = items.iter().take(items_max.clamp(1, BATCH_ITEMS_MAX));
        let batch_items = candidates.take_while(|item| {
            let is_first = batch_key_bytes == 0;
            batch_item_bytes += u64::from(item.item_bytes);
            batch_key_bytes += usize::from(item.key_bytes);
            is_first
                || (batch_item_bytes <= BATCH_ITEM_BYTES_MAX
                    && batch_key_bytes <= BATCH_KEY_BYTES_MAX)
        });
        start..start + batch_items.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_items(lines: &[&str]) -> ItemList {
        let mut item_list = ItemList::default();
        for line in lines {
            item_list.push(line.as_bytes()).unwrap();
        }
        item_list
    }

    fn list_keys(item_list: &ItemList) -> Vec<String> {
        let key_text = |item| String::from_utf8(item_list.key(item).bytes.to_vec()).unwrap();
        item_list.items(0..item_list.len()).iter().map(key_text).collect()
    }

    #[test]
    fn the_last_access_decides_and_then_whether_it_was_a_read() {
        let mut item_list = parse_items(&[
            "key=old exp=-1 la=100 cas=1 fetch=yes cls=1 size=60",
            "key=stored exp=-1 la=200 cas=2 fetch=no cls=1 size=60",
            "key=read exp=9 la=200 cas=3 fetch=yes cls=1 size=60 flags=0 ",
        ]);
        item_list.sort_hottest_first();
        assert_eq!(list_keys(&item_list), ["read", "stored", "old"]);
        assert_eq!(item_list.total_bytes, 180);
    }

    #[test]
    fn a_key_with_a_space_is_sent_in_base64_and_one_that_is_too_long_for_it_left_out() {
        let line_with_long_key = format!("key={}%20 la=1 size=70", "x".repeat(249));
        let item_list = parse_items(&[
            "key=a%20b la=1 size=70",
            &line_with_long_key,
            "key=caf%C3%A9 la=1 size=70",
        ]);
        assert_eq!(list_keys(&item_list), ["YSBi", "caf\u{e9}"]);
        assert!(item_list.key(&item_list.items[0]).is_base64);
        assert_eq!(item_list.unnameable_keys, 1);
    }

    #[test]
    fn of_two_entries_of_a_key_the_latest_access_stays() {
        let mut item_list = parse_items(&[
            "key=b la=1 size=70",
            "key=a la=3 size=80 fetch=no",
            "key=b la=2 size=90",
            "key=a la=3 size=80 fetch=yes",
            "key=YSBi la=1 size=1",
            "key=a%20b la=1 size=1",
        ]);
        item_list.keep_latest_of_each_key();
        assert_eq!((item_list.len(), item_list.total_bytes), (4, 172));
        item_list.sort_hottest_first();
        assert_eq!(list_keys(&item_list)[..2], ["a", "b"]);
    }

    #[test]
    fn a_line_without_access_or_size_is_refused() {
        for line in ["ERROR", "key=a size=1", "key=a la=1", "key=a la=x size=1"] {
            assert_eq!(ItemList::default().push(line.as_bytes()), Err(InvalidLine), "{line}");
        }
    }

    #[test]
    fn a_batch_ends_at_its_items_its_bytes_or_its_keys() {
        let small_lines: Vec<String> =
            (0..600).map(|number| format!("key=k{number} la=1 size=70")).collect();
        let small_items = parse_items(&small_lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(small_items.batch(0, 10_000), 0..256);
        assert_eq!(small_items.batch(256, 100), 256..356);
        assert_eq!(small_items.batch(599, 100), 599..600);
        assert_eq!(small_items.batch(600, 100), 600..600);
        let large_items = parse_items(&[
            "key=a la=1 size=5000000",
            "key=b la=1 size=600000",
            "key=c la=1 size=600000",
        ]);
        assert_eq!(large_items.batch(0, 100), 0..1);
        assert_eq!(large_items.batch(1, 100), 1..2);
        let lines_with_long_keys: Vec<String> =
            (0..100).map(|number| format!("key={number:0>250} la=1 size=300")).collect();
        let items_with_long_keys =
            parse_items(&lines_with_long_keys.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(items_with_long_keys.batch(0, 100), 0..65);
    }
}
