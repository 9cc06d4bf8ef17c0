//! Replies as long as the server is large: all items, all connections, all prefixes, in bounded slices.
//!
//! A slice ends when it has rendered as much as one send takes or has examined as many items, connections or
//! prefixes as take well below a millisecond. Other connections of the worker are served between two slices, and
//! the worker lets go of what it read, so that memory can be reused however long the reply is.

mod items;

pub(crate) use self::items::{Cached, Form, Items};
use crate::detail::Discarded;
use crate::output::{Output, SLICE_BYTES};
use crate::stats;
use crate::turn::Turn;

/// Items, connections or prefixes that one slice examines, at most about.
pub(crate) const SLICE_EXAMINED: usize = 256;

/// A long reply and how far it has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Dump {
    /// `lru_crawler metadump` and `mgdump`, `stats cachedump`.
    Items(Items),
    /// `stats conns`: the last connection that was listed.
    Connections { after: u64 },
    /// `stats detail dump`: the last prefix that was listed.
    Prefixes { after: Option<Box<[u8]>> },
    /// `stats reset`: the prefixes that are given up.
    Reset(Discarded),
}

impl Dump {
    /// Appends a slice; true when the reply is complete.
    pub(crate) fn run(&mut self, turn: &Turn<'_>, out: &mut Output<'_>) -> bool {
        match self {
            Dump::Items(items) => items.run(turn, out),
            Dump::Connections { after } => stats::connections(after, turn, &mut out.bytes),
            Dump::Prefixes { after } => {
                turn.shared
                    .detail
                    .dump(after, turn.counters, &mut out.bytes)
            }
            Dump::Reset(prefixes) => {
                turn.counters.examined.add(SLICE_EXAMINED as u64);
                let is_done = prefixes.drop_some(SLICE_EXAMINED);
                if is_done {
                    out.bytes
                        .extend_from_slice(glasscache_protocol::words::RESET);
                }
                is_done
            }
        }
    }

    /// Bytes of memory that the next slice may take.
    pub(crate) fn lacking_bytes(&self, turn: &Turn<'_>) -> usize {
        match self {
            Dump::Items(items) => SLICE_BYTES + items.lacking_bytes(turn),
            _ => SLICE_BYTES,
        }
    }
}

/// Whether a slice has examined or rendered enough.
pub(crate) fn is_full(examined: usize, rendered_bytes: usize) -> bool {
    examined >= SLICE_EXAMINED || rendered_bytes >= SLICE_BYTES
}
