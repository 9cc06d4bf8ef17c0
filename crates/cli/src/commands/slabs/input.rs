//! Reads the sizes: from a running server, a trace, or a histogram in CSV.

use std::collections::HashMap;
use std::path::Path;

use glasscache_sim::TraceError;
use glasscache_sim::slabs::classes::{SlabConfig, head_bytes};
use glasscache_sim::slabs::demand::Demand;
use glasscache_sim::trace;

use super::source::Source;
use crate::output::{Exit, Failure};
use crate::traces::{InputArgs, report_left_out};
use crate::value_sizes::histogram::{self, Histogram};
use crate::value_sizes::server;

/// Reads a source; a name that is not a file is treated as a server.
pub(super) fn read(
    source: &str,
    config: SlabConfig,
    key_bytes: u32,
    input: &InputArgs,
) -> Result<Source, Failure> {
    let path = Path::new(source);
    if !path.exists() && source.contains(':') {
        return read_server_source(source);
    }
    if let Some(histogram) = histogram::read(path)? {
        input.refuse_all("a histogram is read by its own header: leave it out")?;
        let demand = count_histogram_demand(histogram, &config, key_bytes);
        return check_source(source, config, demand, Vec::new());
    }
    let demand = count_trace_demand(path, &config, key_bytes, input)?;
    let note = format!(
        "One item for each key of the trace, with the last size seen; keys counted as {key_bytes} bytes."
    );
    check_source(source, config, demand, vec![note])
}

fn check_source(
    source: &str,
    config: SlabConfig,
    demand: Demand,
    notes: Vec<String>,
) -> Result<Source, Failure> {
    if demand.is_empty() {
        let message = format!("{source}: no item of a known size that memcached would take");
        return Err(Failure::new(Exit::BadData, message));
    }
    Ok(Source {
        name: source.to_owned(),
        config,
        demand,
        is_glasscache: false,
        notes,
    })
}

/// The demand of sizes that were counted by a server, as memcached measures them; the length of the key does not matter
/// to classes.
fn read_server_source(address: &str) -> Result<Source, Failure> {
    let sizes = server::read(address)?;
    let mut demand = Demand::default();
    for (item_bytes, count) in sizes.counts {
        add_items(&mut demand, &sizes.config, 1, (item_bytes, count));
    }
    Ok(Source {
        is_glasscache: sizes.is_glasscache,
        ..check_source(address, sizes.config, demand, sizes.notes)?
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

/// Adds items by their whole size. The head is everything except the value and its line end; sizes from memcached do not
/// separate the two.
fn add_items(
    demand: &mut Demand,
    config: &SlabConfig,
    key_bytes: u32,
    (item_bytes, count): (u32, u64),
) {
    let head = head_bytes(key_bytes, false).min(item_bytes.saturating_sub(2));
    demand.add(config, head, item_bytes.saturating_sub(head + 2), count);
}

fn count_trace_demand(
    path: &Path,
    config: &SlabConfig,
    key_bytes: u32,
    input: &InputArgs,
) -> Result<Demand, Failure> {
    let columns = trace::Columns {
        size: true,
        ..trace::Columns::KEY
    };
    let mut stream = input.open(path, columns)?;
    let (mut batch, mut rows) = (trace::Batch::default(), 0);
    let mut sizes: HashMap<u64, u32> = HashMap::new();
    while stream.read(&mut batch)? > 0 {
        rows += batch.len() as u64;
        for (key, size) in batch.key.iter().zip(&batch.size) {
            if let Some(size) = size {
                sizes.insert(*key, *size);
            }
        }
    }
    let name = path.to_string_lossy();
    report_left_out(&name, rows, &*stream);
    if sizes.is_empty() {
        return Err(TraceError::file(&name, "has no value sizes")
            .in_column("size")
            .into());
    }
    let mut demand = Demand::default();
    for size in sizes.into_values() {
        demand.add(config, head_bytes(key_bytes, false), size, 1);
    }
    Ok(demand)
}
