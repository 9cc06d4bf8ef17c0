//! Writing: every change of an item is a new copy, published in place of the one it was decided upon.
//!
//! An operation looks the key up (without a lock), decides, writes the new copy into the worker's open segment,
//! then locks the bucket and publishes it only if the key's slot still names the item that it found; otherwise it
//! removes the copy and restarts. So `add`, `cas`, `incr`, `append` and a moving sweep all follow one rule, and
//! nothing is decided before the moment of publication. The decisions of each operation are in `set`, `arith`,
//! `delete` and `fetch`.

use crate::append::{Body, Draft, Log, Unique};
use crate::chain::{Chain, Part};
use crate::counters::Count;
use crate::item::HEADER_MAX;
use crate::lookup::Located;
use crate::memory::Addr;
use crate::publish::Publication;
use crate::request::{CasUnique, Expiry, KeyHash, NoRoomYet, Seconds};
use crate::retry_limits::Attempts;
use crate::room::{Room, Shortage};
use crate::segments::Queue;
use crate::store::Store;

/// The item under a key at the moment of the lookup.
#[derive(Clone, Copy, Default)]
pub(crate) struct FoundItem {
    /// The item in the key's slot, dead or alive.
    pub(crate) present: Option<Located>,
    /// Whether it is alive.
    pub(crate) is_alive: bool,
}

impl FoundItem {
    /// The item, if it is alive.
    pub(crate) fn alive(&self) -> Option<Located> {
        self.present.filter(|_| self.is_alive)
    }
}

/// A new copy of an item.
pub(crate) struct New<'a> {
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    pub(crate) unique: Unique,
    /// Marks of the new copy.
    pub(crate) state_bits: u16,
    /// Marks that it takes over from the old copy, as they are at the moment of publication.
    pub(crate) inherited_bits: u16,
    pub(crate) access: Seconds,
    pub(crate) parts: &'a [Part<'a>],
    /// Prefer pieces to one record, because the value will grow.
    pub(crate) is_growing: bool,
}

/// What a rewritten copy has that the old one had not.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    pub(crate) expiry: Expiry,
    pub(crate) unique: Unique,
    pub(crate) state_bits: u16,
    pub(crate) inherited_bits: u16,
    /// Whether this is an access.
    pub(crate) is_use: bool,
}

/// A copy that was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) unique: CasUnique,
    /// Its address.
    pub(crate) addr: Addr,
}

/// Why a copy was not published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryReason {
    /// Another thread was faster: look again.
    Changed,
    /// There is no segment for it.
    NoRoom(Shortage),
}

impl From<Shortage> for RetryReason {
    fn from(shortage: Shortage) -> Self {
        RetryReason::NoRoom(shortage)
    }
}

/// One operation on one key: the item that it found, and how it publishes a new copy.
pub(crate) struct Write<'w> {
    pub(crate) room: Room<'w>,
    pub(crate) key: &'w [u8],
    pub(crate) hash: KeyHash,
    pub(crate) found: FoundItem,
    attempts: Attempts,
}

impl<'w> Write<'w> {
    #[inline]
    pub(crate) fn new(room: Room<'w>, key: &'w [u8], hash: KeyHash) -> Self {
        Write {
            room,
            key,
            hash,
            found: FoundItem::default(),
            attempts: Attempts::default(),
        }
    }

    #[inline]
    pub(crate) fn store(&self) -> &Store {
        self.room.store()
    }

    pub(crate) fn now(&self) -> Seconds {
        self.room.context.now
    }

    /// Looks the key up and lets `attempt` decide and publish, repeatedly while others are faster. If no segment is
    /// available in the end `refuse` decides the outcome of the operation, unless there will be one soon.
    #[inline]
    pub(crate) fn run<T>(
        &mut self,
        attempt: impl Fn(&Self) -> Result<T, RetryReason>,
        refuse: impl FnOnce(&Self, RetryReason) -> T,
    ) -> Result<T, NoRoomYet> {
        loop {
            self.look_up();
            let reason = match attempt(self) {
                Ok(result) => return Ok(result),
                Err(reason) => reason,
            };
            let may_continue = match reason {
                RetryReason::Changed => self.attempts.may_retry(),
                RetryReason::NoRoom(shortage) => self.room.may_retry(shortage, &mut self.attempts),
            };
            if !may_continue {
                return match reason {
                    RetryReason::NoRoom(Shortage::Temporary) => Err(NoRoomYet),
                    reason => Ok(refuse(self, reason)),
                };
            }
        }
    }

    /// Finds the key's slot without recording anything.
    #[inline]
    pub(crate) fn look_up(&mut self) {
        let store = self.room.store();
        let hit = if self.attempts.should_lock() {
            store.find_locked(self.key, self.hash)
        } else {
            store.find(self.key, self.hash)
        };
        let present = hit.map(|hit| store.locate(hit.entry.item()));
        self.found = FoundItem {
            present,
            is_alive: present.is_some_and(|item| store.is_alive(&item, self.room.context.now)),
        };
    }

    /// The unique of a new write over the found item: the `chosen` one, or a larger one.
    pub(crate) fn unique(&self, chosen: Option<CasUnique>) -> Unique {
        match chosen {
            Some(unique) => Unique::Exactly(unique.0),
            None => Unique::Above(
                self.found
                    .present
                    .map_or(0, |old| self.store().unique_of(&old)),
            ),
        }
    }

    /// Removes an item that was found dead, and counts the miss.
    pub(crate) fn remove_dead(&self) {
        if let Some(dead) = self.found.present.filter(|_| !self.found.is_alive) {
            self.room.context.accounts.remove_dead(self.hash, &dead);
        }
    }

    /// Writes a new copy and publishes it in place of the found item.
    pub(crate) fn publish(&self, new: &New<'_>) -> Result<Stored, RetryReason> {
        let context = self.room.context;
        let log = self.choose_log(new.expiry);
        let value_bytes: usize = new.parts.iter().map(|part| part.len(self.store())).sum();
        let mut chain = Chain::new(self.room, self.hash, log);
        let one_slice: [&[u8]; 1];
        let value_slices: Vec<&[u8]>;
        let body = match new.parts {
            [Part::Bytes(bytes)] if self.fits_inline(value_bytes, log, new) => {
                one_slice = [*bytes];
                Body::Inline(&one_slice)
            }
            parts if self.fits_inline(value_bytes, log, new) => {
                let slices = parts.iter().filter_map(|part| match part {
                    Part::Bytes(bytes) => Some(*bytes),
                    Part::Pieces(_) => None,
                });
                value_slices = slices.collect();
                Body::Inline(&value_slices)
            }
            parts => {
                chain.add(parts)?;
                Body::Chain {
                    value_bytes: value_bytes as u32,
                    pieces: chain.pieces(),
                }
            }
        };
        let draft = Draft {
            key: self.key,
            flags: new.flags,
            expiry: new.expiry,
            unique: new.unique,
            state_bits: new.state_bits,
            access: new.access,
            body,
        };
        let is_uploaded = matches!(body, Body::Chain { .. }) && chain.has_no_own_pieces();
        let log = if is_uploaded { log.of_head() } else { log };
        let appended = self.room.append(log, &draft)?;
        let publication = Publication {
            key: self.key,
            hash: self.hash,
            expected: self.found.present.map(|old| old.addr),
            new: appended.addr,
            frequency: None,
            inherited_bits: new.inherited_bits,
            depends_on_expected: self.found.is_alive,
            has_new_unique: false,
        };
        if !publication.publish(context) {
            context.appender.undo(&appended);
            return Err(RetryReason::Changed);
        }
        chain.note_published();
        let (old, was_alive) = (self.found.present.as_ref(), self.found.is_alive);
        context
            .accounts
            .note_replaced(old, was_alive, appended.addr, chain.pieces());
        self.room.pace(appended.bytes + chain.own_bytes());
        Ok(Stored {
            unique: CasUnique(appended.unique),
            addr: appended.addr,
        })
    }

    /// Publishes a new copy of a living item with the same value.
    pub(crate) fn rewrite(&self, old: &Located, change: Change) -> Result<Stored, RetryReason> {
        let store = self.store();
        let pieces: Vec<Addr> = store.pieces_of(old).collect();
        let parts = [Part::Bytes(store.inline_value(old)), Part::Pieces(&pieces)];
        let access = if change.is_use {
            self.now()
        } else {
            Store::access_of(old, store.state_word_of(old.addr))
        };
        self.publish(&New {
            flags: old.header.flags,
            expiry: change.expiry,
            unique: change.unique,
            state_bits: change.state_bits,
            inherited_bits: change.inherited_bits,
            access,
            parts: &parts,
            is_growing: false,
        })
    }

    /// Whether the value is inside the item itself: always when small, else if the open segment has enough bytes
    /// left.
    fn fits_inline(&self, value_bytes: usize, log: Log, new: &New<'_>) -> bool {
        let bytes = HEADER_MAX + self.key.len() + value_bytes;
        let has_pieces = new
            .parts
            .iter()
            .any(|part| matches!(part, Part::Pieces(pieces) if !pieces.is_empty()));
        !has_pieces
            && (bytes <= self.store().inline_max()
                || (!new.is_growing && bytes < self.room.context.appender.open_bytes_left(log)))
    }

    /// An overwrite stays in the queue of the old copy; the policy chooses the queue of a new item.
    fn choose_log(&self, expiry: Expiry) -> Log {
        let store = self.store();
        let queue = if let Some(old) = self.found.present {
            store.queue_of(old.addr)
        } else {
            let is_remembered = store.ghost.recall(self.hash);
            let accounts = self.room.context.accounts;
            accounts.count(Count::GhostHits, i64::from(is_remembered));
            store.policy.queue_of_new_item(is_remembered)
        };
        match queue {
            Queue::Main => Log::Main,
            Queue::Small => Log::of(expiry, self.now()),
        }
    }
}
