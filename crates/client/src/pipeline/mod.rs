//! The pipeline of one connection: requests in flight, bytes received, replies matched. No socket.
//!
//! A driver (a blocking socket, an event loop, a fuzzer) passes in bytes; the pipeline reports when the oldest request
//! has its whole reply. Each reply is matched to its request by key or by opaque and, where the server returns it, by
//! key, and each length is checked against a bound before memory is allocated for it. The first mismatch poisons the
//! pipeline for good: the connection is closed then, because after one misread reply the next would be delivered to the
//! wrong request.

mod binary;
mod keys;
mod parse;
mod receive_buffer;
pub(crate) mod reserved;

use std::collections::VecDeque;

use glasscache_protocol::binary::reply::Fault as BinaryFault;
use glasscache_protocol::meta::reply::MetaCode;
use glasscache_protocol::text::reply::{ErrorLineKind, ReplyFault, WriteStatus};

pub use binary::ExpectedBinaryReply;
pub use keys::KeyList;
use receive_buffer::ReceiveBuffer;

/// Values longer than this are refused unless configured otherwise: the largest item
/// size in common use with room to spare, and far below what a hostile length would take.
pub const VALUE_BYTES_MAX: u64 = 64 << 20;

/// The requests for which an idle connection may keep space; more is freed with the last reply.
const RETAINED_IN_FLIGHT_MAX: usize = 1024;

/// What a request in flight waits for.
#[derive(Debug)]
pub enum ExpectedReply {
    /// The values of these keys, in any order, then `END`.
    Values(KeyList),
    /// One classic line: a status, a number, a version.
    Line,
    /// One meta reply.
    Meta {
        /// Its opaque.
        opaque: u32,
        /// The hash of the key that it must name, if it names one.
        key_hash: KeyHash,
    },
    /// Meta replies only where something went wrong, then `MN`; opaques from `first_opaque` on.
    Quiet {
        /// Opaque of the first request.
        first_opaque: u32,
        /// How many requests there are.
        count: u32,
    },
    /// `STAT` rows, then `END`; or one word, as for `stats reset`.
    Rows,
    /// `MN`, or an error line from a server that has no meta commands.
    Probe,
    /// `STORED`, or an error line from a server that does not accept the login.
    Login,
    /// Responses in binary.
    Binary(ExpectedBinaryReply),
}

impl ExpectedReply {
    /// The keys of a read in flight.
    pub fn keys(&self) -> Option<&KeyList> {
        match self {
            Self::Values(keys) | Self::Binary(ExpectedBinaryReply::Values { keys, .. }) => {
                Some(keys)
            }
            _ => None,
        }
    }

    /// Whether it is the reply to a login.
    pub(crate) fn is_login(&self) -> bool {
        matches!(self, Self::Login) || matches!(self, Self::Binary(expected) if expected.is_login())
    }
}

/// The hash of a key of a request in flight, as it goes on the wire, to be compared with the key of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash(u64);

impl KeyHash {
    /// The hash of a key.
    pub fn of(key: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(key))
    }
}

/// A value in a reply: its key and where its bytes lie (see [`Pipeline::body`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundValue {
    /// Index of its key in the request.
    pub key_index: usize,
    /// Client flags.
    pub flags: u32,
    /// CAS unique; 0 if it was not requested.
    pub cas: u64,
    /// Length in bytes.
    pub value_bytes: usize,
    offset: usize,
}

/// The metadata of a meta reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaReply {
    /// The outcome.
    pub code: MetaCode,
    /// Seconds left; -1 never expires; `None` was not requested.
    pub ttl_s: Option<i64>,
    /// Seconds since the last access.
    pub last_access_s: Option<u64>,
    /// Whether it was fetched before.
    pub was_hit: Option<bool>,
    /// The CAS unique.
    pub cas: Option<u64>,
    /// The client flags; 0 where they were not requested.
    pub client_flags: u32,
    /// This client has won the right to refill.
    pub won: bool,
    /// The item is stale.
    pub stale: bool,
}

/// A server's refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its first token.
    pub kind: ErrorLineKind,
    /// Its message.
    pub message: String,
}

impl Refusal {
    /// Whether a value was refused for its length: the text of memcached, of our server and of every proxy.
    pub(crate) fn is_too_large(&self) -> bool {
        self.message.contains("too large")
    }
}

/// The whole reply to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Values, in [`Pipeline::found_values`].
    Values,
    /// The outcome of a write.
    Status(WriteStatus),
    /// A new number.
    Number(u64),
    /// The server's version.
    Version(String),
    /// A meta reply; a value, if any, is in [`Pipeline::found_values`].
    Meta(MetaReply),
    /// The failures of a quiet batch: (index of the request, outcome), and refusals that name none.
    Quiet(Vec<(usize, MetaCode)>, Vec<Refusal>),
    /// Rows of `stats`.
    Rows(Vec<(String, String)>),
    /// The reply to the probe: whether the server knows meta commands.
    Probe(bool),
    /// The reply to a login: the refusal, if it was not accepted.
    Login(Option<Refusal>),
    /// The server refused the request.
    Refused(Refusal),
}

/// Why a pipeline is poisoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The line cannot be parsed.
    #[error(transparent)]
    Line(#[from] ReplyFault),
    /// Not a response in binary.
    #[error(transparent)]
    Binary(#[from] BinaryFault),
    /// A reply that names another key than its request, or a value that came twice.
    #[error("a value of a key that was not requested")]
    WrongKey,
    /// A reply to another request.
    #[error("a reply with another request's opaque")]
    WrongOpaque,
    /// Bytes while no request was in flight.
    #[error("unsolicited bytes")]
    Unsolicited,
    /// A value is not followed by a line end: its length is wrong.
    #[error("a value that does not end at its announced length")]
    WrongLength,
    /// A length beyond the bound.
    #[error("a value of {bytes} bytes, limit {limit} (value_bytes_max)")]
    TooLong {
        /// What the server announced.
        bytes: u64,
        /// The bound.
        limit: u64,
    },
    /// More lines than any reply has.
    #[error("a reply of more lines than any server sends")]
    TooManyRows,
}

/// The state of the oldest request.
#[derive(Debug, PartialEq, Eq)]
pub enum ReplyProgress {
    /// Nothing is in flight.
    Idle,
    /// At least this many bytes are missing.
    Incomplete(usize),
    /// Its reply is complete; [`Pipeline::body`] gives values until [`Pipeline::release`].
    Complete(Reply),
}

/// Requests in flight and the bytes of their replies.
#[derive(Debug)]
pub struct Pipeline {
    receive_buffer: ReceiveBuffer,
    in_flight: VecDeque<ExpectedReply>,
    scan: ReplyScan,
    spare_keys: Option<KeyList>,
    value_bytes_max: u64,
    fault: Option<Fault>,
}

/// How far the reply at the front of the receive buffer has been parsed.
#[derive(Debug, Default)]
struct ReplyScan {
    /// Bytes of it that are understood.
    offset: usize,
    /// The head of this value was read, its body not yet.
    incomplete_value: Option<FoundValue>,
    /// The body was taken by the caller; its line end is still to come.
    is_body_external: bool,
    /// Values so far.
    values: Vec<FoundValue>,
    /// A value that only reserves its key while the real one is computed: a miss to the caller.
    reservation: Option<FoundValue>,
    /// Where the search for the next value's key begins.
    key_cursor: usize,
    /// Meta head of the value being read.
    meta: Option<MetaReply>,
    failed_replies: Vec<(usize, MetaCode)>,
    refusals: Vec<Refusal>,
    /// Replies to quiet requests so far.
    quiet_replies: u32,
    rows: Vec<(String, String)>,
}

impl Pipeline {
    /// An empty pipeline that refuses values longer than `value_bytes_max`.
    pub fn new(value_bytes_max: u64) -> Self {
        Self {
            receive_buffer: ReceiveBuffer::default(),
            in_flight: VecDeque::new(),
            scan: ReplyScan::default(),
            spare_keys: None,
            value_bytes_max,
            fault: None,
        }
    }

    /// Notes a request that was or will be written after all those noted before.
    pub fn expect(&mut self, expected: ExpectedReply) {
        self.in_flight.push_back(expected);
    }

    /// How many requests wait for their reply.
    pub fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether every request has its reply and not one byte more has come.
    pub fn is_clean(&self) -> bool {
        self.fault.is_none() && self.in_flight.is_empty() && self.receive_buffer.is_empty()
    }

    /// Whether no fault was met.
    pub fn has_no_fault(&self) -> bool {
        self.fault.is_none()
    }

    /// The bytes received and not used up.
    pub fn received_bytes(&self) -> usize {
        self.receive_buffer.len()
    }

    /// A key list to fill, which reuses the memory of an earlier one.
    pub fn key_list(&mut self) -> KeyList {
        self.spare_keys.take().unwrap_or_default()
    }

    /// Room for at least `byte_count_min` more received bytes; [`Self::mark_received`] notes how many came.
    pub fn receive_space(&mut self, byte_count_min: usize) -> &mut [u8] {
        self.receive_buffer.receive_space(byte_count_min)
    }

    /// Notes that `byte_count` bytes were written into [`Self::receive_space`].
    pub fn mark_received(&mut self, byte_count: usize) {
        self.receive_buffer.mark_received(byte_count);
    }

    /// Takes received bytes by copy.
    pub fn feed(&mut self, mut received: &[u8]) {
        // Room grows with what has come, so a long piece is taken in several steps.
        while !received.is_empty() {
            let free_space = self.receive_buffer.receive_space(received.len());
            let copied_byte_count = received.len().min(free_space.len());
            let (fitting_part, remaining_part) = received.split_at(copied_byte_count);
            if let Some(free_space) = free_space.get_mut(..copied_byte_count) {
                free_space.copy_from_slice(fitting_part);
            }
            self.receive_buffer.mark_received(copied_byte_count);
            received = remaining_part;
        }
    }

    /// Parses what was received, and returns the state of the oldest request. A fault stays: each later call returns
    /// it.
    #[inline]
    pub fn poll(&mut self) -> Result<ReplyProgress, Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let progress = self.advance();
        if let Err(fault) = progress {
            self.fault = Some(fault);
        }
        progress
    }

    /// Values of the reply that is complete, or that have come so far.
    pub fn found_values(&self) -> &[FoundValue] {
        &self.scan.values
    }

    /// The bytes of a value of the current reply.
    pub fn body(&self, value: &FoundValue) -> &[u8] {
        self.receive_buffer.slice(value.offset, value.value_bytes).unwrap_or_default()
    }

    /// The reservation in the current reply, the last of several; it is not among the values.
    pub fn reservation(&self) -> Option<FoundValue> {
        self.scan.reservation
    }

    /// The value whose body has come in part, if that is what is missing and it is the reply's first; never in binary,
    /// whose values nothing follows.
    pub fn partial_value(&self) -> Option<FoundValue> {
        let is_binary = matches!(self.in_flight.front(), Some(ExpectedReply::Binary(_)));
        let incomplete_value = self.scan.incomplete_value.filter(|_| !is_binary);
        incomplete_value.filter(|_| self.scan.values.is_empty())
    }

    /// Moves the received part of [`Self::partial_value`] into `target`, which is as long as the value, and
    /// returns how much that was. The caller receives the rest itself and continues with [`Self::poll`].
    pub fn move_partial_value(&mut self, target: &mut [u8]) -> usize {
        let Some(value) = self.partial_value() else {
            return 0;
        };
        let available_bytes =
            self.receive_buffer.len().saturating_sub(value.offset).min(target.len());
        if let (Some(from), Some(to)) = (
            self.receive_buffer.slice(value.offset, available_bytes),
            target.get_mut(..available_bytes),
        ) {
            to.copy_from_slice(from);
        }
        self.receive_buffer.consume(value.offset + available_bytes);
        self.scan.offset = 0;
        self.scan.incomplete_value = None;
        self.scan.is_body_external = true;
        available_bytes
    }

    /// Releases the complete reply and its bytes; the next request is then the oldest.
    pub fn release(&mut self) {
        if let Some(
            ExpectedReply::Values(mut keys)
            | ExpectedReply::Binary(ExpectedBinaryReply::Values { mut keys, .. }),
        ) = self.in_flight.pop_front()
        {
            keys.clear();
            self.spare_keys = Some(keys);
        }
        if self.in_flight.is_empty() && self.in_flight.capacity() > RETAINED_IN_FLIGHT_MAX {
            self.in_flight = VecDeque::new();
        }
        self.receive_buffer.consume(self.scan.offset);
        self.scan.reset();
    }

    /// The oldest request, without its reply.
    pub fn oldest_request(&self) -> Option<&ExpectedReply> {
        self.in_flight.front()
    }

    /// Whether nothing at all has been received for the requests in flight.
    pub fn has_no_reply_bytes(&self) -> bool {
        self.scan.offset == 0 && self.receive_buffer.is_empty() && !self.scan.is_body_external
    }
}

impl ReplyScan {
    fn reset(&mut self) {
        self.offset = 0;
        self.incomplete_value = None;
        self.is_body_external = false;
        self.values.clear();
        self.reservation = None;
        self.key_cursor = 0;
        self.quiet_replies = 0;
        self.meta = None;
    }

    /// Counts a reply to one of `count` quiet requests, of which each has one at most.
    fn count_quiet_reply(&mut self, count: u32) -> Result<(), Fault> {
        if self.quiet_replies >= count {
            return Err(Fault::TooManyRows);
        }
        self.quiet_replies += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
