//! The client's counters as plain Python dicts; names and order come from the client.

use std::sync::atomic::Ordering;

use glasscache_client::Client as Core;
use glasscache_client::costs::{CellSnapshot, Costs, OPERATION_KINDS, PARTS};
use glasscache_client::request::CommandSet;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// The names of the parts of a call.
pub(crate) fn part_names() -> Vec<&'static str> {
    PARTS.iter().map(|(_, name)| *name).collect()
}

fn cell_to_dict<'py>(py: Python<'py>, cell: &CellSnapshot) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("calls", cell.calls)?;
    row.set_item("bytes", cell.bytes)?;
    let seconds = PyDict::new(py);
    for ((_, name), ns) in PARTS.iter().zip(cell.parts_ns) {
        seconds.set_item(name, ns as f64 / 1e9)?;
    }
    row.set_item("seconds", seconds)?;
    row.set_item("latency_us_log2", cell.latency_counts.to_vec())?;
    Ok(row)
}

/// Adds the costs of calls, by size and by width, to the table of a client's counters.
pub(crate) fn set_costs(counters_dict: &Bound<'_, PyDict>, costs: &Costs) -> PyResult<()> {
    let py = counters_dict.py();
    let by_size = PyList::empty(py);
    for (operation, decade, snapshot) in costs.by_size() {
        let row = cell_to_dict(py, &snapshot)?;
        let operation_name = OPERATION_KINDS.iter().find(|(candidate, _)| *candidate == operation);
        row.set_item("operation", operation_name.map(|(_, operation_name)| *operation_name))?;
        row.set_item("bytes_from", if decade == 0 { 0 } else { 10u64.pow(decade as u32) })?;
        by_size.append(row)?;
    }
    counters_dict.set_item("by_size", by_size)?;
    let by_width = PyList::empty(py);
    for (width_log2, snapshot) in costs.by_width() {
        let row = cell_to_dict(py, &snapshot)?;
        row.set_item("keys_from", 1u64 << width_log2)?;
        by_width.append(row)?;
    }
    counters_dict.set_item("by_width", by_width)?;
    let (hits, bytes) = costs.near_hits();
    counters_dict.set_item("near_hits", hits)?;
    counters_dict.set_item("near_bytes", bytes)?;
    Ok(())
}

/// The state of each server of a client, by its name.
pub(crate) fn servers<'py>(py: Python<'py>, core: &Core) -> PyResult<Bound<'py, PyDict>> {
    let rows_by_server = PyDict::new(py);
    for (_, server) in core.servers() {
        let row = PyDict::new(py);
        let (open_count, idle_count) = server.connection_counts();
        row.set_item("is_down", server.health.is_down())?;
        row.set_item("times_down", server.health.times_down())?;
        row.set_item("connections", open_count)?;
        row.set_item("idle", idle_count)?;
        row.set_item("faults", server.faults.load(Ordering::Relaxed))?;
        row.set_item("noreply_failures", server.noreply_failures.load(Ordering::Relaxed))?;
        row.set_item(
            "speaks_meta",
            server.command_set().map(|command_set| command_set == CommandSet::Meta),
        )?;
        rows_by_server.set_item(&server.name, row)?;
    }
    Ok(rows_by_server)
}

/// Statistics whose value is text even where it looks like a number.
const TEXT_STATISTICS: [&str; 3] = ["version", "libevent", "umask"];

/// A server's statistics: whole numbers as `int`, numbers with a point as `float`, anything else as text.
pub(crate) fn stats_to_dict<'py>(
    py: Python<'py>,
    rows: &[(String, String)],
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in rows {
        let digit_count = value.bytes().filter(u8::is_ascii_digit).count();
        let is_number = digit_count > 0 && !TEXT_STATISTICS.contains(&name.as_str());
        if is_number && digit_count == value.len() - usize::from(value.starts_with('-')) {
            let int_type = py.get_type::<pyo3::types::PyInt>();
            dict.set_item(name, int_type.call1((value,))?)?;
        } else if is_number && digit_count + 1 == value.len() && value.contains('.') {
            dict.set_item(name, value.parse::<f64>().unwrap_or_default())?;
        } else {
            dict.set_item(name, value)?;
        }
    }
    Ok(dict)
}
