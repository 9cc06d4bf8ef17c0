//! Calls that take several requests, described once for every client. No socket, no clock, no thread.
//!
//! A driver of [`Steps`] sends the request of each [`Step`], waits in its own way and passes in the result, until no
//! step is left. So the blocking client, the tokio client and the asyncio client decide
//! alike (docs/decisions/client.md, 0067).

mod bulk_requests;
pub mod connection;
mod counter;
mod extending;
pub mod health;
pub mod interpret;
pub mod operation;
pub mod pending_writes;
mod refused_value;
pub mod retry;
pub mod server;
mod step;
mod store_many;
pub mod uncertain;

pub use crate::error::Failures;
pub use bulk_requests::{BulkRequests, BulkResult, RetryState};
pub use counter::{Counter, InitialNumber};
pub use extending::Extending;
pub use refused_value::RefusedValueSteps;
pub use step::{Step, StepOutcome};
pub(crate) use store_many::IndexAndSlot;
pub use store_many::{Items, StoreManySteps};

use crate::error::Error;

/// A call of several requests, one after the other.
pub trait Steps {
    /// What the caller gets.
    type Output;

    /// The next request; `None`: there is none.
    fn step(&self) -> Option<Step<'_>>;

    /// Handles the result of that step.
    fn handle_result(&mut self, step_result: Result<StepOutcome, Error>);

    /// The result of the call, once there is no further step.
    fn finish(self) -> Self::Output;
}
