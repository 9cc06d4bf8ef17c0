//! The registry of open connections, for listings and for finding stalled ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use glasscache_store::Seconds;

use crate::shared::connection_info::ConnectionInfo;
use crate::shared::lock::lock;
use crate::shared::slots::Slots;
use crate::shared::source::Source;

/// What a connection that has to log in has done, for [`Slots`]: it has sent something.
const EFFORT_SENT: u32 = 1;
/// Its attempt is being verified.
const EFFORT_VERIFYING: u32 = 2;

/// What a connection with TLS has done when it sent a part of its first request: the later, the later it has to go.
fn effort_of_part(second: Seconds) -> u32 {
    second.0.min(u32::MAX - 3) + 1
}

/// The open connections and their counters.
#[derive(Default)]
pub(crate) struct Connections {
    /// Connections that are open now.
    pub(crate) current: AtomicI64,
    /// Connections opened since the start.
    pub(crate) total: AtomicU64,
    /// Connections refused because of `-c`.
    pub(crate) rejected: AtomicU64,
    /// Times the listener paused because of `-c`.
    pub(crate) listen_disabled: AtomicU64,
    /// Microseconds of these pauses.
    pub(crate) listen_disabled_us: AtomicU64,
    by_serial: Mutex<BTreeMap<u64, Arc<ConnectionInfo>>>,
    /// Open connections that have not logged in, where a login is required.
    unauthenticated: Mutex<Slots>,
    unauthenticated_count: AtomicUsize,
    /// Open connections with TLS that have not sent a request.
    unproven: Mutex<Slots>,
    /// Connections that lost their place before they logged in, since the start.
    pub(crate) displaced: AtomicU64,
    /// Those of them that are still open.
    displaced_open: AtomicUsize,
}

impl Connections {
    pub(crate) fn insert(&self, info: Arc<ConnectionInfo>) {
        lock(&self.by_serial).insert(info.id.serial, info);
    }

    pub(crate) fn remove(&self, serial: u64) {
        if let Some(info) = lock(&self.by_serial).remove(&serial) {
            self.set_awaits_login(&info, false);
            self.record_proof(&info);
        }
        self.current.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records whether a connection still has to log in.
    pub(crate) fn set_awaits_login(&self, info: &ConnectionInfo, awaits_login: bool) {
        if info.awaits_login.swap(awaits_login, Ordering::Relaxed) == awaits_login {
            return;
        }
        let mut unauthenticated = lock(&self.unauthenticated);
        if awaits_login {
            let source = Source::of(&info.client());
            unauthenticated.insert(info.id.serial, source, Instant::now());
        } else {
            unauthenticated.remove(info.id.serial);
            if info.is_displaced.swap(false, Ordering::Relaxed) {
                self.displaced_open.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.unauthenticated_count.store(unauthenticated.len(), Ordering::Relaxed);
    }

    /// Records that a connection that has to log in has sent something, and whether its attempt is being verified.
    pub(crate) fn record_login_effort(&self, info: &ConnectionInfo, is_verifying: bool) {
        let effort = if is_verifying { EFFORT_VERIFYING } else { EFFORT_SENT };
        lock(&self.unauthenticated).set_effort(info.id.serial, effort);
    }

    /// Open connections that have not logged in, where a login is required.
    pub(crate) fn unauthenticated(&self) -> usize {
        self.unauthenticated_count.load(Ordering::Relaxed)
    }

    /// Records a connection with TLS, which has not sent a request yet.
    pub(crate) fn add_unproven(&self, info: &ConnectionInfo) {
        let source = Source::of(&info.client());
        lock(&self.unproven).insert(info.id.serial, source, Instant::now());
        info.is_unproven.store(true, Ordering::Release);
    }

    /// Records that a connection has sent a request.
    pub(crate) fn record_proof(&self, info: &ConnectionInfo) {
        if info.is_unproven.swap(false, Ordering::AcqRel) {
            lock(&self.unproven).remove(info.id.serial);
        }
    }

    /// Records that a connection with TLS has sent a part of its first request, or that it waits for the server to read
    /// that.
    pub(crate) fn record_part(&self, info: &ConnectionInfo, now: Seconds, waits_for_server: bool) {
        let effort = if waits_for_server { u32::MAX } else { effort_of_part(now) };
        lock(&self.unproven).set_effort(info.id.serial, effort);
    }

    /// Whether a connection with TLS has not sent a request.
    pub(crate) fn has_unproven(&self) -> bool {
        lock(&self.unproven).len() > 0
    }

    /// Takes a connection with TLS that has not sent a request, and no part of it after the second `last_part`, to close
    /// it for a new one: of the source with the most of them the one that has been silent for longest. One that waits for
    /// the server is not taken.
    pub(crate) fn take_unproven(&self, last_part: Seconds) -> Option<Arc<ConnectionInfo>> {
        let mut unproven = lock(&self.unproven);
        let serial = unproven.first_to_go(effort_of_part(last_part) + 1, Instant::now())?;
        unproven.remove(serial);
        drop(unproven);
        lock(&self.by_serial).get(&serial).cloned()
    }

    /// Takes the place of a connection that has not logged in, for a new one: of the source with the most places the
    /// one that has done least. If the attempts of that source are all being verified, it gives up the newest of them
    /// for other sources only. False if none may be taken.
    pub(crate) fn displace_unauthenticated(&self) -> bool {
        let mut unauthenticated = lock(&self.unauthenticated);
        let Some(serial) = unauthenticated
            .first_to_go(EFFORT_VERIFYING, Instant::now())
            .or_else(|| unauthenticated.newest_of_largest_source())
        else {
            return false;
        };
        unauthenticated.remove(serial);
        self.unauthenticated_count.store(unauthenticated.len(), Ordering::Relaxed);
        drop(unauthenticated);
        self.displaced.fetch_add(1, Ordering::Relaxed);
        if let Some(info) = lock(&self.by_serial).get(&serial)
            && !info.is_displaced.swap(true, Ordering::Relaxed)
        {
            self.displaced_open.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Connections that have lost their place and are still open.
    pub(crate) fn displaced_open(&self) -> usize {
        self.displaced_open.load(Ordering::Relaxed)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::connection_info::{ConnectionId, Peer};
    use crate::shared::slots::KEPT_TIME;

    #[test]
    fn of_connections_with_tls_the_silent_go_first_and_never_one_that_waits_for_the_server() {
        let connections = Connections::default();
        let infos: Vec<Arc<ConnectionInfo>> = (0..5)
            .map(|serial| {
                let id = ConnectionId { descriptor: 9, serial };
                let info = Arc::new(ConnectionInfo::new(id, Peer::Unix, 0, 1));
                connections.insert(Arc::clone(&info));
                connections.add_unproven(&info);
                info
            })
            .collect();
        connections.record_part(&infos[0], Seconds(7), false);
        connections.record_part(&infos[1], Seconds(5), false);
        connections.record_part(&infos[2], Seconds(5), true);
        connections.record_proof(&infos[3]);
        std::thread::sleep(KEPT_TIME);
        let take =
            |last_part| connections.take_unproven(Seconds(last_part)).map(|taken| taken.id.serial);
        assert_eq!([take(4), take(4)], [Some(4), None]);
        assert_eq!([take(5), take(6), take(9)], [Some(1), None, Some(0)]);
        assert!(connections.has_unproven() && take(99).is_none());
        // The server has read what it waited with.
        connections.record_part(&infos[2], Seconds(9), false);
        assert_eq!([take(8), take(9)], [None, Some(2)]);
        assert!(!connections.has_unproven());
    }
}
