//! Reads the sizes: from a running server, a trace, or a histogram in CSV.

use std::collections::HashMap;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use glasscache_sim::TraceError;
use glasscache_sim::slabs::classes::{SlabConfig, head_bytes};
use glasscache_sim::slabs::demand::Demand;
use glasscache_sim::trace;

use super::plan_input::PlanInput;
use crate::access;
use crate::output::{Exit, Failure};
use crate::traces::{InputArgs, report_left_out};
use crate::value_sizes::histogram::{self, Histogram};
use crate::value_sizes::server;

/// Reads a source; a name that is not a file is treated as a server.
pub(super) fn read(
    source: &str,
    config: SlabConfig,
    key_bytes: u32,
    input_args: &InputArgs,
    access: &access::Args,
) -> Result<PlanInput, Failure> {
    let path = Path::new(source);
    let is_socket = path.metadata().is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket || !path.exists() && source.contains(':') {
        return read_server_input(source, access);
    }
    if let Some(histogram) = histogram::read(path)? {
        input_args.refuse_all("a histogram is read by its own header: leave it out")?;
        let demand = count_histogram_demand(histogram, &config, key_bytes);
        return new_plan_input(source, config, demand, Vec::new());
    }
    let demand = count_trace_demand(path, &config, key_bytes, input_args)?;
    let note = format!(
        "One item for each key of the trace, with the last size seen; keys counted as {key_bytes} bytes."
    );
    new_plan_input(source, config, demand, vec![note])
}

fn new_plan_input(
    source: &str,
    config: SlabConfig,
    demand: Demand,
    notes: Vec<String>,
) -> Result<PlanInput, Failure> {
    if demand.is_empty() {
        let message = format!("{source}: no item of a known size that memcached would take");
        return Err(Failure::new(Exit::BadData, message));
    }
    Ok(PlanInput {
        name: source.to_owned(),
        config,
        demand,
        memory_bytes: None,
        is_glasscache: false,
        notes,
    })
}

/// The demand of sizes that were counted by a server, as memcached measures them; the length of the key does not matter
/// to classes.
fn read_server_input(address: &str, access: &access::Args) -> Result<PlanInput, Failure> {
    let server_sizes = server::read(address, access)?;
    let mut demand = Demand::default();
    for (item_bytes, count) in server_sizes.counts {
        add_items(&mut demand, &server_sizes.config, 1, (item_bytes, count));
    }
    Ok(PlanInput {
        is_glasscache: server_sizes.is_glasscache,
        memory_bytes: server_sizes.memory_bytes,
        ..new_plan_input(address, server_sizes.config, demand, server_sizes.notes)?
    })
}

fn count_histogram_demand(histogram: Histogram, config: &SlabConfig, key_bytes: u32) -> Demand {
    let mut demand = Demand::default();
    for (size, count) in histogram.counts {
        if histogram.is_item_bytes {
            add_items(&mut demand, config, key_bytes, (size, count));
        } else {
            demand.add(config, head_bytes(key_bytes, false), size, count);
        }
    }
    demand
}

/// Adds items by their whole size. The head is everything except the value and its line end; sizes from memcached do
/// not separate the two.
fn add_items(
    demand: &mut Demand,
    config: &SlabConfig,
    key_bytes: u32,
    (item_bytes, count): (u32, u64),
) {
    let item_head_bytes = head_bytes(key_bytes, false).min(item_bytes.saturating_sub(2));
    demand.add(config, item_head_bytes, item_bytes.saturating_sub(item_head_bytes + 2), count);
}

fn count_trace_demand(
    path: &Path,
    config: &SlabConfig,
    key_bytes: u32,
    input_args: &InputArgs,
) -> Result<Demand, Failure> {
    let columns = trace::Columns { size: true, ..trace::Columns::KEY };
    let mut stream = input_args.open(path, columns)?;
    let (mut batch, mut row_count) = (trace::Batch::default(), 0);
    let mut size_by_key: HashMap<u64, u32> = HashMap::new();
    while stream.read(&mut batch)? > 0 {
        row_count += batch.len() as u64;
        for (key, size) in batch.key.iter().zip(&batch.size) {
            if let Some(size) = size {
                size_by_key.insert(*key, *size);
            }
        }
    }
    let name = path.to_string_lossy();
    report_left_out(&name, row_count, &*stream);
    if size_by_key.is_empty() {
        return Err(TraceError::file(&name, "has no value sizes").in_column("size").into());
    }
    let mut demand = Demand::default();
    for size in size_by_key.into_values() {
        demand.add(config, head_bytes(key_bytes, false), size, 1);
    }
    Ok(demand)
}
