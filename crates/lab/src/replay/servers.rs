//! The servers of a replay, and the clients that reach the keys of a log there.

use glasscache_client::{Address, Client, Options, Placement};

use super::ReplayError;
use crate::target::{CALL_TIMEOUT, VALUE_BYTES_MAX};

/// Servers that share the keys (ketama), and the namespace of the keys there, which the keys of a log lack.
#[derive(Debug, Clone, Copy)]
pub struct Servers<'r> {
    /// Their addresses.
    pub addresses: &'r [Address],
    /// The namespace of the application's client, such as `gc~`; empty if it has none.
    pub namespace: &'r str,
}

impl Servers<'_> {
    /// Options of a client that waits for a slow server, and takes values of any size.
    pub(super) fn client_options(&self) -> Options {
        Options {
            timeout: CALL_TIMEOUT,
            value_bytes_max: VALUE_BYTES_MAX,
            costs: false,
            namespace: self.namespace.as_bytes().to_vec(),
            ..Options::default()
        }
    }

    /// A client with these options, which has connected to no server yet.
    pub(super) fn new_client(&self, options: Options) -> Result<Client, ReplayError> {
        Ok(Client::new(self.addresses, Placement::Ketama, options)?)
    }
}
