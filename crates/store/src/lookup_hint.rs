//! Looking ahead of a lookup: the lines behind many keys are asked for before the first is needed.
//!
//! Each step asks for the memory that the next one reads, so a caller with several keys makes one step for all
//! before the next. What was seen is a guess, which the lookup checks.

use crate::index::Hit;
use crate::memory::arena::LINE_BYTES;
use crate::memory::{Line, LineId};
use crate::request::KeyHash;
use crate::worker::Worker;

/// A bucket's line that was asked for: where [`Worker::prefetch_item`] looks.
#[derive(Clone, Copy)]
pub struct BucketPrefetch<'w>(Option<&'w Line>);

/// Where the item of a key probably is.
#[derive(Clone, Copy, Default)]
pub struct LookupHint<'w> {
    pub(crate) hit: Option<Hit<'w>>,
    /// The line to look at next; nearly every fourth item lies in an overflow line.
    further: Option<LineId>,
}

impl Worker {
    /// Asks for the bucket of a key, ahead of a lookup.
    #[inline]
    pub fn prefetch_bucket(&self, hash: KeyHash) -> BucketPrefetch<'_> {
        if !self.participant.is_online() {
            return BucketPrefetch(None);
        }
        // What was asked for is a line of the index: borrowed until the next pass, as an item is.
        BucketPrefetch(Some(self.lend().index.prefetch(hash)))
    }

    /// Asks for the item's first two lines ahead of a lookup; best after [`Worker::prefetch_bucket`] and a little
    /// other work. What it saw spares [`Worker::get_hinted`] the search.
    #[inline]
    pub fn prefetch_item<'w>(&'w self, hash: KeyHash, asked: BucketPrefetch<'w>) -> LookupHint<'w> {
        let Some(line) = asked.0 else {
            return LookupHint::default();
        };
        match self.store.index.hint(line, hash) {
            Ok(hit) => self.ask_for(hit),
            Err(further) => LookupHint { hit: None, further },
        }
    }

    /// Looks where [`Worker::prefetch_item`] asked for another line of the index; best some work later.
    #[inline]
    pub fn prefetch_further<'w>(&'w self, hash: KeyHash, hint: LookupHint<'w>) -> LookupHint<'w> {
        let Some(line) = hint.further else {
            return hint;
        };
        let hit = self.store.index.hint_further(hash, line);
        hit.map_or(LookupHint::default(), |hit| self.ask_for(hit))
    }

    #[inline]
    fn ask_for<'w>(&'w self, hit: Hit<'w>) -> LookupHint<'w> {
        let item = hit.entry.item();
        let arena = self.store.arena();
        arena.prefetch(item);
        arena.prefetch(item.plus(LINE_BYTES));
        LookupHint {
            hit: Some(hit),
            further: None,
        }
    }
}
