//! From a command to the store and back to a reply: one file per family.
//!
//! Nothing here reads a socket or a clock; the session decides when, these decide what.

mod admin;
mod batch;
pub(crate) mod dump;
mod get;
mod items;
mod room;
pub(crate) mod store;
mod times;

use glasscache_protocol::command::Command;
use glasscache_protocol::words;
use glasscache_store::NoRoomYet;

pub(crate) use batch::{Batch, Cut, Lookup};
pub(crate) use room::lacking_bytes_of;

use crate::hub::Watching;
use crate::info::Reason;
use crate::output::Output;
use crate::turn::Turn;

/// What a command means for its connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Answered; go on.
    Done,
    /// Send what there is and close.
    Close(Reason),
    /// The connection becomes a log.
    Watch(Watching),
    /// The connection receives a listing.
    Dump(dump::Dump),
}

/// Executes a command that has no value and is no batch of keys; nothing is done and answered where it has to wait for
/// a segment.
pub(crate) fn command<'w>(
    command: &Command<'_>,
    turn: &Turn<'w>,
    out: &mut Output<'w>,
) -> Result<Outcome, NoRoomYet> {
    match *command {
        Command::Delete { key, noreply } => reply(noreply, out, items::delete(key, turn)?),
        Command::Touch {
            key,
            exptime,
            noreply,
        } => {
            reply(noreply, out, items::touch(key, exptime, turn)?);
        }
        Command::Arith {
            key,
            delta,
            decrement,
            noreply,
        } => {
            let mark = out.mark();
            items::arith(key, delta, decrement, turn, &mut out.bytes)?;
            if noreply {
                out.rewind(mark);
            }
        }
        Command::MetaGet(ref line) => items::meta_get_binary(line, turn, out)?,
        Command::MetaDelete(ref line) => items::meta_delete(line, turn, &mut out.bytes)?,
        Command::MetaArith(ref line) => items::meta_arith(line, turn, &mut out.bytes)?,
        Command::MetaDebug { key, is_base64 } => {
            items::meta_debug(key, is_base64, turn, &mut out.bytes);
        }
        Command::MetaNoop => {
            out.bytes.extend_from_slice(b"MN\r\n");
            out.settle();
        }
        Command::Version => {
            out.bytes
                .extend_from_slice(concat!("VERSION ", crate::version!(), "\r\n").as_bytes());
        }
        Command::Quit => return Ok(Outcome::Close(Reason::Normal)),
        Command::Admin {
            verb,
            arguments,
            noreply,
        } => {
            let mark = out.mark();
            let outcome = admin::command(verb, arguments, turn, out);
            if noreply {
                out.rewind(mark);
            }
            return Ok(outcome);
        }
        // These never come here: the session takes keys and values itself.
        Command::Get(_) | Command::Store(_) | Command::MetaSet(..) => {
            turn.counters.invariant_broken.bump();
            out.bytes.extend_from_slice(words::ERROR);
            return Ok(Outcome::Close(Reason::Error));
        }
    }
    Ok(Outcome::Done)
}

fn reply(noreply: bool, out: &mut Output<'_>, word: &'static [u8]) {
    if !noreply {
        out.bytes.extend_from_slice(word);
    }
}
