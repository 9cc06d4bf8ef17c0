//! One pass over the head of an HTTP request.
//!
//! Most heads have nothing of which servers and applications differ in what they make. Whether a head is of this kind
//! is decided by tables of `glasscache.web`, which reads every other head itself.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFrozenSet, PyList, PyString};

/// Lengths of names that fit a word of bits, which tell most names from those of a set.
const LENGTH_BITS: usize = 64;
/// A head with more fields has no key: its names are compared with each other.
const KEYED_FIELDS_MAX: usize = 32;

/// Finds the heads that need no closer look.
#[pyclass(frozen, module = "glasscache._native")]
pub(crate) struct HeadScanner {
    /// Names of fields that need one.
    special_names: NameSet,
    /// Names of fields whose values count in what is decided about a request.
    decisive_names: NameSet,
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
    ///     decisive_names: names of fields whose values count in what is decided about a request.
    ///     plain_path_bytes: what a path may have unencoded.
    ///     url_bytes_max: longest path and query together.
    ///     fields_bytes_max: longest names and values together.
    #[new]
    #[pyo3(signature = (*, special_names, decisive_names, plain_path_bytes, url_bytes_max, fields_bytes_max))]
    fn new(
        special_names: &Bound<'_, PyFrozenSet>,
        decisive_names: &Bound<'_, PyFrozenSet>,
        plain_path_bytes: &[u8],
        url_bytes_max: usize,
        fields_bytes_max: usize,
    ) -> PyResult<Self> {
        let mut is_plain_in_path = [false; 256];
        for byte in plain_path_bytes {
            is_plain_in_path[usize::from(*byte)] = true;
        }
        Ok(Self {
            special_names: NameSet::new(special_names)?,
            decisive_names: NameSet::new(decisive_names)?,
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
        if !self.is_plain_url(path, query) {
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

    /// Return what is decided by: the URL and the names of the fields, but no value beside that of Host.
    ///
    /// None where more is to be read: for a head that needs a closer look or has a field whose value counts, without a
    /// Host field, or with a path whose text is another one.
    fn decision_key<'py>(
        &self,
        scheme: &Bound<'py, PyString>,
        path_text: &Bound<'py, PyString>,
        path: &[u8],
        query: &[u8],
        fields: &Bound<'py, PyList>,
    ) -> Option<Bound<'py, PyBytes>> {
        let is_same_path = path_text.to_str().is_ok_and(|text| text.as_bytes() == path);
        if !is_same_path || self.read_plain_path(path).is_none() || !self.is_plain_url(path, query)
        {
            return None;
        }
        let scheme = scheme.to_str().ok().filter(|scheme| matches!(*scheme, "http" | "https"))?;
        if fields.len() > KEYED_FIELDS_MAX {
            return None;
        }
        let pairs = fields.iter().map(|pair| pair.extract().ok()).collect::<Option<Vec<_>>>()?;
        let pairs: &[(Bound<'py, PyBytes>, Bound<'py, PyBytes>)] = &pairs;
        let mut key = Vec::with_capacity(512);
        for part in [scheme.as_bytes(), path, query] {
            key.extend_from_slice(part);
            key.push(b'\n');
        }
        let mut host: Option<&[u8]> = None;
        let mut fields_bytes = 0;
        for (index, (name, value)) in pairs.iter().enumerate() {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            let is_repeated = pairs.iter().take(index).any(|(other, _)| other.as_bytes() == name);
            if is_repeated || self.needs_closer_look(name, value) || self.decisive_names.has(name) {
                return None;
            }
            if name == b"host" {
                host = Some(value).filter(|host| !host.is_empty());
            }
            fields_bytes += name.len() + value.len();
            key.extend_from_slice(name);
            key.push(b'\n');
        }
        key.extend_from_slice(host?);
        (fields_bytes <= self.fields_bytes_max).then(|| PyBytes::new(fields.py(), &key))
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

    /// Whether path and query are short enough, and the query has no control character.
    fn is_plain_url(&self, path: &[u8], query: &[u8]) -> bool {
        path.len() + query.len() <= self.url_bytes_max && !query.iter().any(u8::is_ascii_control)
    }

    fn needs_closer_look(&self, name: &[u8], value: &[u8]) -> bool {
        name.iter().any(|byte| matches!(byte, b'_' | b'\n' | b'\0'))
            || memchr::memchr2(b'\n', b'\0', value).is_some()
            || self.special_names.has(name)
    }
}

/// Return the fields of a WSGI request: lower-case names and values, in the order of the environ.
///
/// The content's type and length are fields where they are not empty. A text that is not Latin-1 raises
/// `UnicodeEncodeError`.
#[pyfunction]
pub(crate) fn environ_fields<'py>(environ: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyList>> {
    let python = environ.py();
    let fields = PyList::empty(python);
    for (variable, value) in environ.iter() {
        let Ok(variable) = variable.cast_into::<PyString>() else {
            continue;
        };
        let text = match variable.to_str() {
            Ok(text) => text,
            // With surrogates: not Latin-1, which matters in names of fields only.
            Err(error) => {
                let starts_with = intern!(python, "startswith");
                if variable.call_method1(starts_with, ("HTTP_",))?.is_truthy()? {
                    return Err(error);
                }
                continue;
            }
        };
        let field_name = match text.strip_prefix("HTTP_") {
            Some(field_name) => field_name,
            None if matches!(text, "CONTENT_TYPE" | "CONTENT_LENGTH") && value.is_truthy()? => text,
            None => continue,
        };
        let field_name = field_name.replace('_', "-").to_lowercase();
        let field_name = latin_1_bytes(PyString::new(python, &field_name).as_any())?;
        fields.append((field_name, latin_1_bytes(&value)?))?;
    }
    Ok(fields)
}

/// The bytes of a text in Latin-1.
fn latin_1_bytes<'py>(text: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let python = text.py();
    match text.cast::<PyString>().ok().and_then(|text| text.to_str().ok()) {
        Some(ascii) if ascii.is_ascii() => Ok(PyBytes::new(python, ascii.as_bytes()).into_any()),
        _ => text.call_method1(intern!(python, "encode"), (intern!(python, "latin-1"),)),
    }
}

/// Names of fields.
struct NameSet {
    names: Vec<Vec<u8>>,
    /// A bit for each length that a name has.
    lengths: u64,
}

impl NameSet {
    fn new(names: &Bound<'_, PyFrozenSet>) -> PyResult<Self> {
        let names: Vec<Vec<u8>> =
            names.iter().map(|name| name.extract()).collect::<PyResult<_>>()?;
        let lengths = names.iter().fold(0, |lengths, name| lengths | length_bit(name));
        Ok(Self { names, lengths })
    }

    fn has(&self, name: &[u8]) -> bool {
        self.lengths & length_bit(name) != 0 && self.names.iter().any(|known| known == name)
    }
}

/// The bit of a name's length.
fn length_bit(name: &[u8]) -> u64 {
    1 << (name.len() % LENGTH_BITS)
}
