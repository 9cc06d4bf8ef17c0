//! Writing: every change of an item is a new copy, published in place of the one it was decided upon.
//!
//! An operation looks (without a lock), decides, writes the new copy into the worker's open segment, then
//! locks the bucket and publishes it only if the key's slot still names the item it looked at; else it takes
//! the copy back and starts again. So `add`, `cas`, `incr`, `append` and a moving sweep all obey one rule, and
//! nothing is decided before the moment of publication.

use crate::attempts::Attempts;
use crate::counters::Count;
use crate::item::bits;
use crate::log::Unique;
use crate::lookup::Located;
use crate::memory::Addr;
use crate::request::{
    CasUnique, Expiry, KeyHash, NoRoomYet, Seconds, SetMode, SetOptions, SetOutcome,
};
use crate::room::Shortage;
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
    /// No segment for it.
    NoRoom(Shortage),
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

/// What a plain write decides about the copy beside its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overwrite {
    expiry: Expiry,
    marks: u16,
    keeps: u16,
}

impl Overwrite {
    fn plain(expiry: Expiry) -> Self {
        Overwrite {
            expiry,
            marks: 0,
            keeps: 0,
        }
    }
}

impl Worker {
    /// As [`Worker::try_set`], but refused where that would have to wait.
    pub fn set(
        &self,
        key: &[u8],
        hash: KeyHash,
        value: &[u8],
        options: &SetOptions,
        now: Seconds,
    ) -> SetOutcome {
        self.try_set(key, hash, value, options, now)
            .unwrap_or_else(|NoRoomYet| self.refuse_set(key, hash, options))
    }

    /// A write whose value is at hand; meant for values below 64 KiB, larger ones are uploaded in pieces.
    pub fn try_set(
        &self,
        key: &[u8],
        hash: KeyHash,
        value: &[u8],
        options: &SetOptions,
        now: Seconds,
    ) -> Result<SetOutcome, NoRoomYet> {
        if !self.begin(now) {
            return Ok(SetOutcome::NoMemory);
        }
        if self.store.is_too_large(key, value.len(), options.flags) {
            self.drop_for(key, hash, options);
            return Ok(SetOutcome::TooLarge);
        }
        self.store_parts(key, hash, &[Part::Bytes(value)], options, now)
    }

    /// Ends a write for which there was no segment in time.
    pub(crate) fn refuse_set(&self, key: &[u8], hash: KeyHash, options: &SetOptions) -> SetOutcome {
        self.count(Count::Refused, 1);
        self.drop_for(key, hash, options);
        SetOutcome::NoMemory
    }

    /// Decides and publishes a write of whatever kind.
    pub(crate) fn store_parts(
        &self,
        key: &[u8],
        hash: KeyHash,
        value: &[Part<'_>],
        options: &SetOptions,
        now: Seconds,
    ) -> Result<SetOutcome, NoRoomYet> {
        let mut attempts = Attempts::default();
        loop {
            let found = self.look(key, hash, &attempts, now);
            let swap = match (options.mode, found.alive()) {
                (SetMode::Add, Some(old)) => {
                    self.note_use(key, hash, &old, now);
                    return Ok(SetOutcome::NotStored);
                }
                (SetMode::Append | SetMode::Prepend, Some(old)) => {
                    match self.extend(key, hash, &found, &old, value, options, now) {
                        Err(outcome) => return Ok(outcome),
                        Ok(swap) => swap,
                    }
                }
                (SetMode::Append | SetMode::Prepend, None) => match options.vivify {
                    Some(expiry) => {
                        let plain = Overwrite::plain(expiry);
                        self.overwrite(key, hash, &found, value, options, plain, now)
                    }
                    None => return Ok(SetOutcome::NotStored),
                },
                (SetMode::Set | SetMode::Replace, Some(old)) => match self.compare(&old, options) {
                    Err(outcome) => return Ok(outcome),
                    Ok(copy) => self.overwrite(key, hash, &found, value, options, copy, now),
                },
                (SetMode::Set | SetMode::Replace, None) if options.compare.is_some() => {
                    return Ok(SetOutcome::NotFound);
                }
                (SetMode::Replace, None) => return Ok(SetOutcome::NotStored),
                (SetMode::Set | SetMode::Add, None) => {
                    let plain = Overwrite::plain(options.expiry);
                    self.overwrite(key, hash, &found, value, options, plain, now)
                }
            };
            match swap {
                Swap::Done { unique, .. } => return Ok(SetOutcome::Stored(unique)),
                Swap::NoRoom(shortage) if self.may_retry(shortage, &mut attempts) => {}
                Swap::NoRoom(Shortage::Passing) => return Err(NoRoomYet),
                Swap::Changed if attempts.may_look_again() => {}
                Swap::NoRoom(Shortage::Lasting) | Swap::Changed => {
                    return Ok(self.refuse_set(key, hash, options));
                }
            }
        }
    }

    /// The CAS decision of `cas`, `ms C` and `ms C I`.
    pub(crate) fn compare(
        &self,
        old: &Located,
        options: &SetOptions,
    ) -> Result<Overwrite, SetOutcome> {
        let present = self.store.unique_of(old);
        match options.compare {
            Some(CasUnique(wanted)) if wanted != present => {
                if !(options.invalidate && wanted < present) {
                    return Err(SetOutcome::Exists);
                }
                // An older unique with `I` stores, marks stale, and leaves expiry and a sent win as they are; the
                // win as it is at the moment of publication, for it may be sent until then.
                Ok(Overwrite {
                    expiry: old.header.expiry,
                    marks: bits::STALE,
                    keeps: bits::WIN,
                })
            }
            _ => Ok(Overwrite::plain(options.expiry)),
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one decision, taken in one place"
    )]
    pub(crate) fn overwrite(
        &self,
        key: &[u8],
        hash: KeyHash,
        found: &Found,
        parts: &[Part<'_>],
        options: &SetOptions,
        copy: Overwrite,
        now: Seconds,
    ) -> Swap {
        let unique = options
            .new_unique
            .map_or(self.above(found), |unique| Unique::Exactly(unique.0));
        let new = New {
            flags: options.flags,
            expiry: copy.expiry,
            unique,
            marks: copy.marks | bits::told(options.is_untold),
            keeps: copy.keeps,
            access: now,
            parts,
            is_growing: false,
        };
        self.swap(key, hash, found, &new, now)
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
            marks: bits::told(options.is_untold),
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
    pub(crate) fn look(
        &self,
        key: &[u8],
        hash: KeyHash,
        attempts: &Attempts,
        now: Seconds,
    ) -> Found {
        let hit = if attempts.want_lock() {
            self.store.find_locked(key, hash)
        } else {
            self.store.find(key, hash)
        };
        let present = hit.map(|hit| self.store.locate(hit.entry.item()));
        Found {
            present,
            is_alive: present.is_some_and(|item| self.store.is_alive(&item, now)),
        }
    }
}
