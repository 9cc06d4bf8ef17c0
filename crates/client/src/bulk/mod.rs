//! Calls about many keys: parted by server, all servers at once, each key's failure told.

mod asking;
mod parts;
mod read;
mod remove;
mod store;

pub use crate::engine::Failures;
pub use asking::Pending;
#[cfg(feature = "tokio")]
pub(crate) use asking::{Ask, Ended, Reply, counted, read_held, rounds};
pub(crate) use read::Reads;
pub(crate) use remove::Removals;
pub(crate) use store::{Judged, Stores};

/// A value of a bulk read: the place of its key in the call, its client flags, its bytes.
pub type Indexed = (usize, u32, Vec<u8>);
