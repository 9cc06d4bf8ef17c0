//! The calls of the asyncio client about many keys, or to every server.

use glasscache_client::StoreMode;
use glasscache_client::bulk::{BulkDelete, BulkRead, BulkStore, Partitioned, Stored};
use glasscache_client::costs::Spent;
use glasscache_client::engine::uncertain::OwnedKey;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::bulk_call::{AdminRequest, BulkCall, BulkKind};
use super::client::AsyncClient;
use super::connection::Connection;
use super::delayed_call::Limit;
use super::pending_call::Times;
use crate::bulk::{FoundValues, MadeItems, WireKeys, all_of, pairs_of};
use crate::client::{Ttl, exptime, key_bytes};
use crate::error;

type Started<'py> = PyResult<Bound<'py, BulkCall>>;

pub(super) fn slots(partitions: &impl Partitioned) -> std::vec::IntoIter<usize> {
    let slots: Vec<usize> = partitions
        .partitions()
        .iter()
        .map(|partition| partition.slot)
        .collect();
    slots.into_iter()
}

impl AsyncClient {
    /// Begins a call to the servers in these slots, one request each.
    pub(super) fn start_bulk<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Py<PyAny>>,
        what: BulkKind,
        slots: impl Iterator<Item = usize>,
        times: Times,
    ) -> Started<'py> {
        let client = (self.core.clone(), self.misses.clone());
        let call = Bound::new(py, BulkCall::new(client, keys, what, slots, times))?;
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
        let unsent = call.borrow().unsent();
        for (index, slot) in unsent {
            // Not borrowed here: finding a connection may end requests of a process that was forked.
            let connection = self.connection(py, slot)?;
            let mut this = call.borrow_mut();
            let timed_out = || self.connect_timed_out(slot);
            let times = this.attempt(index, connection.is_some(), timed_out);
            let (Some(connection), Some(times)) = (connection, times) else {
                continue;
            };
            let sent = this.with_request(py, index, |request| {
                Connection::submit_bulk(&connection, request, (call, index), times)
            })?;
            if let Err(error) = sent {
                this.fail_request(index, error);
            }
        }
        call.borrow_mut().advance(py)
    }

    /// Note that a server which a call is to be sent to could not be connected to.
    #[pyo3(name = "_fail")]
    fn fail(&self, call: &Bound<'_, BulkCall>, slot: usize, raised: &Bound<'_, PyAny>) {
        let error = self.not_connected(slot, raised);
        let mut call = call.borrow_mut();
        for (index, _) in call.unsent().into_iter().filter(|(_, of)| *of == slot) {
            call.fail_request(index, error.clone());
        }
    }

    /// Read keys, each value alone or with its CAS unique; the outcome is a dict of those that were found.
    #[pyo3(name = "_start_get_many")]
    fn start_get_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        with_cas: bool,
        deadline: Option<Limit>,
    ) -> Started<'py> {
        let (py, this) = (slf.py(), slf.get());
        let times = Limit::times(deadline, this.timeout, Spent::default())?;
        let objects = all_of(keys)?;
        let keys: Vec<_> = objects.iter().map(key_bytes).collect::<PyResult<_>>()?;
        let reads = BulkRead::new(&this.core, &keys, with_cas);
        let reads = reads.map_err(|error| error::of_client(py, &error))?;
        let slots = slots(&reads);
        let what = BulkKind::Read(reads, FoundValues::new(py, with_cas));
        let keys = objects.into_iter().map(Bound::unbind).collect();
        this.start_bulk(slf.py(), keys, what, slots, times)
    }

    /// Store a mapping's values; the outcome is a dict of failures.
    #[pyo3(name = "_start_set_many")]
    fn start_set_many<'py>(
        slf: &Bound<'py, Self>,
        values: &Bound<'py, PyAny>,
        ttl: Option<Ttl>,
        deadline: Option<Limit>,
    ) -> Started<'py> {
        let (py, this) = (slf.py(), slf.get());
        let mut times = Limit::times(deadline, this.timeout, Spent::default())?;
        let exptime = exptime(ttl)?;
        let pairs = pairs_of(values)?;
        let (maker, codec) = (this.core.keys(), this.codec.get());
        let made = MadeItems::new(py, maker, codec, &pairs, &mut times.spent)?;
        let stores = BulkStore::new(&this.core, StoreMode::Set, &made.all(), exptime);
        let slots = slots(&stores);
        let what = BulkKind::Store(stores, made, Stored::default());
        let keys = pairs.into_iter().map(|(key, _)| key.unbind()).collect();
        this.start_bulk(slf.py(), keys, what, slots, times)
    }

    /// Remove keys; the outcome is a dict of failures.
    #[pyo3(name = "_start_delete_many")]
    fn start_delete_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        deadline: Option<Limit>,
    ) -> Started<'py> {
        let this = slf.get();
        let times = Limit::times(deadline, this.timeout, Spent::default())?;
        let objects = all_of(keys)?;
        let wire = WireKeys::new(slf.py(), this.core.keys(), objects.iter())?;
        let removals = BulkDelete::new(&this.core, &wire.all());
        let slots = slots(&removals);
        let what = BulkKind::Remove(removals, Vec::new());
        let keys = objects.into_iter().map(Bound::unbind).collect();
        this.start_bulk(slf.py(), keys, what, slots, times)
    }

    /// Send "version", "stats" with an argument, "flush" with a delay, or "clear" to every server; the outcome is a dict by name.
    #[pyo3(name = "_start_of_all")]
    fn start_of_all<'py>(
        slf: &Bound<'py, Self>,
        what: &str,
        argument: String,
        delay: u32,
        deadline: Option<Limit>,
    ) -> Started<'py> {
        let (py, this) = (slf.py(), slf.get());
        let times = Limit::times(deadline, this.timeout, Spent::default())?;
        let admin = match what {
            "version" => AdminRequest::Version,
            "stats" => AdminRequest::Stats(argument),
            "clear" => {
                let mut scratch = Vec::new();
                let namespace = this.core.keys().wire_namespace(&mut scratch);
                let namespace = namespace.map_err(|error| error::of_client(py, &error))?;
                AdminRequest::Clear(OwnedKey::from(namespace))
            }
            _ => AdminRequest::Flush(delay),
        };
        let checked = admin.request().check();
        checked.map_err(|error| error::of_client(py, &error))?;
        let (slots, names): (Vec<_>, Vec<_>) = this.names().into_iter().unzip();
        let what = BulkKind::Servers(admin, names, PyDict::new(py).unbind());
        this.start_bulk(slf.py(), Vec::new(), what, slots.into_iter(), times)
    }
}
