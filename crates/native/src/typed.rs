//! Typed values from Python objects and back: containers and common scalars here, the rest through the codec's Python
//! half.
//!
//! Only exact types are written: a subclass would come back as its base. While a container is walked the Python half
//! may run code that changes it, so its items are taken out first.

use std::collections::HashMap;

use glasscache_client::value::ValueError;
use glasscache_client::value::typed::{DEPTH_MAX, Date, Delta, Time, Token, Tokens, Zone};
use pyo3::exceptions::{PyTypeError, PyUnicodeEncodeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString,
    PyTuple,
};

use crate::error;
use crate::settings::Codec;

/// Whether JSON and `MessagePack` return a value unchanged; `None` where it is nested too deep to check.
pub(crate) fn round_trips_as_json(value: &Bound<'_, PyAny>, depth: usize) -> Option<bool> {
    if value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_none()
    {
        return Some(true);
    }
    if value.is_exact_instance_of::<PyInt>() {
        return Some(value.extract::<i64>().is_ok());
    }
    if let Ok(number) = value.cast_exact::<PyFloat>() {
        return Some(number.value().is_finite());
    }
    let (list, dict) = (value.cast_exact::<PyList>(), value.cast_exact::<PyDict>());
    if (list.is_ok() || dict.is_ok()) && depth > DEPTH_MAX {
        return None;
    }
    if let Ok(list) = list {
        for item in list.iter() {
            if !round_trips_as_json(&item, depth + 1)? {
                return Some(false);
            }
        }
        return Some(true);
    }
    let Ok(dict) = dict else {
        return Some(false);
    };
    for (key, item) in dict.iter() {
        if !key.is_exact_instance_of::<PyString>() || !round_trips_as_json(&item, depth + 1)? {
            return Some(false);
        }
    }
    Some(true)
}

/// Whether a typed value of this object begins without the Python half.
pub(crate) fn has_native_form(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyDict>()
        || value.is_exact_instance_of::<PyList>()
        || value.is_exact_instance_of::<PyTuple>()
        || value.is_exact_instance_of::<PySet>()
        || value.is_exact_instance_of::<PyFrozenSet>()
        || value.is_exact_instance_of::<PyByteArray>()
        || value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyInt>()
}

/// Appends the typed form of a value.
pub(crate) fn write(
    codec: &Codec,
    value: &Bound<'_, PyAny>,
    depth: usize,
    out: &mut Vec<u8>,
) -> PyResult<()> {
    if write_scalar(codec, value, out)? {
        return Ok(());
    }
    let Some((token, items)) = token_and_items(value)? else {
        let (kind, payload) = python_form(codec, value, depth > 0)?;
        return write_python_form(codec, &kind, &payload, depth, out);
    };
    check_depth(codec, value.py(), depth)?;
    token.write(out);
    items.iter().try_for_each(|item| write(codec, item, depth + 1, out))
}

/// Appends a scalar that needs no Python; false for anything else.
fn write_scalar(codec: &Codec, value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<bool> {
    if let Ok(text) = value.cast_exact::<PyString>() {
        let text =
            text.to_str().map_err(|error| unwritable_if_not_utf8(codec, text.py(), error))?;
        Token::Str(text).write(out);
    } else if value.is_exact_instance_of::<PyInt>() {
        match value.extract::<i64>() {
            Ok(number) => Token::Int(number).write(out),
            Err(_) => Token::BigInt(&encode_big_int(value)?).write(out),
        }
    } else if let Ok(number) = value.cast_exact::<PyFloat>() {
        Token::Float(number.value()).write(out);
    } else if let Ok(boolean) = value.cast_exact::<PyBool>() {
        Token::Bool(boolean.is_true()).write(out);
    } else if value.is_none() {
        Token::None.write(out);
    } else if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        Token::Bytes(bytes.as_bytes()).write(out);
    } else if let Ok(bytes) = value.cast_exact::<PyByteArray>() {
        Token::ByteArray(&bytes.extract::<Vec<u8>>()?).write(out);
    } else {
        return Ok(false);
    }
    Ok(true)
}

type Items<'py> = Vec<Bound<'py, PyAny>>;

/// The token of a container, and its items taken out of it.
fn token_and_items<'py>(
    value: &Bound<'py, PyAny>,
) -> PyResult<Option<(Token<'static>, Items<'py>)>> {
    if let Ok(dict) = value.cast_exact::<PyDict>() {
        let mut items = Vec::with_capacity(2 * dict.len());
        for pair in dict.items().iter() {
            let (key, item) = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
            items.extend([key, item]);
        }
        return Ok(Some((Token::Dict(items.len() / 2), items)));
    }
    let token_of: fn(usize) -> Token<'static> = if value.is_exact_instance_of::<PyList>() {
        Token::List
    } else if value.is_exact_instance_of::<PyTuple>() {
        Token::Tuple
    } else if value.is_exact_instance_of::<PySet>() {
        Token::Set
    } else if value.is_exact_instance_of::<PyFrozenSet>() {
        Token::FrozenSet
    } else {
        return Ok(None);
    };
    let items = value.try_iter()?.collect::<PyResult<Items<'_>>>()?;
    Ok(Some((token_of(items.len()), items)))
}

/// The Python half's form of a value: a kind and payload.
pub(crate) fn python_form<'py>(
    codec: &Codec,
    value: &Bound<'py, PyAny>,
    is_nested: bool,
) -> PyResult<(String, Bound<'py, PyAny>)> {
    let py = value.py();
    let Some(kind_and_payload_of) = &codec.kind_and_payload_of else {
        return Err(PyTypeError::new_err("this codec writes no typed values"));
    };
    let kind_and_payload = kind_and_payload_of.bind(py).call1((value, is_nested))?;
    kind_and_payload.extract()
}

type TimePayload<'py> = (u8, u8, u8, u32, bool, Bound<'py, PyAny>);
type DateTimePayload<'py> = (u16, u8, u8, TimePayload<'py>);

/// Appends what the Python half made of a value.
pub(crate) fn write_python_form(
    codec: &Codec,
    kind: &str,
    payload: &Bound<'_, PyAny>,
    depth: usize,
    out: &mut Vec<u8>,
) -> PyResult<()> {
    let py = payload.py();
    let extract_text = |object: &Bound<'_, PyAny>| {
        object.extract::<String>().map_err(|error| unwritable_if_not_utf8(codec, py, error))
    };
    match kind {
        "decimal" => Token::Decimal(&extract_text(payload)?).write(out),
        "uuid" => Token::Uuid(payload.extract()?).write(out),
        "delta" => {
            let (days, seconds, microseconds) = payload.extract()?;
            Token::Delta(Delta { days, seconds, microseconds }).write(out);
        }
        "date" => {
            let (year, month, day) = payload.extract()?;
            Token::Date(Date { year, month, day }).write(out);
        }
        "time" => {
            let (time, zone) = parse_time(codec, payload.extract()?)?;
            Token::Time(with_zone(time, &zone)).write(out);
        }
        "datetime" => {
            let (year, month, day, time_payload): DateTimePayload<'_> = payload.extract()?;
            let (time, zone) = parse_time(codec, time_payload)?;
            Token::DateTime(Date { year, month, day }, with_zone(time, &zone)).write(out);
        }
        "enum" => {
            let (name, member) = payload.extract::<(String, Bound<'_, PyAny>)>()?;
            check_depth(codec, py, depth)?;
            Token::Enum(&name).write(out);
            write(codec, &member, depth + 1, out)?;
        }
        "record" => {
            type Record<'py> = (String, Vec<(String, Bound<'py, PyAny>)>);
            let (name, record_fields) = payload.extract::<Record<'_>>()?;
            check_depth(codec, py, depth)?;
            Token::Record(&name, record_fields.len()).write(out);
            for (field_name, item) in record_fields {
                Token::Str(&field_name).write(out);
                write(codec, &item, depth + 1, out)?;
            }
        }
        unknown_kind => return Err(PyTypeError::new_err(format!("no kind {unknown_kind:?}"))),
    }
    Ok(())
}

/// A time zone extracted from Python, which outlives the token that borrows from it.
enum OwnedZone {
    Naive,
    Fixed(i64, Option<String>),
    Named(String),
}

fn parse_time(
    codec: &Codec,
    time_payload: TimePayload<'_>,
) -> PyResult<(Time<'static>, OwnedZone)> {
    let (hour, minute, second, microsecond, is_second_fold, zone_payload) = time_payload;
    let py = zone_payload.py();
    let zone = if zone_payload.is_none() {
        OwnedZone::Naive
    } else if let Ok(offset_us) = zone_payload.extract() {
        OwnedZone::Fixed(offset_us, None)
    } else if zone_payload.is_instance_of::<PyString>() {
        OwnedZone::Named(
            zone_payload.extract().map_err(|error| unwritable_if_not_utf8(codec, py, error))?,
        )
    } else {
        let (offset_us, name) = zone_payload
            .extract::<(i64, String)>()
            .map_err(|error| unwritable_if_not_utf8(codec, py, error))?;
        OwnedZone::Fixed(offset_us, Some(name))
    };
    let time = Time { hour, minute, second, microsecond, is_second_fold, zone: Zone::Naive };
    Ok((time, zone))
}

fn with_zone<'z>(time: Time<'static>, zone: &'z OwnedZone) -> Time<'z> {
    let zone = match zone {
        OwnedZone::Naive => Zone::Naive,
        OwnedZone::Fixed(offset_us, name) => Zone::Fixed(*offset_us, name.as_deref()),
        OwnedZone::Named(name) => Zone::Named(name),
    };
    Time { zone, ..time }
}

/// A whole number beyond 64 bits in two's complement, little-endian.
fn encode_big_int(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let py = value.py();
    let bit_count: usize = value.call_method0(intern!(py, "bit_length"))?.extract()?;
    let signed_argument = PyDict::new(py);
    signed_argument.set_item("signed", true)?;
    let bytes = value.call_method(
        intern!(py, "to_bytes"),
        (bit_count / 8 + 1, "little"),
        Some(&signed_argument),
    )?;
    Ok(bytes.cast::<PyBytes>()?.as_bytes().to_vec())
}

fn check_depth(codec: &Codec, py: Python<'_>, depth: usize) -> PyResult<()> {
    if depth < DEPTH_MAX {
        return Ok(());
    }
    Err(too_deep_error(codec, py))
}

/// The refusal of a value that is nested too deep.
pub(crate) fn too_deep_error(codec: &Codec, py: Python<'_>) -> PyErr {
    unwritable_error(
        codec,
        py,
        format!("nested deeper than {DEPTH_MAX} (or a container that holds itself)"),
    )
}

/// Text that cannot be encoded is a value that cannot be written; any other error stays what it is.
fn unwritable_if_not_utf8(codec: &Codec, py: Python<'_>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyUnicodeEncodeError>(py) {
        return error;
    }
    let problem = format!("text without a UTF-8 form: {error} (codec=\"pickle\" keeps it)");
    unwritable_error(codec, py, problem)
}

fn unwritable_error(codec: &Codec, py: Python<'_>, problem: String) -> PyErr {
    let dialect = codec.inner.options().dialect;
    error::from_value_error(py, &ValueError::Unwritable { dialect, what: problem })
}

/// Reads the object of typed bytes that were found whole.
pub(crate) fn read<'py>(
    py: Python<'py>,
    codec: &Codec,
    bytes: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    read_value(py, codec, &mut Tokens::new(bytes, usize::MAX))
}

fn next_token<'b>(tokens: &mut Tokens<'b>) -> PyResult<Token<'b>> {
    tokens.read().ok_or_else(|| PyValueError::new_err("a truncated typed value"))
}

fn read_value<'py>(
    py: Python<'py>,
    codec: &Codec,
    tokens: &mut Tokens<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let load = |kind: &str, payload: Bound<'py, PyAny>| codec.load.bind(py).call1((kind, payload));
    Ok(match next_token(tokens)? {
        Token::None => py.None().into_bound(py),
        Token::Bool(boolean) => PyBool::new(py, boolean).to_owned().into_any(),
        Token::Int(number) => number.into_pyobject(py)?.into_any(),
        Token::BigInt(bytes) => {
            let signed_argument = PyDict::new(py);
            signed_argument.set_item("signed", true)?;
            let arguments = (PyBytes::new(py, bytes), "little");
            py.get_type::<PyInt>().call_method(
                intern!(py, "from_bytes"),
                arguments,
                Some(&signed_argument),
            )?
        }
        Token::Float(number) => PyFloat::new(py, number).into_any(),
        Token::Str(text) => PyString::new(py, text).into_any(),
        Token::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Token::ByteArray(bytes) => PyByteArray::new(py, bytes).into_any(),
        Token::List(count) => PyList::new(py, read_items(py, codec, tokens, count)?)?.into_any(),
        Token::Tuple(count) => PyTuple::new(py, read_items(py, codec, tokens, count)?)?.into_any(),
        Token::Set(count) => {
            let items = check_hashes(read_items(py, codec, tokens, count)?)?;
            PySet::new(py, items)?.into_any()
        }
        Token::FrozenSet(count) => {
            let items = check_hashes(read_items(py, codec, tokens, count)?)?;
            PyFrozenSet::new(py, items)?.into_any()
        }
        Token::Dict(count) => read_dict(py, codec, tokens, count)?.into_any(),
        Token::Date(date) => {
            let payload = (date.year, date.month, date.day);
            load("date", payload.into_pyobject(py)?.into_any())?
        }
        Token::Time(time) => load("time", time_to_python(py, time)?)?,
        Token::DateTime(date, time) => {
            let payload = (date.year, date.month, date.day, time_to_python(py, time)?);
            load("datetime", payload.into_pyobject(py)?.into_any())?
        }
        Token::Delta(delta) => {
            let payload = (delta.days, delta.seconds, delta.microseconds);
            load("delta", payload.into_pyobject(py)?.into_any())?
        }
        Token::Decimal(text) => load("decimal", PyString::new(py, text).into_any())?,
        Token::Uuid(bytes) => load("uuid", PyBytes::new(py, &bytes).into_any())?,
        Token::Enum(name) => {
            let payload = (name, read_value(py, codec, tokens)?);
            load("enum", payload.into_pyobject(py)?.into_any())?
        }
        Token::Record(name, count) => {
            let payload = (name, read_dict(py, codec, tokens, count)?);
            load("record", payload.into_pyobject(py)?.into_any())?
        }
    })
}

/// Most items that memory is reserved for before they are read.
const RESERVED_ITEMS_MAX: usize = 64;

fn read_items<'py>(
    py: Python<'py>,
    codec: &Codec,
    tokens: &mut Tokens<'_>,
    count: usize,
) -> PyResult<Items<'py>> {
    let mut items = Vec::with_capacity(count.min(RESERVED_ITEMS_MAX));
    for _ in 0..count {
        items.push(read_value(py, codec, tokens)?);
    }
    Ok(items)
}

fn read_dict<'py>(
    py: Python<'py>,
    codec: &Codec,
    tokens: &mut Tokens<'_>,
    count: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let mut hash_counts = HashCounts::of(count);
    for _ in 0..count {
        let key = read_value(py, codec, tokens)?;
        hash_counts.add(&key)?;
        dict.set_item(key, read_value(py, codec, tokens)?)?;
    }
    Ok(dict)
}

fn check_hashes(items: Items<'_>) -> PyResult<Items<'_>> {
    let mut hash_counts = HashCounts::of(items.len());
    items.iter().try_for_each(|item| hash_counts.add(item))?;
    Ok(items)
}

/// How many keys of one container share a hash.
///
/// Each of them is compared with all before it, and hashes of numbers are not secret: hostile bytes could
/// keep a reader busy for hours.
struct HashCounts(Option<HashMap<isize, u32>>);

/// Most keys of one hash. A container of no more keys is not checked.
const SAME_HASH_MAX: u32 = 1000;

impl HashCounts {
    fn of(key_count: usize) -> Self {
        Self((key_count > SAME_HASH_MAX as usize).then(HashMap::new))
    }

    fn add(&mut self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(keys_by_hash) = &mut self.0 else {
            return Ok(());
        };
        let same_hash_count = keys_by_hash.entry(key.hash()?).or_default();
        *same_hash_count += 1;
        if *same_hash_count > SAME_HASH_MAX {
            return Err(PyValueError::new_err("too many keys of one hash"));
        }
        Ok(())
    }
}

fn time_to_python<'py>(py: Python<'py>, time: Time<'_>) -> PyResult<Bound<'py, PyAny>> {
    let zone = match time.zone {
        Zone::Naive => py.None().into_bound(py),
        Zone::Fixed(offset_us, None) => offset_us.into_pyobject(py)?.into_any(),
        Zone::Fixed(offset_us, Some(name)) => (offset_us, name).into_pyobject(py)?.into_any(),
        Zone::Named(name) => PyString::new(py, name).into_any(),
    };
    let payload =
        (time.hour, time.minute, time.second, time.microsecond, time.is_second_fold, zone);
    Ok(payload.into_pyobject(py)?.into_any())
}
