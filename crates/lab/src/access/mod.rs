//! How a server is reached: its address, and what each connection begins with, a TLS handshake and a login.
//!
//! The caller decides whom to trust and which name to expect: it passes in a function that makes TLS sessions. A
//! connection is handed out only after both steps succeeded.

mod endpoint;
mod probe;
mod stream;

use std::fmt;
use std::sync::Arc;

use rustls::ClientConnection;
use serde::{Deserialize, Serialize};

pub use endpoint::Endpoint;
pub(crate) use probe::request_text_statistics;
pub use probe::{ProbeError, StatisticsRows, request_general_statistics, request_version};
pub(crate) use stream::SocketIo;
pub use stream::Stream;

/// Makes the client's end of a new TLS connection, or returns why it cannot.
pub type NewTlsSession = Arc<dyn Fn() -> Result<ClientConnection, String> + Send + Sync>;

/// The protocol of requests and replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Classic text: `get`, `set`.
    #[default]
    Text,
    /// Meta commands, `mg` and `ms`; text for what they do not have.
    Meta,
    /// Binary packets.
    Binary,
}

/// A server and what a connection to it begins with.
#[derive(Clone)]
pub struct Access {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// The protocol of all requests, the login included.
    pub protocol: Protocol,
    /// Encrypts each connection; `None` does not.
    pub tls: Option<NewTlsSession>,
    /// The request that logs in, a `set` in text and SASL PLAIN in binary; `None` does not log in.
    pub login_request: Option<Vec<u8>>,
}

impl<E: Into<Endpoint>> From<E> for Access {
    fn from(endpoint: E) -> Self {
        Self {
            endpoint: endpoint.into(),
            protocol: Protocol::default(),
            tls: None,
            login_request: None,
        }
    }
}

/// Without the password.
impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Access")
            .field("endpoint", &self.endpoint)
            .field("protocol", &self.protocol)
            .field("has_tls", &self.tls.is_some())
            .field("has_login", &self.login_request.is_some())
            .finish()
    }
}
