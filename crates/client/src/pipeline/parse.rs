//! Reading replies: one step a line or a body, each step resumable when bytes run out.

use glasscache_protocol::meta::reply::{self as meta, Code};
use glasscache_protocol::text::reply::{self as text, Blame, Line, Refused, ReplyFault, Status};

use super::reserved;
use super::{
    Expect, Fault, Found, KeyList, KeyMark, MetaReply, Pipeline, Progress, Refusal, Reply, Scan,
};

/// Most rows of a `stats` reply and most refusals of one batch that are kept.
const ROWS_MAX: usize = 100_000;

/// What every reply of values ends with.
const END: &[u8] = b"END\r\n";

/// The result of one parsing step.
enum Step {
    /// More of this reply follows.
    Again,
    /// This many bytes are missing.
    Missing(usize),
    /// The reply is complete.
    Whole(Reply),
}

impl Pipeline {
    pub(super) fn advance(&mut self) -> Result<Progress, Fault> {
        if self.in_flight.is_empty() {
            return if self.inbox.is_empty() {
                Ok(Progress::Idle)
            } else {
                Err(Fault::Unsolicited)
            };
        }
        let is_within = self.scan.body.is_some() || self.scan.body_taken;
        if self.inbox.is_empty() && !is_within {
            return Ok(Progress::Incomplete(1)); // as each time before the first receive
        }
        loop {
            self.take_whole_values();
            match self.step()? {
                Step::Again => {}
                Step::Missing(bytes) => return Ok(Progress::Incomplete(bytes)),
                Step::Whole(reply) => return Ok(Progress::Whole(reply)),
            }
        }
    }

    /// Parses the values that were received whole and in the order requested, as nearly all are; anything
    /// else is left to [`Self::step`], which reports what is wrong.
    fn take_whole_values(&mut self) {
        let Some(Expect::Values(keys)) = self.in_flight.front() else {
            return;
        };
        if self.scan.body.is_some() || self.scan.body_taken {
            return;
        }
        while let Some(key) = keys.get(self.scan.key_cursor) {
            let rest = self.inbox.rest(self.scan.at);
            let Some((flags, value_bytes, head_bytes)) = plain_head(rest, key) else {
                return;
            };
            let end = head_bytes.saturating_add(value_bytes);
            if reserved::may_be(value_bytes) && self.is_reserved(head_bytes, value_bytes) {
                return;
            }
            if value_bytes as u64 > self.value_bytes_max
                || rest.get(end..end.saturating_add(2)) != Some(b"\r\n")
            {
                return;
            }
            self.scan.found.push(Found {
                key_index: self.scan.key_cursor,
                flags,
                cas: 0,
                value_bytes,
                at: self.scan.at + head_bytes,
            });
            self.scan.key_cursor += 1;
            self.scan.at += end + 2;
        }
    }

    /// Whether the value at this offset after what was parsed is a reservation.
    fn is_reserved(&self, head_bytes: usize, value_bytes: usize) -> bool {
        let body = self.inbox.slice(self.scan.at + head_bytes, value_bytes);
        body.is_some_and(|body| reserved::token_of(body).is_some())
    }

    fn step(&mut self) -> Result<Step, Fault> {
        if self.scan.body_taken {
            return self.end_of_taken_body();
        }
        if let Some(found) = self.scan.body {
            return self.body_step(found);
        }
        let rest = self.inbox.rest(self.scan.at);
        if rest.starts_with(END) && matches!(self.in_flight.front(), Some(Expect::Values(_))) {
            self.scan.at += END.len();
            return Ok(Step::Whole(Reply::Values));
        }
        let Some((line, taken)) = text::line(rest)? else {
            return Ok(Step::Missing(1));
        };
        let after = self.scan.at + taken;
        let step = match self.in_flight.front_mut() {
            Some(Expect::Values(keys)) => {
                let line = text::parse(line)?;
                self.scan.value(&line, keys, after, self.value_bytes_max)?
            }
            Some(Expect::Line) => Step::Whole(one_line(&text::parse(line)?)?),
            Some(Expect::Rows) => self.scan.row(&text::parse(line)?)?,
            Some(Expect::Probe) => match meta::parse(line)? {
                meta::Line::Reply {
                    code: Code::Noop, ..
                } => Step::Whole(Reply::Probe(true)),
                meta::Line::Refused(_) => Step::Whole(Reply::Probe(false)),
                meta::Line::Reply { .. } => return Err(ReplyFault::Unexpected.into()),
            },
            Some(Expect::Login) => match text::parse(line)? {
                Line::Status(Status::Done) => Step::Whole(Reply::Login(None)),
                Line::Refused(refused) => Step::Whole(Reply::Login(Some(owned(&refused)))),
                _ => return Err(ReplyFault::Unexpected.into()),
            },
            Some(&mut Expect::Meta { opaque, key }) => {
                let limit = self.value_bytes_max;
                let (reply, found) = meta_line(line, (opaque, key), after, limit)?;
                match (reply, found) {
                    (Reply::Meta(meta), Some(found)) => {
                        self.scan.meta = Some(meta);
                        self.scan.body = Some(found);
                        Step::Again
                    }
                    (reply, _) => Step::Whole(reply),
                }
            }
            Some(&mut Expect::Quiet { first, count }) => {
                self.scan.failed_reply(&meta::parse(line)?, first, count)?
            }
            None => return Err(Fault::Unsolicited),
        };
        self.scan.at = after;
        Ok(step)
    }

    /// Checks whether the body of a value is complete, and ends at its announced length.
    fn body_step(&mut self, found: Found) -> Result<Step, Fault> {
        let end = found.at.saturating_add(found.value_bytes);
        let Some(line_end) = self.inbox.slice(end, 2) else {
            return Ok(Step::Missing(end + 2 - self.inbox.len()));
        };
        if line_end != b"\r\n" {
            return Err(Fault::WrongLength);
        }
        self.scan.body = None;
        let is_reserved = reserved::may_be(found.value_bytes) && {
            let body = self.inbox.slice(found.at, found.value_bytes);
            body.is_some_and(|body| reserved::token_of(body).is_some())
        };
        self.scan.at = end + 2;
        if is_reserved {
            self.scan.reservation = Some(found);
            if let Some(meta) = &mut self.scan.meta {
                meta.code = Code::Miss;
            }
        } else {
            self.scan.found.push(found);
        }
        Ok(self
            .scan
            .meta
            .map_or(Step::Again, |meta| Step::Whole(Reply::Meta(meta))))
    }

    /// The body went straight to the caller: only its line end is still checked.
    fn end_of_taken_body(&mut self) -> Result<Step, Fault> {
        let Some(line_end) = self.inbox.slice(0, 2) else {
            return Ok(Step::Missing(2 - self.inbox.len()));
        };
        if line_end != b"\r\n" {
            return Err(Fault::WrongLength);
        }
        self.scan.body_taken = false;
        self.scan.at = 2;
        Ok(self
            .scan
            .meta
            .map_or(Step::Again, |meta| Step::Whole(Reply::Meta(meta))))
    }
}

impl Scan {
    /// Takes the head of a value, or what ends them.
    fn value(
        &mut self,
        line: &Line<'_>,
        keys: &mut KeyList,
        after: usize,
        value_bytes_max: u64,
    ) -> Result<Step, Fault> {
        let &Line::Value {
            key,
            flags,
            value_bytes,
            cas,
        } = line
        else {
            return end_of_values(line);
        };
        let key_index = keys.find(key, self.key_cursor).ok_or(Fault::WrongKey)?;
        let is_ahead = key_index >= self.key_cursor;
        if !is_ahead && self.found.iter().any(|f| f.key_index == key_index) {
            return Err(Fault::WrongKey);
        }
        self.key_cursor = key_index + 1;
        self.body = Some(Found {
            key_index,
            flags,
            cas: cas.unwrap_or_default(),
            value_bytes: bounded(value_bytes, value_bytes_max)?,
            at: after,
        });
        Ok(Step::Again)
    }

    /// Takes a row of statistics, or what ends them.
    fn row(&mut self, line: &Line<'_>) -> Result<Step, Fault> {
        Ok(match line {
            Line::Stat(name, value) if self.rows.len() < ROWS_MAX => {
                self.rows.push((lossy(name), lossy(value)));
                Step::Again
            }
            Line::Stat(..) => return Err(Fault::TooManyRows),
            Line::End => Step::Whole(Reply::Rows(std::mem::take(&mut self.rows))),
            // `stats reset` and `stats detail on` respond with one word and no rows.
            Line::Status(Status::Done) if self.rows.is_empty() => {
                Step::Whole(Reply::Rows(Vec::new()))
            }
            Line::Refused(refused) => Step::Whole(Reply::Refused(owned(refused))),
            _ => return Err(ReplyFault::Unexpected.into()),
        })
    }

    /// Takes the failure of one of `count` quiet requests, or the `MN` after them.
    fn failed_reply(
        &mut self,
        line: &meta::Line<'_>,
        first: u32,
        count: u32,
    ) -> Result<Step, Fault> {
        match line {
            meta::Line::Reply {
                code: Code::Noop, ..
            } => {
                let failed_replies = std::mem::take(&mut self.failed_replies);
                let refusals = std::mem::take(&mut self.refusals);
                return Ok(Step::Whole(Reply::Quiet(failed_replies, refusals)));
            }
            meta::Line::Reply {
                code: Code::Value, ..
            } => return Err(ReplyFault::Unexpected.into()),
            meta::Line::Reply { code, flags, .. } => {
                let index = flags.opaque.map(|opaque| opaque.wrapping_sub(first));
                let index = index.filter(|&index| index < count);
                let index = index.ok_or(Fault::WrongOpaque)?;
                self.failed_replies.push((index as usize, *code));
            }
            // A batch that the server does not understand has no `MN` to wait for.
            meta::Line::Refused(refused) if refused.blame == Blame::Command => {
                return Err(ReplyFault::Unexpected.into());
            }
            meta::Line::Refused(refused) if self.refusals.len() < count as usize => {
                self.refusals.push(owned(refused));
            }
            meta::Line::Refused(_) => return Err(Fault::TooManyRows),
        }
        Ok(Step::Again)
    }
}

/// Flags, length and length of the line, if `VALUE key flags length` is a whole line at the front.
fn plain_head(rest: &[u8], key: &[u8]) -> Option<(u32, usize, usize)> {
    let after = rest.strip_prefix(b"VALUE ")?.strip_prefix(key)?;
    let (flags, after) = digits(after.strip_prefix(b" ")?)?;
    let (value_bytes, after) = digits(after.strip_prefix(b" ")?)?;
    let after = after.strip_prefix(b"\r\n")?;
    Some((flags, value_bytes as usize, rest.len() - after.len()))
}

/// The number at the front and what follows it, if it has 32 bits and more bytes follow it.
fn digits(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let digit_of = |byte: &u8| Some(byte.wrapping_sub(b'0')).filter(|digit| *digit <= 9);
    let (first, mut rest) = bytes.split_first()?;
    let mut number = u64::from(digit_of(first)?);
    loop {
        let (byte, after) = rest.split_first()?;
        let Some(digit) = digit_of(byte) else {
            return Some((number as u32, rest));
        };
        number = number * 10 + u64::from(digit);
        if number > u32::MAX.into() {
            return None;
        }
        rest = after;
    }
}

fn end_of_values(line: &Line<'_>) -> Result<Step, Fault> {
    match line {
        Line::End => Ok(Step::Whole(Reply::Values)),
        Line::Refused(refused) => Ok(Step::Whole(Reply::Refused(owned(refused)))),
        _ => Err(ReplyFault::Unexpected.into()),
    }
}

fn one_line(line: &Line<'_>) -> Result<Reply, Fault> {
    Ok(match line {
        Line::Status(status) => Reply::Status(*status),
        Line::Number(number) => Reply::Number(*number),
        Line::Version(version) => Reply::Version(lossy(version)),
        Line::Refused(refused) => Reply::Refused(owned(refused)),
        Line::Value { .. } | Line::End | Line::Stat(..) => {
            return Err(ReplyFault::Unexpected.into());
        }
    })
}

fn meta_line(
    line: &[u8],
    (opaque, key): (u32, KeyMark),
    after: usize,
    limit: u64,
) -> Result<(Reply, Option<Found>), Fault> {
    let (code, value_bytes, flags) = match meta::parse(line)? {
        meta::Line::Refused(refused) => return Ok((Reply::Refused(owned(&refused)), None)),
        meta::Line::Reply {
            code: Code::Noop, ..
        } => return Err(ReplyFault::Unexpected.into()),
        meta::Line::Reply {
            code,
            value_bytes,
            flags,
        } => (code, value_bytes, flags),
    };
    // Older servers reply to a missed `mg` with a bare `EN`; everything else returns the opaque.
    let is_bare_miss = code == Code::Miss && flags.opaque.is_none();
    if !is_bare_miss && flags.opaque != Some(opaque) {
        return Err(Fault::WrongOpaque);
    }
    if flags.key.is_some_and(|named| KeyMark::of(named) != key) {
        return Err(Fault::WrongKey);
    }
    let reply = MetaReply {
        code,
        ttl_s: flags.ttl_s,
        last_access_s: flags.last_access_s,
        was_hit: flags.was_hit,
        cas: flags.cas,
        won: flags.won,
        stale: flags.stale,
    };
    let found = match code {
        Code::Value => Some(Found {
            key_index: 0,
            flags: flags.client_flags,
            cas: flags.cas.unwrap_or_default(),
            value_bytes: bounded(value_bytes, limit)?,
            at: after,
        }),
        _ => None,
    };
    Ok((Reply::Meta(reply), found))
}

fn bounded(bytes: u64, limit: u64) -> Result<usize, Fault> {
    if bytes > limit {
        return Err(Fault::TooLong { bytes, limit });
    }
    usize::try_from(bytes).map_err(|_| Fault::TooLong { bytes, limit })
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn owned(refused: &Refused<'_>) -> Refusal {
    Refusal {
        blame: refused.blame,
        message: lossy(refused.message),
    }
}
