//! Which segment is swept next.
//!
//! In this order: what is dead as a whole (expired, flushed), what is less than three quarters live (rewriting
//! it frees more than a third of what it copies), and then the policy's victim. While less than three quarters
//! of all are alive nothing alive is evicted. The table of segments is walked each time: a few microseconds once
//! per segment of 64 KiB to 1 MiB.

use std::sync::atomic::Ordering;

use super::{Census, Sweep};
use crate::Worker;
use crate::request::Seconds;
use crate::segments::{Queue, State, View};

/// Why a segment is swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Everything in it should be dead.
    Dead,
    /// Much of it is dead; the rest is kept.
    Compact,
    /// The policy decides for each item.
    Evict,
}

/// A segment with less than this many quarters of live bytes is compacted before anything alive is evicted.
const COMPACT_QUARTERS: usize = 3;
/// Other workers may take the chosen segment first; after so many tries the next call goes on.
const TRIES: usize = 8;

/// What a sweep is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Segments are missing.
    Room,
    /// What expired or was flushed as a whole goes early.
    Dead,
    /// Nearly dead segments are emptied, so that no untouched one is opened.
    Sparse,
}

/// The candidates that one walk finds.
#[derive(Default)]
struct Candidates {
    census: Census,
    dead: Option<View>,
    emptiest: Option<View>,
    oldest_small: Option<View>,
    oldest_main: Option<View>,
    next_after_hand: Option<View>,
}

impl Worker {
    /// Chooses and claims the next victim; `None` if nothing can be gained.
    pub(crate) fn choose(&self, now: Seconds, aim: Aim) -> Option<Sweep> {
        for _ in 0..TRIES {
            let (view, reason) = match aim {
                Aim::Sparse => (self.store.segments.take_sparse()?, Reason::Compact),
                _ => self.candidate(now, aim == Aim::Dead)?,
            };
            if self.store.segments.start_sweep(view.id) {
                if reason == Reason::Evict {
                    self.store.hand.store(view.order, Ordering::Relaxed);
                }
                return Some(Sweep::new(&view, reason));
            }
        }
        None
    }

    fn candidate(&self, now: Seconds, only_dead: bool) -> Option<(View, Reason)> {
        let found = self.candidates(now);
        let segment_bytes = self.store.arena().segment_bytes();
        let evict = self
            .store
            .config()
            .evict
            .then(|| self.victim(&found))
            .flatten();
        let is_sparse = |view: &View| view.live * 4 < segment_bytes * COMPACT_QUARTERS;
        if let Some(dead) = found.dead {
            Some((dead, Reason::Dead))
        } else if only_dead {
            None
        } else if let Some(sparse) = found.emptiest.filter(is_sparse) {
            // The next victim is not worth copying first, unless all that is alive fits and nothing has to go.
            let is_next = evict.is_some_and(|victim| victim.id == sparse.id);
            let reason = if is_next && !self.fits(&found.census) {
                Reason::Evict
            } else {
                Reason::Compact
            };
            Some((sparse, reason))
        } else {
            evict.map(|victim| (victim, Reason::Evict))
        }
    }

    /// Whether less than three quarters of what there may be is alive: then there is always a segment worth
    /// compacting.
    fn fits(&self, census: &Census) -> bool {
        let segments = &self.store.segments;
        let live = census.small_bytes + census.main_bytes;
        live * 4 < segments.allowed() * self.store.arena().segment_bytes() * COMPACT_QUARTERS
    }

    fn candidates(&self, now: Seconds) -> Candidates {
        let hand = self.store.hand.load(Ordering::Relaxed);
        let generation = self.store.segments.generation();
        let mut found = Candidates::default();
        found.census.hand = hand;
        let older =
            |best: &Option<View>, view: &View| best.is_none_or(|best| view.order < best.order);
        for view in self.store.segments.each() {
            if !view.is(State::Sealed) || view.is_pinned {
                continue;
            }
            if (view.expires <= now.0 || view.generation != generation) && older(&found.dead, &view)
            {
                found.dead = Some(view);
            }
            if found.emptiest.is_none_or(|best| view.live < best.live) {
                found.emptiest = Some(view);
            }
            if view.order > hand && older(&found.next_after_hand, &view) {
                found.next_after_hand = Some(view);
            }
            let (bytes, oldest) = match view.queue {
                Queue::Small => (&mut found.census.small_bytes, &mut found.oldest_small),
                Queue::Main => (&mut found.census.main_bytes, &mut found.oldest_main),
            };
            *bytes += view.live;
            if older(oldest, &view) {
                *oldest = Some(view);
            }
        }
        found
    }

    fn victim(&self, found: &Candidates) -> Option<View> {
        let pick = self.store.policy.pick(&found.census);
        if pick.after > 0 && found.next_after_hand.is_some() {
            return found.next_after_hand;
        }
        match pick.queue {
            Queue::Small => found.oldest_small.or(found.oldest_main),
            Queue::Main => found.oldest_main.or(found.oldest_small),
        }
    }
}
