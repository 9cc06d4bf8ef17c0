//! The lines of `watch` about evictions and connections, in memcached's form, and the delivery of every line to
//! watchers.
//!
//! A worker renders a line only while there are watchers, and appends it to the buffer of each (`watchers`); the
//! worker that owns the watcher sends it.

use std::io::Write as _;

use glasscache_protocol::percent;
use glasscache_store::{EvictedItem, Seconds};

use crate::shared::Shared;
use crate::shared::connection_info::{ConnectionInfo, Peer};
use crate::shared::log_output::LogLevel;
use crate::shared::watchers::{Subject, kind};

/// Publishes a line to the watchers whose filter it matches.
pub(crate) fn publish(shared: &Shared, kind: u16, subject: Subject<'_>, text: &[u8]) {
    if let Some(serial) = shared.watchers.publish(kind, subject, text)
        && shared.logs_at(1)
    {
        shared.log.queue_line(
            LogLevel::Warning,
            format!(
                "glasscache: the watcher on connection {serial} reads too slowly and misses lines"
            ),
        );
    }
}

/// Publishes that an item was evicted.
pub(crate) fn publish_eviction(shared: &Shared, item: &EvictedItem, now: Seconds) {
    if !shared.watchers.is_watched(kind::EVICTIONS) {
        return;
    }
    let (class, _) = shared.slab_classes.class_and_size(item.key.len(), item.value_bytes, 0);
    let mut text = b"type=eviction key=".to_vec();
    percent::encode(&item.key, &mut text);
    let _ = write!(
        text,
        " fetch={} ttl={} la={} clsid={class} size={}",
        if item.was_fetched { "yes" } else { "no" },
        item.ttl_s.map_or(-1, i64::from),
        now.0.saturating_sub(item.last_access.0),
        item.value_bytes
    );
    publish(shared, kind::EVICTIONS, Subject::Key(&item.key), &text);
}

/// Publishes that a connection was opened, or closed for `reason`.
pub(crate) fn publish_connection(shared: &Shared, info: &ConnectionInfo, reason: Option<&str>) {
    if !shared.watchers.is_watched(kind::CONNEVENTS) {
        return;
    }
    let (address, port, transport) = match &info.client() {
        Peer::Tcp(peer) => (peer.ip().to_string(), peer.port(), "tcp"),
        Peer::Unix => ("unix".to_owned(), 0, "local"),
    };
    let event = if reason.is_some() { "conn_close" } else { "conn_new" };
    let reason_field = reason.map(|reason| format!(" reason={reason}")).unwrap_or_default();
    let descriptor = info.id.descriptor;
    let text = format!(
        "type={event} rip={address} rport={port} transport={transport}{reason_field} cfd={descriptor}"
    );
    publish(shared, kind::CONNEVENTS, Subject::Any, text.as_bytes());
}
