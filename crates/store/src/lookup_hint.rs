//! Prefetching for lookups: the cache lines of many keys are prefetched before the first is needed.
//!
//! Each step prefetches the memory that the next one reads, so a caller with several keys makes one step for all
//! before the next. The result is a hint, which the lookup verifies.

use crate::index::Hit;
use crate::memory::arena::LINE_BYTES;
use crate::memory::{Line, LineId};
use crate::request::KeyHash;
use crate::worker::Worker;

/// A prefetched line of a bucket, in which [`Worker::prefetch_item`] searches.
#[derive(Clone, Copy)]
pub struct BucketPrefetch<'w>(Option<&'w Line>);

/// The probable address of the item of a key.
#[derive(Clone, Copy, Default)]
pub struct LookupHint<'w> {
    pub(crate) hit: Option<Hit<'w>>,
    /// The line to search next; nearly every fourth item is in an overflow line.
    next_line: Option<LineId>,
}

impl Worker {
    /// Prefetches the bucket of a key, ahead of a lookup.
    #[inline]
    pub fn prefetch_bucket(&self, hash: KeyHash) -> BucketPrefetch<'_> {
        if !self.participant.is_online() {
            return BucketPrefetch(None);
        }
        // It refers to a line of the index: borrowed until the next pass, as an item is.
        BucketPrefetch(Some(self.mark_borrowed().index.prefetch(hash)))
    }

    /// Prefetches the item's first two lines ahead of a lookup; best after [`Worker::prefetch_bucket`] and a little
    /// other work. Its result spares [`Worker::get_hinted`] the search.
    #[inline]
    pub fn prefetch_item<'w>(
        &'w self,
        hash: KeyHash,
        bucket_prefetch: BucketPrefetch<'w>,
    ) -> LookupHint<'w> {
        let Some(line) = bucket_prefetch.0 else {
            return LookupHint::default();
        };
        match self.store.index.probe_first_line(line, hash) {
            Ok(hit) => self.prefetch_lines(hit),
            Err(next_line) => LookupHint { hit: None, next_line },
        }
    }

    /// Searches another line of the index that [`Worker::prefetch_item`] prefetched; best some work later.
    #[inline]
    pub fn prefetch_next_line<'w>(&'w self, hash: KeyHash, hint: LookupHint<'w>) -> LookupHint<'w> {
        let Some(line_id) = hint.next_line else {
            return hint;
        };
        let hit = self.store.index.probe_next_line(hash, line_id);
        hit.map_or(LookupHint::default(), |hit| self.prefetch_lines(hit))
    }

    #[inline]
    fn prefetch_lines<'w>(&'w self, hit: Hit<'w>) -> LookupHint<'w> {
        let item_addr = hit.entry.item_addr();
        let arena = self.store.arena();
        arena.prefetch(item_addr);
        arena.prefetch(item_addr.plus(LINE_BYTES));
        LookupHint { hit: Some(hit), next_line: None }
    }
}
