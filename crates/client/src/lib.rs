//! The cache client: placement, pipelines, deadlines, values and their costs.
//!
//! [`Client`] is what an application holds. A call finds its server on the [`ring`], takes a
//! connection from the [`pool`], writes a [`request`] and reads the replies through a
//! [`pipeline`], all under one deadline. The pipeline knows no socket, so an event loop of another
//! language can drive it as well as the blocking [`call`]. With the feature `tokio` there is an
//! `AsyncClient` too: the same calls, driven by that runtime.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
#![forbid(unsafe_code)]

pub mod address;
#[cfg(feature = "tokio")]
mod asynchronous;
pub mod bulk;
pub mod call;
pub mod client;
pub mod costs;
pub mod engine;
pub mod error;
pub mod fork;
pub mod key;
pub mod login;
mod members;
mod membership;
mod methods;
pub mod near;
pub mod observe;
pub mod options;
pub mod pipeline;
pub mod pool;
mod probe;
pub mod request;
pub mod request_record;
pub mod reservation;
pub mod ring;
pub mod tcp;
mod thread_id;
pub mod tls;
mod transport;
pub mod value;
pub mod waiter;
mod watch;
mod write_buffer;
pub mod write_outcome;

pub use address::Address;
#[cfg(feature = "tokio")]
pub use asynchronous::AsyncClient;
pub use client::{Budget, Client, Value};
pub use error::Error;
pub use glasscache_protocol::meta::request::{Arithmetic, WireKey};
pub use glasscache_protocol::text::{reply::ErrorLineKind, request::StoreMode};
pub use login::Login;
pub use options::{Options, Protocol, QUIET_BYTES_MAX};
pub use request_record::RequestRecord;
pub use ring::Placement;
pub use tcp::TcpOptions;
pub use tls::{Tls, TlsFiles};
