//! The input of a connection: commands are received into the worker's buffer, a large value directly into the store's
//! memory, and what cannot be parsed yet is kept.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::NextStep;
use super::buffers::{Buffers, RECV_BYTES_AFTER_UPLOAD, RECV_BYTES_LOGIN, ReceivedInput};
use super::pending::PendingInput;
use crate::net::stream::Stream;
use crate::session::Session;
use crate::session::context::Context;
use crate::shared::connection_info::CloseReason;
use crate::shared::counters::Counters;
use crate::shared::peer_memory::{Charge, PeerMemory, Pressure};
use crate::shared::sizes::{INPUT_BYTES, RECV_BYTES};

/// The input of a connection.
#[derive(Default)]
pub(super) struct ConnectionInput {
    /// Input that cannot be parsed yet.
    pending: PendingInput,
    /// Whether a large value was received since the last command.
    has_just_uploaded: bool,
}

impl ConnectionInput {
    /// The unparsed input of a previous process.
    pub(super) fn inherit(input: &[u8], peer_memory: &Arc<PeerMemory>) -> ConnectionInput {
        let pending = PendingInput::copy_of(input, peer_memory);
        ConnectionInput { pending, has_just_uploaded: false }
    }

    /// Input that cannot be parsed yet.
    pub(super) fn pending(&self) -> &PendingInput {
        &self.pending
    }

    pub(super) fn take_pending(&mut self) -> PendingInput {
        std::mem::take(&mut self.pending)
    }

    /// Returns what was taken, of which nothing was parsed.
    pub(super) fn return_pending(&mut self, pending: PendingInput) {
        self.pending = pending;
    }

    /// Whether a large value was received since the last command.
    pub(super) fn has_just_uploaded(&self) -> bool {
        self.has_just_uploaded
    }

    /// Keeps `input`, which was received and not executed; false if the connection may not keep that much.
    pub(super) fn keep(&mut self, input: &[u8], context: &Context<'_>) -> bool {
        let peer_memory = &context.shared.peer_memory;
        let may_keep = input.is_empty()
            || !context.refuses_incomplete.get()
            || peer_memory.try_grant_input(input.len(), context.is_first_waiter);
        if may_keep {
            self.pending = PendingInput::copy_of(input, peer_memory);
        } else {
            context.counters.stalled_closed.bump();
        }
        may_keep
    }

    /// Reserves memory for the rest of a command of `command_bytes`, 0 if its length is unknown. If that has to be granted
    /// and is not, returns how much it is and reserves nothing.
    pub(super) fn reserve(
        &mut self,
        command_bytes: usize,
        context: &Context<'_>,
    ) -> Result<(), usize> {
        let needed_bytes = command_bytes.saturating_sub(self.pending.charged_bytes());
        let is_granted = context.pressure != Pressure::High
            || context.shared.peer_memory.try_grant(needed_bytes, context.is_first_waiter);
        if needed_bytes > 0 && !is_granted {
            return Err(needed_bytes);
        }
        self.pending.grow(command_bytes);
        Ok(())
    }

    /// Collects a command of `command_bytes`, all of which is still in the socket, in memory charged to `charge`.
    pub(super) fn collect(&mut self, command_bytes: usize, charge: Charge) {
        self.pending = PendingInput::with_capacity(command_bytes, charge);
    }

    /// Receives commands into the buffer, after the pending input: little before a login, and what completes a command
    /// if it is known that `missing_bytes` do.
    pub(super) fn receive_commands(
        &mut self,
        stream: &mut Stream,
        (awaits_login, missing_bytes): (bool, usize),
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> Result<ReceivedInput, NextStep> {
        let filled_bytes = self.move_pending(buffers);
        let receive_bytes_max = match filled_bytes {
            _ if awaits_login => RECV_BYTES_LOGIN,
            0 if std::mem::take(&mut self.has_just_uploaded) => RECV_BYTES_AFTER_UPLOAD,
            0 if stream.is_tls() && context.pressure == Pressure::High => INPUT_BYTES,
            0 => RECV_BYTES,
            _ if stream.is_tls() => INPUT_BYTES,
            // What is in the socket completes the command.
            _ if missing_bytes > 0 => missing_bytes,
            _ if context.pressure == Pressure::High => RECV_BYTES_AFTER_UPLOAD,
            _ => INPUT_BYTES,
        };
        let target = buffers.input.get_mut(filled_bytes..).unwrap_or_default();
        let target_bytes = target.len().min(receive_bytes_max);
        if target_bytes == 0 {
            // The buffer is full of commands: these are served first.
            return Ok(ReceivedInput::not_full(filled_bytes));
        }
        let target = target.get_mut(..target_bytes).unwrap_or_default();
        match stream.receive(target, context.counters) {
            Ok(Some(received_bytes)) => Ok(ReceivedInput {
                filled_bytes: filled_bytes + received_bytes,
                is_full: received_bytes == target_bytes,
            }),
            Ok(None) => {
                let input = buffers.input.get(..filled_bytes).unwrap_or_default();
                self.pending = PendingInput::copy_of(input, &context.shared.peer_memory);
                Err(NextStep::Wait)
            }
            Err(reason) => Err(NextStep::Close(reason)),
        }
    }

    /// Receives the rest of a command after its pending beginning, and moves it to `taken_input` once it is complete.
    pub(super) fn receive_rest_of_command(
        &mut self,
        stream: &mut Stream,
        context: &Context<'_>,
        taken_input: &mut PendingInput,
    ) -> Result<ReceivedInput, NextStep> {
        let Some(target) = self.pending.buffer_mut() else {
            return Err(NextStep::Wait);
        };
        match stream.receive_append(target, context.counters) {
            Ok(Some(_)) => {}
            Ok(None) => return Err(NextStep::Wait),
            Err(reason) => return Err(NextStep::Close(reason)),
        }
        if self.pending.is_incomplete() {
            return Err(NextStep::Wait);
        }
        *taken_input = std::mem::take(&mut self.pending);
        Ok(ReceivedInput::not_full(taken_input.len()))
    }

    /// Receives an incomplete large value into its memory in the store, and the bytes after it into the buffer: its
    /// line ending and the next commands need no call of their own. Returns how many followed.
    pub(super) fn receive_upload(
        &mut self,
        stream: &mut Stream,
        session: &mut Session,
        quota_left: &mut usize,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> Result<ReceivedInput, NextStep> {
        self.has_just_uploaded = true;
        while let Some(reservation) = session.upload_mut() {
            let missing_bytes = reservation.missing_bytes() as usize;
            let space = reservation.space(context.store_worker, context.now);
            if space.is_empty() {
                // No memory in the store: the bytes go to the session, which handles that.
                return self.receive_commands(stream, (false, 0), context, buffers);
            }
            // If replies used up the quota, a few bytes are still received: receiving 0 bytes would look like the
            // end of the stream.
            let space_bytes_max = space.len().min((*quota_left).max(RECV_BYTES_AFTER_UPLOAD));
            let space = space.get_mut(..space_bytes_max).unwrap_or_default();
            let target_bytes = space.len();
            let tail_bytes = match context.pressure {
                _ if target_bytes != missing_bytes => 0,
                // Bytes of the next command stay in the socket.
                Pressure::High => 2,
                _ => RECV_BYTES_AFTER_UPLOAD,
            };
            let tail = buffers.input.get_mut(..tail_bytes).unwrap_or_default();
            let received_bytes =
                stream.receive_vectored(space, tail, context.counters).map_err(NextStep::Close)?;
            let Some(received_bytes) = received_bytes else {
                return Err(NextStep::Wait);
            };
            reservation.advance(received_bytes.min(target_bytes));
            *quota_left = quota_left.saturating_sub(received_bytes);
            if received_bytes > target_bytes {
                return Ok(ReceivedInput::not_full(received_bytes - target_bytes));
            }
            // The socket had no more, or others have to be served.
            if received_bytes < target_bytes || *quota_left == 0 {
                break;
            }
        }
        Ok(ReceivedInput::not_full(0))
    }

    /// Moves the pending input to the start of the buffer and returns its length in bytes.
    fn move_pending(&mut self, buffers: &mut Buffers) -> usize {
        let pending = self.take_pending();
        let Some(input) = pending.bytes() else {
            return 0;
        };
        match buffers.input.get_mut(..input.len()) {
            Some(target) => target.copy_from_slice(input),
            None => return 0,
        }
        input.len()
    }
}

/// Like [`crate::net::stream::Stream::receive`], but the bytes stay in the socket, which has no TLS.
pub(super) fn peek(
    socket: &OwnedFd,
    target: &mut [u8],
    counters: &Counters,
) -> Result<Option<usize>, CloseReason> {
    counters.recv_calls.bump();
    match rustix::net::recv(socket, &mut *target, RecvFlags::PEEK) {
        Ok((0, _)) => Err(CloseReason::Normal),
        Ok((peeked_bytes, _)) => Ok(Some(peeked_bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(_) => Err(CloseReason::Error),
    }
}
