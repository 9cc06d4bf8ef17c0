//! Sockets: the listening thread, the workers with their connections, and what is sent.
//!
//! What bytes mean is decided in `session`, which has no socket; what all threads see is in `shared`.

pub(crate) mod accept_queue;
pub(crate) mod connection;
pub(crate) mod listener;
pub(crate) mod send;
pub(crate) mod worker;
