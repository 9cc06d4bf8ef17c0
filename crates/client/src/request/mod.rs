//! Requests to one server, and their form in the command set of the server.
//!
//! The form is chosen per operation: one text `get` for plain reads (cheaper for a server than
//! as many `mg`: docs/decisions/client.md, 0051), quiet meta sets closed by `mn` for bulk writes, meta with
//! an opaque for the rest, classic text where a proxy knows no meta, binary where nothing else is understood.
//!
//! The *command set* of a server is what it understands: text and meta, *classic* text alone as with some proxies
//! (one probe, `mn`, finds out which), or binary.

mod write_binary;
mod write_classic;
mod write_meta;

use glasscache_protocol::meta::request::{Arithmetic, CommonFields, WireKey};
use glasscache_protocol::text::request::{self as text, StoreMode};

pub(crate) use write_binary::write_noop as write_binary_noop;

use crate::costs::{CallClass, OperationKind};
use crate::error::Error;
use crate::pipeline::{ExpectedReply, KeyHash, Pipeline};

/// Bodies up to this length are copied after their head; longer ones are sent from where they lie.
pub(crate) const COPIED_BODY_BYTES_MAX: usize = 4 << 10;

/// The largest exptime that counts from now, in seconds; beyond it, it is a time since 1970.
pub const RELATIVE_EXPTIME_MAX_S: i64 = 30 * 24 * 3600;

/// Which commands a server understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandSet {
    /// Text and meta.
    Meta,
    /// Text alone, as some proxies.
    Classic,
    /// Binary alone, as servers behind SASL.
    Binary,
}

/// One value to store.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// Its key.
    pub key: WireKey<'a>,
    /// Its client flags.
    pub flags: u32,
    /// Its bytes.
    pub body: &'a [u8],
}

/// One request to one server. `exptime` is as on the wire.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the fields are named as in the protocol")]
pub enum Request<'a> {
    /// One value, with its CAS unique if requested.
    Get { key: WireKey<'a>, cas: bool },
    /// Values of many plain keys, each with `prefix` before it; with their CAS uniques if requested.
    GetMany { prefix: &'a [u8], keys: &'a [&'a [u8]], cas: bool },
    /// Values of many keys, each with its remaining TTL where the command set has it.
    GetWithTtls { keys: &'a [WireKey<'a>] },
    /// One write of a value.
    Store { mode: StoreMode, item: Item<'a>, exptime: i64, noreply: bool },
    /// One append or prepend, if the value has this CAS unique and the command set can compare it; 0 compares nothing.
    Extend { mode: StoreMode, item: Item<'a>, unique: u64, noreply: bool },
    /// Client flags and CAS unique of one value; with the value where the command set has no other way.
    Flags { key: WireKey<'a> },
    /// Many writes, with an error for each that fails.
    StoreMany { mode: StoreMode, items: &'a [Item<'a>], exptime: i64, quiet: bool },
    /// One removal.
    Delete { key: WireKey<'a>, noreply: bool },
    /// Many removals.
    DeleteMany { keys: &'a [WireKey<'a>] },
    /// A new expiry.
    Touch { key: WireKey<'a>, exptime: i64, noreply: bool },
    /// A read that also sets the expiry.
    GetAndTouch { key: WireKey<'a>, exptime: i64 },
    /// An addition or subtraction.
    Arithmetic { key: WireKey<'a>, arithmetic: Arithmetic, noreply: bool },
    /// A read with the item's metadata.
    Inspect { key: WireKey<'a> },
    /// Remove every item.
    Flush { delay_s: u32 },
    /// Remove every item whose key starts with the prefix; a server of glasscache is needed.
    FlushPrefix { prefix: WireKey<'a> },
    /// The server's counters.
    Stats { argument: &'a [u8] },
    /// The server's version.
    Version,
}

/// What a request changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// It reads.
    Nothing,
    /// The expiry or the number under its keys: no older value comes back if it is lost.
    Existing,
    /// The values under its keys.
    Value,
    /// All items, or those of a prefix.
    Everything,
}

/// What is known of a kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// In which class it is counted; `None`: it is not.
    pub kind: Option<OperationKind>,
    /// Whether it is idempotent, so that it may be sent again after a stale socket.
    pub is_repeatable: bool,
    /// What it changes.
    pub changes: Changes,
}

/// The operation has no form in the server's command set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsupported(pub &'static str);

/// Where a request is written: the output, the pipeline that expects its reply, the next opaque.
#[derive(Debug)]
pub struct RequestWriter<'d> {
    /// What the server understands.
    pub command_set: CommandSet,
    /// Notes the expected replies.
    pub pipeline: &'d mut Pipeline,
    /// The bytes to send.
    pub out: &'d mut Vec<u8>,
    /// The next opaque.
    pub next_opaque: &'d mut u32,
}

impl RequestWriter<'_> {
    fn reserve_opaques(&mut self, count: usize) -> u32 {
        let first_opaque = *self.next_opaque;
        *self.next_opaque = first_opaque.wrapping_add(count as u32);
        first_opaque
    }

    /// Notes a meta request that has a reply of its own.
    fn expect_meta(&mut self, opaque: u32, key: WireKey<'_>) {
        let expected = ExpectedReply::Meta { opaque, key_hash: KeyHash::of(key.bytes) };
        self.pipeline.expect(expected);
    }

    /// Begins a meta request that has a reply of its own.
    fn begin_meta_with_reply(&mut self, key: WireKey<'_>) -> CommonFields {
        let opaque = self.reserve_opaques(1);
        self.expect_meta(opaque, key);
        CommonFields { opaque, quiet: false }
    }
}

impl<'a> Request<'a> {
    /// What is known of a request of this kind: its row in the table of requests.
    #[inline]
    pub fn facts(&self) -> Facts {
        let (kind, is_repeatable, changes) = match self {
            Self::Get { .. }
            | Self::Inspect { .. }
            | Self::GetMany { .. }
            | Self::GetWithTtls { .. } => (Some(OperationKind::Read), true, Changes::Nothing),
            Self::GetAndTouch { .. } => (Some(OperationKind::Read), true, Changes::Existing),
            Self::Store { .. } | Self::Extend { .. } | Self::StoreMany { .. } => {
                (Some(OperationKind::Write), false, Changes::Value)
            }
            Self::Delete { .. } | Self::DeleteMany { .. } => {
                (Some(OperationKind::Other), true, Changes::Value)
            }
            Self::Touch { .. } => (Some(OperationKind::Other), true, Changes::Existing),
            Self::Arithmetic { .. } => (Some(OperationKind::Other), false, Changes::Existing),
            Self::Flags { .. } => (Some(OperationKind::Other), true, Changes::Nothing),
            Self::Flush { .. } | Self::FlushPrefix { .. } => (None, false, Changes::Everything),
            Self::Stats { .. } | Self::Version => (None, true, Changes::Nothing),
        };
        Facts { kind, is_repeatable, changes }
    }

    /// Passes on the keys of which it is, which have their namespace; those of `GetMany` have not.
    pub fn for_each_key(&self, mut pass_on: impl FnMut(WireKey<'a>)) {
        match *self {
            Self::Get { key, .. }
            | Self::Inspect { key }
            | Self::Flags { key }
            | Self::Delete { key, .. }
            | Self::Touch { key, .. }
            | Self::GetAndTouch { key, .. }
            | Self::Arithmetic { key, .. } => pass_on(key),
            Self::Store { item, .. } | Self::Extend { item, .. } => pass_on(item.key),
            Self::StoreMany { items, .. } => items.iter().for_each(|item| pass_on(item.key)),
            Self::DeleteMany { keys } | Self::GetWithTtls { keys } => {
                keys.iter().copied().for_each(pass_on);
            }
            Self::GetMany { .. }
            | Self::Flush { .. }
            | Self::FlushPrefix { .. }
            | Self::Stats { .. }
            | Self::Version => {}
        }
    }

    /// The TTL in seconds that it gives its keys, if it gives them one of at most [`RELATIVE_EXPTIME_MAX_S`].
    pub(crate) fn ttl_s(&self) -> Option<u32> {
        let (Self::Store { exptime, .. }
        | Self::StoreMany { exptime, .. }
        | Self::Touch { exptime, .. }
        | Self::GetAndTouch { exptime, .. }) = *self
        else {
            return None;
        };
        (1..=RELATIVE_EXPTIME_MAX_S).contains(&exptime).then_some(exptime as u32)
    }

    /// Whether it is idempotent, so that it may be sent again after a stale socket.
    pub fn is_repeatable(&self) -> bool {
        self.facts().is_repeatable
    }

    /// The method for which only meta has a form.
    pub(crate) fn needs_meta(&self) -> Option<&'static str> {
        match self {
            Self::Inspect { .. } => Some("get_with_meta"),
            Self::FlushPrefix { .. } => Some("clear"),
            _ => None,
        }
    }

    /// Refuses an argument that would end its line and begin a command of its own.
    pub fn check(&self) -> Result<(), Error> {
        match self {
            Self::Stats { argument } if argument.iter().any(u8::is_ascii_control) => {
                Err(Error::BadSetting("an argument of stats with control characters".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// The class in which the request is counted.
    pub fn class(&self) -> CallClass {
        match (self.facts().kind, self) {
            (None, _) => CallClass::Uncounted,
            (_, Self::GetMany { keys, .. }) => CallClass::Bulk(keys.len(), 0),
            (_, Self::DeleteMany { keys }) => CallClass::Bulk(keys.len(), 0),
            (_, Self::GetWithTtls { keys }) if keys.len() != 1 => CallClass::Bulk(keys.len(), 0),
            (_, Self::StoreMany { items, .. }) => {
                CallClass::Bulk(items.len(), items.iter().map(|item| item.body.len()).sum())
            }
            (Some(kind), Self::Store { item, .. } | Self::Extend { item, .. }) => {
                CallClass::Single(kind, item.body.len())
            }
            (Some(kind), _) => CallClass::Single(kind, 0),
        }
    }

    /// Whether it writes or removes values, so that keys may be left with an older one.
    pub fn may_leave_keys_uncertain(&self) -> bool {
        self.facts().changes == Changes::Value
    }

    /// Whether it is quiet: no reply is requested.
    pub fn is_noreply(&self) -> bool {
        matches!(
            self,
            Self::Store { noreply: true, .. }
                | Self::Extend { noreply: true, .. }
                | Self::Delete { noreply: true, .. }
                | Self::Touch { noreply: true, .. }
                | Self::Arithmetic { noreply: true, .. }
        )
    }

    /// The body that is sent without a copy, after what [`Self::write`] wrote.
    pub fn external_body(&self) -> Option<&'a [u8]> {
        match self {
            Self::Store { item, .. } | Self::Extend { item, .. }
                if item.body.len() > COPIED_BODY_BYTES_MAX =>
            {
                Some(item.body)
            }
            _ => None,
        }
    }

    /// Writes the request, without a body that is sent from its own buffer, and records which reply to expect.
    pub fn write(&self, writer: &mut RequestWriter<'_>) -> Result<(), Unsupported> {
        match writer.command_set {
            CommandSet::Meta => {
                self.write_meta(writer);
                Ok(())
            }
            CommandSet::Classic => self.write_classic(writer),
            CommandSet::Binary => self.write_binary(writer),
        }
    }

    /// Writes a request that is the same in both command sets: a plain read, or administration.
    fn write_shared(&self, writer: &mut RequestWriter<'_>) {
        match *self {
            Self::Get { key, cas } => {
                let mut key_list = writer.pipeline.key_list();
                key_list.begin(if cas { b"gets" } else { b"get" });
                key_list.push(b"", key.bytes);
                writer.out.extend_from_slice(key_list.finish());
                writer.pipeline.expect(ExpectedReply::Values(key_list));
            }
            Self::GetMany { prefix, keys, cas } => {
                let mut key_list = writer.pipeline.key_list();
                key_list.begin(if cas { b"gets" } else { b"get" });
                for key in keys {
                    key_list.push(prefix, key);
                }
                writer.out.extend_from_slice(key_list.finish());
                writer.pipeline.expect(ExpectedReply::Values(key_list));
            }
            Self::GetWithTtls { keys } => {
                let mut key_list = writer.pipeline.key_list();
                key_list.begin(b"get");
                for key in keys {
                    key_list.push(b"", key.bytes);
                }
                writer.out.extend_from_slice(key_list.finish());
                writer.pipeline.expect(ExpectedReply::Values(key_list));
            }
            Self::Flush { delay_s } => {
                text::flush_all(writer.out, delay_s);
                writer.pipeline.expect(ExpectedReply::Line);
            }
            Self::Stats { argument } => {
                text::stats(writer.out, argument);
                writer.pipeline.expect(ExpectedReply::Rows);
            }
            _ => {
                text::version(writer.out);
                writer.pipeline.expect(ExpectedReply::Line);
            }
        }
    }
}

fn push_body(out: &mut Vec<u8>, body: &[u8]) {
    out.extend_from_slice(body);
    out.extend_from_slice(b"\r\n");
}
