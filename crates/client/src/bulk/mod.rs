//! Calls about many keys: parted by server, all servers at once, each key's failure told.

mod asking;
mod parts;
mod read;
mod remove;
mod store;

use crate::error::Error;

pub use asking::{Pending, wait_for_all};
#[cfg(feature = "tokio")]
pub(crate) use {
    asking::{Ask, Ended, Reply, counted, read_held, rounds},
    read::Reads,
    remove::Removals,
    store::{Judged, Stores},
};

/// What a bulk call did not do: the place of the key in the call, and why.
pub type Failures = Vec<(usize, Error)>;

/// A value of a bulk read: the place of its key in the call, its client flags, its bytes.
pub type Indexed = (usize, u32, Vec<u8>);
