//! The memcached-compatible server: listeners, epoll workers and command execution.
//!
//! [`start`] gives a running server inside this process, for the command line, the tour, the tests.
//! What bytes mean is `protocol`'s affair, where items lie is `store`'s; this crate moves bytes
//! between them and sockets, on N threads that share nothing but the store and a few registries.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod failure;
mod net;
mod replay;
mod running;
mod session;
mod shared;
mod systemd;
mod watchdog;

pub use replay::Replay;
pub use running::{Control, Prepared, Running, prepare, start};
pub use shared::address::Address;
pub use shared::config::{Config, Listen, Shown};
pub use systemd::notify;

const _: () = assert!(
    glasscache_protocol::KEY_BYTES_MAX <= glasscache_store::KEY_BYTES_MAX,
    "key limits"
);

/// The version that `version` and `stats` report: clients compare the leading number to learn whether meta commands
/// work; behind it stands our own.
macro_rules! version {
    () => {
        concat!("1.6.45-glasscache-", env!("CARGO_PKG_VERSION"))
    };
}
pub(crate) use version;

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Bind(String, std::io::Error),
    /// There is no memory for the items.
    #[error(transparent)]
    Store(#[from] glasscache_store::Error),
    /// The kernel refused a thread, a descriptor or a signal handler.
    #[error("cannot start the server: {0}")]
    System(std::io::Error),
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(String),
}
