//! The miniatures of a cache whose settings are tuned, what is counted of them in a window, and what the controller makes
//! of the counts.

use super::controller::{Action, Controller, WaitReason};
use super::settings::PolicySettings;
use super::switch_record::SwitchRecord;
use super::window::{MissCosts, Window, WindowLength};

/// A cache in miniature whose settings can be changed; a copy of it goes on with what it holds.
pub trait TunableCache: Clone {
    /// Changes the settings; what no longer fits leaves with the next insertions.
    fn change_settings(&mut self, settings: PolicySettings);
}

/// What the cache itself has done since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheTotals {
    /// Gets.
    pub requests: u64,
    /// The cost of those that missed.
    pub miss_cost: u64,
    /// Items that are stored now.
    pub items: u64,
    /// The time in seconds, where there is a clock.
    pub now_s: Option<u64>,
}

/// A miniature and the cost of its misses in the window.
#[derive(Debug, Clone)]
struct Counted<C> {
    cache: C,
    costs: MissCosts,
}

impl<C: TunableCache> Counted<C> {
    /// A copy with the settings of a candidate, without its counts.
    fn with_candidate(&self, candidate: usize) -> Self {
        let mut copy = Self { cache: self.cache.clone(), costs: MissCosts::default() };
        copy.cache.change_settings(PolicySettings::of_candidate(candidate));
        copy
    }
}

/// Tunes one cache.
#[derive(Debug, Clone)]
pub struct Tuner<C> {
    /// The cache in miniature: it has the settings of the cache.
    own: Counted<C>,
    /// A copy of it with other settings, while the controller needs one.
    copy: Option<Counted<C>>,
    /// A miniature for each of [`PolicySettings::CANDIDATES`], since the start.
    candidates: Vec<Counted<C>>,
    controller: Controller,
    window_length: WindowLength,
    window_count: u64,
    /// The cache's cost of misses when the window began.
    miss_cost_before: u64,
}

impl<C: TunableCache> Tuner<C> {
    /// For a cache with the default settings, of which `miniature` is an empty miniature.
    pub fn new(miniature: C) -> Self {
        let own = Counted { cache: miniature, costs: MissCosts::default() };
        let candidate_count = PolicySettings::CANDIDATES.len();
        Self {
            copy: None,
            candidates: (0..candidate_count).map(|index| own.with_candidate(index)).collect(),
            own,
            controller: Controller::new(candidate_count),
            window_length: WindowLength::default(),
            window_count: 0,
            miss_cost_before: 0,
        }
    }

    /// Counts a sampled get: its group of keys, what a miss of it costs, and whether it hits in each of the miniatures,
    /// which `get` finds out.
    pub fn count_get(&mut self, group: usize, cost: u64, mut get: impl FnMut(&mut C) -> bool) {
        for counted in self.counted_mut() {
            if !get(&mut counted.cache) {
                counted.costs.add(group, cost);
            }
        }
    }

    fn counted_mut(&mut self) -> impl Iterator<Item = &mut Counted<C>> {
        std::iter::once(&mut self.own).chain(&mut self.copy).chain(&mut self.candidates)
    }

    /// Calls `visit` with each of the miniatures.
    pub fn for_each(&mut self, mut visit: impl FnMut(&mut C)) {
        self.counted_mut().for_each(|counted| visit(&mut counted.cache));
    }

    /// All miniatures.
    pub fn caches(&self) -> impl Iterator<Item = &C> {
        let all = std::iter::once(&self.own).chain(&self.copy).chain(&self.candidates);
        all.map(|counted| &counted.cache)
    }

    /// The miniature that has the settings of the cache.
    pub fn own(&self) -> &C {
        &self.own.cache
    }

    /// Ends the window if it is over; the settings that the cache has to have from now on, if they change.
    pub fn end_window_if_over(&mut self, totals: &CacheTotals) -> Option<PolicySettings> {
        if !self.window_length.is_over(totals.requests, totals.items, totals.now_s) {
            return None;
        }
        self.window_count += 1;
        let candidates: Vec<MissCosts> =
            self.candidates.iter().map(|counted| counted.costs).collect();
        let action = self.controller.end_window(&Window {
            requests: totals.requests,
            now_s: totals.now_s,
            live_cost: totals.miss_cost.saturating_sub(self.miss_cost_before) as f64,
            miniature: self.own.costs,
            copy: self.copy.as_ref().map_or_else(MissCosts::default, |copy| copy.costs),
            candidates: &candidates,
        });
        self.clear_counts(totals);
        self.follow(action)
    }

    fn follow(&mut self, action: Action) -> Option<PolicySettings> {
        match action {
            Action::None => None,
            Action::EndCopy => {
                self.copy = None;
                None
            }
            Action::Rehearse(candidate) => {
                self.copy = Some(self.own.with_candidate(candidate));
                None
            }
            Action::Switch(candidate) => {
                let switched = self.own.with_candidate(candidate);
                self.copy = Some(std::mem::replace(&mut self.own, switched));
                Some(PolicySettings::of_candidate(candidate))
            }
        }
    }

    /// Decides nothing before two gets for each item have followed, for a reason; what was counted is forgotten.
    pub fn be_silent(&mut self, totals: &CacheTotals, reason: WaitReason) {
        self.controller.be_silent(totals.requests, totals.items, reason);
        self.copy = None;
        self.window_length.restart(totals.requests, totals.now_s);
        self.clear_counts(totals);
    }

    /// The settings that the cache has to have from now on, if the last switch is taken back because a silence has ended
    /// its trial.
    pub fn take_back_untested(&mut self, totals: &CacheTotals) -> Option<PolicySettings> {
        let action = self.controller.take_back_untested(totals.requests, totals.now_s);
        let settings = self.follow(action)?;
        self.copy = None;
        Some(settings)
    }

    fn clear_counts(&mut self, totals: &CacheTotals) {
        self.miss_cost_before = totals.miss_cost;
        self.counted_mut().for_each(|counted| counted.costs = MissCosts::default());
    }

    /// The settings that the cache has.
    pub fn settings(&self) -> PolicySettings {
        PolicySettings::of_candidate(self.controller.current())
    }

    /// Windows that have ended.
    pub fn window_count(&self) -> u64 {
        self.window_count
    }

    /// What the controller knows and has done.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The last switches, the oldest first.
    pub fn records(&self) -> Vec<SwitchRecord> {
        self.controller.records().copied().collect()
    }
}
