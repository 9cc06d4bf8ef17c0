//! The scanner of a client's bytes: it finds the commands however the bytes arrive, and reports keys read in order and
//! writes.

use glasscache_client::request::RELATIVE_EXPTIME_MAX_S;
use glasscache_protocol::command::{
    AdminVerb, Command, GetHead, LineRefusal, MetaLine, StoreCommand, letter_set,
};
use glasscache_protocol::text::{KeyToken, Parsed, next_key, parse};

/// The first byte of a connection in the binary protocol.
const BINARY_MAGIC: u8 = 0x80;

/// A part of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommandEvent {
    /// A key of get, gets, gat or gats.
    Get(Vec<u8>, Effect),
    /// A reply that ends with `END` is due: the keys of a get are complete, or statistics were requested.
    AwaitEnd,
    /// `mg` with the value.
    MetaGet(MetaGet),
    /// A command that writes the item of a key.
    Write(Vec<u8>, Effect),
    /// `mn`: its reply comes after the replies to everything before it.
    Noop,
}

/// What a command does to its item, apart from its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Effect {
    /// The TTL that the item gets, if it is relative.
    pub ttl_s: Option<u32>,
    /// The item is changed in place, or its unique is read, on which a later write will depend.
    pub is_change: bool,
}

impl Effect {
    fn new(exptime: Option<i64>, is_change: bool) -> Self {
        let is_relative = |exptime: &i64| (1..=RELATIVE_EXPTIME_MAX_S).contains(exptime);
        Self { ttl_s: exptime.filter(is_relative).map(|exptime| exptime as u32), is_change }
    }
}

/// An `mg` that requests the value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct MetaGet {
    /// The key as sent.
    pub key: Vec<u8>,
    /// The item's key: that of base64 decoded.
    pub item_key: Vec<u8>,
    /// The opaque, empty if there is none.
    pub opaque: Vec<u8>,
    /// A miss has no reply.
    pub is_quiet: bool,
    /// What it does to the item.
    pub effect: Effect,
}

/// Cuts the bytes of one client into commands.
#[derive(Debug, Default)]
pub(super) struct CommandScanner {
    /// The beginning of a line that is not complete.
    partial_line: Vec<u8>,
    /// Bytes of a value that are still to come.
    skip_bytes: u64,
    /// What the get does whose keys follow.
    get_effect: Option<Effect>,
    has_received_bytes: bool,
    is_out_of_sync: bool,
}

impl CommandScanner {
    /// Whether this is not a conversation in text or meta, or one whose next command cannot be found: nothing more is
    /// scanned.
    pub(super) fn is_out_of_sync(&self) -> bool {
        self.is_out_of_sync
    }

    /// Takes what the client sent next.
    pub(super) fn scan(&mut self, bytes: &[u8], emit: &mut dyn FnMut(CommandEvent)) {
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
        if let Some(effect) = self.get_effect {
            return self.scan_key(input, effect, emit);
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

    fn scan_key(
        &mut self,
        input: &[u8],
        effect: Effect,
        emit: &mut dyn FnMut(CommandEvent),
    ) -> Option<usize> {
        match next_key(input) {
            KeyToken::Key(key, used_bytes) => {
                emit(CommandEvent::Get(key.to_vec(), effect));
                Some(used_bytes)
            }
            KeyToken::End(used_bytes) => {
                self.get_effect = None;
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
            Command::Get(GetHead { with_cas, touch }) => {
                self.get_effect = Some(Effect::new(*touch, *with_cas));
            }
            Command::Store(head) => {
                self.skip_bytes = u64::from(head.value_bytes) + 2;
                let is_change = !matches!(head.verb, StoreCommand::Set | StoreCommand::Replace);
                emit(CommandEvent::Write(
                    head.key.to_vec(),
                    Effect::new(Some(head.exptime), is_change),
                ));
            }
            Command::MetaSet(line, value_bytes) => {
                self.skip_bytes = u64::from(*value_bytes) + 2;
                let is_change = b"EAPeap".contains(&line.flags.mode);
                let effect = Effect::new(Some(line.flags.touch), is_change);
                emit(CommandEvent::Write(item_key(line), effect));
            }
            Command::Touch { key, exptime, .. } => {
                emit(CommandEvent::Write(key.to_vec(), Effect::new(Some(*exptime), false)));
            }
            Command::Delete { key, .. } => {
                emit(CommandEvent::Write(key.to_vec(), Effect::default()));
            }
            Command::MetaDelete(line) => {
                emit(CommandEvent::Write(item_key(line), Effect::default()));
            }
            Command::Arith { key, .. } => {
                emit(CommandEvent::Write(key.to_vec(), Effect::new(None, true)));
            }
            Command::MetaArith(line) => {
                emit(CommandEvent::Write(item_key(line), Effect::new(None, true)));
            }
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

/// The item's key: that of base64 decoded.
fn item_key(line: &MetaLine<'_>) -> Vec<u8> {
    line.item_key(&mut Vec::new()).unwrap_or(line.key).to_vec()
}

/// The flags of a read that may win a lease: its unique is for the fill, which changes nothing in place.
const LEASE_LETTERS: u128 = letter_set(b"NR");

fn parse_meta_get(line: &MetaLine<'_>) -> MetaGet {
    let mut tokens = line.flags.text.split(|&byte| byte == b' ');
    let opaque = tokens.find_map(|token| token.strip_prefix(b"O"));
    let reads_unique = line.flags.has(b'c') && !line.flags.has_any(LEASE_LETTERS);
    MetaGet {
        key: line.key.to_vec(),
        item_key: item_key(line),
        opaque: opaque.unwrap_or_default().to_vec(),
        is_quiet: line.flags.has(b'q'),
        effect: Effect::new(Some(line.flags.touch), reads_unique),
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
        let get = |key: &[u8]| CommandEvent::Get(key.to_vec(), Effect::default());
        let write = |key: &[u8], is_change| {
            CommandEvent::Write(key.to_vec(), Effect { ttl_s: None, is_change })
        };
        let meta = |key: &[u8], item_key: &[u8], opaque: &[u8], is_quiet| {
            CommandEvent::MetaGet(MetaGet {
                key: key.to_vec(),
                item_key: item_key.to_vec(),
                opaque: opaque.to_vec(),
                is_quiet,
                effect: Effect::default(),
            })
        };
        vec![
            get(b"a"),
            get(b"bb"),
            CommandEvent::AwaitEnd,
            write(b"get", false),
            meta(b"k", b"k", b"ab", true),
            meta(b"YQ==", b"a", b"", false),
            CommandEvent::Noop,
            write(b"m", false),
            write(b"m", false),
            write(b"n", true),
            CommandEvent::AwaitEnd,
            CommandEvent::Get(b"c".to_vec(), Effect { ttl_s: Some(60), is_change: true }),
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
    fn what_a_command_does_to_its_item_is_found_in_both_protocols() {
        let effects = |commands: &[u8]| -> Vec<_> {
            let effect = |event| match event {
                CommandEvent::Get(_, effect) | CommandEvent::Write(_, effect) => Some(effect),
                CommandEvent::MetaGet(get) => Some(get.effect),
                CommandEvent::AwaitEnd | CommandEvent::Noop => None,
            };
            let effects = scan_pieces(&[commands]).0.into_iter().filter_map(effect);
            effects.map(|effect| (effect.ttl_s, effect.is_change)).collect()
        };
        assert_eq!(
            effects(b"set a 0 60 1\r\nx\r\nset a 0 0 1\r\nx\r\n"),
            [(Some(60), false), (None, false)]
        );
        assert_eq!(
            effects(b"set a 0 1700000000 1\r\nx\r\nset a 0 -1 1\r\nx\r\n"),
            [(None, false); 2]
        );
        assert_eq!(effects(b"add a 0 5 1\r\nx\r\ncas a 0 5 1 9\r\nx\r\n"), [(Some(5), true); 2]);
        assert_eq!(effects(b"append a 0 0 1\r\nx\r\ndecr a 1\r\nma a\r\n"), [(None, true); 3]);
        assert_eq!(effects(b"touch a 7\r\ngat 7 a b\r\nmg a v T7\r\n"), [(Some(7), false); 4]);
        assert_eq!(effects(b"gets a\r\nmg a v c\r\n"), [(None, true); 2]);
        assert_eq!(effects(b"mg a v c N30\r\nms a 1 C4\r\nx\r\n"), [(None, false); 2]);
        assert_eq!(
            effects(b"ms YQ== 1 b T8 ME\r\nx\r\nms a 1 T8 MS\r\nx\r\n"),
            [(Some(8), true), (Some(8), false)]
        );
        assert_eq!(effects(b"delete a\r\nmd a\r\n"), [(None, false); 2]);
    }

    #[test]
    fn a_connection_that_cannot_be_followed_is_marked_out_of_sync_and_emits_no_more_events() {
        assert_eq!(scan_pieces(&[b"\x80\x00\x00\x01", b"get a\r\n"]), (vec![], true));
        let long_key = [b"get ", &[b'x'; 300][..], b" b\r\n"].concat();
        assert_eq!(scan_pieces(&[&long_key, b"get a\r\n"]), (vec![], true));
        assert!(scan_pieces(&[&[b'x'; 3000]]).1, "no line of memcached");
    }
}
