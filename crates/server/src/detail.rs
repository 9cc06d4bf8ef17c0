//! `stats detail`: gets, hits, sets and deletes by key prefix, while somebody asked for it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock::lock;

/// Prefixes counted at most: a client that invents prefixes must not eat the memory.
const PREFIXES_MAX: usize = 1 << 16;

/// The prefix table of one server.
pub(crate) struct Detail {
    is_on: AtomicBool,
    delimiter: u8,
    prefixes: Mutex<BTreeMap<Box<[u8]>, Prefix>>,
}

#[derive(Default, Clone, Copy)]
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

    /// `stats reset` forgets the prefixes.
    pub(crate) fn clear(&self) {
        lock(&self.prefixes).clear();
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

    /// Appends the table in memcached's form.
    pub(crate) fn dump(&self, out: &mut Vec<u8>) {
        for (name, prefix) in lock(&self.prefixes).iter() {
            out.extend_from_slice(b"PREFIX ");
            out.extend_from_slice(name);
            // Writing to a vector cannot fail.
            let _ = write!(
                out,
                " get {} hit {} set {} del {}\r\n",
                prefix.gets, prefix.hits, prefix.sets, prefix.deletes
            );
        }
        out.extend_from_slice(b"END\r\n");
    }
}
