//! Key streams for Python: read from a file or taken from arrays, prepared once, replayed often; and LRU's curve.

use std::path::PathBuf;

use glasscache_sim::curve::{self, SampleOptions, mattson, miss_ratio_range, shards};
use glasscache_sim::packed::{pack_trace, unpack_trace};
use glasscache_sim::policy::PolicyKind;
use glasscache_sim::replay::{PreparedTrace, Task};
use glasscache_sim::trace::intern::{Collector, InternedTrace, Mode};
use glasscache_sim::trace::{Batch, Columns, Layout, TimeUnit, open_with};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arrays::{key_of_number, read_integers};
use super::parallel::run_in_parallel;
use crate::error;

/// Policy, capacity, requests, misses, miss ratio, byte miss ratio.
type ReplayRow = (String, u64, u64, u64, f64, Option<f64>);

/// A key stream that is ready to be replayed.
#[pyclass(frozen, module = "glasscache._native")]
pub(crate) struct Trace {
    prepared: PreparedTrace,
    /// Requests left out since their size is unknown.
    #[pyo3(get)]
    without_size: u64,
    /// Whether the file ended within a line, which is left out.
    #[pyo3(get)]
    is_cut: bool,
}

#[pymethods]
impl Trace {
    /// Read a file (.parquet, .csv, .jsonl).
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf, mode: &str) -> PyResult<Self> {
        let mode = parse_mode(py, mode)?;
        let file = super::open_file(&path)?;
        let path_name = path.to_string_lossy();
        let columns = Columns { size: mode == Mode::Bytes, ..Columns::ALL };
        let read_result = py.detach(|| {
            let layout = Layout { time_unit: Some(TimeUnit::Seconds), ..Layout::default() };
            let mut stream = open_with(&path_name, file, columns, &layout)?;
            let interned_trace = InternedTrace::read(&path_name, &mut *stream, mode)?;
            Ok((interned_trace, stream.is_truncated()))
        });
        let (interned_trace, is_cut) =
            read_result.map_err(|fault| error::from_trace_error(py, &fault))?;
        Ok(Self::new(py, interned_trace, is_cut))
    }

    /// Take arrays of keys and, where bytes count, of sizes.
    #[staticmethod]
    fn of_arrays(
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        sizes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let keys = read_integers(keys, "keys", key_of_number)?;
        let to_size = |number: i128| u32::try_from(number).ok().map(Some);
        let sizes = sizes.map(|sizes| read_integers(sizes, "sizes", to_size)).transpose()?;
        if let Some(sizes) = &sizes
            && sizes.len() != keys.len()
        {
            let fault = format!("{} keys and {} sizes", keys.len(), sizes.len());
            return Err(error::bad_setting(py, fault));
        }
        let mode = if sizes.is_some() { Mode::Bytes } else { Mode::Objects };
        let mut collector = Collector::new(mode);
        let batch = Batch { key: keys, size: sizes.unwrap_or_default(), ..Batch::default() };
        let collected = py.detach(|| collector.add_batch("keys", &batch));
        collected.map_err(|fault| error::from_trace_error(py, &fault))?;
        Ok(Self::new(py, collector.finish(true), false))
    }

    /// Take what `packed` gave, in a process of the same version.
    #[staticmethod]
    fn unpack(py: Python<'_>, packed: &[u8]) -> PyResult<Self> {
        let prepared = py.detach(|| unpack_trace(packed));
        Ok(Self {
            prepared: prepared.map_err(|fault| error::from_trace_error(py, &fault))?,
            without_size: 0,
            is_cut: false,
        })
    }

    /// Return the requests as bytes.
    fn packed<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| pack_trace(&self.prepared)))
    }

    /// Refuse policies that do not exist.
    #[staticmethod]
    fn check(py: Python<'_>, policies: Vec<String>) -> PyResult<()> {
        policies.iter().try_for_each(|name| {
            parse_policy(py, name)?;
            Ok(())
        })
    }

    #[getter]
    fn requests(&self) -> usize {
        self.prepared.requests()
    }

    #[getter]
    fn distinct(&self) -> usize {
        self.prepared.distinct()
    }

    #[getter]
    fn footprint(&self) -> u64 {
        self.prepared.footprint()
    }

    #[getter]
    fn mode(&self) -> &'static str {
        match self.prepared.mode() {
            Mode::Objects => "objects",
            Mode::Bytes => "bytes",
        }
    }

    /// Replay each policy at each capacity.
    #[pyo3(signature = (policies, capacities, *, seed, threads))]
    fn replay(
        &self,
        py: Python<'_>,
        policies: Vec<String>,
        capacities: Vec<u64>,
        seed: u64,
        threads: usize,
    ) -> PyResult<Vec<ReplayRow>> {
        let mut tasks = Vec::new();
        for name in &policies {
            let policy = parse_policy(py, name)?;
            let mode_check = policy.check_sizes(self.prepared.mode() == Mode::Bytes);
            mode_check.map_err(|fault| error::bad_setting(py, fault.to_string()))?;
            tasks.extend(capacities.iter().map(|&capacity| Task { policy, capacity, seed }));
        }
        run_in_parallel(py, tasks.len(), threads, |index, should_continue| {
            let task = &tasks[index];
            let outcome = task.run(&self.prepared, should_continue)?;
            Some((
                task.policy.to_string(),
                task.capacity,
                outcome.requests,
                outcome.misses,
                outcome.miss_ratio(),
                outcome.byte_miss_ratio(),
            ))
        })
    }

    /// Compute LRU's curve exactly, or from samples of this many keys, one for each seed.
    #[pyo3(signature = (*, sample, seeds, threads))]
    fn lru(
        &self,
        py: Python<'_>,
        sample: Option<usize>,
        seeds: Vec<u64>,
        threads: usize,
    ) -> PyResult<Curve> {
        if sample.is_some() && self.prepared.timeline().is_some() {
            let fault = "a sample cannot honour TTLs, writes and deletes".to_owned();
            return Err(error::bad_setting(py, fault));
        }
        let curve_count = if sample.is_some() { seeds.len() } else { 1 };
        let curves =
            run_in_parallel(py, curve_count, threads, |index, should_continue| match sample {
                None => mattson(&self.prepared, should_continue),
                Some(keys_max) => {
                    Some(shards(&self.prepared, SampleOptions { keys_max, seed: seeds[index] }))
                }
            })?;
        Ok(Curve { curves })
    }
}

impl Trace {
    fn new(py: Python<'_>, interned_trace: InternedTrace, is_cut: bool) -> Self {
        let without_size = interned_trace.without_size;
        Self { prepared: py.detach(|| PreparedTrace::new(interned_trace)), without_size, is_cut }
    }
}

/// LRU's misses by cache size, with the spread of the seeds if it was sampled.
#[pyclass(frozen, module = "glasscache._native")]
pub(crate) struct Curve {
    /// At least one.
    curves: Vec<curve::Curve>,
}

#[pymethods]
impl Curve {
    /// Return the mean, lowest and highest miss ratio at a cache size.
    fn band(&self, size: u64) -> (f64, f64, f64) {
        miss_ratio_range(&self.curves, size)
            .map_or((0.0, 0.0, 0.0), |band| (band.mean, band.low, band.high))
    }

    /// Return the least cache size with at most this miss ratio, or None.
    fn size_for(&self, miss_ratio: f64) -> Option<u64> {
        self.curves.first()?.size_for(miss_ratio)
    }

    /// Return the cache size where the curve bends, or None.
    fn knee(&self) -> Option<u64> {
        Some(self.curves.first()?.knee()?.size)
    }

    /// Return up to count + 1 cache sizes from 0 to the footprint, evenly spaced.
    fn sizes(&self, count: u64) -> Vec<u64> {
        let points = self.curves.first().map(|curve| curve.points(count));
        let sizes = points.into_iter().flatten().map(|(size, _)| size);
        sizes.collect()
    }
}

fn parse_policy(py: Python<'_>, name: &str) -> PyResult<PolicyKind> {
    let parsed = name.parse::<PolicyKind>();
    parsed.map_err(|fault| error::bad_setting(py, fault.to_string()))
}

fn parse_mode(py: Python<'_>, mode_name: &str) -> PyResult<Mode> {
    match mode_name {
        "objects" => Ok(Mode::Objects),
        "bytes" => Ok(Mode::Bytes),
        _ => {
            let fault = format!("mode is \"objects\" or \"bytes\", not \"{mode_name}\"");
            Err(error::bad_setting(py, fault))
        }
    }
}
