//! The replies of a connection: parsed in place by `protocol`, each value compared while it is received.

use std::collections::VecDeque;

use glasscache_protocol::meta::reply as meta;
use glasscache_protocol::text::reply::{self as text, REPLY_LINE_BYTES_MAX, Status};

use crate::load::tally::Tally;
use crate::load::workload::{Dialect, KeyResult, Request, RequestKind, Workload};
use crate::load::{Check, Error};

/// How many bytes of each end of a value are compared by [`Check::Edges`].
const EDGE_BYTES: usize = 16;

/// State of the parser between two reads.
#[derive(Debug, Clone, Copy)]
enum ParserState {
    Line,
    /// `matched_bytes` of `bytes` and of the line end after them have been received.
    Value {
        id: u64,
        bytes: usize,
        matched_bytes: usize,
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
        let offset = if self.counts_by_intended_time {
            intended_ns
        } else {
            self.now_ns
        };
        offset >= self.window_start_ns && offset < self.window_end_ns
    }
}

/// The outstanding requests of one connection and the state of its reply parser.
pub(super) struct Replies {
    /// Index of the connection, for the workload.
    pub(super) index: usize,
    dialect: Dialect,
    check: Check,
    /// Requests in flight, oldest first.
    pub(super) requests: VecDeque<Request>,
    /// Their keys.
    pub(super) keys: VecDeque<u64>,
    state: ParserState,
    /// The beginning of a line whose end has not been received.
    partial_line: Vec<u8>,
    key: Vec<u8>,
}

impl Replies {
    pub(super) fn new(index: usize, dialect: Dialect, check: Check) -> Self {
        Self {
            index,
            dialect,
            check,
            requests: VecDeque::new(),
            keys: VecDeque::new(),
            state: ParserState::Line,
            partial_line: Vec::new(),
            key: Vec::new(),
        }
    }

    /// Whether all replies have been received completely.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty() && matches!(self.state, ParserState::Line)
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
            } else if self.partial_line.is_empty() {
                let Some((line, line_bytes)) =
                    text::take_line(data).map_err(|_| unexpected_reply(data))?
                else {
                    self.partial_line.extend_from_slice(data);
                    break;
                };
                data = data.get(line_bytes..).unwrap_or_default();
                self.handle_line(line, workload, clock, tally)?;
            } else {
                data = self.complete_partial_line(data, workload, clock, tally)?;
            }
        }
        Ok(())
    }

    /// Completes a line whose beginning was received earlier; returns the data after it.
    fn complete_partial_line<'d, W: Workload>(
        &mut self,
        data: &'d [u8],
        workload: &mut W,
        clock: &Clock,
        tally: &mut Tally,
    ) -> Result<&'d [u8], Error> {
        let mut whole_line = std::mem::take(&mut self.partial_line);
        let partial_bytes = whole_line.len();
        let line_bytes_max = data.len().min(REPLY_LINE_BYTES_MAX);
        whole_line.extend_from_slice(data.get(..line_bytes_max).unwrap_or_default());
        match text::take_line(&whole_line).map_err(|_| unexpected_reply(&whole_line))? {
            None => {
                self.partial_line = whole_line;
                Ok(&[])
            }
            Some((line, line_bytes)) => {
                self.handle_line(line, workload, clock, tally)?;
                whole_line.clear();
                self.partial_line = whole_line;
                Ok(data.get(line_bytes - partial_bytes..).unwrap_or_default())
            }
        }
    }

    /// Consumes bytes of the current value and returns those after it.
    fn consume_value<'d, W: Workload>(
        &mut self,
        data: &'d [u8],
        workload: &mut W,
        clock: &Clock,
        tally: &mut Tally,
    ) -> Result<&'d [u8], Error> {
        let ParserState::Value {
            id,
            bytes,
            matched_bytes,
            is_correct,
        } = self.state
        else {
            return Ok(data);
        };
        let (value_data, rest) = data.split_at(data.len().min(bytes + 2 - matched_bytes));
        let body = value_data
            .get(..value_data.len().min(bytes.saturating_sub(matched_bytes)))
            .unwrap_or_default();
        let line_end_data = value_data.get(body.len()..).unwrap_or_default();
        if b"\r\n"
            .get(matched_bytes.saturating_sub(bytes)..)
            .is_some_and(|expected| !expected.starts_with(line_end_data))
        {
            return Err(unexpected_reply(line_end_data));
        }
        // The body is empty if only the line end of the value is outstanding.
        let is_match =
            body.is_empty() || self.check.matches(workload.value(id), matched_bytes, body);
        if !(is_correct && is_match) && tally.first_difference.is_none() {
            tally.first_difference = Some(describe_difference(
                workload,
                id,
                (bytes, matched_bytes),
                body,
            ));
        }
        let is_correct = is_correct && is_match;
        let matched_bytes = matched_bytes + value_data.len();
        if matched_bytes < bytes + 2 {
            self.state = ParserState::Value {
                id,
                bytes,
                matched_bytes,
                is_correct,
            };
            return Ok(rest);
        }
        self.state = ParserState::Line;
        let result = if is_correct {
            KeyResult::Hit
        } else {
            KeyResult::Wrong
        };
        self.report_result(id, result, workload, tally);
        if self.dialect == Dialect::Meta {
            // A text request ends with its `END`, a meta request with its only value.
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
        workload.on_result(self.index, id, result);
    }

    fn handle_line<W: Workload>(
        &mut self,
        line: &[u8],
        workload: &mut W,
        clock: &Clock,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        let Some(request) = self.requests.front().copied() else {
            return Err(unexpected_reply(line));
        };
        let reply = match self.dialect {
            Dialect::Text => parse_text_reply(line),
            Dialect::Meta => parse_meta_reply(line),
        };
        match (reply.ok_or_else(|| unexpected_reply(line))?, request.kind) {
            (Reply::Done, RequestKind::Write) => {
                self.finish_request(KeyResult::Stored, workload, clock, tally);
            }
            (Reply::NotDone, RequestKind::Write) => {
                if tally.first_refusal.is_none() {
                    tally.first_refusal = Some(excerpt(line));
                }
                self.finish_request(KeyResult::Refused, workload, clock, tally);
            }
            (Reply::Value { key, bytes }, RequestKind::Get) => {
                return self.start_value(key, bytes, workload, tally);
            }
            (Reply::End, RequestKind::Get) => {
                self.finish_request(KeyResult::Miss, workload, clock, tally);
            }
            _ => return Err(unexpected_reply(line)),
        }
        Ok(())
    }

    /// The head of a value: keys of a text request before it are misses, a meta request has one key.
    fn start_value<W: Workload>(
        &mut self,
        key: Option<&[u8]>,
        bytes: usize,
        workload: &mut W,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        while let Some(request) = self.requests.front_mut().filter(|request| request.keys > 0) {
            request.keys -= 1;
            let id = self.keys.pop_front().unwrap_or_default();
            self.key.clear();
            workload.write_key(id, &mut self.key);
            if key.is_none_or(|key| self.key == key) {
                self.state = ParserState::Value {
                    id,
                    bytes,
                    matched_bytes: 0,
                    is_correct: workload.value(id).len() == bytes,
                };
                return Ok(());
            }
            self.report_result(id, KeyResult::Miss, workload, tally);
        }
        Err(unexpected_reply(key.unwrap_or_default()))
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
        for _ in 0..request.keys {
            if let Some(id) = self.keys.pop_front() {
                self.report_result(id, result, workload, tally);
            }
        }
        if clock.is_in_window(request.intended_ns) {
            tally.record_reply(
                (request.intended_ns, request.sent_ns, clock.now_ns),
                clock.delay_ns,
            );
        }
    }
}

impl Check {
    /// Whether `body`, which starts `matched_bytes` bytes into a value, agrees with what was expected there.
    fn matches(self, expected: &[u8], matched_bytes: usize, body: &[u8]) -> bool {
        let Some(expected_slice) = expected.get(matched_bytes..matched_bytes + body.len()) else {
            return false;
        };
        if self == Self::Full || expected.len() <= 4 * EDGE_BYTES {
            return expected_slice == body;
        }
        let head_bytes = EDGE_BYTES.saturating_sub(matched_bytes).min(body.len());
        let tail_bytes = (matched_bytes + body.len())
            .saturating_sub(expected.len() - EDGE_BYTES)
            .min(body.len());
        let offset = body.len() - tail_bytes;
        expected_slice.get(..head_bytes) == body.get(..head_bytes)
            && expected_slice.get(offset..) == body.get(offset..)
    }
}

/// Describes how a value differs from the stored one.
fn describe_difference<W: Workload>(
    workload: &W,
    id: u64,
    (bytes, matched_bytes): (usize, usize),
    body: &[u8],
) -> String {
    let (mut key, expected) = (Vec::new(), workload.value(id));
    workload.write_key(id, &mut key);
    let expected_rest = expected
        .get(matched_bytes.min(expected.len())..)
        .unwrap_or_default();
    let offset = matched_bytes
        + expected_rest
            .iter()
            .zip(body)
            .take_while(|(a, b)| a == b)
            .count();
    let (key, stored) = (excerpt(&key), expected.len());
    format!("{key:?}: received {bytes} bytes, stored {stored}; they differ from byte {offset}")
}

/// What a reply line means for the oldest request.
enum Reply<'a> {
    /// The write took effect.
    Done,
    /// It did not.
    NotDone,
    /// A value of this many bytes follows; meta replies have no key.
    Value { key: Option<&'a [u8]>, bytes: usize },
    /// No (further) value.
    End,
}

fn parse_text_reply(line: &[u8]) -> Option<Reply<'_>> {
    Some(match text::parse(line).ok()? {
        text::Line::Value {
            key, value_bytes, ..
        } => Reply::Value {
            key: Some(key),
            bytes: usize::try_from(value_bytes).ok()?,
        },
        text::Line::End => Reply::End,
        text::Line::Status(Status::Done) | text::Line::Number(_) => Reply::Done,
        text::Line::Status(_) | text::Line::Refused(_) => Reply::NotDone,
        text::Line::Version(_) | text::Line::Stat(..) => return None,
    })
}

fn parse_meta_reply(line: &[u8]) -> Option<Reply<'_>> {
    Some(match meta::parse(line).ok()? {
        meta::Line::Reply {
            code, value_bytes, ..
        } => match code {
            meta::Code::Value => Reply::Value {
                key: None,
                bytes: usize::try_from(value_bytes).ok()?,
            },
            meta::Code::Miss => Reply::End,
            meta::Code::Done => Reply::Done,
            _ => Reply::NotDone,
        },
        meta::Line::Refused(_) => Reply::NotDone,
    })
}

fn unexpected_reply(line: &[u8]) -> Error {
    Error::Unexpected(excerpt(line))
}

fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(line.get(..line.len().min(100)).unwrap_or_default()).into_owned()
}
