//! Calls about many keys: partitioned by server, all servers at once, a failure for each key.

mod fetch;
mod partition;
mod read;
mod remove;
mod requests;
mod store;

pub use crate::engine::Failures;
pub use fetch::Fetches;
pub use partition::{Partition, Partitioned};
pub use read::Reads;
pub use remove::Removals;
pub use requests::{BulkReply, Ended, Pending, ServerRequest};
#[cfg(feature = "tokio")]
pub(crate) use requests::{counted, read_held, rounds};
pub use store::{Stored, Stores};

/// A value of a bulk read: the index of its key in the call, its client flags, its bytes.
pub type Indexed = (usize, u32, Vec<u8>);
