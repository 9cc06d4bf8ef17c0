//! The watchers of a server and their pending lines.
//!
//! A watcher that does not read loses lines, and is sent their number, so that a slow reader never delays the
//! cache.

use std::io::Write as _;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use glasscache_protocol::ascii;

use crate::shared::lock::lock;
use crate::shared::peer_memory::{Charge, PeerMemory};
use crate::shared::wake::Waker;

/// Maximum number of watchers, as in memcached.
const WATCHERS_MAX: usize = 20;

/// Kinds of events, one bit each.
pub(crate) mod kind {
    pub(crate) const FETCHERS: u16 = 1;
    pub(crate) const MUTATIONS: u16 = 2;
    pub(crate) const EVICTIONS: u16 = 4;
    pub(crate) const CONNEVENTS: u16 = 8;
    pub(crate) const DELETIONS: u16 = 16;
    /// Kinds that memcached has and this server never reports: accepted, silent.
    pub(crate) const OTHERS: u16 = 32;
}

/// The kinds of events that one connection watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchedKinds(u16);

impl WatchedKinds {
    /// Parses the arguments of `watch`; none means fetchers.
    pub(crate) fn parse(arguments: &[u8]) -> Option<WatchedKinds> {
        let mut kinds = 0;
        for token in ascii::tokens(arguments) {
            kinds |= match token {
                b"fetchers" => kind::FETCHERS,
                b"mutations" => kind::MUTATIONS,
                b"evictions" => kind::EVICTIONS,
                b"connevents" => kind::CONNEVENTS,
                b"deletions" => kind::DELETIONS,
                b"rawcmds" | b"sysevents" | b"proxyreqs" | b"proxyevents" | b"proxyuser" => {
                    kind::OTHERS
                }
                _ => return None,
            };
        }
        Some(WatchedKinds(if kinds == 0 {
            kind::FETCHERS
        } else {
            kinds
        }))
    }
}

/// All watchers of one server.
pub(crate) struct Watchers {
    /// Maximum of unsent bytes of a watcher before lines are dropped.
    buffer_bytes: usize,
    /// The kinds that any watcher watches.
    kinds: AtomicU16,
    next_line: AtomicU64,
    memory: Arc<PeerMemory>,
    connected: Mutex<Vec<Watcher>>,
}

struct Watcher {
    serial: u64,
    kinds: u16,
    unsent: Vec<u8>,
    /// Charged for `unsent`.
    charge: Charge,
    skipped_lines: u64,
    /// The loss of lines was logged since it last caught up.
    is_loss_logged: bool,
    /// The worker that owns the connection.
    owner: Waker,
}

impl Watchers {
    pub(crate) fn new(buffer_bytes: usize, memory: Arc<PeerMemory>) -> Watchers {
        Watchers {
            buffer_bytes,
            kinds: AtomicU16::new(0),
            next_line: AtomicU64::new(0),
            memory,
            connected: Mutex::default(),
        }
    }

    /// Whether there are watchers.
    pub(crate) fn has_watchers(&self) -> bool {
        self.kinds.load(Ordering::Relaxed) != 0
    }

    /// The number of watchers.
    pub(crate) fn count(&self) -> usize {
        lock(&self.connected).len()
    }

    /// Adds a watcher; false when there are too many.
    pub(crate) fn add(&self, serial: u64, watched_kinds: WatchedKinds, owner: Waker) -> bool {
        let mut watchers = lock(&self.connected);
        if watchers.len() >= WATCHERS_MAX {
            return false;
        }
        let WatchedKinds(kinds) = watched_kinds;
        watchers.push(Watcher {
            serial,
            kinds,
            unsent: Vec::new(),
            charge: self.memory.charge(0),
            skipped_lines: 0,
            is_loss_logged: false,
            owner,
        });
        self.kinds.fetch_or(kinds, Ordering::Relaxed);
        true
    }

    /// Removes a connection from the watchers, if it is one.
    pub(crate) fn remove(&self, serial: u64) {
        let mut watchers = lock(&self.connected);
        watchers.retain(|watcher| watcher.serial != serial);
        let kinds = watchers
            .iter()
            .fold(0, |kinds, watcher| kinds | watcher.kinds);
        self.kinds.store(kinds, Ordering::Relaxed);
    }

    /// The pending lines of one watcher, and after them the number of lines it missed: a watcher that has caught up
    /// and waits is informed at once, not with the next event.
    pub(crate) fn take(&self, serial: u64) -> Vec<u8> {
        let mut watchers = lock(&self.connected);
        let watcher = watchers.iter_mut().find(|watcher| watcher.serial == serial);
        watcher.map(Watcher::take).unwrap_or_default()
    }

    /// Whether any watcher watches this kind.
    pub(crate) fn wants(&self, kind: u16) -> bool {
        self.kinds.load(Ordering::Relaxed) & kind != 0
    }

    /// Appends one line for all watchers of its kind; returns the serial number of one that just began to miss
    /// lines.
    pub(crate) fn publish(&self, kind: u16, text: &[u8]) -> Option<u64> {
        let mut line = Vec::with_capacity(text.len() + 48);
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let id = self.next_line.fetch_add(1, Ordering::Relaxed) + 1;
        // Writing to a vector cannot fail.
        let _ = write!(
            line,
            "ts={}.{} gid={id} ",
            time.as_secs(),
            time.subsec_micros()
        );
        line.extend_from_slice(text);
        line.push(b'\n');
        let mut started_missing = None;
        for watcher in lock(&self.connected)
            .iter_mut()
            .filter(|w| w.kinds & kind != 0)
        {
            watcher.append(&line, self.buffer_bytes);
            if watcher.skipped_lines == 1 && !watcher.is_loss_logged {
                watcher.is_loss_logged = true;
                started_missing = Some(watcher.serial);
            }
        }
        started_missing
    }
}

impl Watcher {
    fn append(&mut self, line: &[u8], buffer_bytes: usize) {
        if self.unsent.len() + line.len() > buffer_bytes {
            self.skipped_lines += 1;
            return;
        }
        self.unsent.extend_from_slice(line);
        if self.unsent.capacity() != self.charge.bytes() {
            self.charge.set(self.unsent.capacity());
        }
        self.owner.wake();
    }

    fn take(&mut self) -> Vec<u8> {
        let mut lines = std::mem::take(&mut self.unsent);
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

    #[test]
    fn a_watcher_that_does_not_read_receives_the_number_of_missed_lines() {
        let watchers = Watchers::new(256 << 10, memory());
        assert!(watchers.add(1, WatchedKinds(kind::FETCHERS), Waker::new().unwrap()));
        let text = [b'x'; 1000];
        for _ in 0..300 {
            watchers.publish(kind::FETCHERS, &text);
        }
        let lines = String::from_utf8(watchers.take(1)).unwrap();
        let last = lines.lines().last().unwrap();
        assert!(lines.len() - last.len() - 1 <= 256 << 10);
        let missed: usize = last.strip_prefix("skipped=").unwrap().parse().unwrap();
        assert_eq!(lines.lines().count() - 1 + missed, 300);
        watchers.publish(kind::FETCHERS, &text);
        assert!(watchers.take(1).starts_with(b"ts="));
        watchers.remove(1);
        assert!(!watchers.has_watchers());
    }
}
