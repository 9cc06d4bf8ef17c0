//! What a generator thread sends: the trait that each workload implements, and the requests it can write.
//!
//! The generator's thread knows sockets, clocks and replies; a workload knows keys and values. Key texts and expected values are
//! computed from the key's number, so a request in flight needs 8 bytes per key.

use std::collections::VecDeque;

use glasscache_protocol::binary::request::{self as binary, BinaryStoreParameters};
use glasscache_protocol::binary::{OpcodeAndOpaque, opcode};
use glasscache_protocol::meta::request as meta;
use glasscache_protocol::text::request::{self as text, StoreMode, TextStoreParameters};

use crate::access::Protocol;

/// One thread's workload.
pub(crate) trait Workload: Send {
    /// Appends one request of `connection` to `batch`, or returns that this connection has nothing more to send.
    fn next(&mut self, connection: usize, batch: &mut Batch<'_>) -> NextStep;

    /// Writes the text of key `id`: 1 to 250 bytes.
    fn write_key(&self, id: u64, key_text: &mut Vec<u8>);

    /// The value under key `id`: what a set sends and what a hit must carry.
    fn value(&self, id: u64) -> &[u8];

    /// Called with the result of key `id`; for a multi-get once per key.
    fn on_result(&mut self, connection: usize, id: u64, result: KeyResult);
}

/// Whether a connection continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// One request was appended.
    Sent,
    /// Nothing was appended; the connection waits for the replies in flight. Only valid if a request
    /// is in flight: otherwise nothing would wake the connection.
    Wait,
    /// This connection is done once its replies are in.
    Finished,
}

/// The result of one key of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyResult {
    /// A value came back and passed the check.
    Hit,
    /// No value.
    Miss,
    /// A write took effect (stored, appended, counted, touched, deleted).
    Stored,
    /// Any other reply to a write.
    Refused,
    /// A value came back that differs from the stored one.
    Wrong,
}

/// What replies a request in flight has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// A value or a miss: a get in meta or binary.
    Get,
    /// Values and an end: a get in text, or quiet gets and a noop in binary.
    GetWithEnd,
    /// One reply; its parser decides whether it means success.
    Write,
}

/// A request in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) kind: RequestKind,
    /// Keys without a result yet.
    pub(crate) pending_keys: u32,
    pub(crate) intended_ns: u64,
    pub(crate) sent_ns: u64,
}

impl Request {
    /// How many opaques it has in binary: one for each key without a result yet, and one for a noop.
    pub(crate) const fn opaques(&self) -> u32 {
        match self.kind {
            RequestKind::GetWithEnd => self.pending_keys + 1,
            RequestKind::Get | RequestKind::Write => self.pending_keys,
        }
    }
}

/// Values from this size on are sent without being copied behind their header.
const LARGE_VALUE_BYTES_MIN: usize = 32 * 1024;

/// The requests that are sent in one write; see `Workload::next`.
pub(crate) struct Batch<'a> {
    pub(crate) output: &'a mut Vec<u8>,
    /// The requests in flight on the connection.
    pub(crate) requests: &'a mut VecDeque<Request>,
    /// The ids of their keys.
    pub(crate) key_ids: &'a mut VecDeque<u64>,
    /// A set whose value follows `output` by reference; it closes the batch.
    pub(crate) large_value_id: &'a mut Option<u64>,
    pub(crate) protocol: Protocol,
    /// Opaque of the next request in binary; the connection's requests are numbered in their order.
    pub(crate) next_opaque: &'a mut u32,
    /// Texts of the keys of the request that is being written, one after the other, and where each one ends.
    pub(crate) key_texts: &'a mut KeyTexts,
}

/// Reused buffers for key texts.
#[derive(Debug, Default)]
pub(crate) struct KeyTexts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyTexts {
    fn fill(&mut self, workload: &impl Workload, ids: &[u64]) {
        self.bytes.clear();
        self.ends.clear();
        for &id in ids {
            workload.write_key(id, &mut self.bytes);
            self.ends.push(self.bytes.len());
        }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(from, &to)| self.bytes.get(from..to).unwrap_or_default())
    }
}

/// What follows the bytes of a value, in both directions.
pub(crate) const fn value_terminator(protocol: Protocol) -> &'static [u8] {
    match protocol {
        Protocol::Text | Protocol::Meta => b"\r\n",
        Protocol::Binary => b"",
    }
}

impl Batch<'_> {
    /// Reads `ids` in one request; in meta, which has no multi-get, only the first. In binary several keys are quiet
    /// gets and a noop.
    pub(crate) fn get(&mut self, workload: &impl Workload, ids: &[u64]) {
        let ids = match self.protocol {
            Protocol::Text | Protocol::Binary => ids,
            Protocol::Meta => ids.get(..1).unwrap_or_default(),
        };
        self.key_texts.fill(workload, ids);
        let kind = match self.protocol {
            Protocol::Text => {
                text::get(self.output, self.key_texts.iter(), false);
                RequestKind::GetWithEnd
            }
            Protocol::Meta => {
                meta::get_value_only(self.output, &self.key_texts.bytes);
                RequestKind::Get
            }
            Protocol::Binary if ids.len() == 1 => {
                binary::get(self.output, self.next_request_id(opcode::GET), &self.key_texts.bytes);
                RequestKind::Get
            }
            Protocol::Binary => {
                let mut request_id = self.next_request_id(opcode::GETQ);
                for key in self.key_texts.iter() {
                    binary::get(self.output, request_id, key);
                    request_id.opaque = request_id.opaque.wrapping_add(1);
                }
                request_id.opcode = opcode::NOOP;
                binary::header_only(self.output, request_id);
                RequestKind::GetWithEnd
            }
        };
        self.key_ids.extend(ids);
        self.push(kind, ids.len() as u32);
    }

    /// Stores the value of `id` for `ttl_s` seconds (0: without a TTL).
    pub(crate) fn set(&mut self, workload: &impl Workload, id: u64, ttl_s: u32) {
        let value = workload.value(id);
        self.key_texts.fill(workload, &[id]);
        let text_parameters = TextStoreParameters {
            flags: 0,
            exptime: i64::from(ttl_s),
            value_bytes: value.len(),
            noreply: false,
        };
        match self.protocol {
            Protocol::Text => {
                text::store(self.output, StoreMode::Set, &self.key_texts.bytes, &text_parameters);
            }
            Protocol::Meta => {
                meta::set_without_opaque(self.output, &self.key_texts.bytes, &text_parameters);
            }
            Protocol::Binary => {
                let binary_parameters = BinaryStoreParameters {
                    flags: 0,
                    exptime: ttl_s,
                    value_bytes: value.len() as u32,
                    required_cas: 0,
                };
                let request_id = self.next_request_id(opcode::SET);
                binary::store(self.output, request_id, &self.key_texts.bytes, &binary_parameters);
            }
        }
        if value.len() < LARGE_VALUE_BYTES_MIN {
            self.output.extend_from_slice(value);
            self.output.extend_from_slice(value_terminator(self.protocol));
        } else {
            *self.large_value_id = Some(id);
        }
        self.key_ids.push_back(id);
        self.push(RequestKind::Write, 1);
    }

    /// Removes `id`.
    pub(crate) fn delete(&mut self, workload: &impl Workload, id: u64) {
        self.key_texts.fill(workload, &[id]);
        match self.protocol {
            Protocol::Text => text::delete(self.output, &self.key_texts.bytes, false),
            Protocol::Meta => meta::delete_without_opaque(self.output, &self.key_texts.bytes),
            Protocol::Binary => {
                binary::delete(
                    self.output,
                    self.next_request_id(opcode::DELETE),
                    &self.key_texts.bytes,
                    0,
                );
            }
        }
        self.key_ids.push_back(id);
        self.push(RequestKind::Write, 1);
    }

    /// Sends a whole `request` in text or meta about key `id`, to which one line is the reply.
    pub(crate) fn write_request(&mut self, id: u64, request: &[u8]) {
        self.output.extend_from_slice(request);
        self.key_ids.push_back(id);
        self.push(RequestKind::Write, 1);
    }

    /// What the next request in binary has in its header.
    const fn next_request_id(&self, opcode: u8) -> OpcodeAndOpaque {
        OpcodeAndOpaque { opcode, opaque: *self.next_opaque }
    }

    fn push(&mut self, kind: RequestKind, key_count: u32) {
        let request = Request { kind, pending_keys: key_count, intended_ns: 0, sent_ns: 0 };
        *self.next_opaque = self.next_opaque.wrapping_add(request.opaques());
        self.requests.push_back(request);
    }
}
