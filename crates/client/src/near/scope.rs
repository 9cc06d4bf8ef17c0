//! The scope of one request: what it fetched is held until its end, so that it fetches no key twice, and what it needed
//! is counted.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use glasscache_strategy::rollout::counts::RequestCost;
use glasscache_strategy::rollout::rollout_share::Group;
use glasscache_strategy::scope::Scope;

use super::ClientNearCache;
use super::entry::{NearEntry, NearKey};
use super::fetches_in_flight::{AbsentKeys, FetchInFlight, FetchesInFlight};
use crate::fork::Process;

/// The scope of one request; its calls may come from several threads or tasks. The request ends with it, or earlier by
/// [`RequestScope::end`].
pub struct RequestScope {
    /// What is held is current only by the writes that this process has counted.
    process: Process,
    near: Arc<ClientNearCache>,
    group: Group,
    state: Mutex<ScopeState>,
    has_ended: AtomicBool,
}

#[derive(Debug)]
pub(super) struct ScopeState {
    /// The values that it holds until its end.
    pub(super) held: Scope<NearKey, NearEntry>,
    /// The item that the request is about, until what belongs to it was fetched.
    pub(super) page: Option<NearKey>,
    /// What its reads are fetching.
    pub(super) fetches: FetchesInFlight,
    /// What its reads needed so far.
    pub(super) cost: RequestCost,
    /// The kind of request, if it was named.
    route: Option<Box<str>>,
}

impl ScopeState {
    fn new(page: Option<NearKey>) -> Self {
        Self {
            held: Scope::default(),
            page,
            fetches: FetchesInFlight::default(),
            cost: RequestCost::default(),
            route: None,
        }
    }

    /// The state of a scope for one read that belongs to no request.
    pub(super) fn of_single_read() -> Self {
        Self::new(None)
    }
}

impl RequestScope {
    pub(super) fn new(near: Arc<ClientNearCache>, group: Group, page: Option<NearKey>) -> Self {
        Self {
            process: Process::current(),
            near,
            group,
            state: Mutex::new(ScopeState::new(page)),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Whether the request runs the strategy, or is one of the control group.
    pub fn group(&self) -> Group {
        self.group
    }

    /// Names the kind of the request, by which a roll-out compares what requests wait.
    pub fn set_route(&self, route: &str) {
        if self.is_of_this_process() {
            self.state().route = Some(route.into());
        }
    }

    /// Adds the time in which values that this request read were decoded, by whoever decodes them.
    pub fn add_decode_time(&self, decode_time: Duration) {
        if self.is_of_this_process() && !decode_time.is_zero() {
            let cost = &mut self.state().cost;
            cost.decode_ns = cost.decode_ns.saturating_add(decode_time.as_nanos() as u64);
        }
    }

    /// Whether the request began in this process. In a child of that process it holds nothing that may be served, and its
    /// lock may be held by a thread that does not exist there.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }

    /// Ends the request: what it needed is counted, once. Reads that follow belong to it, and are not counted.
    pub fn end(&self) {
        if !self.is_of_this_process() {
            return;
        }
        // Relaxed: whichever thread is first counts, and the costs are behind a lock.
        if !self.has_ended.swap(true, Ordering::Relaxed) {
            let (cost, route) = {
                let mut state = self.state();
                (state.cost, state.route.take())
            };
            self.near.end_request(self.group, route.as_deref(), &cost);
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ScopeState> {
        // One map changes at a time: after a panic of the caller it is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fetch that a read of a request makes: its keys are in flight until it is finished or dropped.
#[derive(Debug)]
pub(super) struct ScopeFetch {
    request_scope: Arc<RequestScope>,
    keys: Vec<NearKey>,
    fetch: Arc<FetchInFlight>,
}

impl ScopeFetch {
    /// Begins a fetch of these keys, if there are any; `scope_state` has been locked since they were looked up.
    pub(super) fn begin(
        request_scope: &Arc<RequestScope>,
        scope_state: &mut ScopeState,
        keys: &[NearKey],
    ) -> Option<Self> {
        (!keys.is_empty()).then(|| Self {
            request_scope: request_scope.clone(),
            keys: keys.to_vec(),
            fetch: scope_state.fetches.begin(keys, &request_scope.process),
        })
    }

    /// Ends it, after the scope got its values; `absent_keys` are those for which there is none.
    pub(super) fn finish(mut self, absent_keys: AbsentKeys) {
        self.end(absent_keys);
    }

    fn end(&mut self, absent_keys: AbsentKeys) {
        let keys = std::mem::take(&mut self.keys);
        // First, so that reads that look from now on find no fetch that has ended.
        if !keys.is_empty() && self.request_scope.is_of_this_process() {
            self.request_scope.state().fetches.remove(&keys, &self.fetch);
        }
        self.fetch.end(absent_keys);
    }
}

impl Drop for ScopeFetch {
    /// After a failure, a cancelled call or a panic; a fetch that was finished has ended already.
    fn drop(&mut self) {
        self.end(AbsentKeys::new());
    }
}

impl Drop for RequestScope {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for RequestScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestScope")
            .field("group", &self.group)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
