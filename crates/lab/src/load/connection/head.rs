//! The head of a reply, its value excepted, in terms that all protocols share; the bytes are parsed by `protocol`.

use glasscache_protocol::binary::reply::parse_head;
use glasscache_protocol::binary::{OpcodeAndOpaque, Status as BinaryStatus, opcode};
use glasscache_protocol::meta::reply as meta;
use glasscache_protocol::text::reply::{self as text, REPLY_LINE_BYTES_MAX, WriteStatus};

use crate::access::Protocol;
use crate::load::Error;

/// Longest head in bytes: a line, or a response in binary with the text of an error.
pub(super) const HEAD_BYTES_MAX: usize = REPLY_LINE_BYTES_MAX;

/// The head of a reply.
pub(super) struct ReplyHead<'a> {
    pub(super) kind: ReplyKind<'a>,
    /// Opcode and opaque of a response in binary.
    request_id: Option<OpcodeAndOpaque>,
    /// The line, or in binary the text of an error.
    line_or_error: &'a [u8],
}

/// What a reply means for a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReplyKind<'a> {
    /// The write took effect.
    Done,
    /// It did not.
    NotDone,
    /// A value of this many bytes follows; only text has the key.
    Value { key: Option<&'a [u8]>, value_bytes: usize },
    /// There is no value, and nothing else follows.
    Miss,
    /// No further value.
    End,
}

impl<'a> ReplyHead<'a> {
    /// Parses the head at the front of `input`; also returns its length. `None` if it has not arrived whole.
    pub(super) fn parse(
        protocol: Protocol,
        input: &'a [u8],
    ) -> Result<Option<(Self, usize)>, Error> {
        if protocol == Protocol::Binary {
            return Self::parse_binary(input);
        }
        let unexpected_input = || Error::Unexpected(excerpt(input));
        let Some((line, line_bytes)) = text::take_line(input).map_err(|_| unexpected_input())?
        else {
            return Ok(None);
        };
        let kind = match protocol {
            Protocol::Meta => parse_meta_line(line),
            Protocol::Text | Protocol::Binary => parse_text_line(line),
        };
        let head = Self {
            kind: kind.ok_or_else(|| Error::Unexpected(excerpt(line)))?,
            request_id: None,
            line_or_error: line,
        };
        Ok(Some((head, line_bytes)))
    }

    fn parse_binary(input: &'a [u8]) -> Result<Option<(Self, usize)>, Error> {
        let parse_result =
            parse_head(input).map_err(|error| Error::Unexpected(error.to_string()))?;
        let Some((parsed, head_bytes)) = parse_result else {
            return Ok(None);
        };
        let value_bytes = parsed.value_bytes as usize;
        let loud_opcode = opcode::without_quiet(parsed.request.opcode);
        let mut head = Self {
            kind: ReplyKind::Value { key: None, value_bytes },
            request_id: Some(parsed.request),
            line_or_error: b"",
        };
        if (loud_opcode, parsed.status) == (opcode::GET, BinaryStatus::Success) {
            return Ok(Some((head, head_bytes)));
        }
        let response_bytes = head_bytes + value_bytes;
        if response_bytes > HEAD_BYTES_MAX {
            return Err(head.unexpected());
        }
        let Some(error_text) = input.get(head_bytes..response_bytes) else {
            return Ok(None);
        };
        head.line_or_error = if error_text.is_empty() { parsed.status.text() } else { error_text };
        head.kind = match (loud_opcode, parsed.status) {
            (opcode::GET, BinaryStatus::NotFound) => ReplyKind::Miss,
            (opcode::NOOP, BinaryStatus::Success) => ReplyKind::End,
            (opcode::SET | opcode::DELETE, BinaryStatus::Success) => ReplyKind::Done,
            _ => ReplyKind::NotDone,
        };
        Ok(Some((head, response_bytes)))
    }

    /// Whether it is a reply to the request with this opaque; text and meta requests have none.
    pub(super) fn has_opaque(&self, opaque: u32) -> bool {
        self.request_id.is_none_or(|request_id| request_id.opaque == opaque)
    }

    /// The start of the line, or of the text of an error.
    pub(super) fn excerpt(&self) -> String {
        excerpt(self.line_or_error)
    }

    /// The error of a reply that does not match its request.
    pub(super) fn unexpected(&self) -> Error {
        Error::Unexpected(match self.request_id {
            None => self.excerpt(),
            Some(OpcodeAndOpaque { opcode, opaque }) => {
                let excerpt = self.excerpt();
                format!("{excerpt} (opcode {opcode:#04x}, opaque {opaque})")
            }
        })
    }
}

fn parse_text_line(line: &[u8]) -> Option<ReplyKind<'_>> {
    Some(match text::parse(line).ok()? {
        text::Line::Value { key, value_bytes, .. } => {
            ReplyKind::Value { key: Some(key), value_bytes: usize::try_from(value_bytes).ok()? }
        }
        text::Line::End => ReplyKind::End,
        text::Line::Status(WriteStatus::Done) | text::Line::Number(_) => ReplyKind::Done,
        text::Line::Status(_) | text::Line::Error(_) => ReplyKind::NotDone,
        text::Line::Version(_) | text::Line::Stat(..) => return None,
    })
}

fn parse_meta_line(line: &[u8]) -> Option<ReplyKind<'_>> {
    Some(match meta::parse(line).ok()? {
        meta::Line::Reply { code, value_bytes, .. } => match code {
            meta::MetaCode::Value => {
                ReplyKind::Value { key: None, value_bytes: usize::try_from(value_bytes).ok()? }
            }
            meta::MetaCode::Miss => ReplyKind::Miss,
            meta::MetaCode::Done => ReplyKind::Done,
            _ => ReplyKind::NotDone,
        },
        meta::Line::Error(_) => ReplyKind::NotDone,
    })
}

/// The start of what was received, for a report.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..bytes.len().min(100)).unwrap_or_default()).into_owned()
}
