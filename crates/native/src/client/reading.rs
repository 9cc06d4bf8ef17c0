//! Reads of one key. A value is decoded from the receive buffer, or received into its own `bytes`.

use std::time::{Duration, Instant};

use glasscache_client::Error;
use glasscache_client::WireKey;
use glasscache_client::call::{Call, State};
use glasscache_client::costs::{Class, Operation, Part, Spent};
use glasscache_client::pipeline::{Answer, Found};
use glasscache_client::request::Request;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::{error, turns, value as conversion};

use super::{Client, TIMED_BYTES_MIN, Ttl, exptime};

/// What `inspect` returns.
type Inspected<'py> = (
    Bound<'py, PyAny>,
    Option<u64>,
    Option<i64>,
    Option<u64>,
    Option<bool>,
    bool,
    usize,
);

#[pymethods]
impl Client {
    /// Return the value under key, or default on a miss.
    ///
    /// Args:
    ///     key: 1 to 250 bytes in UTF-8, without spaces or control characters.
    ///     default: what a miss returns.
    ///     deadline: seconds for the whole call, connecting and a retry included; None takes the
    ///         client's timeout.
    ///
    /// Raises:
    ///     ServerUnavailable: the key's server is down. An error is never returned as a miss unless
    ///         on_error="miss" was asked for.
    ///     DeadlineExceeded: the time was over.
    ///     UnreadableValue: the value was not written in this client's dialect.
    ///
    /// >>> client.get("nobody", default="?")
    /// '?'
    #[pyo3(signature = (key, default=None, *, deadline=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let times = self.times(deadline)?;
        let mut scratch = Vec::new();
        let key = self.wire(py, key, &mut scratch)?;
        let read = self.read(py, key, false, times);
        let value = self.missed(py, read, None)?.map(|(value, _)| value);
        Ok(value
            .or(default)
            .unwrap_or_else(|| py.None().into_bound(py)))
    }

    /// Return (value, CAS unique) under key, or None on a miss; `cas` takes the unique.
    ///
    /// >>> client.set("n", 1)
    /// True
    /// >>> value, unique = client.gets("n")
    /// >>> client.cas("n", value + 1, unique)
    /// True
    #[pyo3(signature = (key, *, deadline=None))]
    fn gets<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, u64)>> {
        let times = self.times(deadline)?;
        let mut scratch = Vec::new();
        let key = self.wire(py, key, &mut scratch)?;
        let read = self.read(py, key, true, times);
        self.missed(py, read, None)
    }

    /// Return the value under key and give it a new ttl in seconds.
    #[pyo3(signature = (key, ttl, default=None, *, deadline=None, **words), text_signature = "($self, key, ttl, default=None, *, deadline=None)")]
    fn gat<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        ttl: Ttl,
        default: Option<Bound<'py, PyAny>>,
        deadline: Option<f64>,
        words: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        error::refuse_words("gat", words)?;
        let times = self.times(deadline)?;
        let exptime = exptime(Some(ttl))?;
        let mut scratch = Vec::new();
        let key = self.wire(py, key, &mut scratch)?;
        let read = self.detached(py, times, Spent::default(), |core, budget| {
            core.get_and_touch(key, exptime, budget)
        });
        let read = read.and_then(|value| {
            let value = value.map(|v| conversion::from_bytes(py, self.codec(), v.flags, &v.bytes));
            Ok(value.transpose()?.map(|(value, _)| value))
        });
        let value = self.missed(py, read, None)?;
        Ok(value
            .or(default)
            .unwrap_or_else(|| py.None().into_bound(py)))
    }

    /// Return (value, CAS unique, seconds left or -1, seconds since access, fetched before, stale).
    #[pyo3(signature = (key, *, deadline=None))]
    #[pyo3(name = "_inspect")]
    fn inspect<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Option<Inspected<'py>>> {
        let times = self.times(deadline)?;
        let mut scratch = Vec::new();
        let key = self.wire(py, key, &mut scratch)?;
        let read = self.detached(py, times, Spent::default(), |core, budget| {
            core.inspect(key, budget)
        });
        let read = read.and_then(|found| {
            let Some((value, meta)) = found else {
                return Ok(None);
            };
            let (object, _) = conversion::from_bytes(py, self.codec(), value.flags, &value.bytes)?;
            let told = (meta.cas, meta.ttl_s, meta.last_access_s, meta.was_hit);
            Ok(Some((
                object,
                told.0,
                told.1,
                told.2,
                told.3,
                meta.stale,
                value.bytes.len(),
            )))
        });
        self.missed(py, read, None)
    }
}

impl Client {
    /// Reads one value: it is decoded from the receive buffer, or received into its own `bytes`.
    pub(super) fn read<'py>(
        &self,
        py: Python<'py>,
        key: WireKey<'_>,
        cas: bool,
        times: (Instant, Instant),
    ) -> PyResult<Option<(Bound<'py, PyAny>, u64)>> {
        let requests = [Request::Get { key, cas }];
        let server = self.core.server_of(key.bytes);
        let server = server.map_err(|error| error::of_client(py, &error))?;
        let mut call = Call::new(server, &requests, times.0, times.1);
        call.hand_out_bodies();
        let mut result = None;
        let mut spent = Spent::default();
        let mut value_bytes = 0;
        loop {
            match turns::detached(py, || call.run())
                .map_err(|error| error::of_client(py, &error))?
            {
                State::Reply(Answer::Refused(refusal)) => {
                    let server = call.server().name.clone();
                    call.next();
                    return Err(error::of_client(py, &Error::Refused { server, refusal }));
                }
                State::Reply(_) => {
                    let found = call.pipeline().and_then(|p| p.found().first().copied());
                    value_bytes = found.map_or(value_bytes, |found| found.value_bytes);
                    let is_timed =
                        found.is_some_and(|found| self.is_timed(found.flags, value_bytes));
                    if self.core.options().costs && is_timed {
                        call.note_arrival();
                    }
                    if let (Some(found), Some(pipeline)) = (found, call.pipeline()) {
                        let read = conversion::from_bytes(
                            py,
                            self.codec(),
                            found.flags,
                            pipeline.body(&found),
                        );
                        match read {
                            Ok((value, costs)) => {
                                spent.add_time(Part::Decompress, costs.compress);
                                result = Some((value, found.cas));
                            }
                            Err(error) => {
                                call.next(); // the reply is whole: the connection stays good
                                return Err(error);
                            }
                        }
                    }
                    call.next();
                    break;
                }
                State::Body(found) => {
                    value_bytes = found.value_bytes;
                    let value = self.receive_body(py, &mut call, &found, &mut spent)?;
                    result = Some((value, found.cas));
                }
                State::Finished => break,
                State::Interrupted => py.check_signals()?,
                State::Waiting => {}
            }
        }
        if self.core.options().costs {
            let unpacking = Duration::from_nanos(spent.of(Part::Decompress));
            spent.add_time(
                Part::Deserialise,
                call.reading_time().saturating_sub(unpacking),
            );
            let class = Class::Single(Operation::Read, 0);
            self.core.count(class, value_bytes, &call, spent);
        }
        Ok(result)
    }

    /// Receives a large value; plain bytes go straight into the object that is returned.
    fn receive_body<'py>(
        &self,
        py: Python<'py>,
        call: &mut Call<'_>,
        found: &Found,
        spent: &mut Spent,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut fill = |target: &mut [u8]| -> PyResult<()> {
            while !turns::detached(py, || call.receive_body(target))
                .map_err(|error| error::of_client(py, &error))?
            {
                py.check_signals()?;
            }
            Ok(())
        };
        if conversion::arrives_as_bytes(self.codec(), found.flags) {
            return Ok(PyBytes::new_with(py, found.value_bytes, fill)?.into_any());
        }
        let mut body = vec![0; found.value_bytes];
        fill(&mut body)?;
        call.note_arrival();
        let (value, costs) = conversion::from_bytes(py, self.codec(), found.flags, &body)?;
        spent.add_time(Part::Decompress, costs.compress);
        Ok(value)
    }

    /// Whether making a value takes long enough to be timed.
    ///
    /// Plain bytes have only to be moved, as those that are received in place; so has what is short and plain.
    fn is_timed(&self, flags: u32, value_bytes: usize) -> bool {
        let codec = self.codec();
        codec.plain_flags != Some(flags)
            && (value_bytes >= TIMED_BYTES_MIN || !codec.rust.is_quick(flags))
    }
}
