//! Sockets: the listening thread, the workers with their connections, and sending.
//!
//! `session`, which has no socket, interprets the bytes; state that all threads see is in `shared`.

pub(crate) mod accept_queue;
pub(crate) mod connection;
pub(crate) mod handshakes;
pub(crate) mod listener;
pub(crate) mod send;
pub(crate) mod stream;
pub(crate) mod worker;
