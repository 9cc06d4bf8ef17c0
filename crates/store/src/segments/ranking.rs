//! The ranking: sealed segments in the orders in which a victim is chosen, updated with each change.
//!
//! A choice must not cost more with more segments: a store of 64 GiB has 65,536. So each sealed segment is in four
//! orders: by age within its queue, by generation, by when it expires as a whole, and by its live bytes. The last is a
//! list for each 64th of a segment, so a segment moves in it at most 64 times however many items it has, and the sum of
//! live bytes is exact to within a 64th of the sealed bytes. A segment whose state changes is ranked again by the
//! thread that changed it, after the change: the last to come here sees the last state.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use super::table::{Queue, SegmentState, SegmentTable, SegmentView};
use crate::memory::SegmentId;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// Lists by live bytes: one for each 64th of a segment.
const LEVEL_COUNT: usize = 64;
/// How many segments of the emptiest list are compared.
const EMPTIEST_COMPARED_MAX: usize = 8;

/// The position of one segment.
#[derive(Clone, Copy)]
struct SegmentRank {
    queue: Queue,
    queue_position: u64,
    generation: u64,
    expires_at_s: u32,
    /// Live bytes when it was ranked last.
    live_bytes: usize,
    level: usize,
    /// Its index in the list of its level.
    index: usize,
}

/// Sealed segments that no upload writes into, in the orders in which victims are chosen.
pub(crate) struct Ranking {
    orders: Mutex<Orders>,
    /// The number of changes so far.
    version: AtomicU64,
    /// Binary logarithm of the bytes of a level.
    level_shift: u32,
    /// Segments examined by choices.
    #[cfg(test)]
    examined: AtomicU64,
}

#[derive(Default)]
struct Orders {
    /// By segment, as far as any was ranked yet.
    ranks: Vec<Option<SegmentRank>>,
    /// Position in the queue and number, oldest first.
    small: BTreeSet<(u64, u32)>,
    main: BTreeSet<(u64, u32)>,
    /// Generation and number: those that were flushed as a whole come first.
    generations: BTreeSet<(u64, u32)>,
    /// Last second of life and number: those that expired as a whole come first.
    expiring: BTreeSet<(u32, u32)>,
    levels: Vec<Vec<u32>>,
    small_bytes: usize,
    main_bytes: usize,
    ranked_count: usize,
}

/// What a choice sees of all sealed segments: the first in each order.
#[derive(Clone, Copy)]
pub(crate) struct Candidates {
    /// Version of the ranking; while it is the same, so is this.
    pub(crate) version: u64,
    /// Live bytes of the small queue, too high by at most its share of `live_bytes_error_max`.
    pub(crate) small_bytes: usize,
    /// Live bytes of the main queue, likewise.
    pub(crate) main_bytes: usize,
    /// Maximum error of the sum of the two.
    pub(crate) live_bytes_error_max: usize,
    /// One that is dead as a whole.
    pub(crate) dead: Option<SegmentView>,
    /// One of those with the fewest live bytes.
    pub(crate) emptiest: Option<SegmentView>,
    pub(crate) oldest_small: Option<SegmentView>,
    pub(crate) oldest_main: Option<SegmentView>,
    /// The oldest after the segment that was swept last.
    pub(crate) next_after_last_swept: Option<SegmentView>,
}

impl Orders {
    fn queue_and_bytes(&mut self, queue: Queue) -> (&mut BTreeSet<(u64, u32)>, &mut usize) {
        match queue {
            Queue::Small => (&mut self.small, &mut self.small_bytes),
            Queue::Main => (&mut self.main, &mut self.main_bytes),
        }
    }

    fn remove(&mut self, id: u32) {
        let Some(rank) = self.ranks.get_mut(id as usize).and_then(Option::take) else {
            return;
        };
        self.ranked_count -= 1;
        self.generations.remove(&(rank.generation, id));
        self.expiring.remove(&(rank.expires_at_s, id));
        let (queue, bytes) = self.queue_and_bytes(rank.queue);
        queue.remove(&(rank.queue_position, id));
        *bytes -= rank.live_bytes;
        self.leave_level(rank.level, rank.index);
    }

    fn insert_rank(&mut self, view: &SegmentView, level: usize) {
        let id = view.id.0;
        self.remove(id);
        if self.ranks.len() <= id as usize {
            self.ranks.resize(id as usize + 1, None);
        }
        let rank = SegmentRank {
            queue: view.queue,
            queue_position: view.queue_position,
            generation: view.generation,
            expires_at_s: view.expires_at_s,
            live_bytes: view.live_bytes,
            level,
            index: self.enter_level(level, id),
        };
        self.ranked_count += 1;
        self.generations.insert((rank.generation, id));
        self.expiring.insert((rank.expires_at_s, id));
        let (queue, bytes) = self.queue_and_bytes(rank.queue);
        queue.insert((rank.queue_position, id));
        *bytes += rank.live_bytes;
        if let Some(entry) = self.ranks.get_mut(id as usize) {
            *entry = Some(rank);
        }
    }

    /// Records fewer live bytes of a segment; false if something else changed too.
    fn update_live_bytes(&mut self, view: &SegmentView, level: usize) -> bool {
        let id = view.id.0;
        let Some(Some(rank)) = self.ranks.get(id as usize).copied() else {
            return false;
        };
        if (rank.queue, rank.queue_position) != (view.queue, view.queue_position)
            || (rank.generation, rank.expires_at_s) != (view.generation, view.expires_at_s)
        {
            return false;
        }
        let (_, bytes) = self.queue_and_bytes(rank.queue);
        *bytes = *bytes + view.live_bytes - rank.live_bytes;
        let mut index = rank.index;
        if level != rank.level {
            self.leave_level(rank.level, rank.index);
            index = self.enter_level(level, id);
        }
        if let Some(entry) = self.ranks.get_mut(id as usize) {
            *entry = Some(SegmentRank { live_bytes: view.live_bytes, level, index, ..rank });
        }
        true
    }

    fn enter_level(&mut self, level: usize, id: u32) -> usize {
        if self.levels.len() <= level {
            self.levels.resize_with(LEVEL_COUNT, Vec::new);
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
        if let Some(&moved_id) = list.get(index)
            && let Some(Some(rank)) = self.ranks.get_mut(moved_id as usize)
        {
            rank.index = index;
        }
    }

    /// Some of the segments with the fewest live bytes.
    fn emptiest_candidates(&self) -> impl Iterator<Item = u32> + '_ {
        let list = self.levels.iter().find(|list| !list.is_empty());
        list.into_iter().flatten().rev().take(EMPTIEST_COMPARED_MAX).copied()
    }
}

impl Ranking {
    pub(super) fn new(segment_shift: u32) -> Self {
        Ranking {
            orders: Mutex::new(Orders::default()),
            version: AtomicU64::new(1),
            level_shift: segment_shift - LEVEL_COUNT.ilog2(),
            #[cfg(test)]
            examined: AtomicU64::new(0),
        }
    }

    /// Ranks a segment by its current state, or removes it if it is not a candidate.
    pub(super) fn update(&self, table: &SegmentTable, id: SegmentId) {
        let mut orders = self.lock();
        let view = table.view(id);
        if view.has_state(SegmentState::Sealed) && !view.is_pinned {
            let level = self.level_of(view.live_bytes);
            if !orders.update_live_bytes(&view, level) {
                orders.insert_rank(&view, level);
            }
        } else {
            orders.remove(id.0);
        }
        // Release pairs with the Acquire of `version()`; under the lock, so it agrees with the rest.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// A number that changes with the ranking.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The first segments in each order, at second `now`, where the last swept segment had `last_swept_position`; those
    /// of generations below `living_generation_min` were flushed as a whole.
    pub(super) fn candidates(
        &self,
        table: &SegmentTable,
        living_generation_min: u64,
        now: u32,
        last_swept_position: u64,
    ) -> Candidates {
        let orders = self.lock();
        let examine = |id: u32| {
            #[cfg(test)]
            self.examined.fetch_add(1, Ordering::Relaxed);
            table.view(SegmentId(id))
        };
        let first_in = |queue: &BTreeSet<(u64, u32)>| queue.first().copied();
        let first_after_last_swept = |queue: &BTreeSet<(u64, u32)>| {
            queue.range((last_swept_position.saturating_add(1), 0)..).next().copied()
        };
        let next_in_queues =
            [first_after_last_swept(&orders.small), first_after_last_swept(&orders.main)];
        let oldest = orders.generations.first().copied();
        let flushed = oldest.filter(|&(generation, _)| generation < living_generation_min);
        let first_expiring = orders.expiring.first().copied();
        let expired = first_expiring.filter(|&(expires_at_s, _)| expires_at_s <= now);
        let dead = flushed.map(|(_, id)| id).or(expired.map(|(_, id)| id));
        Candidates {
            version: self.version.load(Ordering::Relaxed),
            small_bytes: orders.small_bytes,
            main_bytes: orders.main_bytes,
            live_bytes_error_max: orders.ranked_count << self.level_shift,
            dead: dead.map(examine),
            emptiest: orders.emptiest_candidates().map(examine).min_by_key(|view| view.live_bytes),
            oldest_small: first_in(&orders.small).map(|(_, id)| examine(id)),
            oldest_main: first_in(&orders.main).map(|(_, id)| examine(id)),
            next_after_last_swept: next_in_queues
                .into_iter()
                .flatten()
                .min()
                .map(|(_, id)| examine(id)),
        }
    }

    /// The segment of the lowest generation, if that is below `generation`.
    pub(super) fn oldest_before(&self, generation: u64) -> Option<SegmentId> {
        let &(oldest_generation, id) = self.lock().generations.first()?;
        (oldest_generation < generation).then_some(SegmentId(id))
    }

    /// The number of segments that choices have examined so far, for tests.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn examined(&self) -> u64 {
        self.examined.load(Ordering::Relaxed)
    }

    /// Whether a segment that had `live_bytes_before` live bytes is in another list with `live_bytes_after`.
    #[inline]
    pub(super) fn changes_level(&self, live_bytes_before: usize, live_bytes_after: usize) -> bool {
        live_bytes_before >> self.level_shift != live_bytes_after >> self.level_shift
    }

    fn level_of(&self, live_bytes: usize) -> usize {
        (live_bytes >> self.level_shift).min(LEVEL_COUNT - 1)
    }

    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
