//! What replies mean, and whether they may.
//!
//! The same descriptions of operations read them that the real clients use.

use std::collections::HashMap;

use glasscache_client::engine::operation::{
    Calculate, Delete, Get, GetAndTouch, Operation, Touch, Value, stored,
};
use glasscache_client::engine::{Counter, StepReply, Steps, interpret};
use glasscache_client::outcome::{Outcome, of_code};
use glasscache_client::pipeline::{Pipeline, Reply};
use glasscache_client::{Error, StoreMode, WireKey};

use super::job::{Action, BulkEntry, Job, ReadUnique, StoreAction, adding, wire};
use crate::checker::{Checker, Known, Number, RequestId, Source};
use crate::network::Network;
use crate::plan::{Key, is_number};
/// What a reply came to.
#[derive(Debug)]
pub(super) enum ReplyEffect {
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
pub(super) struct ReplyContext<'r> {
    pub(super) pipeline: &'r Pipeline,
    pub(super) server: &'r str,
    pub(super) request: RequestId,
    pub(super) network: &'r Network,
    pub(super) checker: &'r mut Checker,
    /// Uniques that the task has read.
    pub(super) uniques: &'r mut HashMap<Key, ReadUnique>,
}

impl Job {
    /// Takes the next reply of the exchange.
    pub(super) fn take(&mut self, reply: Reply, mut reading: ReplyContext<'_>) -> ReplyEffect {
        let effect = match self {
            Self::One(key, bytes, action) => read_single(*key, bytes, action, reply, &mut reading),
            Self::GetMany(keys, _) => get_many(keys, reply, &mut reading),
            Self::SetMany(entries, _, nth) => set_many(entries, nth, reply, &mut reading),
            Self::DeleteMany(keys, _, nth) => delete_many(keys, nth, reply, &mut reading),
            Self::Counter(key, bit, _, counter) => {
                counter_step(*key, *bit, counter, reply, &mut reading)
            }
            Self::TooLarge(_, steps) => {
                let result = steps
                    .step()
                    .map(|step| step.read(reply, reading.pipeline, reading.server));
                let error = result.clone().and_then(Result::err);
                steps.take_result(result.unwrap_or(Err(Error::Closed)));
                Ok(match (steps.step().is_some(), error) {
                    (true, _) => ReplyEffect::Again,
                    (false, None) => ReplyEffect::Ended("too large"),
                    (false, Some(error)) => ReplyEffect::Failed(error),
                })
            }
            Self::Flush => {
                interpret::outcome(reply, reading.server).map(|_| ReplyEffect::Ended("flush"))
            }
            Self::Version => {
                interpret::refused(reply, reading.server).map(|_| ReplyEffect::Ended("version"))
            }
        };
        effect.unwrap_or_else(ReplyEffect::Failed)
    }
}

impl ReplyContext<'_> {
    fn set_known(&mut self, nth: usize, known: Known) {
        self.checker.history.set_known(self.request, nth, known);
    }

    fn found_values(&mut self, key: Key, flags: u32, bytes: &[u8]) -> Option<Source> {
        self.checker
            .found_values((self.request, key), (flags, bytes), self.network)
    }

    fn check_existed(&mut self, key: Key) {
        self.checker.check_existed(self.request, key, self.network);
    }
}

/// What is known of a write with this outcome.
fn known_of(outcome: Outcome) -> Known {
    match outcome {
        Outcome::Done => Known::Done(None),
        Outcome::NotStored | Outcome::Exists | Outcome::NotFound => Known::NotDone,
    }
}

fn read_single(
    key: Key,
    bytes: &[u8],
    action: &Action,
    reply: Reply,
    reading: &mut ReplyContext<'_>,
) -> Result<ReplyEffect, Error> {
    let name = wire(key, bytes);
    let (pipeline, server) = (reading.pipeline, reading.server);
    Ok(ReplyEffect::Ended(match action {
        Action::Get(cas) => {
            let value = Get {
                key: name,
                cas: *cas,
            }
            .read(reply, pipeline, server)?;
            read_value(key, value, *cas, reading)
        }
        Action::GetAndTouch(exptime) => {
            let exptime = *exptime;
            let value = GetAndTouch { key: name, exptime }.read(reply, pipeline, server)?;
            read_value(key, value, false, reading)
        }
        Action::Store(store) => return store_ended(key, name, store, reply, reading),
        Action::Delete(noreply) => {
            let noreply = *noreply;
            if (Delete { key: name, noreply }).read(reply, pipeline, server)? {
                reading.check_existed(key);
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
                reading.check_existed(key);
            }
            "touch"
        }
        Action::Add(bit, noreply) => {
            let calculate = Calculate {
                key: name,
                arithmetic: adding(*bit),
                noreply: *noreply,
            };
            let number = calculate.read(reply, pipeline, server)?;
            read_number(key, *bit, number, reading);
            "add to a number"
        }
    }))
}

fn read_value(
    key: Key,
    value: Option<Value>,
    cas: bool,
    reading: &mut ReplyContext<'_>,
) -> &'static str {
    let Some(value) = value else {
        return "miss";
    };
    let source = reading.found_values(key, value.flags, &value.bytes);
    if let Some(source) = source.filter(|_| cas && !is_number(key)) {
        reading
            .uniques
            .insert(key, (value.cas, source, reading.request));
    }
    "hit"
}

fn read_number(key: Key, bit: u8, number: Option<u64>, reading: &mut ReplyContext<'_>) {
    let Some(number) = number.map(Number::from_value) else {
        return reading.set_known(0, Known::NotDone);
    };
    reading
        .checker
        .check_number((reading.request, key), number, Some(bit), reading.network);
    reading.set_known(0, Known::Done(Some(number)));
}

fn store_ended(
    key: Key,
    name: WireKey<'_>,
    store: &StoreAction,
    reply: Reply,
    reading: &mut ReplyContext<'_>,
) -> Result<ReplyEffect, Error> {
    let read = store
        .operation(name)
        .read(reply, reading.pipeline, reading.server);
    let outcome = match read {
        Ok(outcome) => outcome,
        Err(error) => {
            reading.set_known(0, Known::NotDone);
            return match error {
                Error::TooLarge { .. } => Ok(ReplyEffect::Next(Job::too_large(key, error))),
                error => Err(error),
            };
        }
    };
    reading.set_known(0, known_of(outcome));
    match (outcome, store.compared) {
        (Outcome::Done, Some(compared)) => {
            let request_and_key = (reading.request, key);
            reading
                .checker
                .compared(request_and_key, compared, reading.network);
        }
        (Outcome::Exists, _) => reading.check_existed(key),
        (Outcome::NotStored, None) if store.mode == StoreMode::Add => reading.check_existed(key),
        _ => {}
    }
    Ok(ReplyEffect::Ended(match outcome {
        Outcome::Done => "stored",
        _ => "not stored",
    }))
}

fn get_many(
    keys: &[Key],
    reply: Reply,
    reading: &mut ReplyContext<'_>,
) -> Result<ReplyEffect, Error> {
    interpret::refused(reply, reading.server)?;
    let pipeline = reading.pipeline;
    for value in pipeline.found_values() {
        if let Some(&key) = keys.get(value.key_index) {
            reading.found_values(key, value.flags, pipeline.body(value));
        }
    }
    Ok(ReplyEffect::Ended("get many"))
}

fn set_many(
    entries: &[BulkEntry],
    nth: &mut usize,
    reply: Reply,
    reading: &mut ReplyContext<'_>,
) -> Result<ReplyEffect, Error> {
    if let Reply::Quiet(failed_writes, refusals) = reply {
        // A refusal does not say which value it was.
        let known = if refusals.is_empty() {
            Known::Done(None)
        } else {
            Known::Unknown
        };
        for index in 0..entries.len() {
            reading.set_known(index, known);
        }
        for (index, code) in failed_writes {
            reading.set_known(index, known_of(of_code(code).unwrap_or(Outcome::NotStored)));
        }
        return Ok(ReplyEffect::Ended("set many"));
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
    reading.set_known(index, known);
    Ok(if *nth == entries.len() {
        ReplyEffect::Ended("set many")
    } else {
        ReplyEffect::More
    })
}

fn delete_many(
    keys: &[Key],
    nth: &mut usize,
    reply: Reply,
    reading: &mut ReplyContext<'_>,
) -> Result<ReplyEffect, Error> {
    match (interpret::outcome(reply, reading.server), keys.get(*nth)) {
        (Ok(Outcome::Done), Some(key)) => reading.check_existed(*key),
        (Err(Error::Protocol { server, fault }), _) => {
            return Err(Error::Protocol { server, fault });
        }
        _ => {} // one that is refused does not end the others
    }
    *nth += 1;
    Ok(if *nth == keys.len() {
        ReplyEffect::Ended("delete many")
    } else {
        ReplyEffect::More
    })
}

fn counter_step(
    key: Key,
    bit: u8,
    counter: &mut Counter,
    reply: Reply,
    reading: &mut ReplyContext<'_>,
) -> Result<ReplyEffect, Error> {
    let Some(step) = counter.step() else {
        return Err(Error::Closed);
    };
    let result = step.read(reply, reading.pipeline, reading.server);
    match &result {
        Ok(StepReply::Number(number)) => read_number(key, bit, *number, reading),
        Ok(StepReply::Outcome(outcome)) => reading.set_known(0, known_of(*outcome)),
        Ok(StepReply::ItemBytesMax(_)) => {}
        Err(_) => reading.set_known(0, Known::NotDone),
    }
    let error = result.clone().err();
    counter.take_result(result);
    Ok(match (counter.step().is_some(), error) {
        (true, _) => ReplyEffect::Again,
        (false, Some(error)) => ReplyEffect::Failed(error),
        (false, None) => ReplyEffect::Ended("number"),
    })
}
