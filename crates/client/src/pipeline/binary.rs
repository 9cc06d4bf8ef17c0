//! Reading replies in binary: one step a response, each matched by its opaque.

use glasscache_protocol::binary::reply::{ResponseHead, parse_head, parse_number};
use glasscache_protocol::binary::{HEADER_BYTES, Status, opcode};
use glasscache_protocol::meta::reply::MetaCode;
use glasscache_protocol::text::reply::{ErrorLineKind, REPLY_LINE_BYTES_MAX, WriteStatus};

use super::parse::{ParseStep, ROWS_MAX, checked_length, lossy_text};
use super::{Fault, FoundValue, KeyList, Pipeline, Refusal, Reply, ReplyScan};
use crate::pipeline::ExpectedReply;

/// What a request in binary in flight waits for.
#[derive(Debug)]
pub enum ExpectedBinaryReply {
    /// Values of keys, in their order, by opaques from `first_opaque` on.
    Values {
        /// The keys.
        keys: KeyList,
        /// Opaque of the first.
        first_opaque: u32,
        /// One read with one response; else quiet reads, and a noop with the opaque after theirs.
        is_single: bool,
        /// Whether CAS uniques were requested: a response always has one.
        wants_cas: bool,
    },
    /// One response without client flags: a status, a number, a version.
    Status {
        /// Its opaque.
        opaque: u32,
        /// The opcode of the request.
        opcode: u8,
    },
    /// Responses to quiet requests only where something went wrong, then that to a noop; opaques from `first_opaque`
    /// on.
    Quiet {
        /// Opaque of the first request.
        first_opaque: u32,
        /// How many requests there are.
        count: u32,
        /// Opaque of the noop.
        noop_opaque: u32,
    },
    /// Rows of statistics, then one without a name.
    Rows {
        /// The opaque of all of them.
        opaque: u32,
    },
}

impl ExpectedBinaryReply {
    pub(super) fn is_login(&self) -> bool {
        matches!(self, Self::Status { opcode: opcode::SASL_AUTH, .. })
    }
}

/// A response, its text included.
struct Response<'i> {
    head: ResponseHead<'i>,
    /// The opcode of its request, as if that were not quiet.
    opcode: u8,
    /// The value or the text of an error; empty for a value of an item, which may come later.
    text: &'i [u8],
}

impl Response<'_> {
    /// The refusal, unless the status is the outcome of a request that was executed.
    fn refusal(&self) -> Option<Refusal> {
        let kind = match self.head.status {
            Status::Success | Status::NotFound | Status::Exists | Status::NotStored => return None,
            Status::UnknownCommand => ErrorLineKind::UnknownCommand,
            Status::OutOfMemory => ErrorLineKind::Server,
            Status::TooLarge
            | Status::InvalidArguments
            | Status::NotANumber
            | Status::AuthFailure
            | Status::AuthContinue => ErrorLineKind::Client,
        };
        let message = match self.head.status {
            // The words by which a refusal for the length is known in all protocols.
            Status::TooLarge => "object too large for cache".to_owned(),
            status if self.text.is_empty() => lossy_text(status.text()),
            _ => lossy_text(self.text),
        };
        Some(Refusal { kind, message })
    }

    /// The outcome of a write that was executed, as text and meta name it: a condition of the verb itself that did not
    /// hold is "not stored".
    fn outcome(&self) -> WriteStatus {
        match (self.head.status, self.opcode) {
            (Status::Success, _) => WriteStatus::Done,
            (Status::Exists, opcode::ADD)
            | (Status::NotFound, opcode::REPLACE | opcode::APPEND | opcode::PREPEND)
            | (Status::NotStored, _) => WriteStatus::NotStored,
            (Status::Exists, _) => WriteStatus::Exists,
            _ => WriteStatus::NotFound,
        }
    }
}

impl Pipeline {
    /// Reads one response, or the rest of a value.
    pub(super) fn parse_binary_step(&mut self) -> Result<ParseStep, Fault> {
        if let Some(value) = self.scan.incomplete_value {
            return Ok(self.finish_binary_value(value));
        }
        let received = self.receive_buffer.slice_from(self.scan.offset);
        let Some((head, head_bytes)) = parse_head(received)? else {
            return Ok(ParseStep::Missing(HEADER_BYTES.saturating_sub(received.len()).max(1)));
        };
        let Some(ExpectedReply::Binary(expected)) = self.in_flight.front_mut() else {
            return Err(Fault::Unsolicited);
        };
        let value_offset = self.scan.offset + head_bytes;
        let request_opcode = opcode::without_quiet(head.request.opcode);
        if let ExpectedBinaryReply::Values { keys, first_opaque, wants_cas, .. } = expected
            && head.status == Status::Success
            && request_opcode != opcode::NOOP
        {
            let value_bytes_max = self.value_bytes_max;
            let mut value =
                self.scan.parse_binary_value_head(&head, keys, *first_opaque, value_bytes_max)?;
            value.offset = value_offset;
            if !*wants_cas {
                value.cas = 0;
            }
            self.scan.incomplete_value = Some(value);
            self.scan.offset = value_offset;
            return Ok(ParseStep::Continue);
        }
        let text_bytes = checked_length(head.value_bytes.into(), REPLY_LINE_BYTES_MAX as u64)?;
        let Some(text) = received.get(head_bytes..head_bytes + text_bytes) else {
            return Ok(ParseStep::Missing(head_bytes + text_bytes - received.len()));
        };
        let response = Response { head, opcode: request_opcode, text };
        let step = self.scan.parse_response(&response, expected)?;
        self.scan.offset = value_offset + text_bytes;
        Ok(step)
    }

    fn finish_binary_value(&mut self, value: FoundValue) -> ParseStep {
        let end = value.offset.saturating_add(value.value_bytes);
        if self.receive_buffer.len() < end {
            return ParseStep::Missing(end - self.receive_buffer.len());
        }
        self.scan.offset = end;
        self.add_value(value);
        match self.in_flight.front() {
            Some(ExpectedReply::Binary(ExpectedBinaryReply::Values {
                is_single: true, ..
            })) => ParseStep::Complete(Reply::Values),
            _ => ParseStep::Continue,
        }
    }
}

impl ReplyScan {
    /// The value that a head announces, if it is that of a key in the order of the request.
    fn parse_binary_value_head(
        &mut self,
        head: &ResponseHead<'_>,
        keys: &KeyList,
        first_opaque: u32,
        value_bytes_max: u64,
    ) -> Result<FoundValue, Fault> {
        let key_index = head.request.opaque.wrapping_sub(first_opaque) as usize;
        let key = keys.get(key_index).ok_or(Fault::WrongOpaque)?;
        if !opcode::returns_key(head.request.opcode)
            || head.key != key
            || key_index < self.key_cursor
        {
            return Err(Fault::WrongKey);
        }
        self.key_cursor = key_index + 1;
        Ok(FoundValue {
            key_index,
            flags: head.flags(),
            cas: head.cas,
            value_bytes: checked_length(head.value_bytes.into(), value_bytes_max)?,
            offset: 0,
        })
    }

    /// Takes a response without the value of an item.
    fn parse_response(
        &mut self,
        response: &Response<'_>,
        expected: &ExpectedBinaryReply,
    ) -> Result<ParseStep, Fault> {
        let opaque = response.head.request.opaque;
        match *expected {
            ExpectedBinaryReply::Values { ref keys, first_opaque, is_single, .. } => {
                let key_index = opaque.wrapping_sub(first_opaque) as usize;
                let is_end = response.opcode == opcode::NOOP && !is_single;
                let is_in_order = (self.key_cursor..=keys.len()).contains(&key_index);
                if !is_in_order || is_end != (key_index == keys.len()) {
                    return Err(Fault::WrongOpaque);
                }
                self.key_cursor = key_index + 1;
                self.refusals.extend(response.refusal());
                if !is_end && !is_single {
                    return Ok(ParseStep::Continue);
                }
                let refusal = std::mem::take(&mut self.refusals).into_iter().next();
                Ok(ParseStep::Complete(refusal.map_or(Reply::Values, Reply::Refused)))
            }
            ExpectedBinaryReply::Status { opaque: expected_opaque, opcode: expected_opcode } => {
                if opaque != expected_opaque || response.opcode != expected_opcode {
                    return Err(Fault::WrongOpaque);
                }
                single_reply(response).map(ParseStep::Complete)
            }
            ExpectedBinaryReply::Quiet { first_opaque, count, noop_opaque } => {
                self.parse_quiet_response(response, (first_opaque, count), noop_opaque)
            }
            ExpectedBinaryReply::Rows { opaque: expected_opaque } => {
                if opaque != expected_opaque || response.opcode != opcode::STAT {
                    return Err(Fault::WrongOpaque);
                }
                self.parse_binary_row(response)
            }
        }
    }

    /// Takes the response to one of `count` quiet requests, or to the noop after them.
    fn parse_quiet_response(
        &mut self,
        response: &Response<'_>,
        (first_opaque, count): (u32, u32),
        noop_opaque: u32,
    ) -> Result<ParseStep, Fault> {
        if response.opcode == opcode::NOOP {
            if response.head.request.opaque != noop_opaque {
                return Err(Fault::WrongOpaque);
            }
            let failed_replies = std::mem::take(&mut self.failed_replies);
            let refusals = std::mem::take(&mut self.refusals);
            return Ok(ParseStep::Complete(Reply::Quiet(failed_replies, refusals)));
        }
        let request_index = response.head.request.opaque.wrapping_sub(first_opaque);
        if request_index >= count {
            return Err(Fault::WrongOpaque);
        }
        self.count_quiet_reply(count)?;
        if let Some(refusal) = response.refusal() {
            self.refusals.push(refusal);
            return Ok(ParseStep::Continue);
        }
        let is_store = matches!(
            response.opcode,
            opcode::SET | opcode::ADD | opcode::REPLACE | opcode::APPEND | opcode::PREPEND
        );
        match response.outcome() {
            // A touch has no quiet form.
            WriteStatus::Done if response.opcode == opcode::TOUCH => {}
            WriteStatus::Done => return Err(Fault::WrongOpaque),
            // As in meta: a quiet removal, addition or touch of nothing is not reported.
            WriteStatus::NotFound if !is_store => {}
            outcome => self.failed_replies.push((request_index as usize, code_of(outcome))),
        }
        Ok(ParseStep::Continue)
    }

    /// Takes a row of statistics, or the empty one that ends them.
    fn parse_binary_row(&mut self, response: &Response<'_>) -> Result<ParseStep, Fault> {
        if response.head.status != Status::Success {
            let rows = std::mem::take(&mut self.rows);
            let refusal = response.refusal().unwrap_or_else(|| Refusal {
                kind: ErrorLineKind::Client,
                message: lossy_text(response.text),
            });
            drop(rows);
            return Ok(ParseStep::Complete(Reply::Refused(refusal)));
        }
        if response.head.key.is_empty() {
            return Ok(ParseStep::Complete(Reply::Rows(std::mem::take(&mut self.rows))));
        }
        if self.rows.len() >= ROWS_MAX {
            return Err(Fault::TooManyRows);
        }
        let name = lossy_text(response.head.key);
        self.rows.push((name, lossy_text(response.text)));
        Ok(ParseStep::Continue)
    }
}

/// The reply to a request with one response.
fn single_reply(response: &Response<'_>) -> Result<Reply, Fault> {
    if response.opcode == opcode::SASL_AUTH {
        return Ok(Reply::Login(response.refusal()));
    }
    if let Some(refusal) = response.refusal() {
        return Ok(Reply::Refused(refusal));
    }
    Ok(match (response.outcome(), response.opcode) {
        (WriteStatus::Done, opcode::INCREMENT | opcode::DECREMENT) => {
            let number = parse_number(response.text);
            Reply::Number(number.ok_or(Fault::Binary(super::BinaryFault::Lengths))?)
        }
        (WriteStatus::Done, opcode::VERSION) => Reply::Version(lossy_text(response.text)),
        (outcome, _) => Reply::Status(outcome),
    })
}

fn code_of(outcome: WriteStatus) -> MetaCode {
    match outcome {
        WriteStatus::Done => MetaCode::Done,
        WriteStatus::NotStored => MetaCode::NotStored,
        WriteStatus::Exists => MetaCode::Exists,
        WriteStatus::NotFound => MetaCode::NotFound,
    }
}

#[cfg(test)]
mod tests;
