//! Credentials as clients send them: in the value of a text `set`, or in a PLAIN message of SASL.
//!
//! Before the login a text connection is parsed here and not by [`crate::text`], so no other command can be
//! executed. memcached's form is `set <any key> <flags> <exptime> <bytes>`, then `<user> <password>` as the value.

use crate::ascii;
use crate::limits::LOGIN_BYTES_MAX;
use crate::replies;

/// Shortest line in bytes, with its ending, that memcached does not close the connection for.
const LINE_BYTES_MIN: usize = 7;

/// A user and a password, not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials<'b> {
    /// The user; contains no NUL.
    pub user: &'b [u8],
    /// The password; contains no NUL in a message of SASL.
    pub password: &'b [u8],
}

/// The front of the input of a text connection before its login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<'b> {
    /// The line or the value has not arrived whole.
    Incomplete,
    /// An attempt to log in; `usize` bytes of the input are consumed.
    Attempt(Credentials<'b>, usize),
    /// Anything else: this reply, and the bytes consumed.
    Refused(&'static [u8], usize),
    /// A line that is empty or too long: close without a reply.
    Malformed,
}

/// Parses the line, and the value if there is one, at the front of `input`.
pub fn parse(input: &[u8]) -> Parsed<'_> {
    let Some((line, line_bytes)) = ascii::split_line(input) else {
        return if input.len() > LOGIN_BYTES_MAX { Parsed::Malformed } else { Parsed::Incomplete };
    };
    if !(LINE_BYTES_MIN..=LOGIN_BYTES_MAX).contains(&line_bytes) {
        return Parsed::Malformed;
    }
    let Some(value_bytes) = parse_value_bytes(line) else {
        return Parsed::Refused(replies::UNAUTHENTICATED, line_bytes);
    };
    if value_bytes > LOGIN_BYTES_MAX {
        // As in memcached, what follows is not skipped: it is parsed here as well, so none of it is executed.
        return Parsed::Refused(replies::LOGIN_TOO_LONG, line_bytes);
    }
    let value_end = line_bytes + value_bytes;
    let used = value_end + b"\r\n".len();
    let (Some(value), Some(ending)) =
        (input.get(line_bytes..value_end), input.get(value_end..used))
    else {
        return Parsed::Incomplete;
    };
    if ending != b"\r\n" {
        return Parsed::Refused(replies::LOGIN_BAD_ENDING, used);
    }
    match memchr::memchr(b' ', value).and_then(|space| value.split_at_checked(space)) {
        Some((user, space_and_password)) => Parsed::Attempt(
            Credentials { user, password: space_and_password.get(1..).unwrap_or_default() },
            used,
        ),
        None => Parsed::Refused(replies::LOGIN_BAD_FORMAT, used),
    }
}

/// The value length of a `set` line; `None` for any other line. Key, flags and exptime do not matter.
fn parse_value_bytes(mut line: &[u8]) -> Option<usize> {
    if ascii::take_token(&mut line)? != b"set" {
        return None;
    }
    for _ in 0..3 {
        ascii::take_token(&mut line)?;
    }
    ascii::parse_u32(ascii::take_token(&mut line)?).map(|bytes| bytes as usize)
}

/// The credentials of a PLAIN message (RFC 4616): `[authzid] NUL user NUL password`, neither of them empty. An
/// identity to act for that is not the user is refused.
pub fn parse_sasl_plain(message: &[u8]) -> Option<Credentials<'_>> {
    let mut parts = message.split(|byte| *byte == 0);
    let (identity, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    let is_valid = parts.next().is_none()
        && !user.is_empty()
        && !password.is_empty()
        && (identity.is_empty() || identity == user);
    is_valid.then_some(Credentials { user, password })
}

/// Appends the message of PLAIN for these credentials.
pub fn write_sasl_plain(out: &mut Vec<u8>, credentials: Credentials<'_>) {
    out.push(0);
    out.extend_from_slice(credentials.user);
    out.push(0);
    out.extend_from_slice(credentials.password);
}

/// Appends the text command that logs in with these credentials.
pub fn write_login(out: &mut Vec<u8>, credentials: Credentials<'_>) {
    let value_bytes = credentials.user.len() + 1 + credentials.password.len();
    // A server that requires no login takes this for a `set`: the negative exptime makes it keep nothing.
    out.extend_from_slice(b"set auth 0 -1 ");
    ascii::write_number(out, value_bytes as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(credentials.user);
    out.push(b' ');
    out.extend_from_slice(credentials.password);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOO_BAR: Credentials<'_> = Credentials { user: b"foo", password: b"bar" };

    #[test]
    fn what_is_written_is_parsed_and_every_part_of_it_is_incomplete() {
        let mut login = Vec::new();
        write_login(&mut login, FOO_BAR);
        assert_eq!(parse(&login), Parsed::Attempt(FOO_BAR, login.len()));
        for length in 0..login.len() {
            assert_eq!(parse(&login[..length]), Parsed::Incomplete, "{length}");
        }
        login.extend_from_slice(b"get secret\r\n");
        assert_eq!(parse(&login), Parsed::Attempt(FOO_BAR, 26));
        let mut message = Vec::new();
        write_sasl_plain(&mut message, FOO_BAR);
        assert_eq!(parse_sasl_plain(&message), Some(FOO_BAR));
    }

    #[test]
    fn other_lines_get_the_replies_of_memcached() {
        use replies::{LOGIN_BAD_ENDING, LOGIN_BAD_FORMAT, LOGIN_TOO_LONG, UNAUTHENTICATED};
        for (input, reply, used) in [
            (&b"get secret\r\n"[..], UNAUTHENTICATED, 12),
            (b"version\r\n", UNAUTHENTICATED, 9),
            (b"set a 0 0\r\nx y\r\n", UNAUTHENTICATED, 11),
            (b"set a 0 0 -1\r\n", UNAUTHENTICATED, 14),
            (b"set a 0 0 x\r\n", UNAUTHENTICATED, 13),
            (b"       \r\n", UNAUTHENTICATED, 9),
            (b"set a 0 0 2147483646\r\n", LOGIN_TOO_LONG, 22),
            (b"set a 0 0 513\r\n", LOGIN_TOO_LONG, 15),
            (b"set a 0 0 2\r\nhi\r\n", LOGIN_BAD_FORMAT, 17),
            (b"set a 0 0 7\r\nfoo barXX", LOGIN_BAD_ENDING, 22),
        ] {
            let text = String::from_utf8_lossy(input);
            assert_eq!(parse(input), Parsed::Refused(reply, used), "{text:?}");
        }
    }

    #[test]
    fn empty_and_endless_lines_close() {
        for line in [&b"\n"[..], b"\r\n", b"  \r\n", b"get\r\n", b"quit\r\n"] {
            assert_eq!(parse(line), Parsed::Malformed);
        }
        assert_eq!(parse(&[b'x'; LOGIN_BYTES_MAX]), Parsed::Incomplete);
        assert_eq!(parse(&[b'x'; LOGIN_BYTES_MAX + 1]), Parsed::Malformed);
        let long = [&[b'x'; LOGIN_BYTES_MAX][..], b"\r\n"].concat();
        assert_eq!(parse(&long), Parsed::Malformed);
    }

    #[test]
    fn a_plain_message_has_three_parts_and_acts_for_its_own_user() {
        assert_eq!(parse_sasl_plain(b"foo\0foo\0bar"), Some(FOO_BAR));
        for malformed in [
            &b""[..],
            b"\0foo",
            b"\0foo\0",
            b"\0\0bar",
            b"\0foo\0bar\0",
            b"\0foo\0ba\0r",
            b"other\0foo\0bar",
        ] {
            assert_eq!(parse_sasl_plain(malformed), None, "{malformed:?}");
        }
    }
}
