//! `stats detail`: gets, hits, sets and deletes by key prefix, while somebody asked for it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::execute::dump;
use crate::lock::lock;
use crate::watch::{is_plain, uri_encode};

/// Prefixes counted at most: a client that invents prefixes must not eat the memory.
const PREFIXES_MAX: usize = 1 << 16;

/// The prefix table of one server.
pub(crate) struct Detail {
    is_on: AtomicBool,
    delimiter: u8,
    prefixes: Mutex<BTreeMap<Box<[u8]>, Prefix>>,
}

/// Prefixes that are no longer counted and still to be freed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Discarded(BTreeMap<Box<[u8]>, Prefix>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Prefix {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

impl Detail {
    pub(crate) fn new(is_on: bool, delimiter: u8) -> Detail {
        Detail {
            is_on: AtomicBool::new(is_on),
            delimiter,
            prefixes: Mutex::default(),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// `stats reset` forgets the prefixes; the caller frees them in slices.
    pub(crate) fn clear(&self) -> Discarded {
        Discarded(std::mem::take(&mut *lock(&self.prefixes)))
    }

    pub(crate) fn record_get(&self, key: &[u8], is_hit: bool) {
        self.record(key, |prefix| {
            prefix.gets += 1;
            prefix.hits += u64::from(is_hit);
        });
    }

    pub(crate) fn record_set(&self, key: &[u8]) {
        self.record(key, |prefix| prefix.sets += 1);
    }

    pub(crate) fn record_delete(&self, key: &[u8]) {
        self.record(key, |prefix| prefix.deletes += 1);
    }

    /// A key without the delimiter has no prefix and is not counted.
    fn record(&self, key: &[u8], change: impl FnOnce(&mut Prefix)) {
        if !self.is_on() {
            return;
        }
        let Some(end) = memchr::memchr(self.delimiter, key) else {
            return;
        };
        let name = key.get(..end).unwrap_or_default();
        let mut prefixes = lock(&self.prefixes);
        if let Some(prefix) = prefixes.get_mut(name) {
            change(prefix);
        } else if prefixes.len() < PREFIXES_MAX {
            change(prefixes.entry(name.into()).or_default());
        }
    }

    /// Appends a slice of the table in memcached's form, from behind the prefix `after`; true at the end. Bytes that
    /// cannot stand on a line are percent-encoded.
    pub(crate) fn dump(&self, after: &mut Option<Box<[u8]>>, out: &mut Vec<u8>) -> bool {
        let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = (from, Bound::<&[u8]>::Unbounded);
        let mut last: Option<&Box<[u8]>> = None;
        let prefixes = lock(&self.prefixes);
        for (examined, (name, prefix)) in prefixes.range::<[u8], _>(range).enumerate() {
            if dump::is_full(examined, out.len()) {
                *after = last.cloned();
                return false;
            }
            out.extend_from_slice(b"PREFIX ");
            for byte in name {
                if is_plain(&[*byte]) {
                    out.push(*byte);
                } else {
                    uri_encode(&[*byte], out);
                }
            }
            last = Some(name);
            // Writing to a vector cannot fail.
            let _ = write!(
                out,
                " get {} hit {} set {} del {}\r\n",
                prefix.gets, prefix.hits, prefix.sets, prefix.deletes
            );
        }
        out.extend_from_slice(b"END\r\n");
        true
    }
}

impl Discarded {
    /// Frees some prefixes; true when none is left.
    pub(crate) fn drop_some(&mut self, count: usize) -> bool {
        for _ in 0..count {
            if self.0.pop_first().is_none() {
                return true;
            }
        }
        self.0.is_empty()
    }
}
