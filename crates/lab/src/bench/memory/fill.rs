//! Fills of a server beyond its limit, and what can be read back of them.
//!
//! Each fill sends a multiple of the limit in unique 20-byte keys with random values. Resident items are those that
//! come back byte for byte, not those that the server reports; their memory is what the kernel reports (`VmRSS` and
//! huge pages, the larger of the values after the fill and after the read).

use std::ops::Range;

use serde::Serialize;

use super::super::{Error, ServerPair};
use crate::load::{self, Fill, KEY_BYTES, LoadPlan, ReadBack, Size, ValueCheck, Values};
use crate::server_process::{ServerCommand, ServerProcess};

/// Pipeline of fills; values of 32 KiB and more go one at a time.
const FILL_DEPTH: usize = 64;

/// A multi-get of the read requests about this many value bytes, and at most 100 keys.
const GET_VALUE_BYTES: usize = 64 * 1024;

/// A value size of the fills.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct FillSize {
    /// Its name in tables and on the command line.
    pub name: &'static str,
    /// The sizes of its values.
    #[serde(skip)]
    pub size: Size,
    /// User bytes sent, in multiples of `-m`.
    #[serde(rename = "times")]
    pub(crate) limit_multiple: f64,
    /// memcached's best growth factor for it among 1.05, 1.07, 1.25 and 2 (measured at `-m` 256).
    pub best_factor: &'static str,
    /// The required ratio to memcached `-f 1.25`.
    #[serde(rename = "demand")]
    pub required_ratio: Option<f64>,
}

impl FillSize {
    pub(crate) const fn fixed(
        name: &'static str,
        value_bytes: u32,
        best_factor: &'static str,
        required_ratio: Option<f64>,
    ) -> Self {
        // At 10 bytes one and a half times the limit in user bytes is five times what memcached can hold.
        let limit_multiple = if value_bytes == 10 { 1.5 } else { 2.0 };
        Self { name, size: Size::Fixed(value_bytes), limit_multiple, best_factor, required_ratio }
    }

    /// All sizes, smallest first, then the mix.
    pub(crate) fn all_sizes() -> [Self; 9] {
        [
            Self::fixed("10", 10, "1.25", Some(1.9)),
            Self::fixed("64", 64, "1.05", Some(1.45)),
            Self::fixed("230", 230, "1.05", Some(1.35)),
            Self::fixed("1001", 1001, "1.05", Some(1.08)),
            Self::fixed("4000", 4000, "1.07", None),
            Self::fixed("10000", 10_000, "1.25", Some(1.05)),
            Self::fixed("100000", 100_000, "1.25", Some(1.0)),
            Self::fixed("500000", 500_000, "1.05", None),
            Self {
                name: "mix",
                size: Size::MIX,
                limit_multiple: 3.0,
                best_factor: "1.25",
                required_ratio: Some(1.13),
            },
        ]
    }

    /// Keys whose items together hold `user_bytes`.
    pub(crate) fn keys_for(&self, user_bytes: u64) -> u64 {
        let sampled_keys = 100_000;
        let mean_value_bytes = match self.size {
            Size::Fixed(bytes) => f64::from(bytes),
            _ => {
                (0..sampled_keys).map(|id| self.size.of(id)).sum::<usize>() as f64
                    / sampled_keys as f64
            }
        };
        (user_bytes as f64 / (mean_value_bytes + KEY_BYTES as f64)).ceil() as u64
    }
}

/// The contents of a filled server.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FillResult {
    /// Sets sent.
    pub sent: u64,
    /// Sets refused.
    pub refused: u64,
    /// Items that came back with the correct value.
    pub items: u64,
    /// Their key and value bytes.
    pub user_bytes: u64,
    /// `VmRSS` and huge pages.
    pub resident_bytes: u64,
    /// `-m`, in bytes.
    pub limit_bytes: u64,
}

impl FillResult {
    /// User bytes per resident byte.
    pub(crate) fn density(&self) -> f64 {
        self.user_bytes as f64 / self.resident_bytes.max(1) as f64
    }

    /// User bytes per byte of `-m`.
    pub(crate) fn share_of_limit(&self) -> f64 {
        self.user_bytes as f64 / self.limit_bytes.max(1) as f64
    }
}

/// Starts `server_command`, fills it with `fill_size` and reads it back.
pub(crate) fn measure_fill(
    servers: &ServerPair,
    server_command: &ServerCommand,
    fill_size: &FillSize,
) -> Result<FillResult, Error> {
    let server = server_command.start().map_err(Error::Start)?;
    let limit_bytes = server_command.memory_mib << 20;
    let keys = fill_size.keys_for((limit_bytes as f64 * fill_size.limit_multiple) as u64);
    let values = Values::new(fill_size.size.clone(), 1);
    let refused = fill(servers, &server, &(0..keys), &values)?;
    let resident_bytes_after_fill = server.read_resident_bytes();
    let (items, user_bytes) = read_back(servers, &server, &(0..keys), &values)?;
    let resident_bytes = resident_bytes_after_fill.max(server.read_resident_bytes());
    Ok(FillResult { sent: keys, refused, items, user_bytes, resident_bytes, limit_bytes })
}

/// Stores a range; returns how many sets were refused.
pub(crate) fn fill(
    servers: &ServerPair,
    server: &ServerProcess,
    range: &Range<u64>,
    values: &Values,
) -> Result<u64, Error> {
    let plan = new_load_plan(servers, server, FILL_DEPTH);
    let workloads = Fill::over(range, values, servers.layout.generator.len());
    let (_, workloads) =
        load::run(&plan, workloads, &server.meter()).map_err(Error::load(server.name))?;
    Ok(workloads.iter().map(|workload| workload.refused).sum())
}

/// Reads a range back: items and their user bytes. A wrong value is an error.
pub(crate) fn read_back(
    servers: &ServerPair,
    server: &ServerProcess,
    range: &Range<u64>,
    values: &Values,
) -> Result<(u64, u64), Error> {
    let plan = LoadPlan { check: ValueCheck::Full, ..new_load_plan(servers, server, 1) };
    let typical_value_bytes =
        values.size.of(range.start).max(values.size.of(range.start + 1)).max(1);
    let keys_per_get = (GET_VALUE_BYTES / typical_value_bytes).clamp(1, 100);
    let workloads = ReadBack::over(range, values, servers.layout.generator.len(), keys_per_get);
    let (report, workloads) =
        load::run(&plan, workloads, &server.meter()).map_err(Error::load(server.name))?;
    let wrong_values: u64 = workloads.iter().map(|workload| workload.wrong).sum();
    if wrong_values > 0 {
        let difference = report.tally.first_difference.unwrap_or_default();
        return Err(Error::WrongReplies {
            server: server.name.to_owned(),
            count: wrong_values,
            description: difference,
        });
    }
    let items = workloads.iter().map(|workload| workload.resident).sum();
    Ok((items, workloads.iter().map(|workload| workload.user_bytes).sum()))
}

fn new_load_plan(servers: &ServerPair, server: &ServerProcess, depth: usize) -> LoadPlan {
    let threads = servers.layout.generator.len();
    LoadPlan {
        connections: 4 * threads,
        depth,
        cpus: servers.pinned_cpus(&servers.layout.generator),
        stop: servers.stop.clone(),
        ..LoadPlan::new(server.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_field_names_of_earlier_results() {
        let fill_size = serde_json::to_value(&FillSize::all_sizes()[0]).unwrap();
        let mut names: Vec<&String> = fill_size.as_object().unwrap().keys().collect();
        names.sort();
        assert_eq!(names, ["best_factor", "demand", "name", "times"]);
    }

    #[test]
    fn a_fill_sends_the_requested_bytes() {
        for fill_size in FillSize::all_sizes() {
            let keys = fill_size.keys_for(64 << 20);
            let sent_bytes: usize = (0..keys).map(|id| KEY_BYTES + fill_size.size.of(id)).sum();
            let sent_ratio = sent_bytes as f64 / f64::from(64 << 20);
            assert!((0.95..1.05).contains(&sent_ratio), "{}: {sent_ratio}", fill_size.name);
        }
    }
}
