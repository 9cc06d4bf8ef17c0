//! How a server is reached: its address, and what each connection begins with, a TLS handshake and a login.
//!
//! Whom to trust and which name to expect is decided by the caller, which passes in a function that makes sessions; a
//! connection is handed out only after both steps succeeded.

mod endpoint;
mod stream;

use std::fmt;
use std::sync::Arc;

use rustls::ClientConnection;

pub use endpoint::Endpoint;
pub(crate) use stream::SocketIo;
pub use stream::Stream;

/// Makes the client's end of a new TLS connection, or returns why it cannot.
pub type NewTlsSession = Arc<dyn Fn() -> Result<ClientConnection, String> + Send + Sync>;

/// A server and what a connection to it begins with.
#[derive(Clone)]
pub struct Access {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Encrypts each connection; `None` does not.
    pub tls: Option<NewTlsSession>,
    /// The text request that logs in, to which `STORED` is the reply; `None` does not log in.
    pub login_request: Option<Vec<u8>>,
}

impl<E: Into<Endpoint>> From<E> for Access {
    fn from(endpoint: E) -> Self {
        Self {
            endpoint: endpoint.into(),
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
            .field("has_tls", &self.tls.is_some())
            .field("has_login", &self.login_request.is_some())
            .finish()
    }
}
