//! The ranking: sealed segments in the orders in which a victim is chosen, updated with each change.
//!
//! A choice must not cost more with more segments: a store of 64 GiB has 65,536. So each sealed segment is in four
//! orders: by age within its queue, by generation, by when it expires as a whole, and by its live bytes. The last is a list for
//! each 64th of a segment, so a segment moves in it at most 64 times however many items it has, and the sum of live
//! bytes is exact to within a 64th of the sealed bytes. A segment whose state changes is ranked again by the thread
//! that changed it, after the change: the last to come here sees the last state.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use super::{Queue, Segments, State, View};
use crate::memory::SegmentId;
use crate::sync::{MutexGuard, Ordering};

/// Lists by live bytes: one for each 64th of a segment.
const LEVELS: usize = 64;
/// How many segments of the emptiest list are compared.
const COMPARED: usize = 8;

/// The position of one segment.
#[derive(Clone, Copy)]
struct Rank {
    queue: Queue,
    order: u64,
    generation: u64,
    expires: u32,
    /// Live bytes when it was ranked last.
    live: usize,
    level: usize,
    /// Its index in the list of its level.
    index: usize,
}

/// Sealed segments that no upload writes into, in order.
#[derive(Default)]
pub(super) struct Ranking {
    /// By segment, as far as any was ranked yet.
    ranks: Vec<Option<Rank>>,
    /// Order and number, oldest first.
    small: BTreeSet<(u64, u32)>,
    main: BTreeSet<(u64, u32)>,
    /// Generation and number: those that were flushed as a whole come first.
    generations: BTreeSet<(u64, u32)>,
    /// Last second of life and number: those that expired as a whole come first.
    expiring: BTreeSet<(u32, u32)>,
    levels: Vec<Vec<u32>>,
    small_bytes: usize,
    main_bytes: usize,
    /// The number of ranked segments.
    count: usize,
}

/// What a choice sees of all sealed segments: the first in each order.
#[derive(Clone, Copy)]
pub(crate) struct Candidates {
    /// Version of the ranking; while it is the same, so is this.
    pub(crate) version: u64,
    /// Live bytes of the small queue, too high by at most its share of `surplus_bytes`.
    pub(crate) small_bytes: usize,
    /// Live bytes of the main queue, likewise.
    pub(crate) main_bytes: usize,
    /// Maximum error of the sum of the two.
    pub(crate) surplus_bytes: usize,
    /// Dead as a whole.
    pub(crate) dead: Option<View>,
    /// One of those with the fewest live bytes.
    pub(crate) emptiest: Option<View>,
    pub(crate) oldest_small: Option<View>,
    pub(crate) oldest_main: Option<View>,
    /// The oldest after the hand.
    pub(crate) next_after_hand: Option<View>,
}

impl Ranking {
    fn queue(&mut self, queue: Queue) -> (&mut BTreeSet<(u64, u32)>, &mut usize) {
        match queue {
            Queue::Small => (&mut self.small, &mut self.small_bytes),
            Queue::Main => (&mut self.main, &mut self.main_bytes),
        }
    }

    fn remove(&mut self, id: u32) {
        let Some(rank) = self.ranks.get_mut(id as usize).and_then(Option::take) else {
            return;
        };
        self.count -= 1;
        self.generations.remove(&(rank.generation, id));
        self.expiring.remove(&(rank.expires, id));
        let (queue, bytes) = self.queue(rank.queue);
        queue.remove(&(rank.order, id));
        *bytes -= rank.live;
        self.leave_level(rank.level, rank.index);
    }

    fn put(&mut self, view: &View, level: usize) {
        let id = view.id.0;
        self.remove(id);
        if self.ranks.len() <= id as usize {
            self.ranks.resize(id as usize + 1, None);
        }
        let rank = Rank {
            queue: view.queue,
            order: view.order,
            generation: view.generation,
            expires: view.expires,
            live: view.live,
            level,
            index: self.enter_level(level, id),
        };
        self.count += 1;
        self.generations.insert((rank.generation, id));
        self.expiring.insert((rank.expires, id));
        let (queue, bytes) = self.queue(rank.queue);
        queue.insert((rank.order, id));
        *bytes += rank.live;
        if let Some(entry) = self.ranks.get_mut(id as usize) {
            *entry = Some(rank);
        }
    }

    /// Records fewer live bytes of a segment; false if something else changed too.
    fn lower(&mut self, view: &View, level: usize) -> bool {
        let id = view.id.0;
        let Some(Some(rank)) = self.ranks.get(id as usize).copied() else {
            return false;
        };
        if (rank.queue, rank.order) != (view.queue, view.order)
            || (rank.generation, rank.expires) != (view.generation, view.expires)
        {
            return false;
        }
        let (_, bytes) = self.queue(rank.queue);
        *bytes = *bytes + view.live - rank.live;
        let mut index = rank.index;
        if level != rank.level {
            self.leave_level(rank.level, rank.index);
            index = self.enter_level(level, id);
        }
        if let Some(entry) = self.ranks.get_mut(id as usize) {
            *entry = Some(Rank {
                live: view.live,
                level,
                index,
                ..rank
            });
        }
        true
    }

    fn enter_level(&mut self, level: usize, id: u32) -> usize {
        if self.levels.len() <= level {
            self.levels.resize_with(LEVELS, Vec::new);
        }
        let Some(list) = self.levels.get_mut(level) else {
            return 0;
        };
        list.push(id);
        list.len() - 1
    }

    fn leave_level(&mut self, level: usize, index: usize) {
        let Some(list) = self.levels.get_mut(level).filter(|list| index < list.len()) else {
            return;
        };
        list.swap_remove(index);
        // The last of the list moved to its index.
        if let Some(&moved) = list.get(index)
            && let Some(Some(rank)) = self.ranks.get_mut(moved as usize)
        {
            rank.index = index;
        }
    }

    /// Some of the segments with the fewest live bytes.
    fn emptiest(&self) -> impl Iterator<Item = u32> + '_ {
        let list = self.levels.iter().find(|list| !list.is_empty());
        list.into_iter().flatten().rev().take(COMPARED).copied()
    }
}

impl Segments {
    /// Ranks a segment by its current state, or removes it from the ranking if it is not a candidate.
    pub(super) fn rank(&self, id: SegmentId) {
        let mut ranking = self.lock_ranking();
        let view = self.view(id);
        if view.is(State::Sealed) && !view.is_pinned {
            let level = self.level_of(view.live);
            if !ranking.lower(&view, level) {
                ranking.put(&view, level);
            }
        } else {
            ranking.remove(id.0);
        }
        // Release pairs with the Acquire of `ranking_version`; under the lock, so it agrees with the rest.
        self.ranking_version.fetch_add(1, Ordering::Release);
    }

    /// A number that changes with the ranking.
    pub(crate) fn ranking_version(&self) -> u64 {
        self.ranking_version.load(Ordering::Acquire)
    }

    /// The first segments in each order, at second `now`, with the hand at `hand`.
    pub(crate) fn candidates(&self, now: u32, hand: u64) -> Candidates {
        let generation_min = self.flushes.generation_min();
        let ranking = self.lock_ranking();
        let view = |id: u32| self.examine(SegmentId(id));
        let oldest = |queue: &BTreeSet<(u64, u32)>| queue.first().copied();
        let after = |queue: &BTreeSet<(u64, u32)>| {
            queue.range((hand.saturating_add(1), 0)..).next().copied()
        };
        let behind_hand = [after(&ranking.small), after(&ranking.main)];
        let flushed = ranking.generations.first().copied();
        let flushed = flushed.filter(|&(generation, _)| generation < generation_min);
        let expired = ranking.expiring.first().copied();
        let expired = expired.filter(|&(expires, _)| expires <= now);
        let dead = flushed.map(|(_, id)| id).or(expired.map(|(_, id)| id));
        Candidates {
            version: self.ranking_version.load(Ordering::Relaxed),
            small_bytes: ranking.small_bytes,
            main_bytes: ranking.main_bytes,
            surplus_bytes: ranking.count << self.level_shift(),
            dead: dead.map(view),
            emptiest: ranking.emptiest().map(view).min_by_key(|view| view.live),
            oldest_small: oldest(&ranking.small).map(|(_, id)| view(id)),
            oldest_main: oldest(&ranking.main).map(|(_, id)| view(id)),
            next_after_hand: behind_hand
                .into_iter()
                .flatten()
                .min()
                .map(|(_, id)| view(id)),
        }
    }

    fn examine(&self, id: SegmentId) -> View {
        #[cfg(test)]
        self.examined.fetch_add(1, Ordering::Relaxed);
        self.view(id)
    }

    /// The number of segments that choices have examined so far, for tests.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn examined(&self) -> u64 {
        self.examined.load(Ordering::Relaxed)
    }

    /// Whether a segment that had `before` live bytes is in another list with `after`.
    #[inline]
    pub(super) fn changes_level(&self, before: usize, after: usize) -> bool {
        before >> self.level_shift() != after >> self.level_shift()
    }

    #[inline]
    fn level_shift(&self) -> u32 {
        self.arena.segment_bytes().ilog2() - LEVELS.ilog2()
    }

    fn level_of(&self, live: usize) -> usize {
        (live >> self.level_shift()).min(LEVELS - 1)
    }

    fn lock_ranking(&self) -> MutexGuard<'_, Ranking> {
        self.ranking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
