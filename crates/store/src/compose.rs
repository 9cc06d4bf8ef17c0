//! Composing: from the parts of a new value to an item in the worker's log, inline or as a chain of pieces.
//!
//! What is written here is seen by nobody until `publish` names it; a copy that comes too late is taken back.

use crate::Worker;
use crate::counters::Count;
use crate::item::{PIECE_HEADER, piece_bytes};
use crate::log::{Body, Draft, Log};
use crate::memory::Addr;
use crate::publish::Publication;
use crate::request::{CasUnique, Expiry, KeyHash, Seconds};
use crate::room::Shortage;
use crate::segments::Queue;
use crate::write::{Found, New, Part, Swap};

impl Worker {
    /// Writes a new copy and puts it in the place of what was found.
    pub(crate) fn swap(
        &self,
        key: &[u8],
        hash: KeyHash,
        found: &Found,
        new: &New<'_>,
        now: Seconds,
    ) -> Swap {
        let log = self.choose_log(hash, found, new.expiry, now);
        let mut own = Vec::new();
        let swap = self.try_swap(key, hash, found, new, log, &mut own, now);
        for &piece in &own {
            if !matches!(swap, Swap::Done { .. }) {
                self.store
                    .segments
                    .unlive(piece, piece_bytes(self.store.piece_data_bytes(piece)));
            }
            self.store.segments.unpin(piece);
        }
        swap
    }

    #[expect(clippy::too_many_arguments, reason = "the second half of `swap`")]
    fn try_swap(
        &self,
        key: &[u8],
        hash: KeyHash,
        found: &Found,
        new: &New<'_>,
        log: Log,
        own: &mut Vec<Addr>,
        now: Seconds,
    ) -> Swap {
        let total: usize = new.parts.iter().map(|part| self.part_bytes(part)).sum();
        let (mut slices, mut pieces) = (Vec::new(), Vec::new());
        let one;
        let body = if let [Part::Bytes(bytes)] = new.parts
            && self.fits_inline(key, total, log, new)
        {
            one = [*bytes];
            Body::Inline(&one)
        } else if self.fits_inline(key, total, log, new) {
            slices.extend(new.parts.iter().filter_map(|part| match part {
                Part::Bytes(bytes) => Some(*bytes),
                Part::Pieces(_) => None,
            }));
            Body::Inline(&slices)
        } else {
            let mut run: Vec<&[u8]> = Vec::new();
            for part in new.parts {
                match part {
                    Part::Bytes(bytes) => run.push(bytes),
                    Part::Pieces([]) => {}
                    Part::Pieces(taken) => {
                        let added = self.add_pieces(&mut run, hash, log, &mut pieces, own, now);
                        if let Err(shortage) = added {
                            return Swap::NoRoom(shortage);
                        }
                        pieces.extend_from_slice(taken);
                    }
                }
            }
            if let Err(shortage) = self.add_pieces(&mut run, hash, log, &mut pieces, own, now) {
                return Swap::NoRoom(shortage);
            }
            Body::Chain {
                value_bytes: total as u32,
                pieces: &pieces,
            }
        };
        let draft = Draft {
            key,
            flags: new.flags,
            expiry: new.expiry,
            unique: new.unique,
            marks: new.marks,
            access: new.access,
            body,
        };
        let is_uploaded = matches!(body, Body::Chain { .. }) && own.is_empty();
        let log = if is_uploaded { log.of_head() } else { log };
        let placed = match self.place(log, &draft, now) {
            Ok(placed) => placed,
            Err(shortage) => return Swap::NoRoom(shortage),
        };
        let expected = found.present.map(|old| old.at);
        let publication = Publication {
            key,
            hash,
            expected,
            new: placed.at,
            frequency: None,
            keeps: new.keeps,
            is_of_expected: found.is_alive,
            is_renewed: false,
        };
        if !self.publish(&publication, now) {
            self.logs.undo(&self.store, &placed);
            return Swap::Changed;
        }
        self.account_swap(found, placed.at, &pieces);
        self.pace(
            placed.bytes
                + own
                    .iter()
                    .map(|&p| self.store.piece_data_bytes(p))
                    .sum::<usize>(),
            now,
        );
        Swap::Done {
            unique: CasUnique(placed.unique),
            at: placed.at,
        }
    }

    /// Whether the value lies in the item itself: always when small, else if the open segment has room.
    fn fits_inline(&self, key: &[u8], total: usize, log: Log, new: &New<'_>) -> bool {
        let bytes = crate::item::HEADER_MAX + key.len() + total;
        let has_pieces = new
            .parts
            .iter()
            .any(|part| matches!(part, Part::Pieces(pieces) if !pieces.is_empty()));
        !has_pieces
            && (bytes <= self.store.inline_max()
                || (!new.is_growing && bytes < self.logs.rest(&self.store, log)))
    }

    /// Writes a run of slices as new pieces of a chain, which are noted in `own` too, and empties the run.
    fn add_pieces(
        &self,
        run: &mut Vec<&[u8]>,
        hash: KeyHash,
        log: Log,
        pieces: &mut Vec<Addr>,
        own: &mut Vec<Addr>,
        now: Seconds,
    ) -> Result<(), Shortage> {
        let mut missing: usize = run.iter().map(|slice| slice.len()).sum();
        let mut slices = run.drain(..);
        let mut slice = slices.next().unwrap_or_default();
        while missing > 0 {
            let (piece, piece_len) = self.with_room(now, |refill| {
                self.logs
                    .place_piece(&self.store, log, hash, missing, now, refill)
            })?;
            own.push(piece);
            pieces.push(piece);
            let mut filled = 0;
            while filled < piece_len {
                let (copied, rest) = slice.split_at(slice.len().min(piece_len - filled));
                self.store
                    .arena()
                    .write(piece.plus(PIECE_HEADER + filled), copied);
                filled += copied.len();
                slice = if rest.is_empty() {
                    slices.next().unwrap_or_default()
                } else {
                    rest
                };
            }
            missing -= piece_len;
        }
        Ok(())
    }

    pub(crate) fn part_bytes(&self, part: &Part<'_>) -> usize {
        match part {
            Part::Bytes(bytes) => bytes.len(),
            Part::Pieces(pieces) => pieces
                .iter()
                .map(|&piece| self.store.piece_data_bytes(piece))
                .sum(),
        }
    }

    /// An overwrite stays in the queue of the old copy; a newcomer enters where the policy says.
    fn choose_log(&self, hash: KeyHash, found: &Found, expiry: Expiry, now: Seconds) -> Log {
        let queue = if let Some(old) = found.present {
            self.store.queue_of(old.at)
        } else {
            let is_remembered = self.store.ghost.recall(hash);
            self.count(Count::GhostHits, i64::from(is_remembered));
            self.store.policy.enter(is_remembered)
        };
        match queue {
            Queue::Main => Log::Main,
            Queue::Small => Log::of(expiry, now),
        }
    }
}
