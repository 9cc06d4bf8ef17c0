//! How long the commands of a connection take, and what they wait for, as far as that takes long enough to be reported
//! (`shared/slow_commands`).
//!
//! A command that has to wait is timed from the iteration in which it was received to that in which nothing of it is left to
//! do. The time until its client has sent it in full does not count.

use std::time::{Duration, Instant};

use glasscache_store::Seconds;

use super::RunClock;
use crate::session::Session;
use crate::session::context::Context;
use crate::shared::connection_info::ConnectionInfo;
use crate::shared::peer_memory::Pressure;
use crate::shared::slow_commands::{CommandText, SlowCommand, WAIT_REASONS, WaitReason};

/// Times the command in progress of a connection.
#[derive(Debug, Default)]
pub(crate) struct CommandTimer {
    /// The command that waits for the server, or whose reply waits for the client.
    waiting: Option<Box<Waiting>>,
    /// Bytes received and sent since the connection last waited for a request.
    request_bytes: u64,
}

/// A command that waits.
#[derive(Debug)]
struct Waiting {
    command: CommandText,
    began_at: Instant,
    /// What it waits for now, and since when.
    reason: WaitReason,
    since: Instant,
    /// How long it has waited for each of [`WAIT_REASONS`].
    waited: [Duration; WAIT_REASONS.len()],
}

impl Waiting {
    /// A command that waits for `reason` from `now` on, after a run that began at `run_began_at`.
    fn new(
        command: CommandText,
        reason: WaitReason,
        (began_at, run_began_at, now): (Instant, Instant, Instant),
    ) -> Waiting {
        let waited = [Duration::ZERO; WAIT_REASONS.len()];
        let mut waiting = Waiting {
            command,
            began_at,
            reason: WaitReason::OtherConnections,
            since: began_at,
            waited,
        };
        waiting.end_run(run_began_at, now);
        waiting.reason = reason;
        waiting
    }

    fn add(&mut self, reason: WaitReason, time: Duration) {
        if let Some(waited) = self.waited.get_mut(reason as usize) {
            *waited += time;
        }
    }

    /// Until a run, which has ended now, it waited, and was executed since.
    fn end_run(&mut self, run_began_at: Instant, now: Instant) {
        self.add(self.reason, run_began_at.saturating_duration_since(self.since));
        self.add(WaitReason::Execution, now.saturating_duration_since(run_began_at));
        self.since = now;
    }

    /// Its whole time until `now`, what it waited for longest, and how long.
    fn end(mut self, now: Instant) -> (CommandText, Duration, WaitReason, Duration) {
        self.add(self.reason, now.saturating_duration_since(self.since));
        let longest = WAIT_REASONS.iter().zip(self.waited).max_by_key(|(_, waited)| *waited);
        let (reason, waited) = longest
            .map_or((self.reason, Duration::ZERO), |((reason, ..), waited)| (*reason, waited));
        (self.command, now.saturating_duration_since(self.began_at), reason, waited)
    }
}

impl CommandTimer {
    /// Whether a command waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Counts bytes that were received or sent.
    pub(crate) fn add_bytes(&mut self, moved_bytes: u64) {
        self.request_bytes += moved_bytes;
    }

    /// The connection waits for a request: returns the bytes of the last one.
    pub(crate) fn take_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.request_bytes)
    }

    /// Notes the command of a run that is slow, or has to wait for `reason`: the first of its input, or, if the run ended
    /// before one that waits for the server, that one. `in_progress` is the one that had begun before.
    #[inline]
    pub(super) fn note_command(
        &self,
        reason: Option<WaitReason>,
        (session, in_progress): (&Session, Option<CommandText>),
        (input, used_bytes): (&[u8], usize),
        context: &Context<'_>,
        run_clock: &mut RunClock,
    ) {
        // Memory for the rest of a command may be refused after this.
        let is_short = context.pressure == Pressure::High && used_bytes < input.len();
        let limit = context.shared.slow_commands.limit();
        let is_of_interest = reason.is_some() || is_short || run_clock.is_slower_than(limit);
        if self.is_waiting() || !is_of_interest {
            return;
        }
        let first = || session.first_command(in_progress, input);
        match reason {
            None if !is_short => run_clock.note_command(first()),
            Some(WaitReason::Socket | WaitReason::OtherConnections) => {
                run_clock.note_command(first());
            }
            _ => {
                let input_left = input.get(used_bytes..).unwrap_or_default();
                self.note_next_command(session, input_left, run_clock);
            }
        }
    }

    /// Notes the command that waits with its rest at the front of `input`.
    pub(super) fn note_next_command(
        &self,
        session: &Session,
        input: &[u8],
        run_clock: &mut RunClock,
    ) {
        if !self.is_waiting() {
            let in_progress = session.command_in_progress();
            let command = in_progress.unwrap_or_else(|| session.command_at(input));
            run_clock.note_command(command);
        }
    }

    /// Ends a run, after which the connection waits for `reason`, if for anything: what was slow of it, unless it waits.
    #[inline]
    pub(crate) fn finish_run(
        &mut self,
        reason: Option<WaitReason>,
        context: &Context<'_>,
        run_clock: &mut RunClock,
    ) -> Option<SlowCommand> {
        if reason.is_none() && !self.is_waiting() && !run_clock.is_measured() {
            return None;
        }
        self.finish_timed_run(reason, context, run_clock)
    }

    fn finish_timed_run(
        &mut self,
        reason: Option<WaitReason>,
        context: &Context<'_>,
        run_clock: &mut RunClock,
    ) -> Option<SlowCommand> {
        let limit = context.shared.slow_commands.limit();
        let began_at = run_clock.iteration_began_at();
        let run_began_at = run_clock.began_at().unwrap_or(began_at);
        match (&mut self.waiting, reason) {
            (Some(waiting), reason) => {
                waiting.end_run(run_began_at, Instant::now());
                let Some(reason) = reason else {
                    return self.finish_wait(context.connection, limit, context.now);
                };
                waiting.reason = reason;
                None
            }
            (None, Some(reason)) => {
                let command = run_clock.take_command().unwrap_or_else(CommandText::unknown);
                let times = (began_at, run_began_at, Instant::now());
                self.waiting = Some(Box::new(Waiting::new(command, reason, times)));
                None
            }
            (None, None) => {
                // The command is known only if the run was slow.
                let command = run_clock.take_command()?;
                let times = (began_at, run_began_at, Instant::now());
                let run = Waiting::new(command, WaitReason::Execution, times);
                self.waiting = Some(Box::new(run));
                self.finish_wait(context.connection, limit, context.now)
            }
        }
    }

    /// Ends a wait, at the end of its command or of the connection; what was slow of it.
    pub(crate) fn finish_wait(
        &mut self,
        info: &ConnectionInfo,
        limit: Duration,
        ended_at: Seconds,
    ) -> Option<SlowCommand> {
        let (command, time, reason, waited) = self.waiting.take()?.end(Instant::now());
        let slow = || SlowCommand {
            command,
            client: Some(info.client()),
            bytes: Some(self.request_bytes),
            time,
            reason,
            waited,
            ended_at,
        };
        (time >= limit).then(slow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_waited_for_what_took_longest() {
        let began_at = Instant::now();
        let at = |ms| began_at + Duration::from_millis(ms);
        let command = CommandText { name: "set", key: Box::from(*b"k") };
        // Others for 10 ms, 20 of its own, a segment for 30, 5 of its own, the socket for 20.
        let times = (began_at, at(10), at(30));
        let mut waiting = Waiting::new(command.clone(), WaitReason::Segment, times);
        waiting.end_run(at(60), at(65));
        waiting.reason = WaitReason::Socket;
        let (name_and_key, time, reason, waited) = waiting.end(at(85));
        assert_eq!(name_and_key, command);
        assert_eq!((time.as_millis(), reason, waited.as_millis()), (85, WaitReason::Segment, 30));
    }
}
