//! The server's policy with the controller that changes its settings: every candidate runs in miniature over a sample.

use glasscache_store::tuning::{
    Action, Controller, MissCosts, PolicySettings, SwitchRecord, Window, WindowLength,
    group_of_hash, sampled_share,
};

use super::own_items::OwnItems;
use super::{Policy, Removable, Weights, fitting_objects};

/// Microseconds of a second.
const SECOND_US: u64 = 1_000_000;

/// A cache whose settings are tuned.
pub(crate) struct Tuned<'t, W> {
    live: OwnItems<W>,
    /// The live cache in miniature; `None` if there are too few items.
    miniature: Option<OwnItems<W>>,
    /// A copy of it with other settings, while the controller needs one.
    copy: Option<OwnItems<W>>,
    /// A miniature for each candidate.
    candidates: Vec<OwnItems<W>>,
    miniature_costs: MissCosts,
    copy_costs: MissCosts,
    candidate_costs: Vec<MissCosts>,
    live_misses: u64,
    controller: Controller,
    window_length: WindowLength,
    requests: u64,
    /// Keys whose hash is below it are sampled.
    sampled_below: u64,
    /// The time of each row in microseconds; empty where there is no clock.
    times: &'t [u64],
}

impl<'t, W: Weights> Tuned<'t, W> {
    /// A cache for a trace whose rows have these times; none if it has no clock.
    pub(crate) fn new(object_count: usize, weights: W, capacity: u64, times: &'t [u64]) -> Self {
        let items = fitting_objects(weights, object_count, capacity) as u64;
        let share = sampled_share(items);
        let miniature_capacity = (capacity as f64 * share.unwrap_or(0.0)).round() as u64;
        let new_miniature =
            |&settings| OwnItems::new(object_count, weights, miniature_capacity, settings);
        let miniature = share.map(|_| new_miniature(&PolicySettings::DEFAULT));
        let candidates: Vec<OwnItems<W>> = match share {
            Some(_) => PolicySettings::CANDIDATES.iter().map(new_miniature).collect(),
            None => Vec::new(),
        };
        let mut controller = Controller::new(candidates.len());
        controller.be_silent(0, items);
        Self {
            live: OwnItems::new(object_count, weights, capacity, PolicySettings::DEFAULT),
            miniature,
            copy: None,
            miniature_costs: MissCosts::default(),
            copy_costs: MissCosts::default(),
            candidate_costs: vec![MissCosts::default(); candidates.len()],
            candidates,
            live_misses: 0,
            controller,
            window_length: WindowLength::default(),
            requests: 0,
            sampled_below: share.map_or(0, |share| (share * u64::MAX as f64) as u64),
            times,
        }
    }

    /// The last switches, the oldest first.
    pub(crate) fn records(&self) -> Vec<SwitchRecord> {
        self.controller.records().copied().collect()
    }

    /// The settings in use.
    pub(crate) fn settings(&self) -> PolicySettings {
        candidate_settings(self.controller.current())
    }

    /// Why nothing is changed now.
    pub(crate) fn wait_reason(&self) -> String {
        match self.miniature {
            Some(_) => self.controller.wait_reason().to_string(),
            None => "there are too few items for a decision".to_owned(),
        }
    }

    fn is_sampled(&self, hash: u64) -> bool {
        self.sampled_below == u64::MAX || hash.rotate_left(32) < self.sampled_below
    }

    /// Counts a request in the miniatures.
    fn sample(&mut self, position: u32, id: u32) {
        let hash = mix(id);
        if !self.is_sampled(hash) {
            return;
        }
        let group = group_of_hash(hash);
        let own = self.miniature.iter_mut().zip(std::iter::once(&mut self.miniature_costs));
        let copy = self.copy.iter_mut().zip(std::iter::once(&mut self.copy_costs));
        let candidates = self.candidates.iter_mut().zip(&mut self.candidate_costs);
        for (cache, costs) in own.chain(copy).chain(candidates) {
            if !cache.request(position, id) {
                costs.add(group, 1);
            }
        }
    }

    fn end_window(&mut self, now_s: Option<u64>) {
        let window = Window {
            requests: self.requests,
            now_s,
            live_cost: self.live_misses as f64,
            miniature: self.miniature_costs,
            copy: self.copy_costs,
            candidates: &self.candidate_costs,
        };
        match self.controller.end_window(&window) {
            Action::None => {}
            Action::EndCopy => self.copy = None,
            Action::Rehearse(candidate) => {
                self.copy.clone_from(&self.miniature);
                change_settings(&mut self.copy, candidate);
            }
            Action::Switch(candidate) => {
                self.copy.clone_from(&self.miniature);
                change_settings(&mut self.miniature, candidate);
                self.live.change_settings(candidate_settings(candidate));
            }
        }
        self.live_misses = 0;
        self.miniature_costs = MissCosts::default();
        self.copy_costs = MissCosts::default();
        self.candidate_costs.fill(MissCosts::default());
    }

    /// All miniatures.
    fn sampled_caches(&mut self) -> impl Iterator<Item = &mut OwnItems<W>> {
        self.miniature.iter_mut().chain(&mut self.copy).chain(&mut self.candidates)
    }
}

fn candidate_settings(candidate: usize) -> PolicySettings {
    PolicySettings::CANDIDATES.get(candidate).copied().unwrap_or(PolicySettings::DEFAULT)
}

fn change_settings<W: Weights>(cache: &mut Option<OwnItems<W>>, candidate: usize) {
    if let Some(cache) = cache {
        cache.change_settings(candidate_settings(candidate));
    }
}

impl<W: Weights> Policy for Tuned<'_, W> {
    fn request(&mut self, position: u32, id: u32) -> bool {
        let is_hit = self.live.request(position, id);
        if self.miniature.is_none() {
            return is_hit;
        }
        self.requests += 1;
        self.live_misses += u64::from(!is_hit);
        self.sample(position, id);
        let now_s = self.times.get(position as usize).map(|time_us| time_us / SECOND_US);
        if self.window_length.is_over(self.requests, self.live.count().into(), now_s) {
            self.end_window(now_s);
        }
        is_hit
    }
}

impl<W: Weights> Removable for Tuned<'_, W> {
    fn remove(&mut self, id: u32) {
        self.live.remove(id);
        if self.is_sampled(mix(id)) {
            self.sampled_caches().for_each(|cache| cache.remove(id));
        }
    }

    fn write(&mut self, position: u32, id: u32) {
        self.live.request(position, id);
        if self.is_sampled(mix(id)) {
            for cache in self.sampled_caches() {
                cache.request(position, id);
            }
        }
    }
}

/// A hash of an object's number (the finalizer of `SplitMix64`).
fn mix(id: u32) -> u64 {
    let mut hash = u64::from(id).wrapping_add(0x9E37_79B9_7F4A_7C15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}
