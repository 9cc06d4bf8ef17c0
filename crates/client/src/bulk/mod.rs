//! Calls about many keys: partitioned by server, all servers at once, each key's failure told.

mod asking;
mod parts;
mod read;
mod remove;
mod store;

pub use crate::engine::Failures;
pub use asking::{Ask, Ended, Pending, Reply};
#[cfg(feature = "tokio")]
pub(crate) use asking::{counted, read_held, rounds};
pub use parts::{Part, Partitioned};
pub use read::Reads;
pub use remove::Removals;
pub use store::{Stored, Stores};

/// A value of a bulk read: the place of its key in the call, its client flags, its bytes.
pub type Indexed = (usize, u32, Vec<u8>);
