//! What a connection owes: quiet writes that the server has not answered for yet.
//!
//! A connection that owes may wait in the pool; whoever takes it up reads the answers that have come.

use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::Link;
use crate::pipeline::{Answer, Expect, Progress};
use crate::pool::Server;
use crate::quiet::Debt;

impl Link {
    /// Whether quiet writes were not answered for yet.
    pub(crate) fn has_unanswered(&self) -> bool {
        !self.unasked.is_empty() || !self.owed.is_empty()
    }

    /// Gets ready to note quiet writes that are about to be written.
    pub(crate) fn begin_debt(&mut self, server: &Arc<Server>) {
        if self.unasked.is_empty() {
            self.unasked = Debt::new(server, self.opaque);
        }
    }

    /// Asks the server how the quiet writes of `debt`, which were written before, have gone.
    pub(crate) fn ask_for(&mut self, debt: Debt) {
        let (first, count) = (debt.first, debt.count);
        self.out.extend_from_slice(b"mn\r\n");
        self.pipeline.expect(Expect::Quiet { first, count });
        self.owed.push_back(debt);
    }

    /// Notes that the server has answered for the oldest debt, and refused so many.
    pub(crate) fn paid(&mut self, refused: usize) {
        self.pipeline.release();
        if let Some(debt) = self.owed.pop_front() {
            debt.pay(refused as u64);
        }
    }

    /// Forgets what is owed to another process.
    pub(crate) fn forget_debts(&mut self) {
        std::mem::take(&mut self.unasked).forget();
        self.owed.drain(..).for_each(Debt::forget);
    }

    /// Whether every request has its reply and not one byte more has come, but for what is owed.
    pub(crate) fn is_at_rest(&self) -> bool {
        if self.owed.is_empty() {
            self.pipeline.is_clean()
        } else {
            self.pipeline.is_sound() && self.pipeline.in_flight() == self.owed.len()
        }
    }

    /// Whether an idle connection is still good: not closed by the peer, and nothing came unasked.
    ///
    /// What was owed is taken. Error lines of quiet writes that no `mn` was sent behind are left to the next
    /// call.
    pub(crate) fn is_quiet(&mut self) -> bool {
        if !self.owed.is_empty() && !self.take_paid() {
            return false;
        }
        if self.has_unanswered() {
            return true;
        }
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        matches!(
            poll(
                &mut fds,
                Some(&Timespec {
                    tv_sec: 0,
                    tv_nsec: 0
                })
            ),
            Ok(0)
        )
    }

    /// Takes the answers that have come for quiet writes, without waiting; false: the connection is lost.
    fn take_paid(&mut self) -> bool {
        loop {
            match self.pipeline.poll() {
                Ok(Progress::Whole(Answer::Quiet(troubles, refusals))) => {
                    self.paid(troubles.len() + refusals.len());
                    if self.owed.is_empty() {
                        return true;
                    }
                }
                Ok(Progress::Incomplete(missing)) => {
                    let room = self.pipeline.space(missing);
                    match recv(&self.fd, room, RecvFlags::DONTWAIT) {
                        Ok((_, 0)) => return false,
                        Ok((_, bytes)) => self.pipeline.received(bytes),
                        Err(error) => return error == Errno::AGAIN,
                    }
                }
                _ => return false,
            }
        }
    }
}
