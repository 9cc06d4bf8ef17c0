//! What a whole reply means for its op: the Python value of its future, or the next request of its call.

use glasscache_client::Error;
use glasscache_client::engine::interpret::refusal_to_error;
use glasscache_client::engine::operation::{Operation, stored};
use glasscache_client::engine::{StepReply, Steps, TooLarge};
use glasscache_client::pipeline::Reply;
use glasscache_client::reservation::Reservation;
use pyo3::prelude::*;

use super::connection::Connection;
use super::pending_call::{PendingCall, PendingKind, Resolution};
use crate::client::reserving::reservation_tuple;
use crate::error;
use crate::reply::ReplyForm;

impl PendingKind {
    /// Takes what came of the step of a call of several requests.
    fn take_step_result<'py>(
        &mut self,
        py: Python<'py>,
        outcome: Result<StepReply, Error>,
    ) -> PyResult<Resolution<'py>> {
        match self {
            Self::TooLarge(steps, _) => steps.take_result(outcome),
            Self::Counter(steps) => steps.take_result(outcome),
            _ => {}
        }
        if self.step().is_some() {
            return Ok(Resolution::Step);
        }
        let final_result = self.finish_steps();
        let number = final_result.map_err(|error| error::from_client_error(py, &error))?;
        Ok(Resolution::Value(number.into_pyobject(py)?))
    }

    /// The error of a call whose request ended by `error`: of a call of several requests it may be another.
    pub(super) fn handle_failure(&mut self, error: Error) -> Error {
        match self {
            Self::TooLarge(steps, _) => steps.take_result(Err(error)),
            Self::Counter(steps) => steps.take_result(Err(error)),
            _ => return error,
        }
        self.finish_steps().err().unwrap_or(Error::Closed)
    }

    /// Ends a call of several requests; what is left has the same miss.
    fn finish_steps(&mut self) -> Result<Option<u64>, Error> {
        let final_kind = match self {
            Self::TooLarge(_, written) => Self::ValueWrite(*written),
            _ => Self::Single(ReplyForm::Number, None),
        };
        match std::mem::replace(self, final_kind) {
            Self::TooLarge(steps, _) => Err(steps.finish()),
            Self::Counter(steps) => steps.finish(),
            _ => Ok(None),
        }
    }
}

impl Connection {
    /// What a reply means for its op.
    pub(super) fn interpret<'py>(
        &self,
        py: Python<'py>,
        pending_call: &mut PendingCall,
        reply: Reply,
    ) -> PyResult<Resolution<'py>> {
        let server = self.server.name.as_str();
        if let Some(step) = pending_call.kind.step() {
            let outcome = step.read(reply, self.engine.pipeline(), server);
            return pending_call.kind.take_step_result(py, outcome);
        }
        let none = || py.None().into_bound(py);
        match (&pending_call.kind, self.engine.written_key()) {
            (&PendingKind::ValueWrite(written), Some(key)) => {
                match stored(reply, key.wire(), written.value_bytes, server) {
                    Err(error @ Error::TooLarge { .. }) => {
                        let steps = Box::new(TooLarge::new(key.wire(), error));
                        pending_call.kind = PendingKind::TooLarge(steps, written);
                        Ok(Resolution::Step)
                    }
                    Err(error) => Err(error::from_client_error(py, &error)),
                    Ok(outcome) => {
                        let value = written.form.outcome_to_python(py, outcome);
                        Ok(Resolution::Value(value.unwrap_or_else(none)))
                    }
                }
            }
            (PendingKind::Single(form, default), _) => {
                let reply = (reply, self.engine.pipeline(), server);
                let value =
                    form.to_python(py, self.codec.get(), reply, &mut pending_call.timing.spent);
                let value = value.map_err(|failure| failure.into_exception(py))?;
                let default = || {
                    default
                        .as_ref()
                        .map_or_else(none, |default_value| default_value.bind(py).clone())
                };
                Ok(Resolution::Value(value.unwrap_or_else(default)))
            }
            _ => {
                let reply = refusal_to_error(reply, server);
                let reply = reply.map_err(|error| error::from_client_error(py, &error))?;
                Ok(Resolution::Value(
                    match Reservation::in_reply(&reply, self.engine.pipeline()) {
                        Some(found) => reservation_tuple(py, found).into_pyobject(py)?.into_any(),
                        None => none(),
                    },
                ))
            }
        }
    }
}
