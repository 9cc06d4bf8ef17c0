//! Chains: a new value in several pieces, some existing and some written for it.
//!
//! What is written here is invisible until a head that names it is published. Its own pieces are pinned meanwhile,
//! and removed if the value is not published.
//!
//! A *piece* is one record of a large value's bytes, a *chain* all of them in order, its *head* the item's record,
//! with the key and the addresses of the pieces.

use crate::item::{PIECE_HEADER_BYTES, piece_record_bytes};
use crate::memory::Addr;
use crate::open_segments::SegmentKind;
use crate::record_allocator::{RecordAllocator, Shortage};
use crate::request::KeyHash;
use crate::store::Store;

/// A part of a new value.
#[derive(Clone, Copy)]
pub(crate) enum ValuePart<'a> {
    /// Bytes to copy.
    Bytes(&'a [u8]),
    /// Existing pieces to reuse.
    Pieces(&'a [Addr]),
}

impl ValuePart<'_> {
    /// Length of the part.
    pub(crate) fn len(&self, store: &Store) -> usize {
        match self {
            ValuePart::Bytes(bytes) => bytes.len(),
            ValuePart::Pieces(pieces) => {
                pieces.iter().map(|&piece| store.piece_data_bytes(piece)).sum()
            }
        }
    }
}

/// The pieces of a new value.
pub(crate) struct Chain<'w> {
    allocator: RecordAllocator<'w>,
    hash: KeyHash,
    segment_kind: SegmentKind,
    pieces: Vec<Addr>,
    /// The `pieces` that were written for this value.
    new_pieces: Vec<Addr>,
    is_published: bool,
}

impl<'w> Chain<'w> {
    /// An empty chain, whose own pieces are written to `segment_kind`.
    #[inline]
    pub(crate) fn new(
        allocator: RecordAllocator<'w>,
        hash: KeyHash,
        segment_kind: SegmentKind,
    ) -> Self {
        Chain {
            allocator,
            hash,
            segment_kind,
            pieces: Vec::new(),
            new_pieces: Vec::new(),
            is_published: false,
        }
    }

    /// Addresses of the pieces, in order.
    pub(crate) fn pieces(&self) -> &[Addr] {
        &self.pieces
    }

    /// Whether all pieces existed before.
    pub(crate) fn reuses_all_pieces(&self) -> bool {
        self.new_pieces.is_empty()
    }

    /// Bytes of the pieces that were written for the value.
    pub(crate) fn new_piece_bytes(&self) -> usize {
        let store = self.allocator.store();
        let data_bytes = |&piece: &Addr| store.piece_data_bytes(piece);
        self.new_pieces.iter().map(data_bytes).sum()
    }

    /// Records that a published head names the pieces, so that they are kept.
    pub(crate) fn mark_published(&mut self) {
        self.is_published = true;
    }

    /// Adds `parts` in order.
    pub(crate) fn append_parts(&mut self, parts: &[ValuePart<'_>]) -> Result<(), Shortage> {
        let mut byte_run: Vec<&[u8]> = Vec::new();
        for part in parts {
            match part {
                ValuePart::Bytes(bytes) => byte_run.push(bytes),
                ValuePart::Pieces([]) => {}
                ValuePart::Pieces(existing_pieces) => {
                    self.write_pieces(&mut byte_run)?;
                    self.pieces.extend_from_slice(existing_pieces);
                }
            }
        }
        self.write_pieces(&mut byte_run)
    }

    /// Writes a run of slices as new pieces, and empties it.
    fn write_pieces(&mut self, byte_run: &mut Vec<&[u8]>) -> Result<(), Shortage> {
        let mut unwritten_bytes: usize = byte_run.iter().map(|slice| slice.len()).sum();
        let mut slices = byte_run.drain(..);
        let mut slice = slices.next().unwrap_or_default();
        while unwritten_bytes > 0 {
            let (piece, piece_len) =
                self.allocator.append_piece(self.segment_kind, self.hash, unwritten_bytes)?;
            self.new_pieces.push(piece);
            self.pieces.push(piece);
            let mut filled_bytes = 0;
            while filled_bytes < piece_len {
                let (copied, uncopied) = slice.split_at(slice.len().min(piece_len - filled_bytes));
                let addr = piece.plus(PIECE_HEADER_BYTES + filled_bytes);
                self.allocator.store().arena().write(addr, copied);
                filled_bytes += copied.len();
                slice =
                    if uncopied.is_empty() { slices.next().unwrap_or_default() } else { uncopied };
            }
            unwritten_bytes -= piece_len;
        }
        Ok(())
    }
}

impl Drop for Chain<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.new_pieces.is_empty() {
            self.release_new_pieces();
        }
    }
}

impl Chain<'_> {
    /// Unpins the own pieces, and removes them if nothing names them.
    fn release_new_pieces(&self) {
        let store = self.allocator.store();
        for &piece in &self.new_pieces {
            if !self.is_published {
                let record_bytes = piece_record_bytes(store.piece_data_bytes(piece));
                store.segments.count_dead(piece, record_bytes);
            }
            store.segments.unpin(piece);
        }
    }
}
