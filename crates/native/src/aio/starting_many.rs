//! The words of the asyncio client about many keys, or about a server itself: one request to one server.

use glasscache_client::Error;
use glasscache_client::StoreWord;
use glasscache_client::WireKey;
use glasscache_client::engine::uncertain::OwnedKey;
use glasscache_client::request::{Dialect, Item, Request};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use glasscache_client::costs::Spent;

use super::client::AsyncClient;
use super::op::Kind;
use super::op::Started;
use super::running_loop;
use crate::client::{Ttl, exptime, key_bytes};
use crate::{error, value as conversion};

#[pymethods]
impl AsyncClient {
    /// Read keys of one server; the future's result is a dict of those that were found.
    #[pyo3(name = "_start_get_many")]
    fn start_get_many<'py>(
        &self,
        py: Python<'py>,
        place: usize,
        keys: Vec<Bound<'py, PyAny>>,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let mut scratch = Vec::new();
        let mut bytes: Vec<&[u8]> = Vec::with_capacity(keys.len());
        for key in &keys {
            if self.wire(key, &mut scratch)?.is_base64 {
                let why = "a bulk read takes plain keys: read it by get";
                let key = String::from_utf8_lossy(key_bytes(key)?).into_owned();
                return Err(error::of_client(py, &Error::BadKey { key, why }));
            }
            bytes.push(key_bytes(key)?);
        }
        let prefix = self.core.keys().namespace;
        let request = Request::GetMany {
            cas: false,
            prefix,
            keys: &bytes,
        };
        let kind = Kind::Many(keys.iter().map(|key| key.clone().unbind()).collect());
        self.submit_to(
            py,
            place,
            Some(&request),
            kind,
            (deadline, Spent::default()),
        )
    }

    /// Store pairs at one server; the result is a dict of failures, or None: store them singly.
    #[pyo3(name = "_start_set_many")]
    fn start_set_many<'py>(
        &self,
        py: Python<'py>,
        place: usize,
        pairs: Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
        ttl: Option<Ttl>,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let exptime = exptime(ttl)?;
        let mut made: Vec<(OwnedKey, u32, Vec<u8>)> = Vec::with_capacity(pairs.len());
        let mut spent = Spent::default();
        for (key, value) in &pairs {
            let mut scratch = Vec::new();
            let wire = OwnedKey::from(self.wire(key, &mut scratch)?);
            conversion::with_bytes(self.codec.get(), value, |flags, body, costs| {
                conversion::add_costs(&mut spent, costs);
                made.push((wire, flags, body.to_vec()));
                Ok(())
            })?;
        }
        let items: Vec<Item<'_>> = made
            .iter()
            .map(|(key, flags, body)| Item {
                key: key.wire(),
                flags: *flags,
                body,
            })
            .collect();
        // A connection without a known dialect is one on which classic text is being tried.
        let is_classic = match self.server(py, place)?.dialect() {
            Some(dialect) => dialect == Dialect::Classic,
            None => self.connection(py, place)?.is_some(),
        };
        if is_classic {
            let future = running_loop(py)?.call_method0(intern!(py, "create_future"))?;
            future.call_method1(intern!(py, "set_result"), (py.None(),))?;
            return Ok(Some(future));
        }
        let request = Request::StoreMany {
            word: StoreWord::Set,
            items: &items,
            exptime,
            quiet: true,
        };
        let kind = Kind::ManyStored(pairs.iter().map(|(key, _)| key.clone().unbind()).collect());
        self.submit_to(py, place, Some(&request), kind, (deadline, spent))
    }

    /// Remove keys at one server; the result is a dict of failures.
    #[pyo3(name = "_start_delete_many")]
    fn start_delete_many<'py>(
        &self,
        py: Python<'py>,
        place: usize,
        keys: Vec<Bound<'py, PyAny>>,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let mut made: Vec<OwnedKey> = Vec::with_capacity(keys.len());
        for key in &keys {
            let mut scratch = Vec::new();
            made.push(self.wire(key, &mut scratch)?.into());
        }
        let wire: Vec<WireKey<'_>> = made.iter().map(OwnedKey::wire).collect();
        let kind = Kind::ManyDeleted {
            keys: keys.iter().map(|key| key.clone().unbind()).collect(),
            failures: PyDict::new(py).unbind(),
            left: keys.len(),
        };
        self.submit_to(
            py,
            place,
            Some(&Request::DeleteMany { keys: &wire }),
            kind,
            (deadline, Spent::default()),
        )
    }

    /// Ask one server: "version", "stats" with an argument, or "flush" with a delay.
    #[pyo3(name = "_start_ask")]
    fn start_ask<'py>(
        &self,
        py: Python<'py>,
        place: usize,
        what: &str,
        argument: &str,
        delay: u32,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let (request, kind) = match what {
            "version" => (Request::Version, Kind::Version),
            "stats" => (
                Request::Stats {
                    argument: argument.as_bytes(),
                },
                Kind::Rows,
            ),
            _ => (Request::Flush { delay_s: delay }, Kind::Done),
        };
        request
            .check()
            .map_err(|error| error::of_client(py, &error))?;
        self.submit_to(
            py,
            place,
            Some(&request),
            kind,
            (deadline, Spent::default()),
        )
    }
}
