//! Keys whose last write or removal ended without a reply: the server may still hold the older value.
//!
//! The caller got an error with an unknown outcome, but the next reader should not get the value that was
//! to be replaced. So the next call to that server first removes these keys; a cache may forget. So are the keys of
//! changes that were not sent at all, where their caller was told of a miss and not of an error.
//!
//! Until the removal is acknowledged, a call on another connection removes the keys that it reads as well: it could
//! overtake the removal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use glasscache_protocol::meta::request::WireKey;
use glasscache_protocol::text::request::StoreMode;

use crate::request::{CommandSet, Request, RequestWriter};

/// Most keys that wait for their removal at one server that does not reply.
const UNCERTAIN_MAX: usize = 50_000;

/// Memory that a connection keeps for the keys of its next write, in bytes: a bulk write of more gives it back.
const RETAINED_BYTES_MAX: usize = 64 << 10;

/// A key as it goes on the wire.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnedKey {
    bytes: Vec<u8>,
    is_base64: bool,
}

impl From<WireKey<'_>> for OwnedKey {
    fn from(key: WireKey<'_>) -> Self {
        Self { bytes: key.bytes.to_vec(), is_base64: key.is_base64 }
    }
}

impl OwnedKey {
    /// The key, borrowed.
    pub fn wire_key(&self) -> WireKey<'_> {
        WireKey { bytes: &self.bytes, is_base64: self.is_base64 }
    }
}

/// Keys of requests that were written, one after the other in one buffer.
#[derive(Debug, Default)]
pub struct WrittenKeys {
    key_bytes: Vec<u8>,
    /// Length of each of them, and whether it is in base64.
    key_forms: Vec<(u8, bool)>,
}

impl WrittenKeys {
    /// Adds a key. A key of more than 250 bytes was refused before.
    pub fn add(&mut self, key: WireKey<'_>) {
        if let Ok(length) = u8::try_from(key.bytes.len()) {
            self.key_bytes.extend_from_slice(key.bytes);
            self.key_forms.push((length, key.is_base64));
        }
    }

    /// The first key.
    pub fn first(&self) -> Option<WireKey<'_>> {
        let &(length, is_base64) = self.key_forms.first()?;
        Some(WireKey { bytes: self.key_bytes.get(..length.into())?, is_base64 })
    }

    /// The keys.
    pub fn iter(&self) -> impl Iterator<Item = OwnedKey> {
        let mut remaining_keys = self.key_bytes.as_slice();
        self.key_forms.iter().filter_map(move |&(length, is_base64)| {
            let (bytes, later_keys) = remaining_keys.split_at_checked(length.into())?;
            remaining_keys = later_keys;
            let key = WireKey { bytes, is_base64 };
            Some(key.into())
        })
    }

    /// Removes the last `count` keys.
    pub fn remove_last(&mut self, count: usize) {
        let remaining_count = self.key_forms.len().saturating_sub(count);
        let removed_lengths =
            self.key_forms.drain(remaining_count..).map(|(length, _)| usize::from(length));
        let removed_length: usize = removed_lengths.sum();
        self.key_bytes.truncate(self.key_bytes.len().saturating_sub(removed_length));
    }

    /// Removes all keys, and keeps up to 64 KiB of memory for the next ones.
    pub fn clear(&mut self) {
        if self.reserved_bytes() > RETAINED_BYTES_MAX {
            *self = Self::default();
        }
        self.key_bytes.clear();
        self.key_forms.clear();
    }

    fn reserved_bytes(&self) -> usize {
        self.key_bytes.capacity() + self.key_forms.capacity() * size_of::<(u8, bool)>()
    }
}

/// The keys of one server that are to be removed before any other request.
#[derive(Debug, Default)]
pub struct UncertainKeys {
    /// Whether there is any key. Relaxed: a call that misses one of this instant leaves its removal to the next call.
    has_keys: AtomicBool,
    keys: Mutex<KeySets>,
}

#[derive(Debug, Default)]
struct KeySets {
    /// Those that nobody removes yet.
    pending: BTreeSet<OwnedKey>,
    /// Those whose removal is not acknowledged, and how many removals are under way.
    removing: BTreeMap<OwnedKey, u32>,
}

impl KeySets {
    fn add_pending(&mut self, key: OwnedKey) {
        // LOSSY: beyond the bound the caller's error is all there is.
        if self.pending.len() < UNCERTAIN_MAX {
            self.pending.insert(key);
        }
    }
}

impl UncertainKeys {
    fn change<T>(&self, change: impl FnOnce(&mut KeySets) -> T) -> T {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut keys);
        let has_keys = !keys.pending.is_empty() || !keys.removing.is_empty();
        self.has_keys.store(has_keys, Ordering::Relaxed);
        result
    }

    /// Notes keys whose outcome is unknown.
    pub fn add(&self, keys: impl IntoIterator<Item = OwnedKey>) {
        self.change(|sets| keys.into_iter().for_each(|key| sets.add_pending(key)));
    }

    /// Whether any key is to be removed, or its removal is not acknowledged.
    pub fn has_keys(&self) -> bool {
        self.has_keys.load(Ordering::Relaxed)
    }

    /// Takes the keys that nobody removes yet.
    pub fn take_all(&self) -> Vec<OwnedKey> {
        if !self.has_keys() {
            return Vec::new();
        }
        self.change(|sets| std::mem::take(&mut sets.pending)).into_iter().collect()
    }

    /// Takes the keys that are to be removed before requests about `requested`, until [`Self::end_removal`]: those that
    /// nobody removes yet, and those requested whose removal elsewhere is under way.
    pub(super) fn begin_removal(&self, requested: impl Iterator<Item = OwnedKey>) -> Vec<OwnedKey> {
        self.change(|sets| {
            let mut removed = std::mem::take(&mut sets.pending);
            removed.extend(requested.filter(|key| sets.removing.contains_key(key)));
            for key in &removed {
                *sets.removing.entry(key.clone()).or_default() += 1;
            }
            removed.into_iter().collect()
        })
    }

    /// Ends a removal: the server has acknowledged it, or else it is to be done again.
    pub(super) fn end_removal(&self, keys: Vec<OwnedKey>, was_acknowledged: bool) {
        if keys.is_empty() {
            return;
        }
        self.change(|sets| {
            for key in keys {
                if let Some(count) = sets.removing.get_mut(&key) {
                    *count -= 1;
                    if *count == 0 {
                        sets.removing.remove(&key);
                    }
                }
                if !was_acknowledged {
                    sets.add_pending(key);
                }
            }
        });
    }
}

/// Writes quiet removals of `keys`; returns how many of them a later `mn` acknowledges.
pub fn write_removals(keys: &[OwnedKey], writer: &mut RequestWriter<'_>) -> u32 {
    let mut acknowledged_count = 0;
    for key in keys {
        let request = Request::Delete { key: key.wire_key(), noreply: true };
        // A key without a form in the command set was never written either.
        if request.write(writer).is_ok() && writer.command_set != CommandSet::Classic {
            acknowledged_count += 1;
        }
    }
    acknowledged_count
}

/// The keys whose present value a request depends on.
pub(super) fn keys_read<'a>(request: &Request<'a>) -> impl Iterator<Item = OwnedKey> + use<'a> {
    let (prefix, plain_keys): (&'a [u8], &'a [&'a [u8]]) = match *request {
        Request::GetMany { prefix, keys, .. } => (prefix, keys),
        _ => (&[], &[]),
    };
    let (single, many): (Option<WireKey<'a>>, &'a [WireKey<'a>]) = match *request {
        Request::Get { key, .. }
        | Request::Touch { key, .. }
        | Request::GetAndTouch { key, .. }
        | Request::Arithmetic { key, .. }
        | Request::Inspect { key }
        | Request::Flags { key } => (Some(key), &[]),
        Request::Extend { item, .. } => (Some(item.key), &[]),
        Request::Store { mode, item, .. } if mode != StoreMode::Set => (Some(item.key), &[]),
        Request::GetWithTtls { keys } => (None, keys),
        _ => (None, &[]),
    };
    let plain_keys = plain_keys
        .iter()
        .map(move |key| OwnedKey { bytes: [prefix, *key].concat(), is_base64: false });
    single.into_iter().chain(many.iter().copied()).map(OwnedKey::from).chain(plain_keys)
}

/// Passes on the keys that a request may leave with an older value if its outcome stays unknown.
pub fn for_each_key_left_uncertain<'r>(request: &Request<'r>, pass_on: impl FnMut(WireKey<'r>)) {
    if request.may_leave_keys_uncertain() {
        request.for_each_key(pass_on);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned_key(bytes: &[u8]) -> OwnedKey {
        WireKey { bytes, is_base64: false }.into()
    }

    #[test]
    fn a_key_that_is_being_removed_is_removed_by_another_call_that_requests_it() {
        let uncertain = UncertainKeys::default();
        uncertain.add([owned_key(b"a"), owned_key(b"b"), owned_key(b"a")]);
        let first = uncertain.begin_removal(std::iter::empty());
        assert_eq!(first, [owned_key(b"a"), owned_key(b"b")]);
        assert!(uncertain.begin_removal(std::iter::once(owned_key(b"c"))).is_empty());
        let second = uncertain.begin_removal(std::iter::once(owned_key(b"b")));
        assert_eq!(second, [owned_key(b"b")]);
        uncertain.end_removal(second, true);
        assert!(uncertain.has_keys());
        uncertain.end_removal(first, false);
        assert_eq!(uncertain.take_all(), [owned_key(b"a"), owned_key(b"b")]);
        assert!(!uncertain.has_keys());
    }

    #[test]
    fn a_clear_releases_the_memory_of_a_large_write_and_keeps_that_of_a_small_one() {
        let mut keys = WrittenKeys::default();
        let key = WireKey { bytes: &[b'k'; 250], is_base64: false };
        let mut reserved_bytes_after = |count: usize| {
            (0..count).for_each(|_| keys.add(key));
            assert_eq!(keys.iter().count(), count);
            keys.clear();
            assert_eq!(keys.iter().count(), 0);
            keys.reserved_bytes()
        };
        let small_reserved_bytes = reserved_bytes_after(10);
        assert!(
            (10 * 250..=RETAINED_BYTES_MAX).contains(&small_reserved_bytes),
            "{small_reserved_bytes}"
        );
        assert_eq!(reserved_bytes_after(10_000), 0);
    }
}
