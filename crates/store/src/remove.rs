//! Removing: deletion, invalidation, and what is found dead on the way.

use crate::attempts::Attempts;
use crate::counters::Count;
use crate::item::bits;
use crate::log::Unique;
use crate::lookup::Located;
use crate::memory::Addr;
use crate::report::Evicted;
use crate::request::{
    DeleteOptions, DeleteOutcome, Expiry, KeyHash, NoRoomYet, Seconds, SetMode, SetOptions,
};
use crate::room::Shortage;
use crate::write::{Change, Found, New, Part, Swap};
use crate::{Store, Worker};

impl Worker {
    /// As [`Worker::try_delete`], but where that would have to wait the item is removed: this says no less than a mark
    /// that could not be set.
    pub fn delete(
        &self,
        key: &[u8],
        hash: KeyHash,
        options: &DeleteOptions,
        now: Seconds,
    ) -> DeleteOutcome {
        self.try_delete(key, hash, options, now)
            .unwrap_or_else(|NoRoomYet| self.delete_instead(key, hash))
    }

    fn delete_instead(&self, key: &[u8], hash: KeyHash) -> DeleteOutcome {
        self.count(Count::Refused, 1);
        self.drop_old(key, hash);
        DeleteOutcome::Deleted
    }

    /// Removes an item, or marks it as meta `md` asks, for which a new copy needs room.
    pub fn try_delete(
        &self,
        key: &[u8],
        hash: KeyHash,
        options: &DeleteOptions,
        now: Seconds,
    ) -> Result<DeleteOutcome, NoRoomYet> {
        if !self.begin(now) {
            return Ok(DeleteOutcome::NotFound);
        }
        let mut attempts = Attempts::default();
        loop {
            let found = self.look(key, hash, &attempts, now);
            let Some(old) = found.alive() else {
                self.reap(hash, &found);
                return Ok(DeleteOutcome::NotFound);
            };
            if options
                .compare
                .is_some_and(|wanted| wanted.0 != self.store.unique_of(&old))
            {
                return Ok(DeleteOutcome::Exists);
            }
            let swap = if !options.invalidate && !options.clear_value {
                if self.unlink(hash, old.at) {
                    self.forget(&old, &[]);
                    return Ok(DeleteOutcome::Deleted);
                }
                Swap::Changed
            } else if options.clear_value {
                self.clear(key, hash, &found, &old, options, now)
            } else {
                self.invalidate(key, hash, &found, &old, options, now)
            };
            match swap {
                Swap::Done { .. } => return Ok(DeleteOutcome::Deleted),
                Swap::Changed if attempts.may_look_again() => {}
                // What changed a thousand times has another unique by now.
                Swap::Changed if options.compare.is_some() => return Ok(DeleteOutcome::Exists),
                Swap::NoRoom(shortage) if self.may_retry(shortage, &mut attempts) => {}
                Swap::NoRoom(Shortage::Passing) => return Err(NoRoomYet),
                Swap::NoRoom(Shortage::Lasting) | Swap::Changed => {
                    return Ok(self.delete_instead(key, hash));
                }
            }
        }
    }

    /// `md I`: stale, open for one win, with a new unique and perhaps another expiry.
    fn invalidate(
        &self,
        key: &[u8],
        hash: KeyHash,
        found: &Found,
        old: &Located,
        options: &DeleteOptions,
        now: Seconds,
    ) -> Swap {
        let change = Change {
            expiry: options.expiry.unwrap_or(old.header.expiry),
            unique: options
                .new_unique
                .map_or(self.above(found), |unique| Unique::Exactly(unique.0)),
            marks: bits::STALE,
            keeps: bits::FETCHED,
            is_use: false,
        };
        self.rewrite(key, hash, found, old, change, now)
    }

    /// `md x`, perhaps with `I`: an empty item with the same unique (a new one with `I`). Its expiry is the one
    /// given, or never, as in memcached.
    fn clear(
        &self,
        key: &[u8],
        hash: KeyHash,
        found: &Found,
        old: &Located,
        options: &DeleteOptions,
        now: Seconds,
    ) -> Swap {
        let unique = match options.new_unique {
            Some(unique) => Unique::Exactly(unique.0),
            None if options.invalidate => self.above(found),
            None => Unique::Exactly(self.store.unique_of(old)),
        };
        let new = New {
            flags: 0,
            expiry: options.expiry.unwrap_or(Expiry::Never),
            unique,
            marks: if options.invalidate { bits::STALE } else { 0 },
            keeps: 0,
            access: now,
            parts: &[Part::Bytes(b"")],
            is_growing: false,
        };
        self.swap(key, hash, found, &new, now)
    }

    /// Empties the slot that names the item at `at`; false if it names another by now.
    pub(crate) fn unlink(&self, hash: KeyHash, at: Addr) -> bool {
        let mut bucket = self.store.index.lock(hash);
        let Some(place) = bucket.find(hash, |there| there == at) else {
            return false;
        };
        bucket.remove(place);
        true
    }

    /// Removes an item that a lookup found dead, and counts the miss.
    pub(crate) fn reap(&self, hash: KeyHash, found: &Found) {
        let Some(dead) = found.present.filter(|_| !found.is_alive) else {
            return;
        };
        let cause = if self.store.is_flushed(&dead) {
            Count::MissesFlushed
        } else {
            Count::MissesExpired
        };
        self.count(cause, 1);
        if self.unlink(hash, dead.at) {
            self.expired(&dead);
            self.forget(&dead, &[]);
        }
    }

    /// Removes whatever is under the key, since what should replace it cannot be stored.
    pub(crate) fn drop_old(&self, key: &[u8], hash: KeyHash) {
        let mut bucket = self.store.index.lock(hash);
        let Some(place) = bucket.find(hash, |at| self.store.has_key(at, key)) else {
            return;
        };
        bucket.remove(place);
        drop(bucket);
        self.forget(&self.store.locate(place.entry.item()), &[]);
    }

    /// What memcached does when a write fails for want of room: a plain set removes the old value, which would be
    /// out of date; the others leave it.
    pub(crate) fn drop_for(&self, key: &[u8], hash: KeyHash, options: &SetOptions) {
        if options.mode == SetMode::Set && options.compare.is_none() {
            self.drop_old(key, hash);
        }
    }

    /// Counts an item whose time was over.
    pub(crate) fn expired(&self, item: &Located) {
        self.count(Count::Reclaimed, 1);
        if self.store.mutable_of(item.at) & bits::FETCHED == 0 {
            self.count(Count::ExpiredUnfetched, 1);
        }
    }

    /// Counts an item that goes for room, and tells who watches.
    pub(crate) fn evicted(&self, item: &Located, now: Seconds) {
        let mutable = self.store.mutable_of(item.at);
        let was_fetched = mutable & bits::FETCHED != 0;
        self.count(Count::Evictions, 1);
        self.count(Count::EvictedUnfetched, i64::from(!was_fetched));
        let ttl_s = match item.header.expiry {
            Expiry::Never => None,
            Expiry::At(at) => Some(at.0.saturating_sub(now.0)),
        };
        self.count(Count::EvictedWithTtl, i64::from(ttl_s.is_some()));
        if let Some(block) = self.block() {
            let header = &item.header;
            let value_bytes = header.value_bytes as usize;
            let peer = Store::peer_bytes(header.key_bytes, value_bytes, header.flags);
            block.add_evicted(self.store.slab_class(peer), ttl_s.is_some());
        }
        if self.store.reports.is_on() {
            self.store.reports.add(Evicted {
                key: self.store.key_of(item).into(),
                was_fetched,
                ttl_s,
                last_access: Store::access_of(item, mutable),
                value_bytes: item.header.value_bytes,
            });
        }
    }
}
