//! The choice of the next segment to sweep.
//!
//! In this order: segments that are dead as a whole (expired, flushed), segments that are less than three quarters
//! live (rewriting one frees more than a third of the copied bytes), and then the policy's victim. While less than
//! three quarters of all bytes are live no live item is evicted. A choice examines at most a dozen segments, the
//! first in each order that the ranking keeps, however many there are; if there was nothing to gain that is
//! remembered until something changes.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use crate::policy::QueueSizes;
use crate::request::Seconds;
use crate::segments::{Candidates, Queue, View};
use crate::store::Store;

/// Why a segment is swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Everything in it should be dead.
    Dead,
    /// Much of it is dead; the rest is kept.
    Compact,
    /// The policy decides about each item.
    Evict,
}

/// A segment with less than this many quarters of live bytes is compacted before a live item is evicted.
const COMPACT_QUARTERS: usize = 3;
/// Other workers may take the chosen segment first; after this many tries the next call continues.
const TRIES: usize = 8;

/// The purpose of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Segments are needed.
    FreeSegments,
    /// Segments that expired or were flushed as a whole are reclaimed early.
    Dead,
    /// Nearly dead segments are emptied, so that no unused one is opened.
    Sparse,
}

/// When a choice found nothing, and for which goal.
#[derive(Clone, Copy, PartialEq, Eq)]
struct EmptyChoice {
    ranking_version: u64,
    generation: u64,
    now: Seconds,
    goal: Goal,
}

/// The state of a worker's choices.
#[derive(Default)]
pub(super) struct Chooser {
    /// The last choice that found nothing.
    empty: Cell<Option<EmptyChoice>>,
}

impl Chooser {
    /// Chooses and claims the next victim; `None` if nothing can be gained.
    pub(super) fn choose(&self, store: &Store, now: Seconds, goal: Goal) -> Option<(View, Reason)> {
        if goal != Goal::Sparse && self.would_find_nothing(store, now, goal) {
            return None;
        }
        for _ in 0..TRIES {
            let (view, reason) = match goal {
                Goal::Sparse => (store.segments.take_sparse()?, Reason::Compact),
                _ => self.candidate(store, now, goal)?,
            };
            if store.segments.start_sweep(view.id) {
                if reason == Reason::Evict {
                    store.last_swept_order.store(view.order, Ordering::Relaxed);
                }
                return Some((view, reason));
            }
        }
        None
    }

    /// Whether the last choice for `goal` found nothing, and nothing has changed since.
    fn would_find_nothing(&self, store: &Store, now: Seconds, goal: Goal) -> bool {
        let segments = &store.segments;
        self.empty.get()
            == Some(EmptyChoice {
                ranking_version: segments.ranking_version(),
                generation: segments.generation(),
                now,
                goal,
            })
    }

    fn candidate(&self, store: &Store, now: Seconds, goal: Goal) -> Option<(View, Reason)> {
        let generation = store.segments.generation();
        let hand = store.last_swept_order.load(Ordering::Relaxed);
        let found = store.segments.candidates(now.0, hand);
        let candidate = first_of(store, &found, hand, goal);
        self.empty.set(candidate.is_none().then_some(EmptyChoice {
            ranking_version: found.version,
            generation,
            now,
            goal,
        }));
        candidate
    }
}

fn first_of(store: &Store, found: &Candidates, hand: u64, goal: Goal) -> Option<(View, Reason)> {
    let segment_bytes = store.arena().segment_bytes();
    let evicts = store.config().evict;
    let evict = evicts.then(|| victim(store, found, hand)).flatten();
    let is_sparse = |view: &View| view.live * 4 < segment_bytes * COMPACT_QUARTERS;
    if let Some(dead) = found.dead {
        Some((dead, Reason::Dead))
    } else if goal == Goal::Dead {
        None
    } else if let Some(sparse) = found.emptiest.filter(is_sparse) {
        // The next victim is not worth copying first, unless all live bytes fit and nothing has to be evicted.
        let is_next = evict.is_some_and(|victim| victim.id == sparse.id);
        let reason = if is_next && !fits(store, found) {
            Reason::Evict
        } else {
            Reason::Compact
        };
        Some((sparse, reason))
    } else {
        evict.map(|victim| (victim, Reason::Evict))
    }
}

/// Whether less than three quarters of the allowed bytes are live: then there is always a segment worth compacting.
fn fits(store: &Store, found: &Candidates) -> bool {
    let segments = &store.segments;
    let live = (found.small_bytes + found.main_bytes).saturating_sub(found.surplus_bytes);
    live * 4 < segments.allowed() * store.arena().segment_bytes() * COMPACT_QUARTERS
}

fn victim(store: &Store, found: &Candidates, hand: u64) -> Option<View> {
    let pick = store.policy.pick(&QueueSizes {
        small_bytes: found.small_bytes,
        main_bytes: found.main_bytes,
        hand,
    });
    if pick.after > 0 && found.next_after_hand.is_some() {
        return found.next_after_hand;
    }
    match pick.queue {
        Queue::Small => found.oldest_small.or(found.oldest_main),
        Queue::Main => found.oldest_main.or(found.oldest_small),
    }
}
