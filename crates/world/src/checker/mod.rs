//! What must hold in every world, whatever goes wrong in it.
//!
//! The checker knows what no client can: which requests a server has executed, and when. A client is held to what it
//! could know, and to what it promised.

mod history;
mod uncertain;
mod values;

use std::collections::HashMap;
use std::fmt;

use crate::network::{ExecutionIndex, ExecutionState, Network};
use crate::plan::{Key, Ttl, is_counter_key};
pub(crate) use history::{
    Condition, Effect, ExecutionRange, History, KnownOutcome, RecordedRequest, RequestId, Source,
};
use uncertain::UncertainKeys;
use values::parse_write_id;
pub(crate) use values::{CounterValue, WriteId, addend, flags, initial_counter_value, value_body};

/// What must hold; the checker reports the first that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Invariant {
    /// A value is what was written under its key.
    ValueWasWritten,
    /// It is the last that was acknowledged, or one whose outcome is not known.
    ReadsAreFresh,
    /// It is gone once its time is over.
    ExpiredItemsAreGone,
    /// An addition is made once, and is in what is read after it was acknowledged.
    AdditionsCountOnce,
    /// A comparison and write succeeds only if nothing has changed.
    CasSeesChanges,
    /// A reply matches what the server did.
    RepliesAreTrue,
    /// A bulk read finds a key once, whatever its server sends.
    KeyIsFoundOnce,
    /// A request that was reported to its caller as certainly not executed was not executed.
    RefusedHasNoEffect,
    /// Each call ends once.
    CallEndsOnce,
    /// Each call ends by its deadline.
    CallEndsByDeadline,
    /// A connection that is used again is in sync.
    ReusedConnectionIsInSync,
    /// A connection that is of no use is closed.
    UselessConnectionIsClosed,
    /// Each quiet write is acknowledged, or counted as refused or lost.
    QuietWriteIsCounted,
    /// Memory stays within bounds.
    MemoryIsBounded,
    /// A server that stopped cleanly has its items again.
    CleanRestartKeepsItems,
    /// A server counts as down only if it could not be connected to, or after three bad calls in a row.
    DownHasACause,
    /// Once nothing goes wrong any more, calls succeed.
    CallsRecover,
    /// A child of a fork leaves its parent's requests alone.
    ForkLeavesParentAlone,
    /// Nothing panics.
    NothingPanics,
}

/// An invariant that was broken, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// How it was broken, for a developer.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.text)
    }
}

/// A client from its creation, or from a fork, to the next fork.
#[derive(Debug, Default)]
struct ClientIncarnation {
    uncertain_by_server: Vec<UncertainKeys>,
    /// Quiet writes in meta that are counted if they are lost.
    quiet_writes: Vec<RequestId>,
}

/// Watches one world.
#[derive(Debug)]
pub(crate) struct Checker {
    /// The requests that were made.
    pub(crate) history: History,
    violation: Option<Violation>,
    writes_by_id: HashMap<WriteId, (Key, u32, Ttl)>,
    creation_count: u16,
    has_protocol_text: bool,
    incarnations: Vec<ClientIncarnation>,
    /// The longest value that each server takes.
    value_bytes_limits: Vec<u32>,
    /// Requests that were reported to their callers as certainly not executed.
    reported_unexecuted: Vec<RequestId>,
}

impl Checker {
    /// For a world whose servers take values up to these `value_bytes_limits`; with `has_protocol_text`, values contain
    /// text of the protocol.
    pub(crate) fn new(value_bytes_limits: Vec<u32>, has_protocol_text: bool) -> Self {
        Self {
            history: History::default(),
            violation: None,
            writes_by_id: HashMap::new(),
            creation_count: 0,
            has_protocol_text,
            incarnations: Vec::new(),
            value_bytes_limits,
            reported_unexecuted: Vec::new(),
        }
    }

    /// The first invariant that was broken.
    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Notes that an invariant was broken.
    pub(crate) fn report_broken(&mut self, invariant: Invariant, text: impl Into<String>) {
        if self.violation.is_none() {
            let text = text.into();
            self.violation = Some(Violation { invariant, text });
        }
    }

    /// A client is created or forked; returns the number of its incarnation.
    pub(crate) fn begin_incarnation(&mut self) -> usize {
        let uncertain_by_server =
            self.value_bytes_limits.iter().map(|_| UncertainKeys::default()).collect();
        self.incarnations.push(ClientIncarnation { uncertain_by_server, quiet_writes: Vec::new() });
        self.incarnations.len() - 1
    }

    /// Notes a write; returns the body of its value.
    pub(crate) fn record_write(
        &mut self,
        write_id: WriteId,
        key: Key,
        value_bytes: u32,
        ttl: Ttl,
    ) -> Vec<u8> {
        self.writes_by_id.insert(write_id, (key, value_bytes, ttl));
        value_body(write_id, key, value_bytes, self.has_protocol_text)
    }

    /// The number of the next creation of a counter.
    pub(crate) fn next_creation(&mut self) -> u16 {
        self.creation_count += 1;
        self.creation_count
    }

    /// Notes a request that was written on a connection.
    pub(crate) fn record_request(
        &mut self,
        request: RecordedRequest,
        is_flush: bool,
        is_counted: bool,
    ) -> RequestId {
        let incarnation = request.incarnation;
        let id = self.history.add(request, is_flush);
        if is_counted {
            self.incarnations[incarnation].quiet_writes.push(id);
        }
        id
    }

    /// A reply to a request came: the server must have executed it.
    pub(crate) fn check_executed(
        &mut self,
        id: RequestId,
        network: &Network,
    ) -> Option<ExecutionRange> {
        let request = self.history.request(id);
        match network.execution_state(request.link, request.first_step_offset()) {
            ExecutionState::At(..) => self.history.execution_range(id, network),
            ExecutionState::NotYet | ExecutionState::Never
                if network.has_misbehaved_in_classic(request.server) =>
            {
                None
            }
            ExecutionState::NotYet | ExecutionState::Never => {
                let text = format!("a reply to {request:?}, which was not executed");
                self.report_broken(Invariant::RepliesAreTrue, text);
                None
            }
        }
    }

    /// Checks a value that a read found: all that can be checked, but of a server that misbehaves only whose it is.
    pub(crate) fn check_found_value(
        &mut self,
        (id, key): (RequestId, Key),
        (read_flags, body): (u32, &[u8]),
        network: &Network,
    ) -> Option<Source> {
        let has_misbehaved = network.has_misbehaved(self.history.request(id).server);
        if is_counter_key(key) {
            let Some(counter) = CounterValue::parse(body) else {
                let text = format!("key {key} has {:?}", String::from_utf8_lossy(body));
                self.report_broken(Invariant::ValueWasWritten, text);
                return None;
            };
            self.check_counter((id, key), counter, None, network);
            return Some(Source::Creation(counter.creation));
        }
        let write_id = parse_write_id(body);
        let written =
            write_id.and_then(|write_id| Some((write_id, *self.writes_by_id.get(&write_id)?)));
        let is_own = written.is_some_and(|(write_id, (written_key, value_bytes, _))| {
            let is_equal =
                value_body(write_id, written_key, value_bytes, self.has_protocol_text) == body;
            written_key == key && is_equal && (has_misbehaved || flags(write_id) == read_flags)
        });
        let Some((write_id, (.., ttl))) = written.filter(|_| is_own) else {
            let value_begin = String::from_utf8_lossy(body.get(..40).unwrap_or(body)).into_owned();
            let text = format!(
                "key {key} has {} bytes with flags {read_flags} that nobody wrote: {value_begin:?}",
                body.len()
            );
            self.report_broken(Invariant::ValueWasWritten, text);
            return None;
        };
        let source = Source::Write(write_id);
        if !has_misbehaved {
            self.check_fresh((id, key), source, network);
            self.check_expiry((id, key), source, ttl, network);
        }
        Some(source)
    }

    /// One bulk read found a key twice.
    pub(crate) fn report_found_twice(&mut self, id: RequestId, key: Key) {
        let request = self.history.request(id);
        let text = format!("key {key} was found twice by {request:?}");
        self.report_broken(Invariant::KeyIsFoundOnce, text);
    }

    fn check_fresh(&mut self, (id, key): (RequestId, Key), source: Source, network: &Network) {
        let Some(read_range) = self.check_executed(id, network) else {
            return;
        };
        if !self.history.may_find(key, source, read_range, network) {
            let changes_text = self.history.describe_changes(key, network);
            let text = format!(
                "key {key} has {source:?}, which was replaced before {read_range:?}: {changes_text}"
            );
            self.report_broken(Invariant::ReadsAreFresh, text);
        }
    }

    fn check_expiry(
        &mut self,
        (id, key): (RequestId, Key),
        source: Source,
        ttl: Ttl,
        network: &Network,
    ) {
        let Ttl::Seconds(seconds) = ttl else { return };
        // Of several keys the first may be read before the server's clock jumps, and the last after that.
        let request = self.history.request(id);
        let ExecutionState::At(_, second) =
            network.execution_state(request.link, request.first_step_offset())
        else {
            return;
        };
        let stored_second = self.history.stored_second(key, source, network);
        let is_past_expiry = stored_second.is_some_and(|stored| second >= stored + seconds);
        if is_past_expiry && !self.history.was_touched(key) {
            let text = format!(
                "key {key} has {source:?} at {second}, stored for {seconds} at {stored_second:?}"
            );
            self.report_broken(Invariant::ExpiredItemsAreGone, text);
        }
    }

    /// Checks the value of a counter that was read, or that the addition `made_addition` resulted in.
    pub(crate) fn check_counter(
        &mut self,
        (id, key): (RequestId, Key),
        counter: CounterValue,
        made_addition: Option<u8>,
        network: &Network,
    ) {
        if network.has_misbehaved(self.history.request(id).server) {
            return;
        }
        let Some(read_range) = self.check_executed(id, network) else {
            return;
        };
        let source = Source::Creation(counter.creation);
        let history = &self.history;
        let mut broken = None;
        if counter.has_double_additions()
            || made_addition.is_some_and(|addition| !counter.contains_addition(addition))
        {
            broken = Some((
                Invariant::AdditionsCountOnce,
                "an addition was made twice, or is not in it".to_owned(),
            ));
        } else if !history.may_find(key, source, read_range, network) {
            broken = Some((Invariant::ReadsAreFresh, "it was replaced before".to_owned()));
        }
        for addition in 0..crate::plan::ADDITIONS_MAX {
            if counter.contains_addition(addition)
                && !history.may_have_added(key, addition, read_range, network)
            {
                broken = Some((
                    Invariant::AdditionsCountOnce,
                    format!("addition {addition} was not made"),
                ));
            }
        }
        let required_additions =
            history.must_have_added(key, counter.creation, read_range, network);
        if let Some(addition) =
            required_additions.into_iter().find(|addition| !counter.contains_addition(*addition))
        {
            broken =
                Some((Invariant::AdditionsCountOnce, format!("addition {addition} is not in it")));
        }
        if let Some((invariant, reason)) = broken {
            self.report_broken(
                invariant,
                format!("key {key} has {counter:?} in {read_range:?}: {reason}"),
            );
        }
    }

    /// A reply reports that a key had an item.
    pub(crate) fn check_existed(&mut self, id: RequestId, key: Key, network: &Network) {
        if network.has_misbehaved(self.history.request(id).server) {
            return;
        }
        let Some(range) = self.check_executed(id, network) else {
            return;
        };
        if !self.history.may_exist(key, range, network) {
            let changes_text = self.history.describe_changes(key, network);
            let text = format!(
                "key {key} was there in {range:?}, although nothing can have been: {changes_text}"
            );
            self.report_broken(Invariant::RepliesAreTrue, text);
        }
    }

    /// A comparison with what the request `read_request` found succeeded.
    pub(crate) fn check_cas(
        &mut self,
        (id, key): (RequestId, Key),
        (source, read_request): (Source, RequestId),
        network: &Network,
    ) {
        let server = self.history.request(id).server;
        let ranges =
            (self.check_executed(id, network), self.history.execution_range(read_request, network));
        let (Some(write_range), Some(read_range)) = ranges else {
            return;
        };
        let ((read_first, read_last), (write_first, write_last)) = (read_range, write_range);
        // A server that starts again begins anew with its uniques too.
        let mut restarts = network.restart_indexes(server).iter();
        let has_restarted = restarts
            .any(|restart_index| read_first < *restart_index && *restart_index < write_last);
        if network.has_misbehaved(server) || has_restarted {
            return;
        }
        if self.history.has_changed(key, source, (read_last, write_first), network) {
            let text = format!(
                "key {key}: {source:?}, read in {read_range:?}, had changed by {write_range:?}"
            );
            self.report_broken(Invariant::CasSeesChanges, text);
        }
    }

    /// The caller of a request got the report that it was certainly not executed.
    pub(crate) fn record_unexecuted(&mut self, id: RequestId) {
        if !self.history.request(id).is_repeatable {
            self.reported_unexecuted.push(id);
        }
    }

    /// A call to a server begins.
    pub(crate) fn record_call_begin(&mut self, incarnation: usize, server: usize, call: usize) {
        self.incarnations[incarnation].uncertain_by_server[server].begin(call);
    }

    /// A call to a server has ended, by a reply or not.
    pub(crate) fn record_call_end(
        &mut self,
        incarnation: usize,
        server: usize,
        (call, had_reply): (usize, bool),
        now: ExecutionIndex,
    ) {
        for (key, since) in
            self.incarnations[incarnation].uncertain_by_server[server].end(call, had_reply)
        {
            self.history.add_removal(key, (since, now));
        }
    }

    /// A client has reported that it removed a key.
    pub(crate) fn record_removal(
        &mut self,
        id: RequestId,
        key: Key,
        range: ExecutionRange,
        network: &Network,
    ) {
        if !network.has_misbehaved(self.history.request(id).server) {
            self.history.add_removal(key, range);
        }
    }

    /// What a request left behind is not known to the client that made it.
    pub(crate) fn record_uncertain(&mut self, id: RequestId, network: &Network) {
        let request = self.history.request(id);
        let uncertain_keys =
            &mut self.incarnations[request.incarnation].uncertain_by_server[request.server];
        for (key, effect) in &request.effects {
            // The client does not remove a counter whose addition is uncertain: it is right either way.
            let is_removed =
                matches!(effect, Effect::Store(..) | Effect::Create(_) | Effect::Delete);
            if is_removed && !network.has_misbehaved(request.server) {
                uncertain_keys.add(*key, network.execution_index());
            }
        }
    }

    /// The failure of a quiet write was reported to its caller.
    pub(crate) fn forget_quiet_write(&mut self, id: RequestId) {
        let incarnation = self.history.request(id).incarnation;
        self.incarnations[incarnation].quiet_writes.retain(|quiet_write| *quiet_write != id);
    }

    /// Whether a request was executed.
    pub(crate) fn is_executed(&self, id: RequestId, network: &Network) -> bool {
        let request = self.history.request(id);
        matches!(network.execution_state(request.link, request.end_offset), ExecutionState::At(..))
    }

    /// Whether a request stores a value that its server certainly refuses.
    fn is_too_large(&self, request: &RecordedRequest) -> bool {
        request.effects.iter().any(|(_, effect)| match effect {
            Effect::Store(write_id, _) => {
                let value_bytes =
                    self.writes_by_id.get(write_id).map_or(0, |(_, value_bytes, _)| *value_bytes);
                value_bytes > self.value_bytes_limits[request.server]
            }
            _ => false,
        })
    }

    /// Quiet writes of an incarnation that were never executed or certainly refused, and all of them.
    pub(crate) fn count_quiet_writes(&self, incarnation: usize, network: &Network) -> (u64, u64) {
        let quiet_writes = &self.incarnations[incarnation].quiet_writes;
        let is_lost = |id: &&RequestId| {
            let request = self.history.request(**id);
            network.execution_state(request.link, request.end_offset) == ExecutionState::Never
                || self.is_too_large(request) && !network.has_misbehaved(request.server)
        };
        (quiet_writes.iter().filter(is_lost).count() as u64, quiet_writes.len() as u64)
    }

    /// What can be checked only at the end.
    pub(crate) fn check_at_end(&mut self, network: &Network) {
        let executed_although_reported = self.reported_unexecuted.iter().copied().find(|id| {
            let request = self.history.request(*id);
            !network.has_misbehaved(request.server)
                && matches!(
                    network.execution_state(request.link, request.end_offset),
                    ExecutionState::At(..)
                )
        });
        if let Some(id) = executed_although_reported {
            let text = format!("{:?} was done", self.history.request(id));
            self.report_broken(Invariant::RefusedHasNoEffect, text);
        }
    }
}
