//! Reports for `watch evictions`: a bounded list of evicted items, filled only while there are watchers.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::request::Seconds;
use crate::sync::plain::Mutex;

/// The report of one evicted item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictedItem {
    /// Its key.
    pub key: Box<[u8]>,
    /// Whether it had ever been read.
    pub was_fetched: bool,
    /// Remaining TTL in seconds; `None` if it never expires.
    pub ttl_s: Option<u32>,
    /// When it was last read or written.
    pub last_access: Seconds,
    /// Length of its value.
    pub value_bytes: u32,
}

/// Maximum number of pending reports; the oldest is dropped, as memcached's log buffer drops lines.
const PENDING_MAX: usize = 4096;

/// The pending reports.
#[derive(Default)]
pub(crate) struct EvictionReports {
    is_enabled: AtomicBool,
    pending: Mutex<VecDeque<EvictedItem>>,
}

impl EvictionReports {
    /// Starts or stops reporting; stopping drops pending reports.
    pub(crate) fn set_enabled(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
        if !is_enabled {
            self.pending.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// Whether there are watchers.
    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, evicted: EvictedItem) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.len() == PENDING_MAX {
            pending.pop_front();
        }
        pending.push_back(evicted);
    }

    /// Takes the pending reports.
    pub(crate) fn take_pending(&self) -> VecDeque<EvictedItem> {
        std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
