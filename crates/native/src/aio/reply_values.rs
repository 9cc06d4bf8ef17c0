//! Interprets the replies of pending calls: each becomes the Python value of its future, or the call's next request
//! follows.

use std::time::Instant;

use glasscache_client::Error;
use glasscache_client::costs::CostPart;
use glasscache_client::engine::connection::Ticket;
use glasscache_client::engine::interpret::refusal_to_error;
use glasscache_client::engine::operation::{Operation, store_outcome};
use glasscache_client::engine::{RefusedValueSteps, StepOutcome, Steps};
use glasscache_client::pipeline::Reply;
use glasscache_client::reservation::Reservation;
use glasscache_client::value::UnpackBudget;
use glasscache_client::write_outcome::WriteOutcome;
use pyo3::prelude::*;

use super::connection::{Connection, PendingBulkRequest, PendingRequest};
use super::pending_call::{CallKind, PendingCall, Resolution};
use super::set_result;
use crate::client::reserving::reservation_tuple;
use crate::error;
use crate::reply::ReplyForm;

impl CallKind {
    /// Handles the result of a step in a call of several requests.
    fn handle_step_result<'py>(
        &mut self,
        py: Python<'py>,
        outcome: Result<StepOutcome, Error>,
    ) -> PyResult<Resolution<'py>> {
        match self {
            Self::TooLarge(steps, _) => steps.handle_result(outcome),
            Self::Counter(steps) => steps.handle_result(outcome),
            Self::Extending(steps) => steps.handle_result(outcome),
            _ => {}
        }
        if self.next_step().is_some() {
            return Ok(Resolution::Step);
        }
        let final_result = self.finish_steps();
        let final_value = final_result.map_err(|error| error::from_client_error(py, &error))?;
        Ok(Resolution::Value(match final_value {
            StepOutcome::WriteOutcome(outcome) => {
                (outcome == WriteOutcome::Done).into_pyobject(py)?.to_owned().into_any()
            }
            StepOutcome::Number(number) => number.into_pyobject(py)?,
            StepOutcome::Flags(_) | StepOutcome::ItemBytesMax(_) => py.None().into_bound(py),
        }))
    }

    /// The error of a call whose request ended by `error`: of a call of several requests it may be another.
    pub(super) fn handle_failure(&mut self, error: Error) -> Error {
        match self {
            Self::TooLarge(steps, _) => steps.handle_result(Err(error)),
            Self::Counter(steps) => steps.handle_result(Err(error)),
            Self::Extending(steps) => steps.handle_result(Err(error)),
            _ => return error,
        }
        self.finish_steps().err().unwrap_or(Error::Closed)
    }

    /// Ends a call of several requests; the kind that replaces its own has the same miss value.
    fn finish_steps(&mut self) -> Result<StepOutcome, Error> {
        let final_kind = match self {
            Self::TooLarge(_, value_write) => Self::ValueWrite(*value_write),
            Self::Extending(_) => Self::Single(ReplyForm::Bool, None),
            _ => Self::Single(ReplyForm::Number, None),
        };
        match std::mem::replace(self, final_kind) {
            Self::TooLarge(steps, _) => Err(steps.finish()),
            Self::Counter(steps) => steps.finish().map(StepOutcome::Number),
            Self::Extending(steps) => steps.finish().map(StepOutcome::WriteOutcome),
            _ => Ok(StepOutcome::Number(None)),
        }
    }
}

impl Connection {
    /// Resolves a call by its whole reply, which arrived at a moment.
    pub(super) fn resolve(
        &mut self,
        py: Python<'_>,
        ticket: Ticket,
        reply: Reply,
        arrived_at: Instant,
    ) -> PyResult<()> {
        let mut pending_call = match self.take_pending_request(ticket) {
            None => return Ok(()),
            Some(PendingRequest::Bulk(bulk_request)) => {
                return self.forward_bulk_reply(py, bulk_request, reply);
            }
            Some(PendingRequest::Call(pending_call)) => pending_call,
        };
        let found_values = self.engine.wire().pipeline().found_values();
        let found_bytes: usize = found_values.iter().map(|found| found.value_bytes).sum();
        if let Some(recorded_read) = pending_call.take_recorded_read() {
            recorded_read.set_size(0, found_bytes);
        }
        let client = self.client.get();
        let is_observed = client.core.is_observed();
        let flags = found_values.first().map(|found| found.flags);
        let is_timed = flags.is_some_and(|flags| client.codec().is_slow(flags, found_bytes));
        let decode_start = (is_observed && is_timed).then(Instant::now);
        let resolution = self.interpret(py, &mut pending_call, reply);
        if let Some(decode_start) = decode_start {
            let elapsed_ns = decode_start.elapsed().as_nanos() as u64;
            let decompress_ns = pending_call.timing.spent.part_ns(CostPart::Decompress);
            let decode_ns = elapsed_ns.saturating_sub(decompress_ns);
            pending_call.timing.spent.add(CostPart::Deserialise, decode_ns);
        }
        if is_observed {
            let found_values = self.engine.wire().pipeline().found_values();
            let summary =
                pending_call.request_summary(self.engine.replied_key(), found_values, arrived_at);
            client.core.observe(&summary);
        }
        match resolution {
            Ok(Resolution::Step) => self.continue_call(py, pending_call, arrived_at),
            Ok(Resolution::Value(value)) => set_result(py, &pending_call.future, value),
            Err(error) => self.end_with_error_or_miss(py, &pending_call, error),
        }
    }

    /// Forwards a reply to the call about many keys that waits for it.
    fn forward_bulk_reply(
        &mut self,
        py: Python<'_>,
        bulk_request: PendingBulkRequest,
        reply: Reply,
    ) -> PyResult<()> {
        let is_last = self.engine.is_last_reply();
        let (pipeline, server) = (self.engine.wire().pipeline(), &self.server.name);
        let codec = self.client.get().codec();
        bulk_request.bulk_call.bind(py).borrow_mut().handle_reply(
            py,
            codec,
            bulk_request.request_index,
            (reply, pipeline, server),
            is_last,
        )?;
        if !is_last {
            self.pending_requests.push_front(PendingRequest::Bulk(bulk_request));
        }
        Ok(())
    }

    /// Interprets a reply.
    fn interpret<'py>(
        &self,
        py: Python<'py>,
        pending_call: &mut PendingCall,
        reply: Reply,
    ) -> PyResult<Resolution<'py>> {
        let server = self.server.name.as_str();
        if let Some(step) = pending_call.kind.next_step() {
            let outcome = step.read(reply, self.engine.wire().pipeline(), server);
            return pending_call.kind.handle_step_result(py, outcome);
        }
        let python_none = || py.None().into_bound(py);
        match (&pending_call.kind, self.engine.written_key()) {
            (&CallKind::ValueWrite(value_write), Some(key)) => {
                match store_outcome(reply, key.wire_key(), value_write.value_bytes, server) {
                    Err(error @ Error::TooLarge { .. }) => {
                        let steps = Box::new(RefusedValueSteps::new(key.wire_key(), error));
                        pending_call.kind = CallKind::TooLarge(steps, value_write);
                        Ok(Resolution::Step)
                    }
                    Err(error) => Err(error::from_client_error(py, &error)),
                    Ok(outcome) => {
                        let value = value_write.reply_form.outcome_to_python(py, outcome);
                        Ok(Resolution::Value(value.unwrap_or_else(python_none)))
                    }
                }
            }
            (CallKind::Single(reply_form, default), _) => {
                let value = reply_form.to_python(
                    py,
                    self.client.get().codec(),
                    (reply, self.engine.wire().pipeline(), server),
                    &mut pending_call.timing.spent,
                    &mut UnpackBudget::default(),
                );
                let value = value.map_err(|failure| failure.into_exception(py))?;
                let default_or_none = || {
                    default
                        .as_ref()
                        .map_or_else(python_none, |default_value| default_value.bind(py).clone())
                };
                Ok(Resolution::Value(value.unwrap_or_else(default_or_none)))
            }
            _ => {
                let accepted_reply = refusal_to_error(reply, server)
                    .map_err(|error| error::from_client_error(py, &error))?;
                let reservation =
                    Reservation::in_reply(&accepted_reply, self.engine.wire().pipeline());
                Ok(Resolution::Value(match reservation {
                    Some(reservation) => {
                        reservation_tuple(py, reservation).into_pyobject(py)?.into_any()
                    }
                    None => python_none(),
                }))
            }
        }
    }
}
