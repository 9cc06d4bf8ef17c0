//! The server's policy with the controller that changes its settings: every candidate runs in miniature over a sample.

use glasscache_store::tuning::{
    CacheTotals, Goal, PolicySettings, SwitchRecord, TunableCache, Tuner, WaitReason,
    group_of_hash, sampled_share,
};

use super::own_items::OwnItems;
use super::{LookUp, Policy, Removable, Weights, fitting_objects};
use crate::random::step;

/// Microseconds of a second.
const SECOND_US: u64 = 1_000_000;

/// What the settings are tuned for, and the seed that chooses the sampled keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TunedOptions {
    pub(crate) goal: Goal,
    pub(crate) seed: u64,
}

/// A cache whose settings are tuned.
pub(crate) struct Tuned<'t, W> {
    live: OwnItems<W>,
    weights: W,
    options: TunedOptions,
    /// `None` if there are too few items.
    tuner: Option<Tuner<OwnItems<W>>>,
    totals: CacheTotals,
    /// Keys whose hash is below it are sampled.
    sampled_below: u64,
    /// The time of each row in microseconds; empty where there is no clock.
    times: &'t [u64],
}

impl<'t, W: Weights> Tuned<'t, W> {
    /// A cache for a trace whose rows have these times; none if it has no clock.
    pub(crate) fn new(
        object_count: usize,
        weights: W,
        capacity: u64,
        options: TunedOptions,
        times: &'t [u64],
    ) -> Self {
        let items = fitting_objects(weights, object_count, capacity) as u64;
        let share = sampled_share(items);
        let new_cache =
            |capacity| OwnItems::new(object_count, weights, capacity, PolicySettings::DEFAULT);
        let tuner = share.map(|share| {
            let mut tuner = Tuner::new(new_cache((capacity as f64 * share).round() as u64));
            let totals = CacheTotals { items, ..CacheTotals::default() };
            tuner.be_silent(&totals, WaitReason::Disturbed);
            tuner
        });
        Self {
            live: new_cache(capacity),
            weights,
            options,
            tuner,
            totals: CacheTotals::default(),
            sampled_below: share.map_or(0, |share| (share * u64::MAX as f64) as u64),
            times,
        }
    }

    /// The last switches, the oldest first.
    pub(crate) fn records(&self) -> Vec<SwitchRecord> {
        self.tuner.as_ref().map(Tuner::records).unwrap_or_default()
    }

    /// The settings in use.
    pub(crate) fn settings(&self) -> PolicySettings {
        self.tuner.as_ref().map_or(PolicySettings::DEFAULT, Tuner::settings)
    }

    /// Why nothing is changed now.
    pub(crate) fn wait_reason(&self) -> String {
        let tuner = self.tuner.as_ref();
        let reason =
            tuner.map_or(WaitReason::TooFewItems, |tuner| tuner.controller().wait_reason());
        reason.to_string()
    }

    fn hash(&self, id: u32) -> u64 {
        step(u64::from(id) ^ self.options.seed << u32::BITS)
    }

    fn is_sampled(&self, hash: u64) -> bool {
        self.sampled_below == u64::MAX || hash.rotate_left(32) < self.sampled_below
    }

    /// Counts a get, which the miniatures serve themselves, and changes the settings if a window ends with it.
    fn count_get(&mut self, position: u32, id: u32, is_hit: bool) {
        let hash = self.hash(id);
        let is_sampled = self.is_sampled(hash);
        // A trace has no times of misses.
        let cost = self.options.goal.miss_cost(|| self.weights.of(id), || 1);
        let Some(tuner) = &mut self.tuner else {
            return;
        };
        if is_sampled {
            tuner.count_get(group_of_hash(hash), cost, |cache| cache.request(position, id));
        }
        let now_us = self.times.get(position as usize);
        self.totals = CacheTotals {
            requests: self.totals.requests + 1,
            miss_cost: self.totals.miss_cost + if is_hit { 0 } else { cost },
            items: self.live.count().into(),
            now_s: now_us.map(|time_us| time_us / SECOND_US),
        };
        if let Some(settings) = tuner.end_window_if_over(&self.totals) {
            self.live.change_settings(settings);
        }
    }

    /// Calls `change` with each miniature if the object is sampled.
    fn change_sampled(&mut self, id: u32, change: impl FnMut(&mut OwnItems<W>)) {
        let is_sampled = self.is_sampled(self.hash(id));
        if let Some(tuner) = self.tuner.as_mut().filter(|_| is_sampled) {
            tuner.for_each(change);
        }
    }
}

impl<W: Weights> TunableCache for OwnItems<W> {
    fn change_settings(&mut self, settings: PolicySettings) {
        self.change_settings(settings);
    }
}

impl<W: Weights> Policy for Tuned<'_, W> {
    fn request(&mut self, position: u32, id: u32) -> bool {
        let is_hit = self.live.request(position, id);
        self.count_get(position, id, is_hit);
        is_hit
    }
}

impl<W: Weights> Removable for Tuned<'_, W> {
    fn remove(&mut self, id: u32) {
        self.live.remove(id);
        self.change_sampled(id, |cache| cache.remove(id));
    }

    fn write(&mut self, position: u32, id: u32) {
        self.live.request(position, id);
        self.change_sampled(id, |cache| {
            cache.request(position, id);
        });
    }
}

impl<W: Weights> LookUp for Tuned<'_, W> {
    fn contains(&self, id: u32) -> bool {
        self.live.contains(id)
    }

    fn get(&mut self, id: u32) -> bool {
        let is_hit = self.live.get(id);
        self.count_get(0, id, is_hit);
        is_hit
    }

    /// A miniature has what missed in it from the get on, so it stores only what comes without one.
    fn insert(&mut self, id: u32) {
        self.live.insert(id);
        self.change_sampled(id, |cache| cache.insert(id));
    }
}
