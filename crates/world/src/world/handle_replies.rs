//! What replies mean, and whether they may.
//!
//! The same descriptions of operations read them that the real clients use.

use std::collections::HashMap;

use glasscache_client::engine::operation::{
    Calculate, Delete, Get, GetAndTouch, Operation, Touch, Value, stored,
};
use glasscache_client::engine::{Counter, Done, Steps, interpret};
use glasscache_client::outcome::{Outcome, of_code};
use glasscache_client::pipeline::{Pipeline, Reply};
use glasscache_client::{Error, StoreMode, WireKey};

use super::job::{Action, Entry, Job, Stored, Unique, adding, wire};
use crate::checker::{Checker, Known, Number, RequestId, Source};
use crate::network::Network;
use crate::plan::{Key, is_number};
/// What a reply came to.
#[derive(Debug)]
pub(super) enum Taken {
    /// More replies follow.
    More,
    /// The next exchange follows.
    Again,
    /// Another job follows.
    Next(Job),
    /// That was all: what it is counted as.
    Ended(&'static str),
    /// It failed.
    Failed(Error),
}

/// Where a reply is read: whose it is, and what it is checked against.
pub(super) struct Reading<'r> {
    pub(super) pipeline: &'r Pipeline,
    pub(super) server: &'r str,
    pub(super) request: RequestId,
    pub(super) network: &'r Network,
    pub(super) checker: &'r mut Checker,
    /// Uniques that the task has read.
    pub(super) uniques: &'r mut HashMap<Key, Unique>,
}

impl Job {
    /// Takes the next reply of the exchange.
    pub(super) fn take(&mut self, reply: Reply, mut reading: Reading<'_>) -> Taken {
        let taken = match self {
            Self::One(key, bytes, action) => one(*key, bytes, action, reply, &mut reading),
            Self::GetMany(keys, _) => get_many(keys, reply, &mut reading),
            Self::SetMany(entries, _, nth) => set_many(entries, nth, reply, &mut reading),
            Self::DeleteMany(keys, _, nth) => delete_many(keys, nth, reply, &mut reading),
            Self::Counter(key, bit, _, counter) => {
                counter_step(*key, *bit, counter, reply, &mut reading)
            }
            Self::TooLarge(_, steps) => {
                let done = steps
                    .step()
                    .map(|step| step.read(reply, reading.pipeline, reading.server));
                let error = done.clone().and_then(Result::err);
                steps.take(done.unwrap_or(Err(Error::Closed)));
                Ok(match (steps.step().is_some(), error) {
                    (true, _) => Taken::Again,
                    (false, None) => Taken::Ended("too large"),
                    (false, Some(error)) => Taken::Failed(error),
                })
            }
            Self::Flush => interpret::outcome(reply, reading.server).map(|_| Taken::Ended("flush")),
            Self::Version => {
                interpret::refused(reply, reading.server).map(|_| Taken::Ended("version"))
            }
        };
        taken.unwrap_or_else(Taken::Failed)
    }
}

impl Reading<'_> {
    fn note(&mut self, nth: usize, known: Known) {
        self.checker.history.note(self.request, nth, known);
    }

    fn found(&mut self, key: Key, flags: u32, bytes: &[u8]) -> Option<Source> {
        self.checker
            .found((self.request, key), (flags, bytes), self.network)
    }

    fn existed(&mut self, key: Key) {
        self.checker.existed(self.request, key, self.network);
    }
}

/// What is known of a write with this outcome.
fn known_of(outcome: Outcome) -> Known {
    match outcome {
        Outcome::Done => Known::Done(None),
        Outcome::NotStored | Outcome::Exists | Outcome::NotFound => Known::NotDone,
    }
}

fn one(
    key: Key,
    bytes: &[u8],
    action: &Action,
    reply: Reply,
    reading: &mut Reading<'_>,
) -> Result<Taken, Error> {
    let name = wire(key, bytes);
    let (pipeline, server) = (reading.pipeline, reading.server);
    Ok(Taken::Ended(match action {
        Action::Get(cas) => {
            let value = Get {
                key: name,
                cas: *cas,
            }
            .read(reply, pipeline, server)?;
            took_value(key, value, *cas, reading)
        }
        Action::GetAndTouch(exptime) => {
            let exptime = *exptime;
            let value = GetAndTouch { key: name, exptime }.read(reply, pipeline, server)?;
            took_value(key, value, false, reading)
        }
        Action::Store(store) => return store_ended(key, name, store, reply, reading),
        Action::Delete(noreply) => {
            let noreply = *noreply;
            if (Delete { key: name, noreply }).read(reply, pipeline, server)? {
                reading.existed(key);
            }
            "delete"
        }
        Action::Touch(exptime, noreply) => {
            let touch = Touch {
                key: name,
                exptime: *exptime,
                noreply: *noreply,
            };
            if touch.read(reply, pipeline, server)? {
                reading.existed(key);
            }
            "touch"
        }
        Action::Add(bit, noreply) => {
            let calculate = Calculate {
                key: name,
                by: adding(*bit),
                noreply: *noreply,
            };
            let number = calculate.read(reply, pipeline, server)?;
            took_number(key, *bit, number, reading);
            "add to a number"
        }
    }))
}

fn took_value(
    key: Key,
    value: Option<Value>,
    cas: bool,
    reading: &mut Reading<'_>,
) -> &'static str {
    let Some(value) = value else {
        return "miss";
    };
    let source = reading.found(key, value.flags, &value.bytes);
    if let Some(source) = source.filter(|_| cas && !is_number(key)) {
        reading
            .uniques
            .insert(key, (value.cas, source, reading.request));
    }
    "hit"
}

fn took_number(key: Key, bit: u8, number: Option<u64>, reading: &mut Reading<'_>) {
    let Some(number) = number.map(Number::of) else {
        return reading.note(0, Known::NotDone);
    };
    reading
        .checker
        .found_number((reading.request, key), number, Some(bit), reading.network);
    reading.note(0, Known::Done(Some(number)));
}

fn store_ended(
    key: Key,
    name: WireKey<'_>,
    store: &Stored,
    reply: Reply,
    reading: &mut Reading<'_>,
) -> Result<Taken, Error> {
    let read = store
        .operation(name)
        .read(reply, reading.pipeline, reading.server);
    let outcome = match read {
        Ok(outcome) => outcome,
        Err(error) => {
            reading.note(0, Known::NotDone);
            return match error {
                Error::TooLarge { .. } => Ok(Taken::Next(Job::too_large(key, error))),
                error => Err(error),
            };
        }
    };
    reading.note(0, known_of(outcome));
    match (outcome, store.compared) {
        (Outcome::Done, Some(compared)) => {
            let own = (reading.request, key);
            reading.checker.compared(own, compared, reading.network);
        }
        (Outcome::Exists, _) => reading.existed(key),
        (Outcome::NotStored, None) if store.word == StoreMode::Add => reading.existed(key),
        _ => {}
    }
    Ok(Taken::Ended(match outcome {
        Outcome::Done => "stored",
        _ => "not stored",
    }))
}

fn get_many(keys: &[Key], reply: Reply, reading: &mut Reading<'_>) -> Result<Taken, Error> {
    interpret::refused(reply, reading.server)?;
    let pipeline = reading.pipeline;
    for found in pipeline.found() {
        if let Some(&key) = keys.get(found.key_index) {
            reading.found(key, found.flags, pipeline.body(found));
        }
    }
    Ok(Taken::Ended("get many"))
}

fn set_many(
    entries: &[Entry],
    nth: &mut usize,
    reply: Reply,
    reading: &mut Reading<'_>,
) -> Result<Taken, Error> {
    if let Reply::Quiet(troubles, refusals) = reply {
        // A refusal does not say which value it was.
        let known = if refusals.is_empty() {
            Known::Done(None)
        } else {
            Known::Unknown
        };
        for index in 0..entries.len() {
            reading.note(index, known);
        }
        for (index, code) in troubles {
            reading.note(index, known_of(of_code(code).unwrap_or(Outcome::NotStored)));
        }
        return Ok(Taken::Ended("set many"));
    }
    let index = *nth;
    *nth += 1;
    let Some(entry) = entries.get(index) else {
        return Err(Error::Closed);
    };
    let item = entry.item();
    let known = match stored(reply, item.key, item.body.len(), reading.server) {
        Ok(outcome) => known_of(outcome),
        Err(_) => Known::NotDone,
    };
    reading.note(index, known);
    Ok(if *nth == entries.len() {
        Taken::Ended("set many")
    } else {
        Taken::More
    })
}

fn delete_many(
    keys: &[Key],
    nth: &mut usize,
    reply: Reply,
    reading: &mut Reading<'_>,
) -> Result<Taken, Error> {
    match (interpret::outcome(reply, reading.server), keys.get(*nth)) {
        (Ok(Outcome::Done), Some(key)) => reading.existed(*key),
        (Err(Error::Protocol { server, fault }), _) => {
            return Err(Error::Protocol { server, fault });
        }
        _ => {} // one that is refused does not end the others
    }
    *nth += 1;
    Ok(if *nth == keys.len() {
        Taken::Ended("delete many")
    } else {
        Taken::More
    })
}

fn counter_step(
    key: Key,
    bit: u8,
    counter: &mut Counter,
    reply: Reply,
    reading: &mut Reading<'_>,
) -> Result<Taken, Error> {
    let Some(step) = counter.step() else {
        return Err(Error::Closed);
    };
    let done = step.read(reply, reading.pipeline, reading.server);
    match &done {
        Ok(Done::Number(number)) => took_number(key, bit, *number, reading),
        Ok(Done::Outcome(outcome)) => reading.note(0, known_of(*outcome)),
        Ok(Done::ItemBytesMax(_)) => {}
        Err(_) => reading.note(0, Known::NotDone),
    }
    let failed = done.clone().err();
    counter.take(done);
    Ok(match (counter.step().is_some(), failed) {
        (true, _) => Taken::Again,
        (false, Some(error)) => Taken::Failed(error),
        (false, None) => Taken::Ended("number"),
    })
}
