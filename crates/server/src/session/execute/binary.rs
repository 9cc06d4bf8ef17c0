//! Commands of the binary protocol that are neither a store nor a read of a key.

use glasscache_protocol::ascii;
use glasscache_protocol::binary::{self, Command, OpcodeAndOpaque, Status};
use glasscache_store::{
    ArithOptions, ArithOutcome, CasUnique, DeleteOptions, DeleteOutcome, NoRoomYet,
};

use super::{admin, items};
use crate::session::connection_effect::ConnectionEffect;
use crate::session::context::Context;
use crate::session::dump::{Dump, FramedDump};
use crate::session::output::Output;
use crate::session::stats;
use crate::shared::connection_info::CloseReason;

/// Tokens of a statistics request, at most; more are ignored.
const TOKENS_MAX: usize = 4;

/// Executes one command; nothing is executed and no reply is written if it has to wait for a segment.
pub(crate) fn run_command<'w>(
    request: OpcodeAndOpaque,
    command: &Command<'_>,
    context: &Context<'w>,
    out: &mut Output<'w>,
) -> Result<ConnectionEffect, NoRoomYet> {
    let reply = &mut out.bytes;
    match *command {
        Command::Delete { key, required_cas } => {
            execute_delete(request, key, required_cas, context, reply)?;
        }
        Command::Arith { .. } => execute_arith(request, command, context, reply)?,
        Command::Flush { exptime } => {
            if context.shared.config.flush_enabled {
                admin::execute_binary_flush(i64::from(exptime), context);
                report_success(request, 0, reply);
            } else {
                binary::write_error(reply, request, Status::AuthFailure);
            }
        }
        Command::Noop => binary::write_success(reply, request, 0),
        Command::Version => {
            binary::write_text(reply, request, context.shared.version.text.as_bytes());
        }
        Command::Stat(argument) => return Ok(run_stats(request, argument, context, reply)),
        Command::Quit => {
            report_success(request, 0, reply);
            return Ok(ConnectionEffect::Close(CloseReason::Normal));
        }
        // The session executes reads, stores and logins itself.
        Command::Get(_)
        | Command::Touch { .. }
        | Command::Store(_)
        | Command::SaslMechanisms
        | Command::SaslLogin { .. } => {
            context.counters.invariant_broken.bump();
            binary::write_error(reply, request, Status::UnknownCommand);
            return Ok(ConnectionEffect::Close(CloseReason::Error));
        }
    }
    Ok(ConnectionEffect::Continue)
}

/// Reports the usual outcome, unless the request is quiet.
fn report_success(request: OpcodeAndOpaque, unique: u64, out: &mut Vec<u8>) {
    if !request.is_quiet() {
        binary::write_success(out, request, unique);
    }
}

fn execute_delete(
    request: OpcodeAndOpaque,
    key: &[u8],
    required_cas: Option<u64>,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) -> Result<(), NoRoomYet> {
    let options =
        DeleteOptions { required_cas: required_cas.map(CasUnique), ..DeleteOptions::default() };
    match items::apply_delete(key, &options, false, context)? {
        DeleteOutcome::Deleted => report_success(request, 0, out),
        DeleteOutcome::NotFound => binary::write_error(out, request, Status::NotFound),
        DeleteOutcome::Exists => binary::write_error(out, request, Status::Exists),
    }
    Ok(())
}

fn execute_arith(
    request: OpcodeAndOpaque,
    command: &Command<'_>,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) -> Result<(), NoRoomYet> {
    let &Command::Arith { key, delta, is_decrement, initial, required_cas } = command else {
        return Ok(());
    };
    let options = ArithOptions {
        is_decrement,
        delta,
        required_cas: required_cas.map(CasUnique),
        initial: initial.map(|(number, exptime)| (number, context.expiry(i64::from(exptime)))),
        hides_unique: request.is_quiet(),
        ..ArithOptions::default()
    };
    match items::apply_arith(key, &options, context)? {
        ArithOutcome::Number { .. } if request.is_quiet() => {}
        ArithOutcome::Number { value, unique, .. } => {
            binary::write_number(out, request, value, context.visible_unique(unique));
        }
        ArithOutcome::NotFound => binary::write_error(out, request, Status::NotFound),
        ArithOutcome::Exists => binary::write_error(out, request, Status::Exists),
        ArithOutcome::NotANumber => binary::write_error(out, request, Status::NotANumber),
        ArithOutcome::NoMemory => {
            let text = b"Out of memory incrementing value";
            binary::write_error_with_text(out, request, Status::OutOfMemory, text);
        }
    }
    Ok(())
}

/// Executes a statistics request: the families that memcached reports over this protocol, and our own.
fn run_stats(
    request: OpcodeAndOpaque,
    argument: &[u8],
    context: &Context<'_>,
    out: &mut Vec<u8>,
) -> ConnectionEffect {
    let mut tokens: [&[u8]; TOKENS_MAX] = [b""; TOKENS_MAX];
    let mut token_count = 0;
    for (token_slot, token) in tokens.iter_mut().zip(ascii::tokens(argument)) {
        *token_slot = token;
        token_count += 1;
    }
    let tokens = tokens.get(..token_count).unwrap_or_default();
    let is_supported = matches!(
        tokens.first(),
        None | Some(
            &(b"settings"
                | b"items"
                | b"slabs"
                | b"sizes"
                | b"detail"
                | b"reset"
                | b"glasscache"
                | b"curve"
                | b"hotkeys"
                | b"prefixes")
        )
    );
    if !is_supported {
        binary::write_error(out, request, Status::NotFound);
        return ConnectionEffect::Continue;
    }
    let mut text_reply = Output::from_rendered(Vec::new());
    match stats::run_stats(tokens, context, &mut text_reply) {
        ConnectionEffect::Dump(dump) => {
            ConnectionEffect::Dump(Dump::Framed(FramedDump::new(request, dump)))
        }
        effect => {
            write_rows(request, &text_reply.bytes, out);
            effect
        }
    }
}

/// Turns a table of `STAT` lines into packets; a table without rows is a switch that was set or an error.
fn write_rows(request: OpcodeAndOpaque, text: &[u8], out: &mut Vec<u8>) {
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(row) = line.strip_prefix(b"STAT ") {
            let name_bytes = memchr::memchr(b' ', row).unwrap_or(row.len());
            let (name, value) = row.split_at_checked(name_bytes).unwrap_or((row, b""));
            binary::write_stat(out, request, name, value.strip_prefix(b" ").unwrap_or_default());
        } else if line.starts_with(b"CLIENT_ERROR") || line == b"ERROR" {
            return binary::write_error(out, request, Status::NotFound);
        }
    }
    binary::write_stat(out, request, b"", b"");
}
