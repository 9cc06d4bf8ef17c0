//! Whether the reply to a read may be held in memory for its reader, decided before the read is made.
//!
//! A reply that was begun cannot be withdrawn, and a read may change the item. So while memory for peers is short
//! the size of the value is looked up first, and a large one is read only if it can be held in place or copied.

use glasscache_protocol::command::Command;
use glasscache_store::KeyHash;

use crate::session::context::Context;
use crate::session::output::{COPY_BYTES_MAX, Output};
use crate::shared::peer_memory::Pressure;

/// Bytes of memory that a read of `key` needs and that are not available; 0 if the read may be made.
///
/// `out` holds a value that can be held until it is sent.
pub(super) fn missing_bytes(
    key: &[u8],
    hash: KeyHash,
    context: &Context<'_>,
    out: &mut Output<'_>,
) -> usize {
    if context.pressure == Pressure::Low {
        return 0;
    }
    let Some(item) = context.store_worker.peek(key, hash, context.now) else {
        return 0;
    };
    let value_bytes = item.value_bytes();
    if value_bytes <= COPY_BYTES_MAX {
        return 0;
    }
    if let Some(held_value) = item.hold() {
        out.keep_held_value(held_value);
        return 0;
    }
    let value_bytes = value_bytes as usize;
    if context.shared.peer_memory.try_grant(value_bytes, context.is_first_waiter) {
        0
    } else {
        value_bytes
    }
}

/// The same for a command that is not a batch of keys: only an `mg` with a binary key reads a value.
pub(crate) fn missing_bytes_of_command(
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
            missing_bytes(key, context.store_worker.store().hash(key), context, out)
        }
        _ => 0,
    }
}
