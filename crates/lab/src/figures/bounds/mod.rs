//! Absolute bounds: nothing refused, nothing late, nothing beyond the budget.
//!
//! Each check starts its own glasscache, applies a workload, and reports figures with their bounds.

mod client;
mod one_key;
mod stalled;
mod ttls;
mod writes;

use serde::Serialize;

use crate::bench::{Error, ServerPair};
use one_key::check_one_key;
use stalled::check_stalled_clients;
use ttls::check_ttls;
use writes::check_read_your_writes;

/// `-m` of most checks.
const MEMORY_MIB: u64 = 64;

/// A figure with its bound.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Finding {
    /// The name of the workload.
    #[serde(rename = "what")]
    pub(crate) name: String,
    /// The bound.
    #[serde(rename = "at_most")]
    pub(crate) bound: f64,
    /// The measured value.
    #[serde(rename = "found")]
    pub(crate) measured: f64,
    /// The unit, and what else a reader should know.
    pub(crate) note: String,
}

impl Finding {
    fn new(name: &str, bound: f64, measured: f64, note: impl Into<String>) -> Self {
        Self { name: name.to_owned(), bound, measured, note: note.into() }
    }

    /// Whether the value is within the bound.
    pub(crate) fn is_met(&self) -> bool {
        self.measured <= self.bound
    }
}

/// The budget of a server: 1.02 x `-m` + 16 MiB, in MiB.
pub(crate) fn compute_budget_mib(memory_mib: u64) -> f64 {
    1.02 * memory_mib as f64 + 16.0
}

fn bytes_to_mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Checks the memory of an empty server with `-m 1024`.
fn check_empty_server(servers: &ServerPair) -> Result<Vec<Finding>, Error> {
    let server = servers.ours(1024).start().map_err(Error::Start)?;
    let resident_mib = bytes_to_mib(server.read_resident_bytes());
    Ok(vec![Finding::new("empty server at -m 1024", 8.0, resident_mib, "MiB resident")])
}

/// One check.
pub(crate) type BoundCheck = fn(&ServerPair) -> Result<Vec<Finding>, Error>;

/// All checks, by name.
pub(crate) const ALL_CHECKS: [(&str, BoundCheck); 5] = [
    ("empty", check_empty_server),
    ("one-key", check_one_key),
    ("ttls", check_ttls),
    ("stalled", check_stalled_clients),
    ("read-your-writes", check_read_your_writes),
];
