//! How a call ends that was not answered: another try on a fresh connection, or an error that says
//! how far it had come. Whatever the way out, writes without an answer are noted as doubtful.

use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::{Call, PATIENCE, Stage};
use crate::doubts::keys_of;
use crate::error::{Context, Error, Phase};
use crate::pool::Lease;
use crate::quiet::Load;
use crate::request::Request;
use crate::transport::blocking::{Link, Stop};

impl Call<'_> {
    /// Decides what follows a wait that brought nothing: another try on a fresh connection, or the end.
    pub(super) fn stopped(&mut self, stop: Stop) -> Result<(), Error> {
        let phase = match self.stage {
            Stage::Start | Stage::Resolving | Stage::Connecting | Stage::Probing => Phase::Connect,
            Stage::Sending => Phase::Write,
            Stage::Receiving | Stage::Done => Phase::Read,
        };
        let link = self.lease.as_ref().and_then(Lease::link_ref);
        let is_untouched = link.is_some_and(|link| link.pipeline.is_untouched());
        let was_sent = link.is_some_and(Link::has_sent) && self.stage != Stage::Probing;
        let is_repeatable = self.requests.iter().all(Request::is_repeatable);
        let retry_is_safe = !was_sent || is_repeatable;
        if let Stop::Closed(why) = stop {
            if self.stage == Stage::Probing && is_untouched && why.is_none() && !self.was_retried {
                // A proxy that closes on meta: classic text from now on, if it then answers.
                self.presumes_classic = true;
                self.retry();
                return Ok(());
            }
            if !self.is_fresh && is_untouched && retry_is_safe && !self.was_retried {
                drop(self.server.take_idle()); // they are as stale as this one
                self.retry();
                return Ok(());
            }
            self.give_up_on_server(matches!(self.stage, Stage::Resolving | Stage::Connecting));
            let why = why.map_or_else(
                || "the connection was closed".into(),
                |error: Errno| error.to_string(),
            );
            let error = Error::Unavailable(self.context(phase, retry_is_safe), why);
            self.lease = None;
            return Err(error);
        }
        let allowed = self.deadline.saturating_duration_since(self.started);
        if allowed >= PATIENCE {
            self.give_up_on_server(matches!(self.stage, Stage::Resolving | Stage::Connecting));
        }
        let error = Error::Deadline(self.context(phase, retry_is_safe));
        self.lease = None;
        Err(error)
    }

    pub(super) fn retry(&mut self) {
        self.was_retried = true;
        self.is_in_doubt = false;
        if let Some(lease) = &mut self.lease {
            // Gathered writes go along again if nothing of them has left, else they are lost.
            let unsent = lease.link().filter(|link| !link.has_sent());
            let debt = unsent.and_then(|link| link.owed.pop_back());
            self.load = match (self.load.take(), debt) {
                (Some(mut load), Some(debt)) => {
                    load.debt = debt;
                    Some(load)
                }
                _ => None,
            };
            lease.replace(None);
        }
        self.stage = Stage::Start;
    }

    pub(super) fn give_up_on_server(&self, cannot_connect: bool) {
        let is_news = if cannot_connect {
            self.server.health.down()
        } else {
            self.server.health.bad()
        };
        if is_news {
            crate::probe::start(&self.server);
        }
    }

    pub(super) fn context(&self, phase: Phase, retry_is_safe: bool) -> Context {
        Context {
            server: self.server.name.clone(),
            phase,
            retry_is_safe,
        }
    }

    pub(super) fn error(&self, phase: Phase, why: String) -> Error {
        Error::Unavailable(self.context(phase, true), why)
    }

    pub(super) fn cannot_connect(&self, why: String) -> Error {
        self.give_up_on_server(true);
        self.error(Phase::Connect, why)
    }

    pub(super) fn protocol(&self, fault: crate::pipeline::Fault) -> Error {
        self.server.faults.fetch_add(1, Ordering::Relaxed);
        self.give_up_on_server(false);
        Error::Protocol {
            server: self.server.name.clone(),
            fault,
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // The parent goes on with it; locks of its server may be held by threads that this child has not.
            self.load.take().into_iter().for_each(Load::abandon);
            self.lease = None;
            return;
        }
        if self.is_in_doubt {
            let written = self.requests.iter().flat_map(keys_of);
            self.server.doubts.add(written);
        }
        if !self.doubts.is_empty() {
            self.server.doubts.add(self.doubts.drain(..));
        }
    }
}
