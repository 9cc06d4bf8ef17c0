//! memcached's slab classes for Python: those that settings make, the best for given sizes, and what either costs.

use glasscache_sim::slabs::classes::{SlabClasses, SlabConfig, head_bytes};
use glasscache_sim::slabs::demand::Demand;
use glasscache_sim::slabs::optimum::find_optimal_sizes;
use glasscache_sim::slabs::plan::Plan;
use pyo3::prelude::*;

use super::arrays::read_integers;
use crate::error;

/// Settings of memcached: factor, chunk, item_max, slab_chunk_max, slab_sizes.
type Settings = (f64, u32, u32, u32, Option<Vec<u32>>);

/// Chunk sizes, classes in use, waste, items that fit, refused items, where small factors trap.
type PlanRow = (Vec<u32>, usize, f64, u64, u64, Option<u32>);

/// Return the chunk sizes that memcached makes of the settings.
#[pyfunction]
pub(crate) fn slab_classes(py: Python<'_>, settings: Settings) -> PyResult<Vec<u32>> {
    let config = slab_config(py, settings)?;
    Ok(SlabClasses::new(&config).chunk_sizes().to_vec())
}

/// Return the best chunk sizes, at most this many, for values of these sizes.
#[pyfunction]
#[pyo3(signature = (sizes, counts, *, settings, key_bytes, classes))]
pub(crate) fn slab_optimum(
    py: Python<'_>,
    sizes: &Bound<'_, PyAny>,
    counts: Option<&Bound<'_, PyAny>>,
    settings: Settings,
    key_bytes: u32,
    classes: usize,
) -> PyResult<Vec<u32>> {
    let config = slab_config(py, settings)?;
    let demand = read_demand(sizes, counts, &config, key_bytes)?;
    Ok(py.detach(|| find_optimal_sizes(&config, &demand, classes)))
}

/// Return what the classes of the settings cost for values of these sizes.
#[pyfunction]
#[pyo3(signature = (sizes, counts, *, settings, key_bytes, memory_bytes))]
pub(crate) fn slab_plan(
    py: Python<'_>,
    sizes: &Bound<'_, PyAny>,
    counts: Option<&Bound<'_, PyAny>>,
    settings: Settings,
    key_bytes: u32,
    memory_bytes: u64,
) -> PyResult<PlanRow> {
    let config = slab_config(py, settings)?;
    let demand = read_demand(sizes, counts, &config, key_bytes)?;
    let config_classes = SlabClasses::new(&config);
    let plan = Plan::new(&config_classes, &demand);
    Ok((
        config_classes.chunk_sizes().to_vec(),
        plan.used_classes(),
        plan.waste(),
        plan.items_that_fit(memory_bytes),
        demand.refused_items(),
        plan.last_class_before_gap(),
    ))
}

fn slab_config(py: Python<'_>, settings: Settings) -> PyResult<SlabConfig> {
    let (factor, chunk_bytes_min, item_bytes_max, slab_chunk_bytes_max, slab_sizes) = settings;
    let config =
        SlabConfig { factor, chunk_bytes_min, item_bytes_max, slab_chunk_bytes_max, slab_sizes };
    let check_result = config.check();
    check_result.map_err(|fault| error::bad_setting(py, fault.to_string()))?;
    Ok(config)
}

fn read_demand(
    sizes: &Bound<'_, PyAny>,
    counts: Option<&Bound<'_, PyAny>>,
    config: &SlabConfig,
    key_bytes: u32,
) -> PyResult<Demand> {
    let py = sizes.py();
    let sizes = read_integers(sizes, "sizes", |number| u32::try_from(number).ok())?;
    let to_count = |number: i128| u32::try_from(number).ok().map(u64::from);
    let counts = match counts {
        Some(counts) => read_integers(counts, "counts", to_count)?,
        None => vec![1; sizes.len()],
    };
    if counts.len() != sizes.len() {
        let fault = format!("{} sizes and {} counts", sizes.len(), counts.len());
        return Err(error::bad_setting(py, fault));
    }
    let item_head_bytes = head_bytes(key_bytes, false);
    let mut demand = Demand::default();
    for (size, count) in sizes.into_iter().zip(counts) {
        demand.add(config, item_head_bytes, size, count);
    }
    if demand.is_empty() {
        let fault = "sizes: no item that memcached would take";
        return Err(error::bad_setting(py, fault.to_owned()));
    }
    Ok(demand)
}
