//! What a whole reply means for its op: the Python value of its future, or the next request of its call.

use glasscache_client::Error;
use glasscache_client::engine::interpret::refused;
use glasscache_client::engine::operation::{Operation, stored};
use glasscache_client::engine::{Done, Steps, TooLarge};
use glasscache_client::pipeline::Reply;
use glasscache_client::reservation::Reservation;
use pyo3::prelude::*;

use super::connection::Connection;
use super::pending_call::{Kind, Op, Resolution};
use crate::client::reserving::held;
use crate::error;
use crate::reply::Form;

impl Kind {
    /// Takes what came of the step of a call of several requests.
    fn take<'py>(
        &mut self,
        py: Python<'py>,
        done: Result<Done, Error>,
    ) -> PyResult<Resolution<'py>> {
        match self {
            Self::TooLarge(steps, _) => steps.take(done),
            Self::Counter(steps) => steps.take(done),
            _ => {}
        }
        if self.step().is_some() {
            return Ok(Resolution::Step);
        }
        let ended = self.end();
        let number = ended.map_err(|error| error::of_client(py, &error))?;
        Ok(Resolution::Value(number.into_pyobject(py)?))
    }

    /// The error of a call whose request ended by `error`: of a call of several requests it may be another.
    pub(super) fn failed(&mut self, error: Error) -> Error {
        match self {
            Self::TooLarge(steps, _) => steps.take(Err(error)),
            Self::Counter(steps) => steps.take(Err(error)),
            _ => return error,
        }
        self.end().err().unwrap_or(Error::Closed)
    }

    /// Ends a call of several requests; what is left has the same miss.
    fn end(&mut self) -> Result<Option<u64>, Error> {
        let rest = match self {
            Self::TooLarge(_, written) => Self::Written(*written),
            _ => Self::Single(Form::Number, None),
        };
        match std::mem::replace(self, rest) {
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
        op: &mut Op,
        reply: Reply,
    ) -> PyResult<Resolution<'py>> {
        let server = self.server.name.as_str();
        if let Some(step) = op.kind.step() {
            let done = step.read(reply, self.engine.pipeline(), server);
            return op.kind.take(py, done);
        }
        let none = || py.None().into_bound(py);
        match (&op.kind, self.engine.written_key()) {
            (&Kind::Written(written), Some(key)) => {
                match stored(reply, key.wire(), written.value_bytes, server) {
                    Err(error @ Error::TooLarge { .. }) => {
                        let steps = Box::new(TooLarge::new(key.wire(), error));
                        op.kind = Kind::TooLarge(steps, written);
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
                let value = form.to_python(py, self.codec.get(), reply, &mut op.times.spent);
                let value = value.map_err(|failed| failed.raised(py))?;
                let default = || default.as_ref().map_or_else(none, |it| it.bind(py).clone());
                Ok(Resolution::Value(value.unwrap_or_else(default)))
            }
            _ => {
                let reply = refused(reply, server);
                let reply = reply.map_err(|error| error::of_client(py, &error))?;
                Ok(Resolution::Value(
                    match Reservation::in_reply(&reply, self.engine.pipeline()) {
                        Some(found) => held(py, found).into_pyobject(py)?.into_any(),
                        None => none(),
                    },
                ))
            }
        }
    }
}
