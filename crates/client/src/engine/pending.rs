//! Quiet writes that a server has not acknowledged: nobody waits for them, and none is lost unnoticed.
//!
//! The reply to the `mn` that was sent behind them acknowledges them. Those that are dropped without it, because
//! the connection was lost or they could not be sent, are counted as so many failures, and their keys are noted as
//! uncertain: the next call removes them, so that nobody reads what was to be replaced.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use glasscache_protocol::meta::request::WireKey;

use super::server::ServerState;
use super::uncertain::OwnedKey;
use crate::request::Request;

/// Quiet writes, one after the other, whose outcome is not known yet.
#[derive(Debug, Default)]
pub struct PendingWrites {
    server: Weak<ServerState>,
    /// Opaque of the first.
    pub first: u32,
    /// How many opaques there are, those of removals of uncertain keys among them.
    pub count: u32,
    /// How many of them somebody wrote.
    writes: u32,
    /// The keys of those that would leave an older value behind, one after the other.
    keys: Vec<u8>,
    /// Length of each of them, and whether it is in base64.
    spans: Vec<(u8, bool)>,
}

impl PendingWrites {
    /// None yet; the next opaque is `first`.
    pub fn new(server: &Arc<ServerState>, first: u32) -> Self {
        let mut pending = Self::default();
        pending.server = Arc::downgrade(server);
        pending.first = first;
        pending
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Notes one more write.
    pub fn note(&mut self, request: &Request<'_>) {
        self.count += 1;
        self.writes += 1;
        let key = match request {
            Request::Store { item, .. } => item.key,
            Request::Delete { key, .. } => *key,
            _ => return,
        };
        // A longer key than 250 bytes never came so far.
        if let Ok(bytes) = u8::try_from(key.bytes.len()) {
            self.keys.extend_from_slice(key.bytes);
            self.spans.push((bytes, key.is_base64));
        }
    }

    /// Notes that the server has acknowledged them, and refused so many.
    pub fn acknowledge(mut self, refused: usize) {
        self.writes = 0;
        if let Some(server) = self.server.upgrade() {
            server
                .noreply_failures
                .fetch_add(refused as u64, Ordering::Relaxed);
        }
    }

    /// Forgets them: they are another process's.
    pub fn forget(mut self) {
        self.writes = 0;
    }

    fn keys(&self) -> impl Iterator<Item = OwnedKey> {
        let mut rest = self.keys.as_slice();
        self.spans.iter().filter_map(move |&(bytes, is_base64)| {
            let (key, later) = rest.split_at_checked(bytes.into())?;
            rest = later;
            let key = WireKey {
                bytes: key,
                is_base64,
            };
            Some(key.into())
        })
    }
}

impl Drop for PendingWrites {
    fn drop(&mut self) {
        if self.writes == 0 {
            return;
        }
        if let Some(server) = self.server.upgrade() {
            let lost = self.writes.into();
            server.noreply_failures.fetch_add(lost, Ordering::Relaxed);
            server.uncertain.add(self.keys());
        }
    }
}
