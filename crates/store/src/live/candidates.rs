//! The candidates of a policy that tunes itself, over a sample of the keys that is larger than that of the curve.

use super::items::{SampledKey, decode_number, encode_number};
use super::miniature::{Capacity, Miniature, StoredItem};
use super::pending_fills::PendingFills;
use super::sampled_keys::{sampled_key, stored_item};
use crate::policy::TwoQueuePolicy;
use crate::sampling::{Event, EventKind, KEYS_PER_SAMPLE_MAX};
use crate::tuning::{
    CacheTotals, Goal, PolicySettings, SAMPLED_ITEMS, SAMPLED_ITEMS_MIN, TunableCache, Tuner,
    WaitReason, group_of_hash, sampled_items_min,
};

/// The candidates.
pub(super) struct Candidates {
    /// One in this many keys is sampled.
    keys_per_sample: u32,
    tuner: Tuner<Miniature>,
    pending: PendingFills,
    /// The times to live with which keys were stored last.
    ttls: KeyNumbers<TTL_SLOTS>,
    goal: Goal,
    /// How long fills took, under the goal of time.
    fills: Option<FillCosts>,
    /// The cost of the sampled gets that the store itself missed.
    sampled_miss_cost: u64,
}

impl TunableCache for Miniature {
    fn change_settings(&mut self, settings: PolicySettings) {
        self.change_settings(settings);
    }
}

impl Candidates {
    /// Every key is sampled at first.
    pub(super) fn new(goal: Goal) -> Self {
        Candidates {
            keys_per_sample: 1,
            tuner: Tuner::new(Miniature::new(TwoQueuePolicy::OWN)),
            pending: PendingFills::default(),
            ttls: KeyNumbers::default(),
            goal,
            fills: (goal == Goal::Time).then(FillCosts::default),
            sampled_miss_cost: 0,
        }
    }

    /// What is minimised.
    pub(super) fn goal(&self) -> Goal {
        self.goal
    }

    /// What the store's misses have cost: of all of them where each costs the same, else of those that are sampled.
    pub(super) fn store_miss_cost(&self, misses: u64) -> u64 {
        if self.goal == Goal::Objects { misses } else { self.sampled_miss_cost }
    }

    /// The mean time of a fill in microseconds, if the goal is time and one was measured.
    pub(super) fn mean_fill_us(&self) -> Option<u64> {
        self.fills.as_ref().and_then(FillCosts::mean_us)
    }

    /// One in this many keys is sampled.
    pub(super) fn keys_per_sample(&self) -> u32 {
        self.keys_per_sample
    }

    /// What tunes.
    pub(super) fn tuner(&self) -> &Tuner<Miniature> {
        &self.tuner
    }

    /// Sampled items that are stored.
    pub(super) fn item_count(&self) -> usize {
        self.tuner.own().item_count()
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.tuner.caches().map(Miniature::memory_bytes).sum::<usize>()
            + size_of::<PendingFills>()
            + self.ttls.memory_bytes()
            + self.fills.as_ref().map_or(0, |fills| fills.by_key.memory_bytes())
    }

    /// Whether there are more items than a comparison is worth.
    pub(super) fn has_too_many_items(&self) -> bool {
        self.item_count() as u64 > SAMPLED_ITEMS
    }

    /// Whether half of so many items are enough for a decision.
    pub(super) fn may_halve(item_count: f64) -> bool {
        item_count / 2.0 >= SAMPLED_ITEMS_MIN as f64
    }

    /// Whether so few keys are sampled that there are too few items for a decision.
    pub(super) fn should_raise_rate(&self) -> bool {
        self.keys_per_sample > 1 && (self.item_count() as u64) < SAMPLED_ITEMS_MIN
    }

    /// Whether more than one in the maximum of keys is sampled.
    pub(super) fn may_lower_rate(&self) -> bool {
        self.keys_per_sample < KEYS_PER_SAMPLE_MAX
    }

    /// Samples half of the keys from now on.
    pub(super) fn lower_rate(&mut self, totals: &CacheTotals) {
        self.keys_per_sample *= 2;
        let level_min = self.keys_per_sample.ilog2() as u8;
        self.tuner.for_each(|miniature| miniature.retain_level(level_min));
        // What the miniatures hold is half of what they held; only the counts are of more keys.
        self.tuner.be_silent(&CacheTotals { items: 0, ..*totals }, WaitReason::Disturbed);
    }

    /// Samples twice as many keys from now on.
    pub(super) fn raise_rate(&mut self, totals: &CacheTotals) {
        self.keys_per_sample /= 2;
        self.tuner.be_silent(totals, WaitReason::Disturbed);
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        self.tuner.for_each(Miniature::clear);
    }

    /// Changes the capacity of each miniature to what follows from its settings and its number of items.
    pub(super) fn set_capacities(
        &mut self,
        capacity_of: impl Fn(PolicySettings, usize) -> Capacity,
    ) {
        self.tuner.for_each(|miniature| {
            let capacity = capacity_of(miniature.settings(), miniature.item_count());
            miniature.set_capacity(capacity);
        });
    }

    /// Does in each miniature what a worker did; new items have so many bytes on average.
    pub(super) fn apply(&mut self, event: &Event<'_>, mean_bytes: u64) {
        let (key, stored, now) = (sampled_key(event.hash), stored_item(event), event.at.0);
        match event.kind {
            EventKind::GetHit => {
                let refilled = stored.with_ttl(self.ttls.get(key.tag), now);
                self.apply_read(event, key, Some(refilled), mean_bytes);
            }
            EventKind::GetMiss => {
                self.pending.add(key.tag, now);
                self.apply_read(event, key, None, mean_bytes);
            }
            EventKind::Set => {
                let is_fill = self.pending.take(key.tag, now);
                self.remember_ttl(key.tag, stored, now);
                self.tuner.for_each(|miniature| {
                    miniature.set_or_keep(key, stored, is_fill, mean_bytes, now);
                });
            }
            EventKind::Delete => self.tuner.for_each(|miniature| miniature.delete(key.tag)),
            EventKind::Touch => {
                self.remember_ttl(key.tag, stored, now);
                self.tuner.for_each(|miniature| miniature.touch(key.tag, event.expires_at, now));
            }
            EventKind::Fill => {
                if let Some(fills) = &mut self.fills {
                    fills.add(key.tag, event.value_bytes);
                }
            }
        }
    }

    fn remember_ttl(&mut self, tag: u32, stored: StoredItem, now: u32) {
        self.ttls.remember(tag, stored.expires_at.saturating_sub(now));
    }

    /// What a miss of a key costs. The store has no size of what it misses: a miniature that has the item knows it, and
    /// where none has it, the cost is the same for all and may be that of a mean item.
    fn miss_cost(&self, tag: u32, found: Option<StoredItem>, mean_bytes: u64) -> u64 {
        let bytes_of_kept = || self.tuner.caches().find_map(|miniature| miniature.bytes_of(tag));
        let bytes = || match found.map(|found| found.bytes).or_else(bytes_of_kept) {
            Some(bytes) => u64::from(bytes),
            None => mean_bytes.max(1),
        };
        let time_us = || self.fills.as_ref().map_or(1, |fills| fills.time_us(tag));
        self.goal.miss_cost(bytes, time_us)
    }

    fn apply_read(
        &mut self,
        event: &Event<'_>,
        key: SampledKey,
        refilled: Option<StoredItem>,
        mean_bytes: u64,
    ) {
        let group = group_of_hash(event.hash.0);
        let cost = self.miss_cost(key.tag, refilled, mean_bytes);
        if refilled.is_none() {
            self.sampled_miss_cost += cost;
        }
        self.tuner.count_get(group, cost, |miniature| {
            miniature.get_or_store(key, refilled, mean_bytes, event.at.0)
        });
    }

    /// A second has ended: the settings that the store has to have from now on, if they change. While the store is not
    /// warm, or there are too few items, nothing is decided.
    pub(super) fn end_second(
        &mut self,
        totals: &CacheTotals,
        is_warm: bool,
    ) -> Option<PolicySettings> {
        if let Some(settings) = self.tuner.take_back_untested(totals) {
            return Some(settings);
        }
        let items = self.item_count() as u64;
        let items_min = sampled_items_min(self.keys_per_sample == 1);
        if !is_warm {
            self.tuner.be_silent(totals, WaitReason::Disturbed);
        } else if items * 8 < items_min * 7 {
            self.tuner.be_silent(totals, WaitReason::TooFewItems);
        } else if items >= items_min {
            return self.tuner.end_window_if_over(totals);
        }
        // A number just below the minimum, as it varies from second to second, only makes the window longer.
        None
    }
}

/// Slots of the table of times to live.
const TTL_SLOTS: usize = 4096;

/// Slots of the table of fills: one for each sampled item.
const FILL_SLOTS: usize = 8192;

/// The mean time of fills is taken over about this many.
const FILL_WINDOW: f64 = 256.0;

/// What a miss costs before any fill was measured, in microseconds: the same for all.
const UNKNOWN_FILL_US: u64 = 1000;

/// How long clients took to fill misses.
#[derive(Default)]
struct FillCosts {
    /// In microseconds, by key.
    by_key: KeyNumbers<FILL_SLOTS>,
    /// The mean of recent ones; 0: none was measured.
    mean_us: f64,
}

impl FillCosts {
    /// A fill of a key was measured.
    fn add(&mut self, tag: u32, time_us: u32) {
        let time_us = time_us.max(1);
        let window = if self.mean_us == 0.0 { 1.0 } else { FILL_WINDOW };
        self.mean_us += (f64::from(time_us) - self.mean_us) / window;
        let before = self.by_key.get(tag);
        let smoothed_us = if before == 0 { time_us } else { before / 2 + time_us.div_ceil(2) };
        self.by_key.remember(tag, smoothed_us);
    }

    fn mean_us(&self) -> Option<u64> {
        (self.mean_us > 0.0).then(|| (self.mean_us as u64).max(1))
    }

    /// The time that a fill of a key takes, or a mean one where that is not known.
    fn time_us(&self, tag: u32) -> u64 {
        match self.by_key.get(tag) {
            0 => self.mean_us().unwrap_or(UNKNOWN_FILL_US),
            time_us => time_us.into(),
        }
    }
}

/// A number for each of the last keys, to nine significant bits: one key for each slot.
struct KeyNumbers<const SLOTS: usize>(Vec<(u16, u16)>);

impl<const SLOTS: usize> Default for KeyNumbers<SLOTS> {
    fn default() -> Self {
        KeyNumbers(vec![(0, 0); SLOTS])
    }
}

impl<const SLOTS: usize> KeyNumbers<SLOTS> {
    fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u16, u16)>()
    }

    fn remember(&mut self, tag: u32, number: u32) {
        if let Some(slot) = self.0.get_mut(tag as usize % SLOTS) {
            *slot = (check_of(tag), encode_number(number));
        }
    }

    /// 0 if it is not known.
    fn get(&self, tag: u32) -> u32 {
        let slot = self.0.get(tag as usize % SLOTS);
        slot.filter(|(check, _)| *check == check_of(tag))
            .map_or(0, |(_, code)| decode_number(*code))
    }
}

/// The bits of a tag that do not choose the slot.
fn check_of(tag: u32) -> u16 {
    (tag >> u16::BITS) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_costs_its_own_fills_and_others_a_mean_one() {
        let mut fills = FillCosts::default();
        assert_eq!((fills.mean_us(), fills.time_us(1)), (None, UNKNOWN_FILL_US));
        fills.add(1, 4000);
        assert_eq!((fills.mean_us(), fills.time_us(1), fills.time_us(2)), (Some(4000), 4000, 4000));
        (0..2000).for_each(|_| fills.add(0x7000_0002, 100));
        assert_eq!((fills.time_us(1), fills.time_us(0x7000_0002)), (4000, 100));
        assert!((100..110).contains(&fills.time_us(3)), "{}", fills.time_us(3));
        fills.add(1, 0);
        assert_eq!(fills.time_us(1), 2000, "a fill of no time is one of a microsecond");
    }
}
