//! The memcached protocols (text, meta, binary), both ends, as pure functions over bytes.
//!
//! Nothing here owns a socket, a clock or a buffer: a parser borrows its input and returns how
//! many bytes it consumed, a writer appends to a `Vec<u8>`. So both ends can be fuzzed, replayed and
//! checked against each other. The server's end is `parse` and `write`, the client's end is
//! `request` and `reply`; the names follow memcached 1.6's `doc/protocol.txt`.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod ascii;
pub mod base64;
pub mod binary;
pub mod command;
pub mod limits;
pub mod login;
pub mod meta;
pub mod percent;
pub mod proxy_header;
pub mod replies;
mod reply;
mod request;
pub mod text;

pub use command::{Command, GetHead, LineRefusal, StoreCommand, StoreHead};
pub use limits::KEY_BYTES_MAX;
