//! `client.pipeline()`: calls of several kinds, one round trip a server, each with its own outcome.

use glasscache_client::Error;
use glasscache_client::StoreWord;
use glasscache_client::call::{Call, State};
use glasscache_client::judging::{number, outcome, refused};
use glasscache_client::operation::{Operation, Store};
use glasscache_client::outcome::Outcome;
use glasscache_client::pipeline::{Answer, Pipeline};
use glasscache_client::request::{Item, Request};
use glasscache_client::{Arithmetic, WireKey};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::client::{Client, amount, exptime, key_bytes};
use crate::{error, turns, value as conversion};

/// A call as Python wrote it down: what, key, value, ttl, delta.
type Written<'py> = (
    String,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Option<f64>,
    Bound<'py, PyAny>,
);

/// A call with its key and body made.
struct Prepared {
    what: What,
    key: Vec<u8>,
    is_base64: bool,
    flags: u32,
    body: Vec<u8>,
    exptime: i64,
    delta: u64,
    place: usize,
}

#[derive(Clone, Copy)]
enum What {
    Get,
    Store(StoreWord),
    Delete,
    Touch,
    Arithmetic { down: bool },
}

impl What {
    fn named(word: &str) -> Option<Self> {
        Some(match word {
            "get" => Self::Get,
            "set" => Self::Store(StoreWord::Set),
            "add" => Self::Store(StoreWord::Add),
            "replace" => Self::Store(StoreWord::Replace),
            "delete" => Self::Delete,
            "touch" => Self::Touch,
            "incr" => Self::Arithmetic { down: false },
            "decr" => Self::Arithmetic { down: true },
            _ => return None,
        })
    }
}

impl Prepared {
    fn new(client: &Client, call: &Written<'_>) -> PyResult<Self> {
        let (word, key, value, ttl, delta) = call;
        let py = key.py();
        let what = What::named(word)
            .ok_or_else(|| PyValueError::new_err(format!("no call {word:?} in a pipeline")))?;
        let mut scratch = Vec::new();
        let wire = client.keys().wire(key_bytes(key)?, &mut scratch);
        let wire = wire.map_err(|error| error::of_client(py, &error))?;
        let (flags, body) = match what {
            What::Store(_) => conversion::with_bytes(client.codec(), value, |flags, bytes, _| {
                Ok((flags, bytes.to_vec()))
            })?,
            _ => (0, Vec::new()),
        };
        let place = client.core.place_of(wire.bytes);
        Ok(Self {
            what,
            key: wire.bytes.to_vec(),
            is_base64: wire.is_base64,
            flags,
            body,
            exptime: exptime(*ttl)?,
            delta: amount(delta)?,
            place,
        })
    }

    fn request(&self) -> Request<'_> {
        let key = WireKey {
            bytes: &self.key,
            is_base64: self.is_base64,
        };
        let exptime = self.exptime;
        match self.what {
            What::Get => Request::Get { key, cas: false },
            What::Store(word) => {
                let item = Item {
                    key,
                    flags: self.flags,
                    body: &self.body,
                };
                Request::Store {
                    word,
                    item,
                    exptime,
                    noreply: false,
                }
            }
            What::Delete => Request::Delete {
                key,
                noreply: false,
            },
            What::Touch => Request::Touch {
                key,
                exptime,
                noreply: false,
            },
            What::Arithmetic { down } => {
                let by = Arithmetic {
                    delta: self.delta,
                    down,
                    initial: None,
                };
                Request::Arithmetic {
                    key,
                    by,
                    noreply: false,
                }
            }
        }
    }
}

#[pymethods]
impl Client {
    /// Return the outcomes of the calls in order; the outcome of a failed one is its exception.
    #[pyo3(signature = (calls, *, deadline=None))]
    fn run_pipeline<'py>(
        &self,
        py: Python<'py>,
        calls: Vec<Written<'py>>,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let times = self.times(deadline)?;
        let prepared: Vec<Prepared> = calls
            .iter()
            .map(|call| Prepared::new(self, call))
            .collect::<PyResult<_>>()?;
        let mut results: Vec<Option<Bound<'py, PyAny>>> = vec![None; prepared.len()];
        for place in 0..self.core.places_count() {
            let mine: Vec<usize> = (0..prepared.len())
                .filter(|&index| prepared.get(index).is_some_and(|call| call.place == place))
                .collect();
            if mine.is_empty() {
                continue;
            }
            let requests: Vec<Request<'_>> = mine
                .iter()
                .filter_map(|&index| prepared.get(index))
                .map(Prepared::request)
                .collect();
            let server = self
                .core
                .server(place)
                .map_err(|error| error::of_client(py, &error))?;
            let mut call = Call::new(server, &requests, times.0, times.1);
            let mut answered = mine.iter().zip(&requests);
            let failure = loop {
                match turns::detached(py, || call.run()) {
                    Ok(State::Reply(answer)) => {
                        let Some((&index, request)) = answered.next() else {
                            break Error::Closed;
                        };
                        let name = call.server().name.clone();
                        let shown = call
                            .pipeline()
                            .map(|p| self.show(py, request, answer, p, &name));
                        if let (Some(slot), Some(shown)) = (results.get_mut(index), shown) {
                            *slot = Some(shown.unwrap_or_else(|error| {
                                error.into_value(py).into_bound(py).into_any()
                            }));
                        }
                        call.next();
                    }
                    Ok(State::Finished) => break Error::Closed,
                    Ok(State::Interrupted) => py.check_signals()?,
                    Ok(State::Body(_) | State::Waiting) => {}
                    Err(error) => break error,
                }
            };
            for (&index, _) in answered {
                if let Some(slot) = results.get_mut(index) {
                    *slot = Some(
                        error::of_client(py, &failure)
                            .into_value(py)
                            .into_bound(py)
                            .into_any(),
                    );
                }
            }
        }
        PyList::new(py, results)
    }
}

impl Client {
    /// One outcome as Python has it.
    fn show<'py>(
        &self,
        py: Python<'py>,
        request: &Request<'_>,
        answer: Answer,
        pipeline: &Pipeline,
        server: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let told = |error: Error| error::of_client(py, &error);
        match request {
            Request::Get { .. } => {
                refused(answer, server).map_err(told)?;
                match pipeline.found().first() {
                    None => Ok(py.None().into_bound(py)),
                    Some(found) => {
                        let body = pipeline.body(found);
                        Ok(conversion::from_bytes(py, self.codec(), found.flags, body)?.0)
                    }
                }
            }
            Request::Arithmetic { .. } => Ok(number(answer, pipeline, server)
                .map_err(told)?
                .into_pyobject(py)?),
            Request::Store {
                word,
                item,
                exptime,
                noreply,
            } => {
                let store = Store {
                    word: *word,
                    item: *item,
                    exptime: *exptime,
                    noreply: *noreply,
                };
                let done = store.read(answer, pipeline, server).map_err(told)? == Outcome::Done;
                Ok(done.into_pyobject(py)?.to_owned().into_any())
            }
            _ => {
                let done = outcome(answer, server).map_err(told)? == Outcome::Done;
                Ok(done.into_pyobject(py)?.to_owned().into_any())
            }
        }
    }
}
