//! What a server owes: its word on writes that nobody waits for.
//!
//! It is paid by the answer to the `mn` that was sent behind them. A debt that is dropped unpaid, because the
//! connection was lost or they could not be sent, is counted as so many failures, and the keys are noted as
//! doubtful: the next call removes them, so that nobody reads what was to be replaced.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use glasscache_protocol::meta::request::WireKey;

use crate::doubts::OwnedKey;
use crate::pool::Server;
use crate::request::Request;

/// Quiet writes, one after the other, whose outcome is not known yet.
#[derive(Debug, Default)]
pub(crate) struct Debt {
    server: Weak<Server>,
    /// Opaque of the first.
    pub(crate) first: u32,
    /// How many opaques there are, those of removals of doubtful keys among them.
    pub(crate) count: u32,
    /// How many of them somebody wrote.
    writes: u32,
    /// The keys of those that would leave an older value behind, one after the other.
    keys: Vec<u8>,
    /// Length of each of them, and whether it is in base64.
    spans: Vec<(u8, bool)>,
}

impl Debt {
    /// None yet; the next opaque is `first`.
    pub(crate) fn new(server: &Arc<Server>, first: u32) -> Self {
        let mut debt = Self::default();
        debt.server = Arc::downgrade(server);
        debt.first = first;
        debt
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Notes one more write.
    pub(crate) fn note(&mut self, request: &Request<'_>) {
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

    /// Notes that the server has answered for them, and refused so many.
    pub(crate) fn pay(mut self, refused: u64) {
        self.writes = 0;
        if let Some(server) = self.server.upgrade() {
            server
                .noreply_failures
                .fetch_add(refused, Ordering::Relaxed);
        }
    }

    /// Forgets them: they are another process's.
    pub(crate) fn forget(mut self) {
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

impl Drop for Debt {
    fn drop(&mut self) {
        if self.writes == 0 {
            return;
        }
        if let Some(server) = self.server.upgrade() {
            let lost = self.writes.into();
            server.noreply_failures.fetch_add(lost, Ordering::Relaxed);
            server.doubts.add(self.keys());
        }
    }
}
