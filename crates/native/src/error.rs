//! Errors of the client as Python exceptions: the classes of `glasscache.errors`.

use glasscache_client::Error;
use glasscache_client::ErrorLineKind;
use glasscache_client::error::Context;
use glasscache_client::value::ValueError;
use glasscache_sim::TraceError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Makes an exception of a class in `glasscache.errors`.
///
/// Its constructor is Python, so a signal's handler may run in it: what that raises is the error here.
fn make_exception<'py>(
    py: Python<'py>,
    class_name: &str,
    message: String,
    set_attributes: impl FnOnce(&Bound<'py, PyDict>) -> PyResult<()>,
) -> PyResult<Bound<'py, PyAny>> {
    let class = py.import("glasscache.errors")?.getattr(class_name)?;
    let attributes = PyDict::new(py);
    set_attributes(&attributes)?;
    class.call((message,), Some(&attributes))
}

/// As [`make_exception`], as an error to be raised; if the exception cannot be made, the error is the reason.
fn make_pyerr<'py>(
    py: Python<'py>,
    class_name: &str,
    message: String,
    set_attributes: impl FnOnce(&Bound<'py, PyDict>) -> PyResult<()>,
) -> PyErr {
    make_exception(py, class_name, message, set_attributes)
        .map_or_else(|error| error, PyErr::from_value)
}

fn set_context_attributes(attributes: &Bound<'_, PyDict>, context: &Context) -> PyResult<()> {
    attributes.set_item("server", &context.server)?;
    attributes.set_item("phase", context.phase.name())?;
    attributes.set_item("retry_is_safe", context.retry_is_safe)
}

fn error_line_kind_name(kind: ErrorLineKind) -> &'static str {
    match kind {
        ErrorLineKind::UnknownCommand => "command",
        ErrorLineKind::Client => "client",
        ErrorLineKind::Server => "server",
    }
}

/// The Python exception to be raised for an error of the client.
pub(crate) fn from_client_error(py: Python<'_>, error: &Error) -> PyErr {
    error_to_exception(py, error).map_or_else(|error| error, PyErr::from_value)
}

/// The Python exception for an error of the client where it is the outcome of one call of several.
///
/// An error here is what a signal's handler raised, which is not the outcome of a call and ends them all.
pub(crate) fn error_to_exception<'py>(
    py: Python<'py>,
    error: &Error,
) -> PyResult<Bound<'py, PyAny>> {
    let message = error.to_string();
    match error {
        Error::Unavailable(context, _) => {
            make_exception(py, "ServerUnavailable", message, |attributes| {
                set_context_attributes(attributes, context)
            })
        }
        Error::Deadline(context) => make_exception(py, "DeadlineExceeded", message, |attributes| {
            set_context_attributes(attributes, context)
        }),
        Error::Protocol { server, .. } => {
            make_exception(py, "ProtocolBroken", message, |attributes| {
                attributes.set_item("server", server)
            })
        }
        Error::Refused { server, refusal } => {
            make_exception(py, "RequestRefused", message, |attributes| {
                attributes.set_item("server", server)?;
                attributes.set_item("blame", error_line_kind_name(refusal.kind))
            })
        }
        Error::LoginRefused { server, .. } => {
            make_exception(py, "LoginRefused", message, |attributes| {
                attributes.set_item("server", server)
            })
        }
        Error::TooLarge { key, bytes, limit } => {
            make_exception(py, "ValueTooLarge", message, |attributes| {
                attributes.set_item("key", key)?;
                attributes.set_item("value_bytes", bytes)?;
                attributes.set_item("limit", (*limit > 0).then_some(limit))
            })
        }
        Error::BadKey { key, .. } => {
            make_exception(py, "BadKey", message, |attributes| attributes.set_item("key", key))
        }
        Error::NotStored { server, .. } => make_exception(py, "NotStored", message, |attributes| {
            attributes.set_item("server", server)
        }),
        Error::Unsupported { server, .. } => {
            make_exception(py, "Unsupported", message, |attributes| {
                attributes.set_item("server", server)
            })
        }
        Error::NotExtendable { .. } => make_exception(py, "UnwritableValue", message, |_| Ok(())),
        Error::BadSetting(_) => make_exception(py, "BadSetting", message, |_| Ok(())),
        Error::Closed => make_exception(py, "ClientClosed", message, |_| Ok(())),
        // The handler's own exception is already set; this one is used if there is none.
        Error::Interrupted => {
            Err(PyErr::take(py)
                .unwrap_or_else(|| pyo3::exceptions::PyKeyboardInterrupt::new_err(())))
        }
    }
}

/// The Python exception for a value that cannot be written or read.
pub(crate) fn from_value_error(py: Python<'_>, error: &ValueError) -> PyErr {
    let message = error.to_string();
    match error {
        ValueError::Unreadable { flags, .. }
        | ValueError::TooLarge { flags, .. }
        | ValueError::CallTooLarge { flags, .. } => {
            make_pyerr(py, "UnreadableValue", message, |attributes| {
                attributes.set_item("flags", flags)
            })
        }
        ValueError::Unwritable { .. } => make_pyerr(py, "UnwritableValue", message, |_| Ok(())),
        ValueError::Options(_) => make_pyerr(py, "BadSetting", message, |_| Ok(())),
    }
}

/// A reader's exception as `UnreadableValue`, with it as the cause.
pub(crate) fn unreadable(py: Python<'_>, flags: u32, cause: &PyErr) -> PyErr {
    let message = format!("unreadable value: {cause}, flags {flags:#x}");
    let error = make_pyerr(py, "UnreadableValue", message, |attributes| {
        attributes.set_item("flags", flags)
    });
    error.set_cause(py, Some(cause.clone_ref(py)));
    error
}

/// The internal exception at which the Python half connects and sends again.
pub(crate) fn stale_connection_error(py: Python<'_>) -> PyErr {
    make_pyerr(py, "StaleConnection", "the connection was closed while idle".into(), |_| Ok(()))
}

/// Whether an exception is the internal one of [`stale_connection_error`].
pub(crate) fn is_stale(py: Python<'_>, error: &PyErr) -> bool {
    is_instance_of_class(py, error, "StaleConnection")
}

/// Whether an exception is a miss by the function of `on_error`; without such a function none is.
///
/// An error here is what the function or a signal's handler raised.
pub(crate) fn is_counted_as_miss(
    py: Python<'_>,
    counts_as_miss: Option<&Py<PyAny>>,
    error: &PyErr,
) -> PyResult<bool> {
    match counts_as_miss.filter(|_| is_package_error(py, error)) {
        Some(counts_as_miss) => counts_as_miss.call1(py, (error.value(py),))?.is_truthy(py),
        None => Ok(false),
    }
}

/// Whether an exception is one of this package, and not what a signal's handler or a foreign codec raised.
pub(crate) fn is_package_error(py: Python<'_>, error: &PyErr) -> bool {
    is_instance_of_class(py, error, "GlasscacheError")
}

fn is_instance_of_class(py: Python<'_>, error: &PyErr, class_name: &str) -> bool {
    let class = py.import("glasscache.errors").and_then(|errors| errors.getattr(class_name));
    class.is_ok_and(|class| error.matches(py, class).unwrap_or(false))
}

/// The Python exception for a trace or a log that cannot be read.
pub(crate) fn from_trace_error(py: Python<'_>, error: &TraceError) -> PyErr {
    make_pyerr(py, "BadTrace", error.to_string(), |attributes| {
        attributes.set_item("file", &error.file)?;
        attributes.set_item("row", error.row)?;
        attributes.set_item("column", error.column.as_deref())
    })
}

/// Logs what the user should know, to the logger `glasscache`.
pub(crate) fn log_warning(py: Python<'_>, warning: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("glasscache",))?;
    logger.call_method1("warning", ("%s", warning)).map(drop)
}

/// The Python exception for an argument that makes no sense.
pub(crate) fn bad_setting(py: Python<'_>, message: String) -> PyErr {
    make_pyerr(py, "BadSetting", message, |_| Ok(()))
}

/// The error for one key where an iterable of keys is expected.
pub(crate) fn one_key_error(key: &Bound<'_, PyAny>) -> PyErr {
    let suggestions = key.py().import("glasscache._suggestions");
    let exception =
        suggestions.and_then(|suggestions| suggestions.call_method1("one_key_error", (key,)));
    exception.map_or_else(|error| error, PyErr::from_value)
}
