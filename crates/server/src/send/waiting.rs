//! Output that waits, for its socket or for the others' turn: rendered bytes are copied, large values held.
//!
//! A value that can neither be held nor copied, since both shares of the memory are used up by other readers,
//! closes its reader if the socket is full, and is sent without a pause if it is not.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use glasscache_store::Held;
use rustix::io::Errno;

use super::{Sent, send_pieces};
use crate::gathered::Gathered;
use crate::output::{Output, Part};
use crate::shed;
use crate::turn::Turn;

/// Bytes of one value that may be copied to wait for a slow reader however much is copied already.
const COPY_BYTES_MAX: usize = 256 << 10;

/// Why output waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Others are to be served first.
    Share,
    /// The socket is full.
    Full,
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

impl Waiting {
    /// What is left of `out` after its first `sent` bytes; `None` if it cannot be kept.
    pub(super) fn new(
        out: &Output<'_>,
        sent: usize,
        why: Why,
        turn: &Turn<'_>,
    ) -> Option<Box<Waiting>> {
        if why == Why::Share && turn.store.store().holds_are_scarce() {
            // Those who wait for their socket need what is left to hold.
            return None;
        }
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
                    if why == Why::Full {
                        shed::stalled_reader(turn);
                    }
                    if let Some(held) = item.hold() {
                        if waiting.parts.is_empty() {
                            waiting.sent = skipped;
                        }
                        waiting.parts.push_back(WaitingPart::Held(held));
                    } else if why == Why::Share {
                        return None;
                    } else if length <= COPY_BYTES_MAX || turn.store.store().has_buffer_room(length)
                    {
                        waiting.copy_pieces(item.pieces(), skipped);
                    } else {
                        turn.counters.stalled_closed.bump();
                        return None;
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
        Some(Box::new(waiting))
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

    /// Sends what the socket takes now, up to the share of a turn.
    pub(crate) fn send(&mut self, socket: &OwnedFd, turn: &Turn<'_>) -> Sent {
        let mut share = turn.share_bytes;
        while !self.parts.is_empty() {
            if share == 0 {
                return Sent::Share;
            }
            match send_pieces(socket, &self.gather(share), self.has_more_than(share), turn) {
                Ok(bytes) => {
                    share = share.saturating_sub(bytes);
                    self.advance(bytes, turn);
                }
                Err(Errno::AGAIN) => return Sent::Some,
                Err(Errno::INTR) => {}
                Err(_) => return Sent::Failed,
            }
        }
        Sent::All
    }

    /// The next `most` bytes.
    fn gather(&self, most: usize) -> Gathered<'_> {
        let mut gathered = Gathered::new(self.sent, most);
        let mut pieces = self.parts.iter().flat_map(WaitingPart::pieces);
        while pieces.next().is_some_and(|piece| gathered.push(piece)) {}
        gathered
    }

    /// Whether more than `most` bytes wait.
    fn has_more_than(&self, most: usize) -> bool {
        let bytes = self.parts.iter().map(WaitingPart::len).sum::<usize>();
        bytes.saturating_sub(self.sent) > most
    }

    /// The next `bytes` have left.
    fn advance(&mut self, bytes: usize, turn: &Turn<'_>) {
        self.sent += bytes;
        while let Some(first) = self.parts.front().map(WaitingPart::len)
            && first <= self.sent
        {
            let beyond = self.sent - first;
            self.drop_first(turn);
            self.sent = beyond;
        }
        turn.connection.ties.note_held(self.holds(), turn.now);
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
