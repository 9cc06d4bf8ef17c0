//! Receiving: commands into the worker's buffer, a large value directly into the store's memory.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::buffers::{Buffers, RECV_BYTES_AFTER_UPLOAD, RECV_BYTES_LOGIN, ReceivedInput};
use super::pending::PendingInput;
use super::{Connection, NextStep};
use crate::session::context::Context;
use crate::shared::connection_info::CloseReason;
use crate::shared::counters::Counters;
use crate::shared::peer_memory::Pressure;
use crate::shared::sizes::{INPUT_BYTES, RECV_BYTES};

impl Connection {
    /// Receives commands into the buffer, after the pending input.
    pub(super) fn receive_commands(
        &mut self,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> Result<ReceivedInput, NextStep> {
        let filled_bytes = self.copy_pending_input(buffers);
        let missing_bytes = std::mem::take(&mut self.missing_bytes);
        let receive_bytes_max = match filled_bytes {
            _ if self.awaits_login() => RECV_BYTES_LOGIN,
            0 if std::mem::take(&mut self.has_just_uploaded) => RECV_BYTES_AFTER_UPLOAD,
            0 if self.stream.is_tls() && context.pressure == Pressure::High => INPUT_BYTES,
            0 => RECV_BYTES,
            _ if self.stream.is_tls() => INPUT_BYTES,
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
        match self.stream.receive(target, context.counters) {
            Ok(Some(received_bytes)) => Ok(ReceivedInput {
                filled_bytes: filled_bytes + received_bytes,
                is_full: received_bytes == target_bytes,
            }),
            Ok(None) => {
                let input = buffers.input.get(..filled_bytes).unwrap_or_default();
                self.pending_input = PendingInput::copy_of(input, &context.shared.peer_memory);
                Err(NextStep::Wait)
            }
            Err(reason) => Err(NextStep::Close(reason)),
        }
    }

    /// Receives the rest of a command after its pending beginning, and moves it to `taken_input` once it is complete.
    pub(super) fn receive_rest_of_command(
        &mut self,
        context: &Context<'_>,
        taken_input: &mut PendingInput,
    ) -> Result<ReceivedInput, NextStep> {
        let Some(target) = self.pending_input.buffer_mut() else {
            return Err(NextStep::Wait);
        };
        match self.stream.receive_append(target, context.counters) {
            Ok(Some(_)) => {}
            Ok(None) => return Err(NextStep::Wait),
            Err(reason) => return Err(NextStep::Close(reason)),
        }
        if self.pending_input.is_incomplete() {
            return Err(NextStep::Wait);
        }
        *taken_input = std::mem::take(&mut self.pending_input);
        Ok(ReceivedInput::not_full(taken_input.len()))
    }

    /// Copies the read-ahead input into the buffer, and receives more after it if there is more.
    pub(super) fn receive_after_read_ahead(
        &mut self,
        input: &[u8],
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> Result<ReceivedInput, NextStep> {
        let Some((target, tail)) = buffers.input.split_at_mut_checked(input.len()) else {
            return Err(NextStep::Close(CloseReason::Error));
        };
        target.copy_from_slice(input);
        let tail = tail.get_mut(..RECV_BYTES).unwrap_or_default();
        // Input before the end of the stream is served first; the socket reports its end again.
        let received_after = self.stream.receive(tail, context.counters).unwrap_or(None);
        Ok(ReceivedInput {
            filled_bytes: input.len() + received_after.unwrap_or(0),
            is_full: received_after == Some(RECV_BYTES),
        })
    }

    /// Receives an incomplete large value into its memory in the store, and the bytes after it into the buffer: its
    /// line ending and the next commands need no call of their own. Returns how many followed.
    pub(super) fn receive_upload(
        &mut self,
        quota_left: &mut usize,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> Result<ReceivedInput, NextStep> {
        self.has_just_uploaded = true;
        while let Some(reservation) = self.session.upload_mut() {
            let missing_bytes = reservation.missing_bytes() as usize;
            let space = reservation.space(context.store_worker, context.now);
            if space.is_empty() {
                // No memory in the store: the bytes go to the session, which handles that.
                return self.receive_commands(context, buffers);
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
            let received_bytes = self
                .stream
                .receive_vectored(space, tail, context.counters)
                .map_err(NextStep::Close)?;
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
