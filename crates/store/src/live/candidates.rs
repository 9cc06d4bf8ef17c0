//! The candidates of a policy that tunes itself, over a sample of the keys that is larger than that of the curve.

use super::items::{SampledKey, decode_ttl, encode_ttl};
use super::miniature::{Capacity, Miniature, StoredItem};
use super::pending_fills::PendingFills;
use super::sampled_keys::{sampled_key, stored_item};
use crate::policy::TwoQueuePolicy;
use crate::sampling::{Event, EventKind, KEYS_PER_SAMPLE_MAX};
use crate::tuning::{
    CacheTotals, PolicySettings, SAMPLED_ITEMS, SAMPLED_ITEMS_MIN, TunableCache, Tuner, WaitReason,
    group_of_hash, sampled_items_min,
};

/// The candidates.
pub(super) struct Candidates {
    /// One in this many keys is sampled.
    keys_per_sample: u32,
    tuner: Tuner<Miniature>,
    pending: PendingFills,
    ttls: Ttls,
}

impl TunableCache for Miniature {
    fn change_settings(&mut self, settings: PolicySettings) {
        self.change_settings(settings);
    }
}

impl Candidates {
    /// Every key is sampled at first.
    pub(super) fn new() -> Self {
        Candidates {
            keys_per_sample: 1,
            tuner: Tuner::new(Miniature::new(TwoQueuePolicy::OWN)),
            pending: PendingFills::default(),
            ttls: Ttls::default(),
        }
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
                let refilled = stored.with_ttl(self.ttls.ttl_s(key.tag), now);
                self.apply_read(event, key, Some(refilled), mean_bytes);
            }
            EventKind::GetMiss => {
                self.pending.add(key.tag, now);
                self.apply_read(event, key, None, mean_bytes);
            }
            EventKind::Set => {
                let is_fill = self.pending.take(key.tag, now);
                self.ttls.remember(key.tag, stored, now);
                self.tuner.for_each(|miniature| {
                    miniature.set_or_keep(key, stored, is_fill, mean_bytes, now);
                });
            }
            EventKind::Delete => self.tuner.for_each(|miniature| miniature.delete(key.tag)),
            EventKind::Touch => {
                self.ttls.remember(key.tag, stored, now);
                self.tuner.for_each(|miniature| miniature.touch(key.tag, event.expires_at, now));
            }
        }
    }

    fn apply_read(
        &mut self,
        event: &Event<'_>,
        key: SampledKey,
        refilled: Option<StoredItem>,
        mean_bytes: u64,
    ) {
        let group = group_of_hash(event.hash.0);
        self.tuner.count_get(group, 1, |miniature| {
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

/// The times to live with which keys were stored last: one key for each slot.
struct Ttls(Vec<(u16, u16)>);

impl Default for Ttls {
    fn default() -> Self {
        Ttls(vec![(0, 0); TTL_SLOTS])
    }
}

impl Ttls {
    fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u16, u16)>()
    }

    fn remember(&mut self, tag: u32, stored: StoredItem, now: u32) {
        if let Some(slot) = self.0.get_mut(tag as usize % TTL_SLOTS) {
            *slot = (check_of(tag), encode_ttl(stored.expires_at.saturating_sub(now)));
        }
    }

    /// In seconds; 0 if it is not known.
    fn ttl_s(&self, tag: u32) -> u32 {
        let slot = self.0.get(tag as usize % TTL_SLOTS);
        slot.filter(|(check, _)| *check == check_of(tag)).map_or(0, |(_, code)| decode_ttl(*code))
    }
}

/// The bits of a tag that do not choose the slot.
fn check_of(tag: u32) -> u16 {
    (tag >> u16::BITS) as u16
}
