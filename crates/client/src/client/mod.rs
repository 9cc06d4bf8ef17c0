//! The client: its servers on a ring, and calls that block until they are driven to their end.
//!
//! After a fork the child must not share a socket with its parent: each call looks whether this is
//! still the process that made the connections, and a child begins anew with none.

mod driving;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::costs::{Costs, Spent};
pub use crate::engine::operation::Value;
use crate::error::Error;
use crate::key::KeyMaker;
use crate::members::{self, Members};
use crate::options::Options;
use crate::pool::Server;
use crate::request::Request;
use crate::ring::Placement;
use arc_swap::ArcSwap;
pub use driving::Answers;
#[cfg(feature = "tokio")]
pub(crate) use driving::Reading;
pub(crate) use driving::drive;

/// How long gathered writes may keep a client that is dropped.
const LEAVING_MAX: Duration = Duration::from_millis(250);

/// How long a call may take, and whom to ask when a signal comes.
#[derive(Clone, Copy)]
pub struct Budget<'g> {
    /// When its time began to run.
    pub started: Instant,
    /// When it is over.
    pub deadline: Instant,
    /// Whether to go on after a signal.
    pub go_on: &'g (dyn Fn() -> bool + Sync),
    /// What was spent on the value before, to be counted with the call.
    pub spent: Spent,
}

impl Budget<'_> {
    /// From now on for `timeout`, whatever signals come.
    pub fn new(timeout: Duration) -> Self {
        let started = Instant::now();
        Self {
            started,
            deadline: started + timeout,
            go_on: &|| true,
            spent: Spent::default(),
        }
    }

    /// What is left of it for a further request, with which the value's costs are not counted again.
    pub(crate) fn of_next_request(&self) -> Self {
        Self {
            spent: Spent::default(),
            ..*self
        }
    }
}

/// A client of one or more servers; shared by threads, and good again after a fork.
#[derive(Debug)]
pub struct Client {
    placement: Placement,
    options: Arc<Options>,
    here: ArcSwap<Members>,
    costs: Costs,
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
        let options = Arc::new(options);
        let members = Members::new(addresses, placement, &options)?;
        Ok(Self {
            placement,
            options,
            here: ArcSwap::from_pointee(members),
            costs: Costs::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Itself: what a client has that needs no waiting.
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

    /// What its calls have cost.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Makes wire keys by this client's settings.
    pub fn keys(&self) -> KeyMaker<'_> {
        KeyMaker {
            namespace: &self.options.namespace,
            rule: self.options.keys,
        }
    }

    /// Changes the servers at once for all calls to come; a call in flight ends where it began.
    ///
    /// Connections to servers that stay are kept, idle ones to those that leave are closed.
    pub fn set_servers(&self, addresses: &[Address]) -> Result<(), Error> {
        let ring = members::ring_of(addresses, self.placement)?;
        drop(self.here()); // a child's own, so that the one to be changed is no parent's
        self.here
            .rcu(|members| members.changed(addresses, &ring, &self.options));
        // Whoever changes them last tells them last: else a present server may think that it left.
        loop {
            let members = self.here.load_full();
            members.tell_servers();
            if Arc::ptr_eq(&members, &self.here.load()) {
                return Ok(());
            }
        }
    }

    /// The place of a key's server; the key with its namespace, before base64.
    pub fn place_of(&self, key: &[u8]) -> usize {
        self.here().place_of(key)
    }

    /// The one place there is, if there is one server.
    pub fn only_place(&self) -> Option<usize> {
        self.here().only_place()
    }

    /// The present servers and their places, in the order given.
    pub fn servers(&self) -> Vec<(usize, Arc<Server>)> {
        let members = self.here();
        members
            .present()
            .map(|(place, server)| (place, server.clone()))
            .collect()
    }

    /// How many places there are: one for each server that there has been.
    pub fn places_count(&self) -> usize {
        self.here().servers.len()
    }

    /// The server at a place.
    pub fn server(&self, place: usize) -> Result<Arc<Server>, Error> {
        self.check_open()?;
        let state = self.here();
        state.servers.get(place).cloned().ok_or(Error::Closed)
    }

    /// The server that a key belongs to; the key with its namespace, before base64.
    pub fn server_of(&self, key: &[u8]) -> Result<Arc<Server>, Error> {
        self.check_open()?;
        let members = self.here();
        let server = members.servers.get(members.place_of(key));
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
    fn here(&self) -> arc_swap::Guard<Arc<Members>> {
        let state = self.here.load();
        if state.process.is_current() {
            return state;
        }
        self.leave_parent(&state);
        self.here.load()
    }

    /// Begins anew in a child after a fork: its copies of the parent's idle connections are closed.
    #[cold]
    fn leave_parent(&self, state: &Arc<Members>) {
        for server in &state.servers {
            server.abandon();
        }
        // A lock in it may be held by a thread that does not exist here: it is never dropped.
        std::mem::forget(Arc::clone(state));
        // Of several threads that come here at once the first one's servers are everybody's.
        self.here.rcu(|state| {
            if state.process.is_current() {
                Arc::clone(state)
            } else {
                Arc::new(state.of_child(&self.options))
            }
        });
    }

    /// Closes the idle connections, after quiet writes were sent and answered; later calls fail.
    pub fn close(&self) {
        let budget = Budget::new(self.options.timeout);
        for server in &self.here().servers {
            // One round trip makes sure that what was sent without waiting has arrived.
            if server.has_pending() {
                let done = driving::ask_server(
                    server.clone(),
                    &[Request::Version],
                    &budget,
                    &mut |_, _| Ok(()),
                );
                let _ = done; // closing has no one to tell
            }
        }
        self.abandon();
    }

    /// Sends the writes that were gathered and wait for company, within `patience`.
    ///
    /// What cannot be sent is counted. Calls do this by themselves, and so does dropping the client: this is
    /// for who leaves the process without either.
    pub fn send_gathered(&self, patience: Duration) {
        let state = self.here();
        for server in state.servers.iter().filter(|server| server.quiet.is_any()) {
            let now = Instant::now();
            let _ = server.send_gathered(now, now + patience, &|| true); // leaving has no one to tell
        }
    }

    /// Closes the idle connections as they are; later calls fail.
    pub(crate) fn abandon(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        for server in &self.here().servers {
            drop(server.take_idle());
        }
    }
}

impl Client {
    /// Whether this process has gathered writes that are not sent yet.
    pub fn has_gathered(&self) -> bool {
        // Another process's servers are not even looked at: a lock of theirs may never be free.
        let state = self.here.load();
        state.process.is_current() && state.servers.iter().any(|server| server.quiet.is_any())
    }

    /// Sends what is gathered before the client is dropped; waits a quarter of a second at most.
    pub fn send_last(&self) {
        if self.has_gathered() {
            self.send_gathered(self.options.timeout.min(LEAVING_MAX));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.send_last();
    }
}
