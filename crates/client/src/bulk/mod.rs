//! Calls about many keys: partitioned by server, all servers at once, a failure for each key.

mod delete;
mod fetch;
mod partition;
mod read;
mod requests;
mod store;

pub use crate::engine::Failures;
pub use delete::BulkDelete;
pub use fetch::Fetches;
pub use partition::{Partition, Partitioned};
pub use read::BulkRead;
pub use requests::{BulkReply, BulkResult, Pending, ServerRequest};
#[cfg(feature = "tokio")]
pub(crate) use requests::{counted, process_held, rounds};
pub use store::{BulkStore, Stored};

/// A value of a bulk read: the index of its key in the call, its client flags, its bytes.
pub type Indexed = (usize, u32, Vec<u8>);
