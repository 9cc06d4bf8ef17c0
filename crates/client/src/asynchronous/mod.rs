//! The client for tokio: the methods and guarantees of [`Client`], awaited.
//!
//! A call is the blocking client's state machine (deadline, retry, uncertain writes, breaker), with its waits
//! left to the runtime. A call that is cancelled, by dropping its future, closes its connection. The
//! connections belong to the runtime in which they were made: a client serves one runtime, and its
//! calls panic outside one. After a fork, as in any runtime, a child starts with new connections.

mod bulk;
pub(crate) mod driving;

use std::future::poll_fn;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout_at;

use crate::address::Address;
use crate::call::Call;
use crate::client::{Budget, Client, ReplyReader};
use crate::engine::operation::Operation;
use crate::error::{Context, Error, Phase};
use crate::near::NearRead;
use crate::options::Options;
use crate::pipeline::{Pipeline, Reply};
use crate::pool::Server;
use crate::request::Request;
use crate::ring::Placement;
use driving::drive;

/// A client of one or more servers, to be shared by the tasks of one runtime.
#[derive(Debug)]
pub struct AsyncClient {
    core: Client,
}

/// Waits until fewer than `connections_max` calls to a server are under way.
async fn acquire_permit(
    server: &Server,
    budget: &Budget<'_>,
) -> Result<OwnedSemaphorePermit, Error> {
    let permits = server.pool.permits.clone();
    let deadline = tokio::time::Instant::from_std(budget.deadline);
    match timeout_at(deadline, permits.acquire_owned()).await {
        Ok(permit) => permit.map_err(|_| Error::Closed),
        Err(_) => Err(Error::Deadline(Context {
            server: server.name.clone(),
            phase: Phase::Wait,
            retry_is_safe: true,
        })),
    }
}

impl AsyncClient {
    /// A client of these servers; connects to none yet.
    pub fn new(
        addresses: &[Address],
        placement: Placement,
        options: Options,
    ) -> Result<Self, Error> {
        Ok(Self { core: Client::new(addresses, placement, options)? })
    }

    /// Settings, costs, keys, servers: what needs no waiting. Its calls would block the runtime.
    pub fn core(&self) -> &Client {
        &self.core
    }

    /// Changes the servers at once for all calls to come; a call in flight ends where it began.
    pub fn set_servers(&self, addresses: &[Address]) -> Result<(), Error> {
        self.core.set_servers(addresses)
    }

    /// Makes a call about one key and returns what its reply means; its cost is counted.
    pub async fn run<O: Operation>(
        &self,
        operation: &O,
        budget: &Budget<'_>,
    ) -> Result<O::Output, Error> {
        let mut reader = ReplyReader::new(operation, &self.core, budget);
        let server = self.core.server_of(operation.key().bytes)?;
        let _permit = acquire_permit(&server, budget).await?;
        let requests = [operation.request()];
        let mut call = Call::new(server, &requests, budget.started, budget.deadline);
        call.set_nonblocking();
        drive(&mut call, |reply, pipeline, server| {
            reader.record_reply(reply, pipeline, &server.name);
            Ok(())
        })
        .await?;
        reader.finish_and_count(&self.core, &call, budget.spent)
    }

    /// Makes requests to one server and hands over each reply in order.
    pub(crate) async fn request_server(
        &self,
        server: Arc<Server>,
        requests: &[Request<'_>],
        budget: &Budget<'_>,
        handle_reply: &mut impl FnMut(Reply, &Pipeline, &Arc<Server>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _permit = acquire_permit(&server, budget).await?;
        let mut call = Call::new(server, requests, budget.started, budget.deadline);
        call.set_nonblocking();
        drive(&mut call, handle_reply).await
    }

    /// Waits until the fetch that a read needs has ended, or the read's time is over, which it takes note of. Never an
    /// error: the wait of the blocking client may be interrupted.
    pub(crate) async fn wait_for_other_read(
        &self,
        read: &mut NearRead,
        budget: &Budget<'_>,
    ) -> Result<(), Error> {
        let deadline = tokio::time::Instant::from_std(budget.deadline);
        let wait = poll_fn(|context| read.poll_wait(context.waker()));
        if timeout_at(deadline, wait).await.is_err() {
            self.core.time_out_near(read);
        }
        Ok(())
    }
}
