//! The client: its servers on a ring, and calls that block until they are driven to their end.
//!
//! After a fork the child must not share a socket with its parent: each call checks whether this is
//! still the process that made the connections, and a child starts with none.

mod budget;
mod driving;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::costs::Costs;
pub use crate::engine::operation::Value;
use crate::error::Error;
use crate::key::KeyEncoder;
use crate::members::{self, Members};
use crate::near::{ClientNearCache, RequestScope};
use crate::observe::{Observer, RequestSummary};
use crate::options::Options;
use crate::pipeline::Reply;
use crate::pool::Server;
use crate::ring::Placement;
use crate::watch;
use arc_swap::ArcSwap;
pub use budget::Budget;
#[cfg(feature = "tokio")]
pub(crate) use driving::ReplyReader;
pub(crate) use driving::drive;

/// How long gathered writes may keep a client that is dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(250);

/// What each server replied, by its name.
pub type Replies = Vec<(String, Result<Reply, Error>)>;

/// A client of one or more servers; shared by threads, and good again after a fork.
#[derive(Debug)]
pub struct Client {
    placement: Placement,
    options: Arc<Options>,
    members: ArcSwap<Members>,
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
        let keys = KeyEncoder {
            namespace: &options.namespace,
            encoding: options.keys,
        };
        let strategy = options.strategy.clone();
        let near = strategy.map(|strategy| ClientNearCache::new(strategy, keys).map(Arc::new));
        let near = near.transpose()?;
        let options = Arc::new(options);
        let members = Members::new(addresses, placement, &options, near.clone())?;
        Ok(Self {
            near,
            placement,
            options,
            members: ArcSwap::from_pointee(members),
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

    /// Which server a key belongs to.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Whether finished calls are observed: else their times need not be taken.
    pub fn is_observed(&self) -> bool {
        self.options.costs || self.options.observer.is_some()
    }

    /// Passes a finished call to the costs and to the observer.
    #[inline]
    pub fn observe(&self, call: &RequestSummary<'_>) {
        if self.options.costs {
            self.costs.observe(call);
        }
        if let Some(observer) = &self.options.observer {
            observer.observe(call);
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
        let scope = self
            .near
            .as_ref()
            .map(|near| near.scope(page).map(Arc::new));
        scope.transpose()
    }

    /// Watches the present servers if the near cache is coherent: from the first read of a process on, and again after
    /// the servers have changed.
    pub(crate) fn watch_servers(&self) {
        let near = self.near.as_ref();
        let Some(near) = near.filter(|near| near.options().is_coherent) else {
            return;
        };
        let members = self.current_members();
        if members.has_watches.load(Ordering::Relaxed)
            || members.has_watches.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let slots: Vec<usize> = members.present_servers().map(|(slot, _)| slot).collect();
        near.expect_watches(&slots);
        for (slot, server) in members.present_servers() {
            watch::start(slot, server, near);
        }
    }

    /// Makes wire keys by this client's settings.
    pub fn keys(&self) -> KeyEncoder<'_> {
        KeyEncoder {
            namespace: &self.options.namespace,
            encoding: self.options.keys,
        }
    }

    /// Changes the servers at once for all calls to come; a call in flight ends where it began.
    ///
    /// Connections to servers that stay are kept, idle ones to those that leave are closed.
    pub fn set_servers(&self, addresses: &[Address]) -> Result<(), Error> {
        self.options.check_servers(addresses)?;
        let ring = members::build_ring(addresses, self.placement)?;
        drop(self.current_members()); // in a child this creates its own members, so that the parent's are not changed
        self.members
            .rcu(|members| members.with_servers(addresses, &ring, &self.options));
        // The last thread to change the members also updates the servers last: else a present server might be marked as gone.
        loop {
            let members = self.members.load_full();
            members.update_presence();
            // Keys have other servers, which may have other values.
            if let Some(near) = &self.near {
                near.clear();
            }
            if Arc::ptr_eq(&members, &self.members.load()) {
                return Ok(());
            }
        }
    }

    /// The slot of a key's server; the key with its namespace, before base64.
    pub fn slot_of(&self, key: &[u8]) -> usize {
        self.current_members().slot_of(key)
    }

    /// The slot of the only server, if there is just one.
    pub fn only_slot(&self) -> Option<usize> {
        self.current_members().only_slot()
    }

    /// The present servers and their slots, in the order given.
    pub fn servers(&self) -> Vec<(usize, Arc<Server>)> {
        let members = self.current_members();
        members
            .present_servers()
            .map(|(slot, server)| (slot, server.clone()))
            .collect()
    }

    /// How many slots there are: one for each server that there has been.
    pub fn slots_count(&self) -> usize {
        self.current_members().servers.len()
    }

    /// The server in a slot.
    pub fn server(&self, slot: usize) -> Result<Arc<Server>, Error> {
        self.check_open()?;
        let members = self.current_members();
        members.servers.get(slot).cloned().ok_or(Error::Closed)
    }

    /// The server that a key belongs to; the key with its namespace, before base64.
    pub fn server_of(&self, key: &[u8]) -> Result<Arc<Server>, Error> {
        self.check_open()?;
        let members = self.current_members();
        let server = members.servers.get(members.slot_of(key));
        server.cloned().ok_or(Error::Closed)
    }

    /// Refuses calls of a client that was closed.
    pub fn check_open(&self) -> Result<(), Error> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// The state of this process: a child's own if it was made by a fork.
    fn current_members(&self) -> arc_swap::Guard<Arc<Members>> {
        let members = self.members.load();
        if members.process.is_current() {
            return members;
        }
        self.detach_after_fork(&members);
        self.members.load()
    }

    /// Creates the members of a child after a fork: its copies of the parent's idle connections are closed.
    #[cold]
    fn detach_after_fork(&self, members: &Arc<Members>) {
        for server in &members.servers {
            server.abandon();
        }
        // A lock in it may be held by a thread that does not exist here: it is never dropped.
        std::mem::forget(Arc::clone(members));
        // Of several threads that arrive here at once, the first one's servers are used by all.
        self.members.rcu(|members| {
            if members.process.is_current() {
                Arc::clone(members)
            } else {
                Arc::new(members.for_child_process(&self.options))
            }
        });
    }

    /// Every server that there has been and its slot: one that left may still have quiet writes under way.
    pub(crate) fn servers_ever(&self) -> Vec<(usize, Arc<Server>)> {
        let members = self.current_members();
        members.servers.iter().cloned().enumerate().collect()
    }

    /// Sends the gathered writes, within `timeout`.
    ///
    /// What cannot be sent is counted. Calls do this by themselves, and so does dropping the client: this is
    /// for code that leaves the process without either.
    pub fn flush_quiet_writes(&self, timeout: Duration) {
        let members = self.current_members();
        for server in members
            .servers
            .iter()
            .filter(|server| server.quiet_writes.has_buffered())
        {
            let now = Instant::now();
            let _ = server.flush_quiet_writes(now, now + timeout, &|| true); // leaving has no caller to report to
        }
    }

    /// Closes the idle connections as they are; later calls fail.
    pub(crate) fn abandon(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        for server in &self.current_members().servers {
            drop(server.take_idle());
            server.end_watch();
        }
    }
}

impl Client {
    /// Whether this process has gathered writes that are not sent yet.
    pub fn has_buffered_writes(&self) -> bool {
        // Servers of another process are not touched: a lock of theirs may never be free.
        let members = self.members.load();
        members.process.is_current()
            && members
                .servers
                .iter()
                .any(|server| server.quiet_writes.has_buffered())
    }

    /// Sends what is gathered before the client is dropped; waits a quarter of a second at most.
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
