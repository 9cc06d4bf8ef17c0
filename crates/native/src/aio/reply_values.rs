//! What a whole reply means for its op: the Python value of its future, or the next request of its call.

use glasscache_client::Error;
use glasscache_client::engine::interpret::refused;
use glasscache_client::engine::operation::{Operation, stored};
use glasscache_client::engine::{StepReply, Steps, TooLarge};
use glasscache_client::pipeline::Reply;
use glasscache_client::reservation::Reservation;
use pyo3::prelude::*;

use super::connection::Connection;
use super::pending_call::{Kind, Op, Resolution};
use crate::client::reserving::reservation_tuple;
use crate::error;
use crate::reply::Form;

impl Kind {
    /// Takes what came of the step of a call of several requests.
    fn take_step_result<'py>(
        &mut self,
        py: Python<'py>,
        done: Result<StepReply, Error>,
    ) -> PyResult<Resolution<'py>> {
        match self {
            Self::TooLarge(steps, _) => steps.take_result(done),
            Self::Counter(steps) => steps.take_result(done),
            _ => {}
        }
        if self.step().is_some() {
            return Ok(Resolution::Step);
        }
        let ended = self.finish_steps();
        let number = ended.map_err(|error| error::of_client(py, &error))?;
        Ok(Resolution::Value(number.into_pyobject(py)?))
    }

    /// The error of a call whose request ended by `error`: of a call of several requests it may be another.
    pub(super) fn failed(&mut self, error: Error) -> Error {
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
            Self::TooLarge(_, written) => Self::Written(*written),
            _ => Self::Single(Form::Number, None),
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
        pending_call: &mut Op,
        reply: Reply,
    ) -> PyResult<Resolution<'py>> {
        let server = self.server.name.as_str();
        if let Some(step) = pending_call.kind.step() {
            let done = step.read(reply, self.engine.pipeline(), server);
            return pending_call.kind.take_step_result(py, done);
        }
        let none = || py.None().into_bound(py);
        match (&pending_call.kind, self.engine.written_key()) {
            (&Kind::Written(written), Some(key)) => {
                match stored(reply, key.wire(), written.value_bytes, server) {
                    Err(error @ Error::TooLarge { .. }) => {
                        let steps = Box::new(TooLarge::new(key.wire(), error));
                        pending_call.kind = Kind::TooLarge(steps, written);
                        Ok(Resolution::Step)
                    }
                    Err(error) => Err(error::of_client(py, &error)),
                    Ok(done) => {
                        let value = written.form.of_outcome(py, done);
                        Ok(Resolution::Value(value.unwrap_or_else(none)))
                    }
                }
            }
            (Kind::Single(form, default), _) => {
                let reply = (reply, self.engine.pipeline(), server);
                let value =
                    form.to_python(py, self.codec.get(), reply, &mut pending_call.times.spent);
                let value = value.map_err(|failed| failed.raised(py))?;
                let default = || {
                    default
                        .as_ref()
                        .map_or_else(none, |default_value| default_value.bind(py).clone())
                };
                Ok(Resolution::Value(value.unwrap_or_else(default)))
            }
            _ => {
                let reply = refused(reply, server);
                let reply = reply.map_err(|error| error::of_client(py, &error))?;
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
