//! Lists of whole numbers as Python has them, 140,000 at a time (docs/decisions/values.md, 0056).
//!
//! Packing them is quick; what takes the time is CPython's part, an object for each number: reading them takes two
//! thirds of a write, making and releasing them nine tenths of a read. So the memory of a long list is kept for the next.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList};

/// Numbers that fill half of the megabyte that CPython takes from the system, and gives back, at a time.
const RETAIN_INTERVAL: usize = 16_384;

/// Most numbers that are held: they keep 32 MiB at most, where they lie as sparsely as can be.
const RETAINED_MAX: usize = 32;

/// The numbers of a list that holds nothing but `int`s of 64 bits; a `bool` is not one.
///
/// One pass over them: `array.array` takes twice as long to convert them, and takes `bool`s too; parts that fit the
/// processor's cache, as tuples that lend their items, take a sixth longer.
pub(crate) fn numbers_of(value: &Bound<'_, PyAny>) -> Option<Vec<i64>> {
    let list = value.cast_exact::<PyList>().ok()?;
    if list.is_empty() {
        return None;
    }
    let mut numbers = Vec::with_capacity(list.len());
    for item in list.iter() {
        let is_int = item.is_exact_instance_of::<PyInt>();
        numbers.push(is_int.then(|| item.extract().ok()).flatten()?);
    }
    Some(numbers)
}

/// Some numbers of the long list that was read last.
///
/// CPython gives a megabyte of small objects back to the system as soon as the last of them is gone, and takes it
/// anew, a page fault every 4 KiB, for the next list. One number kept in each keeps the memory.
#[derive(Default)]
pub(crate) struct RetainedNumbers(Mutex<Vec<Py<PyAny>>>);

impl RetainedNumbers {
    /// The list of `numbers`; the memory of a long one is kept until the next.
    pub(crate) fn list_of<'py>(
        &self,
        py: Python<'py>,
        numbers: &[i64],
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::new(py, numbers)?;
        if numbers.len() > RETAIN_INTERVAL {
            let indices = (0..numbers.len()).step_by(RETAIN_INTERVAL).take(RETAINED_MAX);
            let retained = indices.map(|index| list.get_item(index).map(Bound::unbind));
            let retained = retained.collect::<PyResult<_>>()?;
            let mut retained_lock = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let previous = std::mem::replace(&mut *retained_lock, retained);
            drop(retained_lock);
            drop(previous);
        }
        Ok(list)
    }
}
