//! The methods of the asyncio client: each writes its request and returns the future of its reply.

use glasscache_client::costs::TimeSpent;
use glasscache_client::engine::operation::{Operation, Store};
use glasscache_client::engine::{Counter, Extending, RefusedValueSteps};
use glasscache_client::request::{Item, Request};
use glasscache_client::reservation::Reservation;
use glasscache_client::{Arithmetic, StoreMode, WireKey};
use pyo3::prelude::*;

use super::client::AsyncClient;
use super::delayed_call::TimeLimit;
use super::pending_call::{CallKind, FutureResult, ValueWrite};
use crate::client::{
    appended_bytes, parse_amount, parse_optional_amount, reserving, store_mode_of,
};
use crate::reply::ReplyForm;
use crate::ttl::{Ttl, exptime};
use crate::value as conversion;

impl AsyncClient {
    /// Begins a call of one request about one key; `default` is what a miss returns.
    fn start_call<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Py<PyAny>>,
        time_limit: Option<TimeLimit>,
        make_request: impl for<'k> FnOnce(WireKey<'k>) -> Request<'k>,
    ) -> FutureResult<'py> {
        let py = key.py();
        let mut scratch = Vec::new();
        let key = self.wire_key(key, &mut scratch)?;
        let request = make_request(key);
        let reply_form = ReplyForm::for_request(&request);
        let Some(recorded_read) = TimeLimit::take_recorded_read(time_limit.as_ref()) else {
            let call_kind = CallKind::Single(reply_form, default);
            return self.submit(py, key, &request, call_kind, time_limit);
        };
        let is_delayed = matches!(time_limit, Some(TimeLimit::Delayed(_)));
        let call_kind = CallKind::Recorded(Box::new((reply_form, default, recorded_read.clone())));
        let future = self.submit(py, key, &request, call_kind, time_limit)?;
        if future.is_none() && !is_delayed {
            recorded_read.store_for_this_thread(); // the delayed call that begins next takes it
        }
        Ok(future)
    }

    /// Begins a store; if the value is too long to be sent, begins the steps of a refused value.
    fn submit_store<'py>(
        &self,
        py: Python<'py>,
        store: &Store<'_>,
        reply_form: ReplyForm,
        time_limit_and_spent: (Option<TimeLimit>, TimeSpent),
    ) -> FutureResult<'py> {
        let key = store.item.key;
        let value_write = ValueWrite { reply_form, value_bytes: store.item.body.len() };
        let refusal = store.refusal(self.core.options().value_bytes_max);
        let call_kind = match refusal {
            None => CallKind::ValueWrite(value_write),
            Some(error) => {
                CallKind::TooLarge(Box::new(RefusedValueSteps::new(key, error)), value_write)
            }
        };
        let request = matches!(call_kind, CallKind::ValueWrite(_)).then(|| store.request());
        let slot = self.core.slot_of(key.bytes);
        self.submit_to(py, slot, request.as_ref(), call_kind, time_limit_and_spent)
    }
}

#[pymethods]
impl AsyncClient {
    #[pyo3(name = "_start_get")]
    fn start_get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Py<PyAny>>,
        deadline: Option<TimeLimit>,
    ) -> FutureResult<'py> {
        self.start_call(key, default, deadline, |key| Request::Get { key, cas: false })
    }

    #[pyo3(name = "_start_gets")]
    fn start_gets<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        deadline: Option<TimeLimit>,
    ) -> FutureResult<'py> {
        self.start_call(key, None, deadline, |key| Request::Get { key, cas: true })
    }

    #[pyo3(name = "_start_gat")]
    fn start_gat<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        ttl: Ttl,
        default: Option<Py<PyAny>>,
        deadline: Option<TimeLimit>,
    ) -> FutureResult<'py> {
        let exptime = exptime(Some(ttl))?;
        self.start_call(key, default, deadline, |key| Request::GetAndTouch { key, exptime })
    }

    #[pyo3(name = "_start_inspect")]
    fn start_inspect<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        deadline: Option<TimeLimit>,
    ) -> FutureResult<'py> {
        self.start_call(key, None, deadline, |key| Request::Inspect { key })
    }

    #[expect(clippy::too_many_arguments, reason = "the arguments of one write")]
    #[pyo3(name = "_start_store")]
    fn start_store<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        mode: &str,
        value: &Bound<'py, PyAny>,
        ttl: Option<Ttl>,
        noreply: bool,
        cas: Option<u64>,
        deadline: Option<TimeLimit>,
    ) -> FutureResult<'py> {
        let exptime = exptime(ttl)?;
        let mut scratch = Vec::new();
        let wire_key = self.wire_key(key, &mut scratch)?;
        let store_mode = store_mode_of(mode, cas)?;
        if matches!(store_mode, StoreMode::Append | StoreMode::Prepend) {
            let (codec, bytes) = (self.codec().inner, appended_bytes(value)?);
            // A later step cannot be quiet: the call ends with its reply.
            let steps = Extending::new(codec, store_mode, wire_key, bytes, false);
            let call_kind = CallKind::Extending(Box::new(steps));
            let slot = self.core.slot_of(wire_key.bytes);
            return self.submit_to(py, slot, None, call_kind, (deadline, TimeSpent::default()));
        }
        let send = |flags: u32, body: &[u8], spent: TimeSpent| {
            let (key, reply_form) = (wire_key, cas.map_or(ReplyForm::Bool, |_| ReplyForm::Cas));
            let store = Store::new(store_mode, Item { key, flags, body }, exptime, noreply);
            self.submit_store(py, &store, reply_form, (deadline, spent))
        };
        conversion::encode_value(self.codec(), value, |flags, body, costs| {
            let mut spent = TimeSpent::default();
            conversion::add_costs(&mut spent, costs);
            send(flags, body, spent)
        })
    }

    /// Reserve a key for a value that is being made; None: the dialect has no form for it.
    #[expect(clippy::too_many_arguments, reason = "the arguments of a reservation")]
    #[pyo3(name = "_start_reserve")]
    fn start_reserve<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        flags: u32,
        body: &[u8],
        ttl: Ttl,
        instead_of: Option<u64>,
        deadline: Option<TimeLimit>,
    ) -> FutureResult<'py> {
        let mut scratch = Vec::new();
        let key = self.wire_key(key, &mut scratch)?;
        let (mode, item) = (reserving::store_mode(instead_of), Item { key, flags, body });
        let store = Store::new(mode, item, exptime(Some(ttl))?, false);
        self.submit_store(py, &store, ReplyForm::Reserved, (deadline, TimeSpent::default()))
    }

    #[pyo3(name = "_start_reservation")]
    fn start_reservation<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        deadline: Option<TimeLimit>,
    ) -> FutureResult<'py> {
        let mut scratch = Vec::new();
        let key = self.wire_key(key, &mut scratch)?;
        let command_set = self.server(py, self.core.slot_of(key.bytes))?.command_set();
        let request = Reservation::request(key, command_set);
        self.submit(py, key, &request, CallKind::Reservation, deadline)
    }

    #[pyo3(name = "_start_delete")]
    fn start_delete<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        noreply: bool,
        deadline: Option<TimeLimit>,
    ) -> FutureResult<'py> {
        self.start_call(key, None, deadline, |key| Request::Delete { key, noreply })
    }

    #[pyo3(name = "_start_touch")]
    fn start_touch<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        ttl: Ttl,
        noreply: bool,
        deadline: Option<TimeLimit>,
    ) -> FutureResult<'py> {
        let exptime = exptime(Some(ttl))?;
        self.start_call(key, None, deadline, |key| Request::Touch { key, exptime, noreply })
    }

    #[expect(clippy::too_many_arguments, reason = "the arguments of an addition")]
    #[pyo3(name = "_start_arithmetic")]
    fn start_arithmetic<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = parse_amount)] delta: u64,
        is_decrement: bool,
        #[pyo3(from_py_with = parse_optional_amount)] initial: Option<u64>,
        ttl: Option<Ttl>,
        noreply: bool,
        deadline: Option<TimeLimit>,
    ) -> FutureResult<'py> {
        let exptime = exptime(ttl)?;
        let mut scratch = Vec::new();
        let key = self.wire_key(key, &mut scratch)?;
        let Some(initial) = initial.filter(|_| !noreply) else {
            let arithmetic = Arithmetic {
                delta,
                is_decrement,
                initial: initial.map(|number| (number, exptime)),
            };
            let request = Request::Arithmetic { key, arithmetic, noreply };
            let call_kind = CallKind::Single(ReplyForm::Number, None);
            return self.submit(py, key, &request, call_kind, deadline);
        };
        let initial_number = conversion::encode_initial(self.codec(), initial, exptime);
        let counter = Counter::new(key, delta, is_decrement, initial_number);
        let call_kind = CallKind::Counter(Box::new(counter));
        let slot = self.core.slot_of(key.bytes);
        self.submit_to(py, slot, None, call_kind, (deadline, TimeSpent::default()))
    }
}
