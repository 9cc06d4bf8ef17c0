//! Classic text replies, parsed by a client from what it has received so far.
//!
//! One call reads one line: a status, or the head of a value whose bytes follow it. Nothing is
//! trusted: a line has a bound, numbers are checked, and an unknown token is a fault, because a client that
//! guesses where the next reply begins returns values of other keys.

use memchr::memchr;

pub use crate::reply::{
    ErrorLine, ErrorLineKind, REPLY_LINE_BYTES_MAX, ReplyFault, parse_error_line, parse_number,
    take_line,
};

/// A line of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// Head of a value; `value_bytes` bytes and a line end follow.
    Value {
        /// The item's key.
        key: &'a [u8],
        /// Its client flags.
        flags: u32,
        /// Length of its value.
        value_bytes: u64,
        /// Its CAS unique, if the request is a `gets`.
        cas: Option<u64>,
    },
    /// `END`: no further values or stats.
    End,
    /// The status of a write.
    Status(WriteStatus),
    /// The new number of an incr or decr.
    Number(u64),
    /// `VERSION`, with the rest of the line.
    Version(&'a [u8]),
    /// `STAT name value`, or `PREFIX name counts` of `stats detail dump`.
    Stat(&'a [u8], &'a [u8]),
    /// `ERROR`, `CLIENT_ERROR` or `SERVER_ERROR`.
    Error(ErrorLine<'a>),
}

/// The status of a write, replied as one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteStatus {
    /// Stored, deleted, touched, flushed: it was done.
    Done,
    /// The condition of the store did not hold.
    NotStored,
    /// The CAS unique has changed.
    Exists,
    /// The key has no item.
    NotFound,
}

/// Reads one line as a classic reply.
pub fn parse(line: &[u8]) -> Result<Line<'_>, ReplyFault> {
    if let Some(after_keyword) = line.strip_prefix(b"VALUE ") {
        return parse_value_line(after_keyword);
    }
    let status = match line {
        b"END" => return Ok(Line::End),
        b"STORED" | b"DELETED" | b"TOUCHED" | b"OK" | b"RESET" => WriteStatus::Done,
        b"NOT_STORED" => WriteStatus::NotStored,
        b"EXISTS" => WriteStatus::Exists,
        b"NOT_FOUND" => WriteStatus::NotFound,
        _ => return parse_other_line(line),
    };
    Ok(Line::Status(status))
}

fn parse_other_line(line: &[u8]) -> Result<Line<'_>, ReplyFault> {
    // The rows of `stats detail dump` begin with `PREFIX`.
    let stat = line.strip_prefix(b"STAT ");
    if let Some(after_keyword) = stat.or_else(|| line.strip_prefix(b"PREFIX ")) {
        let end = memchr(b' ', after_keyword).unwrap_or(after_keyword.len());
        let (name, value) = after_keyword.split_at(end);
        return Ok(Line::Stat(name, value.strip_prefix(b" ").unwrap_or_default()));
    }
    if let Some(version) = line.strip_prefix(b"VERSION ") {
        return Ok(Line::Version(version));
    }
    if let Some(error_line) = parse_error_line(line) {
        return Ok(Line::Error(error_line));
    }
    // memcached pads a decremented number with spaces in the item, never in the reply.
    parse_number(line).map(Line::Number).ok_or(ReplyFault::Unexpected)
}

fn parse_value_line(after_keyword: &[u8]) -> Result<Line<'_>, ReplyFault> {
    let mut tokens = after_keyword.split(|&b| b == b' ');
    let key = tokens.next().filter(|key| !key.is_empty()).ok_or(ReplyFault::Unexpected)?;
    let mut next_number =
        || tokens.next().map(|token| parse_number(token).ok_or(ReplyFault::BadNumber));
    let flags = next_number().ok_or(ReplyFault::Unexpected)??;
    let value_bytes = next_number().ok_or(ReplyFault::Unexpected)??;
    let cas = next_number().transpose()?;
    if tokens.next().is_some() {
        return Err(ReplyFault::Unexpected);
    }
    let flags = u32::try_from(flags).map_err(|_| ReplyFault::BadNumber)?;
    Ok(Line::Value { key, flags, value_bytes, cas })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_head_gives_key_flags_length_and_unique() {
        let expected = Line::Value { key: b"k", flags: 16, value_bytes: 40, cas: Some(9) };
        assert_eq!(parse(b"VALUE k 16 40 9"), Ok(expected));
    }

    #[test]
    fn numbers_that_do_not_fit_are_faults() {
        assert_eq!(parse(b"VALUE k 4294967296 1"), Err(ReplyFault::BadNumber));
        assert_eq!(parse(b"VALUE k 0 -1"), Err(ReplyFault::BadNumber));
        assert_eq!(parse(b"VALUE k 0 99999999999999999999"), Err(ReplyFault::BadNumber));
        assert_eq!(parse_number(b"18446744073709551616"), None);
    }

    #[test]
    fn a_line_has_a_bound_and_must_end_in_crlf() {
        assert_eq!(take_line(b"END"), Ok(None));
        assert_eq!(take_line(b"END\r\nX"), Ok(Some((&b"END"[..], 5))));
        assert_eq!(take_line(b"END\n"), Err(ReplyFault::Unexpected));
        assert_eq!(take_line(&[b'x'; REPLY_LINE_BYTES_MAX]), Err(ReplyFault::LineTooLong));
    }

    #[test]
    fn error_lines_keep_their_message() {
        let line = parse(b"SERVER_ERROR out of memory").unwrap();
        assert_eq!(
            line,
            Line::Error(ErrorLine { kind: ErrorLineKind::Server, message: b"out of memory" })
        );
        assert_eq!(parse(b"ERRORS"), Err(ReplyFault::Unexpected));
    }
}
