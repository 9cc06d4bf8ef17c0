//! Numbers from Python: NumPy arrays, `array.array` and whatever else has the buffer protocol, in one copy.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;

use crate::error;

/// The whole numbers of a one-dimensional buffer, each converted; an error names the first that is not one.
pub(super) fn read_integers<T>(
    values: &Bound<'_, PyAny>,
    argument_name: &str,
    convert: impl Fn(i128) -> Option<T> + Copy,
) -> PyResult<Vec<T>> {
    // An empty array may have no memory at all, and so no buffer.
    if values.len().is_ok_and(|count| count == 0) {
        return Ok(Vec::new());
    }
    read_buffer_as::<u64, T>(values, argument_name, convert)
        .or_else(|| read_buffer_as::<i64, T>(values, argument_name, convert))
        .or_else(|| read_buffer_as::<u32, T>(values, argument_name, convert))
        .or_else(|| read_buffer_as::<i32, T>(values, argument_name, convert))
        .or_else(|| read_buffer_as::<i16, T>(values, argument_name, convert))
        .or_else(|| read_buffer_as::<u16, T>(values, argument_name, convert))
        .or_else(|| read_buffer_as::<i8, T>(values, argument_name, convert))
        .or_else(|| read_buffer_as::<u8, T>(values, argument_name, convert))
        .unwrap_or_else(|| {
            let message =
                format!("{argument_name}: expected an array of whole numbers of 8 to 64 bits");
            Err(error::bad_setting(values.py(), message))
        })
}

/// The same for one element type; `None` if the buffer holds another one.
fn read_buffer_as<E: Element + Into<i128>, T>(
    values: &Bound<'_, PyAny>,
    argument_name: &str,
    convert: impl Fn(i128) -> Option<T>,
) -> Option<PyResult<Vec<T>>> {
    let buffer = PyBuffer::<E>::get(values).ok()?;
    if buffer.dimensions() != 1 {
        let fault =
            format!("{argument_name}: expected one dimension, found {}", buffer.dimensions());
        return Some(Err(error::bad_setting(values.py(), fault)));
    }
    let elements = match buffer.to_vec(values.py()) {
        Ok(elements) => elements,
        Err(error) => return Some(Err(error)),
    };
    let convert_element = |(index, element): (usize, E)| {
        let number = element.into();
        convert(number).ok_or_else(|| {
            let fault = format!("{argument_name}[{index}]: {number} is out of range");
            error::bad_setting(values.py(), fault)
        })
    };
    Some(elements.into_iter().enumerate().map(convert_element).collect())
}

/// A key as it is counted: the 64 bits, whatever their sign.
pub(super) fn key_of_number(number: i128) -> Option<u64> {
    u64::try_from(number).ok().or_else(|| i64::try_from(number).ok().map(i64::cast_unsigned))
}
