//! Buffers that a worker lends to the connection it serves, and how many bytes are received into them at a time.

use std::time::Instant;

use super::run_clock::RunClock;
use crate::net::stream::Stream;
use crate::shared::connection_info::CloseReason;
use crate::shared::counters::Counters;
use crate::shared::sizes::{INPUT_BYTES, RECV_BYTES};

/// Bytes received in the same call after a large value: enough for the line of the next command, and little to copy
/// if the next value follows.
pub(super) const RECV_BYTES_AFTER_UPLOAD: usize = 2 << 10;

/// Bytes received at a time from a connection before its login: a line and a value, or a packet, of the maximum.
pub(super) const RECV_BYTES_LOGIN: usize = 2 << 10;

/// Bytes received from a connection that is read ahead of serving others.
pub(crate) const READ_AHEAD_BYTES: usize = 4 << 10;

/// The source of the input that a connection is served.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InputSource<'h> {
    /// Input kept from earlier calls.
    PendingInput,
    /// The socket, after the pending input.
    Socket,
    /// Input that was read ahead; if it is [`READ_AHEAD_BYTES`] long the socket may have more.
    ReadAhead(&'h [u8]),
}

impl<'h> InputSource<'h> {
    /// The read-ahead input, if the socket had no more.
    pub(super) fn whole_read_ahead(self) -> Option<&'h [u8]> {
        match self {
            InputSource::ReadAhead(input) if input.len() < READ_AHEAD_BYTES => Some(input),
            _ => None,
        }
    }
}

/// Buffers that a worker lends to the connection it serves.
pub(crate) struct Buffers {
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    /// The time of the present run.
    pub(crate) run_clock: RunClock,
}

/// A rendering buffer that grew beyond this, for one long reply, is freed after it.
const OUTPUT_BYTES_KEPT_MAX: usize = 512 << 10;

impl Buffers {
    /// Returns the rendering buffer.
    pub(super) fn return_output_buffer(&mut self, output: Vec<u8>) {
        self.output = if output.capacity() > OUTPUT_BYTES_KEPT_MAX { Vec::new() } else { output };
    }

    pub(crate) fn new() -> Buffers {
        let run_clock = RunClock::new(Instant::now(), false, false);
        Buffers { input: vec![0; INPUT_BYTES], output: Vec::new(), run_clock }
    }

    /// Copies read-ahead input, and receives more after it if there is more.
    pub(super) fn receive_after_read_ahead(
        &mut self,
        input: &[u8],
        stream: &mut Stream,
        counters: &Counters,
    ) -> Result<ReceivedInput, CloseReason> {
        let Some((target, tail)) = self.input.split_at_mut_checked(input.len()) else {
            return Err(CloseReason::Error);
        };
        target.copy_from_slice(input);
        let tail = tail.get_mut(..RECV_BYTES).unwrap_or_default();
        // Input before the end of the stream is served first; the socket reports its end again.
        let received_after = stream.receive(tail, counters).unwrap_or(None);
        Ok(ReceivedInput {
            filled_bytes: input.len() + received_after.unwrap_or(0),
            is_full: received_after == Some(RECV_BYTES),
        })
    }

    /// Consumes the first bytes that were peeked; false if the socket no longer has them.
    pub(super) fn consume(
        &mut self,
        mut bytes_left: usize,
        stream: &mut Stream,
        counters: &Counters,
    ) -> bool {
        while bytes_left > 0 {
            let target = self.input.get_mut(..bytes_left).unwrap_or_default();
            match stream.receive(target, counters) {
                Ok(Some(received_bytes)) => bytes_left = bytes_left.saturating_sub(received_bytes),
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }
}

/// How much input was received.
pub(super) struct ReceivedInput {
    pub(super) filled_bytes: usize,
    /// Whether the socket filled the whole buffer, so that it may have more.
    pub(super) is_full: bool,
}

impl ReceivedInput {
    /// This many bytes, and the socket had no more.
    pub(super) fn not_full(filled_bytes: usize) -> ReceivedInput {
        ReceivedInput { filled_bytes, is_full: false }
    }
}
