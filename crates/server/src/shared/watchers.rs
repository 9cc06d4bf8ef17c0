//! The watchers of a server and their pending lines.
//!
//! Lines wait for the next of the times at which watchers are served, so that twenty thousand a second cost a hundred
//! packets (docs/decisions/0082-coherent-near-caches.md). A watcher that does not read loses lines, and is sent their
//! number, so that a slow reader never delays the cache.

use std::io::Write as _;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use glasscache_protocol::{ascii, percent};

use crate::shared::lock::lock;
use crate::shared::peer_memory::{Charge, PeerMemory};
use crate::shared::wake::Waker;

/// Maximum number of watchers: each process with a coherent near cache is one. memcached has 20.
const WATCHERS_MAX: usize = 1000;

/// Time between two times at which watchers are sent their lines and heartbeats.
pub(crate) const SEND_INTERVAL: Duration = Duration::from_millis(10);

/// A watcher is urgent, and is served earlier, when its lines fill its buffer divided by this.
const URGENT_DIVISOR: usize = 4;

/// Kinds of events, one bit each.
pub(crate) mod kind {
    pub(crate) const FETCHERS: u16 = 1;
    pub(crate) const MUTATIONS: u16 = 2;
    pub(crate) const EVICTIONS: u16 = 4;
    pub(crate) const CONNEVENTS: u16 = 8;
    pub(crate) const DELETIONS: u16 = 16;
    /// Kinds that memcached has and this server never reports: accepted, silent.
    pub(crate) const UNREPORTED: u16 = 32;
}

/// The events that one connection watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchFilter {
    kinds: u16,
    /// Only lines about keys that start with it, and those about all keys.
    prefix: Vec<u8>,
    /// Whether the client requested heartbeats: each means that the watcher has received every line so far.
    wants_heartbeats: bool,
}

/// The keys that a line is about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject<'k> {
    Key(&'k [u8]),
    Prefix(&'k [u8]),
    /// All keys, or none.
    Any,
}

impl WatchFilter {
    /// Parses the arguments of `watch`; without a kind it is fetchers.
    pub(crate) fn parse(arguments: &[u8]) -> Option<WatchFilter> {
        let mut filter = WatchFilter { kinds: 0, prefix: Vec::new(), wants_heartbeats: false };
        for token in ascii::tokens(arguments) {
            filter.kinds |= match token {
                b"fetchers" => kind::FETCHERS,
                b"mutations" => kind::MUTATIONS,
                b"evictions" => kind::EVICTIONS,
                b"connevents" => kind::CONNEVENTS,
                b"deletions" => kind::DELETIONS,
                b"rawcmds" | b"sysevents" | b"proxyreqs" | b"proxyevents" | b"proxyuser" => {
                    kind::UNREPORTED
                }
                b"heartbeat" => {
                    filter.wants_heartbeats = true;
                    0
                }
                _ => {
                    filter.prefix = percent::decode(token.strip_prefix(b"prefix=")?);
                    0
                }
            };
        }
        if filter.kinds == 0 {
            filter.kinds = kind::FETCHERS;
        }
        Some(filter)
    }

    fn matches(&self, kind: u16, subject: Subject<'_>) -> bool {
        let is_of_prefix = match subject {
            Subject::Key(key) => key.starts_with(&self.prefix),
            Subject::Prefix(prefix) => {
                prefix.starts_with(&self.prefix) || self.prefix.starts_with(prefix)
            }
            Subject::Any => true,
        };
        self.kinds & kind != 0 && is_of_prefix
    }
}

/// All watchers of one server.
pub(crate) struct Watchers {
    /// Maximum of unsent bytes of a watcher before lines are dropped.
    buffer_bytes_max: usize,
    /// The kinds that any watcher watches.
    kinds: AtomicU16,
    last_line_id: AtomicU64,
    peer_memory: Arc<PeerMemory>,
    registered: Mutex<Vec<Watcher>>,
    /// The time from which heartbeats count milliseconds.
    heartbeat_origin: Instant,
}

struct Watcher {
    serial: u64,
    filter: WatchFilter,
    unsent_lines: Vec<u8>,
    /// Charged for `unsent_lines`.
    charge: Charge,
    skipped_lines: u64,
    /// Whether the loss of lines was logged since it last caught up.
    is_loss_logged: bool,
    /// Wakes the worker that owns the connection.
    owner_waker: Waker,
}

impl Watchers {
    pub(crate) fn new(buffer_bytes_max: usize, peer_memory: Arc<PeerMemory>) -> Watchers {
        Watchers {
            buffer_bytes_max,
            kinds: AtomicU16::new(0),
            last_line_id: AtomicU64::new(0),
            peer_memory,
            registered: Mutex::default(),
            heartbeat_origin: Instant::now(),
        }
    }

    /// Whether there are watchers.
    pub(crate) fn has_watchers(&self) -> bool {
        self.kinds.load(Ordering::Relaxed) != 0
    }

    /// The number of watchers.
    pub(crate) fn count(&self) -> usize {
        lock(&self.registered).len()
    }

    /// Adds a watcher; false when there are too many.
    pub(crate) fn add(&self, serial: u64, filter: WatchFilter, owner_waker: Waker) -> bool {
        let mut watchers = lock(&self.registered);
        if watchers.len() >= WATCHERS_MAX {
            return false;
        }
        let kinds = filter.kinds;
        watchers.push(Watcher {
            serial,
            filter,
            unsent_lines: Vec::new(),
            charge: self.peer_memory.charge(0),
            skipped_lines: 0,
            is_loss_logged: false,
            owner_waker,
        });
        self.kinds.fetch_or(kinds, Ordering::Relaxed);
        true
    }

    /// Removes a connection from the watchers, if it is one.
    pub(crate) fn remove(&self, serial: u64) {
        let mut watchers = lock(&self.registered);
        watchers.retain(|watcher| watcher.serial != serial);
        let kinds = watchers.iter().fold(0, |kinds, watcher| kinds | watcher.filter.kinds);
        self.kinds.store(kinds, Ordering::Relaxed);
    }

    /// Takes the pending lines of one watcher, and after them the number of lines it missed: a watcher that has caught
    /// up and waits is informed at once, not with the next event. A watcher with heartbeats gets one at the end.
    pub(crate) fn take_lines(&self, serial: u64) -> Vec<u8> {
        let mut watchers = lock(&self.registered);
        let watcher = watchers.iter_mut().find(|watcher| watcher.serial == serial);
        let Some(watcher) = watcher else {
            return Vec::new();
        };
        let mut lines = watcher.take_lines();
        if watcher.filter.wants_heartbeats {
            let elapsed_ms = self.heartbeat_origin.elapsed().as_millis();
            // Writing to a vector cannot fail.
            let _ = writeln!(lines, "type=heartbeat ms={elapsed_ms}");
        }
        lines
    }

    /// Takes the pending lines of one watcher of a server that was replaced. No heartbeat follows them: the successor
    /// changes items already, of which this server has no lines.
    pub(crate) fn take_final_lines(&self, serial: u64) -> Vec<u8> {
        let mut watchers = lock(&self.registered);
        let watcher = watchers.iter_mut().find(|watcher| watcher.serial == serial);
        watcher.map_or_else(Vec::new, Watcher::take_lines)
    }

    /// The serial numbers of the urgent watchers.
    pub(crate) fn urgent_serials(&self) -> Vec<u64> {
        lock(&self.registered)
            .iter()
            .filter(|watcher| watcher.unsent_lines.len() >= self.urgent_bytes())
            .map(|watcher| watcher.serial)
            .collect()
    }

    fn urgent_bytes(&self) -> usize {
        self.buffer_bytes_max / URGENT_DIVISOR
    }

    /// Whether any watcher watches this kind.
    pub(crate) fn is_watched(&self, kind: u16) -> bool {
        self.kinds.load(Ordering::Relaxed) & kind != 0
    }

    /// Appends one line for all watchers whose filter it matches; returns the serial number of one that just began to
    /// miss lines.
    pub(crate) fn publish(&self, kind: u16, subject: Subject<'_>, text: &[u8]) -> Option<u64> {
        let mut line = Vec::with_capacity(text.len() + 48);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line_id = self.last_line_id.fetch_add(1, Ordering::Relaxed) + 1;
        // Writing to a vector cannot fail.
        let _ = write!(line, "ts={}.{} gid={line_id} ", time.as_secs(), time.subsec_micros());
        line.extend_from_slice(text);
        line.push(b'\n');
        let mut lagging_serial = None;
        for watcher in lock(&self.registered)
            .iter_mut()
            .filter(|watcher| watcher.filter.matches(kind, subject))
        {
            watcher.append(&line, self.buffer_bytes_max, self.urgent_bytes());
            if watcher.skipped_lines == 1 && !watcher.is_loss_logged {
                watcher.is_loss_logged = true;
                lagging_serial = Some(watcher.serial);
            }
        }
        lagging_serial
    }
}

impl Watcher {
    fn append(&mut self, line: &[u8], buffer_bytes_max: usize, urgent_bytes: usize) {
        if self.unsent_lines.len() + line.len() > buffer_bytes_max {
            self.skipped_lines += 1;
            return;
        }
        let was_urgent = self.unsent_lines.len() >= urgent_bytes;
        self.unsent_lines.extend_from_slice(line);
        if self.unsent_lines.capacity() != self.charge.bytes() {
            self.charge.set(self.unsent_lines.capacity());
        }
        // Once: what a watcher does not take is sent when its socket is writable, or with the next lines.
        if !was_urgent && self.unsent_lines.len() >= urgent_bytes {
            self.owner_waker.wake();
        }
    }

    fn take_lines(&mut self) -> Vec<u8> {
        let mut lines = std::mem::take(&mut self.unsent_lines);
        self.charge.set(0);
        if self.skipped_lines > 0 {
            // Writing to a vector cannot fail.
            let _ = writeln!(lines, "skipped={}", self.skipped_lines);
            self.skipped_lines = 0;
            self.is_loss_logged = false;
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Arc<PeerMemory> {
        let config = glasscache_store::Config {
            memory_bytes: 64 << 20,
            workers: 1,
            ..glasscache_store::Config::default()
        };
        PeerMemory::new(glasscache_store::Store::new(config).unwrap(), Vec::new())
    }

    fn filter(arguments: &str) -> WatchFilter {
        WatchFilter::parse(arguments.as_bytes()).unwrap()
    }

    #[test]
    fn a_watcher_that_does_not_read_receives_the_number_of_missed_lines() {
        let watchers = Watchers::new(256 << 10, memory());
        assert!(watchers.add(1, filter("fetchers"), Waker::new().unwrap()));
        let text = [b'x'; 1000];
        for _ in 0..300 {
            watchers.publish(kind::FETCHERS, Subject::Any, &text);
        }
        let lines = String::from_utf8(watchers.take_lines(1)).unwrap();
        let last_line = lines.lines().last().unwrap();
        assert!(lines.len() - last_line.len() - 1 <= 256 << 10);
        let missed: usize = last_line.strip_prefix("skipped=").unwrap().parse().unwrap();
        assert_eq!(lines.lines().count() - 1 + missed, 300);
        watchers.publish(kind::FETCHERS, Subject::Any, &text);
        assert!(watchers.take_lines(1).starts_with(b"ts="));
        watchers.remove(1);
        assert!(!watchers.has_watchers());
    }

    #[test]
    fn lines_wake_the_worker_only_when_the_watcher_is_urgent() {
        let watchers = Watchers::new(4000, memory());
        let waker = Waker::new().unwrap();
        assert!(watchers.add(1, filter("fetchers"), waker.clone()));
        let is_woken = || rustix::io::read(&waker, &mut [0; 8]).is_ok();
        watchers.publish(kind::FETCHERS, Subject::Any, &[b'x'; 500]);
        assert!(!is_woken());
        assert!(watchers.urgent_serials().is_empty());
        watchers.publish(kind::FETCHERS, Subject::Any, &[b'x'; 500]);
        assert!(is_woken());
        assert_eq!(watchers.urgent_serials(), [1]);
        waker.clear();
        watchers.publish(kind::FETCHERS, Subject::Any, &[b'x'; 500]);
        assert!(!is_woken(), "the worker knows of it already");
        assert!(watchers.take_lines(1).len() > 1000);
        assert!(watchers.urgent_serials().is_empty());
    }

    #[test]
    fn last_lines_are_not_followed_by_a_heartbeat() {
        let watchers = Watchers::new(4000, memory());
        let waker = Waker::new().unwrap();
        assert!(watchers.add(1, filter("fetchers heartbeat"), waker));
        for (take, has_heartbeat) in [
            (Watchers::take_lines as fn(&Watchers, u64) -> Vec<u8>, true),
            (Watchers::take_final_lines, false),
        ] {
            watchers.publish(kind::FETCHERS, Subject::Any, b"type=item_get");
            let lines = String::from_utf8(take(&watchers, 1)).unwrap();
            assert!(lines.contains("type=item_get"), "{lines}");
            assert_eq!(lines.contains("type=heartbeat"), has_heartbeat, "{lines}");
        }
    }

    #[test]
    fn watcher_of_a_prefix_receives_lines_about_its_keys_and_about_all_keys() {
        let watchers = Watchers::new(256 << 10, memory());
        let arguments = "mutations deletions prefix=a%3A";
        assert!(watchers.add(1, filter(arguments), Waker::new().unwrap()));
        for (kind, subject, text) in [
            (kind::MUTATIONS, Subject::Key(b"a:1"), "own-key"),
            (kind::MUTATIONS, Subject::Key(b"b:1"), "foreign-key"),
            (kind::DELETIONS, Subject::Prefix(b"a:x"), "own-prefix"),
            (kind::DELETIONS, Subject::Prefix(b"a"), "wider-prefix"),
            (kind::DELETIONS, Subject::Prefix(b"b"), "foreign-prefix"),
            (kind::DELETIONS, Subject::Any, "all-keys"),
            (kind::FETCHERS, Subject::Key(b"a:1"), "other-kind"),
        ] {
            watchers.publish(kind, subject, text.as_bytes());
        }
        let lines = String::from_utf8(watchers.take_lines(1)).unwrap();
        let texts: Vec<_> = lines.lines().filter_map(|line| line.split(' ').nth(2)).collect();
        assert_eq!(texts, ["own-key", "own-prefix", "wider-prefix", "all-keys"]);
    }

    #[test]
    fn heartbeat_follows_every_pending_line() {
        let watchers = Watchers::new(256 << 10, memory());
        assert!(watchers.add(1, filter("mutations heartbeat"), Waker::new().unwrap()));
        watchers.publish(kind::MUTATIONS, Subject::Any, b"line");
        let lines = String::from_utf8(watchers.take_lines(1)).unwrap();
        assert_eq!(lines.lines().count(), 2);
        let heartbeat = lines.lines().last().unwrap();
        let elapsed_ms = heartbeat.strip_prefix("type=heartbeat ms=").unwrap();
        assert!(elapsed_ms.parse::<u64>().is_ok());
    }

    #[test]
    fn unknown_words_of_watch_are_refused() {
        assert_eq!(WatchFilter::parse(b" mutations everything"), None);
        assert_eq!(filter("").kinds, kind::FETCHERS);
        assert_eq!(filter("prefix=%20b").prefix, b" b");
    }
}
