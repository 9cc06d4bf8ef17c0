//! Writing: every change of an item is a new copy, published in place of the one it was decided upon.
//!
//! An operation looks (without a lock), decides, writes the new copy into the worker's open segment, then
//! locks the bucket and publishes it only if the key's slot still names the item it looked at; else it takes
//! the copy back and starts again. So `add`, `cas`, `incr`, `append` and a moving sweep all obey one rule, and
//! nothing is decided before the moment of publication.

use std::sync::atomic::Ordering;

use crate::counters::Count;
use crate::index::Entry;
use crate::item::{PIECE_HEADER, bits, piece_bytes};
use crate::log::{Body, Draft, Log, Unique};
use crate::lookup::Located;
use crate::memory::Addr;
use crate::request::{CasUnique, Expiry, KeyHash, Seconds, SetMode, SetOptions, SetOutcome};
use crate::segments::Queue;
use crate::{Store, Worker};

/// Appending to a chain rewrites its last piece while that is shorter than this, so that a key appended to in
/// a loop has few pieces and each append copies little.
const APPEND_PIECE_BYTES: usize = 8 << 10;

/// What stands under a key at the moment of looking.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    /// The item in the key's slot, dead or alive.
    pub(crate) present: Option<Located>,
    /// Whether it counts.
    pub(crate) is_alive: bool,
}

impl Found {
    /// The item, if it is alive.
    pub(crate) fn alive(&self) -> Option<Located> {
        self.present.filter(|_| self.is_alive)
    }
}

/// A stretch of a new value.
#[derive(Clone, Copy)]
pub(crate) enum Part<'a> {
    /// Bytes to copy.
    Bytes(&'a [u8]),
    /// Pieces to take over as they are.
    Pieces(&'a [Addr]),
}

/// A new copy of an item.
pub(crate) struct New<'a> {
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    pub(crate) unique: Unique,
    /// Marks that the new copy starts with.
    pub(crate) marks: u16,
    /// Marks that it takes over from the old copy, as they are at the moment of publication.
    pub(crate) keeps: u16,
    pub(crate) access: Seconds,
    pub(crate) parts: &'a [Part<'a>],
    /// Prefer pieces to one stretch, since the value will grow.
    pub(crate) is_growing: bool,
}

/// What became of an attempt to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swap {
    /// Visible.
    Done {
        /// Its unique.
        unique: CasUnique,
        /// Where it lies.
        at: Addr,
    },
    /// Somebody was faster: look again.
    Changed,
    /// No memory.
    NoMemory,
}

/// What a publication replaces.
pub(crate) struct Publication<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) hash: KeyHash,
    /// The item that the slot must name; `None`: the key must have no slot.
    pub(crate) expected: Option<Addr>,
    pub(crate) new: Addr,
    /// `None` inherits.
    pub(crate) frequency: Option<u8>,
    pub(crate) keeps: u16,
}

impl Worker {
    /// A write whose value is at hand; meant for values below 64 KiB, larger ones are uploaded in pieces.
    pub fn set(
        &self,
        key: &[u8],
        hash: KeyHash,
        value: &[u8],
        options: &SetOptions,
        now: Seconds,
    ) -> SetOutcome {
        if !self.begin(now) {
            return SetOutcome::NoMemory;
        }
        if self.store.is_too_large(key, value.len(), options.flags) {
            self.drop_for(key, hash, options, now);
            return SetOutcome::TooLarge;
        }
        self.store_parts(key, hash, &[Part::Bytes(value)], options, now)
    }

    /// Decides and publishes a write of whatever kind.
    pub(crate) fn store_parts(
        &self,
        key: &[u8],
        hash: KeyHash,
        value: &[Part<'_>],
        options: &SetOptions,
        now: Seconds,
    ) -> SetOutcome {
        let mut tries = 0;
        loop {
            let found = self.look(key, hash, now);
            let outcome = match (options.mode, found.alive()) {
                (SetMode::Add, Some(old)) => {
                    self.note_use(key, hash, &old, now);
                    return SetOutcome::NotStored;
                }
                (SetMode::Append | SetMode::Prepend, Some(old)) => {
                    self.extend(key, hash, &found, &old, value, options, now)
                }
                (SetMode::Append | SetMode::Prepend, None) => match options.vivify {
                    Some(expiry) => {
                        self.overwrite(key, hash, &found, value, options, expiry, 0, now)
                    }
                    None => return SetOutcome::NotStored,
                },
                (SetMode::Set | SetMode::Replace, Some(old)) => match self.compare(&old, options) {
                    Err(outcome) => return outcome,
                    Ok((expiry, marks)) => {
                        self.overwrite(key, hash, &found, value, options, expiry, marks, now)
                    }
                },
                (SetMode::Set | SetMode::Replace, None) if options.compare.is_some() => {
                    return SetOutcome::NotFound;
                }
                (SetMode::Replace, None) => return SetOutcome::NotStored,
                (SetMode::Set | SetMode::Add, None) => {
                    self.overwrite(key, hash, &found, value, options, options.expiry, 0, now)
                }
            };
            match outcome {
                Err(outcome) => return outcome,
                Ok(Swap::Done { unique, .. }) => return SetOutcome::Stored(unique),
                Ok(Swap::NoMemory) if self.may_retry(&mut tries) => {}
                Ok(Swap::NoMemory) => {
                    self.drop_for(key, hash, options, now);
                    return SetOutcome::NoMemory;
                }
                Ok(Swap::Changed) => {}
            }
        }
    }

    /// The CAS decision of `cas`, `ms C` and `ms C I`: expiry and marks of the new copy.
    fn compare(&self, old: &Located, options: &SetOptions) -> Result<(Expiry, u16), SetOutcome> {
        let present = self.store.unique_of(old);
        match options.compare {
            Some(CasUnique(wanted)) if wanted != present => {
                if !(options.invalidate && wanted < present) {
                    return Err(SetOutcome::Exists);
                }
                // An older unique with `I` stores, marks stale, and leaves expiry and a sent win as they are.
                let win = self.store.mutable_of(old.at) & bits::WIN;
                Ok((old.header.expiry, bits::STALE | win))
            }
            _ => Ok((options.expiry, 0)),
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one decision, taken in one place"
    )]
    fn overwrite(
        &self,
        key: &[u8],
        hash: KeyHash,
        found: &Found,
        parts: &[Part<'_>],
        options: &SetOptions,
        expiry: Expiry,
        marks: u16,
        now: Seconds,
    ) -> Result<Swap, SetOutcome> {
        let unique = options
            .new_unique
            .map_or(self.above(found), |unique| Unique::Exactly(unique.0));
        let new = New {
            flags: options.flags,
            expiry,
            unique,
            marks,
            keeps: 0,
            access: now,
            parts,
            is_growing: false,
        };
        Ok(self.swap(key, hash, found, &new, now))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one decision, taken in one place"
    )]
    fn extend(
        &self,
        key: &[u8],
        hash: KeyHash,
        found: &Found,
        old: &Located,
        value: &[Part<'_>],
        options: &SetOptions,
        now: Seconds,
    ) -> Result<Swap, SetOutcome> {
        if options
            .compare
            .is_some_and(|wanted| wanted.0 != self.store.unique_of(old))
        {
            return Err(SetOutcome::Exists);
        }
        let added: usize = value.iter().map(|part| self.part_bytes(part)).sum();
        let total = old.header.value_bytes as usize + added;
        if self.store.is_too_large(key, total, old.header.flags) {
            // memcached's word for an append that finds no room; the old value stays.
            return Err(SetOutcome::NotStored);
        }
        let all: Vec<Addr> = self.store.pieces_of(old).collect();
        let is_short =
            |piece: &&Addr| self.store.piece_data_bytes(**piece) < self.append_piece_bytes();
        let inline = Part::Bytes(self.store.inline_value(old));
        let data = |piece: Option<&Addr>| {
            Part::Bytes(piece.map_or(&[], |&piece| self.store.piece_data(piece)))
        };
        let parts: Vec<Part<'_>> = if options.mode == SetMode::Append {
            let last = all.last().filter(is_short);
            let kept = all
                .get(..all.len() - usize::from(last.is_some()))
                .unwrap_or_default();
            [inline, Part::Pieces(kept), data(last)]
                .iter()
                .chain(value)
                .copied()
                .collect()
        } else {
            let first = all.first().filter(is_short);
            let kept = all.get(usize::from(first.is_some())..).unwrap_or_default();
            value
                .iter()
                .chain(&[inline, data(first), Part::Pieces(kept)])
                .copied()
                .collect()
        };
        let new = New {
            flags: old.header.flags,
            expiry: old.header.expiry,
            unique: options
                .new_unique
                .map_or(self.above(found), |unique| Unique::Exactly(unique.0)),
            marks: 0,
            keeps: 0,
            access: now,
            parts: &parts,
            is_growing: true,
        };
        Ok(self.swap(key, hash, found, &new, now))
    }

    fn append_piece_bytes(&self) -> usize {
        APPEND_PIECE_BYTES.min(self.store.arena().segment_bytes() / 4)
    }

    /// A new copy of a living item with the same value.
    pub(crate) fn rewrite(
        &self,
        key: &[u8],
        hash: KeyHash,
        found: &Found,
        old: &Located,
        change: Change,
        now: Seconds,
    ) -> Swap {
        let pieces: Vec<Addr> = self.store.pieces_of(old).collect();
        let parts = [
            Part::Bytes(self.store.inline_value(old)),
            Part::Pieces(&pieces),
        ];
        let mutable = self.store.mutable_of(old.at);
        let access = if change.is_use {
            now
        } else {
            Store::access_of(old, mutable)
        };
        let new = New {
            flags: old.header.flags,
            expiry: change.expiry,
            unique: change.unique,
            marks: change.marks,
            keeps: change.keeps,
            access,
            parts: &parts,
            is_growing: false,
        };
        self.swap(key, hash, found, &new, now)
    }

    /// The unique of a new write over what was found.
    pub(crate) fn above(&self, found: &Found) -> Unique {
        Unique::Above(found.present.map_or(0, |old| self.store.unique_of(&old)))
    }

    /// Looks at the key's slot without recording anything.
    pub(crate) fn look(&self, key: &[u8], hash: KeyHash, now: Seconds) -> Found {
        let present = self
            .store
            .find(key, hash)
            .map(|hit| self.store.locate(hit.entry.item()));
        Found {
            present,
            is_alive: present.is_some_and(|item| self.store.is_alive(&item, now)),
        }
    }

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
                        if !self.add_pieces(&mut run, hash, log, &mut pieces, own, now) {
                            return Swap::NoMemory;
                        }
                        pieces.extend_from_slice(taken);
                    }
                }
            }
            if !self.add_pieces(&mut run, hash, log, &mut pieces, own, now) {
                return Swap::NoMemory;
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
        let Some(placed) = self.place(log, &draft, now) else {
            return Swap::NoMemory;
        };
        let expected = found.present.map(|old| old.at);
        let publication = Publication {
            key,
            hash,
            expected,
            new: placed.at,
            frequency: None,
            keeps: new.keeps,
        };
        if !self.publish(&publication, now) {
            self.logs.undo(&self.store, &placed);
            return Swap::Changed;
        }
        self.account_swap(found, placed.at, &pieces, now);
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
                || (!new.is_growing && bytes + 1 <= self.logs.rest(&self.store, log)))
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
    ) -> bool {
        let mut missing: usize = run.iter().map(|slice| slice.len()).sum();
        let mut slices = run.drain(..);
        let mut slice = slices.next().unwrap_or_default();
        while missing > 0 {
            let placed = self.with_room(now, |refill| {
                self.logs
                    .place_piece(&self.store, log, hash, missing, now, refill)
            });
            let Some((piece, piece_len)) = placed else {
                return false;
            };
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
        true
    }

    fn part_bytes(&self, part: &Part<'_>) -> usize {
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
        let queue = match found.present {
            Some(old) => self.store.queue_of(old.at),
            None => {
                let is_remembered = self.store.ghost.recall(hash);
                self.count(Count::GhostHits, i64::from(is_remembered));
                self.store.policy.enter(is_remembered)
            }
        };
        match queue {
            Queue::Main => Log::Main,
            Queue::Small => Log::of(expiry, now),
        }
    }

    /// Puts a new copy into the key's slot, if that still names what was expected.
    pub(crate) fn publish(&self, publication: &Publication<'_>, now: Seconds) -> bool {
        let Publication {
            key,
            hash,
            expected,
            new,
            frequency,
            keeps,
        } = *publication;
        let store = &*self.store;
        let mut bucket = store.index.lock(hash);
        let Some(expected) = expected else {
            if bucket.find(hash, |at| store.has_key(at, key)).is_some() {
                return false;
            }
            let entry = Entry::new(hash, frequency.unwrap_or(0), new);
            if bucket.insert(entry, store).is_err()
                && let Some(victim) = bucket.least_used()
            {
                bucket.replace(victim, entry);
                drop(bucket);
                self.displaced(victim.entry.item(), now);
            }
            return true;
        };
        let Some(place) = bucket.find(hash, |at| at == expected) else {
            return false;
        };
        if keeps != 0 {
            // Under the lock nobody wins or marks, so nothing is lost between the copies.
            let kept = store.mutable_of(expected) & keeps;
            store.arena().mutable(new).fetch_or(kept, Ordering::Relaxed);
        }
        bucket.replace(
            place,
            Entry::new(hash, frequency.unwrap_or(place.entry.frequency()), new),
        );
        true
    }

    /// The index had no room for a line: the least used item of the bucket went.
    #[cold]
    fn displaced(&self, at: Addr, now: Seconds) {
        let item = self.store.locate(at);
        self.count(Count::Displaced, 1);
        self.evicted(&item, now);
        self.forget(&item, &[]);
    }

    fn account_swap(&self, found: &Found, new: Addr, pieces: &[Addr], now: Seconds) {
        let new = self.store.locate(new);
        self.account(&new, 1);
        self.count(Count::ItemsTotal, 1);
        if let Some(old) = found.present {
            if !found.is_alive {
                self.expired(&old, now);
            }
            self.forget(&old, pieces);
        }
    }

    /// Counts an item in (1) or out (-1).
    pub(crate) fn account(&self, item: &Located, sign: i64) {
        let store = &*self.store;
        let pieces: usize = store
            .pieces_of(item)
            .map(|piece| piece_bytes(store.piece_data_bytes(piece)))
            .sum();
        if let Some(block) = self.block() {
            block.add(Count::Items, sign);
            block.add(Count::UserBytes, sign * Store::user_bytes(item) as i64);
            block.add(
                Count::ItemBytes,
                sign * (store.record_bytes(item) + pieces) as i64,
            );
            let peer = Store::peer_bytes(
                item.header.key_bytes,
                item.header.value_bytes as usize,
                item.header.flags,
            );
            block.add_class(store.slab_class(peer), sign, sign * peer as i64);
        }
        self.tell_items(sign);
    }

    /// Lets go of an item that no slot names any more; `shared` pieces live on in its successor.
    pub(crate) fn forget(&self, item: &Located, shared: &[Addr]) {
        self.account(item, -1);
        let store = &*self.store;
        if item.header.is_chained {
            let mut shared = shared.to_vec();
            shared.sort_unstable();
            for piece in store.pieces_of(item) {
                if shared.binary_search(&piece).is_err() {
                    store
                        .segments
                        .unlive(piece, piece_bytes(store.piece_data_bytes(piece)));
                }
            }
        }
        store.segments.unlive(item.at, store.record_bytes(item));
    }
}

/// What a rewritten copy has that the old one had not.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    pub(crate) expiry: Expiry,
    pub(crate) unique: Unique,
    pub(crate) marks: u16,
    pub(crate) keeps: u16,
    /// Whether this is an access.
    pub(crate) is_use: bool,
}
