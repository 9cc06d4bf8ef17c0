//! One line of `watch`, as memcached and glasscache print it: `ts=… gid=… type=item_get key=… status=… cfd=…`.
//!
//! The form is that of memcached's `doc/protocol.txt`, section "Watchers". Unknown fields and types are ignored.

/// An event that a line reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A lookup: a client's get, or the lookup that precedes another command.
    Fetch {
        /// The key.
        key: Vec<u8>,
        /// The result.
        status: FetchStatus,
        /// The descriptor of the connection.
        connection: u32,
    },
    /// A value was stored, or refused.
    Store {
        /// The key.
        key: Vec<u8>,
        /// Whether the value was stored.
        is_stored: bool,
        /// Seconds it may live; `None` lives until it is evicted.
        ttl_s: Option<u64>,
        /// The descriptor of the connection.
        connection: u32,
    },
    /// An item was evicted.
    Evict {
        /// The key.
        key: Vec<u8>,
        /// Whether it had been read.
        was_read: bool,
    },
    /// An item was deleted.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
    /// The server dropped this many lines because they were not read in time.
    Skipped(u64),
}

/// The result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchStatus {
    /// A hit.
    Found,
    /// A miss, without a reason.
    NotFound,
    /// A miss on an item past its TTL.
    Expired,
    /// A miss on an item that was flushed.
    Flushed,
}

impl Event {
    /// Reads a line without its end, and its time in seconds; `None` for lines that report nothing of interest.
    pub fn parse(line: &str) -> Option<(f64, Event)> {
        let mut fields = Fields::default();
        for word in line.split_ascii_whitespace() {
            let Some((name, value)) = word.split_once('=') else {
                continue;
            };
            match name {
                "ts" => fields.time_s = value.parse().unwrap_or_default(),
                "type" => fields.kind = value,
                "key" => fields.key = unescape_key(value),
                "status" => fields.status = value,
                "ttl" => fields.ttl_s = value.parse().ok().filter(|&ttl| ttl > 0),
                "cfd" => fields.connection = value.parse().unwrap_or_default(),
                "fetch" => fields.was_read = value == "yes",
                "skipped" => return Some((0.0, Event::Skipped(value.parse().unwrap_or(1)))),
                _ => {}
            }
        }
        let time_s = fields.time_s;
        fields.event().map(|event| (time_s, event))
    }
}

#[derive(Default)]
struct Fields<'l> {
    time_s: f64,
    kind: &'l str,
    key: Vec<u8>,
    status: &'l str,
    ttl_s: Option<u64>,
    connection: u32,
    was_read: bool,
}

impl Fields<'_> {
    fn event(self) -> Option<Event> {
        let Fields {
            key, connection, ..
        } = self;
        if key.is_empty() {
            return None;
        }
        match self.kind {
            "item_get" => Some(Event::Fetch {
                key,
                status: match self.status {
                    "found" => FetchStatus::Found,
                    "expired" => FetchStatus::Expired,
                    "flushed" => FetchStatus::Flushed,
                    _ => FetchStatus::NotFound,
                },
                connection,
            }),
            "item_store" => Some(Event::Store {
                key,
                is_stored: self.status == "stored",
                ttl_s: self.ttl_s,
                connection,
            }),
            "eviction" => Some(Event::Evict {
                key,
                was_read: self.was_read,
            }),
            "deleted" => Some(Event::Delete { key }),
            _ => None,
        }
    }
}

/// The key behind the percent-encoding of `watch` and `lru_crawler metadump`: `a%20b` is `a b`.
///
/// A percent sign without two hex digits after it is kept as it is.
pub fn unescape_key(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let escaped = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let (b'%', Some(byte)) = (first, escaped) {
            bytes.push(byte);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_watch_lines_of_memcached() {
        let parse = |line| Event::parse(line);
        assert_eq!(
            parse("ts=1.5 gid=2 type=item_get key=a%3A1 status=not_found clsid=0 cfd=25 size=0"),
            Some((
                1.5,
                Event::Fetch {
                    key: b"a:1".to_vec(),
                    status: FetchStatus::NotFound,
                    connection: 25
                }
            ))
        );
        assert_eq!(
            parse(
                "ts=2.0 gid=4 type=item_store key=a status=stored cmd=set ttl=1 clsid=1 cfd=25 size=1"
            ),
            Some((
                2.0,
                Event::Store {
                    key: b"a".to_vec(),
                    is_stored: true,
                    ttl_s: Some(1),
                    connection: 25
                }
            ))
        );
        assert_eq!(
            parse("ts=2.0 gid=5 type=eviction key=a fetch=yes ttl=-1 la=7 clsid=1 size=1"),
            Some((
                2.0,
                Event::Evict {
                    key: b"a".to_vec(),
                    was_read: true
                }
            ))
        );
        assert_eq!(parse("skipped=17"), Some((0.0, Event::Skipped(17))));
        assert_eq!(parse("OK"), None);
        assert_eq!(
            parse("ts=2.0 gid=5 type=conn_new rip=127.0.0.1 cfd=9"),
            None
        );
    }

    #[test]
    fn keeps_percent_signs_without_hex_digits() {
        assert_eq!(unescape_key("a%20b%25"), b"a b%");
        assert_eq!(unescape_key("100%"), b"100%");
        assert_eq!(unescape_key("%zz%4"), b"%zz%4");
    }
}
