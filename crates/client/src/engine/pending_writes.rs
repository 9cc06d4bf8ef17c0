//! Quiet writes that a server has not acknowledged: no call waits for them, and none is lost silently.
//!
//! The reply to the `mn` that was sent after them acknowledges them. Those that are dropped without it, because
//! the connection was lost or they could not be sent, are counted as failures, and their keys are noted as
//! uncertain: the next call removes them, so that an older value is never read.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use glasscache_protocol::meta::reply::MetaCode;
use glasscache_protocol::text::reply::REPLY_LINE_BYTES_MAX;

use super::server::ServerState;
use super::uncertain::{WrittenKeys, for_each_key_left_uncertain};
use crate::near::NearWriteGuard;
use crate::request::Request;

/// Quiet writes, one after the other, whose outcome is not known yet.
#[derive(Debug, Default)]
pub struct PendingWrites {
    server: Weak<ServerState>,
    /// Opaque of the first.
    pub first_opaque: u32,
    /// How many opaques there are, those of removals of uncertain keys among them.
    pub opaque_count: u32,
    /// How many of them, the last ones, are removals of uncertain keys.
    removal_count: u32,
    /// How many of them are writes of callers.
    write_count: u32,
    /// The keys of those that may leave an older value.
    keys: WrittenKeys,
    /// The keys that they change, which are not kept in the process until they are acknowledged.
    near_write_guards: Vec<NearWriteGuard>,
}

impl PendingWrites {
    /// None yet; the next opaque is `first_opaque`.
    pub fn new(server: &Arc<ServerState>, first_opaque: u32) -> Self {
        let mut pending = Self::default();
        pending.server = Arc::downgrade(server);
        pending.first_opaque = first_opaque;
        pending
    }

    /// Begins with `first_opaque`, if there is none yet.
    pub(super) fn begin(&mut self, server: &Arc<ServerState>, first_opaque: u32) {
        if self.is_empty() {
            *self = Self::new(server, first_opaque);
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.opaque_count == 0
    }

    /// Most bytes that a server sends of them before an acknowledgement is requested: a line for each.
    pub fn refusals_bytes_max(&self) -> usize {
        self.opaque_count as usize * REPLY_LINE_BYTES_MAX
    }

    /// Adds one more write.
    pub fn add_write(&mut self, request: &Request<'_>) {
        self.opaque_count += 1;
        self.write_count += 1;
        for_each_key_left_uncertain(request, |key| self.keys.add(key));
        if let Some(server) = self.server.upgrade() {
            self.near_write_guards.extend(server.guard_quiet_write(request));
        }
    }

    /// Adds removals of uncertain keys, after which no more writes come.
    pub fn add_removals(&mut self, count: u32) {
        self.opaque_count += count;
        self.removal_count += count;
    }

    /// Excludes the last writes, whose caller gets their error; their keys are uncertain only if any of
    /// them was sent.
    pub fn exclude_reported(&mut self, requests: &[Request<'_>], was_sent: bool) {
        self.write_count = self.write_count.saturating_sub(requests.len() as u32);
        if !was_sent {
            let mut key_count = 0;
            for request in requests {
                for_each_key_left_uncertain(request, |_| key_count += 1);
            }
            self.keys.remove_last(key_count);
        }
    }

    /// Notes that the server has acknowledged them, and what it did not do: some by their index, others without. A key
    /// that was gone when it was to be removed is not a failure.
    pub fn acknowledge(
        mut self,
        failed_replies: &[(usize, MetaCode)],
        refusals_without_index: usize,
    ) {
        let first_removal_index = (self.opaque_count - self.removal_count) as usize;
        let refused_count =
            failed_replies.iter().filter(|(index, _)| *index < first_removal_index).count()
                + refusals_without_index;
        let server = std::mem::take(&mut self.server);
        if let Some(server) = server.upgrade() {
            server.noreply_failures.fetch_add(refused_count as u64, Ordering::Relaxed);
        }
    }

    /// Drops them without counting them: they are another process's.
    pub fn drop_uncounted(mut self) {
        self.server = Weak::new();
    }
}

impl Drop for PendingWrites {
    fn drop(&mut self) {
        if let Some(server) = self.server.upgrade() {
            let lost_count = self.write_count.into();
            server.noreply_failures.fetch_add(lost_count, Ordering::Relaxed);
            server.uncertain.add(self.keys.iter());
        }
    }
}
