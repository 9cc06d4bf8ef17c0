//! The time of one run of a connection. Only one in a few reads the clock (`shared/command_times`); of the others it is read
//! if they have to wait.

use std::time::{Duration, Instant};

use crate::shared::slow_commands::CommandText;

/// The time of one run, and its command if that is of interest.
#[derive(Debug)]
pub(crate) struct RunClock {
    /// When the event loop learned that there is something to do.
    iteration_began_at: Instant,
    /// When this run began, if that is of interest.
    began_at: Option<Instant>,
    is_measured: bool,
    /// The command that is slow or has to wait.
    command: Option<CommandText>,
}

impl RunClock {
    #[inline]
    pub(crate) fn new(
        iteration_began_at: Instant,
        is_measured: bool,
        has_waiting_command: bool,
    ) -> RunClock {
        RunClock {
            iteration_began_at,
            began_at: (is_measured || has_waiting_command).then(Instant::now),
            is_measured,
            command: None,
        }
    }

    /// When the event loop learned that there is something to do.
    pub(super) fn iteration_began_at(&self) -> Instant {
        self.iteration_began_at
    }

    pub(crate) fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// The time since the event loop learned that there is something to do.
    pub(crate) fn elapsed(&self) -> Duration {
        self.iteration_began_at.elapsed()
    }

    /// Whether it is measured and has taken at least `limit` already.
    #[inline]
    pub(super) fn is_slower_than(&self, limit: Duration) -> bool {
        self.is_measured() && self.elapsed() >= limit
    }

    /// When this run began, if it is measured or a command of the connection waited.
    pub(super) fn began_at(&self) -> Option<Instant> {
        self.began_at
    }

    /// Notes the command that is slow or has to wait.
    pub(super) fn note_command(&mut self, command: CommandText) {
        self.command = Some(command);
    }

    /// The command that was noted.
    pub(super) fn take_command(&mut self) -> Option<CommandText> {
        self.command.take()
    }
}
