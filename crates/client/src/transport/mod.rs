//! Moving a pipeline's bytes.

pub(crate) mod background;
pub(crate) mod blocking;
pub(crate) mod connect;
pub(crate) mod resolver;
pub(crate) mod socket;
pub(crate) mod tls;
