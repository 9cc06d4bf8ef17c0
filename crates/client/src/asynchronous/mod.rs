//! The client for tokio: the words and guarantees of [`Client`], awaited.
//!
//! A call is the blocking client's state machine (deadline, retry, doubts, breaker), with its waits
//! left to the runtime. A call that is cancelled, by dropping its future, closes its connection. The
//! connections belong to the runtime in which they were made: a client serves one runtime, and its
//! calls panic outside one. After a fork, as in any runtime, a child makes everything anew.

pub(crate) mod driving;
mod many;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;

use crate::address::Address;
use crate::call::Call;
use crate::client::{Budget, Client, Reading};
use crate::engine::interpret::refused;
use crate::engine::operation::Operation;
use crate::error::{Context, Error, Phase};
use crate::fork::Process;
use crate::options::Options;
use crate::pipeline::Answer;
use crate::pool::Server;
use crate::request::Request;
use crate::ring::Placement;
use driving::drive;

/// A client of one or more servers, to be shared by the tasks of one runtime.
#[derive(Debug)]
pub struct AsyncClient {
    core: Client,
    /// For each place, the right to a connection there: who has one finds the pool not full.
    gates: Mutex<Gates>,
}

/// The rights to connections in one process: those that its parent's calls had are not given back in a child.
#[derive(Debug)]
struct Gates {
    process: Process,
    of_places: Vec<Arc<Semaphore>>,
}

impl Gates {
    fn new() -> Self {
        Self {
            process: Process::current(),
            of_places: Vec::new(),
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
            gates: Mutex::new(Gates::new()),
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
    async fn gate(
        &self,
        place: usize,
        server: &Server,
        budget: &Budget<'_>,
    ) -> Result<OwnedSemaphorePermit, Error> {
        let gate = self.gate_of(place);
        let ends = tokio::time::Instant::from_std(budget.deadline);
        match timeout_at(ends, gate.acquire_owned()).await {
            Ok(permit) => permit.map_err(|_| Error::Closed),
            Err(_) => Err(Error::Deadline(Context {
                server: server.name.clone(),
                phase: Phase::Wait,
                retry_is_safe: true,
            })),
        }
    }

    fn gate_of(&self, place: usize) -> Arc<Semaphore> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if !gates.process.is_current() {
            *gates = Gates::new();
        }
        let most = self.core.options().connections_max;
        while gates.of_places.len() <= place {
            gates.of_places.push(Arc::new(Semaphore::new(most)));
        }
        gates
            .of_places
            .get(place)
            .map_or_else(|| Arc::new(Semaphore::new(most)), Arc::clone)
    }

    /// Makes a call about one key and returns what its answer means; its cost is counted.
    pub async fn run<O: Operation>(
        &self,
        operation: &O,
        budget: &Budget<'_>,
    ) -> Result<O::Output, Error> {
        let place = self.core.place_of(operation.key().bytes);
        let server = self.core.server(place)?;
        let _permit = self.gate(place, &server, budget).await?;
        let requests = [operation.request()];
        let mut call = Call::new(server, &requests, budget.started, budget.deadline);
        call.never_wait();
        let mut reading = Reading::new(operation);
        drive(&mut call, |answer, pipeline, server| {
            reading.take(answer, pipeline, &server.name);
            Ok(())
        })
        .await?;
        reading.conclude(&self.core, &call, budget.spent)
    }

    /// Asks every server the same, one after the other; returns each one's name and answer.
    pub async fn ask_all(
        &self,
        request: Request<'_>,
        budget: &Budget<'_>,
    ) -> Vec<(String, Result<Answer, Error>)> {
        let mut answers = Vec::new();
        for (place, server) in self.core.servers() {
            let name = server.name.clone();
            answers.push((name, self.ask(place, server, request, budget).await));
        }
        answers
    }

    async fn ask(
        &self,
        place: usize,
        server: Arc<Server>,
        request: Request<'_>,
        budget: &Budget<'_>,
    ) -> Result<Answer, Error> {
        let _permit = self.gate(place, &server, budget).await?;
        let requests = [request];
        let mut call = Call::new(server, &requests, budget.started, budget.deadline);
        call.never_wait();
        let mut answer = Err(Error::Closed);
        drive(&mut call, |reply, _, server| {
            answer = refused(reply, &server.name);
            Ok(())
        })
        .await?;
        answer
    }

    /// Closes the idle connections, after their quiet writes were answered; later calls fail.
    pub async fn close(&self) {
        let budget = Budget::new(self.core.options().timeout);
        for (place, server) in self.core.servers() {
            // One round trip makes sure that what was sent without waiting has arrived.
            if server.has_pending() {
                let _ = self.ask(place, server, Request::Version, &budget).await; // no one to tell
            }
        }
        self.core.abandon();
    }
}
