//! `watch`: connections that receive a line for each event of the kinds they asked for.
//!
//! A worker renders a line only while somebody watches, and appends it to each watcher's buffer;
//! the worker that owns the watcher sends it. A watcher that does not read loses lines, and is told
//! how many, so that a slow reader never holds up the cache. The lines have memcached's form.

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use glasscache_protocol::ascii;
use glasscache_store::{
    DeleteOptions, Evicted, Expiry, KeyHash, Seconds, SetMode, SetOptions, SetOutcome,
};

use crate::connection::{Info, Peer};
use crate::shared::{Shared, lock};
use crate::turn::Turn;
use crate::wake::Waker;

/// Watchers at once, as in memcached.
const WATCHERS_MAX: usize = 20;

/// Kinds of events, one bit each.
pub(crate) mod kind {
    pub(crate) const FETCHERS: u16 = 1;
    pub(crate) const MUTATIONS: u16 = 2;
    pub(crate) const EVICTIONS: u16 = 4;
    pub(crate) const CONNEVENTS: u16 = 8;
    pub(crate) const DELETIONS: u16 = 16;
    /// Kinds that memcached has and we never report: accepted, silent.
    pub(crate) const OTHERS: u16 = 32;
}

/// The kinds of events one connection asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watching(u16);

impl Watching {
    /// Reads the words behind `watch`; none means fetchers.
    pub(crate) fn parse(arguments: &[u8]) -> Option<Watching> {
        let mut kinds = 0;
        for word in ascii::tokens(arguments) {
            kinds |= match word {
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
        Some(Watching(if kinds == 0 { kind::FETCHERS } else { kinds }))
    }
}

/// All watchers of one server.
pub(crate) struct Hub {
    /// Unsent bytes a watcher may have waiting before lines are dropped.
    buffer_bytes: usize,
    /// The kinds that anybody watches.
    kinds: AtomicU16,
    next_line: AtomicU64,
    watchers: Mutex<Vec<Watcher>>,
}

struct Watcher {
    serial: u64,
    kinds: u16,
    unsent: Vec<u8>,
    skipped: u64,
    /// The worker that owns the connection.
    owner: Waker,
}

impl Hub {
    pub(crate) fn new(buffer_bytes: usize) -> Hub {
        Hub {
            buffer_bytes,
            kinds: AtomicU16::new(0),
            next_line: AtomicU64::new(0),
            watchers: Mutex::default(),
        }
    }

    /// Whether anybody watches anything.
    pub(crate) fn has_watchers(&self) -> bool {
        self.kinds.load(Ordering::Relaxed) != 0
    }

    /// How many watch.
    pub(crate) fn count(&self) -> usize {
        lock(&self.watchers).len()
    }

    /// Adds a watcher; false when there are too many.
    pub(crate) fn add(&self, serial: u64, watching: Watching, owner: Waker) -> bool {
        let mut watchers = lock(&self.watchers);
        if watchers.len() >= WATCHERS_MAX {
            return false;
        }
        let Watching(kinds) = watching;
        watchers.push(Watcher {
            serial,
            kinds,
            unsent: Vec::new(),
            skipped: 0,
            owner,
        });
        self.kinds.fetch_or(kinds, Ordering::Relaxed);
        true
    }

    /// Removes a connection from the watchers, if it is one.
    pub(crate) fn remove(&self, serial: u64) {
        let mut watchers = lock(&self.watchers);
        watchers.retain(|watcher| watcher.serial != serial);
        let kinds = watchers
            .iter()
            .fold(0, |kinds, watcher| kinds | watcher.kinds);
        self.kinds.store(kinds, Ordering::Relaxed);
    }

    /// The lines that wait for one watcher.
    pub(crate) fn take(&self, serial: u64) -> Vec<u8> {
        let mut watchers = lock(&self.watchers);
        let watcher = watchers.iter_mut().find(|watcher| watcher.serial == serial);
        watcher
            .map(|watcher| std::mem::take(&mut watcher.unsent))
            .unwrap_or_default()
    }

    /// Whether anybody watches this kind.
    pub(crate) fn wants(&self, kind: u16) -> bool {
        self.kinds.load(Ordering::Relaxed) & kind != 0
    }

    /// Gives one line to all who watch its kind.
    fn publish(&self, kind: u16, text: &[u8]) {
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
        for watcher in lock(&self.watchers)
            .iter_mut()
            .filter(|w| w.kinds & kind != 0)
        {
            watcher.append(&line, self.buffer_bytes);
        }
    }
}

impl Watcher {
    fn append(&mut self, line: &[u8], buffer_bytes: usize) {
        if self.unsent.len() + line.len() > buffer_bytes {
            self.skipped += 1;
            return;
        }
        if self.skipped > 0 {
            let _ = writeln!(self.unsent, "skipped={}", self.skipped);
            self.skipped = 0;
        }
        self.unsent.extend_from_slice(line);
        self.owner.wake();
    }
}

/// A key was asked for.
pub(crate) fn fetched(turn: &Turn<'_>, key: &[u8], value_bytes: Option<u32>) {
    if !turn.shared.hub.wants(kind::FETCHERS) {
        return;
    }
    let mut text = b"type=item_get key=".to_vec();
    uri_encode(key, &mut text);
    let size = value_bytes.unwrap_or(0);
    let class = value_bytes.map_or(0, |bytes| turn.shared.classes.of(key.len(), bytes, 0).0);
    let status = if value_bytes.is_some() {
        "found"
    } else {
        "not_found"
    };
    let descriptor = turn.connection.id.descriptor;
    let _ = write!(
        text,
        " status={status} clsid={class} cfd={descriptor} size={size}"
    );
    turn.shared.hub.publish(kind::FETCHERS, &text);
}

/// A value is about to be stored: memcached looks first what is there, and its watchers see that.
pub(crate) fn storing(turn: &Turn<'_>, key: &[u8], hash: KeyHash) {
    if turn.shared.hub.wants(kind::FETCHERS) {
        let present = turn
            .store
            .peek(key, hash, turn.now)
            .map(|item| item.value_bytes());
        fetched(turn, key, present);
    }
}

/// A value was stored, or refused.
pub(crate) fn stored(
    turn: &Turn<'_>,
    key: &[u8],
    outcome: SetOutcome,
    options: &SetOptions,
    value_bytes: u32,
) {
    if !turn.shared.hub.wants(kind::MUTATIONS) {
        return;
    }
    let status = match outcome {
        SetOutcome::Stored(_) => "stored",
        SetOutcome::NotStored => "not_stored",
        SetOutcome::Exists => "exists",
        SetOutcome::NotFound => "not_found",
        SetOutcome::TooLarge => "too_large",
        SetOutcome::NoMemory => "no_memory",
    };
    let command = match options.mode {
        SetMode::Set if options.compare.is_some() => "cas",
        SetMode::Set => "set",
        SetMode::Add => "add",
        SetMode::Replace => "replace",
        SetMode::Append => "append",
        SetMode::Prepend => "prepend",
    };
    let ttl = match options.expiry {
        Expiry::Never => 0,
        Expiry::At(at) => at.0.saturating_sub(turn.now.0),
    };
    let (class, _) = turn
        .shared
        .classes
        .of(key.len(), value_bytes, options.flags);
    let mut text = b"type=item_store key=".to_vec();
    uri_encode(key, &mut text);
    let descriptor = turn.connection.id.descriptor;
    let _ = write!(
        text,
        " status={status} cmd={command} ttl={ttl} clsid={class} cfd={descriptor} size={value_bytes}"
    );
    turn.shared.hub.publish(kind::MUTATIONS, &text);
}

/// An item is about to be deleted; marking it stale deletes nothing.
pub(crate) fn deleting(
    turn: &Turn<'_>,
    (key, hash): (&[u8], KeyHash),
    options: &DeleteOptions,
    is_meta: bool,
) {
    if options.invalidate || !turn.shared.hub.wants(kind::DELETIONS) {
        return;
    }
    let Some(item) = turn.store.peek(key, hash, turn.now) else {
        return;
    };
    if options
        .compare
        .is_some_and(|unique| unique != item.unique())
    {
        return;
    }
    let command = if is_meta { "md" } else { "delete" };
    let (class, _) = turn
        .shared
        .classes
        .of(key.len(), item.value_bytes(), item.flags());
    let mut text = b"type=deleted key=".to_vec();
    uri_encode(key, &mut text);
    let _ = write!(
        text,
        " cmd={command} clsid={class} size={}",
        item.value_bytes()
    );
    turn.shared.hub.publish(kind::DELETIONS, &text);
}

/// An item was evicted.
pub(crate) fn evicted(shared: &Shared, item: &Evicted, now: Seconds) {
    if !shared.hub.wants(kind::EVICTIONS) {
        return;
    }
    let (class, _) = shared.classes.of(item.key.len(), item.value_bytes, 0);
    let mut text = b"type=eviction key=".to_vec();
    uri_encode(&item.key, &mut text);
    let _ = write!(
        text,
        " fetch={} ttl={} la={} clsid={class} size={}",
        if item.was_fetched { "yes" } else { "no" },
        item.ttl_s.map_or(-1, i64::from),
        now.0.saturating_sub(item.last_access.0),
        item.value_bytes
    );
    shared.hub.publish(kind::EVICTIONS, &text);
}

/// A connection was opened, or closed for `reason`.
pub(crate) fn connection(shared: &Shared, info: &Info, reason: Option<&str>) {
    if !shared.hub.wants(kind::CONNEVENTS) {
        return;
    }
    let (address, port, transport) = match &info.peer {
        Peer::Tcp(peer) => (peer.ip().to_string(), peer.port(), "tcp"),
        Peer::Unix => ("unix".to_owned(), 0, "local"),
    };
    let event = if reason.is_some() {
        "conn_close"
    } else {
        "conn_new"
    };
    let reason = reason
        .map(|reason| format!(" reason={reason}"))
        .unwrap_or_default();
    let descriptor = info.id.descriptor;
    let text = format!(
        "type={event} rip={address} rport={port} transport={transport}{reason} cfd={descriptor}"
    );
    shared.hub.publish(kind::CONNEVENTS, text.as_bytes());
}

/// Appends `key` with everything but letters, digits and `-._~` as percent and two hex digits.
pub(crate) fn uri_encode(key: &[u8], out: &mut Vec<u8>) {
    for byte in key {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(*byte);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_that_does_not_read_is_told_how_much_it_missed() {
        let hub = Hub::new(256 << 10);
        assert!(hub.add(1, Watching(kind::FETCHERS), Waker::new().unwrap()));
        let text = [b'x'; 1000];
        for _ in 0..300 {
            hub.publish(kind::FETCHERS, &text);
        }
        assert!(hub.take(1).len() <= 256 << 10);
        hub.publish(kind::FETCHERS, &text);
        assert!(hub.take(1).starts_with(b"skipped="));
        hub.remove(1);
        assert!(!hub.has_watchers());
    }

    #[test]
    fn keys_are_percent_encoded() {
        let mut out = Vec::new();
        uri_encode(b"a#b c", &mut out);
        assert_eq!(out, b"a%23b%20c");
    }
}
