//! The calls of the asyncio client about many keys, or to every server.

use glasscache_client::StoreWord;
use glasscache_client::bulk::{Partitioned, Reads, Removals, Stored, Stores};
use glasscache_client::costs::Spent;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::bulk_call::{AdminRequest, BulkCall, BulkKind};
use super::client::AsyncClient;
use super::connection::Connection;
use super::delayed_call::Limit;
use super::op::Times;
use crate::bulk::{FoundValues, MadeItems, WireKeys, all_of, pairs_of};
use crate::client::{Ttl, exptime, key_bytes};
use crate::error;

type Started<'py> = PyResult<Bound<'py, BulkCall>>;

fn places(parts: &impl Partitioned) -> std::vec::IntoIter<usize> {
    let places: Vec<usize> = parts.parts().iter().map(|part| part.place).collect();
    places.into_iter()
}

impl AsyncClient {
    /// Begins a call to the servers at these places, one request each.
    fn start_many<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Py<PyAny>>,
        what: BulkKind,
        places: impl Iterator<Item = usize>,
        times: Times,
    ) -> Started<'py> {
        let client = (self.core.clone(), self.misses.clone());
        let many = Bound::new(py, BulkCall::new(client, keys, what, places, times))?;
        self.send(&many)?;
        Ok(many)
    }
}

#[pymethods]
impl AsyncClient {
    /// Send what of a call is not sent yet, where there is a connection.
    #[pyo3(name = "_send")]
    fn send(&self, many: &Bound<'_, BulkCall>) -> PyResult<()> {
        let py = many.py();
        let unsent = many.borrow().unsent();
        for (index, place) in unsent {
            // Not borrowed here: a look at connections may end requests of a process that was forked.
            let connection = self.connection(py, place)?;
            let mut this = many.borrow_mut();
            let late = || self.connected_too_late(place);
            let times = this.attempt(index, connection.is_some(), late);
            let (Some(connection), Some(times)) = (connection, times) else {
                continue;
            };
            let sent = this.with_request(py, index, |request| {
                Connection::submit_of_many(&connection, request, (many, index), times)
            })?;
            if let Err(error) = sent {
                this.fail_ask(index, error);
            }
        }
        many.borrow_mut().look(py)
    }

    /// Note that a server which a call is to be sent to could not be connected to.
    #[pyo3(name = "_fail")]
    fn fail(&self, many: &Bound<'_, BulkCall>, place: usize, raised: &Bound<'_, PyAny>) {
        let error = self.not_connected(place, raised);
        let mut many = many.borrow_mut();
        for (index, _) in many.unsent().into_iter().filter(|(_, of)| *of == place) {
            many.fail_ask(index, error.clone());
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
        let reads = Reads::new(&this.core, &keys, with_cas);
        let reads = reads.map_err(|error| error::of_client(py, &error))?;
        let places = places(&reads);
        let what = BulkKind::Read(reads, FoundValues::new(py, with_cas));
        let keys = objects.into_iter().map(Bound::unbind).collect();
        this.start_many(slf.py(), keys, what, places, times)
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
        let stores = Stores::new(&this.core, StoreWord::Set, &made.all(), exptime);
        let places = places(&stores);
        let what = BulkKind::Store(stores, made, Stored::default());
        let keys = pairs.into_iter().map(|(key, _)| key.unbind()).collect();
        this.start_many(slf.py(), keys, what, places, times)
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
        let removals = Removals::new(&this.core, &wire.all());
        let places = places(&removals);
        let what = BulkKind::Remove(removals, Vec::new());
        let keys = objects.into_iter().map(Bound::unbind).collect();
        this.start_many(slf.py(), keys, what, places, times)
    }

    /// Ask every server: "version", "stats" with an argument, or "flush" with a delay; the outcome is by name.
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
        let question = match what {
            "version" => AdminRequest::Version,
            "stats" => AdminRequest::Stats(argument),
            _ => AdminRequest::Flush(delay),
        };
        let checked = question.request().check();
        checked.map_err(|error| error::of_client(py, &error))?;
        let (places, names): (Vec<_>, Vec<_>) = this.names().into_iter().unzip();
        let what = BulkKind::Servers(question, names, PyDict::new(py).unbind());
        this.start_many(slf.py(), Vec::new(), what, places.into_iter(), times)
    }
}
