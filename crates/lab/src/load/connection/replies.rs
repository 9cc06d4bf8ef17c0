//! Replies on their way in: parsed where they lie, each value compared as it streams past.

use std::collections::VecDeque;

use crate::load::tally::Tally;
use crate::load::work::{Outcome, Request, Verb, Work};
use crate::load::{Check, Error};

/// How many bytes of each end of a value are compared by [`Check::Edges`].
const EDGE_BYTES: usize = 16;

/// Where the parser stands between two reads.
#[derive(Debug, Clone, Copy)]
enum Reading {
    Line,
    /// `seen` of `bytes` and the line end after them have gone by.
    Value {
        id: u64,
        bytes: usize,
        seen: usize,
        good: bool,
    },
}

/// When a run counts what it sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) now_ns: u64,
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    /// Judge a request by when it was due instead of when its answer came.
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

/// What one connection still waits for, and where in it the parser stands.
pub(super) struct Replies {
    /// Which connection this is, for the workload.
    pub(super) index: usize,
    check: Check,
    /// Asked and not answered, oldest first.
    pub(super) requests: VecDeque<Request>,
    /// Their keys.
    pub(super) keys: VecDeque<u64>,
    reading: Reading,
    /// A line whose end has not come yet.
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
            reading: Reading::Line,
            partial: Vec::new(),
            key: Vec::new(),
        }
    }

    /// Nothing is asked that is not answered to its last byte.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty() && matches!(self.reading, Reading::Line)
    }

    /// Parses what came and hands each complete reply to the workload.
    pub(super) fn feed<W: Work>(
        &mut self,
        mut data: &[u8],
        work: &mut W,
        clock: &Clock,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        while !data.is_empty() {
            if let Reading::Value { .. } = self.reading {
                data = self.value(data, work, tally);
                continue;
            }
            let Some(end) = memchr::memchr(b'\n', data) else {
                self.partial.extend_from_slice(data);
                break;
            };
            let (line, rest) = data.split_at(end + 1);
            data = rest;
            if self.partial.is_empty() {
                self.line(line, work, clock, tally)?;
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.line(&whole, work, clock, tally)?;
                whole.clear();
                self.partial = whole;
            }
        }
        Ok(())
    }

    /// Takes the bytes of the value in hand and returns those after it.
    fn value<'d, W: Work>(&mut self, data: &'d [u8], work: &mut W, tally: &mut Tally) -> &'d [u8] {
        let Reading::Value {
            id,
            bytes,
            seen,
            good,
        } = self.reading
        else {
            return data;
        };
        let (now, rest) = data.split_at(data.len().min(bytes + 2 - seen));
        let body = now
            .get(..now.len().min(bytes.saturating_sub(seen)))
            .unwrap_or_default();
        // Nothing of the value is left when only its line end was cut off from it.
        let agrees = body.is_empty() || self.check.agrees(work.value(id), seen, body);
        if !(good && agrees) && tally.difference.is_none() {
            tally.difference = Some(difference(work, id, (bytes, seen), body));
        }
        let good = good && agrees;
        let seen = seen + now.len();
        if seen < bytes + 2 {
            self.reading = Reading::Value {
                id,
                bytes,
                seen,
                good,
            };
            return rest;
        }
        self.reading = Reading::Line;
        let outcome = if good { Outcome::Hit } else { Outcome::Wrong };
        self.tell(id, outcome, work, tally);
        rest
    }

    fn tell<W: Work>(&self, id: u64, outcome: Outcome, work: &mut W, tally: &mut Tally) {
        tally.count(outcome);
        work.done(self.index, id, outcome);
    }

    fn line<W: Work>(
        &mut self,
        line: &[u8],
        work: &mut W,
        clock: &Clock,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        let line = line.strip_suffix(b"\r\n").unwrap_or(line);
        let Some(request) = self.requests.front().copied() else {
            return Err(Error::Unexpected(text_of(line)));
        };
        if request.verb == Verb::Write {
            let outcome = if is_success(line) {
                Outcome::Stored
            } else {
                Outcome::Refused
            };
            if outcome == Outcome::Refused && tally.refusal.is_none() {
                tally.refusal = Some(text_of(line));
            }
            self.end(outcome, work, clock, tally);
            return Ok(());
        }
        if let Some(header) = line.strip_prefix(b"VALUE ") {
            self.text_value(header, work, tally)
        } else if let Some(header) = line.strip_prefix(b"VA ") {
            let bytes = number(header.split(|&b| b == b' ').next());
            self.meta_value(
                bytes.ok_or_else(|| Error::Unexpected(text_of(line)))?,
                work,
                clock,
                tally,
            )
        } else if line == b"END" || line == b"EN" {
            self.end(Outcome::Miss, work, clock, tally);
            Ok(())
        } else {
            Err(Error::Unexpected(text_of(line)))
        }
    }

    /// `VALUE <key> <flags> <bytes>`: keys of this request before it are misses.
    fn text_value<W: Work>(
        &mut self,
        header: &[u8],
        work: &mut W,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        let mut words = header.split(|&b| b == b' ');
        let key = words.next().unwrap_or_default();
        let bytes = number(words.nth(1)).ok_or_else(|| Error::Unexpected(text_of(header)))?;
        while let Some(request) = self.requests.front_mut().filter(|request| request.keys > 0) {
            request.keys -= 1;
            let id = self.keys.pop_front().unwrap_or_default();
            self.key.clear();
            work.write_key(id, &mut self.key);
            if self.key == key {
                let good = work.value(id).len() == bytes;
                self.reading = Reading::Value {
                    id,
                    bytes,
                    seen: 0,
                    good,
                };
                return Ok(());
            }
            self.tell(id, Outcome::Miss, work, tally);
        }
        Err(Error::Unexpected(text_of(header)))
    }

    /// `VA <bytes>`: the whole reply to a meta get; the value that follows still has to be seen.
    fn meta_value<W: Work>(
        &mut self,
        bytes: usize,
        work: &mut W,
        clock: &Clock,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        let Some(id) = self.keys.pop_front() else {
            return Err(Error::Unexpected("VA".into()));
        };
        if let Some(request) = self.requests.front_mut() {
            request.keys = 0;
        }
        self.reading = Reading::Value {
            id,
            bytes,
            seen: 0,
            good: work.value(id).len() == bytes,
        };
        self.end(Outcome::Miss, work, clock, tally);
        Ok(())
    }

    /// Ends the oldest request; its keys not yet told get `outcome`.
    fn end<W: Work>(&mut self, outcome: Outcome, work: &mut W, clock: &Clock, tally: &mut Tally) {
        let Some(request) = self.requests.pop_front() else {
            return;
        };
        for _ in 0..request.keys {
            if let Some(id) = self.keys.pop_front() {
                self.tell(id, outcome, work, tally);
            }
        }
        if clock.counts(request.intended_ns) {
            tally.answered(request.intended_ns, request.sent_ns, clock.now_ns);
        }
    }
}

impl Check {
    /// Whether `body`, which starts `seen` bytes into a value, agrees with what was expected there.
    fn agrees(self, expected: &[u8], seen: usize, body: &[u8]) -> bool {
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

/// Says where a value differs from what was stored under its key.
fn difference<W: Work>(work: &W, id: u64, (bytes, seen): (usize, usize), body: &[u8]) -> String {
    let (mut key, expected) = (Vec::new(), work.value(id));
    work.write_key(id, &mut key);
    let rest = expected.get(seen.min(expected.len())..).unwrap_or_default();
    let at = seen + rest.iter().zip(body).take_while(|(a, b)| a == b).count();
    let (key, stored) = (text_of(&key), expected.len());
    format!("{key:?}: {bytes} bytes came for {stored} that were stored, different from byte {at}")
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
