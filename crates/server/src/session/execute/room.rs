//! Whether the value of a read may wait for its reader, decided before the read is made.
//!
//! A reply that was begun cannot be taken back, and a read may change the item. So while memory for peers is short
//! the size of the value is looked up first, and a large one is read only if it can be held where it lies or copied.

use glasscache_protocol::command::Command;
use glasscache_store::KeyHash;

use crate::session::context::Context;
use crate::session::output::{COPY_BYTES_MAX, Output};
use crate::shared::peer_memory::Pressure;

/// Bytes of memory that a read of `key` needs and that are not to be had; 0 where it may be made.
///
/// A value that can be held is held by `out` until it is sent.
pub(super) fn lacking_bytes(
    key: &[u8],
    hash: KeyHash,
    context: &Context<'_>,
    out: &mut Output<'_>,
) -> usize {
    if context.pressure == Pressure::Low {
        return 0;
    }
    let Some(item) = context.store.peek(key, hash, context.now) else {
        return 0;
    };
    let bytes = item.value_bytes();
    if bytes <= COPY_BYTES_MAX {
        return 0;
    }
    if let Some(held) = item.hold() {
        out.keep(held);
        return 0;
    }
    let bytes = bytes as usize;
    if context.shared.memory.has_room(bytes, context.is_first) {
        0
    } else {
        bytes
    }
}

/// The same for a command that is no batch of keys: only an `mg` with a binary key reads a value.
pub(crate) fn lacking_bytes_of(
    command: &Command<'_>,
    context: &Context<'_>,
    out: &mut Output<'_>,
) -> usize {
    let Command::MetaGet(line) = command else {
        return 0;
    };
    let mut scratch = Vec::new();
    match line.item_key(&mut scratch) {
        Ok(key) if context.pressure != Pressure::Low => {
            lacking_bytes(key, context.store.store().hash(key), context, out)
        }
        _ => 0,
    }
}
