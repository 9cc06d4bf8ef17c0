//! How a call ends that was not answered: another try on a fresh connection, or an error that says
//! how far it had come. Whatever the way out, writes without an answer are noted as uncertain.

use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::{Call, Stage};
use crate::engine::health::Mark;
use crate::engine::loss::{self, Cause, Next, Unanswered};
use crate::engine::uncertain::keys_of;
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
        let request = Unanswered {
            stage: match self.stage {
                Stage::Resolving | Stage::Connecting => loss::Stage::Connecting,
                Stage::Start | Stage::Probing => loss::Stage::Probing,
                Stage::Sending | Stage::Receiving | Stage::Done => loss::Stage::Exchange,
            },
            was_used: !self.is_fresh,
            is_untouched: link.is_some_and(|link| link.pipeline.is_untouched()),
            was_sent: link.is_some_and(Link::has_sent) && self.stage != Stage::Probing,
            is_repeatable: self.requests.iter().all(Request::is_repeatable),
            was_retried: self.was_retried,
        };
        let cause = match stop {
            Stop::Closed(why) => Cause::Closed {
                in_order: why.is_none(),
            },
            _ => Cause::Deadline(self.deadline.saturating_duration_since(self.started)),
        };
        match request.next(cause) {
            Next::Retry => {
                drop(self.server.take_idle()); // they are as stale as this one
                self.retry();
                return Ok(());
            }
            Next::RetryClassic => {
                self.presumes_classic = true; // from now on, if it then answers
                self.retry();
                return Ok(());
            }
            Next::End(mark) => self.note(mark),
        }
        self.lease = None;
        let context = self.context(phase, request.retry_is_safe());
        Err(match stop {
            Stop::Closed(why) => {
                let closed = || "the connection was closed".into();
                let why = why.map_or_else(closed, |error: Errno| error.to_string());
                Error::Unavailable(context, why)
            }
            _ => Error::Deadline(context),
        })
    }

    pub(super) fn retry(&mut self) {
        self.was_retried = true;
        self.is_uncertain = false;
        if let Some(lease) = &mut self.lease {
            // Gathered writes go along again if nothing of them has left, else they are lost.
            let unsent = lease.link().filter(|link| !link.has_sent());
            let pending = unsent.and_then(|link| link.awaited.pop_back());
            self.load = match (self.load.take(), pending) {
                (Some(mut load), Some(pending)) => {
                    load.pending = pending;
                    Some(load)
                }
                _ => None,
            };
            lease.replace(None);
        }
        self.stage = Stage::Start;
    }

    /// Notes what a failure says of the server; one that has just gone down is probed.
    pub(super) fn note(&self, mark: Mark) {
        if self.server.health.note(mark) {
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
        self.note(Mark::Down);
        self.error(Phase::Connect, why)
    }

    pub(super) fn protocol(&self, fault: crate::pipeline::Fault) -> Error {
        self.server.faults.fetch_add(1, Ordering::Relaxed);
        self.note(Mark::Bad);
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
        if self.is_uncertain {
            let written = self.requests.iter().flat_map(keys_of);
            self.server.uncertain.add(written);
        }
        if !self.uncertain.is_empty() {
            self.server.uncertain.add(self.uncertain.drain(..));
        }
    }
}
