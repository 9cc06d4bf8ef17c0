//! Reading one's writes while memory is full.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::client::Client;
use super::{Finding, MEMORY_MIB, bytes_to_mib, compute_budget_mib};
use crate::bench::memory::{FillSize, fill};
use crate::bench::{Error, ServerPair};
use crate::load::{self, Fill, LoadPlan, Size, ValueSource, Values};
use crate::proc::Meter;

/// Sets of mixed sizes while memory is full, each read back at once on another connection.
pub(super) fn check_read_your_writes(servers: &ServerPair) -> Result<Vec<Finding>, Error> {
    const CHECKED_KEYS: u64 = 30_000;
    let server = servers.ours(MEMORY_MIB).start().map_err(Error::Start)?;
    let [.., mixed_sizes] = FillSize::all_sizes();
    let values = Values::new(mixed_sizes.size.clone(), 3);
    let filled_keys = mixed_sizes.keys_for(3 * (MEMORY_MIB << 20));
    let mut refused = fill(servers, &server, &(0..filled_keys), &values)?;
    let stop = Arc::new(AtomicBool::new(false));
    let load_error = |error: std::io::Error| Error::load(server.name)(error.into());
    let lost_and_refused = std::thread::scope(|scope| {
        let background_load = scope.spawn(|| {
            let plan = LoadPlan {
                connections: 4,
                depth: 16,
                stop: Arc::clone(&stop),
                ..LoadPlan::new(server.address)
            };
            load::run(&plan, Fill::over(&(1 << 50..1 << 51), &values, 1), &Meter::None).err()
        });
        let check_result = write_then_read(server.address, CHECKED_KEYS);
        stop.store(true, Ordering::Relaxed);
        let background_error = background_load
            .join()
            .ok()
            .flatten()
            .filter(|error| !matches!(error, load::Error::Stopped));
        background_error.map_or(check_result, |error| Err(std::io::Error::other(error.to_string())))
    });
    let (lost, refused_checked_keys) = lost_and_refused.map_err(load_error)?;
    refused += refused_checked_keys;
    let workload_name = "sets of mixed sizes with memory full";
    Ok(vec![
        Finding::new(
            workload_name,
            0.0,
            refused as f64,
            format!("refused of {}", filled_keys + CHECKED_KEYS),
        ),
        Finding::new(
            workload_name,
            0.0,
            lost as f64,
            format!("of {CHECKED_KEYS} not readable at once on another connection"),
        ),
        Finding::new(
            workload_name,
            compute_budget_mib(MEMORY_MIB),
            bytes_to_mib(server.read_resident_bytes()),
            "MiB resident at -m 64",
        ),
    ])
}

/// Returns how many of `key_count` keys were not readable immediately, and how many were not stored.
fn write_then_read(address: SocketAddr, key_count: u64) -> std::io::Result<(u64, u64)> {
    let (mut writer, mut reader) = (Client::connect(address)?, Client::connect(address)?);
    let value_source = ValueSource::new(Size::MIX.max(), 5);
    let (mut lost, mut refused) = (0, 0);
    for id in 0..key_count {
        let value = value_source.value(id, 0, Size::MIX.of(id));
        let mut request = format!("set now{id} 0 0 {}\r\n", value.len()).into_bytes();
        request.extend_from_slice(value);
        if writer.call_bytes(&request)? != "STORED" {
            refused += 1;
            continue;
        }
        lost += u64::from(reader.get(&format!("now{id}"))?.as_deref() != Some(value));
    }
    Ok((lost, refused))
}
