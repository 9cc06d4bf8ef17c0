//! The options by which `bench`, `profile` and `warm` reach a server that encrypts or requires a login.
//!
//! The client crate decides which certificates are trusted and which users and passwords are valid. The lab's
//! connections get their TLS sessions and their login from it, so both halves of a command connect alike.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use glasscache_client::{Address, Error, Login, Tls, TlsFiles};
use glasscache_lab::access::{Access, Endpoint, NewTlsSession, Protocol};

use crate::output::Failure;

/// How long each address of a name may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The options for encryption and login.
#[derive(clap::Args, Debug, Clone, Default)]
#[group(skip)]
#[command(next_help_heading = "Encryption and login")]
pub(crate) struct Args {
    /// Encrypt connections; the server's certificate and its name are verified
    #[arg(long)]
    tls: bool,
    /// PEM file with the authorities to trust [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_ca: Option<PathBuf>,
    /// PEM file with the certificate to present
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_cert: Option<PathBuf>,
    /// PEM file with its private key [default: the file of --tls-cert]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The name in the server's certificate [default: the host of its address]
    #[arg(long, value_name = "NAME", requires = "tls")]
    tls_name: Option<String>,
    /// Log in as this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The user's password; other users of the machine see a command line, but not the environment
    #[arg(long, value_name = "TEXT", env = "GLASSCACHE_PASSWORD", hide_env_values = true)]
    password: Option<String>,
}

impl Args {
    /// Whether one of the options was given.
    pub(crate) fn is_given(&self) -> bool {
        self.tls || self.user.is_some()
    }

    /// Whether connections are encrypted.
    pub(crate) fn has_tls(&self) -> bool {
        self.tls
    }

    /// Reads the files and checks the login.
    pub(crate) fn read_credentials(&self) -> Result<Credentials, Failure> {
        let to_failure = |error: Error| Failure::usage(error.to_string());
        let files = TlsFiles {
            ca_file: self.tls_ca.clone(),
            certificate_file: self.tls_cert.clone(),
            key_file: self.tls_key.clone(),
            server_name: self.tls_name.clone(),
        };
        let tls = self.tls.then(|| Tls::new(&files)).transpose();
        let login = match (&self.user, &self.password) {
            (None, _) => None,
            (Some(_), None) => {
                return Err(Failure::usage("--user: a password is needed")
                    .with_hint("set GLASSCACHE_PASSWORD, or give --password"));
            }
            (Some(user), Some(password)) => {
                let login = Login::new(user.as_str(), password.as_str());
                login.check().map_err(to_failure)?;
                Some(login)
            }
        };
        Ok(Credentials { tls: tls.map_err(to_failure)?, login })
    }
}

/// The failure of these options where no address is given: a server that the command starts has neither a certificate
/// nor users.
pub(crate) fn missing_target_failure() -> Failure {
    Failure::usage("--tls and --user need the address of a server").with_hint(
        "without an address a server is started that neither encrypts nor requires a login",
    )
}

/// The encryption and the login of each connection to a server; by default neither.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credentials {
    /// Makes the TLS sessions; `None` for unencrypted connections.
    pub(crate) tls: Option<Tls>,
    /// The login, if the server requires one.
    pub(crate) login: Option<Login>,
}

impl Credentials {
    /// How the lab's connections reach the server at `address`: its endpoint, this protocol, encryption and login.
    pub(crate) fn access_to(&self, address: &str, protocol: Protocol) -> Result<Access, Failure> {
        let endpoint = Endpoint::find(address, CONNECT_TIMEOUT).map_err(|error| {
            Failure::usage(format!("{address}: not an address: {error}"))
                .with_hint("addresses are host:port or unix:PATH")
        })?;
        let mut login_request = Vec::new();
        if let Some(login) = &self.login {
            let write_result = match protocol {
                Protocol::Text | Protocol::Meta => login.write(&mut login_request),
                Protocol::Binary => login.write_binary(&mut login_request, 0),
            };
            write_result.map_err(Failure::usage)?;
        }
        Ok(Access {
            endpoint,
            protocol,
            tls: self.new_tls_session_maker(address)?,
            login_request: self.login.as_ref().map(|_| login_request),
        })
    }

    /// A function that makes TLS sessions; in each the server has to show the name that it has in `address`.
    fn new_tls_session_maker(&self, address: &str) -> Result<Option<NewTlsSession>, Failure> {
        let Some(tls) = self.tls.clone() else {
            return Ok(None);
        };
        let Address { endpoint, .. } =
            Address::parse(address).map_err(|error| Failure::usage(error.to_string()))?;
        tls.session(&endpoint)
            .map_err(|reason| Failure::usage(format!("{address}: {reason} (--tls)")))?;
        Ok(Some(Arc::new(move || tls.session(&endpoint))))
    }
}
