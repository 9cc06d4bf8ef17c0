//! What a generator thread sends: the trait that each workload fills in, and the requests it can write.
//!
//! The engine knows sockets, clocks and replies, a workload knows keys and values; neither knows the other.
//! Key texts and expected values are asked for by the key's number, so that a request in flight is 8 bytes a key.

use std::collections::VecDeque;

/// One thread's workload.
pub trait Work: Send {
    /// Appends one request of `connection` to `batch`, or says that this connection has nothing more to send.
    fn next(&mut self, connection: usize, batch: &mut Batch<'_>) -> Step;

    /// Writes the text of key `id`: 1 to 250 bytes.
    fn write_key(&self, id: u64, text: &mut Vec<u8>);

    /// The value under key `id`: what a set sends and what a hit must carry.
    fn value(&self, id: u64) -> &[u8];

    /// Hears what became of key `id`; a multi-get tells each of its keys.
    fn done(&mut self, connection: usize, id: u64, outcome: Outcome);
}

/// Whether a connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// One request was appended.
    Sent,
    /// Nothing was appended, and nothing more follows before the answers under way are in. Only for a
    /// connection that has a request under way: otherwise nothing would ever wake it.
    Wait,
    /// This connection is done once its replies are in.
    Finished,
}

/// What became of one key of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A value came back, and it was the right one as far as it was checked.
    Hit,
    /// No value.
    Miss,
    /// A write took effect (stored, appended, counted, touched, deleted).
    Stored,
    /// A write was answered by anything else.
    Refused,
    /// A value came back that is not what was stored.
    Wrong,
}

/// The dialect in which gets and sets are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// `get`, `set`: classic text.
    #[default]
    Text,
    /// `mg`, `ms`: meta commands.
    Meta,
}

/// The verb of a request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Expects values and an end.
    Get,
    /// Expects one line; which ones mean success is the reply's affair.
    Write,
}

/// A request in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    pub(crate) keys: u32,
    pub(crate) intended_ns: u64,
    pub(crate) sent_ns: u64,
}

/// Values from this size on are sent from where they lie instead of being copied behind their header.
const LARGE_BYTES: usize = 32 * 1024;

/// The requests that leave in one write; see [`Work::next`].
pub struct Batch<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) requests: &'a mut VecDeque<Request>,
    pub(crate) keys: &'a mut VecDeque<u64>,
    /// A set whose value follows `out` by reference; it closes the batch.
    pub(crate) large: &'a mut Option<u64>,
    pub(crate) dialect: Dialect,
}

impl Batch<'_> {
    /// Reads `ids` by one request; in the meta dialect only the first, which has no multi-get.
    pub fn get(&mut self, work: &impl Work, ids: &[u64]) {
        let ids = match self.dialect {
            Dialect::Text => ids,
            Dialect::Meta => ids.get(..1).unwrap_or_default(),
        };
        self.out
            .extend_from_slice(if self.dialect == Dialect::Meta {
                b"mg"
            } else {
                b"get"
            });
        for &id in ids {
            self.out.push(b' ');
            work.write_key(id, self.out);
            self.keys.push_back(id);
        }
        self.out
            .extend_from_slice(if self.dialect == Dialect::Meta {
                b" v\r\n"
            } else {
                b"\r\n"
            });
        self.push(Verb::Get, ids.len() as u32);
    }

    /// Stores the value of `id` for `ttl_s` seconds (0: for good).
    pub fn set(&mut self, work: &impl Work, id: u64, ttl_s: u32) {
        let value = work.value(id);
        let mut number = itoa::Buffer::new();
        self.out
            .extend_from_slice(if self.dialect == Dialect::Meta {
                b"ms "
            } else {
                b"set "
            });
        work.write_key(id, self.out);
        if self.dialect == Dialect::Meta {
            self.out.push(b' ');
            self.out
                .extend_from_slice(number.format(value.len()).as_bytes());
            if ttl_s > 0 {
                self.out.extend_from_slice(b" T");
                self.out.extend_from_slice(number.format(ttl_s).as_bytes());
            }
        } else {
            self.out.extend_from_slice(b" 0 ");
            self.out.extend_from_slice(number.format(ttl_s).as_bytes());
            self.out.push(b' ');
            self.out
                .extend_from_slice(number.format(value.len()).as_bytes());
        }
        self.out.extend_from_slice(b"\r\n");
        if value.len() < LARGE_BYTES {
            self.out.extend_from_slice(value);
            self.out.extend_from_slice(b"\r\n");
        } else {
            *self.large = Some(id);
        }
        self.keys.push_back(id);
        self.push(Verb::Write, 1);
    }

    /// Sends `line` (without its end) about key `id`, and expects one line back.
    pub fn line(&mut self, id: u64, line: &[u8]) {
        self.out.extend_from_slice(line);
        self.out.extend_from_slice(b"\r\n");
        self.keys.push_back(id);
        self.push(Verb::Write, 1);
    }

    fn push(&mut self, verb: Verb, keys: u32) {
        self.requests.push_back(Request {
            verb,
            keys,
            intended_ns: 0,
            sent_ns: 0,
        });
    }
}
