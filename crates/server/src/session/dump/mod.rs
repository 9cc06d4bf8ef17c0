//! Replies whose length grows with the server: all items, all connections, all prefixes, in bounded slices.
//!
//! A slice ends when it has rendered as many bytes as one send takes or has examined as many items, connections or
//! prefixes as take well below a millisecond. Between two slices other connections of the worker are served, and
//! the worker made what it read, so that memory can be reused however long the reply is.

mod connections;
mod framed;
mod items;

pub(crate) use self::framed::FramedDump;
pub(crate) use self::items::{CachedumpLimits, ItemDump, LineFormat};
use crate::session::context::Context;
use crate::session::output::Output;
use crate::shared::prefix_table::DiscardedPrefixes;
use crate::shared::sizes::{SLICE_BYTES, SLICE_EXAMINED};

/// A long reply and its progress.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Dump {
    /// `lru_crawler metadump` and `mgdump`, `stats cachedump`.
    Items(ItemDump),
    /// `stats conns`: the last connection that was listed.
    Connections { resume_after: u64 },
    /// `stats detail dump`: the last prefix that was listed.
    Prefixes { resume_after: Option<Box<[u8]>> },
    /// `stats reset`: frees the discarded prefixes.
    DiscardedPrefixes(DiscardedPrefixes),
    /// One of the above in packets of the binary protocol.
    Framed(FramedDump),
}

impl Dump {
    /// Appends a slice; true when the reply is complete.
    pub(crate) fn append_slice(&mut self, context: &Context<'_>, out: &mut Output<'_>) -> bool {
        match self {
            Dump::Items(item_dump) => item_dump.append_slice(context, out),
            Dump::Connections { resume_after } => {
                connections::write_rows(resume_after, context, &mut out.bytes)
            }
            Dump::Prefixes { resume_after } => context.shared.prefix_table.append_slice(
                resume_after,
                context.counters,
                &mut out.bytes,
            ),
            Dump::Framed(framed_dump) => framed_dump.append_slice(context, out),
            Dump::DiscardedPrefixes(prefixes) => {
                context.counters.examined.add(SLICE_EXAMINED as u64);
                let is_done = prefixes.free_some(SLICE_EXAMINED);
                if is_done {
                    out.bytes.extend_from_slice(glasscache_protocol::replies::RESET);
                }
                is_done
            }
        }
    }

    /// Bytes of memory that the next slice may need.
    pub(crate) fn needed_bytes(&self, context: &Context<'_>) -> usize {
        match self {
            Dump::Items(item_dump) => SLICE_BYTES + item_dump.needed_bytes(context),
            Dump::Framed(framed_dump) => framed_dump.needed_bytes(context),
            _ => SLICE_BYTES,
        }
    }
}
