//! The servers of a client as its calls find them: the present members, changed at once for all threads.
//!
//! After a fork the child must not share a socket with its parent: each call checks whether this is
//! still the process that made the connections, and a child starts with none.
//!
//! *Members* are the servers between two changes, *membership* is what changes them. A *slot* is the number of a
//! server in one client, the same while servers join and leave.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::{ArcSwap, Guard};

use crate::address::Address;
use crate::error::Error;
use crate::members::{Members, build_ring};
use crate::near::ClientNearCache;
use crate::options::Options;
use crate::ring::Placement;
use crate::watch;

/// The servers of one client, which may change, and which are others in a child of a fork.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) placement: Placement,
    options: Arc<Options>,
    /// What the client keeps in the process, if it runs a strategy.
    near: Option<Arc<ClientNearCache>>,
    members: ArcSwap<Members>,
}

impl Membership {
    pub(crate) fn new(
        addresses: &[Address],
        placement: Placement,
        options: Arc<Options>,
        near: Option<Arc<ClientNearCache>>,
    ) -> Result<Self, Error> {
        let members = Members::new(addresses, placement, &options, near.clone())?;
        Ok(Self { placement, options, near, members: ArcSwap::from_pointee(members) })
    }

    /// Those of this process: a child's own if it was made by a fork.
    #[inline]
    pub(crate) fn current(&self) -> Guard<Arc<Members>> {
        let members = self.members.load();
        if members.process.is_current() {
            return members;
        }
        self.detach_after_fork(&members);
        self.members.load()
    }

    /// The members, unless they are a parent's: a lock of theirs may never be free.
    pub(crate) fn unless_forked(&self) -> Option<Guard<Arc<Members>>> {
        let members = self.members.load();
        members.process.is_current().then_some(members)
    }

    /// Creates the members of a child after a fork: its copies of the parent's idle connections are closed.
    #[cold]
    fn detach_after_fork(&self, members: &Arc<Members>) {
        for server in &members.servers {
            server.pool.abandon();
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

    /// Changes the servers at once for all calls to come; a call in flight ends where it began.
    pub(crate) fn set_servers(&self, addresses: &[Address]) -> Result<(), Error> {
        self.options.check_servers(addresses)?;
        let ring = build_ring(addresses, self.placement)?;
        drop(self.current()); // in a child this creates its own members, so that the parent's are not changed
        self.members.rcu(|members| members.with_servers(addresses, &ring, &self.options));
        // The last thread to change the members also updates the servers last: else a present server might be marked as
        // gone.
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

    /// Watches the present servers if the near cache is coherent: from the first read of a process on, and again after
    /// the servers have changed.
    pub(crate) fn watch(&self) {
        let near = self.near.as_ref();
        let Some(near) = near.filter(|near| near.options().is_coherent) else {
            return;
        };
        let members = self.current();
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
}
