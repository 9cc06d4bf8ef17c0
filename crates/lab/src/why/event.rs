//! One line of `watch`, as memcached and glasscache print it: `ts=… gid=… type=item_get key=… status=… cfd=…`.
//!
//! The form is that of memcached's `doc/protocol.txt`, section "Watchers". Unknown fields and types are ignored. The
//! fields themselves are read by the simulator's crate, which also reads recorded lines.

use glasscache_sim::trace::watch::{WatchLine, unescape_key};

/// An event that a line reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
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
pub(crate) enum FetchStatus {
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
    pub(crate) fn parse(line: &str) -> Option<(f64, Event)> {
        let watch_line = WatchLine::parse(line.as_bytes());
        if watch_line.skipped > 0 {
            return Some((0.0, Event::Skipped(watch_line.skipped)));
        }
        if watch_line.key.is_empty() {
            return None;
        }
        let (key, connection) = (unescape_key(watch_line.key), watch_line.connection);
        let event = match watch_line.event_type {
            b"item_get" => Event::Fetch {
                key,
                status: match watch_line.status {
                    b"found" => FetchStatus::Found,
                    b"expired" => FetchStatus::Expired,
                    b"flushed" => FetchStatus::Flushed,
                    _ => FetchStatus::NotFound,
                },
                connection,
            },
            b"item_store" => Event::Store {
                key,
                is_stored: watch_line.status == b"stored",
                ttl_s: match watch_line.ttl_s {
                    _ if watch_line.is_stored_expired() => Some(0),
                    ttl_s => ttl_s.filter(|&ttl| ttl > 0),
                },
                connection,
            },
            b"eviction" => Event::Evict { key, was_read: watch_line.was_read },
            b"deleted" => Event::Delete { key },
            _ => return None,
        };
        Some((watch_line.time_us as f64 / 1e6, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_watch_lines_of_memcached() {
        let parse = |line| Event::parse(line);
        assert_eq!(
            parse(
                "ts=1.500000 gid=2 type=item_get key=a%3A1 status=not_found clsid=0 cfd=25 size=0"
            ),
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
            Some((2.0, Event::Evict { key: b"a".to_vec(), was_read: true }))
        );
        assert_eq!(parse("skipped=17"), Some((0.0, Event::Skipped(17))));
        assert_eq!(parse("OK"), None);
        assert_eq!(parse("ts=2.0 gid=5 type=conn_new rip=127.0.0.1 cfd=9"), None);
    }
}
