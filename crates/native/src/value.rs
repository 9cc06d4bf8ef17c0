//! Python values and bytes: the hot types here, the rest through the codec's Python half.
//!
//! A `str`, `bytes` or `int` is borrowed from its object and sent from there; a value read becomes its
//! object in one step. Lists of whole numbers and arrays are packed here too.

use std::time::{Duration, Instant};

use glasscache_client::costs::{CostPart, TimeSpent};
use glasscache_client::engine::InitialNumber;
use glasscache_client::value::{
    Array, Decoded, DecodedArray, Dialect, UnpackBudget, ValueCosts, ValueRef,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyMemoryView, PyString, PyTuple};

use crate::computed_value::ComputedValue;
use crate::error;
use crate::int_lists;
use crate::recorded_read::{measure_decoding, measures_decoding};
use crate::recording::has_open_blocks;
use crate::settings::Codec;
use crate::split::Manifest;
use crate::typed;

/// To decode a text of at most this length takes less time than to read the clock before and after.
const UNTIMED_TEXT_BYTES_MAX: usize = 1024;

/// Encodes a value and hands flags, bytes and costs to `use_encoded`, without a copy where there need be none.
pub(crate) fn encode_value<R>(
    codec: &Codec,
    value: &Bound<'_, PyAny>,
    use_encoded: impl FnOnce(u32, &[u8], &ValueCosts) -> PyResult<R>,
) -> PyResult<R> {
    if let Some(value_ref) = borrow_value(value) {
        return encode(codec, value, &value_ref, use_encoded);
    }
    let Ok(computed_value) = value.cast_exact::<ComputedValue>() else {
        return encode_converted(codec, value, use_encoded);
    };
    let (inner_value, compute_info) = computed_value.get().value_and_compute_info(value.py());
    let use_with_compute_info = |flags: u32, bytes: &[u8], costs: &ValueCosts| match codec
        .inner
        .with_compute_info(compute_info, flags, bytes)
    {
        Some((flags, body)) => use_encoded(flags, &body, costs),
        None => use_encoded(flags, bytes, costs),
    };
    match borrow_value(inner_value) {
        Some(value_ref) => encode(codec, inner_value, &value_ref, use_with_compute_info),
        None => encode_converted(codec, inner_value, use_with_compute_info),
    }
}

/// As [`encode_value`], of a value that must be converted.
fn encode_converted<R>(
    codec: &Codec,
    value: &Bound<'_, PyAny>,
    use_encoded: impl FnOnce(u32, &[u8], &ValueCosts) -> PyResult<R>,
) -> PyResult<R> {
    if value.is_exact_instance_of::<PyInt>()
        && let Ok(digits) = value.str()
    {
        return encode(codec, value, &ValueRef::BigInt(digits.to_str()?), use_encoded);
    }
    if let Ok(manifest) = value.cast_exact::<Manifest>() {
        return encode(codec, value, &ValueRef::Manifest(manifest.get().body_bytes()), use_encoded);
    }
    let is_glasscache_dialect = codec.inner.options().dialect == Dialect::Glasscache;
    if let Some(numbers) = int_lists::numbers_of(value).filter(|_| is_glasscache_dialect) {
        return encode(codec, value, &ValueRef::Ints(&numbers), use_encoded);
    }
    // The dialect without types: what has bytes is bytes.
    let is_raw = codec.inner.options().dialect == Dialect::Raw;
    if is_raw && (value.is_instance_of::<PyByteArray>() || value.is_instance_of::<PyMemoryView>()) {
        let bytes: Vec<u8> = value
            .call_method0("__bytes__")
            .or_else(|_| value.py().import("builtins")?.getattr("bytes")?.call1((value,)))?
            .extract()?;
        return encode(codec, value, &ValueRef::Bytes(&bytes), use_encoded);
    }
    // Text with lone surrogates and numbers too long for decimal come here too.
    let serialise_start = Instant::now();
    if codec.kind_and_payload_of.is_some() {
        match typed::round_trips_as_json(value, 0) {
            Some(true) => {}
            Some(false) => return encode_typed(codec, value, serialise_start, use_encoded),
            None => return Err(typed::too_deep_error(codec, value.py())),
        }
    }
    let (kind, payload) =
        codec.dump.bind(value.py()).call1((value,))?.extract::<(String, Bound<'_, PyAny>)>()?;
    let dump_time = serialise_start.elapsed();
    encode_dumped(codec, value, &kind, &payload, |flags, bytes, costs| {
        use_encoded(flags, bytes, &add_serialise_time(costs, dump_time))
    })
}

/// A value of a hot type, borrowed from its object.
fn borrow_value<'a>(value: &'a Bound<'_, PyAny>) -> Option<ValueRef<'a>> {
    if let Ok(text) = value.cast_exact::<PyString>() {
        return text.to_str().ok().map(ValueRef::Str);
    }
    if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        return Some(ValueRef::Bytes(bytes.as_bytes()));
    }
    if value.is_exact_instance_of::<PyInt>() {
        return value.extract().ok().map(ValueRef::Int);
    }
    if let Ok(number) = value.cast_exact::<PyFloat>() {
        return Some(ValueRef::Float(number.value()));
    }
    if let Ok(boolean) = value.cast_exact::<PyBool>() {
        return Some(ValueRef::Bool(boolean.is_true()));
    }
    value.is_none().then_some(ValueRef::None)
}

/// Encodes a value that JSON would bring back as something else: typed, or as the array or the JSON that it is.
fn encode_typed<R>(
    codec: &Codec,
    value: &Bound<'_, PyAny>,
    serialise_start: Instant,
    use_encoded: impl FnOnce(u32, &[u8], &ValueCosts) -> PyResult<R>,
) -> PyResult<R> {
    let mut bytes = Vec::new();
    if typed::has_native_form(value) {
        typed::write(codec, value, 0, &mut bytes)?;
    } else {
        let (kind, payload) = typed::python_form(codec, value, false)?;
        if matches!(kind.as_str(), "array" | "raw_json") {
            let conversion_time = serialise_start.elapsed();
            return encode_dumped(codec, value, &kind, &payload, |flags, bytes, costs| {
                use_encoded(flags, bytes, &add_serialise_time(costs, conversion_time))
            });
        }
        typed::write_python_form(codec, &kind, &payload, 0, &mut bytes)?;
    }
    let write_time = serialise_start.elapsed();
    encode(codec, value, &ValueRef::Typed(&bytes), |flags, bytes, costs| {
        use_encoded(flags, bytes, &add_serialise_time(costs, write_time))
    })
}

fn add_serialise_time(costs: &ValueCosts, serialise_time: Duration) -> ValueCosts {
    ValueCosts { serialise: costs.serialise + serialise_time, ..*costs }
}

/// Encodes what the Python half made of a value: its kind, and bytes or the parts of an array.
fn encode_dumped<R>(
    codec: &Codec,
    value: &Bound<'_, PyAny>,
    kind: &str,
    payload: &Bound<'_, PyAny>,
    use_encoded: impl FnOnce(u32, &[u8], &ValueCosts) -> PyResult<R>,
) -> PyResult<R> {
    if kind == "array" {
        type ArrayPayload<'py> = (char, bool, bool, u8, Vec<u64>, Bound<'py, PyBytes>);
        let (typecode, is_numpy, is_swapped, itemsize, shape, bytes) =
            payload.extract::<ArrayPayload<'_>>()?;
        let typecode = u8::try_from(typecode).map_err(|_| PyTypeError::new_err("odd typecode"))?;
        let array = Array {
            typecode,
            is_numpy,
            is_swapped,
            itemsize,
            shape: &shape,
            bytes: bytes.as_bytes(),
        };
        return encode(codec, value, &ValueRef::Array(array), use_encoded);
    }
    if kind == "flagged" {
        let (flags, bytes) = payload.extract::<(u32, Bound<'_, PyBytes>)>()?;
        return encode(codec, value, &ValueRef::Flagged(flags, bytes.as_bytes()), use_encoded);
    }
    let bytes = payload.cast::<PyBytes>()?.as_bytes();
    let value_ref = match kind {
        "json" => ValueRef::Json(bytes),
        "raw_json" => ValueRef::RawJson(bytes),
        "msgpack" => ValueRef::Msgpack(bytes),
        "pickle" => ValueRef::Pickle(bytes),
        unknown_kind => return Err(PyTypeError::new_err(format!("no kind {unknown_kind:?}"))),
    };
    encode(codec, value, &value_ref, use_encoded)
}

fn encode<R>(
    codec: &Codec,
    value: &Bound<'_, PyAny>,
    value_ref: &ValueRef<'_>,
    use_encoded: impl FnOnce(u32, &[u8], &ValueCosts) -> PyResult<R>,
) -> PyResult<R> {
    if let Some((flags, bytes)) = codec.inner.encode_unchanged(value_ref) {
        return use_encoded(flags, bytes, &costs_of_unchanged(bytes));
    }
    match codec.inner.encode(value_ref) {
        Ok(encoded) => use_encoded(encoded.flags, &encoded.bytes, &encoded.costs),
        Err(error) => Err(error::from_value_error(value.py(), &error)),
    }
}

/// The flags and decimal text of a number that `incr` can take, so that `get` reads what the dialect has for it.
pub(crate) fn encode_initial(codec: &Codec, number: u64, exptime: i64) -> InitialNumber {
    let digits = number.to_string();
    let value_ref = i64::try_from(number).map_or(ValueRef::BigInt(&digits), ValueRef::Int);
    let encoded = codec.inner.encode(&value_ref).ok();
    let encoded = encoded.filter(|encoded| *encoded.bytes == *digits.as_bytes());
    let flags = encoded.map_or(0, |encoded| encoded.flags);
    InitialNumber { number, flags, digits, exptime }
}

/// Adds what encoding took to what a call has spent.
pub(crate) fn add_costs(spent: &mut TimeSpent, costs: &ValueCosts) {
    spent.add_time(CostPart::Serialise, costs.serialise);
    spent.add_time(CostPart::Compress, costs.compress);
}

/// Whether values of these flags are bytes as they came, so that they can be received into their object.
pub(crate) fn arrives_as_bytes(codec: &Codec, flags: u32) -> bool {
    codec.plain_flags == Some(flags) || codec.inner.is_raw(flags)
}

/// The value of flags and bytes, and the cost of reading it.
pub(crate) fn decode_value<'py>(
    py: Python<'py>,
    codec: &Codec,
    flags: u32,
    body: &[u8],
) -> PyResult<(Bound<'py, PyAny>, ValueCosts)> {
    // The first value of a call has all of its budget.
    decode_value_of_call(py, codec, flags, body, &mut UnpackBudget::default())
}

/// As [`decode_value`], of one of the values of a call, which are bounded together.
pub(crate) fn decode_value_of_call<'py>(
    py: Python<'py>,
    codec: &Codec,
    flags: u32,
    body: &[u8],
    budget: &mut UnpackBudget,
) -> PyResult<(Bound<'py, PyAny>, ValueCosts)> {
    if codec.plain_flags == Some(flags) {
        return Ok((PyBytes::new(py, body).into_any(), costs_of_unchanged(body)));
    }
    let is_measured = has_open_blocks() || measures_decoding();
    if codec.plain_text_flags == Some(flags)
        && (!is_measured || body.len() <= UNTIMED_TEXT_BYTES_MAX)
        && let Ok(text) = PyString::from_bytes(py, body)
    {
        budget.add_unpacked(body.len());
        return Ok((text.into_any(), costs_of_unchanged(body)));
    }
    if is_measured {
        return measure_decoding(|| decode_measured_value(py, codec, flags, body, budget));
    }
    decode_measured_value(py, codec, flags, body, budget)
}

/// The costs of a value whose bytes are stored as they are.
fn costs_of_unchanged(body: &[u8]) -> ValueCosts {
    ValueCosts { wire_bytes: body.len(), plain_bytes: body.len(), ..ValueCosts::default() }
}

fn decode_measured_value<'py>(
    py: Python<'py>,
    codec: &Codec,
    flags: u32,
    body: &[u8],
    budget: &mut UnpackBudget,
) -> PyResult<(Bound<'py, PyAny>, ValueCosts)> {
    let decode_result = codec.inner.decode_of_call(flags, body, budget);
    let (decoded, costs) = decode_result.map_err(|error| error::from_value_error(py, &error))?;
    let value = match decoded {
        Decoded::Str(text) => PyString::new(py, &text).into_any(),
        Decoded::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
        Decoded::Int(number) => number.into_pyobject(py)?.into_any(),
        Decoded::BigInt(digits) => {
            let int_type = py.get_type::<PyInt>();
            int_type.call1((digits,)).map_err(|error| unreadable(py, flags, &error))?
        }
        Decoded::Float(number) => PyFloat::new(py, number).into_any(),
        Decoded::Bool(boolean) => PyBool::new(py, boolean).to_owned().into_any(),
        Decoded::None => py.None().into_bound(py),
        Decoded::Ints(numbers) => codec.retained_numbers.list_of(py, &numbers)?.into_any(),
        Decoded::Array(array) => {
            load_array(py, codec, &array).map_err(|error| unreadable(py, flags, &error))?
        }
        Decoded::Json(bytes) => {
            load(py, codec, "json", &bytes).map_err(|error| unreadable(py, flags, &error))?
        }
        Decoded::RawJson(bytes) => {
            load(py, codec, "raw_json", &bytes).map_err(|error| unreadable(py, flags, &error))?
        }
        Decoded::Msgpack(bytes) => {
            load(py, codec, "msgpack", &bytes).map_err(|error| unreadable(py, flags, &error))?
        }
        Decoded::Typed(bytes) => {
            typed::read(py, codec, &bytes).map_err(|error| unreadable(py, flags, &error))?
        }
        Decoded::Pickle(bytes) => {
            load_pickle(py, &bytes).map_err(|error| unreadable(py, flags, &error))?
        }
        Decoded::Manifest(body) => Bound::new(py, Manifest::new(body.into_owned()))?.into_any(),
        Decoded::Flagged(flags, bytes) => {
            let flags_and_bytes = (flags, PyBytes::new(py, &bytes));
            codec.load.bind(py).call1(("flagged", flags_and_bytes))?
        }
        Decoded::DateMs(ms) => {
            let date = codec.load.bind(py).call1(("date_ms", ms));
            date.map_err(|error| unreadable(py, flags, &error))?
        }
    };
    Ok((value, costs))
}

fn load<'py>(
    py: Python<'py>,
    codec: &Codec,
    kind: &str,
    bytes: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    codec.load.bind(py).call1((kind, PyBytes::new(py, bytes)))
}

/// The commonest of small objects: a Python frame between here and `pickle` would take as long as half of it.
fn load_pickle<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let loads = LOADS.import(py, "pickle", "loads")?;
    loads.call1((PyBytes::new(py, bytes),))
}

fn load_array<'py>(
    py: Python<'py>,
    codec: &Codec,
    array: &DecodedArray<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let shape = PyTuple::new(py, &array.shape)?;
    let arguments = (
        char::from(array.typecode),
        array.is_numpy,
        array.is_swapped,
        array.itemsize,
        shape,
        PyBytes::new(py, array.bytes()),
    );
    codec.load.bind(py).call1(("array", arguments))
}

/// A reader's own exception, as that of a value that cannot be read. Interrupts stay unchanged.
fn unreadable(py: Python<'_>, flags: u32, cause: &PyErr) -> PyErr {
    if !cause.is_instance_of::<pyo3::exceptions::PyException>(py) {
        return cause.clone_ref(py);
    }
    error::unreadable(py, flags, cause)
}

#[pymethods]
impl Codec {
    /// Return the flags and bytes of a value on the wire.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<(u32, Bound<'py, PyBytes>)> {
        encode_value(self, value, |flags, bytes, _| Ok((flags, PyBytes::new(py, bytes))))
    }

    /// Return the value of flags and bytes.
    fn decode<'py>(&self, py: Python<'py>, flags: u32, body: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        decode_value(py, self, flags, body).map(|(value, _)| value)
    }

    /// Whether the dialect tells types apart, so that bytes cannot be joined to any value.
    #[getter]
    fn has_types(&self) -> bool {
        self.inner.has_types()
    }

    /// Return the values of (flags, bytes), which one call has read and which are bounded together.
    ///
    /// The outcome of one that cannot be read is its exception.
    fn decode_many<'py>(
        &self,
        py: Python<'py>,
        items: Vec<(u32, PyBackedBytes)>,
    ) -> Vec<Bound<'py, PyAny>> {
        let mut budget = UnpackBudget::default();
        let mut decode = |flags, body: &[u8]| {
            let decode_result = decode_value_of_call(py, self, flags, body, &mut budget);
            match decode_result {
                Ok((value, _)) => value,
                Err(error) => error.into_value(py).into_bound(py).into_any(),
            }
        };
        items.iter().map(|(flags, body)| decode(*flags, body)).collect()
    }

    /// Return (seconds serialising, seconds compressing, plain bytes, wire bytes) of one encoding.
    fn encoding_costs(&self, value: &Bound<'_, PyAny>) -> PyResult<(f64, f64, usize, usize)> {
        encode_value(self, value, |_, _, costs| {
            let serialise_s = costs.serialise.as_secs_f64();
            let compress_s = costs.compress.as_secs_f64();
            Ok((serialise_s, compress_s, costs.plain_bytes, costs.wire_bytes))
        })
    }
}
