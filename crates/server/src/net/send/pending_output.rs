//! Pending output, which waits for its socket or for other connections: rendered bytes are copied, large values
//! held by reference.
//!
//! A value that cannot be held, because other readers hold the maximum, is copied. Both are charged to the memory
//! that peers may hold: while that is short, a large value is read only after its memory was granted
//! (`session/execute/reply_memory`), and output is kept only for its own socket, not to serve others first.

use std::collections::VecDeque;
use std::sync::Arc;

use glasscache_store::HeldValue;
use rustix::io::Errno;

use super::SendOutcome;
use crate::net::stream::Stream;
use crate::session::context::Context;
use crate::session::output::{Output, OutputPart};
use crate::session::send_vector::SendVector;
use crate::shared::counters::Counters;
use crate::shared::peer_memory::{Charge, PeerMemory, Pressure};

/// Why output is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// Others are served first.
    Quota,
    /// The socket is full.
    Socket,
}

/// Pending output.
pub(super) struct PendingOutput {
    parts: VecDeque<PendingPart>,
    /// The copied bytes.
    charge: Charge,
    /// Bytes of the held values.
    held_bytes: usize,
    /// Bytes of the first part that have been sent.
    first_part_sent_bytes: usize,
}

enum PendingPart {
    Copied(Vec<u8>),
    HeldValue(HeldValue),
}

impl PendingPart {
    fn pieces(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        match self {
            PendingPart::Copied(bytes) => Box::new(std::iter::once(bytes.as_slice())),
            PendingPart::HeldValue(held_value) => Box::new(held_value.pieces()),
        }
    }

    fn len(&self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }
}

impl PendingOutput {
    /// The rest of `out` after its first `sent_bytes` bytes; `None` if it cannot be kept.
    pub(super) fn new(
        out: &Output<'_>,
        sent_bytes: usize,
        wait_reason: WaitReason,
        context: &Context<'_>,
    ) -> Option<Box<PendingOutput>> {
        if wait_reason == WaitReason::Quota && context.pressure != Pressure::Low {
            // The remaining memory is for output that waits for its socket.
            return None;
        }
        let mut pending_output = PendingOutput {
            parts: VecDeque::new(),
            charge: context.shared.peer_memory.charge(0),
            held_bytes: 0,
            first_part_sent_bytes: 0,
        };
        let mut bytes_to_skip = sent_bytes;
        for part in out.parts() {
            match part {
                OutputPart::Bytes(bytes) => {
                    let skipped_bytes = bytes_to_skip.min(bytes.len());
                    bytes_to_skip -= skipped_bytes;
                    pending_output.append_copy(bytes.get(skipped_bytes..).unwrap_or_default(), 0);
                }
                OutputPart::Value(item) => {
                    let length = item.value_bytes() as usize;
                    let skipped_bytes = bytes_to_skip.min(length);
                    bytes_to_skip -= skipped_bytes;
                    if skipped_bytes == length {
                        continue;
                    }
                    if let Some(held_value) = item.hold() {
                        if pending_output.parts.is_empty() {
                            pending_output.first_part_sent_bytes = skipped_bytes;
                        }
                        pending_output.held_bytes += length;
                        pending_output.parts.push_back(PendingPart::HeldValue(held_value));
                    } else if wait_reason == WaitReason::Quota {
                        return None;
                    } else {
                        pending_output.append_copies(
                            item.pieces(),
                            skipped_bytes,
                            length - skipped_bytes,
                        );
                    }
                }
            }
        }
        pending_output.charge_copied();
        Some(Box::new(pending_output))
    }

    /// Output of a previous process; `None` if there is none.
    pub(super) fn from_copy(
        bytes: Vec<u8>,
        peer_memory: &Arc<PeerMemory>,
    ) -> Option<Box<PendingOutput>> {
        (!bytes.is_empty()).then(|| {
            Box::new(PendingOutput {
                charge: peer_memory.charge(bytes.capacity()),
                parts: VecDeque::from([PendingPart::Copied(bytes)]),
                held_bytes: 0,
                first_part_sent_bytes: 0,
            })
        })
    }

    /// Number of unsent bytes.
    pub(super) fn unsent_bytes(&self) -> usize {
        let total_bytes = self.parts.iter().map(PendingPart::len).sum::<usize>();
        total_bytes.saturating_sub(self.first_part_sent_bytes)
    }

    /// A copy of the unsent bytes.
    pub(super) fn copy_unsent(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.unsent_bytes());
        let mut bytes_to_skip = self.first_part_sent_bytes;
        for piece in self.parts.iter().flat_map(PendingPart::pieces) {
            let skipped_bytes = bytes_to_skip.min(piece.len());
            bytes_to_skip -= skipped_bytes;
            copy.extend_from_slice(piece.get(skipped_bytes..).unwrap_or_default());
        }
        copy
    }

    /// Whether some of it is in the memory of the store.
    pub(super) fn has_held_values(&self) -> bool {
        self.held_bytes > 0
    }

    /// Copies the held values, whose memory another process may use soon. If they have more than `copied_bytes_left`
    /// bytes, or do not fit into the memory for peers, they stay held.
    pub(super) fn copy_held_values(
        &mut self,
        copied_bytes_left: &mut usize,
        peer_memory: &PeerMemory,
    ) {
        let is_granted =
            self.held_bytes <= *copied_bytes_left && peer_memory.try_grant(self.held_bytes, false);
        if !self.has_held_values() || !is_granted {
            return;
        }
        *copied_bytes_left -= self.held_bytes;
        for part in &mut self.parts {
            if let PendingPart::HeldValue(held_value) = part {
                let mut copy = Vec::with_capacity(held_value.pieces().map(<[u8]>::len).sum());
                held_value.pieces().for_each(|piece| copy.extend_from_slice(piece));
                *part = PendingPart::Copied(copy);
            }
        }
        self.held_bytes = 0;
        self.charge_copied();
    }

    /// Sends copied output as far as the socket accepts it; true when nothing is left, or the socket is broken.
    pub(super) fn send_copied(&mut self, stream: &mut Stream, counters: &Counters) -> bool {
        while !self.parts.is_empty() {
            let unsent_bytes = self.unsent_bytes();
            match stream.send_pieces(&self.gather(unsent_bytes), false, counters) {
                Ok(newly_sent_bytes) => self.advance(newly_sent_bytes),
                Err(Errno::AGAIN) => return false,
                Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
        true
    }

    /// Bytes that it keeps in memory, copied or held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.charge.bytes() + self.held_bytes
    }

    /// Charges the bytes copied so far.
    fn charge_copied(&mut self) {
        let copied_capacity = |part: &PendingPart| match part {
            PendingPart::Copied(bytes) => bytes.capacity(),
            PendingPart::HeldValue(_) => 0,
        };
        let copied_bytes = self.parts.iter().map(copied_capacity).sum();
        if copied_bytes != self.charge.bytes() {
            self.charge.set(copied_bytes);
        }
    }

    /// Copies `bytes`, which `following_bytes` bytes will follow: memory is reserved for both at once.
    fn append_copy(&mut self, bytes: &[u8], following_bytes: usize) {
        if bytes.is_empty() {
            return;
        }
        if !matches!(self.parts.back(), Some(PendingPart::Copied(_))) {
            self.parts.push_back(PendingPart::Copied(Vec::new()));
        }
        if let Some(PendingPart::Copied(copied)) = self.parts.back_mut() {
            copied.reserve_exact(bytes.len() + following_bytes);
            copied.extend_from_slice(bytes);
        }
    }

    /// Copies `pieces` without their first `bytes_to_skip` bytes, which leaves `remaining_bytes`.
    fn append_copies<'p>(
        &mut self,
        pieces: impl Iterator<Item = &'p [u8]>,
        mut bytes_to_skip: usize,
        mut remaining_bytes: usize,
    ) {
        for piece in pieces {
            let skipped_bytes = bytes_to_skip.min(piece.len());
            bytes_to_skip -= skipped_bytes;
            let piece = piece.get(skipped_bytes..).unwrap_or_default();
            remaining_bytes = remaining_bytes.saturating_sub(piece.len());
            self.append_copy(piece, remaining_bytes);
        }
    }

    /// Sends what the socket accepts now, up to its quota.
    pub(super) fn send(&mut self, stream: &mut Stream, context: &Context<'_>) -> SendOutcome {
        let mut quota_left = context.quota_bytes;
        while !self.parts.is_empty() {
            if quota_left == 0 {
                return SendOutcome::QuotaUsed;
            }
            let has_more = self.has_more_than(quota_left);
            match stream.send_pieces(&self.gather(quota_left), has_more, context.counters) {
                Ok(newly_sent_bytes) => {
                    quota_left = quota_left.saturating_sub(newly_sent_bytes);
                    self.advance(newly_sent_bytes);
                }
                Err(Errno::AGAIN) => return SendOutcome::Partial,
                Err(Errno::INTR) => {}
                Err(_) => return SendOutcome::Failed,
            }
        }
        SendOutcome::All
    }

    /// The next `bytes_max` bytes.
    fn gather(&self, bytes_max: usize) -> SendVector<'_> {
        let mut send_vector = SendVector::new(self.first_part_sent_bytes, bytes_max);
        let mut pieces = self.parts.iter().flat_map(PendingPart::pieces);
        while pieces.next().is_some_and(|piece| send_vector.push(piece)) {}
        send_vector
    }

    /// Whether more than `bytes_max` bytes are pending.
    fn has_more_than(&self, bytes_max: usize) -> bool {
        self.unsent_bytes() > bytes_max
    }

    /// Records that the next `newly_sent_bytes` have been sent.
    fn advance(&mut self, newly_sent_bytes: usize) {
        self.first_part_sent_bytes += newly_sent_bytes;
        while let Some(first_part_bytes) = self.parts.front().map(PendingPart::len)
            && first_part_bytes <= self.first_part_sent_bytes
        {
            self.first_part_sent_bytes -= first_part_bytes;
            if let Some(PendingPart::HeldValue(held_value)) = self.parts.pop_front() {
                self.held_bytes = self.held_bytes.saturating_sub(first_part_bytes);
                drop(held_value);
                self.charge.record_release();
            }
        }
        self.charge_copied();
    }
}

impl Drop for PendingOutput {
    fn drop(&mut self) {
        // Values first: dropping the charge then notifies waiting connections of both.
        self.parts.clear();
    }
}
