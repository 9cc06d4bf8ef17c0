//! Reading: a lookup, a note of the use, and what `gat` and meta `mg` do besides.
//!
//! A hit writes at most two things, both conditionally and both lossy: two bits in the slot that was just read,
//! and the item's mutable bytes when the second has changed. Neither waits for anybody.

use std::sync::atomic::Ordering;

use crate::attempts::Attempts;
use crate::counters::Count;
use crate::guess::Guess;
use crate::index::Hit;
use crate::item::{self, bits};
use crate::log::Unique;
use crate::lookup::Located;
use crate::memory::Addr;
use crate::request::{Expiry, GetOptions, KeyHash, Lease, NoRoomYet, Seconds};
use crate::room::Shortage;
use crate::view::Item;
use crate::write::{Change, Found, New, Part, Swap};
use crate::{Store, Worker};

impl Worker {
    /// A plain read that records the hit; `None` is a miss.
    #[inline]
    pub fn get(&self, key: &[u8], hash: KeyHash, now: Seconds) -> Option<Item<'_>> {
        self.get_guessed(key, hash, Guess::default(), now)
    }

    /// As [`Worker::get`], with what [`Worker::prefetch_item`] saw: right or wrong, it changes no answer.
    #[inline]
    pub fn get_guessed<'w>(
        &'w self,
        key: &[u8],
        hash: KeyHash,
        guess: Guess<'w>,
        now: Seconds,
    ) -> Option<Item<'w>> {
        let (hit, item) = self.find_alive(key, hash, guess, now)?;
        hit.note_use();
        let before = self.note_access(&item, bits::FETCHED, now);
        Some(Item::new(self.lend(), item, before))
    }

    /// As [`Worker::get_guessed`] of the commonest items, for a third of the work: the value of one with neither
    /// flags nor expiry nor marks and of less than 256 bytes, if the guess was right. `None` says nothing.
    #[inline]
    pub fn get_bare<'w>(&'w self, key: &[u8], guess: Guess<'w>, now: Seconds) -> Option<&'w [u8]> {
        if !self.begin(now) {
            return None;
        }
        let hit = guess.hit?.again()?;
        let at = hit.entry.item();
        let (value, base) = self.lend().bare(at, key)?;
        if self.store.mutable_of(at) & (bits::STALE | bits::WIN) != 0 {
            return None;
        }
        hit.note_use();
        self.note_access_at(at, base, bits::FETCHED, now);
        Some(value)
    }

    /// Looks without recording anything.
    pub fn peek(&self, key: &[u8], hash: KeyHash, now: Seconds) -> Option<Item<'_>> {
        let (_, item) = self.find_alive(key, hash, Guess::default(), now)?;
        Some(Item::new(self.lend(), item, self.store.mutable_of(item.at)))
    }

    /// As [`Worker::try_get_with`], but where that would have to wait it is a miss, and the item is removed: the expiry
    /// that it has would be wrong.
    pub fn get_with(
        &self,
        key: &[u8],
        hash: KeyHash,
        options: &GetOptions,
        now: Seconds,
    ) -> Option<(Item<'_>, Lease)> {
        self.try_get_with(key, hash, options, now)
            .unwrap_or_else(|NoRoomYet| self.miss_instead(key, hash))
    }

    fn miss_instead(&self, key: &[u8], hash: KeyHash) -> Option<(Item<'_>, Lease)> {
        self.count(Count::Refused, 1);
        self.drop_old(key, hash);
        None
    }

    /// A read with the options of `gat` and meta `mg`. On a miss with `vivify`, the item that was created, won by
    /// this caller; `None` is a miss. Where `touch` or `vivify` is given it needs room for a new copy.
    pub fn try_get_with(
        &self,
        key: &[u8],
        hash: KeyHash,
        options: &GetOptions,
        now: Seconds,
    ) -> Result<Option<(Item<'_>, Lease)>, NoRoomYet> {
        if !self.begin(now) {
            return Ok(None);
        }
        let mut attempts = Attempts::default();
        loop {
            let found = self.look(key, hash, &attempts, now);
            let outcome = match found.alive() {
                Some(old) => self.read_with(key, hash, &found, &old, options, now),
                None => self.vivify(key, hash, &found, options, now),
            };
            match outcome {
                Outcome::Item(item, lease) => return Ok(Some((item, lease))),
                Outcome::Miss => return Ok(None),
                Outcome::Again if attempts.may_look_again() => {}
                Outcome::NoRoom(shortage) if self.may_retry(shortage, &mut attempts) => {}
                Outcome::NoRoom(Shortage::Passing) => return Err(NoRoomYet),
                Outcome::NoRoom(Shortage::Lasting) | Outcome::Again => {
                    return Ok(self.miss_instead(key, hash));
                }
            }
        }
    }

    fn read_with(
        &self,
        key: &[u8],
        hash: KeyHash,
        found: &Found,
        old: &Located,
        options: &GetOptions,
        now: Seconds,
    ) -> Outcome<'_> {
        let before = self.store.mutable_of(old.at);
        let mut item = *old;
        if let Some(expiry) = options.touch {
            let unique = Unique::Exactly(self.store.unique_of(old));
            let change = Change {
                expiry,
                unique,
                marks: 0,
                keeps: bits::MARKS,
                is_use: !options.no_bump,
            };
            match self.rewrite(key, hash, found, old, change, now) {
                Swap::Done { at, .. } => item = self.store.locate(at),
                Swap::Changed => return Outcome::Again,
                Swap::NoRoom(shortage) => return Outcome::NoRoom(shortage),
            }
        }
        // Only now: what has to wait for room is tried again, and is one use all the same.
        if !options.no_bump {
            self.note_use(key, hash, &item, now);
            self.note_access(&item, bits::FETCHED, now);
        }
        let judged = if options.recache_after_touch {
            &item
        } else {
            old
        };
        let is_due = is_due(judged.header.expiry, options.recache_s, now);
        let Some(mut lease) = self.lease(hash, item.at, is_due, options.may_win) else {
            return Outcome::Again;
        };
        lease.expiry_before = options.touch.map(|_| old.header.expiry);
        let kept = Store::access_of(old, before);
        Outcome::Item(Item::with_access(self.lend(), item, before, kept), lease)
    }

    /// What the marks say, and the one win; `None` if the item was replaced meanwhile.
    fn lease(&self, hash: KeyHash, at: Addr, is_due: bool, may_win: bool) -> Option<Lease> {
        let marks = self.store.mutable_of(at);
        let mut lease = Lease {
            is_stale: marks & bits::STALE != 0,
            ..Lease::default()
        };
        if marks & bits::WIN != 0 {
            lease.win_sent = true;
        } else if may_win && (lease.is_stale || is_due) {
            // Under the lock, so that a copy being made elsewhere takes the win along.
            let bucket = self.store.index.lock(hash);
            bucket.find(hash, |there| there == at)?;
            let before = self
                .store
                .arena()
                .mutable(at)
                .fetch_or(bits::WIN, Ordering::Relaxed);
            lease.win_sent = before & bits::WIN != 0;
            lease.won = !lease.win_sent;
        }
        Some(lease)
    }

    fn vivify(
        &self,
        key: &[u8],
        hash: KeyHash,
        found: &Found,
        options: &GetOptions,
        now: Seconds,
    ) -> Outcome<'_> {
        let Some(expiry) = options.vivify else {
            self.reap(hash, found);
            return Outcome::Miss;
        };
        let new = New {
            flags: 0,
            expiry,
            unique: options
                .new_unique
                .map_or(self.above(found), |unique| Unique::Exactly(unique.0)),
            marks: bits::WIN | if options.no_bump { 0 } else { bits::FETCHED },
            keeps: 0,
            access: now,
            parts: &[Part::Bytes(b"")],
            is_growing: false,
        };
        match self.swap(key, hash, found, &new, now) {
            Swap::Done { at, .. } => {
                let item = self.store.locate(at);
                let lease = Lease {
                    won: true,
                    created: true,
                    expiry_before: Some(Expiry::Never),
                    ..Lease::default()
                };
                Outcome::Item(Item::with_access(self.lend(), item, 0, now), lease)
            }
            Swap::Changed => Outcome::Again,
            Swap::NoRoom(shortage) => Outcome::NoRoom(shortage),
        }
    }

    #[inline]
    fn find_alive<'w>(
        &'w self,
        key: &[u8],
        hash: KeyHash,
        guess: Guess<'w>,
        now: Seconds,
    ) -> Option<(Hit<'w>, Located)> {
        if !self.begin(now) {
            return None;
        }
        let is_right = |hit: &Hit<'_>| self.store.has_key(hit.entry.item(), key);
        let hit = match guess.hit.and_then(Hit::again).filter(is_right) {
            Some(hit) => hit,
            None => self.store.find(key, hash)?,
        };
        let item = self.store.locate(hit.entry.item());
        if self.store.is_alive(&item, now) {
            return Some((hit, item));
        }
        self.reap(
            hash,
            &Found {
                present: Some(item),
                is_alive: false,
            },
        );
        None
    }

    /// Counts a use in the slot.
    pub(crate) fn note_use(&self, key: &[u8], hash: KeyHash, item: &Located, now: Seconds) {
        if let Some(hit) = self.store.find(key, hash) {
            hit.note_use();
        }
        self.note_access(item, 0, now);
    }

    /// Notes the time of a use and a mark; returns what stood there before.
    // LOSSY: a note that meets another change is not made again.
    #[inline]
    pub(crate) fn note_access(&self, item: &Located, mark: u16, now: Seconds) -> u16 {
        self.note_access_at(item.at, item.base, mark, now)
    }

    #[inline]
    fn note_access_at(&self, at: Addr, base: Seconds, mark: u16, now: Seconds) -> u16 {
        let mutable = self.store.arena().mutable(at);
        let before = mutable.load(Ordering::Relaxed);
        let access = item::encode_access(now.0.saturating_sub(base.0));
        let after = before & bits::ALL | mark | access;
        if after != before {
            let _ = mutable.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
        }
        before
    }
}

/// What one attempt of [`Worker::get_with`] came to.
enum Outcome<'w> {
    Item(Item<'w>, Lease),
    Miss,
    /// Somebody was faster.
    Again,
    NoRoom(Shortage),
}

/// Whether less life than asked for is left (meta `R`).
fn is_due(expiry: Expiry, recache_s: Option<u32>, now: Seconds) -> bool {
    match (expiry, recache_s) {
        (Expiry::At(at), Some(recache_s)) => at.0.saturating_sub(now.0) < recache_s,
        _ => false,
    }
}
