//! The registry of open connections, for listings and for finding stalled ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::shared::connection_info::ConnectionInfo;
use crate::shared::lock::lock;

/// The open connections and their counters.
#[derive(Default)]
pub(crate) struct Connections {
    /// Connections that are open now.
    pub(crate) current: AtomicI64,
    /// Connections opened since the start.
    pub(crate) total: AtomicU64,
    /// Open connections that have not logged in, where a login is required.
    pub(crate) unauthenticated: AtomicI64,
    /// Connections refused because of `-c`.
    pub(crate) rejected: AtomicU64,
    /// Times the listener paused because of `-c`.
    pub(crate) listen_disabled: AtomicU64,
    /// Microseconds of these pauses.
    pub(crate) listen_disabled_us: AtomicU64,
    by_serial: Mutex<BTreeMap<u64, Arc<ConnectionInfo>>>,
}

impl Connections {
    pub(crate) fn insert(&self, info: Arc<ConnectionInfo>) {
        lock(&self.by_serial).insert(info.id.serial, info);
    }

    pub(crate) fn remove(&self, serial: u64) {
        if let Some(info) = lock(&self.by_serial).remove(&serial) {
            self.set_awaits_login(&info, false);
        }
        self.current.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records whether a connection still has to log in.
    pub(crate) fn set_awaits_login(&self, info: &ConnectionInfo, awaits_login: bool) {
        match (info.awaits_login.swap(awaits_login, Ordering::Relaxed), awaits_login) {
            (false, true) => self.unauthenticated.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.unauthenticated.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// The connections for which `pick` returns a value, with that value.
    pub(crate) fn select<T>(
        &self,
        mut pick: impl FnMut(&ConnectionInfo) -> Option<T>,
    ) -> Vec<(T, Arc<ConnectionInfo>)> {
        lock(&self.by_serial)
            .values()
            .filter_map(|info| Some((pick(info)?, Arc::clone(info))))
            .collect()
    }

    /// The first `count` open connections after this serial number, in the order of their opening.
    pub(crate) fn list_after(&self, serial: u64, count: usize) -> Vec<Arc<ConnectionInfo>> {
        let connections = lock(&self.by_serial);
        let later_connections = connections.range(serial.saturating_add(1)..);
        later_connections.take(count).map(|(_, info)| Arc::clone(info)).collect()
    }

    /// All open connections, in the order of their opening.
    pub(crate) fn list(&self) -> Vec<Arc<ConnectionInfo>> {
        lock(&self.by_serial).values().cloned().collect()
    }
}
