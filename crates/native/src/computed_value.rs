//! A value with compute info, as `get_or_set` stores it where the measured cost decides about refreshing.

use glasscache_client::value::ComputeInfo;
use pyo3::prelude::*;

/// A value, the Unix time when it was computed, and the seconds that this took.
#[pyclass(frozen, name = "ComputedValue", module = "glasscache._native")]
pub(crate) struct ComputedValue {
    value: Py<PyAny>,
    compute_info: ComputeInfo,
}

impl ComputedValue {
    pub(crate) fn value_and_compute_info<'py>(
        &self,
        py: Python<'py>,
    ) -> (&Bound<'py, PyAny>, ComputeInfo) {
        (self.value.bind(py), self.compute_info)
    }
}

#[pymethods]
impl ComputedValue {
    #[new]
    fn new(value: Py<PyAny>, made_at: f64, cost: f64) -> Self {
        let compute_info =
            ComputeInfo { made_at_ms: (made_at * 1e3) as u64, cost_us: (cost * 1e6) as u32 };
        Self { value, compute_info }
    }

    /// The value.
    #[getter]
    fn value(&self, py: Python<'_>) -> Py<PyAny> {
        self.value.clone_ref(py)
    }
}

/// (Unix time when a value was computed, seconds that this took).
pub(crate) fn compute_info_to_seconds(compute_info: ComputeInfo) -> (f64, f64) {
    (compute_info.made_at_ms as f64 / 1e3, f64::from(compute_info.cost_us) / 1e6)
}
