//! Writing: every change of an item is a new copy, published in place of the one it was decided upon.
//!
//! An operation looks the key up (without a lock), decides, writes the new copy into the worker's open segment,
//! then locks the bucket and publishes it only if the key's slot still names the item that it found; otherwise it
//! removes the copy and restarts. So `add`, `cas`, `incr`, `append` and a moving sweep all follow one rule, and
//! nothing is decided before the moment of publication. The decisions of each operation are in `set`, `arith`,
//! `delete` and `get_and_update`.

use crate::chain::{Chain, ValuePart};
use crate::counters::CounterId;
use crate::item::{HEADER_BYTES_MAX, bits};
use crate::lookup::LocatedItem;
use crate::memory::Addr;
use crate::open_segments::{NewRecord, RecordBody, SegmentKind, UniqueSource};
use crate::publish::Publication;
use crate::record_allocator::{RecordAllocator, Shortage};
use crate::request::{CasUnique, Expiry, KeyHash, NoRoomYet, Seconds};
use crate::retry_limits::Attempts;
use crate::sampling::{EventKind, Operation};
use crate::segments::Queue;
use crate::store::Store;

/// The item under a key at the moment of the lookup.
#[derive(Clone, Copy, Default)]
pub(crate) struct FoundItem {
    /// The item in the key's slot, dead or alive.
    pub(crate) present: Option<LocatedItem>,
    /// Whether it is alive.
    pub(crate) is_alive: bool,
}

impl FoundItem {
    /// The item, if it is alive.
    pub(crate) fn live_item(&self) -> Option<LocatedItem> {
        self.present.filter(|_| self.is_alive)
    }
}

/// A new copy of an item.
pub(crate) struct NewCopy<'a> {
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    pub(crate) unique_source: UniqueSource,
    /// Marks of the new copy.
    pub(crate) state_bits: u16,
    /// Marks that it takes over from the old copy, as they are at the moment of publication.
    pub(crate) inherited_bits: u16,
    pub(crate) last_access: Seconds,
    pub(crate) parts: &'a [ValuePart<'a>],
    /// Prefer pieces to one record, because the value will grow.
    pub(crate) is_growing: bool,
    /// The copy only changes the found item (its expiry, its marks, its number): it is not another stored item.
    pub(crate) is_same_item: bool,
}

/// How a rewritten copy differs from the old one.
#[derive(Clone, Copy)]
pub(crate) struct CopyChanges {
    pub(crate) expiry: Expiry,
    pub(crate) unique_source: UniqueSource,
    pub(crate) state_bits: u16,
    pub(crate) inherited_bits: u16,
    /// Whether this is an access.
    pub(crate) counts_as_access: bool,
}

/// A copy that was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PublishedCopy {
    pub(crate) unique: CasUnique,
    /// Its address.
    pub(crate) addr: Addr,
}

/// Why a copy was not published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryReason {
    /// Another thread was faster: the key has to be looked up again.
    Changed,
    /// No segment is free for it.
    NoRoom(Shortage),
}

impl From<Shortage> for RetryReason {
    fn from(shortage: Shortage) -> Self {
        RetryReason::NoRoom(shortage)
    }
}

/// One operation on one key: the item that it found, and how it publishes a new copy.
pub(crate) struct WriteOperation<'w> {
    pub(crate) allocator: RecordAllocator<'w>,
    pub(crate) key: &'w [u8],
    pub(crate) hash: KeyHash,
    pub(crate) found: FoundItem,
    attempts: Attempts,
}

impl<'w> WriteOperation<'w> {
    #[inline]
    pub(crate) fn new(allocator: RecordAllocator<'w>, key: &'w [u8], hash: KeyHash) -> Self {
        WriteOperation {
            allocator,
            key,
            hash,
            found: FoundItem::default(),
            attempts: Attempts::default(),
        }
    }

    #[inline]
    pub(crate) fn store(&self) -> &Store {
        self.allocator.store()
    }

    pub(crate) fn now(&self) -> Seconds {
        self.allocator.context.now
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
                RetryReason::Changed => self.attempts.count_lost_race(),
                RetryReason::NoRoom(shortage) => {
                    self.allocator.prepare_retry(shortage, &mut self.attempts)
                }
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
        let store = self.allocator.store();
        let hit = if self.attempts.should_lock() {
            store.find_locked(self.key, self.hash)
        } else {
            store.find(self.key, self.hash)
        };
        let present = hit.map(|hit| store.locate(hit.entry.item_addr()));
        self.found = FoundItem {
            present,
            is_alive: present.is_some_and(|item| store.is_alive(&item, self.allocator.context.now)),
        };
    }

    /// The unique of a new write over the found item: the `chosen` one, or a larger one.
    pub(crate) fn unique_source(&self, chosen: Option<CasUnique>) -> UniqueSource {
        match chosen {
            Some(unique) => UniqueSource::Exactly(unique.0),
            None => UniqueSource::Above(
                self.found.present.map_or(0, |old| self.store().unique_of(&old)),
            ),
        }
    }

    /// Removes an item that was found dead, and counts the miss.
    pub(crate) fn remove_dead(&self) {
        if let Some(dead) = self.found.present.filter(|_| !self.found.is_alive) {
            self.allocator.context.accounting.remove_dead(self.hash, &dead);
        }
    }

    /// Writes a new copy and publishes it in place of the found item.
    pub(crate) fn publish(&self, new_copy: &NewCopy<'_>) -> Result<PublishedCopy, RetryReason> {
        let context = self.allocator.context;
        let segment_kind = self.choose_segment_kind(new_copy.expiry);
        let value_bytes: usize = new_copy.parts.iter().map(|part| part.len(self.store())).sum();
        let mut chain = Chain::new(self.allocator, self.hash, segment_kind);
        let one_slice: [&[u8]; 1];
        let value_slices: Vec<&[u8]>;
        let body = match new_copy.parts {
            [ValuePart::Bytes(bytes)] if self.fits_inline(value_bytes, segment_kind, new_copy) => {
                one_slice = [*bytes];
                RecordBody::Inline(&one_slice)
            }
            parts if self.fits_inline(value_bytes, segment_kind, new_copy) => {
                let slices = parts.iter().filter_map(|part| match part {
                    ValuePart::Bytes(bytes) => Some(*bytes),
                    ValuePart::Pieces(_) => None,
                });
                value_slices = slices.collect();
                RecordBody::Inline(&value_slices)
            }
            parts => {
                chain.append_parts(parts)?;
                RecordBody::Chain { value_bytes: value_bytes as u32, pieces: chain.pieces() }
            }
        };
        let new_record = NewRecord {
            key: self.key,
            flags: new_copy.flags,
            expiry: new_copy.expiry,
            unique_source: new_copy.unique_source,
            state_bits: new_copy.state_bits,
            last_access: new_copy.last_access,
            body,
        };
        let is_uploaded = matches!(body, RecordBody::Chain { .. }) && chain.reuses_all_pieces();
        let record_kind = if is_uploaded { segment_kind.for_chain_head() } else { segment_kind };
        let appended = self.allocator.append(record_kind, &new_record)?;
        let publication = Publication {
            key: self.key,
            hash: self.hash,
            expected_addr: self.found.present.map(|old| old.addr),
            new_addr: appended.addr,
            frequency: None,
            inherited_bits: new_copy.inherited_bits,
            only_if_expected_unflushed: self.found.is_alive,
            has_new_unique: false,
        };
        if !publication.publish(context) {
            context.appender.undo_append(&appended);
            return Err(RetryReason::Changed);
        }
        chain.mark_published();
        let (old, was_alive) = (self.found.present.as_ref(), self.found.is_alive);
        context.accounting.count_publication(old, was_alive, appended.addr, chain.pieces());
        context.accounting.count(CounterId::ItemsTotal, i64::from(!new_copy.is_same_item));
        self.sample(new_copy, value_bytes);
        self.allocator.sweep_proportionally(appended.bytes + chain.new_piece_bytes());
        Ok(PublishedCopy { unique: CasUnique(appended.unique), addr: appended.addr })
    }

    /// Reports a write, if it is sampled; not an empty item that only marks who fills it.
    #[inline]
    fn sample(&self, new_copy: &NewCopy<'_>, value_bytes: usize) {
        if new_copy.state_bits & bits::WIN != 0 {
            return;
        }
        self.allocator.context.accounting.sample(self.hash, || Operation {
            key: self.key,
            hash: self.hash,
            kind: if new_copy.is_same_item { EventKind::Touch } else { EventKind::Set },
            value_bytes,
            expiry: new_copy.expiry,
            now: self.now(),
        });
    }

    /// Publishes a new copy of a living item with the same value.
    pub(crate) fn rewrite(
        &self,
        old: &LocatedItem,
        changes: CopyChanges,
    ) -> Result<PublishedCopy, RetryReason> {
        let store = self.store();
        let pieces: Vec<Addr> = store.pieces_of(old).collect();
        let value_parts = [ValuePart::Bytes(store.inline_value(old)), ValuePart::Pieces(&pieces)];
        let access = if changes.counts_as_access {
            self.now()
        } else {
            Store::access_of(old, store.state_word_of(old.addr))
        };
        self.publish(&NewCopy {
            flags: old.header.flags,
            expiry: changes.expiry,
            unique_source: changes.unique_source,
            state_bits: changes.state_bits,
            inherited_bits: changes.inherited_bits,
            last_access: access,
            parts: &value_parts,
            is_growing: false,
            is_same_item: true,
        })
    }

    /// Whether the value is inside the item itself: always when small, else if the open segment has enough bytes
    /// left.
    fn fits_inline(
        &self,
        value_bytes: usize,
        segment_kind: SegmentKind,
        new_copy: &NewCopy<'_>,
    ) -> bool {
        let record_bytes = HEADER_BYTES_MAX + self.key.len() + value_bytes;
        let has_pieces = new_copy
            .parts
            .iter()
            .any(|part| matches!(part, ValuePart::Pieces(pieces) if !pieces.is_empty()));
        !has_pieces
            && (record_bytes <= self.store().inline_bytes_max()
                || (!new_copy.is_growing
                    && record_bytes
                        < self.allocator.context.appender.open_bytes_left(segment_kind)))
    }

    /// Chooses the kind of segment for the new copy: an overwrite stays in the queue of the old copy, the policy
    /// chooses the queue of a new item.
    fn choose_segment_kind(&self, expiry: Expiry) -> SegmentKind {
        let store = self.store();
        let queue = if let Some(old) = self.found.present {
            store.queue_of(old.addr)
        } else {
            let is_remembered = store.ghost.forget(self.hash);
            let accounting = self.allocator.context.accounting;
            accounting.count(CounterId::GhostHits, i64::from(is_remembered));
            store.policy.queue_of_new_item(is_remembered)
        };
        match queue {
            Queue::Main => SegmentKind::Main,
            Queue::Small => SegmentKind::for_new_item(expiry, self.now()),
        }
    }
}
