//! Sending a turn's output, and keeping what the socket did not take.
//!
//! What is left is copied, large values are held where they lie; either way the epoch is over when
//! the turn is. A value that can neither be held nor copied, since both shares of the memory are used up by
//! other readers, closes its reader.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;

use glasscache_store::Held;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::output::{Output, Part};
use crate::shed;
use crate::turn::Turn;

/// Pieces handed to the kernel in one call.
const PIECES_MAX: usize = 64;

/// Bytes of one value that may be copied to wait for a slow reader however much is copied already.
const COPY_BYTES_MAX: usize = 256 << 10;

/// How far a send came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    Some,
    Failed,
}

/// Output that waits for its socket.
pub(crate) struct Waiting {
    parts: VecDeque<WaitingPart>,
    /// Bytes copied, which the budget is charged for.
    copied_bytes: usize,
    /// Bytes of the first part that have left.
    sent: usize,
}

enum WaitingPart {
    Copied(Vec<u8>),
    Held(Held),
}

impl WaitingPart {
    fn pieces(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        match self {
            WaitingPart::Copied(bytes) => Box::new(std::iter::once(bytes.as_slice())),
            WaitingPart::Held(held) => Box::new(held.pieces()),
        }
    }

    fn len(&self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }
}

/// Sends `out`; `Some` is what the socket did not take.
pub(crate) fn output(
    socket: &OwnedFd,
    out: &Output<'_>,
    turn: &Turn<'_>,
) -> Result<Option<Box<Waiting>>, Errno> {
    let mut sent = 0;
    while sent < out.len() {
        let outcome = if out.is_flat() {
            send(socket, out.bytes.get(sent..).unwrap_or_default(), turn)
        } else {
            let mut pieces = Vec::with_capacity(PIECES_MAX);
            out.gather(sent, &mut pieces, PIECES_MAX);
            send_pieces(socket, &pieces, turn)
        };
        match outcome {
            Ok(bytes) => sent += bytes,
            Err(Errno::AGAIN) => return Waiting::new(out, sent, turn).map(Some),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn send(socket: &OwnedFd, bytes: &[u8], turn: &Turn<'_>) -> Result<usize, Errno> {
    turn.counters.send_calls.bump();
    let sent = rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?;
    turn.counters.bytes_written.add(sent as u64);
    Ok(sent)
}

fn send_pieces(socket: &OwnedFd, pieces: &[IoSlice<'_>], turn: &Turn<'_>) -> Result<usize, Errno> {
    turn.counters.send_calls.bump();
    let mut no_control = SendAncillaryBuffer::default();
    let sent = rustix::net::sendmsg(socket, pieces, &mut no_control, SendFlags::NOSIGNAL)?;
    turn.counters.bytes_written.add(sent as u64);
    Ok(sent)
}

impl Waiting {
    /// What is left of `out` after its first `sent` bytes.
    fn new(out: &Output<'_>, sent: usize, turn: &Turn<'_>) -> Result<Box<Waiting>, Errno> {
        let mut waiting = Waiting {
            parts: VecDeque::new(),
            copied_bytes: 0,
            sent: 0,
        };
        let mut skip = sent;
        for part in out.parts() {
            match part {
                Part::Bytes(bytes) => {
                    let skipped = skip.min(bytes.len());
                    skip -= skipped;
                    waiting.copy(bytes.get(skipped..).unwrap_or_default());
                }
                Part::Value(item) => {
                    let length = item.value_bytes() as usize;
                    let skipped = skip.min(length);
                    skip -= skipped;
                    if skipped == length {
                        continue;
                    }
                    shed::stalled_reader(turn);
                    if let Some(held) = item.hold() {
                        if waiting.parts.is_empty() {
                            waiting.sent = skipped;
                        }
                        waiting.parts.push_back(WaitingPart::Held(held));
                    } else if length <= COPY_BYTES_MAX || turn.store.store().has_buffer_room(length)
                    {
                        waiting.copy_pieces(item.pieces(), skipped);
                    } else {
                        turn.counters.stalled_closed.bump();
                        return Err(Errno::NOBUFS);
                    }
                }
            }
        }
        turn.store
            .store()
            .charge_buffers(waiting.copied_bytes as i64);
        if waiting.holds() {
            turn.connection.ties.note_held(true, turn.now);
        }
        Ok(Box::new(waiting))
    }

    /// Whether values are held where they lie.
    fn holds(&self) -> bool {
        let is_held = |part: &WaitingPart| matches!(part, WaitingPart::Held(_));
        self.parts.iter().any(is_held)
    }

    fn copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.copied_bytes += bytes.len();
        match self.parts.back_mut() {
            Some(WaitingPart::Copied(copied)) => copied.extend_from_slice(bytes),
            _ => self.parts.push_back(WaitingPart::Copied(bytes.to_vec())),
        }
    }

    fn copy_pieces<'p>(&mut self, pieces: impl Iterator<Item = &'p [u8]>, mut skip: usize) {
        for piece in pieces {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            self.copy(piece.get(skipped..).unwrap_or_default());
        }
    }

    /// Sends what the socket takes now.
    pub(crate) fn send(&mut self, socket: &OwnedFd, turn: &Turn<'_>) -> Sent {
        while let Some(part) = self.parts.front() {
            let mut skip = self.sent;
            let mut pieces = Vec::with_capacity(PIECES_MAX);
            for piece in part.pieces() {
                let skipped = skip.min(piece.len());
                skip -= skipped;
                if skipped < piece.len() && pieces.len() < PIECES_MAX {
                    pieces.push(IoSlice::new(piece.get(skipped..).unwrap_or_default()));
                }
            }
            match send_pieces(socket, &pieces, turn) {
                Ok(bytes) => self.sent += bytes,
                Err(Errno::AGAIN) => return Sent::Some,
                Err(Errno::INTR) => continue,
                Err(_) => return Sent::Failed,
            }
            if self.sent == part.len() {
                self.drop_first(turn);
            }
            turn.connection.ties.note_held(self.holds(), turn.now);
        }
        Sent::All
    }

    fn drop_first(&mut self, turn: &Turn<'_>) {
        self.sent = 0;
        if let Some(WaitingPart::Copied(bytes)) = self.parts.pop_front() {
            turn.store.store().charge_buffers(-(bytes.len() as i64));
        }
    }

    /// Gives the charge back without sending.
    pub(crate) fn release(&mut self, turn: &Turn<'_>) {
        while !self.parts.is_empty() {
            self.drop_first(turn);
        }
    }
}
