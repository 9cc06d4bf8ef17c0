//! Calls about many keys: partitioned by server, all servers at once, a failure for each key.
//!
//! `read`, `store` and `delete` write the requests of a kind of call and interpret its replies; `read_with_ttls` reads
//! for the near cache, which needs remaining TTLs. `partition` decides which key goes to which server, `requests` sends
//! the requests and receives the replies. What follows from a failure is decided in `engine`.
//!
//! A *partition* is the keys of a call that go to one server in one request, a *round* the requests that run at
//! once.

mod delete;
mod partition;
mod read;
mod read_with_ttls;
mod requests;
mod store;

pub use crate::engine::{BulkResult, Failures};
pub use delete::BulkDelete;
pub use partition::{Partition, Partitioned};
pub use read::BulkRead;
pub(crate) use read::ReadTotals;
pub use read_with_ttls::BulkReadWithTtls;
pub(crate) use read_with_ttls::found_values_with_index;
pub use requests::{BulkReply, CallWithError, ServerRequest};
#[cfg(feature = "tokio")]
pub(crate) use requests::{handle_and_count_replies, handle_unread_reply, request_rounds};
pub use store::{BulkStore, StoreFailures};

/// A value of a bulk read: the index of its key in the call, its client flags, its bytes.
pub type IndexedValue = (usize, u32, Vec<u8>);
