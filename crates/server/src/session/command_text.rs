//! The name and the key of a command, read from the input that begins with it, for those who report commands.
//!
//! Only names of the protocol are reported, and one key of a command that has one: no value and nothing of a login.

use glasscache_protocol::ascii;
use glasscache_protocol::binary::{self, Header, opcode};
use glasscache_protocol::text::{self, KeyToken};

use super::state::{Protocol, Session, State};
use crate::shared::slow_commands::CommandText;

/// Commands whose first argument is a key.
const WITH_KEY: [&str; 19] = [
    "get",
    "gets",
    "mg",
    "set",
    "add",
    "replace",
    "append",
    "prepend",
    "cas",
    "ms",
    "delete",
    "md",
    "incr",
    "decr",
    "ma",
    "touch",
    "me",
    "flush_prefix",
    "mf",
];
/// Commands without a key that can take a while.
const WITHOUT_KEY: [&str; 9] = [
    "gat",
    "gats",
    "mn",
    "stats",
    "flush_all",
    "lru_crawler",
    "cache_memlimit",
    "version",
    "watch",
];
/// A get, whose keys may come in several parts.
const GET: &str = "get";
/// Every other command, and what is not one.
const OTHER: &str = "other";

impl Session {
    /// The command in progress; `None` if the next byte of the input begins one.
    #[inline]
    pub(crate) fn command_in_progress(&self) -> Option<CommandText> {
        Some(match &self.state {
            State::Command | State::Statistics => return None,
            State::PendingGet(_) => CommandText::without_key(GET),
            State::Upload(upload) => {
                CommandText { name: "set", key: upload.pending_write.key().into() }
            }
            State::Login(_) => CommandText::without_key("login"),
            _ => CommandText::without_key(OTHER),
        })
    }

    /// The first command of an `input`, if `in_progress` is the one that had begun before it.
    pub(crate) fn first_command(
        &self,
        in_progress: Option<CommandText>,
        input: &[u8],
    ) -> CommandText {
        match in_progress {
            None => self.command_at(input),
            // The keys of a get of many follow, or its end.
            Some(CommandText { name: GET, .. }) => match text::next_key(input) {
                KeyToken::Key(key, _) => CommandText { name: GET, key: key.into() },
                KeyToken::End(used) if used < input.len() => {
                    self.command_at(input.get(used..).unwrap_or_default())
                }
                _ => CommandText::without_key(GET),
            },
            Some(command) => command,
        }
    }

    /// The command at the front of `input`, at which one begins.
    pub(crate) fn command_at(&self, input: &[u8]) -> CommandText {
        let (name, key) =
            if self.protocol == Protocol::Binary { in_packet(input) } else { in_line(input) };
        CommandText { name, key: key.unwrap_or_default().into() }
    }
}

fn in_line(input: &[u8]) -> (&'static str, Option<&[u8]>) {
    let end = ascii::find_separator(input).unwrap_or(input.len());
    let verb = input.get(..end).unwrap_or_default();
    let find = |names: &[&'static str]| names.iter().copied().find(|name| name.as_bytes() == verb);
    match find(&WITH_KEY) {
        Some(name) => (name, text::likely_key(input)),
        None => (find(&WITHOUT_KEY).unwrap_or(OTHER), None),
    }
}

fn in_packet(input: &[u8]) -> (&'static str, Option<&[u8]>) {
    use opcode::{
        ADD, ADDQ, APPEND, APPENDQ, DECREMENT, DECREMENTQ, DELETE, DELETEQ, FLUSH, FLUSHQ, GAT,
        GATK, GATKQ, GATQ, GET, GETK, GETKQ, GETQ, INCREMENT, INCREMENTQ, PREPEND, PREPENDQ,
        REPLACE, REPLACEQ, SET, SETQ, STAT, TOUCH,
    };
    let name = match Header::read(input).map(|header| header.opcode) {
        Some(GET | GETQ | GETK | GETKQ) => "get",
        Some(SET | SETQ) => "set",
        Some(ADD | ADDQ) => "add",
        Some(REPLACE | REPLACEQ) => "replace",
        Some(APPEND | APPENDQ) => "append",
        Some(PREPEND | PREPENDQ) => "prepend",
        Some(DELETE | DELETEQ) => "delete",
        Some(INCREMENT | INCREMENTQ) => "incr",
        Some(DECREMENT | DECREMENTQ) => "decr",
        Some(GAT | GATQ | GATK | GATKQ) => "gat",
        Some(TOUCH) => "touch",
        Some(STAT) => return ("stats", None),
        Some(FLUSH | FLUSHQ) => return ("flush_all", None),
        _ => return (OTHER, None),
    };
    (name, binary::likely_key(input))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_name_of_the_protocol_and_one_key() {
        for (line, expected) in [
            (&b"get a b\r\n"[..], ("get", Some(&b"a"[..]))),
            (b"ms k 3 T0\r\nabc\r\n", ("ms", Some(b"k"))),
            (b"set k 0 0 1000000\r\nxxx", ("set", Some(b"k"))),
            (b"get unfinished", ("get", None)),
            (b"gat 10 a\r\n", ("gat", None)),
            (b"stats slow\r\n", ("stats", None)),
            (b"a value, not a command\r\n", ("other", None)),
            (b"", ("other", None)),
        ] {
            assert_eq!(in_line(line), expected);
        }
    }

    #[test]
    fn a_packet_of_a_login_has_no_key() {
        let packet = |opcode, key: &[u8]| {
            let mut packet = vec![binary::MAGIC_REQUEST, opcode, 0, key.len() as u8];
            packet.resize(binary::HEADER_BYTES, 0);
            packet[11] = key.len() as u8;
            packet.extend_from_slice(key);
            packet
        };
        assert_eq!(in_packet(&packet(opcode::GETKQ, b"k")), ("get", Some(&b"k"[..])));
        assert_eq!(in_packet(&packet(opcode::SASL_AUTH, b"PLAIN")), ("other", None));
        assert_eq!(in_packet(b"\x80"), ("other", None));
    }
}
