//! A server under measurement: any that speaks memcached, and our client of it.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use glasscache_client::{
    Address, Budget, Client, Error, Options, Placement, Protocol as ClientProtocol, WireKey,
};
use glasscache_protocol::KEY_BYTES_MAX;

use crate::access::{
    self, Access, Endpoint, ProbeError, Protocol, request_statistics, request_version,
};
use crate::proc::{self, Meter};

/// How long a call may take: long enough that a slow server is measured, not refused.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest value of these clients: memcached's maximum `-I`.
pub(crate) const VALUE_BYTES_MAX: u64 = 1 << 30;

/// A server under measurement.
#[derive(Debug)]
pub struct Target {
    /// Its address as given, or `embedded`.
    pub name: String,
    /// How connections reach it: endpoint, protocol, encryption and login.
    pub access: Access,
    /// Its reply to `version`.
    pub version: String,
    /// Its CPU time, if its process is on this machine and can be seen.
    pub meter: Meter,
}

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The server cannot be reached, or disconnected.
    #[error("{0}")]
    Unreachable(String),
    /// The server or the client program sent something that cannot be understood.
    #[error("{0}")]
    BadData(String),
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        match error {
            Error::Protocol { .. } => Self::BadData(error.to_string()),
            error => Self::Unreachable(error.to_string()),
        }
    }
}

impl Target {
    /// The server at `address`, which `access` reaches.
    ///
    /// # Errors
    /// It cannot be reached, does not speak this protocol of memcached, or wants a login.
    pub fn open(address: &str, access: Access) -> Result<Self, ProbeError> {
        let version = request_version(&access)?;
        let meter = find_meter(&access);
        Ok(Self { name: address.to_owned(), access, version, meter })
    }

    /// The server in this process that listens at `address`.
    ///
    /// # Errors
    /// As those of [`Self::open`].
    pub fn open_embedded(
        address: SocketAddr,
        meter: Meter,
        protocol: Protocol,
    ) -> Result<Self, ProbeError> {
        let access = Access { protocol, ..Access::from(address) };
        let version = request_version(&access)?;
        Ok(Self { name: "embedded".to_owned(), access, version, meter })
    }

    /// The address for a client; by name if the name is verified, else the one that the generator's connections have.
    pub(crate) fn address(&self) -> String {
        if self.access.credentials.tls.is_some() {
            self.name.clone()
        } else {
            self.access.endpoint.to_string()
        }
    }

    /// Whether the server is on this machine.
    pub fn is_local(&self) -> bool {
        is_local(&self.access.endpoint)
    }

    /// A number from its general counters.
    pub(crate) fn counter(&self, name: &str) -> Option<u64> {
        let rows = request_statistics(&self.access, "").ok()?;
        find_number(&rows, name)
    }

    /// Bytes of all items as the server counts them, headers included. The `bytes` of glasscache are whole segments.
    pub(crate) fn item_bytes(&self) -> Option<u64> {
        let own_rows = request_statistics(&self.access, "glasscache").unwrap_or_default();
        find_number(&own_rows, "item_bytes").or_else(|| self.counter("bytes"))
    }

    /// Name and version for a table.
    pub fn describe(&self) -> String {
        let protocol = match self.access.protocol {
            Protocol::Text | Protocol::Meta => "",
            Protocol::Binary => ", binary",
        };
        format!("{} ({}{protocol})", self.name, self.version)
    }

    /// A client of it for values of up to 1 GiB, which measures what each part of a call takes if `counts_costs`.
    pub(crate) fn new_client(&self, counts_costs: bool) -> Result<Client, Error> {
        let options = Options {
            timeout: CALL_TIMEOUT,
            value_bytes_max: VALUE_BYTES_MAX,
            costs: counts_costs,
            tls: self.access.credentials.tls.clone(),
            login: self.access.credentials.login.clone(),
            protocol: self.client_protocol(),
            ..Options::default()
        };
        Client::new(&Address::parse_list(&self.address())?, Placement::Ketama, options)
    }

    /// The protocol of clients, which find out by themselves whether the server has meta commands.
    pub(crate) fn client_protocol(&self) -> ClientProtocol {
        match self.access.protocol {
            Protocol::Text | Protocol::Meta => ClientProtocol::Detected,
            Protocol::Binary => ClientProtocol::Binary,
        }
    }
}

/// The budget of one call, which begins now.
pub(crate) fn new_call_budget() -> Budget<'static> {
    Budget::new(CALL_TIMEOUT)
}

/// A key that cannot go on the wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "key \"{0}\": must be 1 to 250 bytes without spaces and control characters, it has {len}",
    len = .0.len()
)]
pub struct KeyError(String);

/// The key for the wire.
///
/// # Errors
/// It is empty or too long, or has a space or a control character.
pub fn wire_key(key: &str) -> Result<WireKey<'_>, KeyError> {
    let is_invalid_byte = |byte: u8| byte <= b' ' || byte == 0x7f;
    if key.is_empty() || key.len() > KEY_BYTES_MAX || key.bytes().any(is_invalid_byte) {
        return Err(KeyError(key.to_owned()));
    }
    Ok(to_wire_key(key))
}

/// A key that is sent as it is.
pub(crate) fn to_wire_key(key: &str) -> WireKey<'_> {
    WireKey { bytes: key.as_bytes(), is_base64: false }
}

pub(crate) fn is_local(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Tcp(address) => address.ip().is_loopback(),
        Endpoint::Unix(_) => true,
    }
}

/// The number of this name among the rows of `stats`.
fn find_number<N: FromStr>(rows: &access::StatisticsRows, wanted: &str) -> Option<N> {
    let (_, value) = rows.iter().find(|(name, _)| name == wanted)?;
    value.parse().ok()
}

/// What reads the CPU time of a server on this machine, whose process is found by the `pid` that it reports.
pub(crate) fn find_meter(access: &Access) -> Meter {
    let rows = request_statistics(access, "").unwrap_or_default();
    let Some(pid) = find_number(&rows, "pid").filter(|_| is_local(&access.endpoint)) else {
        return Meter::None;
    };
    // In another container the same number may belong to another process.
    let thread_name = proc::read_thread_name(pid, pid);
    if ["memcached", "glasscache"].iter().any(|program| thread_name.contains(program)) {
        Meter::Process { pid, workers: find_number(&rows, "threads").unwrap_or(1) }
    } else {
        Meter::None
    }
}
