//! The options by which every command reaches a server that encrypts or requires a login.
//!
//! The client crate decides which certificates are trusted and which users and passwords are valid.

use std::path::PathBuf;

use glasscache_client::{Error, Login, Tls, TlsFiles};
use glasscache_lab::access::{Access, AccessError, Credentials, Protocol};

use crate::output::Failure;

/// The environment variables of these options, which are no settings of a server.
pub(crate) const VARIABLES: [&str; 7] = [
    "GLASSCACHE_TLS",
    "GLASSCACHE_TLS_CA",
    "GLASSCACHE_TLS_CERT",
    "GLASSCACHE_TLS_KEY",
    "GLASSCACHE_TLS_NAME",
    "GLASSCACHE_LOGIN",
    "GLASSCACHE_PASSWORD",
];

/// The options for encryption and login.
#[derive(clap::Args, Debug, Clone, Default)]
#[group(skip)]
#[command(next_help_heading = "Encryption and login")]
pub(crate) struct Args {
    /// Encrypt connections; the server's certificate and its name are verified
    #[arg(long, env = "GLASSCACHE_TLS")]
    tls: bool,
    /// PEM file with the authorities to trust [default: those of the system]
    #[arg(long, value_name = "FILE", env = "GLASSCACHE_TLS_CA", hide_env_values = true)]
    tls_ca: Option<PathBuf>,
    /// PEM file with the certificate to present
    #[arg(long, value_name = "FILE", env = "GLASSCACHE_TLS_CERT", hide_env_values = true)]
    tls_cert: Option<PathBuf>,
    /// PEM file with its private key [default: the file of --tls-cert]
    #[arg(long, value_name = "FILE", env = "GLASSCACHE_TLS_KEY", hide_env_values = true)]
    tls_key: Option<PathBuf>,
    /// The name in the server's certificate [default: the host of its address]
    #[arg(long, value_name = "NAME", env = "GLASSCACHE_TLS_NAME", hide_env_values = true)]
    tls_name: Option<String>,
    /// Log in as this user
    #[arg(long, value_name = "NAME", env = "GLASSCACHE_LOGIN", hide_env_values = true)]
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
        let needs_tls = [
            ("--tls-ca", self.tls_ca.is_some()),
            ("--tls-cert", self.tls_cert.is_some()),
            ("--tls-key", self.tls_key.is_some()),
            ("--tls-name", self.tls_name.is_some()),
        ];
        if let Some((option, _)) = needs_tls.iter().find(|(_, is_given)| *is_given && !self.tls) {
            return Err(Failure::usage(format!("{option} has no effect without --tls")));
        }
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

/// How connections reach the server at `address`, with this protocol, encryption and login.
pub(crate) fn find_access(
    address: &str,
    protocol: Protocol,
    credentials: &Credentials,
) -> Result<Access, Failure> {
    Access::find(address, protocol, credentials).map_err(|error| {
        let failure = Failure::usage(error.to_string());
        match error {
            AccessError::Address(..) => failure.with_hint("addresses are host:port or unix:PATH"),
            AccessError::Tls(_) => failure,
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    #[test]
    fn each_variable_of_an_option_is_listed() {
        let command = Args::augment_args(clap::Command::new("test"));
        let variables: Vec<_> =
            command.get_arguments().filter_map(|argument| argument.get_env()?.to_str()).collect();
        assert_eq!(variables, VARIABLES);
    }
}
