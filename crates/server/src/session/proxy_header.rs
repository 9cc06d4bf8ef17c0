//! Connections of a known proxy: they begin with a header of the PROXY protocol, which names the client.
//!
//! Only addresses of the settings are proxies. From any other peer the header is a malformed request, so no client can
//! claim to be another.

use glasscache_protocol::proxy_header::{self, Parsed};

use super::state::{Access, Session, State};
use crate::session::context::Context;
use crate::shared::connection_info::CloseReason;

impl Session {
    /// Reads the header if it has to come now, and returns its length in bytes: 0 if none has to come, `None` while it
    /// is incomplete.
    pub(super) fn read_proxy_header(
        &mut self,
        input: &[u8],
        context: &Context<'_>,
    ) -> Result<Option<usize>, CloseReason> {
        if !matches!(self.state, State::ProxyHeader) {
            return Ok(Some(0));
        }
        match proxy_header::parse(input) {
            Parsed::Incomplete => Ok(None),
            Parsed::Invalid => {
                self.state = State::Closed;
                Err(CloseReason::NoProxyHeader)
            }
            Parsed::Header { client, used } => {
                if let Some(client) = client {
                    context.connection.set_proxied_client(client);
                }
                self.state = State::initial(Access::of(context.connection, &context.shared.logins));
                Ok(Some(used))
            }
        }
    }
}
