//! Commands as plain data borrowed from the input, before they are executed.
//!
//! Numbers keep their meaning on the wire (an exptime is still 0, relative, absolute or negative):
//! the server owns the clock that resolves them.

mod meta_flags;
mod meta_line;
mod value_length;

pub use meta_flags::{MetaFlags, letter_set};
pub use meta_line::MetaLine;
pub(crate) use value_length::parse_value_length;

/// One parsed command line. A storage command is followed by its value, a get by its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command<'b> {
    /// get, gets, gat, gats: the keys follow in the input, see [`crate::text::next_key`].
    Get(GetHead),
    /// set, add, replace, append, prepend, cas: the value follows in the input.
    Store(StoreHead<'b>),
    /// Remove an item.
    Delete {
        /// The item's key.
        key: &'b [u8],
        /// The client expects no reply.
        noreply: bool,
    },
    /// incr and decr.
    Arith {
        /// The item's key.
        key: &'b [u8],
        /// The delta.
        delta: u64,
        /// True for decr.
        is_decrement: bool,
        /// The client expects no reply.
        noreply: bool,
    },
    /// Give an item a new exptime.
    Touch {
        /// The item's key.
        key: &'b [u8],
        /// As on the wire.
        exptime: i64,
        /// The client expects no reply.
        noreply: bool,
    },
    /// mg: read with options.
    MetaGet(MetaLine<'b>),
    /// ms: the value of that many bytes follows in the input.
    MetaSet(MetaLine<'b>, u32),
    /// md: delete or mark stale.
    MetaDelete(MetaLine<'b>),
    /// ma: arithmetic.
    MetaArith(MetaLine<'b>),
    /// `mf`, which memcached does not have: remove all items whose keys start with the key of the line.
    MetaFlushPrefix(MetaLine<'b>),
    /// mn: replies MN, which shows a client that everything before it has been executed.
    MetaNoop,
    /// me: one line with the metadata of an item.
    MetaDebug {
        /// The key as sent.
        key: &'b [u8],
        /// The key is in base64.
        is_base64: bool,
    },
    /// `flush_prefix`, which memcached does not have: remove all items whose keys start with the prefix.
    FlushPrefix {
        /// 1 to 250 bytes.
        prefix: &'b [u8],
        /// The client expects no reply.
        noreply: bool,
    },
    /// The server's version.
    Version,
    /// Close the connection.
    Quit,
    /// Anything that administers the server rather than an item.
    Admin {
        /// Which command.
        verb: AdminVerb,
        /// The rest of the line, for [`crate::ascii::tokens`].
        arguments: &'b [u8],
        /// The client expects no reply.
        noreply: bool,
    },
}

/// The commands that administer the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminVerb {
    /// Counters and settings.
    Stats,
    /// Turn the connection into a log of events.
    Watch,
    /// Remove all items, now or later.
    FlushAll,
    /// How much is written to the error stream.
    Verbosity,
    /// End the server.
    Shutdown,
    /// Change the memory limit.
    CacheMemlimit,
    /// Tune the eviction order.
    Lru,
    /// Walk the items.
    LruCrawler,
    /// Move slab pages.
    Slabs,
    /// Report the nodes of the cluster.
    Config,
    /// Read the TLS certificates again.
    RefreshCerts,
    /// Move the clock (debugging only).
    DebugTime,
    /// Attempt operations that a sandbox should forbid (debugging only).
    Misbehave,
}

/// The head of a get line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GetHead {
    /// gets and gats: the reply includes the CAS unique.
    pub with_cas: bool,
    /// gat and gats: the new exptime, as on the wire.
    pub touch: Option<i64>,
}

/// The head of a storage command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreHead<'b> {
    /// Which command.
    pub verb: StoreCommand,
    /// The item's key, 1 to 250 bytes.
    pub key: &'b [u8],
    /// The client's flags.
    pub flags: u32,
    /// As on the wire.
    pub exptime: i64,
    /// Length of the value in bytes, without its line ending.
    pub value_bytes: u32,
    /// The unique of a `cas`.
    pub required_cas: Option<u64>,
    /// The client expects no reply.
    pub noreply: bool,
}

/// Which storage command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are the commands of the protocol")]
pub enum StoreCommand {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
}

/// A line that gets an error reply instead of being executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineRefusal {
    /// The reply.
    pub reply: &'static [u8],
    /// Bytes after the line that belong to the refused command and must not be executed;
    /// [`LineRefusal::SKIP_UNKNOWN`] if their number cannot be known.
    pub bytes_to_skip: u64,
    /// The command has `noreply`.
    pub noreply: bool,
    /// The position of the next command is unknown: close after the reply.
    pub must_close: bool,
}

impl LineRefusal {
    /// As `bytes_to_skip`: where the next command begins is unknown, so nothing more is executed.
    pub const SKIP_UNKNOWN: u64 = u64::MAX;

    /// A refusal after which nothing is executed, because a value of unknown length follows.
    pub const fn of_unknown_length(reply: &'static [u8]) -> LineRefusal {
        LineRefusal {
            reply,
            bytes_to_skip: LineRefusal::SKIP_UNKNOWN,
            noreply: false,
            must_close: false,
        }
    }

    /// A refusal after which the next command can be executed.
    pub const fn new(reply: &'static [u8]) -> LineRefusal {
        LineRefusal { reply, bytes_to_skip: 0, noreply: false, must_close: false }
    }

    /// A refusal after which the connection closes.
    pub const fn closing(reply: &'static [u8]) -> LineRefusal {
        LineRefusal { reply, bytes_to_skip: 0, noreply: false, must_close: true }
    }
}
