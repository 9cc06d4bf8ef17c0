//! Parses one request at the front of the input; lengths are checked before anything is read by them.
//!
//! The header alone decides whether a request is refused, so a malformed one is never waited for. Where a
//! request is longer than its opcode allows, memcached executes the excess as the next request; here it is
//! malformed (docs/decisions/protocol.md, 0095).

use super::header::{HEADER_BYTES, Header, MAGIC_REQUEST};
use super::{Status, opcode};
use crate::command::{StoreCommand, StoreHead};
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Largest body that is taken at all, in bytes: memcached's upper limit of an item.
const BODY_BYTES_MAX: u32 = 1 << 30;
const _: () = assert!(BODY_BYTES_MAX <= VALUE_BYTES_MAX);

/// An exptime of incr and decr that keeps them from creating the item.
const EXPTIME_NO_CREATE: u32 = u32::MAX;

/// The result of parsing the front of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed<'b> {
    /// Header, extras and key have not arrived whole.
    Incomplete,
    /// A request; `used` bytes of the input are consumed. The value of a store follows them.
    Request(OpcodeAndOpaque, Command<'b>, usize),
    /// A request to be refused; `used` bytes are consumed.
    Refused(PacketRefusal, usize),
    /// Not a request of this protocol: the stream cannot be followed.
    BadMagic,
}

/// What each response to a request repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpcodeAndOpaque {
    /// See [`opcode`].
    pub opcode: u8,
    /// The client's number for the request.
    pub opaque: u32,
}

impl OpcodeAndOpaque {
    /// Whether the usual outcome is not reported.
    #[inline]
    pub fn is_quiet(self) -> bool {
        opcode::is_quiet(self.opcode)
    }

    /// Whether a read reports the client flags alone.
    #[inline]
    pub fn is_touch(self) -> bool {
        self.opcode == opcode::TOUCH
    }

    /// Whether a response repeats the key.
    #[inline]
    pub fn returns_key(self) -> bool {
        opcode::returns_key(self.opcode)
    }
}

/// A request whose lengths are those of its opcode. Keys have 1 to 250 bytes of any kind; exptimes and numbers are
/// those of the wire, whose exptimes are never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command<'b> {
    /// get and gat, all forms.
    Get(Get<'b>),
    /// Gives an item a new exptime.
    Touch {
        /// The item's key.
        key: &'b [u8],
        /// The new exptime.
        exptime: u32,
    },
    /// set, add, replace, append, prepend; with a CAS unique, the first three are a cas. The value follows.
    Store(StoreHead<'b>),
    /// Removes an item.
    Delete {
        /// The item's key.
        key: &'b [u8],
        /// The CAS unique that it must have.
        required_cas: Option<u64>,
    },
    /// increment and decrement.
    Arith {
        /// The item's key.
        key: &'b [u8],
        /// The delta.
        delta: u64,
        /// True for decrement.
        is_decrement: bool,
        /// The number and the exptime of an item made where none is; `None` makes none.
        initial: Option<(u64, u32)>,
        /// The CAS unique that the item must have.
        required_cas: Option<u64>,
    },
    /// Removes everything, after this many seconds (or from a Unix time on, as an exptime).
    Flush {
        /// 0 is at once.
        exptime: u32,
    },
    /// Statistics: the family's name, or nothing.
    Stat(&'b [u8]),
    /// The mechanisms of SASL that the server accepts.
    SaslMechanisms,
    /// A login. The message of the mechanism follows as the value.
    SaslLogin {
        /// The name of the mechanism.
        mechanism: &'b [u8],
        /// Length of the message in bytes.
        message_bytes: u32,
        /// It continues an exchange that an earlier request began.
        is_step: bool,
    },
    /// Nothing; its response shows that everything before is done.
    Noop,
    /// The server's version.
    Version,
    /// Close the connection.
    Quit,
}

/// A read of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Get<'b> {
    /// The item's key.
    pub key: &'b [u8],
    /// The new exptime of a gat.
    pub touch: Option<u32>,
}

/// A request that gets an error reply instead of being executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRefusal {
    /// Which request.
    pub request: OpcodeAndOpaque,
    /// Why.
    pub status: Status,
    /// Bytes that follow and belong to the refused request.
    pub bytes_to_skip: u32,
    /// The stream cannot be followed: close after the response.
    pub must_close: bool,
}

/// Parses the request at the front of `input`.
#[inline]
pub fn parse(input: &[u8]) -> Parsed<'_> {
    let Some(header) = Header::read(input) else {
        return match input.first() {
            Some(&magic) if magic != MAGIC_REQUEST => Parsed::BadMagic,
            _ => Parsed::Incomplete,
        };
    };
    if header.magic != MAGIC_REQUEST {
        return Parsed::BadMagic;
    }
    let value_bytes = match checked_value_bytes(&header) {
        Ok(value_bytes) => value_bytes,
        Err(status) => return refuse_malformed(&header, status),
    };
    let key_bytes = usize::from(header.key_bytes);
    let extras_bytes = usize::from(header.extras_bytes);
    let used = HEADER_BYTES + extras_bytes + key_bytes;
    let Some(extras_and_key) = input.get(HEADER_BYTES..used) else {
        return Parsed::Incomplete;
    };
    let (extras, key) = extras_and_key.split_at_checked(extras_bytes).unwrap_or_default();
    let request = OpcodeAndOpaque { opcode: header.opcode, opaque: header.opaque };
    if let Some(command) = decode_command(&header, extras, key, value_bytes) {
        return Parsed::Request(request, command, used);
    }
    // The lengths were checked, so this is an opcode that is not known.
    let refusal = PacketRefusal {
        request,
        status: Status::UnknownCommand,
        bytes_to_skip: value_bytes,
        must_close: false,
    };
    Parsed::Refused(refusal, used)
}

/// A malformed request: what follows its header cannot be trusted.
#[cold]
fn refuse_malformed(header: &Header, status: Status) -> Parsed<'static> {
    let refusal = PacketRefusal {
        request: OpcodeAndOpaque { opcode: header.opcode, opaque: header.opaque },
        status,
        bytes_to_skip: 0,
        must_close: true,
    };
    Parsed::Refused(refusal, HEADER_BYTES)
}

/// Length of the value, if all lengths of the header are those that its opcode allows.
#[inline]
fn checked_value_bytes(header: &Header) -> Result<u32, Status> {
    // memcached calls lengths that contradict each other an unknown command.
    let value_bytes = header.value_bytes().ok_or(Status::UnknownCommand)?;
    if header.body_bytes > BODY_BYTES_MAX {
        return Err(Status::InvalidArguments);
    }
    if usize::from(header.key_bytes) > KEY_BYTES_MAX {
        return Err(Status::InvalidArguments);
    }
    let extras_bytes = header.extras_bytes;
    let (has_key, has_no_value) = (header.key_bytes > 0, value_bytes == 0);
    let is_valid = match header.opcode {
        opcode::GET | opcode::GETQ | opcode::GETK | opcode::GETKQ => {
            extras_bytes == 0 && has_key && has_no_value
        }
        opcode::SET
        | opcode::SETQ
        | opcode::ADD
        | opcode::ADDQ
        | opcode::REPLACE
        | opcode::REPLACEQ => extras_bytes == 8 && has_key,
        opcode::APPEND | opcode::APPENDQ | opcode::PREPEND | opcode::PREPENDQ => {
            extras_bytes == 0 && has_key
        }
        opcode::DELETE | opcode::DELETEQ => extras_bytes == 0 && has_key && has_no_value,
        opcode::INCREMENT | opcode::INCREMENTQ | opcode::DECREMENT | opcode::DECREMENTQ => {
            extras_bytes == 20 && has_key && has_no_value
        }
        opcode::TOUCH | opcode::GAT | opcode::GATQ | opcode::GATK | opcode::GATKQ => {
            extras_bytes == 4 && has_key && has_no_value
        }
        opcode::FLUSH | opcode::FLUSHQ => {
            (extras_bytes == 0 || extras_bytes == 4) && !has_key && has_no_value
        }
        opcode::STAT => extras_bytes == 0 && has_no_value,
        opcode::NOOP
        | opcode::VERSION
        | opcode::QUIT
        | opcode::QUITQ
        | opcode::SASL_LIST_MECHANISMS => extras_bytes == 0 && !has_key && has_no_value,
        opcode::SASL_AUTH | opcode::SASL_STEP => extras_bytes == 0 && has_key,
        _ => true,
    };
    if is_valid { Ok(value_bytes) } else { Err(Status::InvalidArguments) }
}

/// The command of a checked header; `None` for an opcode that is not served.
#[inline]
fn decode_command<'b>(
    header: &Header,
    extras: &[u8],
    key: &'b [u8],
    value_bytes: u32,
) -> Option<Command<'b>> {
    let required_cas = (header.cas != 0).then_some(header.cas);
    Some(match header.opcode {
        opcode::GET | opcode::GETQ | opcode::GETK | opcode::GETKQ => {
            Command::Get(Get { key, touch: None })
        }
        opcode::GAT | opcode::GATQ | opcode::GATK | opcode::GATKQ => {
            Command::Get(Get { key, touch: Some(read_u32(extras, 0)) })
        }
        opcode::TOUCH => Command::Touch { key, exptime: read_u32(extras, 0) },
        opcode::DELETE | opcode::DELETEQ => Command::Delete { key, required_cas },
        opcode::INCREMENT | opcode::INCREMENTQ | opcode::DECREMENT | opcode::DECREMENTQ => {
            let exptime = read_u32(extras, 16);
            Command::Arith {
                key,
                delta: read_u64(extras, 0),
                is_decrement: matches!(header.opcode, opcode::DECREMENT | opcode::DECREMENTQ),
                initial: (exptime != EXPTIME_NO_CREATE).then(|| (read_u64(extras, 8), exptime)),
                required_cas,
            }
        }
        opcode::FLUSH | opcode::FLUSHQ => Command::Flush { exptime: read_u32(extras, 0) },
        opcode::STAT => Command::Stat(key),
        opcode::SASL_LIST_MECHANISMS => Command::SaslMechanisms,
        opcode::SASL_AUTH | opcode::SASL_STEP => Command::SaslLogin {
            mechanism: key,
            message_bytes: value_bytes,
            is_step: header.opcode == opcode::SASL_STEP,
        },
        opcode::NOOP => Command::Noop,
        opcode::VERSION => Command::Version,
        opcode::QUIT | opcode::QUITQ => Command::Quit,
        _ => Command::Store(StoreHead {
            verb: store_verb(header.opcode, required_cas.is_some())?,
            key,
            flags: read_u32(extras, 0),
            exptime: i64::from(read_u32(extras, 4)),
            value_bytes,
            required_cas,
            noreply: opcode::is_quiet(header.opcode),
        }),
    })
}

/// The verb of a store; `None` for any other opcode. As in memcached, add and replace with a CAS unique are a cas.
#[inline]
fn store_verb(opcode: u8, has_cas: bool) -> Option<StoreCommand> {
    Some(match opcode {
        opcode::SET
        | opcode::SETQ
        | opcode::ADD
        | opcode::ADDQ
        | opcode::REPLACE
        | opcode::REPLACEQ
            if has_cas =>
        {
            StoreCommand::Cas
        }
        opcode::SET | opcode::SETQ => StoreCommand::Set,
        opcode::ADD | opcode::ADDQ => StoreCommand::Add,
        opcode::REPLACE | opcode::REPLACEQ => StoreCommand::Replace,
        opcode::APPEND | opcode::APPENDQ => StoreCommand::Append,
        opcode::PREPEND | opcode::PREPENDQ => StoreCommand::Prepend,
        _ => return None,
    })
}

/// The number at `offset` of the extras; 0 where they end before.
#[inline]
fn read_u32(extras: &[u8], offset: usize) -> u32 {
    let bytes = extras.get(offset..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

#[inline]
fn read_u64(extras: &[u8], offset: usize) -> u64 {
    let bytes = extras.get(offset..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The key of the request at the front of `input`, if it arrived whole: enough to fetch ahead what the key needs,
/// and no more than a guess.
#[inline]
pub fn likely_key(input: &[u8]) -> Option<&[u8]> {
    let header = Header::read(input)?;
    let key_start = HEADER_BYTES + usize::from(header.extras_bytes);
    let key = input.get(key_start..key_start + usize::from(header.key_bytes))?;
    (header.magic == MAGIC_REQUEST && !key.is_empty() && key.len() <= KEY_BYTES_MAX).then_some(key)
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
