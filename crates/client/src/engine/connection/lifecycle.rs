//! Whether a connection accepts requests, and what comes before the first one: the login, and the probe for the command
//! set.
//!
//! INVARIANT: a closing connection accepts no more requests, and a closed one stays closed.

use super::wire::Wire;
use crate::engine::server::ServerState;
use crate::request::CommandSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionStage {
    /// It is being connected, logs in, or probes the server for its command set.
    Opening,
    /// It accepts requests.
    Open,
    /// It accepts no more requests; replies to those in flight are still read.
    Closing,
    /// It cannot be used any more.
    Closed,
}

/// What an opening connection does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpeningStep {
    /// It has written a request, and waits for its reply.
    AwaitsReply,
    /// It accepts requests.
    Ready,
}

/// The stage of a connection.
#[derive(Debug)]
pub(super) struct Lifecycle {
    stage: ConnectionStage,
    /// It accepts requests, and the driver has not been told yet.
    must_report_ready: bool,
    /// The server closed the connection on `mn`: assume that it knows classic text only, until the first reply confirms it.
    presumes_classic: bool,
}

impl Lifecycle {
    /// The lifecycle of a connection whose transport is not connected yet.
    pub(super) fn new() -> Self {
        Self { stage: ConnectionStage::Opening, must_report_ready: false, presumes_classic: false }
    }

    /// Starts the login or the probe once the transport is connected; fails if the password cannot be obtained.
    pub(super) fn begin(
        &mut self,
        presumes_classic: bool,
        server: &ServerState,
        wire: &mut Wire,
    ) -> Result<OpeningStep, String> {
        self.presumes_classic = presumes_classic;
        if let Some(login) = server.login() {
            wire.write_login(login, server.command_set())?;
            return Ok(OpeningStep::AwaitsReply);
        }
        let step = self.probe_or_open(server, wire);
        self.must_report_ready = step == OpeningStep::Ready;
        Ok(step)
    }

    /// Continues after an accepted login; `None`: the connection is closing.
    pub(super) fn finish_login(
        &mut self,
        server: &ServerState,
        wire: &mut Wire,
    ) -> Option<OpeningStep> {
        let is_opening = self.stage == ConnectionStage::Opening;
        is_opening.then(|| self.probe_or_open(server, wire))
    }

    /// Probes the server if its command set is unknown.
    fn probe_or_open(&mut self, server: &ServerState, wire: &mut Wire) -> OpeningStep {
        if server.command_set().is_some() || self.presumes_classic {
            self.stage = ConnectionStage::Open;
            return OpeningStep::Ready;
        }
        wire.write_probe();
        OpeningStep::AwaitsReply
    }

    /// Learns the command set from the reply to the probe; `None`: the connection is closing.
    pub(super) fn finish_probe(
        &mut self,
        knows_meta: bool,
        server: &ServerState,
    ) -> Option<OpeningStep> {
        let command_set = if knows_meta { CommandSet::Meta } else { CommandSet::Classic };
        server.learn_command_set(command_set);
        let is_opening = self.stage == ConnectionStage::Opening;
        is_opening.then(|| {
            self.stage = ConnectionStage::Open;
            OpeningStep::Ready
        })
    }

    /// Notes that a request was answered, which confirms classic text if that was assumed.
    #[inline]
    pub(super) fn confirm_presumed_classic(&self, server: &ServerState) {
        if self.presumes_classic && server.command_set().is_none() {
            server.learn_command_set(CommandSet::Classic);
        }
    }

    /// Whether the driver is to be told that the connection accepts requests: once, unless a reply has told it.
    #[inline]
    pub(super) fn take_must_report_ready(&mut self) -> bool {
        self.must_report_ready && std::mem::take(&mut self.must_report_ready)
    }

    /// Whether it accepts requests.
    pub(super) fn is_open(&self) -> bool {
        self.stage == ConnectionStage::Open
    }

    /// Whether it accepts no more requests, but still reads replies to those in flight.
    pub(super) fn is_closing(&self) -> bool {
        self.stage == ConnectionStage::Closing
    }

    /// Whether it cannot be used any more.
    pub(super) fn is_closed(&self) -> bool {
        self.stage == ConnectionStage::Closed
    }

    /// Accepts no more requests.
    pub(super) fn begin_closing(&mut self) {
        if self.stage != ConnectionStage::Closed {
            self.stage = ConnectionStage::Closing;
        }
    }

    /// Closes it for good; returns whether it was already closing.
    pub(super) fn close(&mut self) -> bool {
        let previous_stage = std::mem::replace(&mut self.stage, ConnectionStage::Closed);
        matches!(previous_stage, ConnectionStage::Closing | ConnectionStage::Closed)
    }
}

#[cfg(test)]
mod tests;
