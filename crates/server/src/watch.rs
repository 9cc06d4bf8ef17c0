//! The lines of `watch`: what each event says to those who asked for its kind, in memcached's form.
//!
//! A worker renders a line only while somebody watches, and appends it to each watcher's buffer
//! (`hub`); the worker that owns the watcher sends it.

use std::io::Write as _;

use glasscache_store::{
    DeleteOptions, Evicted, Expiry, KeyHash, Seconds, SetMode, SetOptions, SetOutcome,
};

use crate::hub::kind;
use crate::info::{Info, Peer};
use crate::shared::Shared;
use crate::turn::Turn;

fn publish(shared: &Shared, kind: u16, text: &[u8]) {
    if let Some(serial) = shared.hub.publish(kind, text)
        && shared.logs(1)
    {
        shared.log.line(format!(
            "glasscache: the watcher on connection {serial} reads too slowly and misses lines"
        ));
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
    publish(turn.shared, kind::FETCHERS, &text);
}

/// What is under a key before a value is stored there: memcached looks first, and its watchers see that.
pub(crate) struct Before {
    /// Length of the value that is there.
    pub(crate) value_bytes: Option<u32>,
}

/// Looks what is under a key before a value is stored, if a watcher is to see it.
pub(crate) fn before_store(turn: &Turn<'_>, key: &[u8], hash: KeyHash) -> Before {
    let is_wanted = turn.shared.hub.wants(kind::FETCHERS);
    let present = is_wanted.then(|| turn.store.peek(key, hash, turn.now));
    Before {
        value_bytes: present.flatten().map(|item| item.value_bytes()),
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
    publish(turn.shared, kind::MUTATIONS, &text);
}

/// The line for an item that is about to be deleted, if a watcher is to see it; marking it stale deletes nothing.
pub(crate) fn before_delete(
    turn: &Turn<'_>,
    (key, hash): (&[u8], KeyHash),
    options: &DeleteOptions,
    is_meta: bool,
) -> Option<Vec<u8>> {
    if options.invalidate || !turn.shared.hub.wants(kind::DELETIONS) {
        return None;
    }
    let item = turn.store.peek(key, hash, turn.now)?;
    if options
        .compare
        .is_some_and(|unique| !item.has_unique(unique))
    {
        return None;
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
    Some(text)
}

/// Publishes the line of [`before_delete`].
pub(crate) fn deleted(shared: &Shared, line: &[u8]) {
    publish(shared, kind::DELETIONS, line);
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
    publish(shared, kind::EVICTIONS, &text);
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
    publish(shared, kind::CONNEVENTS, text.as_bytes());
}

/// Whether a key has no blank and no control byte, so that it can stand on a line.
pub(crate) fn is_plain(key: &[u8]) -> bool {
    key.iter().all(|byte| *byte > b' ' && *byte != 127)
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
    fn keys_are_percent_encoded() {
        let mut out = Vec::new();
        uri_encode(b"a#b c", &mut out);
        assert_eq!(out, b"a%23b%20c");
    }
}
