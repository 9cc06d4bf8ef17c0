//! Uploads: memory for a value whose bytes are still arriving.
//!
//! A small value is collected outside the store and copied once. A larger one gets pieces in the worker's
//! upload segment, each only when the bytes before it have arrived, so that a client that announces much and
//! sends nothing takes nothing. All uncommitted pieces together are bounded, usually by an eighth of `-m`
//! (`uploads`).

use std::sync::Arc;

use crate::accounting::ItemAccounting;
use crate::chain::ValuePart;
use crate::item::{PIECE_HEADER_BYTES, piece_record_bytes};
use crate::memory::Addr;
use crate::open_segments::SegmentKind;
use crate::record_allocator::Shortage;
use crate::request::{KeyHash, NoRoomYet, Refusal, Seconds, SetOptions, SetOutcome};
use crate::retry_limits::Attempts;
use crate::set::{self, SetOperation};
use crate::store::Store;
use crate::uploads::PIECE_BYTES_MAX;
use crate::worker::Worker;

/// Memory for one value, owned by a connection while its bytes arrive. A drop returns the memory.
pub struct Reservation {
    store: Arc<Store>,
    id: u64,
    key: Box<[u8]>,
    hash: KeyHash,
    options: SetOptions,
    value_bytes: usize,
    filled_bytes: usize,
    /// A small value is collected here.
    inline_buffer: Option<Vec<u8>>,
    /// Pieces so far, the last being filled.
    pieces: Vec<Addr>,
    /// Where the last piece's data continues, and how much it still takes.
    unfilled_piece: Option<(Addr, usize)>,
    /// Whether other uploads blocked the next piece.
    is_blocked_by_uploads: bool,
    /// Whether no segment was free for the next piece, although one soon will be.
    awaits_segment: bool,
    is_committed: bool,
}

impl Worker {
    /// Reserves memory for a value that arrives in pieces. Nothing is visible until `commit`.
    pub fn reserve(
        &self,
        key: &[u8],
        hash: KeyHash,
        value_bytes: u32,
        options: &SetOptions,
        now: Seconds,
    ) -> Result<Reservation, Refusal> {
        if !self.begin_operation(now) {
            return Err(Refusal::NoMemory);
        }
        let value_bytes = value_bytes as usize;
        if self.store.is_too_large(key, value_bytes, options.flags) {
            set::remove_refused(&self.accounting, key, hash, options);
            return Err(Refusal::TooLarge);
        }
        let is_small = !self.store.receives_in_pieces(key.len(), value_bytes);
        let missing_bytes = if is_small { 0 } else { value_bytes as u64 };
        if missing_bytes > self.store.upload_bytes_max() {
            set::remove_refused(&self.accounting, key, hash, options);
            return Err(Refusal::NoMemory);
        }
        Ok(Reservation {
            store: Arc::clone(&self.store),
            id: self.store.uploads.begin(missing_bytes, now),
            key: key.into(),
            hash,
            options: *options,
            value_bytes,
            filled_bytes: 0,
            inline_buffer: is_small.then(|| vec![0; value_bytes]),
            pieces: Vec::new(),
            unfilled_piece: None,
            is_blocked_by_uploads: false,
            awaits_segment: false,
            is_committed: false,
        })
    }

    /// Ends an upload for which there is no memory. As with every refused plain set, the old value is removed: it
    /// would be out of date.
    pub fn refuse_upload(&self, reservation: &Reservation, now: Seconds) {
        if self.begin_operation(now) {
            reservation.refuse(&self.accounting);
        }
    }

    /// Like [`Worker::try_commit`], but refused if that would have to wait.
    pub fn commit(&self, mut reservation: Reservation, now: Seconds) -> SetOutcome {
        self.try_commit(&mut reservation, now)
            .unwrap_or_else(|NoRoomYet| reservation.refuse(&self.accounting))
    }

    /// Makes a completely filled reservation visible at once; an incomplete or already committed one is not stored.
    pub fn try_commit(
        &self,
        reservation: &mut Reservation,
        now: Seconds,
    ) -> Result<SetOutcome, NoRoomYet> {
        if !self.begin_operation(now) || !reservation.is_complete() || reservation.is_committed {
            return Ok(SetOutcome::NotStored);
        }
        let Reservation { key, hash, options, inline_buffer, pieces, .. } = &*reservation;
        let part = match inline_buffer {
            Some(buffer) => ValuePart::Bytes(buffer),
            None => ValuePart::Pieces(pieces),
        };
        let operation = SetOperation { value_parts: &[part], options };
        let outcome = operation.run(&mut self.new_write(key, *hash, now))?;
        if matches!(outcome, SetOutcome::Stored(_)) {
            for piece in std::mem::take(&mut reservation.pieces) {
                self.store.segments.unpin(piece);
            }
            reservation.is_committed = true;
            self.record_allocator(now).sweep_proportionally(reservation.value_bytes);
        }
        Ok(outcome)
    }
}

impl Reservation {
    /// The next range to fill, at most 128 KiB and never longer than what is missing; empty when complete, or when
    /// no memory is available now: then `is_complete` is false, and the upload should be closed unless
    /// [`Reservation::is_blocked_by_uploads`] or [`Reservation::awaits_segment`].
    ///
    /// The worker is needed because memory for the next piece may have to be freed by eviction.
    pub fn space(&mut self, worker: &Worker, now: Seconds) -> &mut [u8] {
        if self.inline_buffer.is_none() && self.unfilled_piece.is_none() && !self.is_complete() {
            self.unfilled_piece = self.allocate_piece(worker, now);
        }
        match (&mut self.inline_buffer, self.unfilled_piece) {
            (Some(inline_buffer), _) => {
                inline_buffer.get_mut(self.filled_bytes..).unwrap_or_default()
            }
            (None, Some((addr, bytes_left))) => {
                self.store.arena().unpublished_range(addr, bytes_left)
            }
            (None, None) => &mut [],
        }
    }

    fn allocate_piece(&mut self, worker: &Worker, now: Seconds) -> Option<(Addr, usize)> {
        let wanted_bytes = (self.value_bytes - self.filled_bytes).min(PIECE_BYTES_MAX);
        if !worker.begin_operation(now) {
            return None;
        }
        let uploads = &self.store.uploads;
        let is_granted =
            uploads.try_grant(self.id, wanted_bytes as u64, self.store.upload_bytes_max(), now);
        self.is_blocked_by_uploads = !is_granted;
        self.awaits_segment = false;
        if !is_granted {
            return None;
        }
        let (allocator, mut attempts) = (worker.record_allocator(now), Attempts::default());
        let (piece, data_bytes) = loop {
            match allocator.append_piece(SegmentKind::Upload, self.hash, wanted_bytes) {
                Ok(piece_and_length) => break piece_and_length,
                Err(shortage) if allocator.prepare_retry(shortage, &mut attempts) => {}
                Err(shortage) => {
                    self.awaits_segment = shortage == Shortage::Temporary;
                    uploads.return_unused(self.id, wanted_bytes as u64);
                    return None;
                }
            }
        };
        if data_bytes < wanted_bytes {
            uploads.return_unused(self.id, (wanted_bytes - data_bytes) as u64);
        }
        uploads.record_progress(self.id, now);
        self.pieces.push(piece);
        allocator.sweep_proportionally(data_bytes);
        let data_addr = piece.plus(PIECE_HEADER_BYTES);
        // The kernel copies into prefetched lines a quarter faster than into those it has to fetch one after the
        // other.
        self.store.arena().prefetch_range(data_addr, data_bytes);
        Some((data_addr, data_bytes))
    }

    /// Records that `written_bytes` of `space` were written.
    pub fn advance(&mut self, written_bytes: usize) {
        let written_bytes = written_bytes.min(self.value_bytes - self.filled_bytes);
        self.filled_bytes += written_bytes;
        self.unfilled_piece = match self.unfilled_piece {
            Some((addr, bytes_left)) if bytes_left > written_bytes => {
                Some((addr.plus(written_bytes), bytes_left - written_bytes))
            }
            _ => None,
        };
    }

    /// Whether other uploads blocked the last [`Reservation::space`]: it is worth waiting for them.
    pub fn is_blocked_by_uploads(&self) -> bool {
        self.is_blocked_by_uploads
    }

    /// Whether the last [`Reservation::space`] found no segment free although some soon will be: as for
    /// [`NoRoomYet`], it is worth trying again.
    pub fn awaits_segment(&self) -> bool {
        self.awaits_segment
    }

    /// Whether every byte has been filled.
    pub fn is_complete(&self) -> bool {
        self.filled_bytes == self.value_bytes
    }

    /// The number of missing bytes.
    pub fn missing_bytes(&self) -> u32 {
        (self.value_bytes - self.filled_bytes) as u32
    }

    /// Ends it unstored: as with every refused plain set, the old value is removed.
    fn refuse(&self, accounting: &ItemAccounting) -> SetOutcome {
        set::refuse(accounting, &self.key, self.hash, &self.options)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The pieces of the value that are not part of an item.
    pub(crate) fn pieces(&self) -> &[Addr] {
        &self.pieces
    }

    /// The number of the upload, as in [`Store::idlest_upload`].
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.store.uploads.end(self.id);
        for &piece in &self.pieces {
            self.store
                .segments
                .count_dead(piece, piece_record_bytes(self.store.piece_data_bytes(piece)));
            self.store.segments.unpin(piece);
        }
    }
}
