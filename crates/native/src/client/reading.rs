//! Reads of one key. A value is decoded from the receive buffer, or received into its own `bytes`.

use std::time::Duration;

use glasscache_client::WireKey;
use glasscache_client::call::{Call, CallEvent};
use glasscache_client::costs::{CallClass, CostPart, OperationKind, TimeSpent};
use glasscache_client::observe::RequestSummary;
use glasscache_client::pipeline::{FoundValue, Reply};
use glasscache_client::request::Request;
use glasscache_client::value::UnpackBudget;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::keys::check_parent;
use crate::recorded_read::RecordedRead;
use crate::recording::{Recorder, has_open_blocks};
use crate::reply::ReplyForm;
use crate::ttl::exptime;
use crate::{error, signals, split, value as conversion};

use super::foreign_keywords::{ForeignKeyword, SurplusArgument, method_refusing_foreign_keywords};
use super::get_recording::GetRecording;
use super::{CallTimes, Client};

/// How long a read may take, the TTL that the pieces of its value get, if any, and what is called with the bytes of a
/// value that is found, before its pieces are read.
struct ReadOptions<'a, 'py, F> {
    timing: (Option<f64>, CallTimes),
    ttl: Option<&'a Bound<'py, PyAny>>,
    on_found: F,
}

/// Records the bytes of a value where a Python function has begun the record of the call. A call that fails leaves that
/// record to the next one, as to that of a gutter.
fn record_value_bytes(value_bytes: usize) {
    // While no block records, no read was begun.
    if has_open_blocks()
        && value_bytes > 0
        && let Some(recorded_read) = RecordedRead::take_for_this_thread()
    {
        recorded_read.set_size(0, value_bytes);
    }
}

#[pymethods]
impl Client {
    /// Return the value under key, or default on a miss.
    ///
    /// Args:
    ///     key: 1 to 250 bytes in UTF-8, without spaces or control characters.
    ///     default: what a miss returns.
    ///     deadline: seconds for the whole call, connecting and a retry included; None takes the
    ///         client's timeout.
    ///     parent: for a recorder: the key of the item that this one is a child of, in place of what its
    ///         `parent_of` returns. The call and its reply do not depend on it.
    ///
    /// Raises:
    ///     ServerUnavailable: the key's server is down. An error is never returned as a miss unless
    ///         on_error="miss" is set.
    ///     DeadlineExceeded: the time was over.
    ///     UnreadableValue: the value was not written in this client's dialect.
    ///
    /// >>> client.get("nobody", default="?")
    /// '?'
    #[pyo3(signature = (key, default=None, *, deadline=None, parent=None))]
    fn get<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        deadline: Option<f64>,
        parent: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        parent.map_or(Ok(()), check_parent)?;
        let timing = (deadline, slf.get().call_times(deadline)?);
        let value = if has_open_blocks() {
            Self::get_recorded(slf, (key, parent), timing)
        } else {
            Self::get_value(slf, key, timing, |_| ())
        };
        Ok(value?.or(default).unwrap_or_else(|| slf.py().None().into_bound(slf.py())))
    }

    /// Record the gets of this client by `recorder`.
    ///
    /// `begin(request, keys, parent)` begins the record of a call where the application's `parent_of` names the parents.
    #[pyo3(name = "_record_gets")]
    fn record_gets(&self, recorder: Py<Recorder>, begin: Option<Py<PyAny>>) {
        // A client has one recorder.
        let _ = self.get_recording.set(GetRecording { recorder, begin_in_python: begin });
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
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Self::read(slf, key, deadline, |key| Request::Get { key, cas: true }, None)
    }
}

method_refusing_foreign_keywords! {
    positional(key, ttl, default=None) keyword_only(deadline=None);
    /// Return the value under key and give it a new ttl in seconds.
    #[pyo3(text_signature = "($self, key, ttl, default=None, *, deadline=None)")]
    fn gat<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        ttl: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) keywords(
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let exptime = exptime(Some(ttl.extract()?))?;
        let value = Self::read(
            slf,
            key,
            deadline,
            |key| Request::GetAndTouch { key, exptime },
            Some(ttl),
        )?;
        Ok(value.or(default).unwrap_or_else(|| slf.py().None().into_bound(slf.py())))
    }
}

#[pymethods]
impl Client {
    /// Return what is under key, without its pieces if it is a manifest, or None.
    #[pyo3(name = "_get_unjoined")]
    fn get_unjoined<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let call_times = self.call_times(None)?;
        let mut scratch = Vec::new();
        let wire_key = self.wire_key(key, &mut scratch)?;
        let request = Request::Get { key: wire_key, cas: false };
        self.request_value(key.py(), wire_key, request, call_times, &mut 0)
    }

    /// Return (value, CAS unique, seconds left or -1, seconds since access, fetched before, stale, bytes, compute info).
    ///
    /// The compute info is (Unix time, seconds that computing the value took), or None.
    #[pyo3(signature = (key, *, deadline=None))]
    #[pyo3(name = "_inspect")]
    fn inspect<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Self::read(slf, key, deadline, |key| Request::Inspect { key }, None)
    }
}

impl Client {
    /// As `get`; `None`: a miss, or an error that is counted as one. A value that is found is announced by its bytes.
    #[inline]
    fn get_value<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        timing: (Option<f64>, CallTimes),
        on_found: impl FnOnce(usize),
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(near_binding) = &slf.get().near_binding {
            return Self::get_near(slf, near_binding, key, timing, on_found);
        }
        let options = ReadOptions { timing, ttl: None, on_found };
        Self::read_whole(slf, key, |key| Request::Get { key, cas: false }, options)
    }

    /// As [`Self::get_value`], and records it in the current request, or in the call that a Python function has begun.
    #[inline(never)]
    fn get_recorded<'py>(
        slf: &Bound<'py, Self>,
        (key, parent): (&Bound<'py, PyAny>, Option<&Bound<'py, PyAny>>),
        timing: (Option<f64>, CallTimes),
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let recorded_get = match slf.get().get_recording.get() {
            Some(recording) => recording.begin_get(timing.1.start, key, parent)?,
            None => None,
        };
        let Some(recorded_get) = recorded_get else {
            return Self::get_value(slf, key, timing, record_value_bytes);
        };
        let mut value_bytes = 0;
        let value = Self::get_value(slf, key, timing, |found_bytes| value_bytes = found_bytes);
        recorded_get.end(value_bytes);
        value
    }

    /// Reads one value; `None`: a miss, or an error that is counted as one. The pieces of a value get this TTL, if there
    /// is one. Its bytes are recorded where a Python function has begun the record of the call.
    fn read<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        deadline: Option<f64>,
        make_request: impl for<'k> FnOnce(WireKey<'k>) -> Request<'k>,
        ttl: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let timing = (deadline, slf.get().call_times(deadline)?);
        let options = ReadOptions { timing, ttl, on_found: record_value_bytes };
        Self::read_whole(slf, key, make_request, options)
    }

    /// Reads one value, and its pieces if it has some.
    #[inline]
    fn read_whole<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        make_request: impl for<'k> FnOnce(WireKey<'k>) -> Request<'k>,
        options: ReadOptions<'_, 'py, impl FnOnce(usize)>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (this, py) = (slf.get(), slf.py());
        let ReadOptions { timing: (deadline, call_times), ttl, on_found } = options;
        let mut scratch = Vec::new();
        let wire_key = this.wire_key(key, &mut scratch)?;
        let (request, mut value_bytes) = (make_request(wire_key), 0);
        let read_result = this.request_value(py, wire_key, request, call_times, &mut value_bytes);
        let Some(value) = this.or_counted_miss(py, read_result, None)? else {
            return Ok(None);
        };
        on_found(value_bytes);
        let whole_value =
            split::replace_manifest(slf.as_any(), key, value, (deadline, call_times.deadline), ttl);
        this.or_counted_miss(py, whole_value, None)
    }

    /// Sends the request for one value and reads its reply: the value is decoded from the receive buffer, or received into its own `bytes`.
    fn request_value<'py>(
        &self,
        py: Python<'py>,
        wire_key: WireKey<'_>,
        request: Request<'_>,
        call_times: CallTimes,
        value_bytes: &mut usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (reply_form, requests) = (ReplyForm::for_request(&request), [request]);
        let server = self.core.server_of(wire_key.bytes);
        let server = server.map_err(|error| error::from_client_error(py, &error))?;
        let mut call = Call::new(server, &requests, call_times.start, call_times.deadline);
        if matches!(reply_form, ReplyForm::Value | ReplyForm::WithCas) {
            call.stream_bodies();
        }
        let mut result = None;
        let mut spent = TimeSpent::default();
        loop {
            match self
                .detach(py, || call.run())
                .map_err(|error| error::from_client_error(py, &error))?
            {
                CallEvent::Reply(reply) => {
                    let value = self.decode_reply(
                        py,
                        &mut call,
                        (reply_form, reply),
                        value_bytes,
                        &mut spent,
                    );
                    result = result.or(value?);
                    break;
                }
                CallEvent::Body(found) => {
                    *value_bytes = found.value_bytes;
                    let value = self.receive_body(py, &mut call, &found, &mut spent)?;
                    result = reply_form.value_to_python(value, &found, None)?;
                }
                CallEvent::Finished => break,
                CallEvent::Interrupted => signals::run_handlers(py)?,
                CallEvent::Waiting => {}
            }
        }
        if self.core.is_observed() {
            self.count_read(wire_key, &call, *value_bytes, result.is_some(), spent);
        }
        Ok(result)
    }

    /// Decodes the value of a complete reply; the connection stays usable even if the value cannot be decoded.
    #[inline]
    fn decode_reply<'py>(
        &self,
        py: Python<'py>,
        call: &mut Call<'_>,
        (reply_form, reply): (ReplyForm, Reply),
        value_bytes: &mut usize,
        spent: &mut TimeSpent,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = call.pipeline().and_then(|pipeline| pipeline.found_values().first().copied());
        *value_bytes = found.map_or(*value_bytes, |found| found.value_bytes);
        let is_timed = |found: FoundValue| self.codec().is_slow(found.flags, found.value_bytes);
        if self.core.is_observed() && found.is_some_and(is_timed) {
            call.mark_reply_received();
        }
        let value = call.pipeline().map(|pipeline| {
            let reply = (reply, pipeline, call.server().name.as_str());
            reply_form.to_python(py, self.codec(), reply, spent, &mut UnpackBudget::default())
        });
        call.release_reply();
        let value = value.unwrap_or(Ok(None));
        value.map_err(|failure| failure.into_exception(py))
    }

    /// Counts a finished read; `spent` does not yet include the time of decoding its value.
    fn count_read(
        &self,
        wire_key: WireKey<'_>,
        call: &Call<'_>,
        found_bytes: usize,
        has_value: bool,
        mut spent: TimeSpent,
    ) {
        let decode_time = call.times().decoding_time();
        if !decode_time.is_zero() {
            let decompress_time = Duration::from_nanos(spent.part_ns(CostPart::Decompress));
            spent.add_time(CostPart::Deserialise, decode_time.saturating_sub(decompress_time));
        }
        let summary = RequestSummary {
            key: Some(wire_key),
            class: CallClass::Single(OperationKind::Read, 0),
            found_bytes,
            has_value,
            spent,
        };
        self.core.observe_finished(summary, call);
    }

    /// Receives a large value; plain bytes are received directly into the object that is returned.
    fn receive_body<'py>(
        &self,
        py: Python<'py>,
        call: &mut Call<'_>,
        found: &FoundValue,
        spent: &mut TimeSpent,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut receive_into = |target: &mut [u8]| -> PyResult<()> {
            while !self
                .detach(py, || call.receive_body(target))
                .map_err(|error| error::from_client_error(py, &error))?
            {
                signals::run_handlers(py)?;
            }
            Ok(())
        };
        if conversion::arrives_as_bytes(self.codec(), found.flags) {
            return Ok(PyBytes::new_with(py, found.value_bytes, receive_into)?.into_any());
        }
        let mut body = vec![0; found.value_bytes];
        receive_into(&mut body)?;
        call.mark_reply_received();
        let (value, costs) = conversion::decode_value(py, self.codec(), found.flags, &body)?;
        spent.add_time(CostPart::Decompress, costs.compress);
        Ok(value)
    }
}
