//! One pass over the head of an HTTP request.
//!
//! Most heads have nothing of which servers and applications differ in what they make. Whether a head is of this kind
//! is decided by tables of `glasscache.web`, which reads every other head itself.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFrozenSet, PyList, PyString};

/// Lengths of names that fit a word of bits, which tell most names from the special ones.
const LENGTH_BITS: usize = 64;

/// Finds the heads that need no closer look.
#[pyclass(frozen, module = "glasscache._native")]
pub(crate) struct HeadScanner {
    /// Names of fields that need one.
    special_names: Vec<Vec<u8>>,
    /// A bit for each length that a special name has.
    special_lengths: u64,
    /// Whether a path may have this byte unencoded.
    is_plain_in_path: [bool; 256],
    url_bytes_max: usize,
    fields_bytes_max: usize,
}

/// The fields of a head by name, and what else is read of it.
type PlainHead<'py> = (Bound<'py, PyDict>, Bound<'py, PyBytes>, Bound<'py, PyString>);

#[pymethods]
impl HeadScanner {
    /// Make a scanner.
    ///
    /// Args:
    ///     special_names: names of fields that need a closer look; so does one that is given twice.
    ///     plain_path_bytes: what a path may have unencoded.
    ///     url_bytes_max: longest path and query together.
    ///     fields_bytes_max: longest names and values together.
    #[new]
    #[pyo3(signature = (*, special_names, plain_path_bytes, url_bytes_max, fields_bytes_max))]
    fn new(
        special_names: &Bound<'_, PyFrozenSet>,
        plain_path_bytes: &[u8],
        url_bytes_max: usize,
        fields_bytes_max: usize,
    ) -> PyResult<Self> {
        let special_names: Vec<Vec<u8>> =
            special_names.iter().map(|name| name.extract()).collect::<PyResult<_>>()?;
        let mut is_plain_in_path = [false; 256];
        for byte in plain_path_bytes {
            is_plain_in_path[usize::from(*byte)] = true;
        }
        let special_lengths =
            special_names.iter().fold(0, |lengths, name| lengths | length_bit(name));
        Ok(Self {
            special_names,
            special_lengths,
            is_plain_in_path,
            url_bytes_max,
            fields_bytes_max,
        })
    }

    /// Return the values by name, the names with line feeds between them, and the path as text.
    ///
    /// None for a head that needs a closer look: with a special or repeated field, a name with an underscore, a
    /// delimiter in a name or a value, a path that is not in its one spelling, a control character in the query, or
    /// one that is too long.
    fn scan<'py>(
        &self,
        python: Python<'py>,
        path: &[u8],
        query: &[u8],
        fields: &Bound<'py, PyList>,
    ) -> PyResult<Option<PlainHead<'py>>> {
        let Some(path_text) = self.read_plain_path(path) else {
            return Ok(None);
        };
        if path.len() + query.len() > self.url_bytes_max || query.iter().any(u8::is_ascii_control) {
            return Ok(None);
        }
        let headers = PyDict::new(python);
        let mut names = Vec::with_capacity(256);
        let mut fields_bytes = 0;
        for (index, pair) in fields.iter().enumerate() {
            let Ok((name, value)) = pair.extract::<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>()
            else {
                return Ok(None);
            };
            fields_bytes += name.as_bytes().len() + value.as_bytes().len();
            if self.needs_closer_look(name.as_bytes(), value.as_bytes()) {
                return Ok(None);
            }
            if index > 0 {
                names.push(b'\n');
            }
            names.extend_from_slice(name.as_bytes());
            headers.set_item(name, value)?;
        }
        if headers.len() != fields.len() || fields_bytes > self.fields_bytes_max {
            return Ok(None);
        }
        Ok(Some((headers, PyBytes::new(python, &names), PyString::new(python, path_text))))
    }
}

impl HeadScanner {
    /// The text of a path in its one spelling.
    fn read_plain_path<'p>(&self, path: &'p [u8]) -> Option<&'p str> {
        let is_plain = path.first() == Some(&b'/')
            && path.iter().all(|byte| self.is_plain_in_path[usize::from(*byte)])
            && !path.windows(2).any(|pair| matches!(pair, b"//" | b"/."));
        is_plain.then(|| std::str::from_utf8(path).ok()).flatten()
    }

    fn needs_closer_look(&self, name: &[u8], value: &[u8]) -> bool {
        name.iter().any(|byte| matches!(byte, b'_' | b'\n' | b'\0'))
            || memchr::memchr2(b'\n', b'\0', value).is_some()
            || (self.special_lengths & length_bit(name) != 0
                && self.special_names.iter().any(|special_name| special_name == name))
    }
}

/// The bit of a name's length.
fn length_bit(name: &[u8]) -> u64 {
    1 << (name.len() % LENGTH_BITS)
}
