//! What replies of both dialects have in common: lines with a bound, numbers, error lines.

use memchr::memchr;

/// Longest reply line that is waited for, in bytes: `VALUE`, a key of 250 and three numbers take
/// 310, `stats` rows and error sentences stay below 1,000.
pub const REPLY_LINE_BYTES_MAX: usize = 8192;

/// Why received bytes cannot be the reply that was waited for; the connection must close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyFault {
    /// A line that is no reply known to the dialect, or not one to this request.
    #[error("a reply line that fits no request")]
    Unexpected,
    /// More than [`REPLY_LINE_BYTES_MAX`] bytes without a line end.
    #[error("a reply line without an end")]
    EndlessLine,
    /// A number that does not read.
    #[error("a reply with a number that does not read")]
    BadNumber,
}

/// An error line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused<'a> {
    /// Whose fault the server says it is.
    pub blame: Blame,
    /// Its sentence, without the word.
    pub message: &'a [u8],
}

/// The word of an error line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// `ERROR`: the command is unknown.
    Command,
    /// `CLIENT_ERROR`: the request is wrong.
    Client,
    /// `SERVER_ERROR`: the server could not.
    Server,
}

/// Finds one line in `input`: the line without its end, and the bytes taken with it.
///
/// `Ok(None)` means: not complete yet.
pub fn line(input: &[u8]) -> Result<Option<(&[u8], usize)>, ReplyFault> {
    let window = input.get(..REPLY_LINE_BYTES_MAX).unwrap_or(input);
    let Some(at) = memchr(b'\n', window) else {
        return if input.len() >= REPLY_LINE_BYTES_MAX {
            Err(ReplyFault::EndlessLine)
        } else {
            Ok(None)
        };
    };
    let line = input.get(..at).unwrap_or_default();
    match line.strip_suffix(b"\r") {
        Some(line) => Ok(Some((line, at + 1))),
        None => Err(ReplyFault::Unexpected),
    }
}

/// Reads an error line, which both dialects share.
pub fn refused(line: &[u8]) -> Option<Refused<'_>> {
    let words = [
        (&b"ERROR"[..], Blame::Command),
        (b"CLIENT_ERROR", Blame::Client),
        (b"SERVER_ERROR", Blame::Server),
    ];
    words.into_iter().find_map(|(word, blame)| {
        let rest = line.strip_prefix(word)?;
        match rest {
            [] => Some(Refused {
                blame,
                message: rest,
            }),
            [b' ', message @ ..] => Some(Refused { blame, message }),
            _ => None,
        }
    })
}

/// Reads a decimal number of 1 to 20 digits that fits 64 bits.
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    digits.iter().try_fold(0u64, |n, &b| {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n.checked_mul(10)?.checked_add(u64::from(digit))
    })
}
