//! Connections of a listener that serves statistics alone (`noauth:`), to clients that need no login.
//!
//! As the state of such a session is another than that of one that serves commands, and never becomes it, no path leads
//! from here to an item: a line or packet is parsed whole, and executed only if it is on the list below.

use glasscache_protocol::binary::{self, Status};
use glasscache_protocol::command::{AdminVerb, Command};
use glasscache_protocol::limits::LINE_BYTES_MAX;
use glasscache_protocol::{ascii, replies, text};

use super::Session;
use super::run::Run;
use super::state::{Protocol, RunEnd};
use crate::session::execute;
use crate::session::stats::is_group_without_keys;
use crate::shared::connection_info::CloseReason;

impl Session {
    /// Serves a connection that may only read statistics. `None` continues.
    pub(super) fn serve_statistics(&mut self, run: &mut Run<'_, '_, '_>) -> Option<RunEnd> {
        if let Some(run_end) = run.check_limits() {
            return Some(run_end);
        }
        run.command_count += 1;
        if self.protocol == Protocol::Binary { serve_request(run) } else { serve_line(run) }
    }
}

fn serve_line(run: &mut Run<'_, '_, '_>) -> Option<RunEnd> {
    let input = run.remaining_input();
    let Some(line_end) = memchr::memchr(b'\n', input) else {
        if input.len() <= LINE_BYTES_MAX {
            return Some(RunEnd::NeedsInput);
        }
        run.out.bytes.extend_from_slice(replies::LINE_TOO_LONG);
        return Some(RunEnd::Close(CloseReason::MalformedInput));
    };
    let line = input.get(..=line_end).unwrap_or_default();
    run.used_bytes += line.len();
    match text::parse(line) {
        text::Parsed::Command(command, _) if is_line_allowed(&command) => {
            // No allowed command writes, so none waits for a segment.
            let effect = execute::run_command(&command, run.context, run.out).ok()?;
            RunEnd::after_command(effect)
        }
        text::Parsed::Command(command, _) => {
            run.out.bytes.extend_from_slice(replies::STATISTICS_ONLY);
            // What follows is a value.
            let has_value = matches!(command, Command::Store(_) | Command::MetaSet(..));
            has_value.then_some(RunEnd::Close(CloseReason::NotStatistics))
        }
        text::Parsed::Refused(refusal, _) => {
            run.out.bytes.extend_from_slice(refusal.reply);
            let is_followed_by_value = refusal.bytes_to_skip > 0;
            (refusal.must_close || is_followed_by_value)
                .then_some(RunEnd::Close(CloseReason::NotStatistics))
        }
        // A whole line is complete.
        text::Parsed::Incomplete => Some(RunEnd::Close(CloseReason::MalformedInput)),
    }
}

fn is_line_allowed(command: &Command<'_>) -> bool {
    match *command {
        Command::Version | Command::MetaNoop | Command::Quit => true,
        Command::Admin { verb: AdminVerb::Stats, arguments, .. } => {
            is_group_without_keys(ascii::tokens(arguments).next())
        }
        _ => false,
    }
}

fn serve_request(run: &mut Run<'_, '_, '_>) -> Option<RunEnd> {
    let (request, command, used_bytes) = match binary::parse(run.remaining_input()) {
        binary::Parsed::Incomplete => return Some(RunEnd::NeedsInput),
        binary::Parsed::BadMagic => return Some(RunEnd::Close(CloseReason::MalformedInput)),
        binary::Parsed::Refused(refusal, _) => {
            binary::write_error(&mut run.out.bytes, refusal.request, refusal.status);
            return Some(RunEnd::Close(CloseReason::MalformedInput));
        }
        binary::Parsed::Request(request, command, used_bytes) => (request, command, used_bytes),
    };
    run.used_bytes += used_bytes;
    if is_request_allowed(&command) {
        let effect = execute::binary::run_command(request, &command, run.context, run.out).ok()?;
        return RunEnd::after_command(effect);
    }
    let reason = replies::STATISTICS_ONLY.trim_ascii_end();
    let status = Status::AuthFailure;
    binary::write_error_with_text(&mut run.out.bytes, request, status, reason);
    let has_value =
        matches!(command, binary::Command::Store(_) | binary::Command::SaslLogin { .. });
    has_value.then_some(RunEnd::Close(CloseReason::NotStatistics))
}

fn is_request_allowed(command: &binary::Command<'_>) -> bool {
    match *command {
        binary::Command::Version | binary::Command::Noop | binary::Command::Quit => true,
        binary::Command::Stat(argument) => is_group_without_keys(ascii::tokens(argument).next()),
        _ => false,
    }
}
