//! How a server is reached: its address, and what each connection begins with, a TLS handshake and a login.
//!
//! The client decides whom to trust, which name to expect and what a login looks like: the connections of the load
//! generator take their TLS sessions and their logins from it. A connection is handed out only after both steps
//! succeeded.

mod endpoint;
mod probe;
mod stream;

use std::io;
use std::time::Duration;

use glasscache_client::{Address, Login, Tls, address};
use rustls::ClientConnection;
use serde::{Deserialize, Serialize};

pub use endpoint::Endpoint;
pub use probe::ProbeError;
pub(crate) use probe::{
    StatisticsRows, request_statistics, request_text_statistics, request_version,
};
pub(crate) use stream::{SocketIo, Stream};

/// How long each address of a name may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

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

/// The encryption and the login of each connection to a server; by default neither.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// Makes the TLS sessions; `None` for unencrypted connections.
    pub tls: Option<Tls>,
    /// The login, if the server requires one.
    pub login: Option<Login>,
}

/// A server and what a connection to it begins with.
#[derive(Debug, Clone)]
pub struct Access {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// The protocol of all requests, the login included.
    pub protocol: Protocol,
    /// Encryption and login.
    pub credentials: Credentials,
    /// The name that an encrypted server has to show; the address as it was given.
    pub tls_name: Option<address::Endpoint>,
}

/// Why the address of a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// It has no port, or its name is not known.
    #[error("{0}: not an address: {1}")]
    Address(String, io::Error),
    /// No certificate can name it.
    #[error("{0}")]
    Tls(String),
}

impl Access {
    /// How the server at `address` is reached: `host:port`, `unix:PATH` or a path with a slash.
    ///
    /// # Errors
    /// The address cannot be read or is not known, or has no name that a certificate could have.
    pub fn find(
        address: &str,
        protocol: Protocol,
        credentials: &Credentials,
    ) -> Result<Self, AccessError> {
        let endpoint = Endpoint::find(address, CONNECT_TIMEOUT)
            .map_err(|error| AccessError::Address(address.to_owned(), error))?;
        let mut access =
            Self { protocol, credentials: credentials.clone(), ..Self::from(endpoint) };
        if let Some(tls) = &credentials.tls {
            let parsed =
                Address::parse(address).map_err(|error| AccessError::Tls(error.to_string()))?;
            tls.session(&parsed.endpoint)
                .map_err(|reason| AccessError::Tls(format!("{address}: {reason} (--tls)")))?;
            access.tls_name = Some(parsed.endpoint);
        }
        Ok(access)
    }

    /// The client's end of a new TLS connection; `None` if connections are not encrypted.
    fn new_tls_session(&self) -> io::Result<Option<ClientConnection>> {
        let tls_and_name = self.credentials.tls.as_ref().zip(self.tls_name.as_ref());
        let tls_session = tls_and_name.map(|(tls, name)| tls.session(name));
        tls_session.transpose().map_err(io::Error::other)
    }

    /// The request that logs in, a `set` in text and SASL PLAIN in binary; `None` does not log in.
    fn login_request(&self) -> io::Result<Option<Vec<u8>>> {
        let Some(login) = &self.credentials.login else {
            return Ok(None);
        };
        let mut request = Vec::new();
        let write_result = match self.protocol {
            Protocol::Text | Protocol::Meta => login.write(&mut request),
            Protocol::Binary => login.write_binary(&mut request, 0),
        };
        write_result.map(|()| Some(request)).map_err(io::Error::other)
    }
}

impl<E: Into<Endpoint>> From<E> for Access {
    fn from(endpoint: E) -> Self {
        Self {
            endpoint: endpoint.into(),
            protocol: Protocol::default(),
            credentials: Credentials::default(),
            tls_name: None,
        }
    }
}
