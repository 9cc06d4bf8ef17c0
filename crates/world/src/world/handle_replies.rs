//! What the replies to a server call mean, and whether the server may have sent them.
//!
//! They are parsed by the operations of the client's engine, as in the real clients.

use std::collections::HashMap;

use glasscache_client::engine::operation::{
    Calculate, Delete, Get, GetAndTouch, Operation, Touch, Touched, Value, store_outcome,
};
use glasscache_client::engine::{Counter, StepOutcome, Steps, interpret};
use glasscache_client::pipeline::{Pipeline, Reply};
use glasscache_client::write_outcome::{WriteOutcome, write_outcome_of_code};
use glasscache_client::{Error, StoreMode, WireKey};

use super::server_operation::{
    Action, BulkEntry, ReadUnique, ServerOperation, StoreAction, addition_arithmetic, to_wire_key,
};
use crate::checker::{Checker, CounterValue, KnownOutcome, RequestId, Source};
use crate::network::Network;
use crate::plan::{Key, is_counter_key};

/// What a reply came to.
#[derive(Debug)]
pub(super) enum ReplyEffect {
    /// More replies follow.
    MoreReplies,
    /// The next round trip follows.
    NextRoundTrip,
    /// Another operation follows.
    NextOperation(ServerOperation),
    /// That was all: what it is counted as.
    Ended(&'static str),
    /// It failed.
    Failed(Error),
}

/// Where a reply is read: whose it is, and what it is checked against.
pub(super) struct ReplyContext<'r> {
    pub(super) pipeline: &'r Pipeline,
    pub(super) server_name: &'r str,
    pub(super) request_id: RequestId,
    pub(super) network: &'r Network,
    pub(super) checker: &'r mut Checker,
    /// How often the driver handles each value of a bulk read: once, unless it is sabotaged.
    pub(super) handles_per_value: usize,
    /// Uniques that the task has read.
    pub(super) uniques: &'r mut HashMap<Key, ReadUnique>,
}

impl ServerOperation {
    /// Takes the next reply of the round trip.
    pub(super) fn handle_reply(
        &mut self,
        reply: Reply,
        mut context: ReplyContext<'_>,
    ) -> ReplyEffect {
        let reply_effect = match self {
            Self::SingleKey(key, key_bytes, action) => {
                handle_single_reply(*key, key_bytes, action, reply, &mut context)
            }
            Self::GetMany(keys, _) => handle_get_many_reply(keys, reply, &mut context),
            Self::SetMany(entries, _, reply_index) => {
                handle_set_many_reply(entries, reply_index, reply, &mut context)
            }
            Self::DeleteMany(keys, _, reply_index) => {
                handle_delete_many_reply(keys, reply_index, reply, &mut context)
            }
            Self::Counter { key, addition, counter_steps, .. } => {
                handle_counter_reply(*key, *addition, counter_steps, reply, &mut context)
            }
            Self::TooLarge(_, steps) => {
                let result = steps
                    .step()
                    .map(|step| step.read(reply, context.pipeline, context.server_name));
                let error = result.clone().and_then(Result::err);
                steps.handle_result(result.unwrap_or(Err(Error::Closed)));
                Ok(match (steps.step().is_some(), error) {
                    (true, _) => ReplyEffect::NextRoundTrip,
                    (false, None) => ReplyEffect::Ended("too large"),
                    (false, Some(error)) => ReplyEffect::Failed(error),
                })
            }
            operation => {
                operation.read_reply_of_server(reply, context.server_name).map(ReplyEffect::Ended)
            }
        };
        reply_effect.unwrap_or_else(ReplyEffect::Failed)
    }
}

impl ReplyContext<'_> {
    fn set_known_outcome(&mut self, effect_index: usize, known_outcome: KnownOutcome) {
        self.checker.history.set_known_outcome(self.request_id, effect_index, known_outcome);
    }

    fn check_found_value(&mut self, key: Key, flags: u32, body: &[u8]) -> Option<Source> {
        self.checker.check_found_value((self.request_id, key), (flags, body), self.network)
    }

    fn check_existed(&mut self, key: Key) {
        self.checker.check_existed(self.request_id, key, self.network);
    }
}

/// What is known of a write with this outcome.
fn known_outcome_of(outcome: WriteOutcome) -> KnownOutcome {
    match outcome {
        WriteOutcome::Done => KnownOutcome::Done(None),
        WriteOutcome::NotStored | WriteOutcome::Exists | WriteOutcome::NotFound => {
            KnownOutcome::NotDone
        }
    }
}

fn handle_single_reply(
    key: Key,
    key_bytes: &[u8],
    action: &Action,
    reply: Reply,
    context: &mut ReplyContext<'_>,
) -> Result<ReplyEffect, Error> {
    let wire_key = to_wire_key(key, key_bytes);
    let (pipeline, server_name) = (context.pipeline, context.server_name);
    Ok(ReplyEffect::Ended(match action {
        Action::Get { cas } => {
            let value = Get { key: wire_key, cas: *cas }.read(reply, pipeline, server_name)?;
            check_value_reply(key, value, *cas, context)
        }
        Action::GetAndTouch(exptime) => {
            let exptime = *exptime;
            let value =
                GetAndTouch { key: wire_key, exptime }.read(reply, pipeline, server_name)?;
            check_value_reply(key, value, false, context)
        }
        Action::Store(store) => return handle_store_reply(key, wire_key, store, reply, context),
        Action::Delete { noreply } => {
            let noreply = *noreply;
            if (Delete { key: wire_key, noreply }).read(reply, pipeline, server_name)? {
                context.check_existed(key);
            }
            "delete"
        }
        Action::Touch { exptime, noreply } => {
            let touch = Touch { key: wire_key, exptime: *exptime, noreply: *noreply };
            if touch.read(reply, pipeline, server_name)? != Touched::Missing {
                context.check_existed(key);
            }
            "touch"
        }
        Action::Increment { addition, noreply } => {
            let calculate = Calculate {
                key: wire_key,
                arithmetic: addition_arithmetic(*addition),
                noreply: *noreply,
            };
            let number = calculate.read(reply, pipeline, server_name)?;
            check_counter_reply(key, *addition, number, context);
            "add to a number"
        }
    }))
}

fn check_value_reply(
    key: Key,
    value: Option<Value>,
    cas: bool,
    context: &mut ReplyContext<'_>,
) -> &'static str {
    let Some(value) = value else {
        return "miss";
    };
    let source = context.check_found_value(key, value.flags, &value.bytes);
    if let Some(source) = source.filter(|_| cas && !is_counter_key(key)) {
        context.uniques.insert(key, (value.cas, source, context.request_id));
    }
    "hit"
}

fn check_counter_reply(
    key: Key,
    addition: u8,
    number: Option<u64>,
    context: &mut ReplyContext<'_>,
) {
    let Some(counter_value) = number.map(CounterValue::from_value) else {
        return context.set_known_outcome(0, KnownOutcome::NotDone);
    };
    context.checker.check_counter(
        (context.request_id, key),
        counter_value,
        Some(addition),
        context.network,
    );
    context.set_known_outcome(0, KnownOutcome::Done(Some(counter_value)));
}

fn handle_store_reply(
    key: Key,
    wire_key: WireKey<'_>,
    store: &StoreAction,
    reply: Reply,
    context: &mut ReplyContext<'_>,
) -> Result<ReplyEffect, Error> {
    let read_result = store.operation(wire_key).read(reply, context.pipeline, context.server_name);
    let outcome = match read_result {
        Ok(outcome) => outcome,
        Err(error) => {
            context.set_known_outcome(0, KnownOutcome::NotDone);
            return match error {
                Error::TooLarge { .. } => {
                    Ok(ReplyEffect::NextOperation(ServerOperation::too_large(key, error)))
                }
                error => Err(error),
            };
        }
    };
    context.set_known_outcome(0, known_outcome_of(outcome));
    match (outcome, store.compared_read) {
        (WriteOutcome::Done, Some(compared_read)) => {
            let request_and_key = (context.request_id, key);
            context.checker.check_cas(request_and_key, compared_read, context.network);
        }
        (WriteOutcome::Exists, _) => context.check_existed(key),
        (WriteOutcome::NotStored, None) if store.mode == StoreMode::Add => {
            context.check_existed(key);
        }
        _ => {}
    }
    Ok(ReplyEffect::Ended(match outcome {
        WriteOutcome::Done => "stored",
        _ => "not stored",
    }))
}

fn handle_get_many_reply(
    keys: &[Key],
    reply: Reply,
    context: &mut ReplyContext<'_>,
) -> Result<ReplyEffect, Error> {
    interpret::refusal_to_error(reply, context.server_name)?;
    let pipeline = context.pipeline;
    let mut has_been_found = vec![false; keys.len()];
    let (values, handles_per_value) = (pipeline.found_values(), context.handles_per_value);
    for value in values.iter().flat_map(|value| std::iter::repeat_n(value, handles_per_value)) {
        if let Some(&key) = keys.get(value.key_index) {
            if std::mem::replace(&mut has_been_found[value.key_index], true) {
                context.checker.report_found_twice(context.request_id, key);
            }
            context.check_found_value(key, value.flags, pipeline.body(value));
        }
    }
    Ok(ReplyEffect::Ended("get many"))
}

fn handle_set_many_reply(
    entries: &[BulkEntry],
    reply_index: &mut usize,
    reply: Reply,
    context: &mut ReplyContext<'_>,
) -> Result<ReplyEffect, Error> {
    if let Reply::Quiet(failed_writes, refusals) = reply {
        // A refusal does not name its value.
        let known_outcome =
            if refusals.is_empty() { KnownOutcome::Done(None) } else { KnownOutcome::Unknown };
        for entry_index in 0..entries.len() {
            context.set_known_outcome(entry_index, known_outcome);
        }
        for (entry_index, code) in failed_writes {
            context.set_known_outcome(
                entry_index,
                known_outcome_of(write_outcome_of_code(code).unwrap_or(WriteOutcome::NotStored)),
            );
        }
        return Ok(ReplyEffect::Ended("set many"));
    }
    let entry_index = *reply_index;
    *reply_index += 1;
    let Some(entry) = entries.get(entry_index) else {
        return Err(Error::Closed);
    };
    let item = entry.to_item();
    let known_outcome = match store_outcome(reply, item.key, item.body.len(), context.server_name) {
        Ok(outcome) => known_outcome_of(outcome),
        Err(_) => KnownOutcome::NotDone,
    };
    context.set_known_outcome(entry_index, known_outcome);
    Ok(if *reply_index == entries.len() {
        ReplyEffect::Ended("set many")
    } else {
        ReplyEffect::MoreReplies
    })
}

fn handle_delete_many_reply(
    keys: &[Key],
    reply_index: &mut usize,
    reply: Reply,
    context: &mut ReplyContext<'_>,
) -> Result<ReplyEffect, Error> {
    match (interpret::write_outcome_of_reply(reply, context.server_name), keys.get(*reply_index)) {
        (Ok(WriteOutcome::Done), Some(key)) => context.check_existed(*key),
        (Err(Error::Protocol { server, fault }), _) => {
            return Err(Error::Protocol { server, fault });
        }
        _ => {} // one that is refused does not end the others
    }
    *reply_index += 1;
    Ok(if *reply_index == keys.len() {
        ReplyEffect::Ended("delete many")
    } else {
        ReplyEffect::MoreReplies
    })
}

fn handle_counter_reply(
    key: Key,
    addition: u8,
    counter_steps: &mut Counter,
    reply: Reply,
    context: &mut ReplyContext<'_>,
) -> Result<ReplyEffect, Error> {
    let Some(step) = counter_steps.step() else {
        return Err(Error::Closed);
    };
    let result = step.read(reply, context.pipeline, context.server_name);
    match &result {
        Ok(StepOutcome::Number(number)) => check_counter_reply(key, addition, *number, context),
        Ok(StepOutcome::WriteOutcome(outcome)) => {
            context.set_known_outcome(0, known_outcome_of(*outcome));
        }
        Ok(StepOutcome::Flags(_) | StepOutcome::ItemBytesMax(_)) => {}
        Err(_) => context.set_known_outcome(0, KnownOutcome::NotDone),
    }
    let error = result.clone().err();
    counter_steps.handle_result(result);
    Ok(match (counter_steps.step().is_some(), error) {
        (true, _) => ReplyEffect::NextRoundTrip,
        (false, Some(error)) => ReplyEffect::Failed(error),
        (false, None) => ReplyEffect::Ended("number"),
    })
}
