//! `flush_prefix` and its meta form `mf`, which memcached does not have: all items whose keys start with a prefix are
//! removed at once, without a walk (docs/decisions/0099-flush-of-a-prefix.md).

use glasscache_protocol::meta::{self, MetaLine};
use glasscache_protocol::replies;

use crate::session::context::Context;
use crate::session::events;

/// Executes `flush_prefix` and returns the reply.
pub(super) fn execute_flush(prefix: &[u8], context: &Context<'_>) -> &'static [u8] {
    match remove_items(prefix, "flush_prefix", context) {
        Ok(()) => replies::OK,
        Err(reply) => reply,
    }
}

/// Executes `mf`: the same with a key in base64, an opaque, and no reply if the client wants none.
pub(super) fn execute_meta_flush(line: &MetaLine<'_>, context: &Context<'_>, out: &mut Vec<u8>) {
    let mut scratch = Vec::new();
    let remove_result = line
        .item_key(&mut scratch)
        .and_then(|prefix| remove_items(prefix, "mf", context).map(|()| prefix));
    match remove_result {
        Ok(_) if line.flags.has(b'q') => {}
        Ok(prefix) => meta::write_status(out, line, prefix, *b"HD"),
        Err(reply) => out.extend_from_slice(reply),
    }
}

/// Removes the items, or returns the reply with the reason.
fn remove_items(prefix: &[u8], command: &str, context: &Context<'_>) -> Result<(), &'static [u8]> {
    context.counters.flush_prefix_cmds.bump();
    if !context.shared.config.flush_enabled {
        return Err(replies::FLUSH_PREFIX_DISABLED);
    }
    let flush_result = context.store_worker.store().flush_prefix(prefix, context.now);
    flush_result.map_err(|_| replies::TOO_MANY_PREFIXES)?;
    events::publish_prefix_flush(context, prefix, command);
    Ok(())
}
