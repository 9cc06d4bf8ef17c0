//! The scanner of a client's bytes: it finds the commands however the bytes arrive, and reports keys read in order and
//! writes.

use glasscache_protocol::command::{AdminVerb, Command, LineRefusal, MetaLine};
use glasscache_protocol::text::{KeyToken, Parsed, next_key, parse};

/// The first byte of a connection in the binary protocol.
const BINARY_MAGIC: u8 = 0x80;

/// A part of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandEvent {
    /// A key of get, gets, gat or gats.
    Get(Vec<u8>),
    /// A reply that ends with `END` is due: the keys of a get are complete, or statistics were requested.
    AwaitEnd,
    /// `mg` with the value.
    MetaGet(MetaGet),
    /// A command that changes an item.
    Write,
    /// `mn`: its reply comes after the replies to everything before it.
    Noop,
}

/// An `mg` that requests the value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetaGet {
    /// The key as sent.
    pub key: Vec<u8>,
    /// The item's key: that of base64 decoded.
    pub item_key: Vec<u8>,
    /// The opaque, empty if there is none.
    pub opaque: Vec<u8>,
    /// A miss has no reply.
    pub is_quiet: bool,
}

/// Cuts the bytes of one client into commands.
#[derive(Debug, Default)]
pub struct CommandScanner {
    /// The beginning of a line that is not complete.
    partial_line: Vec<u8>,
    /// Bytes of a value that are still to come.
    skip_bytes: u64,
    /// The keys of a get follow.
    is_in_keys: bool,
    has_received_bytes: bool,
    is_out_of_sync: bool,
}

impl CommandScanner {
    /// Whether this is not a conversation in text or meta, or one whose next command cannot be found: nothing more is
    /// scanned.
    pub fn is_out_of_sync(&self) -> bool {
        self.is_out_of_sync
    }

    /// Takes what the client sent next.
    pub fn scan(&mut self, bytes: &[u8], emit: &mut dyn FnMut(CommandEvent)) {
        let Some(&first_byte) = bytes.first() else {
            return;
        };
        self.is_out_of_sync |= !self.has_received_bytes && first_byte == BINARY_MAGIC;
        self.has_received_bytes = true;
        let bytes = self.skip_value(bytes);
        if self.is_out_of_sync || bytes.is_empty() {
            return;
        }
        let mut input = std::mem::take(&mut self.partial_line);
        input.extend_from_slice(bytes);
        let mut unparsed = input.as_slice();
        while let Some(used_bytes) = self.scan_next(unparsed, emit) {
            unparsed = self.skip_value(unparsed.get(used_bytes..).unwrap_or_default());
            if self.is_out_of_sync || unparsed.is_empty() {
                break;
            }
        }
        if !self.is_out_of_sync {
            self.partial_line = unparsed.to_vec();
        }
    }

    /// Passes over the bytes of a value.
    fn skip_value<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let skipped_bytes = self.skip_bytes.min(bytes.len() as u64);
        self.skip_bytes -= skipped_bytes;
        bytes.get(skipped_bytes as usize..).unwrap_or_default()
    }

    /// Takes one command, or one key of it, from the start of the input; `None`: it is not complete.
    fn scan_next(&mut self, input: &[u8], emit: &mut dyn FnMut(CommandEvent)) -> Option<usize> {
        if self.is_in_keys {
            return self.scan_key(input, emit);
        }
        match parse(input) {
            Parsed::Incomplete => None,
            Parsed::Command(command, used_bytes) => {
                self.emit_command(&command, emit);
                Some(used_bytes)
            }
            Parsed::Refused(refusal, used_bytes) => {
                self.is_out_of_sync |=
                    refusal.must_close || refusal.bytes_to_skip == LineRefusal::SKIP_UNKNOWN;
                self.skip_bytes = refusal.bytes_to_skip;
                Some(used_bytes)
            }
        }
    }

    fn scan_key(&mut self, input: &[u8], emit: &mut dyn FnMut(CommandEvent)) -> Option<usize> {
        match next_key(input) {
            KeyToken::Key(key, used_bytes) => {
                emit(CommandEvent::Get(key.to_vec()));
                Some(used_bytes)
            }
            KeyToken::End(used_bytes) => {
                self.is_in_keys = false;
                emit(CommandEvent::AwaitEnd);
                Some(used_bytes)
            }
            KeyToken::Incomplete => None,
            KeyToken::TooLong => {
                self.is_out_of_sync = true;
                None
            }
        }
    }

    fn emit_command(&mut self, command: &Command<'_>, emit: &mut dyn FnMut(CommandEvent)) {
        match command {
            Command::Get(_) => self.is_in_keys = true,
            Command::Store(head) => {
                self.skip_bytes = u64::from(head.value_bytes) + 2;
                emit(CommandEvent::Write);
            }
            Command::MetaSet(_, value_bytes) => {
                self.skip_bytes = u64::from(*value_bytes) + 2;
                emit(CommandEvent::Write);
            }
            Command::Delete { .. }
            | Command::Arith { .. }
            | Command::Touch { .. }
            | Command::MetaDelete(_)
            | Command::MetaArith(_) => emit(CommandEvent::Write),
            Command::MetaGet(line) if line.flags.has(b'v') => {
                emit(CommandEvent::MetaGet(parse_meta_get(line)));
            }
            Command::MetaNoop => emit(CommandEvent::Noop),
            Command::Admin { verb: AdminVerb::Stats, arguments: [], .. } => {
                emit(CommandEvent::AwaitEnd);
            }
            Command::MetaGet(_)
            | Command::MetaDebug { .. }
            | Command::MetaFlushPrefix(_)
            | Command::FlushPrefix { .. }
            | Command::Version
            | Command::Quit
            | Command::Admin { .. } => {}
        }
    }
}

fn parse_meta_get(line: &MetaLine<'_>) -> MetaGet {
    let mut scratch = Vec::new();
    let item_key = line.item_key(&mut scratch).unwrap_or(line.key).to_vec();
    let mut tokens = line.flags.text.split(|&byte| byte == b' ');
    let opaque = tokens.find_map(|token| token.strip_prefix(b"O"));
    MetaGet {
        key: line.key.to_vec(),
        item_key,
        opaque: opaque.unwrap_or_default().to_vec(),
        is_quiet: line.flags.has(b'q'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan_pieces(pieces: &[&[u8]]) -> (Vec<CommandEvent>, bool) {
        let (mut scanner, mut events) = (CommandScanner::default(), Vec::new());
        for piece in pieces {
            scanner.scan(piece, &mut |event| events.push(event));
        }
        (events, scanner.is_out_of_sync())
    }

    const CONVERSATION: &[u8] = b"get a bb\r\nset get 0 0 7\r\nget x\r\n\r\nmg k v Oab q\r\nmg k t\r\n\
        mg YQ== v b\r\nmn\r\nms m 2\r\nab\r\nmd m\r\nincr n 1\r\nversion\r\nwrong\r\nstats\r\ngats 60 c\r\n";

    fn expected_events() -> Vec<CommandEvent> {
        let get = |key: &[u8]| CommandEvent::Get(key.to_vec());
        let meta = |key: &[u8], item_key: &[u8], opaque: &[u8], is_quiet| {
            CommandEvent::MetaGet(MetaGet {
                key: key.to_vec(),
                item_key: item_key.to_vec(),
                opaque: opaque.to_vec(),
                is_quiet,
            })
        };
        vec![
            get(b"a"),
            get(b"bb"),
            CommandEvent::AwaitEnd,
            CommandEvent::Write,
            meta(b"k", b"k", b"ab", true),
            meta(b"YQ==", b"a", b"", false),
            CommandEvent::Noop,
            CommandEvent::Write,
            CommandEvent::Write,
            CommandEvent::Write,
            CommandEvent::AwaitEnd,
            get(b"c"),
            CommandEvent::AwaitEnd,
        ]
    }

    #[test]
    fn commands_are_found_however_their_bytes_arrive() {
        assert_eq!(scan_pieces(&[CONVERSATION]), (expected_events(), false));
        let one_byte_pieces: Vec<&[u8]> = CONVERSATION.chunks(1).collect();
        assert_eq!(scan_pieces(&one_byte_pieces), (expected_events(), false));
        for length in 2..40 {
            let pieces: Vec<&[u8]> = CONVERSATION.chunks(length).collect();
            assert_eq!(scan_pieces(&pieces).0, expected_events(), "pieces of {length}");
        }
    }

    #[test]
    fn a_connection_that_cannot_be_followed_is_marked_out_of_sync_and_emits_no_more_events() {
        assert_eq!(scan_pieces(&[b"\x80\x00\x00\x01", b"get a\r\n"]), (vec![], true));
        let long_key = [b"get ", &[b'x'; 300][..], b" b\r\n"].concat();
        assert_eq!(scan_pieces(&[&long_key, b"get a\r\n"]), (vec![], true));
        assert!(scan_pieces(&[&[b'x'; 3000]]).1, "no line of memcached");
    }
}
