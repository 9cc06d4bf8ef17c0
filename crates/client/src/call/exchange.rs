//! What passes over a call's connection: its requests, and the replies until the last is whole.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::{AWAITED_MAX, Call, DIRECT_BYTES_MIN, PENDING_MAX, Stage, State, Trouble};
use crate::engine::uncertain::write_removals;
use crate::error::{Error, Phase};
use crate::pipeline::{Answer, Progress};
use crate::pool::Lease;
use crate::request::{Dialect, Request};
use crate::transport::blocking::{Patience, Stop, wait};

impl Call<'_> {
    /// Writes the requests into the connection's output.
    pub(super) fn write(&mut self) -> Result<(), Trouble> {
        self.connected = if self.is_fresh {
            Instant::now()
        } else {
            self.started
        };
        let dialect = self.server.dialect().unwrap_or(Dialect::Classic);
        let link = self
            .lease
            .as_mut()
            .and_then(Lease::link)
            .ok_or(Error::Closed)?;
        link.begin();
        let is_noreply = self.requests.iter().all(Request::is_noreply);
        self.is_noreply = is_noreply;
        if !is_noreply {
            self.uncertain.append(&mut self.server.uncertain.take());
        }
        if !self.uncertain.is_empty() {
            link.begin_pending(&self.server.state);
            let answered = write_removals(&self.uncertain, &mut link.desk(dialect));
            link.pending.count += answered;
        }
        let must_ask = !is_noreply || self.load.is_some() || link.pending.count >= PENDING_MAX;
        if must_ask && !link.pending.is_empty() {
            let pending = std::mem::take(&mut link.pending);
            link.request_acknowledgement(pending);
        }
        if let Some(load) = &mut self.load {
            link.out.extend_from_slice(&load.out);
            link.request_acknowledgement(std::mem::take(&mut load.pending));
            load.end = link.out.len();
        }
        if is_noreply {
            link.begin_pending(&self.server.state);
        }
        let mut desk = link.desk(dialect);
        for request in self.requests {
            if let Err(unsaid) = request.write(&mut desk) {
                let server = self.server.name.clone();
                return Err(Error::Unsupported {
                    server,
                    what: unsaid.0,
                }
                .into());
            }
            // Only a request that stands alone has its body sent from where it lies, behind all others.
            if self.requests.len() > 1
                && let Some(body) = request.loose_body()
            {
                desk.out.extend_from_slice(body);
                desk.out.extend_from_slice(b"\r\n");
            }
        }
        self.stage = Stage::Sending;
        Ok(())
    }

    pub(super) fn send(&mut self) -> Result<(), Trouble> {
        let body = match self.requests {
            [request] => request.loose_body(),
            _ => None,
        };
        let link = self
            .lease
            .as_mut()
            .and_then(Lease::link)
            .ok_or(Error::Closed)?;
        let is_all_sent = link.send(body)?;
        self.is_uncertain = link.has_sent();
        // Who writes without waiting keeps it until the connection is back in the pool, so that its own
        // next call finds that connection.
        self.load
            .take_if(|load| !self.is_noreply && link.has_sent_to(load.end));
        if is_all_sent {
            if self.is_noreply && self.server.dialect() == Some(Dialect::Meta) {
                for request in self.requests {
                    link.pending.note(request);
                }
            }
            self.stage = Stage::Receiving;
            return Ok(());
        }
        if link.pipeline.in_flight() == 0 {
            return Err(Stop::WouldWait.into());
        }
        // The peer does not take more: perhaps it waits for us to read.
        match link.receive(1, self.deadline, Patience::None, Instant::now()) {
            Ok(()) => Ok(()),
            Err(stop) => Err(stop.into()),
        }
    }

    pub(super) fn receive(&mut self, patience: Patience) -> Result<Option<State>, Trouble> {
        let link = self
            .lease
            .as_mut()
            .and_then(Lease::link)
            .ok_or(Error::Closed)?;
        if self.is_noreply && link.awaited.len() <= AWAITED_MAX {
            self.finish();
            return Ok(Some(State::Finished));
        }
        match link.pipeline.poll() {
            Ok(Progress::Whole(Answer::Quiet(troubles, refusals))) if !link.awaited.is_empty() => {
                link.acknowledged(troubles.len() + refusals.len());
                Ok(None)
            }
            Ok(Progress::Whole(answer)) => Ok(Some(State::Reply(answer))),
            Ok(Progress::Idle) => {
                self.finish();
                Ok(Some(State::Finished))
            }
            Ok(Progress::Incomplete(missing)) => {
                if self.hands_out_bodies
                    && missing >= DIRECT_BYTES_MIN
                    && let Some(found) = link.pipeline.partial()
                {
                    return Ok(Some(State::Body(found)));
                }
                // The first wait begins when the call did; later ones ask the clock.
                let now = if link.pipeline.is_untouched() {
                    self.connected
                } else {
                    Instant::now()
                };
                match link.receive(missing, self.deadline, patience, now) {
                    Ok(()) => Ok(None),
                    Err(Stop::WouldWait) if patience == Patience::UntilDeadline => {
                        Err(Stop::WouldWait.into())
                    }
                    Err(stop) => Err(stop.into()),
                }
            }
            Err(fault) => Err(self.protocol(fault).into()),
        }
    }

    /// Receives the large value of [`State::Body`] into `target`, which is as long as the value.
    ///
    /// False: a signal came; look at it and call again.
    pub fn receive_body(&mut self, target: &mut [u8]) -> Result<bool, Error> {
        if !self.process.is_current() {
            return Err(self.error(Phase::Read, "the process was forked amid the call".into()));
        }
        let deadline = self.deadline;
        let Some(link) = self.lease.as_mut().and_then(Lease::link) else {
            return Err(Error::Closed);
        };
        let mut have = match self.body_left {
            Some((_, have)) => have,
            None => match link.pipeline.partial() {
                Some(found) => {
                    let have = link.pipeline.take_partial(target);
                    self.body_left = Some((found, have));
                    have
                }
                None => return Ok(true),
            },
        };
        while let Some(rest) = target.get_mut(have..).filter(|rest| !rest.is_empty()) {
            let received = match link.receive_into(rest, deadline) {
                // The socket's own time-out ended early, or none could be set for so short a time.
                Err(Stop::WouldWait) => {
                    let mut fds = [PollFd::from_borrowed_fd(link.fd(), PollFlags::IN)];
                    wait(&mut fds, deadline).map(|()| 0)
                }
                received => received,
            };
            match received {
                Ok(bytes) => have += bytes,
                Err(Stop::Interrupted) => {
                    if let Some((_, done)) = &mut self.body_left {
                        *done = have;
                    }
                    return Ok(false);
                }
                Err(stop) => {
                    self.stopped(stop)?;
                    return Err(Error::Closed);
                }
            }
        }
        self.body_left = None;
        self.took_body = true;
        Ok(true)
    }
}
