//! Writes of this client: their keys are not served from the process while a write is in flight, and forgotten at its end.
//!
//! A fetch may overlap a write and bring the older value. So the end of a write counts like its begin: what was fetched
//! before either is not kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::entry::{NearKey, near_key};
use super::keep_rules::learn_from;
use super::{ClientNearCache, ProcessNearCache};
use crate::request::{Changes, Request};

/// A guard of the keys that a request in flight changes: until it is dropped, they are read from the servers.
#[derive(Debug)]
pub(crate) struct NearWriteGuard {
    process_cache: Arc<ProcessNearCache>,
    target: WriteTarget,
}

#[derive(Debug)]
enum WriteTarget {
    Keys(Vec<NearKey>),
    Everything,
}

/// How much later than requested a server may carry out a delayed flush: it counts whole seconds.
pub(super) const FLUSH_DELAY_SLACK: Duration = Duration::from_secs(2);

impl NearWriteGuard {
    /// Guards what these requests change; `None`: they only read. `call_deadline` is when their call ends at the latest.
    pub(crate) fn new(
        near: &ClientNearCache,
        requests: &[Request<'_>],
        call_deadline: Instant,
    ) -> Option<Self> {
        let mut keys = Vec::new();
        let mut target = None;
        for request in requests {
            if let Request::Flush { delay_s } = *request {
                let delay = Duration::from_secs(delay_s.into());
                let until = call_deadline + delay + FLUSH_DELAY_SLACK;
                if delay_s > 0 {
                    near.current().state().freshness.pause_caching(until);
                }
            }
            // A prefix that is flushed is that of all keys of this client.
            if request.facts().changes == Changes::Everything {
                target = Some(WriteTarget::Everything);
            }
            learn_from(near, request);
            push_changed_keys(request, &mut keys);
        }
        let target = target.or_else(|| (!keys.is_empty()).then_some(WriteTarget::Keys(keys)))?;
        Some(Self::begin(near, target))
    }

    /// Guards what a quiet write changes, which is one of a key.
    pub(crate) fn for_quiet_write(near: &ClientNearCache, request: &Request<'_>) -> Option<Self> {
        let mut keys = Vec::new();
        learn_from(near, request);
        push_changed_keys(request, &mut keys);
        (!keys.is_empty()).then(|| Self::begin(near, WriteTarget::Keys(keys)))
    }

    fn begin(near: &ClientNearCache, target: WriteTarget) -> Self {
        let process_cache = arc_swap::Guard::into_inner(near.current());
        match &target {
            WriteTarget::Keys(keys) => process_cache.state().begin_write(keys),
            WriteTarget::Everything => process_cache.state().begin_flush(),
        }
        Self { process_cache, target }
    }
}

impl Drop for NearWriteGuard {
    // Not inlined where requests end, of which most have none.
    #[inline(never)]
    fn drop(&mut self) {
        // In a child after a fork it is the parent's, and its lock may be held by a thread that does not exist here.
        if self.process_cache.process.is_current() {
            match &self.target {
                WriteTarget::Keys(keys) => self.process_cache.state().end_write(keys),
                WriteTarget::Everything => self.process_cache.state().end_flush(),
            }
        }
    }
}

/// Appends the keys whose value or expiry a request changes.
fn push_changed_keys(request: &Request<'_>, keys: &mut Vec<NearKey>) {
    if request.facts().changes != Changes::Nothing {
        request.for_each_key(|key| keys.push(near_key(key)));
    }
}
