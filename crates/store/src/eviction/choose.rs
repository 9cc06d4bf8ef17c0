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
use crate::segments::{Candidates, Queue, SegmentView};
use crate::store::Store;

/// Why a segment is swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SweepReason {
    /// Everything in it should be dead.
    Dead,
    /// Much of it is dead; the rest is kept.
    Compact,
    /// It is too old; what is alive is kept, or the segment is left as it is.
    Renew,
    /// The policy decides about each item.
    Evict,
}

/// A segment with less than this many quarters of live bytes is compacted before a live item is evicted.
const COMPACT_QUARTERS: usize = 3;
/// Other workers may take the chosen segment first; after this many tries the next call continues.
const CHOICE_TRIES_MAX: usize = 8;

/// The purpose of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SweepGoal {
    /// Segments are needed.
    FreeSegments,
    /// Segments that expired or were flushed as a whole are reclaimed early.
    Dead,
    /// Nearly dead segments are emptied, so that no unused one is opened.
    Sparse,
    /// Segments from before the flushes of prefixes that should be forgotten are emptied.
    Outdated,
}

/// When a choice found nothing, and for which goal.
#[derive(Clone, Copy, PartialEq, Eq)]
struct EmptyChoice {
    ranking_version: u64,
    generation: u64,
    now: Seconds,
    goal: SweepGoal,
}

/// The state of a worker's choices.
#[derive(Default)]
pub(super) struct VictimChooser {
    /// The last choice that found nothing.
    last_empty_choice: Cell<Option<EmptyChoice>>,
}

impl VictimChooser {
    /// Chooses and claims the next victim; `None` if nothing can be gained.
    pub(super) fn choose(
        &self,
        store: &Store,
        now: Seconds,
        goal: SweepGoal,
    ) -> Option<(SegmentView, SweepReason)> {
        let is_remembered = matches!(goal, SweepGoal::FreeSegments | SweepGoal::Dead);
        if is_remembered && self.would_find_nothing(store, now, goal) {
            return None;
        }
        for _ in 0..CHOICE_TRIES_MAX {
            let (view, reason) = match goal {
                SweepGoal::Sparse => (store.segments.pop_sparse()?, SweepReason::Compact),
                SweepGoal::Outdated => (store.segments.outdated()?, SweepReason::Renew),
                _ => self.find_candidate(store, now, goal)?,
            };
            if store.segments.start_sweep(view.id) {
                if reason == SweepReason::Evict {
                    store.last_swept_position.store(view.queue_position, Ordering::Relaxed);
                }
                return Some((view, reason));
            }
        }
        None
    }

    /// Whether the last choice for `goal` found nothing, and nothing has changed since.
    fn would_find_nothing(&self, store: &Store, now: Seconds, goal: SweepGoal) -> bool {
        let segments = &store.segments;
        self.last_empty_choice.get()
            == Some(EmptyChoice {
                ranking_version: segments.ranking.version(),
                generation: segments.flushes.generation(),
                now,
                goal,
            })
    }

    fn find_candidate(
        &self,
        store: &Store,
        now: Seconds,
        goal: SweepGoal,
    ) -> Option<(SegmentView, SweepReason)> {
        let generation = store.segments.flushes.generation();
        let last_swept_position = store.last_swept_position.load(Ordering::Relaxed);
        let candidates = store.segments.candidates(now.0, last_swept_position);
        let candidate = first_candidate(store, &candidates, last_swept_position, goal);
        self.last_empty_choice.set(candidate.is_none().then_some(EmptyChoice {
            ranking_version: candidates.version,
            generation,
            now,
            goal,
        }));
        candidate
    }
}

fn first_candidate(
    store: &Store,
    candidates: &Candidates,
    last_swept_position: u64,
    goal: SweepGoal,
) -> Option<(SegmentView, SweepReason)> {
    let segment_bytes = store.arena().segment_bytes();
    let may_evict = store.config().evict;
    let next_victim =
        may_evict.then(|| choose_victim(store, candidates, last_swept_position)).flatten();
    let is_worth_compacting =
        |view: &SegmentView| view.live_bytes * 4 < segment_bytes * COMPACT_QUARTERS;
    if let Some(dead) = candidates.dead {
        Some((dead, SweepReason::Dead))
    } else if goal == SweepGoal::Dead {
        None
    } else if let Some(emptiest) = candidates.emptiest.filter(is_worth_compacting) {
        // The next victim is not worth copying first, unless all live bytes fit and nothing has to be evicted.
        let is_next_victim = next_victim.is_some_and(|victim| victim.id == emptiest.id);
        let reason = if is_next_victim && !live_bytes_fit(store, candidates) {
            SweepReason::Evict
        } else {
            SweepReason::Compact
        };
        Some((emptiest, reason))
    } else {
        next_victim.map(|victim| (victim, SweepReason::Evict))
    }
}

/// Whether less than three quarters of the allowed bytes are live: then there is always a segment worth compacting.
fn live_bytes_fit(store: &Store, candidates: &Candidates) -> bool {
    let segments = &store.segments;
    let live_bytes = (candidates.small_bytes + candidates.main_bytes)
        .saturating_sub(candidates.live_bytes_error_max);
    live_bytes * 4 < segments.usage.limit() * store.arena().segment_bytes() * COMPACT_QUARTERS
}

fn choose_victim(
    store: &Store,
    candidates: &Candidates,
    last_swept_position: u64,
) -> Option<SegmentView> {
    let choice = store.policy.choose_victim_queue(&QueueSizes {
        small_bytes: candidates.small_bytes,
        main_bytes: candidates.main_bytes,
        last_swept_position,
    });
    if choice.after_position > 0 && candidates.next_after_last_swept.is_some() {
        return candidates.next_after_last_swept;
    }
    match choice.queue {
        Queue::Small => candidates.oldest_small.or(candidates.oldest_main),
        Queue::Main => candidates.oldest_main.or(candidates.oldest_small),
    }
}
