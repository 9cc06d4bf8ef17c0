//! Meta replies, parsed by a client from what it has received so far.
//!
//! A reply is two letters, for `VA` a length, then the flags that the request asked for. The opaque
//! is what ties it to its request; a hit must carry it, and a reply without one is accepted only
//! where servers are known to leave it out (`EN`, `MN` and error lines).

use crate::reply::{Refused, ReplyFault, number, refused};

/// The outcome in a meta reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// `HD`: done, no value follows.
    Done,
    /// `VA`: a value follows.
    Value,
    /// `EN`: a get found nothing.
    Miss,
    /// `NF`: there is no such item.
    NotFound,
    /// `NS`: the condition of the store did not hold.
    NotStored,
    /// `EX`: the CAS unique has changed.
    Exists,
    /// `MN`: all before the noop has been answered.
    Noop,
}

/// The flags of a reply that a client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags<'a> {
    /// `O`: ties the reply to its request.
    pub opaque: Option<u32>,
    /// `k`: the key, base64 if the request's was.
    pub key: Option<&'a [u8]>,
    /// `f`: client flags.
    pub client_flags: u32,
    /// `c`: CAS unique.
    pub cas: Option<u64>,
    /// `t`: seconds left; -1 never expires.
    pub ttl_s: Option<i64>,
    /// `l`: seconds since the last access.
    pub last_access_s: Option<u64>,
    /// `h`: whether it was fetched before.
    pub was_hit: Option<bool>,
    /// `W`: the right to refill is this client's.
    pub won: bool,
    /// `X`: kept past its worth.
    pub stale: bool,
    /// `Z`: another client has the right to refill.
    pub already_won: bool,
}

/// One meta reply line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// A reply; with [`Code::Value`] `value_bytes` bytes and a line end follow.
    Reply {
        /// The outcome.
        code: Code,
        /// Length of the value that follows; 0 unless the code is a value.
        value_bytes: u64,
        /// What came with it.
        flags: Flags<'a>,
    },
    /// An error line; it carries no opaque.
    Refused(Refused<'a>),
}

/// Reads one line as a meta reply.
pub fn parse(line: &[u8]) -> Result<Line<'_>, ReplyFault> {
    let (word, rest) = line.split_at_checked(2).ok_or(ReplyFault::Unexpected)?;
    let code = match word {
        b"HD" => Code::Done,
        b"VA" => Code::Value,
        b"EN" => Code::Miss,
        b"NF" => Code::NotFound,
        b"NS" => Code::NotStored,
        b"EX" => Code::Exists,
        b"MN" => Code::Noop,
        _ => {
            return refused(line)
                .map(Line::Refused)
                .ok_or(ReplyFault::Unexpected);
        }
    };
    let mut words = rest.split(|&b| b == b' ');
    // What stands between the code and the first space must be empty.
    if words.next().is_some_and(|glued| !glued.is_empty()) {
        return Err(ReplyFault::Unexpected);
    }
    let value_bytes = match code {
        Code::Value => words.next().and_then(number).ok_or(ReplyFault::BadNumber)?,
        _ => 0,
    };
    let mut flags = Flags::default();
    for word in words {
        read_flag(word, &mut flags)?;
    }
    Ok(Line::Reply {
        code,
        value_bytes,
        flags,
    })
}

fn read_flag<'a>(word: &'a [u8], flags: &mut Flags<'a>) -> Result<(), ReplyFault> {
    let Some((&letter, argument)) = word.split_first() else {
        return Ok(()); // memcached ends some lines with a space
    };
    let n = || number(argument).ok_or(ReplyFault::BadNumber);
    let small = || n().and_then(|n| u32::try_from(n).map_err(|_| ReplyFault::BadNumber));
    match letter {
        b'O' => flags.opaque = Some(small()?),
        b'k' => flags.key = Some(argument),
        b'f' => flags.client_flags = small()?,
        b'c' => flags.cas = Some(n()?),
        b't' if argument == b"-1" => flags.ttl_s = Some(-1),
        b't' => flags.ttl_s = Some(i64::from(small()?)),
        b'l' => flags.last_access_s = Some(n()?),
        b'h' => flags.was_hit = Some(argument == b"1"),
        b'W' => flags.won = true,
        b'X' => flags.stale = true,
        b'Z' => flags.already_won = true,
        _ => {} // `s`, `b` and what later servers add carry nothing this client asked for
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Blame;

    fn flags(line: &[u8]) -> Flags<'_> {
        match parse(line).unwrap() {
            Line::Reply { flags, .. } => flags,
            Line::Refused(refused) => panic!("{refused:?}"),
        }
    }

    #[test]
    fn a_value_line_gives_length_and_flags() {
        let Ok(Line::Reply {
            code,
            value_bytes,
            flags,
        }) = parse(b"VA 40 kfoo f16 O7 t-1 h0 l3")
        else {
            panic!("not a reply")
        };
        assert_eq!((code, value_bytes), (Code::Value, 40));
        assert_eq!(
            (flags.key, flags.client_flags, flags.opaque),
            (Some(&b"foo"[..]), 16, Some(7))
        );
        assert_eq!(
            (flags.ttl_s, flags.was_hit, flags.last_access_s),
            (Some(-1), Some(false), Some(3))
        );
    }

    #[test]
    fn a_lease_is_read() {
        let flags = flags(b"VA 1 W X O1");
        assert!(flags.won && flags.stale && !flags.already_won);
    }

    #[test]
    fn nonsense_is_a_fault_and_errors_are_not() {
        assert_eq!(parse(b"HDx"), Err(ReplyFault::Unexpected));
        assert_eq!(parse(b"VA"), Err(ReplyFault::BadNumber));
        assert_eq!(parse(b"HD Oabc"), Err(ReplyFault::BadNumber));
        assert!(matches!(
            parse(b"ERROR"),
            Ok(Line::Refused(Refused {
                blame: Blame::Command,
                ..
            }))
        ));
    }
}
