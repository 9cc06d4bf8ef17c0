//! A value with its making, as `get_or_set` stores it where the measured cost decides about refreshing.

use glasscache_client::value::Making;
use pyo3::prelude::*;

/// A value, the Unix time when it was made, and the seconds that this took.
#[pyclass(frozen, module = "glasscache._native")]
pub(crate) struct Made {
    value: Py<PyAny>,
    making: Making,
}

impl Made {
    pub(crate) fn parts<'py>(&self, py: Python<'py>) -> (&Bound<'py, PyAny>, Making) {
        (self.value.bind(py), self.making)
    }
}

#[pymethods]
impl Made {
    #[new]
    fn new(value: Py<PyAny>, made_at: f64, cost: f64) -> Self {
        let making = Making {
            made_at_ms: (made_at * 1e3) as u64,
            cost_us: (cost * 1e6) as u32,
        };
        Self { value, making }
    }

    /// The value.
    #[getter]
    fn value(&self, py: Python<'_>) -> Py<PyAny> {
        self.value.clone_ref(py)
    }
}

/// (Unix time when a value was made, seconds that this took).
pub(crate) fn seconds(making: Making) -> (f64, f64) {
    (
        making.made_at_ms as f64 / 1e3,
        f64::from(making.cost_us) / 1e6,
    )
}
