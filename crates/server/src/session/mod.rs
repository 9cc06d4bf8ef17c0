//! The protocol state of one connection, without its socket and without a clock: a run gets bytes and the time, and
//! returns bytes.
//!
//! A session holds only its position in the stream; input that it cannot parse yet stays with the caller. Lookups
//! of keys, whether many in one `get` or many pipelined commands, are collected into batches, so that the memory of
//! 16 keys is prefetched at once (`execute/get`). A run ends when the input is consumed, when much output is
//! pending, or when the connection has used its quota.
//!
//! A *run* is one call of a session with the bytes received so far; a *slice* is the output that is rendered, or the
//! number of items that are examined, at a time. The *head* of a request is its command line or packet header as
//! parsed, without its value; the value of a refused storage command is skipped (memcached: swallowed).

mod binary;
pub(crate) mod command_log;
mod command_text;
mod connection_effect;
pub(crate) mod context;
pub(crate) mod dump;
pub(crate) mod events;
pub(crate) mod execute;
mod handover_state;
mod login;
pub(crate) mod output;
mod pending_get;
mod proxy_header;
mod rows;
mod run;
pub(crate) mod send_vector;
mod state;
mod statistics;
pub(crate) mod stats;
mod upload;

use glasscache_protocol::command::{Command, LineRefusal};
use glasscache_protocol::limits::LINE_BYTES_MAX;
use glasscache_protocol::meta;
use glasscache_protocol::replies;
use glasscache_protocol::text::{self, Parsed};
use glasscache_store::Reservation;

use self::execute::{Batch, Lookup, store::StoreWrite};
use self::run::Run;
pub(crate) use self::state::{Access, Progress, RunEnd, Session};
use self::state::{PendingGet, Protocol, State};
use crate::session::context::Context;
use crate::session::output::Output;
use crate::shared::connection_info::CloseReason;

impl Session {
    /// Serves the commands in `input`, as far as one run goes. Bytes beyond `used_bytes` must be passed again.
    pub(crate) fn run<'w>(
        &mut self,
        input: &[u8],
        context: &Context<'w>,
        out: &mut Output<'w>,
    ) -> Progress {
        let end_without_progress = |run_end| Progress { used_bytes: 0, run_end };
        let used_bytes = match self.read_proxy_header(input, context) {
            Ok(Some(used_bytes)) => used_bytes,
            Ok(None) => return end_without_progress(RunEnd::NeedsInput),
            Err(reason) => return end_without_progress(RunEnd::Close(reason)),
        };
        let mut run = Run {
            input,
            used_bytes,
            command_count: 0,
            batch: Batch::new(),
            context,
            out,
            stopped_lookup: None,
        };
        if self.protocol == Protocol::Unknown
            && let Some(first_byte) = input.get(used_bytes)
        {
            self.protocol = Protocol::from_first_byte(*first_byte);
            // A login may be the reason why a protocol is not served, and here is none.
            if !context.connection.serves_statistics_only
                && let Some(reason) = self.protocol.refusal_reason(context.shared.config.protocol)
            {
                self.state = State::Closed;
                return Progress { used_bytes: 0, run_end: RunEnd::Close(reason) };
            }
        }
        let is_binary = self.protocol == Protocol::Binary;
        let is_logged_or_binary = context.logs_commands || is_binary;
        let mut run_end = loop {
            let run_end = match self.state {
                // Read before the run.
                State::ProxyHeader => Some(RunEnd::Close(CloseReason::NoProxyHeader)),
                State::Command if is_logged_or_binary => {
                    self.serve_logged_or_binary(is_binary, &mut run)
                }
                State::Command => self.serve_line(&mut run),
                State::PendingGet(pending_get) => self.parse_keys(pending_get, &mut run),
                State::SkipRefusedValue(bytes_left) => {
                    self.skip_refused_value(bytes_left, &mut run)
                }
                State::Upload(_) => self.continue_upload(&mut run),
                State::Login(_) => self.serve_login(&mut run),
                State::Statistics => self.serve_statistics(&mut run),
                State::Desynchronised => Some(refuse_next_line(&mut run)),
                State::Closed => Some(RunEnd::Close(CloseReason::MalformedInput)),
            };
            if let Some(run_end) = run_end {
                break run_end;
            }
        };
        run.execute_lookups();
        if let Some(stopped) = run.stopped_lookup.take() {
            (run.used_bytes, self.state) = run.position_before(&stopped, &self.state);
            run_end = RunEnd::from_stopped(&stopped);
        }
        match &mut self.state {
            // The output of a run is sent before the next run: it cannot be withdrawn any more.
            State::PendingGet(pending_get) => pending_get.reply_start = None,
            state if matches!(run_end, RunEnd::Close(_)) => *state = State::Closed,
            _ => {}
        }
        Progress { used_bytes: run.used_bytes, run_end }
    }

    /// The incomplete value into which the next bytes of the socket belong, if there is one.
    pub(crate) fn upload_mut(&mut self) -> Option<&mut Reservation> {
        match &mut self.state {
            State::Upload(upload) if !upload.reservation.is_complete() => {
                Some(&mut upload.reservation)
            }
            _ => None,
        }
    }

    /// Whether a large value is being received.
    pub(crate) fn awaits_value(&self) -> bool {
        matches!(self.state, State::Upload(_) | State::SkipRefusedValue(_))
    }

    /// Whether the client speaks the binary protocol.
    pub(crate) fn is_binary(&self) -> bool {
        self.protocol == Protocol::Binary
    }

    /// Whether the stream is between two commands, or before a login.
    pub(crate) fn is_idle(&self) -> bool {
        match &self.state {
            State::Command | State::Statistics | State::ProxyHeader => true,
            State::Login(login) => login.is_idle(),
            _ => false,
        }
    }

    /// Parses and executes one request of the binary protocol, or one line; logs it if commands are logged.
    fn serve_logged_or_binary(
        &mut self,
        is_binary: bool,
        run: &mut Run<'_, '_, '_>,
    ) -> Option<RunEnd> {
        let input_before = run.remaining_input();
        let used_bytes_before = run.used_bytes;
        let run_end = if is_binary { self.serve_request(run) } else { self.serve_line(run) };
        if run.context.logs_commands && run.used_bytes > used_bytes_before {
            if is_binary {
                command_log::log_request(run.context, input_before);
            } else {
                command_log::log_command(run.context, input_before);
            }
        }
        run_end
    }

    /// Parses and executes one line. `None` continues.
    fn serve_line(&mut self, run: &mut Run<'_, '_, '_>) -> Option<RunEnd> {
        if let Some(run_end) = run.check_limits() {
            return Some(run_end);
        }
        if let Some((key, used_bytes)) = text::parse_single_get(run.remaining_input()) {
            run.used_bytes += used_bytes;
            run.command_count += 1;
            run.push(Lookup::single(key, run.context));
            return None;
        }
        if let Some((line, used_bytes)) = meta::parse_simple_get(run.remaining_input()) {
            run.used_bytes += used_bytes;
            run.command_count += 1;
            run.push_meta(line);
            return None;
        }
        match text::parse(run.remaining_input()) {
            Parsed::Incomplete => Some(RunEnd::NeedsInput),
            Parsed::Refused(refusal, used_bytes) => {
                run.execute_lookups();
                if run.is_stopped() {
                    return Some(RunEnd::Flush);
                }
                run.used_bytes += used_bytes;
                self.refuse(refusal, run)
            }
            Parsed::Command(command, used_bytes) => {
                run.command_count += 1;
                self.begin_command(command, used_bytes, run)
            }
        }
    }

    fn begin_command<'b>(
        &mut self,
        command: Command<'b>,
        used_bytes: usize,
        run: &mut Run<'b, '_, '_>,
    ) -> Option<RunEnd> {
        let is_lookup = match &command {
            Command::Get(_) => true,
            Command::MetaGet(line) => !line.flags.has(b'b'),
            _ => false,
        };
        if !is_lookup {
            run.execute_lookups();
            if run.is_stopped() {
                return Some(RunEnd::Flush);
            }
        }
        match command {
            Command::Get(head) => {
                run.used_bytes += used_bytes;
                let pending_get =
                    PendingGet { head, key_bytes: 0, reply_start: None, has_started: false };
                self.state = State::PendingGet(pending_get);
                None
            }
            Command::MetaGet(line) if !line.flags.has(b'b') => {
                run.used_bytes += used_bytes;
                run.push_meta(line);
                None
            }
            Command::Store(head) => {
                self.begin_write(&StoreWrite::text(&head, run.context), used_bytes, run)
            }
            Command::MetaSet(line, value_bytes) => {
                let mut scratch = Vec::new();
                let write = StoreWrite::meta(&line, value_bytes, &mut scratch, run.context);
                self.begin_write(&write, used_bytes, run)
            }
            other_command => {
                let missing_bytes =
                    execute::missing_bytes_of_command(&other_command, run.context, run.out);
                if missing_bytes > 0 {
                    return Some(RunEnd::WaitForMemory(missing_bytes));
                }
                let Ok(effect) = execute::run_command(&other_command, run.context, run.out) else {
                    return Some(RunEnd::WaitForSegment);
                };
                run.used_bytes += used_bytes;
                RunEnd::after_command(effect)
            }
        }
    }

    fn refuse(&mut self, refusal: LineRefusal, run: &mut Run<'_, '_, '_>) -> Option<RunEnd> {
        if !refusal.noreply {
            run.out.bytes.extend_from_slice(refusal.reply);
        }
        if refusal.bytes_to_skip == LineRefusal::SKIP_UNKNOWN {
            self.state = State::Desynchronised;
        } else if refusal.bytes_to_skip > 0 {
            self.state = State::SkipRefusedValue(refusal.bytes_to_skip);
        }
        refusal.must_close.then_some(RunEnd::Close(CloseReason::MalformedInput))
    }

    fn skip_refused_value(&mut self, bytes_left: u64, run: &mut Run<'_, '_, '_>) -> Option<RunEnd> {
        let skipped_bytes = bytes_left.min(run.remaining_input().len() as u64);
        run.used_bytes += skipped_bytes as usize;
        if skipped_bytes == bytes_left {
            self.state = State::Command;
            return None;
        }
        self.state = State::SkipRefusedValue(bytes_left - skipped_bytes);
        Some(RunEnd::NeedsInput)
    }
}

/// Refuses the line after an invalid value length, like the line with that length, and closes. memcached executes
/// that line; only the error text is the same here.
fn refuse_next_line(run: &mut Run<'_, '_, '_>) -> RunEnd {
    match memchr::memchr(b'\n', run.remaining_input()) {
        Some(line_end) => {
            run.used_bytes += line_end + 1;
            run.out.bytes.extend_from_slice(replies::BAD_FORMAT);
            RunEnd::Close(CloseReason::MalformedInput)
        }
        None if run.remaining_input().len() > LINE_BYTES_MAX => {
            RunEnd::Close(CloseReason::MalformedInput)
        }
        None => RunEnd::NeedsInput,
    }
}
