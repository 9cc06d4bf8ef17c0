//! The strategy of a client: its settings, the scope of a request, and what is reported of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use glasscache_client::Client as Core;
use glasscache_client::near::{
    self, ChildrenOf, ClientNearCache, ItemEnd, NearValue, NeverRules, RolloutShare,
    StrategyOptions,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::computed_value::compute_info_to_seconds;
use crate::keys::key_bytes;
use crate::recorded_read::decode_time_of;
use crate::settings::Codec;
use crate::{error, signals, value as conversion};

/// A strategy file and how a client runs it.
#[pyclass(frozen, module = "glasscache._native")]
pub(crate) struct Strategy {
    pub(crate) options: StrategyOptions,
    /// The context variable with the scope of the current request.
    scope_variable: Py<PyAny>,
    /// The context variable that is true in calls that the package makes to fill a key.
    package_call_variable: Py<PyAny>,
}

#[pymethods]
impl Strategy {
    #[new]
    #[expect(
        clippy::too_many_arguments,
        reason = "the settings of a strategy, each with its own type"
    )]
    #[pyo3(signature = (path, *, near_ttl, coherent, children_of, scopes, package_call, share, share_by, near_check, never, allow))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        near_ttl: Option<f64>,
        coherent: bool,
        children_of: Option<Py<PyAny>>,
        scopes: Py<PyAny>,
        package_call: Py<PyAny>,
        share: Option<f64>,
        share_by: &str,
        near_check: f64,
        never: Vec<String>,
        allow: Vec<String>,
    ) -> PyResult<Self> {
        let path_text = path.display();
        let bad_strategy = |reason: String| {
            let message = format!("strategy={path_text}: {reason}");
            error::bad_setting(py, message)
        };
        let text = std::fs::read_to_string(&path).map_err(|reason| {
            bad_strategy(format!("reading it failed: {reason}; write it with simulate --save"))
        })?;
        let strategy_file = text.parse().map_err(|reason| bad_strategy(format!("{reason}")))?;
        let near_ttl = near_ttl.map(Duration::try_from_secs_f64).transpose();
        let near_ttl =
            near_ttl.map_err(|reason| error::bad_setting(py, format!("near_ttl: {reason}")))?;
        let shared_by = share_by.parse();
        let shared_by = shared_by
            .map_err(|reason: near::ShareError| error::bad_setting(py, reason.to_string()))?;
        let options = StrategyOptions {
            near_ttl,
            is_coherent: coherent,
            children_of: children_of.map(wrap_children_of),
            share: share.map(|share| RolloutShare { fraction: share, by: shared_by }),
            near_check,
            never: NeverRules { prefixes: never, allowed_prefixes: allow, ..NeverRules::default() },
            ..StrategyOptions::new(strategy_file)
        };
        Ok(Self { options, scope_variable: scopes, package_call_variable: package_call })
    }
}

/// The application's function as the client calls it: a function that raises was wrapped in Python.
fn wrap_children_of(function: Py<PyAny>) -> ChildrenOf {
    ChildrenOf::new(move |key| {
        Python::attach(|py| {
            let key_object = match std::str::from_utf8(key) {
                Ok(text) => PyString::new(py, text).into_any(),
                Err(_) => PyBytes::new(py, key).into_any(),
            };
            let children = function.call1(py, (key_object,));
            let children = children.and_then(|children| children.extract(py));
            children.unwrap_or_default()
        })
    })
}

/// The scope of one request: what its reads fetched.
#[pyclass(frozen, module = "glasscache._native")]
pub(crate) struct RequestScope {
    scope: Arc<near::RequestScope>,
    near_cache: Arc<ClientNearCache>,
}

#[pymethods]
impl RequestScope {
    /// End the request: what it needed is counted, and a strategy that has disabled itself by that is logged.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.scope.end();
        log_warnings(py, &self.near_cache)
    }

    /// Name the kind of the request, by which a roll-out compares.
    fn set_route(&self, route: &Bound<'_, PyString>) {
        self.scope.set_route(&route.to_string_lossy());
    }
}

/// Logs what the user should know of the strategy, each once.
fn log_warnings(py: Python<'_>, near_cache: &ClientNearCache) -> PyResult<()> {
    while let Some(warning) = near_cache.take_warning() {
        error::log_warning(py, &warning)?;
    }
    Ok(())
}

/// A scope for a request about the item under the key `page`, or `None` without a strategy.
pub(crate) fn begin_request(
    py: Python<'_>,
    binding: Option<&NearBinding>,
    page: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<RequestScope>> {
    // A page that is not a key is refused whether there is a strategy or not.
    let page_key = page.map(key_bytes).transpose()?;
    let Some(binding) = binding else {
        return Ok(None);
    };
    let scope = binding.near_cache.scope(page_key);
    let scope = scope.map_err(|error| error::from_client_error(py, &error))?;
    Ok(Some(RequestScope { scope: Arc::new(scope), near_cache: binding.near_cache.clone() }))
}

/// The roll-out of the strategy as JSON, or `None` without a strategy.
pub(crate) fn rollout_json(binding: Option<&NearBinding>) -> Option<String> {
    binding.map(|binding| binding.near_cache.rollout_json())
}

/// Forgets the value under a key that was changed on other servers.
pub(crate) fn forget(binding: Option<&NearBinding>, key: &Bound<'_, PyAny>) -> PyResult<()> {
    let (py, key) = (key.py(), key_bytes(key)?);
    let forget_result = binding.map_or(Ok(()), |binding| binding.near_cache.forget(key));
    forget_result.map_err(|error| error::from_client_error(py, &error))
}

/// Whether a read of a key by the strategy is held afterwards, so that [`life`] can report on it.
pub(crate) fn holds_reads_of(
    binding: Option<&NearBinding>,
    key: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let Some(binding) = binding else { return Ok(false) };
    let scope = binding.scope(key.py())?;
    Ok(binding.near_cache.holds_reads_of(key_bytes(key)?, scope.as_deref()))
}

/// The seconds that an item has left at least (-1: it has no TTL), and the Unix time when its value was computed and the
/// seconds that this took, if they were stored.
pub(crate) type NearLife = (f64, Option<(f64, f64)>);

/// Of the value under a key that a read gets without a call.
pub(crate) fn life(
    binding: Option<&NearBinding>,
    codec: &Codec,
    key: &Bound<'_, PyAny>,
) -> PyResult<Option<NearLife>> {
    let Some(binding) = binding else { return Ok(None) };
    let (scope, now) = (binding.scope(key.py())?, Instant::now());
    let held_value = binding.near_cache.held_value(key_bytes(key)?, scope.as_deref(), now);
    Ok(held_value.and_then(|(value, item_end)| {
        let seconds_left = match item_end {
            ItemEnd::Unknown => return None,
            ItemEnd::Never => -1.0,
            ItemEnd::At(end) => end.saturating_duration_since(now).as_secs_f64(),
        };
        let compute_info = codec.inner.compute_info(value.flags, &value.bytes);
        Some((seconds_left, compute_info.map(|(info, ..)| compute_info_to_seconds(info))))
    }))
}

/// The counters as a table, or `None` without a strategy.
pub(crate) fn stats<'py>(
    py: Python<'py>,
    binding: Option<&NearBinding>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    binding.map(|binding| binding.stats(py)).transpose()
}

/// Binds the near cache of a Python client to the context variable that holds the scope of its requests.
pub(crate) struct NearBinding {
    pub(crate) near_cache: Arc<ClientNearCache>,
    /// The context variable with the scope of the current request.
    scope_variable: Py<PyAny>,
    /// The context variable that is true in calls that the package makes to fill a key.
    package_call_variable: Py<PyAny>,
}

impl NearBinding {
    /// Whether the current call is one by which the package fills a key.
    pub(crate) fn is_package_call(&self, py: Python<'_>) -> bool {
        let value = self.package_call_variable.bind(py).call_method0(intern!(py, "get"));
        value.and_then(|value| value.is_truthy()).unwrap_or(false)
    }

    /// That of a client, if it was made with a strategy.
    pub(crate) fn new(
        py: Python<'_>,
        core: &Core,
        strategy: Option<&Py<Strategy>>,
    ) -> Option<Self> {
        let strategy = strategy?.get();
        Some(Self {
            near_cache: core.near()?.clone(),
            scope_variable: strategy.scope_variable.clone_ref(py),
            package_call_variable: strategy.package_call_variable.clone_ref(py),
        })
    }

    /// The scope of the current request. A signal's handler reads outside of the request that it interrupts: to wait for
    /// what that request is fetching would be to wait for itself.
    pub(crate) fn scope(&self, py: Python<'_>) -> PyResult<Option<Arc<near::RequestScope>>> {
        let current_scope = self.scope_variable.bind(py).call_method0(intern!(py, "get"))?;
        if current_scope.is_none() || signals::runs_handler() {
            return Ok(None);
        }
        let scope = current_scope.cast::<RequestScope>()?;
        Ok(Some(scope.get().scope.clone()))
    }

    /// Logs what the user should know of the fixed set and of what servers report, once each.
    pub(crate) fn log_warnings(&self, py: Python<'_>) -> PyResult<()> {
        log_warnings(py, &self.near_cache)
    }

    /// The counters as a table.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (stats, table) = (self.near_cache.stats(), PyDict::new(py));
        let counters = [
            ("reads", stats.reads),
            ("fixed_hits", stats.fixed_hits),
            ("near_hits", stats.local_cache_hits),
            ("held_hits", stats.request_scope_hits),
            ("calls", stats.calls),
            ("keys", stats.keys),
            ("bytes", stats.bytes),
            ("used_keys", stats.used_keys),
            ("kept_calls", stats.fixed_set_calls),
            ("kept_keys", stats.fixed_set_keys),
            ("invalidated", stats.invalidated),
            ("changed_by_others", stats.changed_by_others),
            ("watch_clears", stats.watch_clears),
            ("fixed_keys", stats.fixed_keys),
            ("fixed_loaded", stats.fixed_loaded),
            ("near_items", stats.near_items),
            ("near_bytes", stats.near_bytes),
            ("fixed_bytes", stats.fixed_bytes),
            ("rules_bytes", stats.rules_bytes),
        ];
        for (name, value) in counters {
            table.set_item(name, value)?;
        }
        table.set_item("missing_keys", stats.missing_keys)?;
        table.set_item("disabled", stats.disabled)?;
        Ok(table)
    }
}

/// Makes the Python value of what the process keeps, anew for each read: a caller may modify it. How long that takes counts
/// for the request, if there is one.
pub(crate) fn decode_near_value<'py>(
    py: Python<'py>,
    codec: &Codec,
    value: &NearValue,
    scope: Option<&near::RequestScope>,
) -> PyResult<Bound<'py, PyAny>> {
    if conversion::arrives_as_bytes(codec, value.flags) {
        return Ok(PyBytes::new(py, &value.bytes).into_any());
    }
    let decode = || conversion::decode_value(py, codec, value.flags, &value.bytes);
    let (object, _) = count_decode_time(scope, decode)?;
    Ok(object)
}

/// Decodes values, and adds how long that takes to what the request needed.
pub(crate) fn count_decode_time<V>(
    scope: Option<&near::RequestScope>,
    decode: impl FnOnce() -> V,
) -> V {
    let Some(scope) = scope else { return decode() };
    let (values, decode_time) = decode_time_of(decode);
    scope.add_decode_time(decode_time);
    values
}
