//! Parts of a reply that the text and meta protocols share: bounded lines, numbers, error lines.

use memchr::memchr;

/// Maximum length of a reply line in bytes: `VALUE`, a key of 250 and three numbers take
/// 310, `stats` rows and error sentences stay below 1,000.
pub const REPLY_LINE_BYTES_MAX: usize = 8192;

/// Why received bytes are not a reply to the request; the connection must close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyFault {
    /// A line that is not a reply of the protocol, or not one to this request.
    #[error("a reply line that does not match the request")]
    Unexpected,
    /// More than [`REPLY_LINE_BYTES_MAX`] bytes without a line end.
    #[error("a reply line that is too long")]
    LineTooLong,
    /// An invalid number.
    #[error("a reply with an invalid number")]
    BadNumber,
}

/// An error line that a server sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorLine<'a> {
    /// Its first token.
    pub kind: ErrorLineKind,
    /// The message after the first token.
    pub message: &'a [u8],
}

/// The first token of an error line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorLineKind {
    /// `ERROR`: the command is unknown.
    UnknownCommand,
    /// `CLIENT_ERROR`: the request is wrong.
    Client,
    /// `SERVER_ERROR`: the server failed.
    Server,
}

/// Finds one line in `input`: the line without its end, and the bytes taken with it.
///
/// `Ok(None)` means: not complete yet.
pub fn take_line(input: &[u8]) -> Result<Option<(&[u8], usize)>, ReplyFault> {
    let window = input.get(..REPLY_LINE_BYTES_MAX).unwrap_or(input);
    let Some(end) = memchr(b'\n', window) else {
        return if input.len() >= REPLY_LINE_BYTES_MAX {
            Err(ReplyFault::LineTooLong)
        } else {
            Ok(None)
        };
    };
    let line = input.get(..end).unwrap_or_default();
    match line.strip_suffix(b"\r") {
        Some(line) => Ok(Some((line, end + 1))),
        None => Err(ReplyFault::Unexpected),
    }
}

/// Reads an error line.
pub fn parse_error_line(line: &[u8]) -> Option<ErrorLine<'_>> {
    let prefixes = [
        (&b"ERROR"[..], ErrorLineKind::UnknownCommand),
        (b"CLIENT_ERROR", ErrorLineKind::Client),
        (b"SERVER_ERROR", ErrorLineKind::Server),
    ];
    prefixes.into_iter().find_map(|(prefix, kind)| {
        let after_prefix = line.strip_prefix(prefix)?;
        match after_prefix {
            [] => Some(ErrorLine { kind, message: after_prefix }),
            [b' ', message @ ..] => Some(ErrorLine { kind, message }),
            _ => None,
        }
    })
}

/// Reads a decimal number of 1 to 20 digits that fits 64 bits.
pub fn parse_number(digits: &[u8]) -> Option<u64> {
    let digit_of = |byte: u8| Some(byte.wrapping_sub(b'0')).filter(|&digit| digit <= 9);
    // Only the twentieth digit can exceed 64 bits.
    let (unchecked, checked) = digits.split_at_checked(19).unwrap_or((digits, &[]));
    let mut number: u64 = 0;
    for &byte in unchecked {
        number = number * 10 + u64::from(digit_of(byte)?);
    }
    match checked {
        [] => (!unchecked.is_empty()).then_some(number),
        &[byte] => number.checked_mul(10)?.checked_add(digit_of(byte)?.into()),
        _ => None,
    }
}
