//! `client.pipeline()`: calls of several kinds in one round trip to each server, each with its own outcome.

mod prepared_call;

use std::time::{Duration, Instant};

use glasscache_client::call::{Call, CallEvent};
use glasscache_client::costs::{CostPart, TimeSpent};
use glasscache_client::engine::RefusedValueSteps;
use glasscache_client::engine::operation::store_outcome;
use glasscache_client::pipeline::{Pipeline, Reply};
use glasscache_client::request::Request;
use glasscache_client::value::UnpackBudget;
use glasscache_client::{Budget, Error};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::client::{CallTimes, Client};
use crate::recorded_read::RecordedRead;
use crate::reply::{ReplyFailure, ReplyForm};
use crate::{error, signals, split};

use prepared_call::{PipelineCall, PreparedCall};

/// The value bytes that a pipeline has read, and how long decoding them took.
#[derive(Default)]
struct ReadTotals {
    value_bytes: usize,
    /// The bytes of each reply of one server.
    bytes_by_reply: Vec<usize>,
    decode_time: Duration,
    unpack_budget: UnpackBudget,
}

fn found_bytes(pipeline: &Pipeline) -> usize {
    let found = pipeline.found_values().iter();
    found.map(|found| found.value_bytes).sum()
}

/// How a call of a pipeline ended.
type CallOutcome<'py> = Result<Bound<'py, PyAny>, ReplyFailure>;

#[pymethods]
impl Client {
    /// Return the outcomes of the calls in order; the outcome of a failed one is its exception.
    #[pyo3(signature = (calls, *, deadline=None))]
    #[pyo3(name = "_run_pipeline")]
    fn run_pipeline<'py>(
        slf: &Bound<'py, Self>,
        calls: Vec<PipelineCall<'py>>,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (this, py) = (slf.get(), slf.py());
        let recorded_read = RecordedRead::take_for_this_thread();
        let call_times = this.call_times(deadline)?;
        let call_deadline = call_times.deadline;
        let prepared_calls: Vec<PreparedCall> = calls
            .iter()
            .map(|pipeline_call| PreparedCall::new(this, pipeline_call))
            .collect::<PyResult<_>>()?;
        let mut outcomes: Vec<Option<CallOutcome<'py>>> =
            (0..prepared_calls.len()).map(|_| None).collect();
        let mut bytes_by_call = vec![0; prepared_calls.len()];
        let mut read_totals = ReadTotals::default();
        for slot in 0..this.core.slots_count() {
            let call_indices: Vec<usize> = (0..prepared_calls.len())
                .filter(|&index| {
                    prepared_calls
                        .get(index)
                        .is_some_and(|prepared_call| prepared_call.slot == slot)
                })
                .collect();
            if call_indices.is_empty() {
                continue;
            }
            let requests: Vec<Request<'_>> = call_indices
                .iter()
                .filter_map(|&index| prepared_calls.get(index))
                .map(PreparedCall::request)
                .collect();
            let server_outcomes =
                this.request_server(py, slot, &requests, call_times, &mut read_totals)?;
            for (&index, value_bytes) in
                call_indices.iter().zip(read_totals.bytes_by_reply.drain(..))
            {
                if let Some(bytes_entry) = bytes_by_call.get_mut(index) {
                    *bytes_entry = value_bytes;
                }
            }
            for (&index, outcome) in call_indices.iter().zip(server_outcomes) {
                if let Some(outcome_entry) = outcomes.get_mut(index) {
                    *outcome_entry = Some(outcome);
                }
            }
        }
        if let Some(recorded_read) = recorded_read {
            // The record has the keys of the reads only.
            let calls_with_bytes = prepared_calls.iter().zip(bytes_by_call);
            let reads = calls_with_bytes.filter(|(prepared_call, _)| prepared_call.is_read());
            for (read_index, (_, value_bytes)) in reads.enumerate() {
                recorded_read.set_size(read_index, value_bytes);
            }
        }
        this.count_pipeline(&prepared_calls, &read_totals, call_times);
        let outcomes_and_calls = outcomes.into_iter().zip(&calls);
        let results = outcomes_and_calls.map(|(outcome, (method, key, _, ttl, _))| match outcome {
            Some(Ok(value)) => {
                let times = (deadline, call_deadline);
                match replace_manifest(slf, (method, key, ttl.as_ref()), value, times) {
                    Ok(whole_value) => Ok(whole_value.unwrap_or_else(|| py.None().into_bound(py))),
                    Err(error) if error::is_package_error(py, &error) => {
                        Ok(error.into_value(py).into_bound(py).into_any())
                    }
                    Err(error) => Err(error),
                }
            }
            Some(Err(ReplyFailure::Client(error))) => error::error_to_exception(py, &error),
            Some(Err(ReplyFailure::Unreadable(error))) => {
                Ok(error.into_value(py).into_bound(py).into_any())
            }
            None => error::error_to_exception(py, &Error::Closed),
        });
        PyList::new(py, results.collect::<PyResult<Vec<_>>>()?)
    }
}

/// The outcome of a call, with what it was for in place of the manifest that it found or touched.
fn replace_manifest<'py>(
    client: &Bound<'py, Client>,
    (method, key, ttl): (&str, &Bound<'py, PyAny>, Option<&Bound<'py, PyAny>>),
    outcome: Bound<'py, PyAny>,
    times: (Option<f64>, Instant),
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (client, py) = (client.as_any(), client.py());
    match (method, ttl) {
        ("touch", Some(ttl)) if split::is_manifest(&outcome) => {
            let was_touched = split::touch(client, key, ttl, times.0)?;
            Ok(Some(was_touched.into_pyobject(py)?.to_owned().into_any()))
        }
        ("gat", ttl) => split::replace_manifest(client, key, outcome, times, ttl),
        _ => split::replace_manifest(client, key, outcome, times, None),
    }
}

impl Client {
    /// The outcomes of a pipeline's calls to one server; an error is one that ends them all.
    fn request_server<'py>(
        &self,
        py: Python<'py>,
        slot: usize,
        requests: &[Request<'_>],
        call_times: CallTimes,
        read_totals: &mut ReadTotals,
    ) -> PyResult<Vec<CallOutcome<'py>>> {
        let (started, call_deadline) = (call_times.start, call_times.deadline);
        let mut outcomes = Vec::with_capacity(requests.len());
        let server = self.core.server(slot);
        let server = server.map_err(|error| error::from_client_error(py, &error))?;
        let mut server_call = Call::new(server, requests, started, call_deadline);
        let failure = loop {
            match self.detach(py, || server_call.run()) {
                Ok(CallEvent::Reply(reply)) => {
                    let request = requests.get(outcomes.len());
                    let (Some(request), Some(pipeline)) = (request, server_call.pipeline()) else {
                        break Error::Closed;
                    };
                    let server_name = &server_call.server().name;
                    let reply_bytes = found_bytes(pipeline);
                    read_totals.value_bytes += reply_bytes;
                    read_totals.bytes_by_reply.push(reply_bytes);
                    let decode_start = Instant::now();
                    let outcome = self.reply_to_outcome(
                        py,
                        request,
                        (reply, pipeline, server_name),
                        read_totals,
                    );
                    read_totals.decode_time += decode_start.elapsed();
                    match outcome {
                        Err(ReplyFailure::Unreadable(error))
                            if !error::is_package_error(py, &error) =>
                        {
                            return Err(error);
                        }
                        outcome => outcomes.push(outcome),
                    }
                    server_call.release_reply();
                }
                Ok(CallEvent::Finished) => break Error::Closed,
                Ok(CallEvent::Interrupted) => signals::run_handlers(py)?,
                Ok(CallEvent::Body(_) | CallEvent::Waiting) => {}
                Err(error) => break error,
            }
        };
        outcomes.resize_with(requests.len(), || Err(ReplyFailure::Client(failure.clone())));
        self.add_size_limit(py, requests, &mut outcomes, call_times)?;
        Ok(outcomes)
    }

    /// Counts a pipeline as a bulk call of this many keys.
    fn count_pipeline(
        &self,
        prepared_calls: &[PreparedCall],
        read_totals: &ReadTotals,
        call_times: CallTimes,
    ) {
        let (started, call_deadline) = (call_times.start, call_times.deadline);
        let mut spent = TimeSpent::default();
        for part in [CostPart::Serialise, CostPart::Compress] {
            spent.add(
                part,
                prepared_calls.iter().map(|prepared_call| prepared_call.spent.part_ns(part)).sum(),
            );
        }
        let budget = Budget { spent, ..Budget::between(started, call_deadline) };
        let written_bytes: usize =
            prepared_calls.iter().map(|prepared_call| prepared_call.body.len()).sum();
        let total_bytes = (written_bytes + read_totals.value_bytes) as u64;
        self.core.count_bulk(prepared_calls.len(), total_bytes, &budget, read_totals.decode_time);
    }

    /// Adds the server's limit to refusals for length, which do not name it.
    fn add_size_limit(
        &self,
        py: Python<'_>,
        requests: &[Request<'_>],
        outcomes: &mut [CallOutcome<'_>],
        call_times: CallTimes,
    ) -> PyResult<()> {
        let requests_and_outcomes = requests.iter().zip(outcomes.iter());
        let mut limit_lookups =
            requests_and_outcomes.filter_map(|(request, outcome)| match (request, outcome) {
                (
                    Request::Store { item, .. },
                    Err(ReplyFailure::Client(error @ Error::TooLarge { limit: 0, .. })),
                ) => Some(RefusedValueSteps::without_removal(item.key, error.clone())),
                _ => None,
            });
        let Some(steps) = limit_lookups.next() else {
            return Ok(());
        };
        let value_bytes_max =
            self.run_detached(py, call_times, TimeSpent::default(), |core, budget| {
                match core.run_steps(steps, budget) {
                    Error::TooLarge { limit, .. } => Ok(limit),
                    error => Err(error),
                }
            })?;
        for outcome in outcomes {
            if let Err(ReplyFailure::Client(Error::TooLarge { limit, .. })) = outcome
                && *limit == 0
            {
                *limit = value_bytes_max;
            }
        }
        Ok(())
    }

    /// The outcome of a call by its reply.
    fn reply_to_outcome<'py>(
        &self,
        py: Python<'py>,
        request: &Request<'_>,
        (reply, pipeline, server): (Reply, &Pipeline, &str),
        read_totals: &mut ReadTotals,
    ) -> CallOutcome<'py> {
        let reply_form = ReplyForm::for_request(request);
        let value = if let Request::Store { item, .. } = request {
            reply_form
                .outcome_to_python(py, store_outcome(reply, item.key, item.body.len(), server)?)
        } else {
            let reply = (reply, pipeline, server);
            let (mut spent, budget) = (TimeSpent::default(), &mut read_totals.unpack_budget);
            reply_form.to_python(py, self.codec(), reply, &mut spent, budget)?
        };
        Ok(value.unwrap_or_else(|| py.None().into_bound(py)))
    }
}
