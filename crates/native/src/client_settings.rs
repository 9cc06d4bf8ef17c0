//! The settings of a client as Python passes them in, and the Rust client that is made of them.
//!
//! They have the names of the table in `glasscache._client_settings`. What Python prepares is described at its field.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use glasscache_client::options::KeyEncoding;
use glasscache_client::{Client, Login, Options, Protocol, TcpOptions, Tls, TlsFiles};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cooperative::GreenletWaiter;
use crate::near::Strategy;
use crate::settings::{Codec, build_client};
use crate::{deadline, error};

/// The authorities, the certificate, its key and the servers' name, as Python's `TLS.files` has them.
type TlsArguments = (Option<PathBuf>, Option<PathBuf>, Option<PathBuf>, Option<String>);

/// All settings of a client except its servers, by name.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ClientSettings {
    pub(crate) codec: Py<Codec>,
    timeout: f64,
    placement: String,
    namespace: Vec<u8>,
    /// From `on_error`: a function that returns whether an error counts as a miss.
    pub(crate) counts_as_miss: Option<Py<PyAny>>,
    value_bytes_max: u64,
    connections_max: usize,
    keys: String,
    protocol: String,
    /// From `user` and `password`.
    login: Option<(Vec<u8>, Py<PyAny>)>,
    /// The files of `tls`.
    tls: Option<TlsArguments>,
    /// Seconds.
    keepalive: Option<u64>,
    costs: bool,
    /// From the file of `strategy`.
    pub(crate) strategy: Option<Py<Strategy>>,
    /// Not a setting: `select` and `sleep` of the greenlet scheduler (gevent, eventlet), if there is one.
    greenlet_waits: Option<(Py<PyAny>, Py<PyAny>)>,
}

impl ClientSettings {
    /// The Rust client of these servers.
    pub(crate) fn build_client(&self, py: Python<'_>, servers: &[String]) -> PyResult<Client> {
        let waiter = |(select, sleep): &(Py<PyAny>, Py<PyAny>)| {
            let (select, sleep) = (select.clone_ref(py), sleep.clone_ref(py));
            Arc::new(GreenletWaiter { select, sleep }) as _
        };
        let options = Options {
            timeout: deadline::parse_timeout(self.timeout)?,
            value_bytes_max: self.value_bytes_max,
            connections_max: self.connections_max,
            namespace: self.namespace.clone(),
            keys: match self.keys.as_str() {
                "base64" => KeyEncoding::Base64,
                _ => KeyEncoding::Refuse,
            },
            protocol: match self.protocol.as_str() {
                "binary" => Protocol::Binary,
                _ => Protocol::Detected,
            },
            login: self.login.as_ref().map(|login| build_login(py, login)),
            tls: self.tls.as_ref().map(|files| load_tls(py, files)).transpose()?,
            tcp: TcpOptions { keepalive: self.keepalive.map(Duration::from_secs) },
            costs: self.costs,
            strategy: self.strategy.as_ref().map(|strategy| strategy.get().options.clone()),
            waiter: self.greenlet_waits.as_ref().map(waiter),
            ..Options::default()
        };
        build_client(py, servers, &self.placement, options)
    }
}

/// A login with a password, or with a function that returns the password for each new connection.
fn build_login(py: Python<'_>, (user, password): &(Vec<u8>, Py<PyAny>)) -> Login {
    if let Ok(fixed_password) = password.bind(py).cast::<PyBytes>() {
        return Login::new(user.clone(), fixed_password.as_bytes());
    }
    let password = password.clone_ref(py);
    Login::with_provider(user.clone(), move || {
        Python::attach(|py| {
            let provided = password.bind(py).call0().map_err(|error| {
                format!("the function that provides the password failed: {error}")
            })?;
            if let Ok(bytes) = provided.cast::<PyBytes>() {
                return Ok(bytes.as_bytes().to_vec());
            }
            let text: PyResult<String> = provided.extract();
            text.map(String::into_bytes)
                .map_err(|_| "the password that was provided is neither str nor bytes".to_owned())
        })
    })
}

/// Reads the TLS files of a client.
fn load_tls(
    py: Python<'_>,
    (ca_file, certificate_file, key_file, server_name): &TlsArguments,
) -> PyResult<Tls> {
    let files = TlsFiles {
        ca_file: ca_file.clone(),
        certificate_file: certificate_file.clone(),
        key_file: key_file.clone(),
        server_name: server_name.clone(),
    };
    Tls::new(&files).map_err(|error| error::from_client_error(py, &error))
}
