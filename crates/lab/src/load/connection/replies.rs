//! The replies of a connection: parsed in place by `protocol`, each value compared while it is received.

use std::collections::VecDeque;

use super::head::{HEAD_BYTES_MAX, ReplyHead, ReplyKind, excerpt};
use crate::access::Protocol;
use crate::load::tally::Tally;
use crate::load::workload::{KeyResult, Request, RequestKind, Workload, value_terminator};
use crate::load::{Error, ValueCheck};

/// How many bytes of each end of a value are compared where not all are.
const END_BYTES: usize = 16;

/// The longest value that [`ValueCheck::UpTo64KiB`] compares whole.
const WHOLE_VALUE_BYTES_MAX: usize = 64 << 10;

/// State of the parser between two reads.
#[derive(Debug, Clone, Copy)]
enum ParserState {
    Head,
    /// `received_bytes` of the `value_bytes` and of the terminator after them have been received.
    Value {
        id: u64,
        value_bytes: usize,
        received_bytes: usize,
        is_correct: bool,
    },
}

/// The current time and the measured window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) now_ns: u64,
    pub(crate) window_start_ns: u64,
    pub(crate) window_end_ns: u64,
    /// Whether a request counts by its intended time instead of by the time of its reply.
    pub(crate) counts_by_intended_time: bool,
    /// How long the replies being parsed were readable before they were read, where that was measured.
    pub(crate) delay_ns: Option<u64>,
}

impl Clock {
    const fn is_in_window(&self, intended_ns: u64) -> bool {
        let counted_at_ns = if self.counts_by_intended_time { intended_ns } else { self.now_ns };
        counted_at_ns >= self.window_start_ns && counted_at_ns < self.window_end_ns
    }
}

/// The outstanding requests of one connection and the state of its reply parser.
pub(super) struct Replies {
    /// Index of the connection, for the workload.
    pub(super) connection_index: usize,
    protocol: Protocol,
    check: ValueCheck,
    /// Requests in flight, oldest first.
    pub(super) requests: VecDeque<Request>,
    /// The ids of their keys.
    pub(super) key_ids: VecDeque<u64>,
    /// Opaque of the oldest of them in binary.
    oldest_opaque: u32,
    state: ParserState,
    /// The beginning of a head whose end has not been received.
    partial_head: Vec<u8>,
    key_text: Vec<u8>,
}

impl Replies {
    pub(super) fn new(connection_index: usize, protocol: Protocol, check: ValueCheck) -> Self {
        Self {
            connection_index,
            protocol,
            check,
            requests: VecDeque::new(),
            key_ids: VecDeque::new(),
            oldest_opaque: 0,
            state: ParserState::Head,
            partial_head: Vec::new(),
            key_text: Vec::new(),
        }
    }

    /// Whether all replies have been received completely.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty() && matches!(self.state, ParserState::Head)
    }

    /// Parses received bytes and reports each complete reply to the workload.
    pub(super) fn feed<W: Workload>(
        &mut self,
        mut data: &[u8],
        workload: &mut W,
        clock: &Clock,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        while !data.is_empty() {
            if let ParserState::Value { .. } = self.state {
                data = self.consume_value(data, workload, clock, tally)?;
            } else if self.partial_head.is_empty() {
                let Some((head, head_bytes)) = ReplyHead::parse(self.protocol, data)? else {
                    self.partial_head.extend_from_slice(data);
                    break;
                };
                self.handle_head(&head, workload, clock, tally)?;
                data = data.get(head_bytes..).unwrap_or_default();
            } else {
                data = self.complete_partial_head(data, workload, clock, tally)?;
            }
        }
        Ok(())
    }

    /// Completes a head whose beginning was received earlier; returns the data after it.
    fn complete_partial_head<'d, W: Workload>(
        &mut self,
        data: &'d [u8],
        workload: &mut W,
        clock: &Clock,
        tally: &mut Tally,
    ) -> Result<&'d [u8], Error> {
        let mut whole_head = std::mem::take(&mut self.partial_head);
        let partial_bytes = whole_head.len();
        whole_head
            .extend_from_slice(data.get(..data.len().min(HEAD_BYTES_MAX)).unwrap_or_default());
        let Some((head, head_bytes)) = ReplyHead::parse(self.protocol, &whole_head)? else {
            self.partial_head = whole_head;
            return Ok(&[]);
        };
        self.handle_head(&head, workload, clock, tally)?;
        whole_head.clear();
        self.partial_head = whole_head;
        Ok(data.get(head_bytes - partial_bytes..).unwrap_or_default())
    }

    /// Consumes bytes of the current value and returns those after it.
    fn consume_value<'d, W: Workload>(
        &mut self,
        data: &'d [u8],
        workload: &mut W,
        clock: &Clock,
        tally: &mut Tally,
    ) -> Result<&'d [u8], Error> {
        let ParserState::Value { id, value_bytes, received_bytes, is_correct } = self.state else {
            return Ok(data);
        };
        let terminator = value_terminator(self.protocol);
        let bytes_with_terminator = value_bytes + terminator.len();
        let (consumed_data, rest) =
            data.split_at(data.len().min(bytes_with_terminator - received_bytes));
        let value_part = consumed_data
            .get(..consumed_data.len().min(value_bytes.saturating_sub(received_bytes)))
            .unwrap_or_default();
        let terminator_part = consumed_data.get(value_part.len()..).unwrap_or_default();
        if terminator
            .get(received_bytes.saturating_sub(value_bytes)..)
            .is_some_and(|expected| !expected.starts_with(terminator_part))
        {
            return Err(Error::Unexpected(excerpt(terminator_part)));
        }
        // The part is empty if only the terminator is outstanding.
        let is_match = value_part.is_empty()
            || self.check.matches(workload.value(id), received_bytes, value_part, tally);
        if !(is_correct && is_match) && tally.first_difference.is_none() {
            tally.first_difference =
                Some(describe_difference(workload, id, (value_bytes, received_bytes), value_part));
        }
        let is_correct = is_correct && is_match;
        let received_bytes = received_bytes + consumed_data.len();
        if received_bytes < bytes_with_terminator {
            self.state = ParserState::Value { id, value_bytes, received_bytes, is_correct };
            return Ok(rest);
        }
        self.state = ParserState::Head;
        let result = if is_correct { KeyResult::Hit } else { KeyResult::Wrong };
        self.report_result(id, result, workload, tally);
        let has_one_reply = |request: &Request| request.kind == RequestKind::Get;
        if self.requests.front().is_some_and(has_one_reply) {
            self.finish_request(KeyResult::Miss, workload, clock, tally);
        }
        Ok(rest)
    }

    fn report_result<W: Workload>(
        &self,
        id: u64,
        result: KeyResult,
        workload: &mut W,
        tally: &mut Tally,
    ) {
        tally.count(result);
        workload.on_result(self.connection_index, id, result);
    }

    fn handle_head<W: Workload>(
        &mut self,
        head: &ReplyHead<'_>,
        workload: &mut W,
        clock: &Clock,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        let Some(request) = self.requests.front().copied() else {
            return Err(head.unexpected());
        };
        let result = match (head.kind, request.kind) {
            (ReplyKind::Value { key, value_bytes }, RequestKind::Get | RequestKind::GetWithEnd) => {
                self.start_value(head, (key, value_bytes), workload, tally)?;
                return match value_bytes + value_terminator(self.protocol).len() {
                    0 => self.consume_value(&[], workload, clock, tally).map(|_| ()),
                    _ => Ok(()),
                };
            }
            (ReplyKind::Done, RequestKind::Write) => KeyResult::Stored,
            (ReplyKind::NotDone, RequestKind::Write) => KeyResult::Refused,
            (ReplyKind::Miss, RequestKind::Get) | (ReplyKind::End, RequestKind::GetWithEnd) => {
                KeyResult::Miss
            }
            _ => return Err(head.unexpected()),
        };
        let opaque_after = self.oldest_opaque.wrapping_add(request.opaques());
        if !head.has_opaque(opaque_after.wrapping_sub(1)) {
            return Err(head.unexpected());
        }
        if result == KeyResult::Refused && tally.first_refusal.is_none() {
            tally.first_refusal = Some(head.excerpt());
        }
        self.finish_request(result, workload, clock, tally);
        Ok(())
    }

    /// The head of a value: keys of a request in text or binary before it are misses.
    fn start_value<W: Workload>(
        &mut self,
        head: &ReplyHead<'_>,
        (key, value_bytes): (Option<&[u8]>, usize),
        workload: &mut W,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        while let Some(request) =
            self.requests.front_mut().filter(|request| request.pending_keys > 0)
        {
            request.pending_keys -= 1;
            let id = self.key_ids.pop_front().unwrap_or_default();
            let opaque = self.oldest_opaque;
            self.oldest_opaque = opaque.wrapping_add(1);
            if head.has_opaque(opaque) && key.is_none_or(|key| self.is_key_of(id, key, workload)) {
                self.state = ParserState::Value {
                    id,
                    value_bytes,
                    received_bytes: 0,
                    is_correct: workload.value(id).len() == value_bytes,
                };
                return Ok(());
            }
            self.report_result(id, KeyResult::Miss, workload, tally);
        }
        Err(head.unexpected())
    }

    fn is_key_of<W: Workload>(&mut self, id: u64, key: &[u8], workload: &W) -> bool {
        self.key_text.clear();
        workload.write_key(id, &mut self.key_text);
        self.key_text == key
    }

    /// Completes the oldest request; keys without a result get `result`.
    fn finish_request<W: Workload>(
        &mut self,
        result: KeyResult,
        workload: &mut W,
        clock: &Clock,
        tally: &mut Tally,
    ) {
        let Some(request) = self.requests.pop_front() else {
            return;
        };
        self.oldest_opaque = self.oldest_opaque.wrapping_add(request.opaques());
        for _ in 0..request.pending_keys {
            if let Some(id) = self.key_ids.pop_front() {
                self.report_result(id, result, workload, tally);
            }
        }
        if clock.is_in_window(request.intended_ns) {
            tally
                .record_reply((request.intended_ns, request.sent_ns, clock.now_ns), clock.delay_ns);
        }
    }
}

impl ValueCheck {
    /// Whether `value_part`, which starts at `offset` of a value, agrees with what was expected there.
    /// Counts what it compares.
    fn matches(self, expected: &[u8], offset: usize, value_part: &[u8], tally: &mut Tally) -> bool {
        tally.value_bytes += value_part.len() as u64;
        let Some(expected_slice) = expected.get(offset..offset + value_part.len()) else {
            return false;
        };
        if expected.len() <= self.whole_value_bytes_max() {
            tally.compared_bytes += value_part.len() as u64;
            return expected_slice == value_part;
        }
        let first_end_bytes = END_BYTES.saturating_sub(offset).min(value_part.len());
        let last_end_bytes = (offset + value_part.len())
            .saturating_sub(expected.len() - END_BYTES)
            .min(value_part.len());
        tally.compared_bytes += (first_end_bytes + last_end_bytes) as u64;
        let last_end_start = value_part.len() - last_end_bytes;
        expected_slice.get(..first_end_bytes) == value_part.get(..first_end_bytes)
            && expected_slice.get(last_end_start..) == value_part.get(last_end_start..)
    }

    /// The longest value of which every byte is compared.
    const fn whole_value_bytes_max(self) -> usize {
        match self {
            Self::Ends => 4 * END_BYTES,
            Self::UpTo64KiB => WHOLE_VALUE_BYTES_MAX,
            Self::Full => usize::MAX,
        }
    }
}

/// Describes how a value differs from the stored one.
fn describe_difference<W: Workload>(
    workload: &W,
    id: u64,
    (value_bytes, received_bytes): (usize, usize),
    value_part: &[u8],
) -> String {
    let (mut key_text, expected) = (Vec::new(), workload.value(id));
    workload.write_key(id, &mut key_text);
    let expected_rest = expected.get(received_bytes.min(expected.len())..).unwrap_or_default();
    let difference_offset =
        received_bytes + expected_rest.iter().zip(value_part).take_while(|(a, b)| a == b).count();
    let (key, stored_bytes) = (excerpt(&key_text), expected.len());
    format!(
        "{key:?}: received {value_bytes} bytes, stored {stored_bytes}; they differ from byte {difference_offset}"
    )
}
