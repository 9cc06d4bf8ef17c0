//! Our client as `profile` and `codec` call it: patient, and with errors in the lab's terms.

use std::time::Duration;

use glasscache_client::{
    Address, Budget, Client, Error, Options, Placement, Protocol as ClientProtocol, WireKey,
};
use glasscache_lab::access::Protocol;
use glasscache_lab::profile::CallError;

use crate::live_target::LiveTarget;
use crate::output::{Exit, Failure};

/// How long a call may take: long enough that a slow server is measured, not refused.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of `target` for values of up to 1 GiB, which measures what each part of a call takes if `counts_costs`.
pub(crate) fn new_client(target: &LiveTarget, counts_costs: bool) -> Result<Client, Failure> {
    let client_failure = |error: Error| Failure::new(Exit::Unreachable, error.to_string());
    let addresses = Address::parse_list(&target.address()).map_err(client_failure)?;
    let options = Options {
        timeout: CALL_TIMEOUT,
        value_bytes_max: 1 << 30,
        costs: counts_costs,
        tls: target.credentials.tls.clone(),
        login: target.credentials.login.clone(),
        protocol: match target.access.protocol {
            Protocol::Text | Protocol::Meta => ClientProtocol::Detected,
            Protocol::Binary => ClientProtocol::Binary,
        },
        ..Options::default()
    };
    Client::new(&addresses, Placement::Ketama, options).map_err(client_failure)
}

/// The budget of one call, which begins now.
pub(crate) fn new_call_budget() -> Budget<'static> {
    Budget::new(CALL_TIMEOUT)
}

/// A key that is sent as it is.
pub(crate) fn to_wire_key(key: &str) -> WireKey<'_> {
    WireKey { bytes: key.as_bytes(), is_base64: false }
}

/// The error of a failed call in the lab's terms.
pub(crate) fn to_call_error(error: &Error) -> CallError {
    match error {
        Error::Protocol { .. } => CallError::BadData(error.to_string()),
        error => CallError::Unreachable(error.to_string()),
    }
}
