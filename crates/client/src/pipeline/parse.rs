//! Reading replies: one step a line or a body, each step resumable when bytes run out.

use glasscache_protocol::meta::reply::{self as meta_protocol, MetaCode};
use glasscache_protocol::text::reply::{
    self as text_protocol, ErrorLine, ErrorLineKind, Line, ReplyFault, WriteStatus,
};

use super::reserved;
use super::{
    ExpectedReply, Fault, FoundValue, KeyHash, KeyList, MetaReply, Pipeline, Refusal, Reply,
    ReplyProgress, ReplyScan,
};

/// Most rows of a `stats` reply and most refusals of one batch that are kept.
pub(super) const ROWS_MAX: usize = 100_000;

/// What every reply of values ends with.
const END_LINE: &[u8] = b"END\r\n";

/// The result of one parsing step.
pub(super) enum ParseStep {
    /// More of this reply follows.
    Continue,
    /// This many bytes are missing.
    Missing(usize),
    /// The reply is complete.
    Complete(Reply),
}

impl Pipeline {
    pub(super) fn advance(&mut self) -> Result<ReplyProgress, Fault> {
        if self.in_flight.is_empty() {
            return if self.receive_buffer.is_empty() {
                Ok(ReplyProgress::Idle)
            } else {
                Err(Fault::Unsolicited)
            };
        }
        let is_inside_body = self.scan.incomplete_value.is_some() || self.scan.is_body_external;
        if self.receive_buffer.is_empty() && !is_inside_body {
            return Ok(ReplyProgress::Incomplete(1)); // as each time before the first receive
        }
        loop {
            if self.parse_complete_values() {
                return Ok(ReplyProgress::Complete(Reply::Values));
            }
            match self.parse_step()? {
                ParseStep::Continue => {}
                ParseStep::Missing(missing_bytes) => {
                    return Ok(ReplyProgress::Incomplete(missing_bytes));
                }
                ParseStep::Complete(reply) => return Ok(ReplyProgress::Complete(reply)),
            }
        }
    }

    /// Parses the values that were received whole and in the order requested, as nearly all are, and the line after the
    /// last one: true if the reply is complete. Anything else is left to [`Self::parse_step`], which reports what is
    /// wrong.
    #[inline]
    fn parse_complete_values(&mut self) -> bool {
        let Some(ExpectedReply::Values(keys)) = self.in_flight.front() else {
            return false;
        };
        if self.scan.incomplete_value.is_some() || self.scan.is_body_external {
            return false;
        }
        while let Some(key) = keys.get(self.scan.key_cursor) {
            let unparsed = self.receive_buffer.slice_from(self.scan.offset);
            let Some((flags, value_bytes, head_bytes)) = parse_simple_value_head(unparsed, key)
            else {
                break;
            };
            let end = head_bytes.saturating_add(value_bytes);
            if reserved::may_be_reservation(value_bytes)
                && self.is_reservation(head_bytes, value_bytes)
            {
                return false;
            }
            if value_bytes as u64 > self.value_bytes_max
                || unparsed.get(end..end.saturating_add(2)) != Some(b"\r\n")
            {
                return false;
            }
            self.scan.values.push(FoundValue {
                key_index: self.scan.key_cursor,
                flags,
                cas: 0,
                value_bytes,
                offset: self.scan.offset + head_bytes,
            });
            self.scan.key_cursor += 1;
            self.scan.offset += end + 2;
        }
        let is_complete = self.receive_buffer.slice_from(self.scan.offset).starts_with(END_LINE);
        if is_complete {
            self.scan.offset += END_LINE.len();
        }
        is_complete
    }

    /// Whether the value at this offset after what was parsed is a reservation.
    fn is_reservation(&self, head_bytes: usize, value_bytes: usize) -> bool {
        let body = self.receive_buffer.slice(self.scan.offset + head_bytes, value_bytes);
        body.is_some_and(|body| reserved::token_of(body).is_some())
    }

    fn parse_step(&mut self) -> Result<ParseStep, Fault> {
        if let Some(ExpectedReply::Binary(_)) = self.in_flight.front() {
            return self.parse_binary_step();
        }
        if self.scan.is_body_external {
            return self.finish_external_body();
        }
        if let Some(value) = self.scan.incomplete_value {
            return self.finish_body(value);
        }
        let unparsed = self.receive_buffer.slice_from(self.scan.offset);
        let Some((line, line_bytes)) = text_protocol::take_line(unparsed)? else {
            return Ok(ParseStep::Missing(1));
        };
        let next_offset = self.scan.offset + line_bytes;
        let step = match self.in_flight.front_mut() {
            Some(ExpectedReply::Values(keys)) => self.scan.parse_value_head(
                &text_protocol::parse(line)?,
                keys,
                next_offset,
                self.value_bytes_max,
            )?,
            Some(ExpectedReply::Line) => {
                ParseStep::Complete(reply_of_line(&text_protocol::parse(line)?)?)
            }
            Some(ExpectedReply::Rows) => self.scan.parse_stat_row(&text_protocol::parse(line)?)?,
            Some(ExpectedReply::Probe) => match meta_protocol::parse(line)? {
                meta_protocol::Line::Reply { code: MetaCode::Noop, .. } => {
                    ParseStep::Complete(Reply::Probe(true))
                }
                meta_protocol::Line::Error(_) => ParseStep::Complete(Reply::Probe(false)),
                meta_protocol::Line::Reply { .. } => return Err(ReplyFault::Unexpected.into()),
            },
            Some(ExpectedReply::Login) => match text_protocol::parse(line)? {
                Line::Status(WriteStatus::Done) => ParseStep::Complete(Reply::Login(None)),
                Line::Error(error_line) => {
                    ParseStep::Complete(Reply::Login(Some(owned_refusal(&error_line))))
                }
                _ => return Err(ReplyFault::Unexpected.into()),
            },
            Some(&mut ExpectedReply::Meta { opaque, key_hash }) => {
                let value_bytes_max = self.value_bytes_max;
                let (reply, value) =
                    parse_meta_reply(line, (opaque, key_hash), next_offset, value_bytes_max)?;
                match (reply, value) {
                    (Reply::Meta(meta), Some(value)) => {
                        self.scan.meta = Some(meta);
                        self.scan.incomplete_value = Some(value);
                        ParseStep::Continue
                    }
                    (reply, _) => ParseStep::Complete(reply),
                }
            }
            Some(&mut ExpectedReply::Quiet { first_opaque, count }) => {
                self.scan.parse_failed_reply(&meta_protocol::parse(line)?, first_opaque, count)?
            }
            Some(ExpectedReply::Binary(_)) | None => return Err(Fault::Unsolicited),
        };
        self.scan.offset = next_offset;
        Ok(step)
    }

    /// Takes a value whose body is complete: among the values, or as the reservation that it is; true for a value.
    pub(super) fn add_value(&mut self, value: FoundValue) -> bool {
        self.scan.incomplete_value = None;
        let is_reservation = reserved::may_be_reservation(value.value_bytes) && {
            let body = self.receive_buffer.slice(value.offset, value.value_bytes);
            body.is_some_and(|body| reserved::token_of(body).is_some())
        };
        if is_reservation {
            self.scan.reservation = Some(value);
        } else {
            self.scan.values.push(value);
        }
        !is_reservation
    }

    /// Checks whether the body of a value is complete, and ends at its announced length.
    fn finish_body(&mut self, value: FoundValue) -> Result<ParseStep, Fault> {
        let end = value.offset.saturating_add(value.value_bytes);
        let Some(line_end) = self.receive_buffer.slice(end, 2) else {
            return Ok(ParseStep::Missing(end + 2 - self.receive_buffer.len()));
        };
        if line_end != b"\r\n" {
            return Err(Fault::WrongLength);
        }
        self.scan.offset = end + 2;
        if !self.add_value(value)
            && let Some(meta) = &mut self.scan.meta
        {
            meta.code = MetaCode::Miss;
        }
        Ok(self
            .scan
            .meta
            .map_or(ParseStep::Continue, |meta| ParseStep::Complete(Reply::Meta(meta))))
    }

    /// The body went straight to the caller: only its line end is still checked.
    fn finish_external_body(&mut self) -> Result<ParseStep, Fault> {
        let Some(line_end) = self.receive_buffer.slice(0, 2) else {
            return Ok(ParseStep::Missing(2 - self.receive_buffer.len()));
        };
        if line_end != b"\r\n" {
            return Err(Fault::WrongLength);
        }
        self.scan.is_body_external = false;
        self.scan.offset = 2;
        Ok(self
            .scan
            .meta
            .map_or(ParseStep::Continue, |meta| ParseStep::Complete(Reply::Meta(meta))))
    }
}

impl ReplyScan {
    /// Takes the head of a value, or what ends them.
    fn parse_value_head(
        &mut self,
        parsed_line: &Line<'_>,
        keys: &mut KeyList,
        next_offset: usize,
        value_bytes_max: u64,
    ) -> Result<ParseStep, Fault> {
        let &Line::Value { key, flags, value_bytes, cas } = parsed_line else {
            return end_of_values(parsed_line);
        };
        let key_index = keys.find(key, self.key_cursor).ok_or(Fault::WrongKey)?;
        let is_ahead = key_index >= self.key_cursor;
        if !is_ahead && self.values.iter().any(|found| found.key_index == key_index) {
            return Err(Fault::WrongKey);
        }
        self.key_cursor = key_index + 1;
        self.incomplete_value = Some(FoundValue {
            key_index,
            flags,
            cas: cas.unwrap_or_default(),
            value_bytes: checked_length(value_bytes, value_bytes_max)?,
            offset: next_offset,
        });
        Ok(ParseStep::Continue)
    }

    /// Takes a row of statistics, or what ends them.
    fn parse_stat_row(&mut self, parsed_line: &Line<'_>) -> Result<ParseStep, Fault> {
        Ok(match parsed_line {
            Line::Stat(name, value) if self.rows.len() < ROWS_MAX => {
                self.rows.push((lossy_text(name), lossy_text(value)));
                ParseStep::Continue
            }
            Line::Stat(..) => return Err(Fault::TooManyRows),
            Line::End => ParseStep::Complete(Reply::Rows(std::mem::take(&mut self.rows))),
            // `stats reset` and `stats detail on` respond with one word and no rows.
            Line::Status(WriteStatus::Done) if self.rows.is_empty() => {
                ParseStep::Complete(Reply::Rows(Vec::new()))
            }
            Line::Error(error_line) => {
                ParseStep::Complete(Reply::Refused(owned_refusal(error_line)))
            }
            _ => return Err(ReplyFault::Unexpected.into()),
        })
    }

    /// Takes the failure of one of `count` quiet requests, or the `MN` after them.
    fn parse_failed_reply(
        &mut self,
        parsed_line: &meta_protocol::Line<'_>,
        first_opaque: u32,
        count: u32,
    ) -> Result<ParseStep, Fault> {
        match parsed_line {
            meta_protocol::Line::Reply { code: MetaCode::Noop, .. } => {
                let failed_replies = std::mem::take(&mut self.failed_replies);
                let refusals = std::mem::take(&mut self.refusals);
                return Ok(ParseStep::Complete(Reply::Quiet(failed_replies, refusals)));
            }
            meta_protocol::Line::Reply { code: MetaCode::Value, .. } => {
                return Err(ReplyFault::Unexpected.into());
            }
            meta_protocol::Line::Reply { code, flags: meta_flags, .. } => {
                let request_index =
                    meta_flags.opaque.map(|opaque| opaque.wrapping_sub(first_opaque));
                let request_index = request_index.filter(|&request_index| request_index < count);
                let request_index = request_index.ok_or(Fault::WrongOpaque)?;
                self.count_quiet_reply(count)?;
                self.failed_replies.push((request_index as usize, *code));
            }
            // A batch that the server does not understand has no `MN` to wait for.
            meta_protocol::Line::Error(error_line)
                if error_line.kind == ErrorLineKind::UnknownCommand =>
            {
                return Err(ReplyFault::Unexpected.into());
            }
            meta_protocol::Line::Error(error_line) => {
                self.count_quiet_reply(count)?;
                self.refusals.push(owned_refusal(error_line));
            }
        }
        Ok(ParseStep::Continue)
    }
}

/// Flags, length and length of the line, if `VALUE key flags length` is a whole line at the front.
#[inline]
fn parse_simple_value_head(unparsed: &[u8], key: &[u8]) -> Option<(u32, usize, usize)> {
    let remaining = unparsed.strip_prefix(b"VALUE ")?.strip_prefix(key)?;
    let (flags, remaining) = parse_digits(remaining.strip_prefix(b" ")?)?;
    let (value_bytes, remaining) = parse_digits(remaining.strip_prefix(b" ")?)?;
    let remaining = remaining.strip_prefix(b"\r\n")?;
    Some((flags, value_bytes as usize, unparsed.len() - remaining.len()))
}

/// The number at the front and what follows it, if it has 32 bits and more bytes follow it.
#[inline(always)]
fn parse_digits(text: &[u8]) -> Option<(u32, &[u8])> {
    const DIGITS_MAX: usize = 10;
    let mut number: u64 = 0;
    for (digit_count, byte) in text.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let number = u32::try_from(number).ok().filter(|_| digit_count > 0)?;
            return Some((number, text.get(digit_count..)?));
        }
        if digit_count == DIGITS_MAX {
            return None;
        }
        number = number * 10 + u64::from(digit);
    }
    None
}

fn end_of_values(parsed_line: &Line<'_>) -> Result<ParseStep, Fault> {
    match parsed_line {
        Line::End => Ok(ParseStep::Complete(Reply::Values)),
        Line::Error(error_line) => {
            Ok(ParseStep::Complete(Reply::Refused(owned_refusal(error_line))))
        }
        _ => Err(ReplyFault::Unexpected.into()),
    }
}

fn reply_of_line(parsed_line: &Line<'_>) -> Result<Reply, Fault> {
    Ok(match parsed_line {
        Line::Status(status) => Reply::Status(*status),
        Line::Number(number) => Reply::Number(*number),
        Line::Version(version) => Reply::Version(lossy_text(version)),
        Line::Error(error_line) => Reply::Refused(owned_refusal(error_line)),
        Line::Value { .. } | Line::End | Line::Stat(..) => {
            return Err(ReplyFault::Unexpected.into());
        }
    })
}

fn parse_meta_reply(
    line: &[u8],
    (opaque, key_hash): (u32, KeyHash),
    next_offset: usize,
    value_bytes_max: u64,
) -> Result<(Reply, Option<FoundValue>), Fault> {
    let (code, value_bytes, meta_flags) = match meta_protocol::parse(line)? {
        meta_protocol::Line::Error(error_line) => {
            return Ok((Reply::Refused(owned_refusal(&error_line)), None));
        }
        meta_protocol::Line::Reply { code: MetaCode::Noop, .. } => {
            return Err(ReplyFault::Unexpected.into());
        }
        meta_protocol::Line::Reply { code, value_bytes, flags: meta_flags } => {
            (code, value_bytes, meta_flags)
        }
    };
    // Older servers reply to a missed `mg` with a bare `EN`; everything else returns the opaque.
    let is_bare_miss = code == MetaCode::Miss && meta_flags.opaque.is_none();
    if !is_bare_miss && meta_flags.opaque != Some(opaque) {
        return Err(Fault::WrongOpaque);
    }
    if meta_flags.key.is_some_and(|named_key| KeyHash::of(named_key) != key_hash) {
        return Err(Fault::WrongKey);
    }
    let meta = MetaReply {
        code,
        ttl_s: meta_flags.ttl_s,
        last_access_s: meta_flags.last_access_s,
        was_hit: meta_flags.was_hit,
        cas: meta_flags.cas,
        client_flags: meta_flags.client_flags,
        won: meta_flags.won,
        stale: meta_flags.is_stale,
    };
    let value = match code {
        MetaCode::Value => Some(FoundValue {
            key_index: 0,
            flags: meta_flags.client_flags,
            cas: meta_flags.cas.unwrap_or_default(),
            value_bytes: checked_length(value_bytes, value_bytes_max)?,
            offset: next_offset,
        }),
        _ => None,
    };
    Ok((Reply::Meta(meta), value))
}

pub(super) fn checked_length(length: u64, length_max: u64) -> Result<usize, Fault> {
    if length > length_max {
        return Err(Fault::TooLong { bytes: length, limit: length_max });
    }
    usize::try_from(length).map_err(|_| Fault::TooLong { bytes: length, limit: length_max })
}

pub(super) fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn owned_refusal(error_line: &ErrorLine<'_>) -> Refusal {
    Refusal { kind: error_line.kind, message: lossy_text(error_line.message) }
}
