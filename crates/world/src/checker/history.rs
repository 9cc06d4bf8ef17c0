//! The requests of a world and what became of them: which values a reader may find, and which must be gone.
//!
//! The *execution index* numbers the requests in the order in which all servers executed them; an *execution range*
//! is the earliest and the latest index at which something happened.

use std::collections::HashMap;

use super::values::{CounterValue, WriteId};
use crate::network::{ExecutionIndex, ExecutionState, LinkId, Network};
use crate::plan::Key;

/// The number of a request in its world.
pub(crate) type RequestId = usize;

/// The condition under which a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// None.
    Always,
    /// Nothing is there, or nothing has changed.
    AbsentOrUnchanged,
}

/// What a request does to one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It reads.
    Read,
    /// It stores a value.
    Store(WriteId, Condition),
    /// It creates a counter.
    Create(u16),
    /// It adds to a counter.
    Add(u8),
    /// It removes.
    Delete,
    /// It removes, with all other keys of a prefix.
    FlushPrefix,
    /// It sets a new expiry.
    Touch,
}

/// What is known of a request's effect on one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownOutcome {
    /// Nothing.
    Unknown,
    /// It was done; an addition resulted in this value.
    Done(Option<CounterValue>),
    /// It was not done.
    NotDone,
}

/// One request as it was written on a connection.
#[derive(Debug)]
pub(crate) struct RecordedRequest {
    /// The server.
    pub(crate) server: usize,
    /// The connection.
    pub(crate) link: LinkId,
    /// Where its bytes begin on the connection, together with those that were written before it.
    pub(crate) begin_offset: u64,
    /// The offset after its last byte.
    pub(crate) end_offset: u64,
    /// What it does; a flush does nothing to any one key.
    pub(crate) effects: Vec<(Key, Effect)>,
    /// What is known of these.
    pub(crate) known_outcomes: Vec<KnownOutcome>,
    /// It may be made twice.
    pub(crate) is_repeatable: bool,
    /// The incarnation of the client that made it.
    pub(crate) incarnation: usize,
    /// It is executed step by step: its bytes are those of several commands, or of one about several keys.
    pub(crate) is_multi_step: bool,
}

impl RecordedRequest {
    /// What it does to the key at this index of its effects.
    fn effect(&self, effect_index: usize) -> Effect {
        let (_, effect) = self.effects[effect_index];
        effect
    }

    /// The offset behind the bytes that must be executed before its first reply may come: its first byte if it is
    /// executed step by step.
    pub(crate) fn first_step_offset(&self) -> u64 {
        if self.is_multi_step { self.begin_offset + 1 } else { self.end_offset }
    }
}

/// When something happened: not before the first, not after the second.
pub(crate) type ExecutionRange = (ExecutionIndex, ExecutionIndex);

/// Where a value may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// A write.
    Write(WriteId),
    /// The creation of a counter.
    Creation(u16),
}

/// All requests, by key.
#[derive(Debug, Default)]
pub(crate) struct History {
    requests: Vec<RecordedRequest>,
    changes_by_key: HashMap<Key, Vec<(RequestId, usize)>>,
    flushes: Vec<RequestId>,
    /// Keys that a client promised to remove, and when it must have done so.
    removals: Vec<(Key, ExecutionRange)>,
}

impl History {
    /// Adds a request.
    pub(crate) fn add(&mut self, request: RecordedRequest, is_flush: bool) -> RequestId {
        let id = self.requests.len();
        for (effect_index, (key, effect)) in request.effects.iter().enumerate() {
            if *effect != Effect::Read {
                self.changes_by_key.entry(*key).or_default().push((id, effect_index));
            }
        }
        if is_flush {
            self.flushes.push(id);
        }
        self.requests.push(request);
        id
    }

    /// A request.
    pub(crate) fn request(&self, id: RequestId) -> &RecordedRequest {
        &self.requests[id]
    }

    /// Notes what became of a request's effect.
    pub(crate) fn set_known_outcome(
        &mut self,
        id: RequestId,
        effect_index: usize,
        known_outcome: KnownOutcome,
    ) {
        if let Some(slot) = self.requests[id].known_outcomes.get_mut(effect_index) {
            *slot = known_outcome;
        }
    }

    /// Notes that a key was removed.
    pub(crate) fn add_removal(&mut self, key: Key, range: ExecutionRange) {
        self.removals.push((key, range));
    }

    /// When a request was executed; `None`: never.
    pub(crate) fn execution_range(
        &self,
        id: RequestId,
        network: &Network,
    ) -> Option<ExecutionRange> {
        let request = &self.requests[id];
        let is_single_step = !request.is_multi_step;
        let first_byte_index = || self.first_byte_index(id, network);
        match network.execution_state(request.link, request.end_offset) {
            ExecutionState::At(execution_index, _) if is_single_step => {
                Some((execution_index, execution_index))
            }
            ExecutionState::At(execution_index, _) => {
                Some((first_byte_index().unwrap_or(execution_index), execution_index))
            }
            ExecutionState::NotYet if is_single_step => {
                Some((network.execution_index(), ExecutionIndex::MAX))
            }
            ExecutionState::NotYet => {
                Some((first_byte_index().unwrap_or(network.execution_index()), ExecutionIndex::MAX))
            }
            ExecutionState::Never if is_single_step => None,
            // The first steps may have been executed.
            ExecutionState::Never => {
                first_byte_index().map(|execution_index| (execution_index, ExecutionIndex::MAX))
            }
        }
    }

    /// When the first of a request's bytes, or of what was written before it, were used up.
    fn first_byte_index(&self, id: RequestId, network: &Network) -> Option<ExecutionIndex> {
        let request = &self.requests[id];
        match network.execution_state(request.link, request.begin_offset + 1) {
            ExecutionState::At(execution_index, _) => Some(execution_index),
            ExecutionState::NotYet | ExecutionState::Never => None,
        }
    }

    /// When a change was made that certainly removed or replaced the value before it; `None` if that is not certain.
    fn overwrite_range(
        &self,
        id: RequestId,
        effect_index: usize,
        network: &Network,
    ) -> Option<ExecutionRange> {
        let request = &self.requests[id];
        let (effect, known_outcome) =
            (request.effect(effect_index), request.known_outcomes[effect_index]);
        if !certainly_overwrites(effect, known_outcome) {
            return None;
        }
        let (first, last) = self.execution_range(id, network)?;
        let was_stored = matches!(known_outcome, KnownOutcome::Done(_));
        if matches!(effect, Effect::Store(..)) && !was_stored {
            // A refused value removes the older one as soon as its line is read.
            return Some((self.first_byte_index(id, network).unwrap_or(first), last));
        }
        Some((first, last))
    }

    /// Whether something certainly removed or replaced what was under `key` between two moments.
    fn is_overwritten(
        &self,
        key: Key,
        (after, before): ExecutionRange,
        excluded_source: Source,
        network: &Network,
    ) -> bool {
        let is_between = |(first, last): ExecutionRange| first > after && last < before;
        let key_changes = self.changes_by_key.get(&key).into_iter().flatten();
        let mut changes = key_changes.filter(|(id, effect_index)| {
            source_of(self.requests[*id].effect(*effect_index)) != Some(excluded_source)
        });
        let server = self.server_of(key);
        changes.any(|(id, effect_index)| {
            self.overwrite_range(*id, *effect_index, network).is_some_and(is_between)
        }) || self.flushes.iter().any(|id| {
            Some(self.requests[*id].server) == server
                && self.execution_range(*id, network).is_some_and(is_between)
        }) || server.is_some_and(|server| {
            let mut restarts = network.restart_indexes(server).iter();
            restarts.any(|execution_index| is_between((*execution_index, *execution_index)))
        }) || self
            .removals
            .iter()
            .any(|(removed_key, range)| *removed_key == key && is_between(*range))
    }

    fn server_of(&self, key: Key) -> Option<usize> {
        let (id, _) = self.changes_by_key.get(&key)?.first()?;
        Some(self.requests[*id].server)
    }

    /// The requests that brought a value from `source`, the last one first.
    fn requests_from_source(&self, key: Key, source: Source) -> impl Iterator<Item = RequestId> {
        self.stores_of(key)
            .filter(move |(_, stored_source)| *stored_source == source)
            .map(|(id, _)| id)
    }

    /// The requests that may have stored something under a key and what they stored, the last one first.
    fn stores_of(&self, key: Key) -> impl Iterator<Item = (RequestId, Source)> {
        let key_changes = self.changes_by_key.get(&key).into_iter().flatten().rev();
        key_changes.filter_map(move |(id, effect_index)| {
            let request = &self.requests[*id];
            let source = source_of(request.effect(*effect_index))?;
            let may_be_done = request.known_outcomes[*effect_index] != KnownOutcome::NotDone;
            may_be_done.then_some((*id, source))
        })
    }

    /// Whether a read within `read_range` may find what comes from `source`.
    pub(crate) fn may_find(
        &self,
        key: Key,
        source: Source,
        read_range: ExecutionRange,
        network: &Network,
    ) -> bool {
        self.requests_from_source(key, source)
            .any(|id| self.may_find_store(key, (id, source), read_range, network))
    }

    /// Whether a read within `read_range` may find what one request stored.
    fn may_find_store(
        &self,
        key: Key,
        (id, source): (RequestId, Source),
        read_range: ExecutionRange,
        network: &Network,
    ) -> bool {
        self.execution_range(id, network).is_some_and(|(first, last)| {
            let (read_first, read_last) = read_range;
            first <= read_last && !self.is_overwritten(key, (last, read_first), source, network)
        })
    }

    /// Whether a value from `source` was certainly gone or replaced between a read and a later moment.
    pub(crate) fn has_changed(
        &self,
        key: Key,
        source: Source,
        (read, later): ExecutionRange,
        network: &Network,
    ) -> bool {
        self.is_overwritten(key, (read, later), source, network)
    }

    /// Whether anything may be under a key within `read_range`.
    pub(crate) fn may_exist(
        &self,
        key: Key,
        read_range: ExecutionRange,
        network: &Network,
    ) -> bool {
        self.stores_of(key).any(|store| self.may_find_store(key, store, read_range, network))
    }

    /// What is known of a key, for a message.
    pub(crate) fn describe_changes(&self, key: Key, network: &Network) -> String {
        let key_changes = self.changes_by_key.get(&key).into_iter().flatten();
        let change_texts = key_changes.map(|(id, effect_index)| {
            let request = &self.requests[*id];
            let (effect, known_outcome) =
                (request.effect(*effect_index), request.known_outcomes[*effect_index]);
            format!("{effect:?} {known_outcome:?} {:?}", self.execution_range(*id, network))
        });
        let removals = self.removals.iter().filter(|(removed_key, _)| *removed_key == key);
        let removal_texts = removals.map(|(_, range)| format!("removed {range:?}"));
        change_texts.chain(removal_texts).collect::<Vec<_>>().join(", ")
    }

    /// Whether an addition may be in a counter that was read within `read_range`.
    pub(crate) fn may_have_added(
        &self,
        key: Key,
        addition: u8,
        read_range: ExecutionRange,
        network: &Network,
    ) -> bool {
        let (_, read_last) = read_range;
        let key_changes = self.changes_by_key.get(&key).into_iter().flatten();
        let mut additions = key_changes.filter(|(id, effect_index)| {
            let request = &self.requests[*id];
            request.effect(*effect_index) == Effect::Add(addition)
                && request.known_outcomes[*effect_index] != KnownOutcome::NotDone
        });
        additions.any(|(id, _)| {
            self.execution_range(*id, network).is_some_and(|(first, _)| first <= read_last)
        })
    }

    /// Additions to the counters of a creation that must be in what is read within `read_range`.
    pub(crate) fn must_have_added(
        &self,
        key: Key,
        creation: u16,
        read_range: ExecutionRange,
        network: &Network,
    ) -> Vec<u8> {
        let (read_first, _) = read_range;
        let key_changes = self.changes_by_key.get(&key).into_iter().flatten();
        let required_additions = key_changes.filter_map(|(id, effect_index)| {
            let request = &self.requests[*id];
            let (Effect::Add(addition), KnownOutcome::Done(Some(counter))) =
                (request.effect(*effect_index), request.known_outcomes[*effect_index])
            else {
                return None;
            };
            let (_, last) = self.execution_range(*id, network)?;
            (counter.creation == creation && last < read_first).then_some(addition)
        });
        required_additions.collect()
    }

    /// Whether a key was ever given a new expiry.
    pub(crate) fn was_touched(&self, key: Key) -> bool {
        let mut key_changes = self.changes_by_key.get(&key).into_iter().flatten();
        key_changes
            .any(|(id, effect_index)| self.requests[*id].effect(*effect_index) == Effect::Touch)
    }

    /// The latest second at which what comes from `source` was stored; `None` where that is not known.
    pub(crate) fn stored_second(&self, key: Key, source: Source, network: &Network) -> Option<u32> {
        let seconds = self.requests_from_source(key, source).map(|id| {
            let request = &self.requests[id];
            match network.execution_state(request.link, request.end_offset) {
                ExecutionState::At(_, second) => Some(second),
                ExecutionState::NotYet | ExecutionState::Never => None,
            }
        });
        seconds.collect::<Option<Vec<u32>>>()?.into_iter().max()
    }
}

/// Whether a request that was executed left nothing of what was there before.
fn certainly_overwrites(effect: Effect, known_outcome: KnownOutcome) -> bool {
    match effect {
        // One that is refused removes the older value too.
        Effect::Store(_, Condition::Always) | Effect::Delete | Effect::FlushPrefix => true,
        Effect::Store(_, Condition::AbsentOrUnchanged) | Effect::Create(_) => {
            matches!(known_outcome, KnownOutcome::Done(_))
        }
        Effect::Read | Effect::Add(_) | Effect::Touch => false,
    }
}

fn source_of(effect: Effect) -> Option<Source> {
    match effect {
        Effect::Store(write, _) => Some(Source::Write(write)),
        Effect::Create(creation) => Some(Source::Creation(creation)),
        Effect::Read | Effect::Add(_) | Effect::Delete | Effect::FlushPrefix | Effect::Touch => {
            None
        }
    }
}
