//! What a whole reply means for its op: the Python value of its future, or the next request of its call.

use glasscache_client::Error;
use glasscache_client::costs::{Part, Spent};
use glasscache_client::engine::interpret::{number, outcome, refused};
use glasscache_client::engine::operation::{Operation, stored};
use glasscache_client::engine::{Done, Steps, TooLarge};
use glasscache_client::outcome::{Outcome, of_code};
use glasscache_client::pipeline::Answer;
use glasscache_client::request::Dialect;
use glasscache_client::reservation::Reservation;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::connection::Connection;
use super::op::{Kind, Op, Shown};
use crate::client::reserving::held;
use crate::{error, tables, value as conversion};

/// A value, its CAS unique and its length.
type First<'py> = Option<(Bound<'py, PyAny>, u64, usize)>;

impl Kind {
    /// Takes what came of the step of a call of several requests.
    fn take<'py>(&mut self, py: Python<'py>, done: Result<Done, Error>) -> PyResult<Shown<'py>> {
        match self {
            Self::TooLarge(steps, _) => steps.take(done),
            Self::Counter(steps) => steps.take(done),
            _ => {}
        }
        if self.step().is_some() {
            return Ok(Shown::Step);
        }
        let ended = self.end();
        let number = ended.map_err(|error| error::of_client(py, &error))?;
        Ok(Shown::Value(number.into_pyobject(py)?))
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
            _ => Self::Number,
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
    pub(super) fn show<'py>(
        &self,
        py: Python<'py>,
        op: &mut Op,
        answer: Answer,
    ) -> PyResult<Shown<'py>> {
        let server = self.server.name.as_str();
        if let Some(step) = op.kind.step() {
            let done = step.read(answer, &self.pipeline, server);
            return op.kind.take(py, done);
        }
        if let (Kind::Written(written), Some(key)) = (&op.kind, op.sent.uncertain.first()) {
            let written = *written;
            let done = match stored(answer, key.wire(), written.value_bytes, server) {
                Err(error @ Error::TooLarge { .. }) => {
                    op.kind = Kind::TooLarge(Box::new(TooLarge::new(key.wire(), error)), written);
                    return Ok(Shown::Step);
                }
                done => done.map_err(|error| error::of_client(py, &error))?,
            };
            return Ok(Shown::Value(match done {
                Outcome::NotFound if written.is_cas => py.None().into_bound(py),
                done => truth(py, done == Outcome::Done)?,
            }));
        }
        if let Kind::ManyDeleted {
            keys,
            failures,
            left,
        } = &mut op.kind
        {
            let nth = keys.len().saturating_sub(*left);
            *left = left.saturating_sub(1);
            let failures = failures.bind(py);
            if let (Err(error), Some(key)) = (outcome(answer, server), keys.get(nth)) {
                failures.set_item(key, error::outcome_of(py, &error)?)?;
            }
            return Ok(match left {
                0 => Shown::Value(failures.clone().into_any()),
                _ => Shown::More,
            });
        }
        self.value(py, op, answer).map(Shown::Value)
    }

    /// The Python value of the reply to a call of one request.
    fn value<'py>(
        &self,
        py: Python<'py>,
        op: &mut Op,
        answer: Answer,
    ) -> PyResult<Bound<'py, PyAny>> {
        let told = |error: Error| error::of_client(py, &error);
        let server = self.server.name.as_str();
        let none = || py.None().into_bound(py);
        let spent = &mut op.times.spent;
        match &mut op.kind {
            Kind::Get { default } => {
                refused(answer, server).map_err(told)?;
                let default = || default.as_ref().map_or_else(none, |d| d.bind(py).clone());
                Ok(self
                    .first(py, spent)?
                    .map_or_else(default, |(value, ..)| value))
            }
            Kind::Gets => {
                refused(answer, server).map_err(told)?;
                match self.first(py, spent)? {
                    Some((value, cas, _)) => Ok((value, cas).into_pyobject(py)?.into_any()),
                    None => Ok(none()),
                }
            }
            Kind::Reservation => {
                let answer = refused(answer, server).map_err(told)?;
                match Reservation::in_reply(&answer, &self.pipeline) {
                    Some(found) => Ok(held(py, found).into_pyobject(py)?.into_any()),
                    None => Ok(none()),
                }
            }
            Kind::Inspect => match (
                refused(answer, server).map_err(told)?,
                self.first(py, spent)?,
            ) {
                (Answer::Meta(m), Some((value, _, bytes))) => {
                    let all = (
                        value,
                        m.cas,
                        m.ttl_s,
                        m.last_access_s,
                        m.was_hit,
                        m.stale,
                        bytes,
                    );
                    Ok(all.into_pyobject(py)?.into_any())
                }
                _ => Ok(none()),
            },
            Kind::Truth => truth(py, outcome(answer, server).map_err(told)? == Outcome::Done),
            Kind::Number => Ok(number(answer, &self.pipeline, server)
                .map_err(told)?
                .into_pyobject(py)?),
            Kind::Many(keys) => {
                refused(answer, server).map_err(told)?;
                self.found_of(py, keys, spent)
            }
            Kind::ManyStored(keys) => {
                let failures = PyDict::new(py);
                let Answer::Quiet(troubles, refusals) = answer else {
                    return Err(told(refused(answer, server).err().unwrap_or(Error::Closed)));
                };
                if !refusals.is_empty() {
                    return Ok(none()); // one of them was refused without its name: asked again singly
                }
                for (nth, code) in troubles {
                    let outcome = of_code(code).unwrap_or(Outcome::NotStored);
                    let error = Error::NotStored {
                        server: server.to_owned(),
                        outcome,
                    };
                    if let Some(key) = keys.get(nth) {
                        failures.set_item(key, error::outcome_of(py, &error)?)?;
                    }
                }
                Ok(failures.into_any())
            }
            Kind::Version => match refused(answer, server).map_err(told)? {
                Answer::Version(version) => Ok(version.into_pyobject(py)?.into_any()),
                _ => Ok(none()),
            },
            Kind::Rows => match refused(answer, server).map_err(told)? {
                Answer::Rows(rows) => Ok(tables::server_rows(py, &rows)?.into_any()),
                _ => Ok(none()),
            },
            Kind::Done => {
                refused(answer, server).map_err(told)?;
                truth(py, true)
            }
            Kind::Probe => {
                let speaks_meta = matches!(answer, Answer::Probe(true));
                let dialect = if speaks_meta {
                    Dialect::Meta
                } else {
                    Dialect::Classic
                };
                self.server.learn_dialect(dialect);
                Ok(none())
            }
            Kind::Nobody(pending) => {
                if let Answer::Quiet(troubles, refusals) = answer {
                    std::mem::take(&mut **pending).acknowledge(troubles.len() + refusals.len());
                }
                Ok(none())
            }
            // Replies to these are taken before.
            Kind::Written(_) | Kind::TooLarge(..) | Kind::Counter(_) | Kind::ManyDeleted { .. } => {
                Ok(none())
            }
        }
    }

    /// The first value of the reply.
    fn first<'py>(&self, py: Python<'py>, spent: &mut Spent) -> PyResult<First<'py>> {
        let Some(found) = self.pipeline.found().first() else {
            return Ok(None);
        };
        let body = self.pipeline.body(found);
        let (value, costs) = conversion::from_bytes(py, self.codec.get(), found.flags, body)?;
        spent.add_time(Part::Decompress, costs.compress);
        Ok(Some((value, found.cas, found.value_bytes)))
    }

    /// The values of a bulk read by key; if one cannot be read, its error has the others.
    fn found_of<'py>(
        &self,
        py: Python<'py>,
        keys: &[Py<PyAny>],
        spent: &mut Spent,
    ) -> PyResult<Bound<'py, PyAny>> {
        let values = PyDict::new(py);
        let mut unreadable: Option<(PyErr, Vec<Py<PyAny>>)> = None;
        for found in self.pipeline.found() {
            let Some(key) = keys.get(found.key_index) else {
                continue;
            };
            let body = self.pipeline.body(found);
            match conversion::from_bytes(py, self.codec.get(), found.flags, body) {
                Ok((value, costs)) => {
                    spent.add_time(Part::Decompress, costs.compress);
                    values.set_item(key, value)?;
                }
                Err(error) if error::is_own(py, &error) => {
                    let (_, keys) = unreadable.get_or_insert((error, Vec::new()));
                    keys.push(key.clone_ref(py));
                }
                Err(error) => return Err(error),
            }
        }
        let Some((error, keys)) = unreadable else {
            return Ok(values.into_any());
        };
        error.value(py).setattr("unanswered", keys)?;
        error.value(py).setattr("arrived", values)?;
        Err(error)
    }
}

fn truth(py: Python<'_>, truth: bool) -> PyResult<Bound<'_, PyAny>> {
    Ok(truth.into_pyobject(py)?.to_owned().into_any())
}
