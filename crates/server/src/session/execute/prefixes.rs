//! `flush_prefix` and its meta form `mf`, which memcached does not have: all items whose keys start with a prefix are
//! removed at once, without a walk (docs/decisions/store.md, 0099).

use glasscache_protocol::meta::{self, MetaLine};
use glasscache_protocol::replies;
use glasscache_store::NoRoomYet;

use crate::session::context::Context;
use crate::session::events;

/// Executes `flush_prefix` and returns the reply.
pub(super) fn execute_flush(
    prefix: &[u8],
    context: &Context<'_>,
) -> Result<&'static [u8], NoRoomYet> {
    let remove_result = remove_items(prefix, "flush_prefix", context)?;
    Ok(remove_result.map_or_else(|reply| reply, |()| replies::OK))
}

/// Executes `mf`: the same with a key in base64, an opaque, and no reply if the client wants none.
pub(super) fn execute_meta_flush(
    line: &MetaLine<'_>,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) -> Result<(), NoRoomYet> {
    let mut scratch = Vec::new();
    let remove_result = match line.item_key(&mut scratch) {
        Ok(prefix) => remove_items(prefix, "mf", context)?.map(|()| prefix),
        Err(reply) => Err(reply),
    };
    match remove_result {
        Ok(_) if line.flags.has(b'q') => {}
        Ok(prefix) => meta::write_status(out, line, prefix, *b"HD"),
        Err(reply) => out.extend_from_slice(reply),
    }
    Ok(())
}

/// Removes the items, or returns the reply with the reason.
fn remove_items(
    prefix: &[u8],
    command: &str,
    context: &Context<'_>,
) -> Result<Result<(), &'static [u8]>, NoRoomYet> {
    if !context.shared.config.flush_enabled {
        context.counters.flush_prefix_cmds.bump();
        return Ok(Err(replies::FLUSH_PREFIX_DISABLED));
    }
    let store_worker = context.store_worker;
    let flush_result =
        store_worker.try_flush_prefix(prefix, context.now).inspect_err(|NoRoomYet| {
            // An idle worker closes its old segments when it is woken.
            context.shared.wake_all();
        });
    let flush_result = context
        .stop_waiting_if_overdue(flush_result, || store_worker.flush_prefix(prefix, context.now))?;
    context.counters.flush_prefix_cmds.bump();
    if flush_result.is_err() {
        return Ok(Err(replies::TOO_MANY_PREFIXES));
    }
    events::publish_prefix_flush(context, prefix, command);
    Ok(Ok(()))
}
