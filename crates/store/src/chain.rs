//! Chains: a new value in several pieces, some existing and some written for it.
//!
//! What is written here is invisible until a head that names it is published. Its own pieces are pinned meanwhile,
//! and removed if the value is not published.

use crate::append::Log;
use crate::item::{PIECE_HEADER, piece_bytes};
use crate::memory::Addr;
use crate::request::KeyHash;
use crate::room::{Room, Shortage};
use crate::store::Store;

/// A part of a new value.
#[derive(Clone, Copy)]
pub(crate) enum Part<'a> {
    /// Bytes to copy.
    Bytes(&'a [u8]),
    /// Existing pieces to reuse.
    Pieces(&'a [Addr]),
}

impl Part<'_> {
    /// Length of the part.
    pub(crate) fn len(&self, store: &Store) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::Pieces(pieces) => pieces
                .iter()
                .map(|&piece| store.piece_data_bytes(piece))
                .sum(),
        }
    }
}

/// The pieces of a new value.
pub(crate) struct Chain<'w> {
    room: Room<'w>,
    hash: KeyHash,
    log: Log,
    pieces: Vec<Addr>,
    /// The `pieces` that were written for this value.
    own_pieces: Vec<Addr>,
    is_published: bool,
}

impl<'w> Chain<'w> {
    /// An empty chain, whose own pieces are written to `log`.
    #[inline]
    pub(crate) fn new(room: Room<'w>, hash: KeyHash, log: Log) -> Self {
        Chain {
            room,
            hash,
            log,
            pieces: Vec::new(),
            own_pieces: Vec::new(),
            is_published: false,
        }
    }

    /// Addresses of the pieces, in order.
    pub(crate) fn pieces(&self) -> &[Addr] {
        &self.pieces
    }

    /// Whether all pieces existed before.
    pub(crate) fn has_no_own_pieces(&self) -> bool {
        self.own_pieces.is_empty()
    }

    /// Bytes of the pieces that were written for the value.
    pub(crate) fn own_bytes(&self) -> usize {
        let store = self.room.store();
        let bytes = |&piece: &Addr| store.piece_data_bytes(piece);
        self.own_pieces.iter().map(bytes).sum()
    }

    /// A published head names the pieces: they are kept.
    pub(crate) fn note_published(&mut self) {
        self.is_published = true;
    }

    /// Adds `parts` in order.
    pub(crate) fn add(&mut self, parts: &[Part<'_>]) -> Result<(), Shortage> {
        let mut byte_run: Vec<&[u8]> = Vec::new();
        for part in parts {
            match part {
                Part::Bytes(bytes) => byte_run.push(bytes),
                Part::Pieces([]) => {}
                Part::Pieces(existing_pieces) => {
                    self.write(&mut byte_run)?;
                    self.pieces.extend_from_slice(existing_pieces);
                }
            }
        }
        self.write(&mut byte_run)
    }

    /// Writes a run of slices as new pieces, and empties it.
    fn write(&mut self, byte_run: &mut Vec<&[u8]>) -> Result<(), Shortage> {
        let mut missing_bytes: usize = byte_run.iter().map(|slice| slice.len()).sum();
        let mut slices = byte_run.drain(..);
        let mut slice = slices.next().unwrap_or_default();
        while missing_bytes > 0 {
            let (piece, piece_len) = self.room.append_piece(self.log, self.hash, missing_bytes)?;
            self.own_pieces.push(piece);
            self.pieces.push(piece);
            let mut filled = 0;
            while filled < piece_len {
                let (copied, rest) = slice.split_at(slice.len().min(piece_len - filled));
                let addr = piece.plus(PIECE_HEADER + filled);
                self.room.store().arena().write(addr, copied);
                filled += copied.len();
                slice = if rest.is_empty() {
                    slices.next().unwrap_or_default()
                } else {
                    rest
                };
            }
            missing_bytes -= piece_len;
        }
        Ok(())
    }
}

impl Drop for Chain<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.own_pieces.is_empty() {
            self.release();
        }
    }
}

impl Chain<'_> {
    /// Unpins the own pieces, and removes them if nothing names them.
    fn release(&self) {
        let store = self.room.store();
        for &piece in &self.own_pieces {
            if !self.is_published {
                let bytes = piece_bytes(store.piece_data_bytes(piece));
                store.segments.unlive(piece, bytes);
            }
            store.segments.unpin(piece);
        }
    }
}
