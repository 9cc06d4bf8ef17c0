//! The lab's computations for Python: curves, slab classes and request simulation, as `glasscache.sim` shows them.
//!
//! Only conversion here: arguments become what `glasscache_sim` takes, files are opened, work is shared out over
//! threads without the interpreter lock, results become plain Python values.

mod arrays;
mod parallel;
mod slabs;
mod strategies;
mod trace;

use pyo3::prelude::*;

/// Adds the classes and functions to the module.
pub(crate) fn add_to_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<trace::Trace>()?;
    module.add_class::<trace::Curve>()?;
    module.add_function(wrap_pyfunction!(slabs::slab_classes, module)?)?;
    module.add_function(wrap_pyfunction!(slabs::slab_optimum, module)?)?;
    module.add_function(wrap_pyfunction!(slabs::slab_plan, module)?)?;
    module.add_class::<strategies::SimulatedLog>()
}

/// Opens a file for reading; a fault is Python's `OSError` with the file's name.
fn open_file(path: &std::path::Path) -> PyResult<std::fs::File> {
    std::fs::File::open(path).map_err(|error| {
        let (number, message) = (error.raw_os_error(), error.kind().to_string());
        pyo3::exceptions::PyOSError::new_err((number, message, path.to_path_buf()))
    })
}
