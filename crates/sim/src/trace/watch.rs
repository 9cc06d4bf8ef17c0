//! Key streams from the lines of `watch fetchers mutations`, as memcached and glasscache print them.
//!
//! A line is `ts=… gid=… type=item_get key=… status=… clsid=… cfd=… size=…` (memcached's `doc/protocol.txt`, section
//! "Watchers"). A server also prints a lookup line for the lookup that precedes a store, on the same connection: it is
//! discarded when the store's line follows, or every fill of a look-aside cache would count as two gets.

use super::layout::ColumnNames;
use super::lines::Lines;
use super::rows::{KeyCell, LineParser, LineRows, ParsedRow, RowSink};
use super::text::parse_whole_number;
use super::{Columns, Op};
use crate::TraceError;
use std::collections::VecDeque;
use std::io::BufRead;

/// Number of rows within which a store's line follows its own lookup: the two are printed within microseconds, and
/// lines of other connections may come between.
const PENDING_ROWS_MAX: usize = 256;

/// A TTL of at least this many seconds is a negative number that memcached prints without its sign: the item is
/// expired when it is stored.
const NEGATIVE_TTL_S_MIN: u64 = 1 << 31;

/// One line of `watch`: its fields, undecoded. A field that a line lacks is empty or 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WatchLine<'l> {
    /// Microseconds since 1970.
    pub time_us: u64,
    /// The kind of event: `item_get`, `item_store`, `eviction` and so on.
    pub event_type: &'l [u8],
    /// The key, percent-encoded.
    pub key: &'l [u8],
    /// The result of a lookup or a store.
    pub status: &'l [u8],
    /// The command of a store.
    pub command: &'l [u8],
    /// Seconds to live, as printed; `None` if it is not a whole number.
    pub ttl_s: Option<u64>,
    /// The descriptor of the connection.
    pub connection: u32,
    /// Bytes of the value; 0 for a miss.
    pub value_bytes: u64,
    /// Whether an evicted item had been read.
    pub was_read: bool,
    /// Lines that the server left out before this one.
    pub skipped: u64,
}

impl<'l> WatchLine<'l> {
    /// Reads the fields of a line; unknown ones are ignored.
    pub fn parse(text: &'l [u8]) -> Self {
        let mut line = Self::default();
        for field in text.split(|&byte| byte == b' ') {
            let Some(separator) = field.iter().position(|&byte| byte == b'=') else {
                continue;
            };
            let (name, value) = (&field[..separator], &field[separator + 1..]);
            let number = || parse_whole_number(value).unwrap_or_default();
            match name {
                b"ts" => line.time_us = parse_time_us(value),
                b"type" => line.event_type = value,
                b"key" => line.key = value,
                b"status" => line.status = value,
                b"cmd" => line.command = value,
                b"ttl" => line.ttl_s = parse_whole_number(value),
                b"cfd" => line.connection = number() as u32,
                b"size" => line.value_bytes = number(),
                b"fetch" => line.was_read = value == b"yes",
                b"skipped" => line.skipped = parse_whole_number(value).unwrap_or(1),
                _ => {}
            }
        }
        line
    }
}

impl WatchLine<'_> {
    /// Whether the item of a store has a negative TTL: it is expired when it is stored.
    pub fn is_stored_expired(&self) -> bool {
        self.ttl_s.is_some_and(|ttl_s| ttl_s >= NEGATIVE_TTL_S_MIN)
    }
}

/// The time of a line: seconds, a dot, and microseconds without leading zeros, as memcached 1.6 prints them.
fn parse_time_us(text: &[u8]) -> u64 {
    let (seconds, microseconds) = match text.iter().position(|&byte| byte == b'.') {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b"0"[..]),
    };
    let number = |digits: &[u8]| parse_whole_number(digits).unwrap_or_default();
    number(seconds).saturating_mul(1_000_000).saturating_add(number(microseconds).min(999_999))
}

/// The key behind the percent-encoding of `watch` and `lru_crawler metadump`: `a%20b` is `a b`.
///
/// A percent sign without two hex digits after it is kept as it is.
pub fn unescape_key(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut remaining = text;
    while let Some((first_byte, tail)) = remaining.split_first() {
        let two_digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let decoded_byte = two_digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let (b'%', Some(byte)) = (first_byte, decoded_byte) {
            bytes.push(byte);
            remaining = &tail[2..];
        } else {
            bytes.push(*first_byte);
            remaining = tail;
        }
    }
    bytes
}

/// A get or a write that a server reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Microseconds since 1970.
    pub time_us: u64,
    /// The key.
    pub key: Vec<u8>,
    /// `Get`, the operation of a write, or `Delete` for a value that is stored expired.
    pub op: Op,
    /// Bytes of the value; `None` for a miss.
    pub size: Option<u32>,
    /// Seconds to live of a write, 0 for no end.
    pub ttl: Option<u32>,
    connection: u32,
}

/// Finds the gets and writes among the lines of a watch, in their order.
#[derive(Debug, Default)]
pub struct Accesses {
    /// Accesses in order; a lookup may still be followed by its store's line.
    queue: VecDeque<Access>,
    /// Lines that the server left out.
    pub skipped_lines: u64,
    /// Lines that report no get and no write.
    pub other_lines: u64,
}

impl Accesses {
    /// Takes one line; accesses that are complete can then be taken with [`Accesses::next_complete`].
    pub fn push(&mut self, text: &[u8]) {
        let line = WatchLine::parse(text);
        self.skipped_lines += line.skipped;
        let new_access = |op, size, ttl| Access {
            time_us: line.time_us,
            key: unescape_key(line.key),
            op,
            size,
            ttl,
            connection: line.connection,
        };
        let value_size = || Some(line.value_bytes.min(u32::MAX.into()) as u32);
        match line.event_type {
            b"item_get" if !line.key.is_empty() => {
                let found_size = value_size().filter(|_| line.status == b"found");
                self.queue.push_back(new_access(Op::Get, found_size, None));
            }
            b"item_store" if !line.key.is_empty() => {
                let ttl = line.ttl_s.unwrap_or_default();
                let write = if line.is_stored_expired() {
                    new_access(Op::Delete, None, None)
                } else {
                    new_access(Op::parse(line.command), value_size(), Some(ttl as u32))
                };
                self.drop_lookup(&write);
                if line.status == b"stored" {
                    self.queue.push_back(write);
                } else {
                    self.other_lines += 1;
                }
            }
            _ => self.other_lines += u64::from(line.skipped == 0),
        }
    }

    /// Discards the write's own lookup: the last line of its connection, if it has the same key.
    fn drop_lookup(&mut self, write: &Access) {
        let is_same_connection = |access: &Access| access.connection == write.connection;
        if let Some(lookup_index) = self.queue.iter().rposition(is_same_connection)
            && self.queue[lookup_index].op == Op::Get
            && self.queue[lookup_index].key == write.key
        {
            self.queue.remove(lookup_index);
        }
    }

    /// The next access that no later line can change.
    pub fn next_complete(&mut self) -> Option<Access> {
        if self.queue.len() > PENDING_ROWS_MAX { self.queue.pop_front() } else { None }
    }

    /// The next access at the end of the watch.
    pub fn next_at_end(&mut self) -> Option<Access> {
        self.queue.pop_front()
    }
}

/// A key stream of lines of `watch`.
pub(super) fn open<R: BufRead + Send>(
    name: &str,
    source: R,
    columns_wanted: Columns,
) -> LineRows<R, WatchParser> {
    let lines = Lines::new(name, source);
    LineRows::new(lines, WatchParser::default(), columns_wanted, ColumnNames::default(), None)
}

/// Parses lines of `watch`.
#[derive(Default)]
pub(super) struct WatchParser {
    accesses: Accesses,
}

impl WatchParser {
    fn push(access: &Access, sink: &mut RowSink<'_>) {
        let parsed_row = ParsedRow {
            row_number: 1,
            key: KeyCell::Text(&access.key),
            time: Some(access.time_us),
            size: access.size.map(u64::from),
            op: Some(access.op),
            ttl: access.ttl.map(u64::from),
            request_count: None,
        };
        parsed_row.push(sink);
    }
}

impl LineParser for WatchParser {
    fn append(
        &mut self,
        _: &str,
        line: &[u8],
        _: u64,
        sink: &mut RowSink<'_>,
    ) -> Result<(), TraceError> {
        self.accesses.push(line);
        while let Some(access) = self.accesses.next_complete() {
            Self::push(&access, sink);
        }
        *sink.skipped_lines = self.accesses.skipped_lines + self.accesses.other_lines;
        Ok(())
    }

    fn finish(&mut self, sink: &mut RowSink<'_>) {
        while let Some(access) = self.accesses.next_at_end() {
            Self::push(&access, sink);
        }
    }

    fn has_time(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of memcached 1.6.18 for: get a (miss), set a, get b%c (miss), a hit, a store that lost, an expired store.
    const LINES: &str = "OK
ts=1795411822.759604 gid=2 type=item_get key=a status=not_found clsid=0 cfd=25 size=0
ts=1795411822.810261 gid=3 type=item_get key=a status=not_found clsid=0 cfd=25 size=0
ts=1795411822.810262 gid=9 type=item_get key=a status=not_found clsid=0 cfd=26 size=0
ts=1795411822.810266 gid=4 type=item_store key=a status=stored cmd=set ttl=100 clsid=1 cfd=25 size=5
ts=1795411822.860102 gid=6 type=item_get key=b%25c status=not_found clsid=0 cfd=25 size=0
ts=1795411823.10724 gid=10 type=item_get key=a status=found clsid=1 cfd=25 size=5
skipped=3
ts=1795411823.618831 gid=26 type=item_get key=n status=found clsid=1 cfd=25 size=1
ts=1795411823.618832 gid=27 type=item_store key=n status=exists cmd=cas ttl=0 clsid=1 cfd=25 size=1
ts=1795411823.669036 gid=28 type=item_get key=x status=not_found clsid=0 cfd=25 size=0
ts=1795411823.669040 gid=29 type=item_store key=x status=stored cmd=set ttl=4294967233 clsid=1 cfd=25 size=1";

    #[test]
    fn gets_and_writes_are_found_without_the_lookups_of_stores() {
        let mut accesses = Accesses::default();
        LINES.lines().for_each(|line| accesses.push(line.as_bytes()));
        assert_eq!(accesses.next_complete(), None);
        let parsed_accesses: Vec<Access> = std::iter::from_fn(|| accesses.next_at_end()).collect();
        let expected = [
            (2_759_604, &b"a"[..], Op::Get, None, None),
            (2_810_262, b"a", Op::Get, None, None),
            (2_810_266, b"a", Op::Set, Some(5), Some(100)),
            (2_860_102, b"b%c", Op::Get, None, None),
            (3_010_724, b"a", Op::Get, Some(5), None),
            (3_669_040, b"x", Op::Delete, None, None),
        ];
        assert_eq!(parsed_accesses.len(), expected.len());
        for (access, (time_us, key, op, size, ttl)) in parsed_accesses.iter().zip(expected) {
            assert_eq!((access.time_us % 10_000_000, &access.key[..]), (time_us, key));
            assert_eq!((access.op, access.size, access.ttl), (op, size, ttl));
        }
        assert_eq!((accesses.skipped_lines, accesses.other_lines), (3, 2));
    }

    #[test]
    fn keeps_percent_signs_without_hex_digits() {
        assert_eq!(unescape_key(b"a%20b%25"), b"a b%");
        assert_eq!(unescape_key(b"100%"), b"100%");
        assert_eq!(unescape_key(b"%zz%4"), b"%zz%4");
    }
}
