//! The client: its servers on a ring, and calls that block until they are driven to their end.

mod budget;
mod driving;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use glasscache_protocol::meta::request::WireKey;

use crate::address::Address;
use crate::costs::Costs;
pub use crate::engine::operation::Value;
use crate::error::Error;
use crate::key::KeyEncoder;
use crate::membership::Membership;
use crate::near::{ClientNearCache, RequestScope};
use crate::observe::{Observer, RequestSummary};
use crate::options::Options;
use crate::pipeline::Reply;
use crate::pool::Server;
use crate::ring::Placement;
pub use budget::Budget;
#[cfg(feature = "tokio")]
pub(crate) use driving::ReplyReader;
pub(crate) use driving::drive;

/// How long dropping a client may take to send its buffered writes.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(250);

/// What each server replied, by its name.
pub type Replies = Vec<(String, Result<Reply, Error>)>;

/// A client of one or more servers; threads may share it, and a child may use it after a fork.
#[derive(Debug)]
pub struct Client {
    options: Arc<Options>,
    pub(crate) membership: Membership,
    costs: Costs,
    near: Option<Arc<ClientNearCache>>,
    is_closed: AtomicBool,
}

impl Client {
    /// A client of these servers; connects to none yet.
    pub fn new(
        addresses: &[Address],
        placement: Placement,
        options: Options,
    ) -> Result<Self, Error> {
        options.check()?;
        options.check_servers(addresses)?;
        let encoder = KeyEncoder { namespace: &options.namespace, encoding: options.keys };
        let strategy = options.strategy.clone();
        let near = strategy.map(|strategy| ClientNearCache::new(strategy, encoder).map(Arc::new));
        let near = near.transpose()?;
        let options = Arc::new(options);
        let membership = Membership::new(addresses, placement, options.clone(), near.clone())?;
        Ok(Self {
            near,
            options,
            membership,
            costs: Costs::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// The client itself, for code that is shared with the tokio client.
    pub(crate) fn core(&self) -> &Self {
        self
    }

    /// Its settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The rule by which keys are placed on servers.
    pub fn placement(&self) -> Placement {
        self.membership.placement
    }

    /// Whether finished calls are observed: else their times need not be taken.
    pub fn is_observed(&self) -> bool {
        self.options.costs || self.options.observer.is_some()
    }

    /// Passes a finished call to the costs and to the observer.
    #[inline]
    pub fn observe(&self, summary: &RequestSummary<'_>) {
        if self.options.costs {
            self.costs.observe(summary);
        }
        if let Some(observer) = &self.options.observer {
            observer.observe(summary);
        }
    }

    /// What its calls have cost.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// What it keeps in the process, if it runs a strategy.
    pub fn near(&self) -> Option<&Arc<ClientNearCache>> {
        self.near.as_ref()
    }

    /// A scope for one request, about the item under `page` (without its namespace): what its reads fetch is held until
    /// the scope is dropped, and no key is fetched twice. `None` if the client runs no strategy.
    pub fn request_scope(&self, page: Option<&[u8]>) -> Result<Option<Arc<RequestScope>>, Error> {
        let scope = self.near.as_ref().map(|near| near.scope(page).map(Arc::new));
        scope.transpose()
    }

    /// The encoder that converts keys to wire keys by this client's settings.
    pub fn keys(&self) -> KeyEncoder<'_> {
        KeyEncoder { namespace: &self.options.namespace, encoding: self.options.keys }
    }

    /// Changes the servers at once for all calls to come; a call in flight ends where it began.
    ///
    /// Connections to servers that stay are kept, idle ones to those that leave are closed.
    pub fn set_servers(&self, addresses: &[Address]) -> Result<(), Error> {
        self.membership.set_servers(addresses)
    }

    /// The slot of a key's server; the key with its namespace, before base64.
    pub fn slot_of(&self, key: &[u8]) -> usize {
        self.membership.current().slot_of(key)
    }

    /// The slot of the only server, if there is just one.
    pub fn only_slot(&self) -> Option<usize> {
        self.membership.current().only_slot()
    }

    /// The present servers and their slots, in the order given.
    pub fn servers(&self) -> Vec<(usize, Arc<Server>)> {
        let members = self.membership.current();
        members.present_servers().map(|(slot, server)| (slot, server.clone())).collect()
    }

    /// How many slots there are: one for each server that there has been.
    pub fn slots_count(&self) -> usize {
        self.membership.current().servers.len()
    }

    /// The server in a slot.
    pub fn server(&self, slot: usize) -> Result<Arc<Server>, Error> {
        self.check_open()?;
        let members = self.membership.current();
        members.servers.get(slot).cloned().ok_or(Error::Closed)
    }

    /// The server that a key belongs to; the key with its namespace, before base64.
    #[inline]
    pub fn server_of(&self, key: &[u8]) -> Result<Arc<Server>, Error> {
        self.check_open()?;
        let members = self.membership.current();
        match members.servers.get(members.slot_of(key)) {
            Some(server) => Ok(server.clone()),
            None => Err(Error::Closed),
        }
    }

    /// Notes that a change of a key was not made, and that its caller was not told so by an error: the next call to its
    /// server removes the key, so that the older value does not come back.
    pub fn mark_uncertain(&self, key: WireKey<'_>) {
        if let Some(near) = &self.near {
            let _ = near.forget(&self.keys().decode(key)); // what came from the wire has a form for it
        }
        if let Ok(server) = self.server_of(key.bytes) {
            server.uncertain.add([key.into()]);
        }
    }

    /// Refuses calls of a client that was closed.
    pub fn check_open(&self) -> Result<(), Error> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Every server that there has been: one that left may still have quiet writes under way.
    pub(crate) fn present_and_past_servers(&self) -> Vec<Arc<Server>> {
        self.membership.current().servers.clone()
    }

    /// Sends the buffered writes, within `timeout`.
    ///
    /// What cannot be sent is counted. Calls do this by themselves, and so does dropping the client: this is
    /// for code that leaves the process without either.
    pub fn flush_quiet_writes(&self, timeout: Duration) {
        let members = self.membership.current();
        for server in members.servers.iter().filter(|server| server.write_buffer.has_buffered()) {
            let now = Instant::now();
            let _ = server.flush_buffered_writes(now, now + timeout, &|| true); // leaving has no caller to report to
        }
    }

    /// Closes the idle connections as they are; later calls fail.
    pub(crate) fn abandon(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        for server in &self.membership.current().servers {
            server.pool.close_idle();
            server.end_watch();
        }
    }

    /// Whether this process has buffered writes that are not sent yet.
    pub fn has_buffered_writes(&self) -> bool {
        let members = self.membership.unless_forked();
        members.is_some_and(|members| {
            let mut servers = members.servers.iter();
            servers.any(|server| server.write_buffer.has_buffered())
        })
    }

    /// Sends the buffered writes before the client is dropped; waits a quarter of a second at most.
    pub fn flush_before_drop(&self) {
        if self.has_buffered_writes() {
            self.flush_quiet_writes(self.options.timeout.min(CLOSE_TIMEOUT));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.flush_before_drop();
    }
}
