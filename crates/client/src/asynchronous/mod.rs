//! The client for tokio: the methods and guarantees of [`Client`], awaited.
//!
//! A call is the blocking client's state machine (deadline, retry, uncertain writes, breaker), with its waits
//! left to the runtime. A call that is cancelled, by dropping its future, closes its connection. The
//! connections belong to the runtime in which they were made: a client serves one runtime, and its
//! calls panic outside one. After a fork, as in any runtime, a child starts with new connections.

mod bulk;
pub(crate) mod driving;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;

use crate::address::Address;
use crate::call::Call;
use crate::client::{Budget, Client, ReplyReader};
use crate::engine::interpret::refusal_to_error;
use crate::engine::operation::Operation;
use crate::error::{Context, Error, Phase};
use crate::fork::Process;
use crate::options::Options;
use crate::pipeline::Reply;
use crate::pool::Server;
use crate::request::Request;
use crate::ring::Placement;
use driving::drive;

/// A client of one or more servers, to be shared by the tasks of one runtime.
#[derive(Debug)]
pub struct AsyncClient {
    core: Client,
    /// A semaphore for each slot: with a permit, a call finds a free connection in the pool.
    semaphores: Mutex<Semaphores>,
}

/// The semaphores of one process: permits of its parent's calls are never returned in a child.
#[derive(Debug)]
struct Semaphores {
    process: Process,
    by_slot: Vec<Arc<Semaphore>>,
}

impl Semaphores {
    fn new() -> Self {
        Self {
            process: Process::current(),
            by_slot: Vec::new(),
        }
    }
}

impl AsyncClient {
    /// A client of these servers; connects to none yet.
    pub fn new(
        addresses: &[Address],
        placement: Placement,
        options: Options,
    ) -> Result<Self, Error> {
        Ok(Self {
            core: Client::new(addresses, placement, options)?,
            semaphores: Mutex::new(Semaphores::new()),
        })
    }

    /// Settings, costs, keys, servers: what needs no waiting. Its calls would block the runtime.
    pub fn core(&self) -> &Client {
        &self.core
    }

    /// Changes the servers at once for all calls to come; a call in flight ends where it began.
    pub fn set_servers(&self, addresses: &[Address]) -> Result<(), Error> {
        self.core.set_servers(addresses)
    }

    /// Waits until fewer than `connections_max` calls to a server are under way.
    async fn acquire_permit(
        &self,
        slot: usize,
        server: &Server,
        budget: &Budget<'_>,
    ) -> Result<OwnedSemaphorePermit, Error> {
        let semaphore = self.semaphore_of(slot);
        let deadline = tokio::time::Instant::from_std(budget.deadline);
        match timeout_at(deadline, semaphore.acquire_owned()).await {
            Ok(permit) => permit.map_err(|_| Error::Closed),
            Err(_) => Err(Error::Deadline(Context {
                server: server.name.clone(),
                phase: Phase::Wait,
                retry_is_safe: true,
            })),
        }
    }

    fn semaphore_of(&self, slot: usize) -> Arc<Semaphore> {
        let mut semaphores = self
            .semaphores
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !semaphores.process.is_current() {
            *semaphores = Semaphores::new();
        }
        let connections_max = self.core.options().connections_max;
        while semaphores.by_slot.len() <= slot {
            semaphores
                .by_slot
                .push(Arc::new(Semaphore::new(connections_max)));
        }
        semaphores
            .by_slot
            .get(slot)
            .map_or_else(|| Arc::new(Semaphore::new(connections_max)), Arc::clone)
    }

    /// Makes a call about one key and returns what its reply means; its cost is counted.
    pub async fn run<O: Operation>(
        &self,
        operation: &O,
        budget: &Budget<'_>,
    ) -> Result<O::Output, Error> {
        let slot = self.core.slot_of(operation.key().bytes);
        let server = self.core.server(slot)?;
        let _permit = self.acquire_permit(slot, &server, budget).await?;
        let requests = [operation.request()];
        let mut call = Call::new(server, &requests, budget.started, budget.deadline);
        call.set_nonblocking();
        let mut reader = ReplyReader::new(operation);
        drive(&mut call, |reply, pipeline, server| {
            reader.take(reply, pipeline, &server.name);
            Ok(())
        })
        .await?;
        reader.finish_and_count(&self.core, &call, budget.spent)
    }

    /// Sends the same request to every server, one after the other; returns each one's name and reply.
    pub async fn request_all(
        &self,
        request: Request<'_>,
        budget: &Budget<'_>,
    ) -> Vec<(String, Result<Reply, Error>)> {
        let mut replies = Vec::new();
        for (slot, server) in self.core.servers() {
            let name = server.name.clone();
            replies.push((name, self.request_one(slot, server, request, budget).await));
        }
        replies
    }

    /// Removes every item of the namespace from every server, at once; returns each one's name and reply.
    ///
    /// As [`Client::clear`].
    pub async fn clear(
        &self,
        budget: &Budget<'_>,
    ) -> Result<Vec<(String, Result<Reply, Error>)>, Error> {
        let mut scratch = Vec::new();
        let prefix = self.core.keys().wire_namespace(&mut scratch)?;
        Ok(self
            .request_all(Request::FlushPrefix { prefix }, budget)
            .await)
    }

    async fn request_one(
        &self,
        slot: usize,
        server: Arc<Server>,
        request: Request<'_>,
        budget: &Budget<'_>,
    ) -> Result<Reply, Error> {
        let _permit = self.acquire_permit(slot, &server, budget).await?;
        let requests = [request];
        let mut call = Call::new(server, &requests, budget.started, budget.deadline);
        call.set_nonblocking();
        let mut result = Err(Error::Closed);
        drive(&mut call, |reply, _, server| {
            result = refusal_to_error(reply, &server.name);
            Ok(())
        })
        .await?;
        result
    }

    /// Closes the idle connections, after their quiet writes were acknowledged; later calls fail.
    pub async fn close(&self) {
        let budget = Budget::new(self.core.options().timeout);
        for (slot, server) in self.core.servers() {
            // One round trip makes sure that quiet writes have arrived.
            if server.has_pending() {
                let _ = self
                    .request_one(slot, server, Request::Version, &budget)
                    .await; // no caller to report to
            }
        }
        self.core.abandon();
    }
}
