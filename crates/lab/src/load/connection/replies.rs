//! The replies of a connection: parsed in place, each value compared while it is received.

use std::collections::VecDeque;

use crate::load::tally::Tally;
use crate::load::workload::{KeyResult, Request, RequestKind, Workload};
use crate::load::{Check, Error};

/// How many bytes of each end of a value are compared by [`Check::Edges`].
const EDGE_BYTES: usize = 16;

/// State of the parser between two reads.
#[derive(Debug, Clone, Copy)]
enum ParserState {
    Line,
    /// `seen` of `bytes` and of the line end after them have been received.
    Value {
        id: u64,
        bytes: usize,
        seen: usize,
        good: bool,
    },
}

/// The current time and the measured window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) now_ns: u64,
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    /// Whether a request counts by its intended time instead of by the time of its reply.
    pub(crate) by_intended: bool,
}

impl Clock {
    const fn counts(&self, intended_ns: u64) -> bool {
        let at = if self.by_intended {
            intended_ns
        } else {
            self.now_ns
        };
        at >= self.from_ns && at < self.until_ns
    }
}

/// The outstanding requests of one connection and the state of its reply parser.
pub(super) struct Replies {
    /// Index of the connection, for the workload.
    pub(super) index: usize,
    check: Check,
    /// Requests in flight, oldest first.
    pub(super) requests: VecDeque<Request>,
    /// Their keys.
    pub(super) keys: VecDeque<u64>,
    state: ParserState,
    /// The beginning of a line whose end has not been received.
    partial: Vec<u8>,
    key: Vec<u8>,
}

impl Replies {
    pub(super) fn new(index: usize, check: Check) -> Self {
        Self {
            index,
            check,
            requests: VecDeque::new(),
            keys: VecDeque::new(),
            state: ParserState::Line,
            partial: Vec::new(),
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
                data = self.value(data, workload, tally);
                continue;
            }
            let Some(end) = memchr::memchr(b'\n', data) else {
                self.partial.extend_from_slice(data);
                break;
            };
            let (line, rest) = data.split_at(end + 1);
            data = rest;
            if self.partial.is_empty() {
                self.line(line, workload, clock, tally)?;
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.line(&whole, workload, clock, tally)?;
                whole.clear();
                self.partial = whole;
            }
        }
        Ok(())
    }

    /// Consumes bytes of the current value and returns those after it.
    fn value<'d, W: Workload>(
        &mut self,
        data: &'d [u8],
        workload: &mut W,
        tally: &mut Tally,
    ) -> &'d [u8] {
        let ParserState::Value {
            id,
            bytes,
            seen,
            good,
        } = self.state
        else {
            return data;
        };
        let (now, rest) = data.split_at(data.len().min(bytes + 2 - seen));
        let body = now
            .get(..now.len().min(bytes.saturating_sub(seen)))
            .unwrap_or_default();
        // The body is empty if only the line end of the value is outstanding.
        let matches = body.is_empty() || self.check.matches(workload.value(id), seen, body);
        if !(good && matches) && tally.difference.is_none() {
            tally.difference = Some(difference(workload, id, (bytes, seen), body));
        }
        let good = good && matches;
        let seen = seen + now.len();
        if seen < bytes + 2 {
            self.state = ParserState::Value {
                id,
                bytes,
                seen,
                good,
            };
            return rest;
        }
        self.state = ParserState::Line;
        let result = if good {
            KeyResult::Hit
        } else {
            KeyResult::Wrong
        };
        self.report(id, result, workload, tally);
        rest
    }

    fn report<W: Workload>(&self, id: u64, result: KeyResult, workload: &mut W, tally: &mut Tally) {
        tally.count(result);
        workload.done(self.index, id, result);
    }

    fn line<W: Workload>(
        &mut self,
        line: &[u8],
        workload: &mut W,
        clock: &Clock,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        let line = line.strip_suffix(b"\r\n").unwrap_or(line);
        let Some(request) = self.requests.front().copied() else {
            return Err(Error::Unexpected(text_of(line)));
        };
        if request.kind == RequestKind::Write {
            let result = if is_success(line) {
                KeyResult::Stored
            } else {
                KeyResult::Refused
            };
            if result == KeyResult::Refused && tally.refusal.is_none() {
                tally.refusal = Some(text_of(line));
            }
            self.end(result, workload, clock, tally);
            return Ok(());
        }
        if let Some(header) = line.strip_prefix(b"VALUE ") {
            self.text_value(header, workload, tally)
        } else if let Some(header) = line.strip_prefix(b"VA ") {
            let bytes = number(header.split(|&b| b == b' ').next());
            self.meta_value(
                bytes.ok_or_else(|| Error::Unexpected(text_of(line)))?,
                workload,
                clock,
                tally,
            )
        } else if line == b"END" || line == b"EN" {
            self.end(KeyResult::Miss, workload, clock, tally);
            Ok(())
        } else {
            Err(Error::Unexpected(text_of(line)))
        }
    }

    /// `VALUE <key> <flags> <bytes>`: keys of this request before it are misses.
    fn text_value<W: Workload>(
        &mut self,
        header: &[u8],
        workload: &mut W,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        let mut words = header.split(|&b| b == b' ');
        let key = words.next().unwrap_or_default();
        let bytes = number(words.nth(1)).ok_or_else(|| Error::Unexpected(text_of(header)))?;
        while let Some(request) = self.requests.front_mut().filter(|request| request.keys > 0) {
            request.keys -= 1;
            let id = self.keys.pop_front().unwrap_or_default();
            self.key.clear();
            workload.write_key(id, &mut self.key);
            if self.key == key {
                let good = workload.value(id).len() == bytes;
                self.state = ParserState::Value {
                    id,
                    bytes,
                    seen: 0,
                    good,
                };
                return Ok(());
            }
            self.report(id, KeyResult::Miss, workload, tally);
        }
        Err(Error::Unexpected(text_of(header)))
    }

    /// `VA <bytes>`: the header of a meta get's reply; the value follows.
    fn meta_value<W: Workload>(
        &mut self,
        bytes: usize,
        workload: &mut W,
        clock: &Clock,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        let Some(id) = self.keys.pop_front() else {
            return Err(Error::Unexpected("VA".into()));
        };
        if let Some(request) = self.requests.front_mut() {
            request.keys = 0;
        }
        self.state = ParserState::Value {
            id,
            bytes,
            seen: 0,
            good: workload.value(id).len() == bytes,
        };
        self.end(KeyResult::Miss, workload, clock, tally);
        Ok(())
    }

    /// Completes the oldest request; keys without a result get `result`.
    fn end<W: Workload>(
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
                self.report(id, result, workload, tally);
            }
        }
        if clock.counts(request.intended_ns) {
            tally.record_reply(request.intended_ns, request.sent_ns, clock.now_ns);
        }
    }
}

impl Check {
    /// Whether `body`, which starts `seen` bytes into a value, agrees with what was expected there.
    fn matches(self, expected: &[u8], seen: usize, body: &[u8]) -> bool {
        let Some(expected_here) = expected.get(seen..seen + body.len()) else {
            return false;
        };
        if self == Self::Full || expected.len() <= 4 * EDGE_BYTES {
            return expected_here == body;
        }
        let head = EDGE_BYTES.saturating_sub(seen).min(body.len());
        let tail = (seen + body.len())
            .saturating_sub(expected.len() - EDGE_BYTES)
            .min(body.len());
        let at = body.len() - tail;
        expected_here.get(..head) == body.get(..head) && expected_here.get(at..) == body.get(at..)
    }
}

/// Describes how a value differs from the stored one.
fn difference<W: Workload>(
    workload: &W,
    id: u64,
    (bytes, seen): (usize, usize),
    body: &[u8],
) -> String {
    let (mut key, expected) = (Vec::new(), workload.value(id));
    workload.write_key(id, &mut key);
    let rest = expected.get(seen.min(expected.len())..).unwrap_or_default();
    let at = seen + rest.iter().zip(body).take_while(|(a, b)| a == b).count();
    let (key, stored) = (text_of(&key), expected.len());
    format!("{key:?}: received {bytes} bytes, stored {stored}; they differ from byte {at}")
}

fn is_success(line: &[u8]) -> bool {
    matches!(line, b"STORED" | b"HD" | b"DELETED" | b"TOUCHED" | b"OK")
        || (!line.is_empty() && line.iter().all(u8::is_ascii_digit))
}

fn number(word: Option<&[u8]>) -> Option<usize> {
    let word = word.filter(|word| (1..=10).contains(&word.len()))?;
    word.iter().try_fold(0, |sum, &b| {
        b.is_ascii_digit().then(|| sum * 10 + usize::from(b - b'0'))
    })
}

fn text_of(line: &[u8]) -> String {
    String::from_utf8_lossy(line.get(..line.len().min(100)).unwrap_or_default()).into_owned()
}
