//! Meta replies, parsed by a client from what it has received so far.
//!
//! A reply is two letters, for `VA` a length, then the flags that the request has. The opaque
//! matches it to its request; a hit must have one, and a reply without one is accepted only
//! where servers are known to omit it (`EN`, `MN` and error lines).

use crate::reply::{ErrorLine, ReplyFault, parse_error_line, parse_number};

/// The outcome in a meta reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaCode {
    /// `HD`: done, no value follows.
    Done,
    /// `VA`: a value follows.
    Value,
    /// `EN`: a get found nothing.
    Miss,
    /// `NF`: the item does not exist.
    NotFound,
    /// `NS`: the condition of the store did not hold.
    NotStored,
    /// `EX`: the CAS unique has changed.
    Exists,
    /// `MN`: everything before the noop has been executed.
    Noop,
}

/// The flags of a reply that a client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetaReplyFlags<'a> {
    /// `O`: matches the reply to its request.
    pub opaque: Option<u32>,
    /// `k`: the key, base64 if the request's was.
    pub key: Option<&'a [u8]>,
    /// `f`: client flags.
    pub client_flags: u32,
    /// `c`: CAS unique.
    pub cas: Option<u64>,
    /// `t`: remaining TTL in seconds; -1 if the item never expires.
    pub ttl_s: Option<i64>,
    /// `l`: seconds since the last access.
    pub last_access_s: Option<u64>,
    /// `h`: whether it was fetched before.
    pub was_hit: Option<bool>,
    /// `W`: this client won the lease and refills.
    pub won: bool,
    /// `X`: the item is stale.
    pub is_stale: bool,
    /// `Z`: another client has won the lease.
    pub already_won: bool,
}

/// One meta reply line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// A reply; with [`MetaCode::Value`] `value_bytes` bytes and a line end follow.
    Reply {
        /// The outcome.
        code: MetaCode,
        /// Length of the value that follows; 0 unless the code is a value.
        value_bytes: u64,
        /// The flags of the reply.
        flags: MetaReplyFlags<'a>,
    },
    /// An error line; it has no opaque.
    Error(ErrorLine<'a>),
}

/// Reads one line as a meta reply.
pub fn parse(line: &[u8]) -> Result<Line<'_>, ReplyFault> {
    let (token, after_code) = line.split_at_checked(2).ok_or(ReplyFault::Unexpected)?;
    let code = match token {
        b"HD" => MetaCode::Done,
        b"VA" => MetaCode::Value,
        b"EN" => MetaCode::Miss,
        b"NF" => MetaCode::NotFound,
        b"NS" => MetaCode::NotStored,
        b"EX" => MetaCode::Exists,
        b"MN" => MetaCode::Noop,
        _ => {
            return parse_error_line(line).map(Line::Error).ok_or(ReplyFault::Unexpected);
        }
    };
    // There must be nothing between the code and the first space.
    let mut unparsed = match after_code {
        [] | [b' ', ..] => after_code,
        _ => return Err(ReplyFault::Unexpected),
    };
    let value_bytes = match code {
        MetaCode::Value => {
            take_token(&mut unparsed).and_then(parse_number).ok_or(ReplyFault::BadNumber)?
        }
        _ => 0,
    };
    let mut flags = MetaReplyFlags::default();
    while let Some(token) = take_token(&mut unparsed) {
        read_flag(token, &mut flags)?;
    }
    Ok(Line::Reply { code, value_bytes, flags })
}

/// Takes the token after the space at the front.
fn take_token<'a>(unparsed: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (_, after_space) = unparsed.split_first()?;
    // A token is a few bytes, in which a loop is faster than a search by vectors.
    let end = after_space.iter().position(|&byte| byte == b' ').unwrap_or(after_space.len());
    let (token, remaining) = after_space.split_at_checked(end)?;
    *unparsed = remaining;
    Some(token)
}

fn read_flag<'a>(token: &'a [u8], flags: &mut MetaReplyFlags<'a>) -> Result<(), ReplyFault> {
    let Some((&letter, argument)) = token.split_first() else {
        return Ok(()); // memcached ends some lines with a space
    };
    let parse_u64 = || parse_number(argument).ok_or(ReplyFault::BadNumber);
    let parse_u32 =
        || parse_u64().and_then(|number| u32::try_from(number).map_err(|_| ReplyFault::BadNumber));
    match letter {
        b'O' => flags.opaque = Some(parse_u32()?),
        b'k' => flags.key = Some(argument),
        b'f' => flags.client_flags = parse_u32()?,
        b'c' => flags.cas = Some(parse_u64()?),
        b't' if argument == b"-1" => flags.ttl_s = Some(-1),
        b't' => flags.ttl_s = Some(i64::from(parse_u32()?)),
        b'l' => flags.last_access_s = Some(parse_u64()?),
        b'h' => flags.was_hit = Some(argument == b"1"),
        b'W' => flags.won = true,
        b'X' => flags.is_stale = true,
        b'Z' => flags.already_won = true,
        _ => {} // `s`, `b` and flags of later servers: nothing that this client requests
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::ErrorLineKind;

    fn parse_flags(line: &[u8]) -> MetaReplyFlags<'_> {
        match parse(line).unwrap() {
            Line::Reply { flags, .. } => flags,
            Line::Error(error_line) => panic!("{error_line:?}"),
        }
    }

    #[test]
    fn a_value_line_gives_length_and_flags() {
        let Ok(Line::Reply { code, value_bytes, flags }) = parse(b"VA 40 kfoo f16 O7 t-1 h0 l3")
        else {
            panic!("not a reply")
        };
        assert_eq!((code, value_bytes), (MetaCode::Value, 40));
        assert_eq!((flags.key, flags.client_flags, flags.opaque), (Some(&b"foo"[..]), 16, Some(7)));
        assert_eq!(
            (flags.ttl_s, flags.was_hit, flags.last_access_s),
            (Some(-1), Some(false), Some(3))
        );
    }

    #[test]
    fn a_lease_is_read() {
        let flags = parse_flags(b"VA 1 W X O1");
        assert!(flags.won && flags.is_stale && !flags.already_won);
    }

    #[test]
    fn an_unknown_line_is_a_fault_and_an_error_line_is_not() {
        assert_eq!(parse(b"HDx"), Err(ReplyFault::Unexpected));
        assert_eq!(parse(b"VA"), Err(ReplyFault::BadNumber));
        assert_eq!(parse(b"HD Oabc"), Err(ReplyFault::BadNumber));
        assert!(matches!(
            parse(b"ERROR"),
            Ok(Line::Error(ErrorLine { kind: ErrorLineKind::UnknownCommand, .. }))
        ));
    }
}
