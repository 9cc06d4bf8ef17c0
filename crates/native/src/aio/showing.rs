//! Whole replies as the Python values that futures are resolved with.

use std::sync::atomic::Ordering;

use glasscache_client::Error;
use glasscache_client::costs::Part;
use glasscache_client::judging::{number, outcome, refused};
use glasscache_client::outcome::{Outcome, of_code};
use glasscache_client::pipeline::Answer;
use glasscache_client::request::Dialect;
use glasscache_client::reservation::Reservation;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::connection::Connection;
use super::op::{Kind, Op};
use crate::client::reserving::held;
use crate::{error, tables, value as conversion};

impl Connection {
    /// The Python value of a reply.
    pub(super) fn show<'py>(
        &self,
        py: Python<'py>,
        op: &mut Op,
        answer: Answer,
    ) -> PyResult<Bound<'py, PyAny>> {
        let told = |error: Error| error::of_client(py, &error);
        let server = self.server.name.as_str();
        let none = || py.None().into_bound(py);
        let truth = |truth: bool| -> PyResult<Bound<'py, PyAny>> {
            Ok(truth.into_pyobject(py)?.to_owned().into_any())
        };
        let spent = &mut op.times.spent;
        let mut first = || -> PyResult<Option<(Bound<'py, PyAny>, u64, usize)>> {
            let Some(found) = self.pipeline.found().first() else {
                return Ok(None);
            };
            let body = self.pipeline.body(found);
            let (value, costs) = conversion::from_bytes(py, self.codec.get(), found.flags, body)?;
            spent.add_time(Part::Decompress, costs.compress);
            Ok(Some((value, found.cas, found.value_bytes)))
        };
        match &mut op.kind {
            Kind::Get { default } => {
                refused(answer, server).map_err(told)?;
                let default = || default.as_ref().map_or_else(none, |d| d.bind(py).clone());
                Ok(first()?.map_or_else(default, |(value, ..)| value))
            }
            Kind::Gets => {
                refused(answer, server).map_err(told)?;
                match first()? {
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
            Kind::Inspect => match (refused(answer, server).map_err(told)?, first()?) {
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
            Kind::Stored | Kind::Removed(_) => {
                truth(outcome(answer, server).map_err(told)? == Outcome::Done)
            }
            Kind::Written {
                key,
                value_bytes,
                is_cas,
                ..
            } => {
                let done = outcome(answer, server).map_err(|error| match error {
                    Error::Refused { refusal, .. } if refusal.message.contains("too large") => {
                        let key = key.bind(py).to_string();
                        told(Error::TooLarge {
                            key,
                            bytes: *value_bytes,
                            limit: 0,
                        })
                    }
                    error => told(error),
                })?;
                match (done, *is_cas) {
                    (Outcome::Done, _) => truth(true),
                    (Outcome::NotFound, true) => Ok(none()),
                    _ => truth(false),
                }
            }
            Kind::Number => Ok(number(answer, &self.pipeline, server)
                .map_err(told)?
                .into_pyobject(py)?),
            Kind::Many(keys) => {
                refused(answer, server).map_err(told)?;
                let values = PyDict::new(py);
                let mut unreadable: Option<(PyErr, Vec<Py<PyAny>>)> = None;
                for found in self.pipeline.found() {
                    let Some(key) = keys.get(found.key_index) else {
                        continue;
                    };
                    let body = self.pipeline.body(found);
                    match conversion::from_bytes(py, self.codec.get(), found.flags, body) {
                        Ok((value, costs)) => {
                            op.times.spent.add_time(Part::Decompress, costs.compress);
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
            Kind::ManyStored { keys, .. } => {
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
            Kind::ManyDeleted {
                keys,
                failures,
                left,
                ..
            } => {
                let nth = keys.len().saturating_sub(*left);
                *left = left.saturating_sub(1);
                if let (Err(error), Some(key)) = (outcome(answer, server), keys.get(nth)) {
                    failures
                        .bind(py)
                        .set_item(key, error::outcome_of(py, &error)?)?;
                }
                Ok(failures.bind(py).clone().into_any())
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
                truth(true)
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
            Kind::Nobody(_) => {
                if let Answer::Quiet(troubles, refusals) = answer {
                    let lost = (troubles.len() + refusals.len()) as u64;
                    self.server
                        .noreply_failures
                        .fetch_add(lost, Ordering::Relaxed);
                }
                Ok(none())
            }
        }
    }
}
