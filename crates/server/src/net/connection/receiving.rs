//! Receiving: commands into the worker's buffer, a large value straight to where it is to lie.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::buffers::{Buffers, RECV_BYTES_UPLOADER, Received};
use super::pending::Pending;
use super::{Connection, Verdict};
use crate::session::context::Context;
use crate::shared::counters::Counters;
use crate::shared::info::Reason;
use crate::shared::peer_memory::Pressure;
use crate::shared::sizes::{INPUT_BYTES, RECV_BYTES};

impl Connection {
    /// Receives behind what is kept.
    pub(super) fn receive_commands(
        &mut self,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> Result<Received, Verdict> {
        let filled = self.take_pending(buffers);
        let most = match filled {
            0 if std::mem::take(&mut self.is_uploader) => RECV_BYTES_UPLOADER,
            0 => RECV_BYTES,
            _ if context.pressure == Pressure::High => RECV_BYTES_UPLOADER,
            _ => INPUT_BYTES,
        };
        let room = buffers.input.get_mut(filled..).unwrap_or_default();
        let bytes = room.len().min(most);
        if bytes == 0 {
            // Full of commands that wait to be served: these first.
            return Ok(Received::less(filled));
        }
        match receive(
            &self.socket,
            room.get_mut(..bytes).unwrap_or_default(),
            context.counters,
        ) {
            Ok(Some(received)) => Ok(Received {
                filled: filled + received,
                is_full: received == bytes,
            }),
            Ok(None) => {
                let input = buffers.input.get(..filled).unwrap_or_default();
                self.pending = Pending::keep(input, &context.shared.memory);
                Err(Verdict::Wait)
            }
            Err(reason) => Err(Verdict::Close(reason)),
        }
    }

    /// Receives the rest of a command behind what is there of it, and moves it to `kept` once it is whole.
    pub(super) fn receive_in_place(
        &mut self,
        context: &Context<'_>,
        kept: &mut Pending,
    ) -> Result<Received, Verdict> {
        let Some(room) = self.pending.room() else {
            return Err(Verdict::Wait);
        };
        context.counters.recv_calls.bump();
        let received = rustix::net::recv(&self.socket, spare_capacity(room), RecvFlags::empty());
        match received.map(|(bytes, _)| bytes) {
            Ok(0) => return Err(Verdict::Close(Reason::Normal)),
            Ok(bytes) => context.counters.bytes_read.add(bytes as u64),
            Err(Errno::AGAIN | Errno::INTR) => return Err(Verdict::Wait),
            Err(_) => return Err(Verdict::Close(Reason::Error)),
        }
        if self.pending.lacks_bytes() {
            return Err(Verdict::Wait);
        }
        *kept = std::mem::take(&mut self.pending);
        Ok(Received::less(kept.len()))
    }

    /// Puts what was read ahead into the buffer, and receives behind it what more there may be.
    pub(super) fn receive_behind(
        &self,
        input: &[u8],
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> Result<Received, Verdict> {
        let Some((room, behind)) = buffers.input.split_at_mut_checked(input.len()) else {
            return Err(Verdict::Close(Reason::Error));
        };
        room.copy_from_slice(input);
        let behind = behind.get_mut(..RECV_BYTES).unwrap_or_default();
        // What came before an end is served first; the socket tells of its end again.
        let more = receive(&self.socket, behind, context.counters).unwrap_or(None);
        Ok(Received {
            filled: input.len() + more.unwrap_or(0),
            is_full: more == Some(RECV_BYTES),
        })
    }

    /// Receives an unfinished large value where it is to lie, and what follows it into the buffer:
    /// its ending and the next commands need no call of their own. Returns how much followed.
    pub(super) fn receive_upload(
        &mut self,
        budget: &mut usize,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> Result<Received, Verdict> {
        self.is_uploader = true;
        while let Some(reservation) = self.session.upload_mut() {
            let missing = reservation.missing_bytes() as usize;
            let space = reservation.space(context.store, context.now);
            if space.is_empty() {
                // No room: what comes goes the other way, to the session, which says what now.
                return self.receive_commands(context, buffers);
            }
            // A budget that replies used up still leaves a little: receiving nothing would read as the end.
            let bytes = space.len().min((*budget).max(RECV_BYTES_UPLOADER));
            let space = space.get_mut(..bytes).unwrap_or_default();
            let room = space.len();
            let behind = match context.pressure {
                _ if room != missing => 0,
                // What belongs to the next command stays in the socket.
                Pressure::High => 2,
                _ => RECV_BYTES_UPLOADER,
            };
            let behind = buffers.input.get_mut(..behind).unwrap_or_default();
            let received =
                receive_two(&self.socket, space, behind, context).map_err(Verdict::Close)?;
            let Some(received) = received else {
                return Err(Verdict::Wait);
            };
            reservation.advance(received.min(room));
            *budget = budget.saturating_sub(received);
            if received > room {
                return Ok(Received::less(received - room));
            }
            // The socket had no more, or others are to be served.
            if received < room || *budget == 0 {
                break;
            }
        }
        Ok(Received::less(0))
    }
}

/// Receives into `first` and then into `second`, as [`receive`] does.
fn receive_two(
    socket: &OwnedFd,
    first: &mut [u8],
    second: &mut [u8],
    context: &Context<'_>,
) -> Result<Option<usize>, Reason> {
    context.counters.recv_calls.bump();
    let mut rooms = [IoSliceMut::new(first), IoSliceMut::new(second)];
    match rustix::io::readv(socket, &mut rooms) {
        Ok(0) => Err(Reason::Normal),
        Ok(bytes) => {
            context.counters.bytes_read.add(bytes as u64);
            Ok(Some(bytes))
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(_) => Err(Reason::Error),
    }
}

/// As [`receive`], but what is received stays in the socket.
pub(super) fn peek(
    socket: &OwnedFd,
    room: &mut [u8],
    counters: &Counters,
) -> Result<Option<usize>, Reason> {
    counters.recv_calls.bump();
    match rustix::net::recv(socket, &mut *room, RecvFlags::PEEK) {
        Ok((0, _)) => Err(Reason::Normal),
        Ok((bytes, _)) => Ok(Some(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(_) => Err(Reason::Error),
    }
}

/// Receives into `room`: `None` when nothing is there, an error when the connection is over.
pub(crate) fn receive(
    socket: &OwnedFd,
    room: &mut [u8],
    counters: &Counters,
) -> Result<Option<usize>, Reason> {
    counters.recv_calls.bump();
    match rustix::net::recv(socket, &mut *room, RecvFlags::empty()) {
        Ok((0, _)) => Err(Reason::Normal),
        Ok((bytes, _)) => {
            counters.bytes_read.add(bytes as u64);
            Ok(Some(bytes))
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(_) => Err(Reason::Error),
    }
}
