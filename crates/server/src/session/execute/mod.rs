//! The execution of a parsed command on the store, and its reply: one file for each family of commands.
//!
//! Nothing here reads a socket or a clock; the session decides when a command is executed.

mod admin;
mod batch;
pub(crate) mod binary;
mod expiry;
mod get;
mod items;
mod prefixes;
mod reply_memory;
pub(crate) mod store;

use glasscache_protocol::command::Command;
use glasscache_protocol::replies;
use glasscache_store::NoRoomYet;

pub(crate) use batch::{Batch, Lookup, StopReason, StoppedCommand, StoppedLookup};
pub(crate) use reply_memory::missing_bytes_of_command;

use crate::session::connection_effect::ConnectionEffect;
use crate::session::context::Context;
use crate::session::output::Output;
use crate::shared::connection_info::CloseReason;

/// Executes a command that has no value and is not a batch of keys; if it has to wait for a segment, nothing is
/// done and no reply is made.
pub(crate) fn run_command<'w>(
    command: &Command<'_>,
    context: &Context<'w>,
    out: &mut Output<'w>,
) -> Result<ConnectionEffect, NoRoomYet> {
    match *command {
        Command::Delete { key, noreply } => {
            write_reply(noreply, out, items::execute_delete(key, context)?);
        }
        Command::Touch { key, exptime, noreply } => {
            write_reply(noreply, out, items::execute_touch(key, exptime, context)?);
        }
        Command::Arith { key, delta, is_decrement, noreply } => {
            let position = out.position();
            items::execute_arith(key, delta, is_decrement, context, &mut out.bytes)?;
            if noreply {
                out.rewind(position);
            }
        }
        Command::MetaGet(ref line) => items::execute_base64_meta_get(line, context, out)?,
        Command::MetaDelete(ref line) => items::execute_meta_delete(line, context, &mut out.bytes)?,
        Command::MetaArith(ref line) => items::execute_meta_arith(line, context, &mut out.bytes)?,
        Command::MetaDebug { key, is_base64 } => {
            items::execute_meta_debug(key, is_base64, context, &mut out.bytes);
        }
        Command::MetaFlushPrefix(ref line) => {
            prefixes::execute_meta_flush(line, context, &mut out.bytes)?;
        }
        Command::FlushPrefix { prefix, noreply } => {
            write_reply(noreply, out, prefixes::execute_flush(prefix, context)?);
        }
        Command::MetaNoop => {
            out.bytes.extend_from_slice(b"MN\r\n");
            out.mark_mn_reply();
        }
        Command::Version => {
            out.bytes.extend_from_slice(&context.shared.version.reply);
        }
        Command::Quit => return Ok(ConnectionEffect::Close(CloseReason::Normal)),
        Command::Admin { verb, arguments, noreply } => {
            let position = out.position();
            let effect = admin::run_command(verb, arguments, context, out);
            if noreply {
                out.rewind(position);
            }
            return Ok(effect);
        }
        // The session handles keys and values itself, so these do not occur here.
        Command::Get(_) | Command::Store(_) | Command::MetaSet(..) => {
            context.counters.invariant_broken.bump();
            out.bytes.extend_from_slice(replies::ERROR);
            return Ok(ConnectionEffect::Close(CloseReason::Error));
        }
    }
    Ok(ConnectionEffect::Continue)
}

fn write_reply(noreply: bool, out: &mut Output<'_>, text: &'static [u8]) {
    if !noreply {
        out.bytes.extend_from_slice(text);
    }
}
