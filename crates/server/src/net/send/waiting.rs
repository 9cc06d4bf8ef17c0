//! Output that waits, for its socket or until others were served: rendered bytes are copied, large values held.
//!
//! A value that cannot be held, since other readers hold all that may be, is copied. Both are charged to the memory
//! that peers may hold: while that is short, a large value is read only once it was granted (`session/execute/room`), and
//! output is kept for its socket only, not for others' sake.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use glasscache_store::Held;
use rustix::io::Errno;

use super::{Sent, send_pieces};
use crate::session::context::Context;
use crate::session::gathered::Gathered;
use crate::session::output::{Output, Part};
use crate::shared::peer_memory::{Charge, Pressure};

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
    /// What was copied.
    charge: Charge,
    /// Bytes of the values that are held.
    held_bytes: usize,
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
        context: &Context<'_>,
    ) -> Option<Box<Waiting>> {
        if why == Why::Share && context.pressure != Pressure::Low {
            // Those who wait for their socket need what is left.
            return None;
        }
        let mut waiting = Waiting {
            parts: VecDeque::new(),
            charge: context.shared.memory.charge(0),
            held_bytes: 0,
            sent: 0,
        };
        let mut skip = sent;
        for part in out.parts() {
            match part {
                Part::Bytes(bytes) => {
                    let skipped = skip.min(bytes.len());
                    skip -= skipped;
                    waiting.copy(bytes.get(skipped..).unwrap_or_default(), 0);
                }
                Part::Value(item) => {
                    let length = item.value_bytes() as usize;
                    let skipped = skip.min(length);
                    skip -= skipped;
                    if skipped == length {
                        continue;
                    }
                    if let Some(held) = item.hold() {
                        if waiting.parts.is_empty() {
                            waiting.sent = skipped;
                        }
                        waiting.held_bytes += length;
                        waiting.parts.push_back(WaitingPart::Held(held));
                    } else if why == Why::Share {
                        return None;
                    } else {
                        waiting.copy_pieces(item.pieces(), skipped, length - skipped);
                    }
                }
            }
        }
        waiting.charge_copied();
        Some(Box::new(waiting))
    }

    /// Bytes that it keeps in memory, copied or where they lie.
    pub(crate) fn bytes(&self) -> usize {
        self.charge.bytes() + self.held_bytes
    }

    /// Charges what is copied now.
    fn charge_copied(&mut self) {
        let capacity = |part: &WaitingPart| match part {
            WaitingPart::Copied(bytes) => bytes.capacity(),
            WaitingPart::Held(_) => 0,
        };
        let copied_bytes = self.parts.iter().map(capacity).sum();
        if copied_bytes != self.charge.bytes() {
            self.charge.set(copied_bytes);
        }
    }

    /// Copies `bytes`, behind which `more` will follow: memory is taken for both at once.
    fn copy(&mut self, bytes: &[u8], more: usize) {
        if bytes.is_empty() {
            return;
        }
        if !matches!(self.parts.back(), Some(WaitingPart::Copied(_))) {
            self.parts.push_back(WaitingPart::Copied(Vec::new()));
        }
        if let Some(WaitingPart::Copied(copied)) = self.parts.back_mut() {
            copied.reserve_exact(bytes.len() + more);
            copied.extend_from_slice(bytes);
        }
    }

    /// Copies `pieces` less their first `skip` bytes, which leaves `left`.
    fn copy_pieces<'p>(
        &mut self,
        pieces: impl Iterator<Item = &'p [u8]>,
        mut skip: usize,
        mut left: usize,
    ) {
        for piece in pieces {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            let piece = piece.get(skipped..).unwrap_or_default();
            left = left.saturating_sub(piece.len());
            self.copy(piece, left);
        }
    }

    /// Sends what the socket takes now, up to its share.
    pub(crate) fn send(&mut self, socket: &OwnedFd, context: &Context<'_>) -> Sent {
        let mut share = context.share_bytes;
        while !self.parts.is_empty() {
            if share == 0 {
                return Sent::Share;
            }
            match send_pieces(
                socket,
                &self.gather(share),
                self.has_more_than(share),
                context,
            ) {
                Ok(bytes) => {
                    share = share.saturating_sub(bytes);
                    self.advance(bytes);
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
    fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
        while let Some(first) = self.parts.front().map(WaitingPart::len)
            && first <= self.sent
        {
            self.sent -= first;
            if let Some(WaitingPart::Held(held)) = self.parts.pop_front() {
                self.held_bytes = self.held_bytes.saturating_sub(first);
                drop(held);
                self.charge.note_room();
            }
        }
        self.charge_copied();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Values first: dropping the charge then tells those who wait of both.
        self.parts.clear();
    }
}
