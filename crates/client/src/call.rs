//! One call to one server: a state machine from checkout to the last reply, under one deadline.
//!
//! It can be driven alone, where its waits are plain receives, or beside others, where one `poll`
//! waits for all. Whoever drops a call before its end closes the connection, for [`Lease`] does.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::doubts::{OwnedKey, keys_of, write_removals};
use crate::error::{Context, Error, Phase};
use crate::health::PATIENCE;
use crate::pipeline::{Answer, Expect, Found, Pipeline, Progress};
use crate::pool::{Checkout, Lease, Server};
use crate::request::{Dialect, Request};
use crate::transport::blocking::{Link, Patience, Stop, wait};
use crate::transport::connect::{self, ConnectError};

/// A value at least this long is handed out while it is still arriving, to be received in place.
const DIRECT_BYTES_MIN: usize = 16 << 10;

/// Quiet writes after which a connection is asked whether all went well.
///
/// Their error lines, should each have one, fit the socket's receive buffer.
const UNANSWERED_MAX: u32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Start,
    Connecting,
    Probing,
    Sending,
    Receiving,
    Done,
}

/// How far a driven call is.
#[derive(Debug, PartialEq, Eq)]
pub enum State {
    /// The next reply is complete; read it, then [`Call::next`].
    Reply(Answer),
    /// A large value is arriving: receive it with [`Call::receive_body`].
    Body(Found),
    /// All replies were read.
    Finished,
    /// A signal came: look at it and go on.
    Interrupted,
    /// Others should be waited for too.
    Waiting,
}

/// One or more requests to one server, and their replies.
#[derive(Debug)]
pub struct Call<'a> {
    server: Arc<Server>,
    requests: &'a [Request<'a>],
    lease: Option<Lease>,
    stage: Stage,
    deadline: Instant,
    started: Instant,
    connected: Instant,
    is_fresh: bool,
    was_retried: bool,
    hands_out_bodies: bool,
    finished: Instant,
    arrived: Option<Instant>,
    /// Replies that belong to quiet writes before this call.
    skip: usize,
    body_left: Option<(Found, usize)>,
    /// The server closed on `mn`: classic text is tried, and believed once it is answered.
    presumes_classic: bool,
    /// A reply that [`receive_all`] leaves for the caller to read.
    held: Option<Answer>,
    /// Keys of earlier writes that this call removes first.
    doubts: Vec<OwnedKey>,
    /// A write has left, at least in part, and was not answered yet.
    is_in_doubt: bool,
}

impl<'a> Call<'a> {
    /// A call that has not begun. `now` is when its time began to run.
    pub fn new(
        server: Arc<Server>,
        requests: &'a [Request<'a>],
        now: Instant,
        deadline: Instant,
    ) -> Self {
        Self {
            server,
            requests,
            lease: None,
            stage: Stage::Start,
            deadline,
            started: now,
            connected: now,
            is_fresh: false,
            was_retried: false,
            hands_out_bodies: false,
            finished: now,
            arrived: None,
            skip: 0,
            body_left: None,
            presumes_classic: false,
            held: None,
            doubts: Vec::new(),
            is_in_doubt: false,
        }
    }

    /// The server that is asked.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The pipeline with the current reply, once there is one.
    pub fn pipeline(&self) -> Option<&Pipeline> {
        self.lease.as_ref()?.link_ref().map(|link| &link.pipeline)
    }

    /// How long the call waited for its connection.
    pub fn waited(&self) -> Duration {
        self.connected.saturating_duration_since(self.started)
    }

    /// How long network and server took, once the call is finished.
    pub fn wire_time(&self) -> Duration {
        let arrived = self.arrived.unwrap_or(self.finished);
        arrived.saturating_duration_since(self.connected)
    }

    /// How long the caller worked on the reply between [`Self::note_arrival`] and the end.
    pub fn reading_time(&self) -> Duration {
        let arrived = self.arrived.unwrap_or(self.finished);
        self.finished.saturating_duration_since(arrived)
    }

    /// Notes that the reply is here and that what follows is the caller's own work.
    pub fn note_arrival(&mut self) {
        self.arrived = Some(Instant::now());
    }

    /// Asks for [`State::Body`]: a large value is then handed out while it arrives. For one `get`.
    pub fn hand_out_bodies(&mut self) {
        self.hands_out_bodies = true;
    }

    /// When the call's time began to run.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Whether everything was sent and read.
    pub fn is_finished(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Goes on alone until there is something for the caller.
    pub fn run(&mut self) -> Result<State, Error> {
        loop {
            match self.advance(Patience::UntilDeadline)? {
                State::Waiting => {
                    let Some((fd, flags)) = self.wants() else {
                        continue;
                    };
                    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
                    match wait(&mut fds, self.deadline) {
                        Ok(()) => {}
                        Err(Stop::Interrupted) => return Ok(State::Interrupted),
                        Err(stop) => self.stopped(stop)?,
                    }
                }
                state => return Ok(state),
            }
        }
    }

    /// What the call waits for.
    fn wants(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let link = self.lease.as_ref()?.link_ref()?;
        let flags = match self.stage {
            Stage::Connecting => PollFlags::OUT,
            // A server that is not read from stops reading: replies are taken while sending.
            Stage::Sending => PollFlags::OUT | PollFlags::IN,
            _ => PollFlags::IN,
        };
        Some((link.fd(), flags))
    }

    /// Goes on as far as it can.
    fn advance(&mut self, patience: Patience) -> Result<State, Error> {
        loop {
            let moved = match self.stage {
                Stage::Start => self.start(),
                Stage::Connecting => self.finish_connecting(),
                Stage::Probing => self.probe(),
                Stage::Sending => self.send(),
                Stage::Receiving => match self.receive(patience) {
                    Ok(Some(state)) => return Ok(state),
                    Ok(None) => Ok(()),
                    Err(stop) => Err(stop),
                },
                Stage::Done => return Ok(State::Finished),
            };
            match moved {
                Ok(()) => {}
                Err(Trouble::Stop(Stop::Interrupted)) => return Ok(State::Interrupted),
                Err(Trouble::Stop(Stop::WouldWait)) => return Ok(State::Waiting),
                Err(Trouble::Stop(stop)) => self.stopped(stop)?,
                Err(Trouble::Error(error)) => {
                    self.lease = None;
                    return Err(error);
                }
            }
        }
    }

    fn start(&mut self) -> Result<(), Trouble> {
        if self.server.health.is_down() {
            return Err(self
                .error(Phase::Connect, "it is down, a probe asks it".into())
                .into());
        }
        if self.was_retried {
            // Its place in the pool is still held: what failed is replaced.
            return self.connect();
        }
        match self.server.checkout(self.started, self.deadline) {
            Checkout::Used(link) => {
                self.lease = Some(Lease::new(self.server.clone(), Some(link)));
                self.is_fresh = false;
                self.write()
            }
            Checkout::Free => {
                self.lease = Some(Lease::new(self.server.clone(), None));
                self.connect()
            }
            Checkout::Full => Err(Error::Deadline(self.context(Phase::Wait, true)).into()),
        }
    }

    fn connect(&mut self) -> Result<(), Trouble> {
        self.is_fresh = true;
        let fd = match connect::begin(&self.server.place, self.deadline) {
            Ok(fd) => fd,
            Err(ConnectError::Deadline) => {
                return Err(Error::Deadline(self.context(Phase::Connect, true)).into());
            }
            Err(ConnectError::Failed(why)) => return Err(self.cannot_connect(why).into()),
        };
        let link = Link::new(fd, self.server.options.value_bytes_max, Instant::now());
        if let Some(lease) = &mut self.lease {
            lease.replace(Some(Box::new(link)));
        }
        self.stage = Stage::Connecting;
        Err(Stop::WouldWait.into())
    }

    fn finish_connecting(&mut self) -> Result<(), Trouble> {
        let link = self
            .lease
            .as_mut()
            .and_then(Lease::link)
            .ok_or(Error::Closed)?;
        let mut fds = [PollFd::from_borrowed_fd(link.fd(), PollFlags::OUT)];
        let at_once = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match rustix::event::poll(&mut fds, Some(&at_once)) {
            Ok(0) => return Err(Stop::WouldWait.into()),
            Ok(_) => {}
            Err(error) => return Err(Stop::from(error).into()),
        }
        if let Err(error) = connect::finish(link.fd()) {
            return Err(self.cannot_connect(error.to_string()).into());
        }
        if self.server.dialect().is_some() || self.presumes_classic {
            return self.write();
        }
        link.begin();
        link.out.extend_from_slice(b"mn\r\n");
        link.pipeline.expect(Expect::Probe);
        self.stage = Stage::Probing;
        Ok(())
    }

    /// Finds out, once per server, whether it speaks meta: `mn` costs one round trip.
    fn probe(&mut self) -> Result<(), Trouble> {
        let link = self
            .lease
            .as_mut()
            .and_then(Lease::link)
            .ok_or(Error::Closed)?;
        if !link.send(None)? {
            return Err(Stop::WouldWait.into());
        }
        match link.pipeline.poll() {
            Ok(Progress::Whole(Answer::Probe(speaks_meta))) => {
                link.pipeline.release();
                let dialect = if speaks_meta {
                    Dialect::Meta
                } else {
                    Dialect::Classic
                };
                self.server.learn_dialect(dialect);
                self.write()
            }
            Ok(Progress::Incomplete(missing)) => {
                let now = Instant::now();
                Ok(link.receive(missing, self.deadline, Patience::None, now)?)
            }
            Ok(_) => Err(Error::Closed.into()),
            Err(fault) => Err(self.protocol(fault).into()),
        }
    }

    /// Writes the requests into the connection's output.
    fn write(&mut self) -> Result<(), Trouble> {
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
        self.skip = 0;
        if !is_noreply {
            self.doubts.append(&mut self.server.doubts.take());
        }
        if !self.doubts.is_empty() {
            let mut desk = link.desk(dialect);
            let answered = write_removals(&self.doubts, &mut desk);
            link.unanswered += answered;
        }
        if link.unanswered > 0 && (!is_noreply || link.unanswered >= UNANSWERED_MAX) {
            let (count, first) = (link.unanswered, link.opaque.wrapping_sub(link.unanswered));
            link.out.extend_from_slice(b"mn\r\n");
            link.pipeline.expect(Expect::Quiet { first, count });
            link.unanswered = 0;
            self.skip = 1;
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
        }
        if is_noreply && dialect == Dialect::Meta {
            link.unanswered += self.requests.len() as u32;
        }
        self.stage = Stage::Sending;
        Ok(())
    }

    fn send(&mut self) -> Result<(), Trouble> {
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
        self.is_in_doubt = link.has_sent();
        if is_all_sent {
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

    fn receive(&mut self, patience: Patience) -> Result<Option<State>, Trouble> {
        let link = self
            .lease
            .as_mut()
            .and_then(Lease::link)
            .ok_or(Error::Closed)?;
        match link.pipeline.poll() {
            Ok(Progress::Whole(Answer::Quiet(troubles, refusals))) if self.skip > 0 => {
                let lost = (troubles.len() + refusals.len()) as u64;
                self.server
                    .noreply_failures
                    .fetch_add(lost, Ordering::Relaxed);
                link.pipeline.release();
                self.skip -= 1;
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
            match link.receive_into(rest, deadline) {
                Ok(bytes) => have += bytes,
                Err(Stop::Interrupted) => {
                    if let Some((_, done)) = &mut self.body_left {
                        *done = have;
                    }
                    return Ok(false);
                }
                // The socket's own time-out was the shorter one: the next receive sets it anew.
                Err(Stop::WouldWait) => {}
                Err(stop) => {
                    self.stopped(stop)?;
                    return Err(Error::Closed);
                }
            }
        }
        self.body_left = None;
        Ok(true)
    }

    /// Gives up the reply that was read; when it was the last, the connection goes back.
    pub fn next(&mut self) {
        let Some(link) = self.lease.as_mut().and_then(Lease::link) else {
            return;
        };
        link.pipeline.release();
        link.replies += 1;
        if link.pipeline.in_flight() == 0 {
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.stage = Stage::Done;
        self.is_in_doubt = false;
        self.doubts.clear();
        self.server.health.good();
        if self.presumes_classic {
            self.server.learn_dialect(Dialect::Classic);
        }
        if let Some(lease) = self.lease.take() {
            self.finished = Instant::now();
            if !lease.give_back(self.finished) {
                self.server.faults.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Decides what follows a wait that brought nothing: another try on a fresh connection, or the end.
    fn stopped(&mut self, stop: Stop) -> Result<(), Error> {
        let phase = match self.stage {
            Stage::Start | Stage::Connecting | Stage::Probing => Phase::Connect,
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
            self.give_up_on_server(self.stage == Stage::Connecting);
            let why = why.map_or_else(
                || "the connection was closed".into(),
                |error: Errno| error.to_string(),
            );
            let error = Error::Unavailable(self.context(phase, retry_is_safe), why);
            self.lease = None;
            return Err(error);
        }
        if self.stage == Stage::Connecting || self.started.elapsed() >= PATIENCE {
            self.give_up_on_server(self.stage == Stage::Connecting);
        }
        let error = Error::Deadline(self.context(phase, retry_is_safe));
        self.lease = None;
        Err(error)
    }

    fn retry(&mut self) {
        self.was_retried = true;
        self.is_in_doubt = false;
        if let Some(lease) = &mut self.lease {
            lease.replace(None);
        }
        self.stage = Stage::Start;
    }

    fn give_up_on_server(&self, cannot_connect: bool) {
        let is_news = if cannot_connect {
            self.server.health.down()
        } else {
            self.server.health.bad()
        };
        if is_news {
            crate::probe::start(&self.server);
        }
    }

    fn context(&self, phase: Phase, retry_is_safe: bool) -> Context {
        Context {
            server: self.server.name.clone(),
            phase,
            retry_is_safe,
        }
    }

    fn error(&self, phase: Phase, why: String) -> Error {
        Error::Unavailable(self.context(phase, true), why)
    }

    fn cannot_connect(&self, why: String) -> Error {
        self.give_up_on_server(true);
        self.error(Phase::Connect, why)
    }

    fn protocol(&self, fault: crate::pipeline::Fault) -> Error {
        self.server.faults.fetch_add(1, Ordering::Relaxed);
        self.give_up_on_server(false);
        Error::Protocol {
            server: self.server.name.clone(),
            fault,
        }
    }
}

/// Drives calls to several servers until each has all its replies received or has failed; the
/// replies are not read yet. A call's failure is its own: the others go on.
///
/// False: a signal came; look at it and call again.
pub fn receive_all(calls: &mut [(Call<'_>, Option<Error>)]) -> bool {
    loop {
        let mut deadline = None;
        let mut is_interrupted = false;
        for (call, error) in calls.iter_mut().filter(|(_, error)| error.is_none()) {
            match call.gather() {
                Ok(State::Interrupted) => is_interrupted = true,
                Ok(State::Waiting) => deadline = Some(call.deadline),
                Ok(_) => {}
                Err(failure) => *error = Some(failure),
            }
        }
        if is_interrupted {
            return false;
        }
        let Some(deadline) = deadline else {
            return true;
        };
        let waiting = calls
            .iter()
            .filter(|(call, error)| error.is_none() && !call.has_all());
        let mut fds: Vec<_> = waiting
            .filter_map(|(call, _)| call.wants())
            .map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags))
            .collect();
        match wait(&mut fds, deadline) {
            Ok(()) => {}
            Err(Stop::Interrupted) => return false,
            Err(stop) => {
                drop(fds);
                for (call, error) in calls.iter_mut() {
                    if error.is_none() && !call.has_all() {
                        *error = call.stopped(stop).err();
                    }
                }
            }
        }
    }
}

impl Call<'_> {
    /// Goes on without waiting, until a reply is there that the caller must read.
    fn gather(&mut self) -> Result<State, Error> {
        if self.has_all() {
            return Ok(State::Finished);
        }
        let state = self.advance(Patience::None)?;
        if let State::Reply(answer) = state {
            self.held = Some(answer);
            return Ok(State::Finished);
        }
        Ok(state)
    }

    /// Whether the reply waits to be read.
    fn has_all(&self) -> bool {
        self.stage == Stage::Done || self.held.is_some()
    }

    /// The reply that [`receive_all`] waited for; its values are in [`Call::pipeline`].
    pub fn take_held(&mut self) -> Option<Answer> {
        self.held.take()
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.is_in_doubt {
            let written = self.requests.iter().flat_map(keys_of);
            self.server.doubts.add(written);
        }
        if !self.doubts.is_empty() {
            self.server.doubts.add(self.doubts.drain(..));
        }
    }
}

/// Why a step did not succeed.
#[derive(Debug)]
enum Trouble {
    Stop(Stop),
    Error(Error),
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}
