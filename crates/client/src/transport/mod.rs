//! Sockets: resolving names, connecting, and moving the bytes of a connection, with or without TLS.

pub(crate) mod background;
pub(crate) mod blocking;
pub(crate) mod connect;
pub(crate) mod resolver;
pub(crate) mod socket;
pub(crate) mod tls;
