//! The quiet writes of a server: gathered, and sent by a call without requests of its own.

use std::sync::Arc;
use std::time::Instant;

use super::{Call, State, sender};
use crate::error::Error;
use crate::pool::Server;
use crate::quiet::Buffered;
use crate::request::Request;

impl Server {
    /// Enqueues a quiet write, if it follows another closely.
    pub(crate) fn gather(self: &Arc<Self>, request: &Request<'_>, now: Instant) -> Buffered {
        let gathered = self.quiet.gather(&self.state, request, now);
        if gathered != Buffered::KeptWithoutSender {
            return gathered;
        }
        if sender::start(self) {
            return Buffered::Kept;
        }
        self.quiet.has_no_sender();
        Buffered::Full
    }

    /// Sends what is gathered, within the time of a call; what cannot be sent counts as lost.
    pub(crate) fn flush_quiet_writes(
        self: &Arc<Self>,
        started: Instant,
        deadline: Instant,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let mut call = Call::new(self.clone(), &[], started, deadline);
        let result = loop {
            match call.run() {
                Ok(State::Finished) => return Ok(()),
                Ok(State::Interrupted) if !should_continue() => break Err(Error::Interrupted),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        if !call.took_load {
            self.quiet.give_up();
        }
        result
    }
}
