//! Uploads: room for a value whose bytes are still arriving.
//!
//! A small value is gathered beside the store and copied once. A larger one gets pieces in segments of the
//! worker's upload log, each only when the bytes before it have come, so that a client who announces much and
//! sends nothing takes nothing. All uncommitted pieces together are bounded by an eighth of `-m`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use crate::item::{HEADER_MAX, PIECE_HEADER, piece_bytes};
use crate::log::Log;
use crate::memory::Addr;
use crate::request::{KeyHash, Refusal, Seconds, SetOptions, SetOutcome};
use crate::sync::plain::{Mutex, MutexGuard};
use crate::write::Part;
use crate::{Store, Worker};

/// Data of a piece, at most: large enough that a value of 100 KB is received in one call, small enough that a
/// stalled client ties up little.
const PIECE_BYTES_MAX: usize = 128 << 10;

/// Which uploads there are and how much they hold.
#[derive(Default)]
pub(crate) struct Uploads {
    open: Mutex<BTreeMap<u64, Open>>,
    bytes: AtomicU64,
    next: AtomicU64,
}

/// One upload as the others see it.
#[derive(Clone, Copy)]
struct Open {
    held_bytes: u64,
    last: Seconds,
    waits: bool,
}

/// The upload that has to go first, as [`Store::idlest_upload`] finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleUpload {
    /// Its name, as [`Reservation::id`] gives it.
    pub id: u64,
    /// Second of its last progress.
    pub last: Seconds,
    /// Whether it stands still for want of room, so by no fault of its sender.
    pub waits: bool,
}

impl Uploads {
    /// Bytes that all uncommitted uploads hold.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The one without progress for longest; those that wait for room come after all that do not.
    pub(crate) fn idlest(&self) -> Option<IdleUpload> {
        self.lock()
            .iter()
            .map(|(&id, open)| IdleUpload {
                id,
                last: open.last,
                waits: open.waits,
            })
            .min_by_key(|upload| (upload.waits, upload.last))
    }

    /// Whether another piece would be more than `bytes_max`.
    pub(crate) fn are_full(&self, bytes_max: u64) -> bool {
        self.bytes() + PIECE_BYTES_MAX as u64 > bytes_max
    }

    fn begin(&self, now: Seconds) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let open = Open {
            held_bytes: 0,
            last: now,
            waits: false,
        };
        self.lock().insert(id, open);
        id
    }

    fn charge(&self, id: u64, bytes: u64, now: Seconds) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(open) = self.lock().get_mut(&id) {
            open.held_bytes += bytes;
            open.last = now;
            open.waits = false;
        }
    }

    /// Notes that there was no room for the next piece of `id`.
    fn note_wait(&self, id: u64) {
        if let Some(open) = self.lock().get_mut(&id) {
            open.waits = true;
        }
    }

    fn end(&self, id: u64) {
        if let Some(open) = self.lock().remove(&id) {
            self.bytes.fetch_sub(open.held_bytes, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for one value, owned by a connection while its bytes arrive. A drop gives the room back.
pub struct Reservation {
    store: Arc<Store>,
    id: u64,
    key: Box<[u8]>,
    hash: KeyHash,
    options: SetOptions,
    value_bytes: usize,
    filled: usize,
    /// A value small enough to lie in one stretch is gathered here.
    staged: Option<Vec<u8>>,
    /// Pieces so far, the last being filled.
    pieces: Vec<Addr>,
    /// Where the last piece's data goes on, and how much it still takes.
    rest: Option<(Addr, usize)>,
}

impl Worker {
    /// Room for a value that arrives in pieces. Nothing is visible until `commit`.
    pub fn reserve(
        &self,
        key: &[u8],
        hash: KeyHash,
        value_bytes: u32,
        options: &SetOptions,
        now: Seconds,
    ) -> Result<Reservation, Refusal> {
        if !self.begin(now) {
            return Err(Refusal::NoMemory);
        }
        let value_bytes = value_bytes as usize;
        if self.store.is_too_large(key, value_bytes, options.flags) {
            self.drop_for(key, hash, options, now);
            return Err(Refusal::TooLarge);
        }
        if self.store.uploads.bytes() >= self.store.upload_bytes_max() {
            self.drop_for(key, hash, options, now);
            return Err(Refusal::NoMemory);
        }
        let is_small = HEADER_MAX + key.len() + value_bytes <= self.store.inline_max();
        Ok(Reservation {
            store: Arc::clone(&self.store),
            id: self.store.uploads.begin(now),
            key: key.into(),
            hash,
            options: *options,
            value_bytes,
            filled: 0,
            staged: is_small.then(|| vec![0; value_bytes]),
            pieces: Vec::new(),
            rest: None,
        })
    }

    /// Makes a completely filled reservation visible at once; an incomplete one is given up.
    pub fn commit(&self, mut reservation: Reservation, now: Seconds) -> SetOutcome {
        if !self.begin(now) || !reservation.is_complete() {
            return SetOutcome::NotStored;
        }
        let Reservation {
            key,
            hash,
            options,
            staged,
            pieces,
            ..
        } = &reservation;
        let part = match staged {
            Some(bytes) => Part::Bytes(bytes),
            None => Part::Pieces(pieces),
        };
        let outcome = self.store_parts(key, *hash, &[part], options, now);
        if matches!(outcome, SetOutcome::Stored(_)) {
            for piece in std::mem::take(&mut reservation.pieces) {
                self.store.segments.unpin(piece);
            }
            self.pace(reservation.value_bytes, now);
        }
        outcome
    }
}

impl Reservation {
    /// The next stretch to fill, at most 128 KiB and never longer than what is missing; empty when complete, or
    /// when no memory can be had now (then `is_complete` is false and the upload should be closed).
    ///
    /// The worker is needed because room for the next piece may have to be won by eviction.
    pub fn space(&mut self, worker: &Worker, now: Seconds) -> &mut [u8] {
        if self.staged.is_none() && self.rest.is_none() && !self.is_complete() {
            self.rest = self.next_piece(worker, now);
            if self.rest.is_none() {
                self.store.uploads.note_wait(self.id);
            }
        }
        match (&mut self.staged, self.rest) {
            (Some(staged), _) => staged.get_mut(self.filled..).unwrap_or_default(),
            (None, Some((at, bytes))) => self.store.arena().space(at, bytes),
            (None, None) => &mut [],
        }
    }

    fn next_piece(&mut self, worker: &Worker, now: Seconds) -> Option<(Addr, usize)> {
        let wanted = (self.value_bytes - self.filled).min(PIECE_BYTES_MAX);
        if !worker.begin(now)
            || self.store.uploads.bytes() + wanted as u64 > self.store.upload_bytes_max()
        {
            return None;
        }
        let mut tries = 0;
        let (piece, bytes) = loop {
            let placed = worker.with_room(now, |refill| {
                worker
                    .logs
                    .place_piece(&self.store, Log::Upload, self.hash, wanted, now, refill)
            });
            match placed {
                Some(placed) => break placed,
                None if worker.may_retry(&mut tries) => {}
                None => return None,
            }
        };
        self.pieces.push(piece);
        self.store.uploads.charge(self.id, bytes as u64, now);
        worker.pace(bytes, now);
        let data = piece.plus(PIECE_HEADER);
        // The kernel copies into lines that are on their way a quarter faster than into those it has to ask for
        // one after the other.
        self.store.arena().prefetch_all(data, bytes);
        Some((data, bytes))
    }

    /// Says that `bytes` of `space` were written.
    pub fn advance(&mut self, bytes: usize) {
        let bytes = bytes.min(self.value_bytes - self.filled);
        self.filled += bytes;
        self.rest = match self.rest {
            Some((at, left)) if left > bytes => Some((at.plus(bytes), left - bytes)),
            _ => None,
        };
    }

    /// Whether every byte is there.
    pub fn is_complete(&self) -> bool {
        self.filled == self.value_bytes
    }

    /// How many bytes are still to come.
    pub fn missing_bytes(&self) -> u32 {
        (self.value_bytes - self.filled) as u32
    }

    /// Its name, as [`Store::idlest_upload`] gives it.
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
                .unlive(piece, piece_bytes(self.store.piece_data_bytes(piece)));
            self.store.segments.unpin(piece);
        }
    }
}
