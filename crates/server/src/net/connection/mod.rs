//! One socket: received bytes go through its session, the session's output is sent.
//!
//! An idle connection owns no buffer. Input that cannot be parsed yet and output that cannot be sent yet are kept
//! in vectors of their own size, charged to the budget of peer memory, and freed as soon as possible. While output is
//! pending nothing is received: a client that does not read cannot write.
//!
//! A connection consists of its session, its input and output, what it does (`watch_and_dump`), and what its worker keeps
//! about it: its wait for memory, why it is served later, how long it takes to log in, and the time of its command. Each
//! is a type that owns its fields; the connection decides what follows from several of them.

mod admission;
mod buffers;
mod command_timer;
mod deferral;
mod handover_state;
mod input;
mod login_wait;
mod memory_wait;
mod pending;
mod run_clock;
mod watch_and_dump;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use self::buffers::ReceivedInput;
pub(crate) use self::buffers::{Buffers, InputSource, READ_AHEAD_BYTES};
use self::command_timer::CommandTimer;
use self::deferral::Deferral;
pub(crate) use self::handover_state::{InheritedInfo, InheritedState, LoginRules};
use self::input::{ConnectionInput, peek};
use self::login_wait::LoginWait;
use self::memory_wait::MemoryWait;
use self::pending::PendingInput;
pub(crate) use self::run_clock::RunClock;
use self::watch_and_dump::Mode;
use crate::net::send::{self, ConnectionOutput, SendOutcome};
use crate::net::stream::Stream;
use crate::session::command_log;
use crate::session::context::Context;
use crate::session::output::Output;
use crate::session::{Progress, RunEnd, Session};
use crate::shared::connection_info::{
    CloseReason, ConnectionInfo, STATE_READING, STATE_READING_VALUE,
};
use crate::shared::peer_memory::Pressure;
use crate::shared::sizes::{INPUT_BYTES, RECV_BYTES};
use crate::shared::slow_commands::WaitReason;

/// Output or upload bytes after which a connection yields to others, even if those are few.
const YIELD_AFTER_BYTES: usize = 128 << 10;

/// One client's connection, owned by one worker for life.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) info: Arc<ConnectionInfo>,
    pub(crate) session: Session,
    input: ConnectionInput,
    pub(crate) output: ConnectionOutput,
    pub(crate) mode: Mode,
    /// It has sent a request that was served, and not only a login.
    has_sent_request: bool,
    /// The events that epoll reports for it.
    pub(crate) interest: Interest,
    /// The events that epoll should report while no output is pending.
    read_interest: Interest,
    /// The peer has closed its sending side.
    pub(crate) is_half_closed: bool,
    /// It had bytes in memory after it was last served.
    had_held_bytes: bool,
    pub(crate) memory_wait: MemoryWait,
    pub(crate) deferral: Deferral,
    pub(crate) login_wait: LoginWait,
    pub(crate) command_timer: CommandTimer,
}

/// The events that epoll should report for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Input.
    Input,
    /// Input, edge-triggered: the bytes already in the socket are the beginning of a command.
    NewInput,
    /// Space in the send buffer.
    Writable,
    /// Only the end of the connection, once.
    Nothing,
}

/// What to do with a connection after it was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Wait for the socket.
    Wait,
    /// Serve it again after the others.
    Requeue,
    /// It has more to send; serve those first that need little.
    RequeueAfterSmallRequests,
    /// It waits for upload memory that others hold: serve it again after a while.
    WaitForUpload,
    /// It waits for this many bytes of the memory that peers may hold.
    WaitForMemory(usize),
    /// Its attempt to log in is being verified.
    WaitForLogin,
    /// One of its writes waits for a segment; `is_new` if it is not the write that waited before.
    WaitForSegment { is_new: bool },
    /// Close it.
    Close(CloseReason),
}

impl Connection {
    pub(crate) fn new(stream: Stream, info: Arc<ConnectionInfo>, session: Session) -> Connection {
        Connection {
            stream,
            info,
            session,
            input: ConnectionInput::default(),
            output: ConnectionOutput::default(),
            mode: Mode::Serve,
            has_sent_request: false,
            interest: Interest::Input,
            read_interest: Interest::Input,
            is_half_closed: false,
            had_held_bytes: false,
            memory_wait: MemoryWait::default(),
            deferral: Deferral::default(),
            login_wait: LoginWait::default(),
            command_timer: CommandTimer::default(),
        }
    }

    /// Whether a large value is being received or sent.
    pub(crate) fn is_transferring(&self) -> bool {
        self.has_pending_output() || self.session.awaits_value()
    }

    /// The number of the upload whose value is incomplete.
    pub(crate) fn upload_id(&mut self) -> Option<u64> {
        self.session.upload_mut().map(|reservation| reservation.id())
    }

    /// Whether output is pending for the socket.
    pub(crate) fn has_pending_output(&self) -> bool {
        self.output.is_pending() || self.stream.has_buffered_output()
    }

    /// The events that epoll should report for it now.
    pub(crate) fn wanted_interest(&self) -> Interest {
        if self.deferral.is_queued() {
            // It is served in any case: epoll needs no change.
            return self.interest;
        }
        match (self.has_pending_output(), self.deferral.is_parked()) {
            (true, _) => Interest::Writable,
            (false, true) => Interest::Nothing,
            (false, false) => self.read_interest,
        }
    }

    /// Whether it has sent a request that was served.
    pub(crate) fn has_sent_request(&self) -> bool {
        self.has_sent_request
    }

    /// Whether it has no unfinished command or output.
    pub(crate) fn is_idle(&self) -> bool {
        self.session.is_idle() && self.input.pending().is_empty() && !self.has_pending_output()
    }

    /// Bytes that it holds in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.input.pending().charged_bytes() + self.output.memory_bytes() + self.stream.held_bytes()
    }

    /// Whether the next bytes begin a command that may be received before others of the iteration are executed.
    pub(crate) fn may_read_ahead(&self) -> bool {
        matches!(self.mode, Mode::Serve)
            && self.is_idle()
            && !self.session.awaits_login()
            && !(self.output.is_closing() || self.input.has_just_uploaded())
            && !(self.deferral.is_parked() || self.deferral.is_queued())
    }

    /// Serves a connection that was read ahead: its input is already received, or it is closed.
    pub(crate) fn serve_read_ahead(
        &mut self,
        read_ahead_input: Result<Option<&[u8]>, CloseReason>,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> NextStep {
        self.read_interest = Interest::Input;
        match read_ahead_input {
            Ok(Some(input)) => self.serve(InputSource::ReadAhead(input), context, buffers),
            Ok(None) => NextStep::Wait,
            Err(reason) => NextStep::Close(reason),
        }
    }

    /// Serves a connection whose socket is readable.
    pub(crate) fn on_readable(&mut self, context: &Context<'_>, buffers: &mut Buffers) -> NextStep {
        self.read_interest = Interest::Input;
        match self.mode {
            Mode::Serve => self.serve(InputSource::Socket, context, buffers),
            // Input of a watcher is ignored, but the end of its connection is noticed.
            Mode::Watch(_) => self.detect_close(context, buffers),
            // Input after a dump was requested stays in the kernel until the dump is complete.
            Mode::Dump(_) => NextStep::Wait,
        }
    }

    /// Continues a connection whose socket is writable, or that may use its next quota.
    pub(crate) fn resume(&mut self, context: &Context<'_>, buffers: &mut Buffers) -> NextStep {
        self.read_interest = Interest::Input;
        match self.output.resume(&mut self.stream, context) {
            SendOutcome::All => {}
            SendOutcome::QuotaUsed => return NextStep::RequeueAfterSmallRequests,
            SendOutcome::Partial => return NextStep::Wait,
            SendOutcome::Failed => return NextStep::Close(CloseReason::Error),
        }
        if self.output.is_closing() {
            return NextStep::Close(CloseReason::Normal);
        }
        match self.mode {
            Mode::Serve if self.stream.has_buffered_input() || self.waits_to_receive() => {
                self.serve(InputSource::Socket, context, buffers)
            }
            Mode::Serve => self.serve(InputSource::PendingInput, context, buffers),
            Mode::Watch(_) => self.send_watch_lines(context),
            Mode::Dump(_) => self.send_dump_slice(context, buffers),
        }
    }

    /// Whether it waits for memory with its input in the socket.
    pub(crate) fn waits_to_receive(&self) -> bool {
        self.stream.is_tls() && self.memory_wait.is_waiting() && self.input.pending().is_empty()
    }

    /// Serves the input of `source`, as far as memory allows.
    fn serve(
        &mut self,
        source: InputSource<'_>,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> NextStep {
        let is_short = context.pressure == Pressure::High || self.memory_wait.missing_bytes() > 0;
        if is_short
            && !self.session.is_login_pending()
            && let Err(next_step) = self.admit_input(source, context, buffers)
        {
            return next_step;
        }
        let next_step = self.serve_admitted(source, context, buffers);
        self.stream.limit_reads(usize::MAX);
        next_step
    }

    fn serve_admitted(
        &mut self,
        source: InputSource<'_>,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> NextStep {
        if let Some(next_step) = self.find_wait_before_reading(context) {
            return next_step;
        }
        let mut quota_left = context.quota_bytes.min(YIELD_AFTER_BYTES);
        self.info.last_command_s.store(context.now.0, Ordering::Relaxed);
        let mut taken_input = PendingInput::default();
        let received = self.receive(source, &mut taken_input, &mut quota_left, context, buffers);
        let ReceivedInput { mut filled_bytes, mut is_full } = match received {
            Ok(received) => received,
            Err(next_step) => return next_step,
        };
        let mut input_outside_buffer = source.whole_read_ahead().or(taken_input.bytes());
        let mut used_bytes = 0;
        let mut command_bytes = 0;
        let mut in_progress = self.session.command_in_progress();
        let next_step = loop {
            let input = input_outside_buffer.unwrap_or(&buffers.input);
            let input = input.get(used_bytes..filled_bytes).unwrap_or_default();
            let mut out = Output::new(std::mem::take(&mut buffers.output));
            let progress = self.session.run(input, context, &mut out);
            used_bytes += progress.used_bytes;
            self.has_sent_request |= progress.used_bytes > 0 && !self.session.awaits_login();
            if context.logs_commands {
                command_log::log_replies(context, &out, self.session.is_binary());
            }
            quota_left = quota_left.saturating_sub(out.len());
            let send_outcome = self.output.send(&mut out, &mut self.stream, context);
            buffers.return_output_buffer(out.into_bytes());
            if send_outcome == SendOutcome::Failed {
                break NextStep::Close(CloseReason::Error);
            }
            if let RunEnd::NeedsBytes(needed_bytes) = progress.run_end {
                command_bytes = needed_bytes;
            }
            let Some(mut next_step) =
                self.next_step_after(progress.run_end, send_outcome, quota_left, context)
            else {
                continue;
            };
            if let NextStep::WaitForSegment { is_new } = &mut next_step {
                *is_new = used_bytes > 0;
            }
            // If the head of a large value filled the buffer there is more to receive: no wait is needed.
            let begins_upload = std::mem::take(&mut is_full) && self.session.upload_mut().is_some();
            if !begins_upload || next_step != NextStep::Wait || send_outcome != SendOutcome::All {
                break next_step;
            }
            let (stream, session) = (&mut self.stream, &mut self.session);
            match self.input.receive_upload(stream, session, &mut quota_left, context, buffers) {
                Ok(received_input) => {
                    in_progress = self.session.command_in_progress();
                    (input_outside_buffer, used_bytes, filled_bytes) =
                        (None, 0, received_input.filled_bytes);
                }
                Err(next_step) => return next_step,
            }
        };
        let input = input_outside_buffer.unwrap_or(&buffers.input);
        let input = input.get(..filled_bytes).unwrap_or_default();
        self.command_timer.note_command(
            self.wait_reason(next_step),
            (&self.session, in_progress),
            (input, used_bytes),
            context,
            &mut buffers.run_clock,
        );
        if used_bytes == 0 && input_outside_buffer.is_some() && !taken_input.is_empty() {
            self.input.return_pending(taken_input);
        } else if !self.input.keep(input.get(used_bytes..).unwrap_or_default(), context) {
            return NextStep::Close(CloseReason::Stalled);
        }
        self.reserve_for_incomplete(next_step, command_bytes, context)
    }

    /// What the connection has to wait for before it reads anything.
    fn find_wait_before_reading(&mut self, context: &Context<'_>) -> Option<NextStep> {
        if self.session.is_login_pending() {
            self.read_interest = Interest::Nothing;
            return Some(NextStep::WaitForLogin);
        }
        let is_reply_delayed = self.stream.is_tls()
            && context.pressure == Pressure::High
            && !send::is_writable(self.stream.socket());
        is_reply_delayed.then(|| {
            // A reply made now would have to wait in memory.
            context.counters.memory_waits.bump();
            self.read_interest = Interest::Writable;
            NextStep::Wait
        })
    }

    /// Receives from `source`; what was kept of earlier input goes to `taken_input`.
    fn receive(
        &mut self,
        source: InputSource<'_>,
        taken_input: &mut PendingInput,
        quota_left: &mut usize,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> Result<ReceivedInput, NextStep> {
        let has_no_pending = self.input.pending().is_empty();
        let is_uploading = has_no_pending && self.session.upload_mut().is_some();
        let is_memory_short = has_no_pending && context.pressure == Pressure::High;
        let awaits_login = self.session.awaits_login();
        let stream = &mut self.stream;
        match source {
            InputSource::ReadAhead(input) if input.len() < READ_AHEAD_BYTES => {
                Ok(ReceivedInput::not_full(input.len()))
            }
            InputSource::ReadAhead(input) => buffers
                .receive_after_read_ahead(input, stream, context.counters)
                .map_err(NextStep::Close),
            InputSource::Socket if is_uploading => {
                let session = &mut self.session;
                self.input.receive_upload(stream, session, quota_left, context, buffers)
            }
            _ if is_memory_short && !is_uploading && !stream.is_tls() && !awaits_login => {
                Err(self.serve_peeked(context, buffers))
            }
            InputSource::Socket if self.input.pending().is_incomplete() => {
                self.input.receive_rest_of_command(stream, context, taken_input)
            }
            InputSource::Socket => {
                let missing_bytes = self.memory_wait.take_missing_bytes();
                let limits = (awaits_login, missing_bytes);
                self.input.receive_commands(stream, limits, context, buffers)
            }
            InputSource::PendingInput => {
                *taken_input = self.input.take_pending();
                Ok(ReceivedInput::not_full(taken_input.len()))
            }
        }
    }

    /// Requeues a connection whose stream holds received bytes: no event of the socket reports them.
    pub(crate) fn requeue_if_received(&self, next_step: NextStep) -> NextStep {
        let is_ready = self.stream.has_buffered_input()
            && next_step == NextStep::Wait
            && matches!(self.mode, Mode::Serve)
            && self.read_interest == Interest::Input
            && !self.has_pending_output();
        if is_ready { NextStep::Requeue } else { next_step }
    }

    /// Reserves memory for the rest of an incomplete command; while memory is short it waits for that.
    fn reserve_for_incomplete(
        &mut self,
        next_step: NextStep,
        command_bytes: usize,
        context: &Context<'_>,
    ) -> NextStep {
        let reads_value = self.session.awaits_value() || !self.input.pending().is_empty();
        self.info.set_state(if reads_value { STATE_READING_VALUE } else { STATE_READING });
        if next_step != NextStep::Wait
            || self.has_pending_output()
            || self.input.pending().is_empty()
        {
            return next_step;
        }
        match self.input.reserve(command_bytes, context) {
            Ok(()) => {
                self.memory_wait.set_missing_bytes(0);
                next_step
            }
            Err(needed_bytes) => {
                let received_bytes = self.input.pending().len();
                self.memory_wait.set_missing_bytes(command_bytes.saturating_sub(received_bytes));
                self.read_interest = Interest::NewInput;
                NextStep::WaitForMemory(needed_bytes)
            }
        }
    }

    /// Serves the input in the socket by peeking and leaves there what cannot be parsed yet, so that nothing has to
    /// be kept. Only a socket with space for a slice of output is served.
    fn serve_peeked(&mut self, context: &Context<'_>, buffers: &mut Buffers) -> NextStep {
        if !send::is_writable(self.stream.socket()) {
            // A reply made now would have to wait in memory.
            context.counters.memory_waits.bump();
            self.read_interest = Interest::Writable;
            return NextStep::Wait;
        }
        let mut receive_bytes_max = RECV_BYTES;
        loop {
            let target = buffers.input.get_mut(..receive_bytes_max).unwrap_or_default();
            let filled_bytes = match peek(self.stream.socket(), target, context.counters) {
                Ok(Some(filled_bytes)) => filled_bytes,
                Ok(None) => return NextStep::Wait,
                Err(reason) => return NextStep::Close(reason),
            };
            let mut out = Output::new(std::mem::take(&mut buffers.output));
            let input = buffers.input.get(..filled_bytes).unwrap_or_default();
            let Progress { used_bytes, run_end } = self.session.run(input, context, &mut out);
            let input_left = input.get(used_bytes..).unwrap_or_default();
            self.command_timer.note_next_command(&self.session, input_left, &mut buffers.run_clock);
            let send_outcome = self.output.send(&mut out, &mut self.stream, context);
            buffers.return_output_buffer(out.into_bytes());
            let is_consumed = buffers.consume(used_bytes, &mut self.stream, context.counters);
            if send_outcome == SendOutcome::Failed || !is_consumed {
                return NextStep::Close(CloseReason::Error);
            }
            let is_unfinished = matches!(run_end, RunEnd::NeedsInput | RunEnd::NeedsBytes(_))
                && used_bytes < filled_bytes;
            if !is_unfinished || send_outcome != SendOutcome::All {
                return self.continue_after_peek(run_end, send_outcome, context);
            }
            if used_bytes > 0 {
                // The next peek has the incomplete command at its start.
                return NextStep::Requeue;
            }
            if filled_bytes < receive_bytes_max || receive_bytes_max == INPUT_BYTES {
                return self.wait_for_rest(&run_end, context);
            }
            receive_bytes_max = INPUT_BYTES;
        }
    }

    /// What follows a run over peeked input.
    fn continue_after_peek(
        &mut self,
        run_end: RunEnd,
        send_outcome: SendOutcome,
        context: &Context<'_>,
    ) -> NextStep {
        let waits_for_memory = matches!(run_end, RunEnd::WaitForMemory(_));
        // The socket has to be checked before each slice, so only one slice is made.
        let next_step =
            self.next_step_after(run_end, send_outcome, 0, context).unwrap_or(NextStep::Requeue);
        if waits_for_memory {
            self.read_interest = Interest::Nothing;
        }
        next_step
    }

    /// An incomplete command stays in the socket, unless there is memory to collect it.
    fn wait_for_rest(&mut self, run_end: &RunEnd, context: &Context<'_>) -> NextStep {
        if self.is_half_closed {
            return NextStep::Close(CloseReason::Normal);
        }
        let RunEnd::NeedsBytes(command_bytes) = *run_end else {
            self.read_interest = Interest::NewInput;
            return NextStep::Wait;
        };
        if let Some(charge) =
            context.shared.peer_memory.try_charge(command_bytes, context.is_first_waiter)
        {
            self.input.collect(command_bytes, charge);
            return NextStep::Wait;
        }
        self.read_interest = Interest::NewInput;
        NextStep::WaitForMemory(command_bytes)
    }

    /// What follows a run; `None` runs the session again.
    fn next_step_after(
        &mut self,
        run_end: RunEnd,
        send_outcome: SendOutcome,
        quota_left: usize,
        context: &Context<'_>,
    ) -> Option<NextStep> {
        // Pending output goes first.
        let step_after_output = match send_outcome {
            SendOutcome::Partial => Some(NextStep::Wait),
            SendOutcome::QuotaUsed => Some(NextStep::RequeueAfterSmallRequests),
            SendOutcome::All | SendOutcome::Failed => None,
        };
        match run_end {
            RunEnd::Close(_) if step_after_output.is_some() => {
                self.output.close_when_sent();
                step_after_output
            }
            RunEnd::Close(reason) => Some(NextStep::Close(reason)),
            RunEnd::Watch(filter) => Some(self.start_watch(filter, context)),
            RunEnd::Dump(dump) => {
                self.mode = Mode::Dump(Box::new(dump));
                Some(step_after_output.unwrap_or(NextStep::Requeue))
            }
            _ if step_after_output.is_some() => step_after_output,
            RunEnd::NeedsInput | RunEnd::NeedsBytes(_) => Some(NextStep::Wait),
            RunEnd::WaitForMemory(missing_bytes) => {
                self.read_interest = Interest::Nothing;
                Some(NextStep::WaitForMemory(missing_bytes))
            }
            RunEnd::WaitForLogin => {
                self.read_interest = Interest::Nothing;
                Some(NextStep::WaitForLogin)
            }
            RunEnd::WaitForUpload => Some(NextStep::WaitForUpload),
            RunEnd::WaitForSegment => Some(NextStep::WaitForSegment { is_new: false }),
            RunEnd::Flush if quota_left > 0 => None,
            RunEnd::Flush | RunEnd::Yield => Some(NextStep::Requeue),
        }
    }

    /// What it waits for after a run that ended with `next_step`.
    #[inline]
    pub(crate) fn wait_reason(&self, next_step: NextStep) -> Option<WaitReason> {
        match next_step {
            NextStep::WaitForMemory(_) => Some(WaitReason::PeerMemory),
            NextStep::WaitForUpload => Some(WaitReason::UploadMemory),
            NextStep::WaitForSegment { .. } => Some(WaitReason::Segment),
            NextStep::WaitForLogin => Some(WaitReason::Password),
            NextStep::RequeueAfterSmallRequests => Some(WaitReason::OtherConnections),
            NextStep::Requeue => {
                self.command_timer.is_waiting().then_some(WaitReason::OtherConnections)
            }
            NextStep::Wait
                if self.read_interest == Interest::Writable
                    || (self.has_pending_output() && !self.mode.is_watching()) =>
            {
                Some(WaitReason::Socket)
            }
            NextStep::Wait | NextStep::Close(_) => None,
        }
    }
}
