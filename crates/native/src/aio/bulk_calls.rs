//! The calls of the asyncio client about many keys, or to every server.

use glasscache_client::StoreMode;
use glasscache_client::bulk::{BulkDelete, BulkRead, BulkStore, Partitioned, StoreFailures};
use glasscache_client::costs::TimeSpent;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::bulk_call::BulkCall;
use super::bulk_state::BulkState;
use super::client::AsyncClient;
use super::connection::Connection;
use super::delayed_call::TimeLimit;
use super::pending_call::CallTiming;
use crate::admin::AdminRequest;
use crate::bulk::{EncodedItems, FoundValues, collect_keys, key_value_pairs};

use crate::error;
use crate::keys::{key_bytes, wire_keys};
use crate::ttl::{Ttl, exptime};

type StartedCall<'py> = PyResult<Bound<'py, BulkCall>>;

impl AsyncClient {
    /// Begins a call to the servers in these slots, one request each.
    pub(super) fn start_bulk<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Py<PyAny>>,
        bulk_state: BulkState,
        slots: impl Iterator<Item = usize>,
        timing: CallTiming,
    ) -> StartedCall<'py> {
        let client = self.state.clone_ref(py);
        let call =
            Bound::new(py, BulkCall::new(client, keys, bulk_state, slots.into_iter(), timing))?;
        self.send(&call)?;
        Ok(call)
    }
}

#[pymethods]
impl AsyncClient {
    /// Send the requests of a call that are not sent yet, where there is a connection.
    #[pyo3(name = "_send")]
    fn send(&self, call: &Bound<'_, BulkCall>) -> PyResult<()> {
        let py = call.py();
        let unsent_requests: Vec<_> = call.borrow().requests.unsent().collect();
        for (request_index, slot) in unsent_requests {
            // Not borrowed here: finding a connection may end requests of a process that was forked.
            let connection = self.usable_connection(py, slot)?;
            let mut borrowed_call = call.borrow_mut();
            let deadline_error = || self.connect_timeout_error(slot);
            let timing =
                borrowed_call.begin_attempt(request_index, connection.is_some(), deadline_error);
            let (Some(connection), Some(timing)) = (connection, timing) else {
                continue;
            };
            let write_result = borrowed_call.with_request(py, request_index, |request| {
                Connection::submit_bulk(&connection, request, (call, request_index), timing)
            })?;
            if let Err(error) = write_result {
                borrowed_call.requests.fail(request_index, error);
            }
        }
        call.borrow_mut().advance(py)
    }

    /// Note that a server which a call is to be sent to could not be connected to.
    #[pyo3(name = "_fail")]
    fn fail_unsent_requests(
        &self,
        call: &Bound<'_, BulkCall>,
        slot: usize,
        exception: &Bound<'_, PyAny>,
    ) {
        let error = self.connect_error(slot, exception);
        call.borrow_mut().requests.fail_unsent(slot, &error);
    }

    /// Read keys, each value alone or with its CAS unique; the outcome is a dict of those that were found.
    #[pyo3(name = "_start_get_many")]
    fn start_get_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        with_cas: bool,
        deadline: Option<TimeLimit>,
    ) -> StartedCall<'py> {
        let (py, this) = (slf.py(), slf.get());
        let timing = TimeLimit::call_timing(deadline, this.timeout, TimeSpent::default())?;
        let key_objects = collect_keys(keys)?;
        let key_slices: Vec<_> = key_objects.iter().map(key_bytes).collect::<PyResult<_>>()?;
        let bulk_read = BulkRead::new(&this.core, &key_slices, with_cas);
        let bulk_read = bulk_read.map_err(|error| error::from_client_error(py, &error))?;
        let slots: Vec<_> = bulk_read.slots().collect();
        let bulk_state = BulkState::Read(bulk_read, FoundValues::new(py, with_cas));
        let keys = key_objects.into_iter().map(Bound::unbind).collect();
        this.start_bulk(slf.py(), keys, bulk_state, slots.into_iter(), timing)
    }

    /// Store a mapping's values; the outcome is a dict of failures.
    #[pyo3(name = "_start_set_many")]
    fn start_set_many<'py>(
        slf: &Bound<'py, Self>,
        values: &Bound<'py, PyAny>,
        ttl: Option<Ttl>,
        deadline: Option<TimeLimit>,
    ) -> StartedCall<'py> {
        let this = slf.get();
        let mut timing = TimeLimit::call_timing(deadline, this.timeout, TimeSpent::default())?;
        let exptime = exptime(ttl)?;
        let pairs = key_value_pairs(values)?;
        let (key_encoder, codec) = (this.core.keys(), this.codec());
        let encoded_items = EncodedItems::new(key_encoder, codec, &pairs, &mut timing.spent)?;
        let bulk_store = BulkStore::new(&this.core, StoreMode::Set, &encoded_items.all(), exptime);
        let slots: Vec<_> = bulk_store.slots().collect();
        let bulk_state = BulkState::Store(bulk_store, encoded_items, StoreFailures::default());
        let keys = pairs.into_iter().map(|(key, _)| key.unbind()).collect();
        this.start_bulk(slf.py(), keys, bulk_state, slots.into_iter(), timing)
    }

    /// Remove keys; the outcome is a dict of failures.
    #[pyo3(name = "_start_delete_many")]
    fn start_delete_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        deadline: Option<TimeLimit>,
    ) -> StartedCall<'py> {
        let this = slf.get();
        let timing = TimeLimit::call_timing(deadline, this.timeout, TimeSpent::default())?;
        let key_objects = collect_keys(keys)?;
        let encoded_keys = wire_keys(this.core.keys(), &key_objects)?;
        let bulk_delete = BulkDelete::new(&this.core, &encoded_keys.all());
        let slots: Vec<_> = bulk_delete.slots().collect();
        let bulk_state = BulkState::Delete(bulk_delete, encoded_keys, Vec::new());
        let keys = key_objects.into_iter().map(Bound::unbind).collect();
        this.start_bulk(slf.py(), keys, bulk_state, slots.into_iter(), timing)
    }

    /// Send a request to every server, by the method that makes it; the outcome is a dict by name.
    #[pyo3(name = "_start_of_all")]
    fn start_on_all_servers<'py>(
        slf: &Bound<'py, Self>,
        method: &str,
        argument: String,
        delay: u32,
        deadline: Option<TimeLimit>,
    ) -> StartedCall<'py> {
        let (py, this) = (slf.py(), slf.get());
        let timing = TimeLimit::call_timing(deadline, this.timeout, TimeSpent::default())?;
        let admin_request = AdminRequest::new(py, this, (method, argument, delay))?;
        let (slots, names): (Vec<_>, Vec<_>) = this.names().into_iter().unzip();
        let bulk_state = BulkState::AllServers(admin_request, names, PyDict::new(py).unbind());
        this.start_bulk(slf.py(), Vec::new(), bulk_state, slots.into_iter(), timing)
    }
}
