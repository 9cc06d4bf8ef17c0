//! How a call comes by its connection: from the pool, or made and asked once what it speaks.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::{Call, Stage, Trouble};
use crate::error::{Error, Phase};
use crate::pipeline::{Answer, Expect, Progress};
use crate::pool::{Checkout, Lease};
use crate::quiet::TookTooLong;
use crate::request::Dialect;
use crate::transport::blocking::{Link, Patience, Stop};
use crate::transport::connect::{self, ConnectError};
use crate::transport::socket::Socket;
#[cfg(feature = "tokio")]
use crate::transport::socket::Watched;

impl Call<'_> {
    pub(super) fn start(&mut self) -> Result<(), Trouble> {
        if self.server.health.is_down() {
            return Err(self
                .error(Phase::Connect, "it is down, a probe asks it".into())
                .into());
        }
        if self.was_retried {
            // Its place in the pool is still held: what failed is replaced.
            return self.connect();
        }
        // Before a connection is chosen, so that nobody chooses another while this one is about to send them.
        self.load = match self.server.take_gathered(self.deadline) {
            Ok(load) => load,
            Err(TookTooLong) => {
                return Err(Error::Deadline(self.context(Phase::Wait, true)).into());
            }
        };
        self.took_load = self.load.is_some();
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

    pub(super) fn connect(&mut self) -> Result<(), Trouble> {
        self.is_fresh = true;
        let socket = match self.dial() {
            Ok(Some(socket)) => socket,
            Ok(None) => {
                self.stage = Stage::Resolving;
                return Err(Stop::WouldWait.into());
            }
            Err(ConnectError::Deadline) => {
                return Err(Error::Deadline(self.context(Phase::Connect, true)).into());
            }
            Err(ConnectError::Failed(why)) => return Err(self.cannot_connect(why).into()),
        };
        let link = Link::new(socket, self.server.options.value_bytes_max, Instant::now());
        if let Some(lease) = &mut self.lease {
            lease.replace(Some(Box::new(link)));
        }
        self.stage = Stage::Connecting;
        Err(Stop::WouldWait.into())
    }

    /// Begins to connect; `None`: the runtime looks the server's name up first.
    fn dial(&mut self) -> Result<Option<Socket>, ConnectError> {
        #[cfg(feature = "tokio")]
        if let super::Driver::Runtime(found) = &mut self.driver {
            let place = &self.server.place;
            let fd = match (place.name(), found.take()) {
                (None, _) => connect::begin(place, self.deadline)?,
                (Some(_), Some(found)) => {
                    connect::begin_first(&found.map_err(ConnectError::Failed)?)?
                }
                (Some(_), None) => return Ok(None),
            };
            let is_unix = matches!(place, crate::address::Place::Unix(_));
            let watched =
                Watched::new(fd, is_unix).map_err(|e| ConnectError::Failed(e.to_string()))?;
            return Ok(Some(Socket::Watched(watched)));
        }
        connect::begin(&self.server.place, self.deadline).map(|fd| Some(fd.into()))
    }

    pub(super) fn finish_connecting(&mut self) -> Result<(), Trouble> {
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
    pub(super) fn probe(&mut self) -> Result<(), Trouble> {
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
}
