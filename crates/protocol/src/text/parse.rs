//! Parses one command at the start of the input: text and meta lines, and the keys of a get.
//!
//! The head of a get is parsed first and its keys one by one, so that a line of 80,000 keys needs no
//! buffer of its own length and can be executed in slices. Every other line must fit 2 KiB.
//! The accepted syntax and the order of errors are those of memcached 1.6's parser.

use crate::ascii;
use crate::command::{
    AdminVerb, Command, GetHead, LineRefusal, StoreCommand, StoreHead, parse_value_length,
};
use crate::limits::{KEY_BYTES_MAX, LINE_BYTES_MAX};
use crate::meta;
use crate::replies;

/// The result of parsing the start of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed<'b> {
    /// No complete line yet.
    Incomplete,
    /// A command; the number of bytes consumed.
    Command(Command<'b>, usize),
    /// A line that gets an error reply; the number of bytes consumed.
    Refused(LineRefusal, usize),
}

/// Parses the command at the start of `input`.
#[inline]
pub fn parse(input: &[u8]) -> Parsed<'_> {
    match ascii::split_line(input) {
        Some((line, used)) => {
            if line.len() > LINE_BYTES_MAX && !is_get_or_gat(line) {
                return Parsed::Refused(LineRefusal::closing(replies::LINE_TOO_LONG), used);
            }
            parse_line(line, used)
        }
        None if input.len() <= LINE_BYTES_MAX => Parsed::Incomplete,
        None if is_get_or_gat(input) => match parse_line(input, input.len()) {
            // What follows of this line must not be executed as a line of its own.
            Parsed::Refused(refusal, used) => {
                Parsed::Refused(LineRefusal::closing(refusal.reply), used)
            }
            parsed => parsed,
        },
        // memcached closes without a reply if 2 KiB contain no line ending, and its tests expect that.
        None => Parsed::Refused(LineRefusal::closing(b""), input.len()),
    }
}

fn is_get_or_gat(line: &[u8]) -> bool {
    let verb = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    matches!(verb, b"get" | b"gets" | b"gat" | b"gats")
}

fn parse_line(line: &[u8], used: usize) -> Parsed<'_> {
    // memcached reports fewer than two letters as a bad line, and the other cases below as unknown.
    if line.len() < 2 {
        return Parsed::Refused(LineRefusal::new(replies::BAD_FORMAT), used);
    }
    let verb_len = memchr::memchr(b' ', line).unwrap_or(line.len());
    let (verb, arguments) = line.split_at_checked(verb_len).unwrap_or((line, &[]));
    let parsed = match verb {
        b"get" | b"gets" | b"gat" | b"gats" => return parse_get(verb, line, arguments, used),
        b"set" => parse_store(StoreCommand::Set, arguments),
        b"add" => parse_store(StoreCommand::Add, arguments),
        b"cas" => parse_store(StoreCommand::Cas, arguments),
        b"replace" => parse_store(StoreCommand::Replace, arguments),
        b"append" => parse_store(StoreCommand::Append, arguments),
        b"prepend" => parse_store(StoreCommand::Prepend, arguments),
        b"delete" => parse_delete(arguments),
        b"incr" => parse_arith(arguments, false),
        b"decr" => parse_arith(arguments, true),
        b"touch" => parse_touch(arguments),
        b"flush_prefix" => parse_flush_prefix(arguments),
        b"mg" | b"ms" | b"md" | b"ma" | b"me" | b"mf" => meta::parse_line(verb, arguments),
        b"mn" => Ok(Command::MetaNoop),
        b"version" => Ok(Command::Version),
        b"quit" => Ok(Command::Quit),
        b"stats" => Ok(make_admin_command(AdminVerb::Stats, arguments)),
        b"watch" => Ok(make_admin_command(AdminVerb::Watch, arguments)),
        _ => parse_admin(line),
    };
    match parsed {
        Ok(command) => Parsed::Command(command, used),
        Err(refusal) => Parsed::Refused(refusal, used),
    }
}

/// The head of a get; the keys stay in the input.
fn parse_get<'b>(verb: &[u8], line: &'b [u8], mut arguments: &'b [u8], used: usize) -> Parsed<'b> {
    let touch = if verb.starts_with(b"gat") {
        let exptime_text = ascii::take_token(&mut arguments);
        if arguments.iter().all(|byte| *byte == b' ') {
            return Parsed::Refused(LineRefusal::new(replies::BAD_FORMAT), used);
        }
        let Some(exptime) = exptime_text.and_then(parse_exptime32) else {
            return Parsed::Refused(LineRefusal::new(replies::BAD_EXPTIME), used);
        };
        Some(exptime)
    } else if arguments.iter().all(|byte| *byte == b' ') {
        return Parsed::Refused(LineRefusal::new(replies::BAD_FORMAT), used);
    } else {
        None
    };
    let head = GetHead { with_cas: verb.ends_with(b"s"), touch };
    Parsed::Command(Command::Get(head), line.len() - arguments.len())
}

/// The exptime of touch and gat, where memcached refuses a plus sign and what does not fit 32 bits.
fn parse_exptime32(text: &[u8]) -> Option<i64> {
    ascii::parse_i64(text)
        .filter(|exptime| i32::try_from(*exptime).is_ok() && !text.starts_with(b"+"))
}

/// Whether the last token of `arguments` is "noreply".
fn is_noreply(arguments: &[u8]) -> bool {
    let trimmed = arguments.trim_ascii_end();
    trimmed == b"noreply" || trimmed.ends_with(b" noreply")
}

fn refuse_bad_format(noreply: bool) -> LineRefusal {
    LineRefusal { noreply, ..LineRefusal::new(replies::BAD_FORMAT) }
}

fn parse_store(command: StoreCommand, mut arguments: &[u8]) -> Result<Command<'_>, LineRefusal> {
    let (Some(key), Some(flags_text), Some(exptime_text), Some(length_text)) = (
        ascii::take_token(&mut arguments),
        ascii::take_token(&mut arguments),
        ascii::take_token(&mut arguments),
        ascii::take_token(&mut arguments),
    ) else {
        return Err(LineRefusal::new(replies::BAD_FORMAT));
    };
    let noreply = is_noreply(arguments);
    let value_bytes = parse_value_length(length_text)?;
    let refusal = LineRefusal {
        reply: replies::BAD_FORMAT,
        bytes_to_skip: u64::from(value_bytes) + 2,
        noreply,
        must_close: false,
    };
    if key.len() > KEY_BYTES_MAX {
        return Err(refusal);
    }
    let (Some(flags), Some(exptime)) =
        (parse_client_flags(flags_text), ascii::parse_i64(exptime_text))
    else {
        return Err(refusal);
    };
    let required_cas = match command {
        StoreCommand::Cas => {
            Some(ascii::take_token(&mut arguments).and_then(ascii::parse_u64).ok_or(refusal)?)
        }
        _ => None,
    };
    Ok(Command::Store(StoreHead {
        verb: command,
        key,
        flags,
        exptime,
        value_bytes,
        required_cas,
        noreply,
    }))
}

/// Client flags: 32 bits; a plus sign is accepted, as by memcached's `strtoul`.
fn parse_client_flags(text: &[u8]) -> Option<u32> {
    ascii::parse_u32(text.strip_prefix(b"+").unwrap_or(text))
}

fn take_key<'b>(arguments: &mut &'b [u8]) -> Result<&'b [u8], LineRefusal> {
    let noreply = is_noreply(arguments);
    let key = ascii::take_token(arguments).ok_or(LineRefusal::new(replies::BAD_FORMAT))?;
    if key.len() > KEY_BYTES_MAX {
        return Err(refuse_bad_format(noreply));
    }
    Ok(key)
}

fn parse_delete(mut arguments: &[u8]) -> Result<Command<'_>, LineRefusal> {
    let key = take_key(&mut arguments)?;
    Ok(Command::Delete { key, noreply: is_noreply(arguments) })
}

fn parse_arith(mut arguments: &[u8], is_decrement: bool) -> Result<Command<'_>, LineRefusal> {
    let key = take_key(&mut arguments)?;
    let noreply = is_noreply(arguments);
    let delta_text =
        ascii::take_token(&mut arguments).ok_or(LineRefusal::new(replies::BAD_FORMAT))?;
    let delta = ascii::parse_u64(delta_text)
        .ok_or(LineRefusal { noreply, ..LineRefusal::new(replies::BAD_DELTA) })?;
    Ok(Command::Arith { key, delta, is_decrement, noreply })
}

fn parse_touch(mut arguments: &[u8]) -> Result<Command<'_>, LineRefusal> {
    let key = take_key(&mut arguments)?;
    let noreply = is_noreply(arguments);
    let exptime_text =
        ascii::take_token(&mut arguments).ok_or(LineRefusal::new(replies::BAD_FORMAT))?;
    let exptime = parse_exptime32(exptime_text)
        .ok_or(LineRefusal { noreply, ..LineRefusal::new(replies::BAD_EXPTIME) })?;
    Ok(Command::Touch { key, exptime, noreply })
}

fn parse_flush_prefix(mut arguments: &[u8]) -> Result<Command<'_>, LineRefusal> {
    let prefix = take_key(&mut arguments)?;
    let noreply = is_noreply(arguments);
    if !noreply && !arguments.trim_ascii().is_empty() {
        return Err(LineRefusal::new(replies::BAD_FORMAT));
    }
    Ok(Command::FlushPrefix { prefix, noreply })
}

fn make_admin_command(admin_verb: AdminVerb, arguments: &[u8]) -> Command<'_> {
    Command::Admin { verb: admin_verb, arguments, noreply: false }
}

/// The rare commands, which memcached finds by their first token after leading spaces.
fn parse_admin(line: &[u8]) -> Result<Command<'_>, LineRefusal> {
    let mut arguments = line;
    let admin_verb = match ascii::take_token(&mut arguments).unwrap_or_default() {
        b"flush_all" => AdminVerb::FlushAll,
        b"verbosity" => AdminVerb::Verbosity,
        b"shutdown" => AdminVerb::Shutdown,
        b"cache_memlimit" => AdminVerb::CacheMemlimit,
        b"lru" => AdminVerb::Lru,
        b"lru_crawler" => AdminVerb::LruCrawler,
        b"slabs" => AdminVerb::Slabs,
        b"config" => AdminVerb::Config,
        b"refresh_certs" => AdminVerb::RefreshCerts,
        b"debugtime" => AdminVerb::DebugTime,
        b"misbehave" => AdminVerb::Misbehave,
        // A browser or a forged request: headers follow, and perhaps commands in a body.
        _ if ascii::tokens(arguments).last().is_some_and(|token| token.starts_with(b"HTTP/")) => {
            return Err(LineRefusal { noreply: true, ..LineRefusal::closing(replies::ERROR) });
        }
        _ => {
            return Err(LineRefusal {
                noreply: is_noreply(arguments),
                ..LineRefusal::new(replies::ERROR)
            });
        }
    };
    Ok(Command::Admin { verb: admin_verb, arguments, noreply: is_noreply(arguments) })
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
