//! The model of a running store: it takes the events of the sampling layer and keeps what is reported up to date.

use std::sync::Arc;

use super::advice;
use super::candidates::Candidates;
use super::hot_keys::HotKeys;
use super::input::LiveInput;
use super::prefixes::Prefixes;
use super::report::{
    CurvePoint, CurveState, LiveCurve, LiveReport, PolicyReport, PolicySwitch, SamplingCosts,
};
use super::resize_check::ResizeCheck;
use super::sampled_keys::SampledKeys;
use super::sizing::Sizing;
use super::window::{SIZE_COUNT, SIZES};
use crate::counters::Counters;
use crate::request::Seconds;
use crate::sampling::{self, Event, KEYS_PER_SAMPLE_MAX};
use crate::store::Store;
use crate::tuning::{CacheTotals, Goal, PolicySettings, SwitchRecord};

/// All that is held for the sampling takes at most this fraction of `-m`, and may take the minimum anyway.
const MEMORY_DIVISOR: u64 = 200;
const MEMORY_BYTES_MIN: u64 = 256 << 10;
/// More than this gains nothing.
const MEMORY_BYTES_MAX: u64 = 4 << 20;
/// With the candidates of a policy that tunes itself, all three are larger by this: 0.7 % of `-m`.
const TUNED_MEMORY_FIFTHS: u64 = 7;

/// Changes of the settings that are reported.
const SWITCHES_REPORTED: usize = 8;

/// Events about sampled keys between two looks at the memory that they take: some 30 KB at all sizes together.
const EVENTS_PER_MEMORY_CHECK: u32 = 128;

/// With fewer sampled items a curve would be noise.
const ITEMS_MIN: usize = 250;

/// CPU time that the thread may take of each second and of the process's, in thousandths.
const CPU_PER_MILLE: u64 = 10;
/// And of each second if it needs that for [`ITEMS_MIN`].
const CPU_PER_MILLE_MAX: u64 = 50;

/// Seconds over which CPU time is compared with its limits.
const RATE_PERIOD_S: u32 = 5;

/// If more than one in this many of at least so many events is dropped, fewer keys are sampled from then on.
const DROPPED_DIVISOR: u64 = 50;
const EVENTS_TO_COMPARE: u64 = 100;

/// Of the events of a window. A key whose set was lost misses at all sizes, so a curve is too flat by the share that was
/// lost; this is about what [`super::window`] allows for in its interval.
const DROPPED_SHARE_MAX: f64 = 0.1;

/// Requests that are reported a second, about; with candidates fewer, because the time of the thread is for both.
const REQUEST_SAMPLES_PER_S: u64 = 4000;
const REQUEST_SAMPLES_PER_S_TUNED: u64 = 2000;
const REQUEST_INTERVAL_MIN: u64 = 8;
const REQUEST_INTERVAL_MAX: u64 = 1024;

/// After this time a store that has never evicted is as warm as it gets.
const WARM_AFTER_S: u32 = 900;

/// A choice of the hottest keys is made this often.
const CHOICE_INTERVAL_MS: u64 = 250;

/// The model of one store.
pub struct LiveModel {
    store: Arc<Store>,
    sample: SampledKeys,
    /// The candidates for the settings of the policy, if those are tuned.
    candidates: Option<Candidates>,
    /// When the settings of the policy were changed last.
    settings_since_ms: u64,
    hot_keys: HotKeys,
    prefixes: Prefixes,
    costs: SamplingCosts,
    /// The curve of the last second.
    last_curve: LiveCurve,
    resize_check: ResizeCheck,
    last_second: LiveInput,
    last_rate_check: LiveInput,
    last_choice_ms: u64,
    memory_bytes: u64,
    generation: u64,
    state_if_cold: CurveState,
    /// Bytes that the miniature of the present size had inserted when the state became cold.
    cold_since_bytes: u64,
    started_at: Seconds,
}

impl LiveModel {
    /// A model of a store that samples; a prefix of a key ends with `delimiter`. With a goal it changes the settings of
    /// the store's policy when others would miss less of what the goal counts.
    pub fn new(
        store: &Arc<Store>,
        delimiter: u8,
        tuning_goal: Option<Goal>,
        input: LiveInput,
    ) -> Self {
        LiveModel {
            sample: SampledKeys::new(),
            candidates: tuning_goal.map(Candidates::new),
            settings_since_ms: input.elapsed_ms,
            hot_keys: HotKeys::default(),
            prefixes: Prefixes::new(delimiter),
            costs: SamplingCosts { keys_per_sample: 1, ..SamplingCosts::default() },
            last_curve: LiveCurve::default(),
            resize_check: ResizeCheck::default(),
            last_second: input,
            last_rate_check: input,
            last_choice_ms: input.elapsed_ms,
            memory_bytes: store.memory_bytes(),
            generation: store.segments.flushes.generation(),
            state_if_cold: CurveState::Warming,
            cold_since_bytes: 0,
            started_at: input.now,
            store: Arc::clone(store),
        }
        .with_capacities(&store.counters())
    }

    fn with_capacities(mut self, counters: &Counters) -> Self {
        self.update_capacities(counters);
        self
    }

    /// Takes the events since the last call: how many there were, and once a second a report.
    pub fn step(&mut self, input: LiveInput) -> (u64, Option<LiveReport>) {
        let event_count = self.take_events();
        if input.elapsed_ms.saturating_sub(self.last_choice_ms) >= CHOICE_INTERVAL_MS {
            self.last_choice_ms = input.elapsed_ms;
            self.choose_sampled();
        }
        let elapsed_ms = input.elapsed_ms.saturating_sub(self.last_second.elapsed_ms);
        (event_count, (elapsed_ms >= 1000).then(|| self.end_second(input)))
    }

    fn take_events(&mut self) -> u64 {
        let store = Arc::clone(&self.store);
        let (mut event_count, mut request_count, mut sampled_count) = (0, 0, 0);
        let dropped = store.sampling.take_events(|event| {
            event_count += 1;
            if event.requests > 0 {
                request_count += 1;
                self.hot_keys.add_request(event);
                self.prefixes.add_request(event);
            } else {
                self.apply(event);
                sampled_count += 1;
                if sampled_count % EVENTS_PER_MEMORY_CHECK == 0 {
                    self.keep_memory_limit();
                }
            }
        });
        if event_count >= EVENTS_TO_COMPARE && dropped * DROPPED_DIVISOR > event_count {
            self.follow_drops(request_count * 2 > event_count);
        }
        self.sample.window.count_events(event_count, dropped, self.last_second.now.0);
        self.costs.events += event_count;
        self.costs.dropped_events += dropped;
        event_count
    }

    /// An event of a sampled key.
    fn apply(&mut self, event: &Event<'_>) {
        if sampling::is_sampled(event.hash, self.sample.keys_per_sample) {
            self.sample.apply(event);
        }
        let mean_bytes = self.sample.mean_bytes as u64;
        let samples_too = |candidates: &&mut Candidates| {
            sampling::is_sampled(event.hash, candidates.keys_per_sample())
        };
        if let Some(candidates) = self.candidates.as_mut().filter(samples_too) {
            candidates.apply(event, mean_bytes);
        }
    }

    /// Lets the store sample as many keys as the larger of the samples needs.
    fn choose_sampled(&mut self) {
        let keys_per_sample =
            self.candidates.as_ref().map_or(u32::MAX, Candidates::keys_per_sample);
        self.hot_keys
            .choose_exact(&self.store.sampling, keys_per_sample.min(self.sample.keys_per_sample));
    }

    /// Reports fewer requests or, if they are not what fills the rings, samples fewer keys, as long as enough will be left
    /// when the store is full.
    fn follow_drops(&mut self, are_mostly_requests: bool) {
        let interval = self.store.sampling.request_interval();
        if are_mostly_requests && u64::from(interval) < REQUEST_INTERVAL_MAX {
            self.store.sampling.set_request_interval(interval * 2);
        } else if self.curve_may_halve() || self.candidates_may_halve() {
            self.lower_rate();
        }
    }

    /// Whether half of the sampled keys are enough for a curve when the store is full.
    fn curve_may_halve(&self) -> bool {
        self.sample.items_if_full() / 2.0 >= ITEMS_MIN as f64
    }

    /// The same of the candidates.
    fn candidates_may_halve(&self) -> bool {
        let items_if_full = |candidates: &Candidates| {
            self.sample.items_if_full() * f64::from(self.sample.keys_per_sample)
                / f64::from(candidates.keys_per_sample())
        };
        self.candidates.as_ref().map(items_if_full).is_some_and(Candidates::may_halve)
    }

    fn end_second(&mut self, input: LiveInput) -> LiveReport {
        let before = std::mem::replace(&mut self.last_second, input);
        let gets = input.gets.saturating_sub(before.gets);
        let misses = input.misses.saturating_sub(before.misses);
        self.hot_keys.end_second(gets);
        self.sample.window.count_requests(gets, misses, input.now.0);
        let counters = self.store.counters();
        self.follow_changes(input.now);
        self.update_capacities(&counters);
        self.update_rates(input, gets);
        self.costs.cpu_us = input.cpu_us;
        self.costs.keys_per_sample = self.sample.keys_per_sample;
        self.costs.memory_bytes = self.used_bytes();
        let curve = self.curve(&counters, &input);
        self.last_curve.clone_from(&curve);
        let is_warm = !matches!(curve.state, CurveState::Warming | CurveState::Resized);
        self.tune(&counters, is_warm);
        LiveReport {
            curve,
            hot_keys: self.hot_keys.report(),
            prefixes: self.prefixes.report(),
            costs: self.costs,
            policy: self.policy(),
        }
    }

    /// What the store has done until the last second, for the candidates.
    fn totals(&self, items: u64) -> CacheTotals {
        let LiveInput { gets, misses, elapsed_ms, .. } = self.last_second;
        let candidates = self.candidates.as_ref();
        let miss_cost = candidates.map_or(misses, |candidates| candidates.store_miss_cost(misses));
        CacheTotals { requests: gets, miss_cost, items, now_s: Some(elapsed_ms / 1000) }
    }

    /// Lets the settings of the policy follow the candidates.
    fn tune(&mut self, counters: &Counters, is_warm: bool) {
        let totals = self.totals(counters.items);
        let Some(candidates) = &mut self.candidates else {
            return;
        };
        if let Some(settings) = candidates.end_second(&totals, is_warm) {
            self.store.set_policy_settings(settings);
            self.sample.change_settings(settings);
            self.settings_since_ms = self.last_second.elapsed_ms;
        }
    }

    /// The settings of the policy, and what was done to them.
    pub fn policy(&self) -> PolicyReport {
        let now_ms = self.last_second.elapsed_ms;
        let fixed = PolicyReport {
            settings: self.store.policy_settings().unwrap_or(PolicySettings::DEFAULT),
            age_s: now_ms.saturating_sub(self.settings_since_ms) / 1000,
            ..PolicyReport::default()
        };
        let Some(candidates) = &self.candidates else {
            return fixed;
        };
        let (tuner, controller) = (candidates.tuner(), candidates.tuner().controller());
        let to_switch = |record: &SwitchRecord| PolicySwitch {
            from: PolicySettings::of_candidate(record.from),
            to: PolicySettings::of_candidate(record.to),
            age_s: (now_ms / 1000).saturating_sub(record.now_s.unwrap_or(0)),
            record: *record,
        };
        PolicyReport {
            goal: Some(candidates.goal()),
            mean_fill_us: candidates.mean_fill_us(),
            wait_reason: Some(controller.wait_reason()),
            windows: tuner.window_count(),
            switches: controller.switch_count(),
            undos: controller.undo_count(),
            sampled_items: candidates.item_count() as u64,
            keys_per_sample: candidates.keys_per_sample(),
            last_switches: controller
                .records()
                .rev()
                .take(SWITCHES_REPORTED)
                .map(to_switch)
                .collect(),
            ..fixed
        }
    }

    /// Begins anew where the store was flushed, and waits where its memory has changed.
    fn follow_changes(&mut self, now: Seconds) {
        let memory_bytes = self.store.memory_bytes();
        if std::mem::replace(&mut self.memory_bytes, memory_bytes) != memory_bytes {
            self.resize_check.begin(&self.last_curve, memory_bytes);
            self.set_cold(CurveState::Resized, now);
            self.sample.window.clear();
        }
        let generation = self.store.segments.flushes.living_generation_min();
        if std::mem::replace(&mut self.generation, generation) != generation {
            self.sample.clear();
            self.candidates.iter_mut().for_each(Candidates::clear);
            self.resize_check.clear();
            self.set_cold(CurveState::Warming, now);
        }
    }

    fn set_cold(&mut self, state: CurveState, now: Seconds) {
        self.state_if_cold = state;
        self.cold_since_bytes = self.sample.present().inserted_bytes();
        self.started_at = now;
    }

    /// The capacities at all sizes: the live bytes that the store holds at its own, and the memory that its index leaves.
    fn update_capacities(&mut self, counters: &Counters) {
        let sizing = Sizing {
            memory_bytes: self.memory_bytes as f64,
            index_bytes: counters.index_bytes as f64,
            ghost_bytes: counters.ghost_bytes as f64,
            item_bytes: (counters.evictions > 0).then_some(counters.item_bytes as f64),
            workers: self.store.config().workers,
        };
        let settings = self.store.policy_settings().unwrap_or(PolicySettings::DEFAULT);
        let keys_per_sample = self.sample.keys_per_sample;
        let mut lru_capacities = [0; SIZE_COUNT];
        for ((miniature, factor), lru_capacity) in
            self.sample.miniatures.iter_mut().zip(SIZES).zip(&mut lru_capacities)
        {
            let items = miniature.item_count();
            let capacity = sizing.capacity(factor, settings, keys_per_sample, items);
            miniature.set_capacity(capacity);
            *lru_capacity = capacity.bytes;
        }
        self.sample.lru.set_capacities(lru_capacities);
        if let Some(candidates) = &mut self.candidates {
            let keys_per_sample = candidates.keys_per_sample();
            candidates.set_capacities(|settings, items| {
                sizing.capacity_with_ghost(settings, keys_per_sample, items)
            });
        }
    }

    /// Lets the rates follow memory, CPU time and dropped events.
    fn update_rates(&mut self, input: LiveInput, gets: u64) {
        let samples_per_s = match &self.candidates {
            None => REQUEST_SAMPLES_PER_S,
            Some(_) => REQUEST_SAMPLES_PER_S_TUNED,
        };
        let interval = gets / samples_per_s;
        let interval = interval.clamp(REQUEST_INTERVAL_MIN, REQUEST_INTERVAL_MAX) as u32;
        self.store.sampling.set_request_interval(interval);
        self.keep_memory_limit();
        if input.elapsed_ms.saturating_sub(self.last_rate_check.elapsed_ms)
            < u64::from(RATE_PERIOD_S) * 1000
        {
            return;
        }
        let before = std::mem::replace(&mut self.last_rate_check, input);
        let elapsed_us = input.elapsed_ms.saturating_sub(before.elapsed_ms) * 1000;
        let cpu_us = input.cpu_us.saturating_sub(before.cpu_us);
        let process_cpu_us = input.process_cpu_us.saturating_sub(before.process_cpu_us);
        // The candidates stop rather than take more than their share.
        let may_lower = self.sample.present().item_count() / 2 >= ITEMS_MIN
            || self.candidates.as_ref().is_some_and(Candidates::may_lower_rate);
        let share_us = elapsed_us.max(process_cpu_us) * CPU_PER_MILLE / 1000;
        let is_over_share = cpu_us > share_us;
        let is_over_limit = cpu_us * 1000 > elapsed_us * CPU_PER_MILLE_MAX;
        if may_lower && is_over_share || is_over_limit {
            self.lower_rate();
        } else if cpu_us * 2 < share_us && self.raise_candidates_rate() {
            // What the thread takes doubles at most.
        } else if self.sample.present().item_count() < ITEMS_MIN / 2
            && self.sample.keys_per_sample > 1
            && cpu_us * 8000 < elapsed_us * CPU_PER_MILLE
            && self.used_bytes() * 2 < self.memory_limit_bytes()
        {
            self.sample.keys_per_sample /= 2;
            self.set_cold(CurveState::Warming, input.now);
            self.sample.window.clear();
        }
    }

    /// Samples fewer keys until the memory for it is below its limit.
    fn keep_memory_limit(&mut self) {
        while self.used_bytes() > self.memory_limit_bytes() && self.lower_rate() {}
        if self.candidates.as_ref().is_some_and(Candidates::has_too_many_items) {
            self.lower_candidates_rate();
        }
    }

    /// Samples half of the keys, for the curve as long as that leaves enough for it, then for the candidates, which need
    /// more; false if it is one in the maximum already.
    fn lower_rate(&mut self) -> bool {
        let may_lower_curve = self.sample.keys_per_sample < KEYS_PER_SAMPLE_MAX;
        if may_lower_curve && (self.candidates.is_none() || self.curve_may_halve()) {
            self.lower_curve_rate();
            return true;
        }
        if self.lower_candidates_rate() {
            return true;
        }
        if may_lower_curve {
            self.lower_curve_rate();
        }
        may_lower_curve
    }

    fn lower_curve_rate(&mut self) {
        // What was inserted so far counts as half as much from now on, as the capacity does.
        let inserted_before = self.sample.present().inserted_bytes();
        self.sample.lower_rate();
        let since = inserted_before - self.cold_since_bytes;
        self.cold_since_bytes = inserted_before - since / 2;
        self.follow_rates();
    }

    /// Samples half of the keys for the candidates; false if it is one in the maximum already, or there are none.
    fn lower_candidates_rate(&mut self) -> bool {
        let totals = self.totals(0);
        let may_lower = |candidates: &&mut Candidates| candidates.may_lower_rate();
        let Some(candidates) = self.candidates.as_mut().filter(may_lower) else {
            return false;
        };
        candidates.lower_rate(&totals);
        self.follow_rates();
        true
    }

    /// Samples twice as many keys for the candidates, if there are too few items of them and memory for more.
    fn raise_candidates_rate(&mut self) -> bool {
        let memory_left = self.memory_limit_bytes().saturating_sub(self.used_bytes());
        let totals = self.totals(self.store.counters().items);
        let should_raise = |candidates: &&mut Candidates| {
            candidates.should_raise_rate() && candidates.memory_bytes() as u64 <= memory_left
        };
        let Some(candidates) = self.candidates.as_mut().filter(should_raise) else {
            return false;
        };
        candidates.raise_rate(&totals);
        self.follow_rates();
        true
    }

    /// Lets capacities and the store follow changed rates.
    fn follow_rates(&mut self) {
        let counters = self.store.counters();
        self.update_capacities(&counters);
        self.choose_sampled();
    }

    fn memory_limit_bytes(&self) -> u64 {
        let bytes = (self.memory_bytes / MEMORY_DIVISOR).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX);
        if self.candidates.is_some() { bytes * TUNED_MEMORY_FIFTHS / 5 } else { bytes }
    }

    fn used_bytes(&self) -> u64 {
        let parts = [
            self.store.sampling.memory_bytes(),
            self.sample.memory_bytes(),
            self.candidates.as_ref().map_or(0, Candidates::memory_bytes),
            self.hot_keys.memory_bytes(),
            self.prefixes.memory_bytes(),
        ];
        parts.iter().sum::<usize>() as u64
    }

    fn state(&self, counters: &Counters, now: Seconds) -> CurveState {
        let present = self.sample.present();
        let inserted_bytes = present.inserted_bytes() - self.cold_since_bytes;
        let is_filled = inserted_bytes * 2 >= present.capacity_bytes();
        let is_settled =
            counters.evictions == 0 && now.0.saturating_sub(self.started_at.0) >= WARM_AFTER_S;
        if !is_filled && !is_settled {
            self.state_if_cold
        } else if present.item_count() < ITEMS_MIN {
            CurveState::TooFew
        } else if self.sample.window.totals().dropped_share() > DROPPED_SHARE_MAX {
            CurveState::EventsLost
        } else {
            CurveState::Ok
        }
    }

    fn curve(&mut self, counters: &Counters, input: &LiveInput) -> LiveCurve {
        let now = input.now;
        let totals = self.sample.window.totals();
        let keys_per_sample = f64::from(self.sample.keys_per_sample);
        let distinct = &self.sample.distinct;
        let working_set = distinct.used_bytes(now.0) * distinct.scale() * keys_per_sample;
        let mut curve = LiveCurve {
            state: self.state(counters, now),
            rows: Vec::new(),
            working_set_bytes: working_set as u64,
            unlimited_hit_ratio: totals.unlimited_hit_ratio(),
            sampled_items: self.sample.present().item_count() as u64,
            memory_bytes: self.memory_bytes,
            miss_ratio: totals.miss_ratio(),
            gets_per_second: totals.gets() / f64::from(totals.seconds()),
            window_s: totals.seconds(),
            miss_time_s: input.miss_time_us.map(|time_us| time_us as f64 / 1e6),
            advice: Vec::new(),
            resize: None,
        };
        self.resize_check.end_second(curve.state, input);
        curve.resize = self.resize_check.report();
        if curve.state == CurveState::Ok {
            let points = totals.estimates().into_iter().zip(SIZES);
            curve.rows = points
                .map(|(estimate, factor)| CurvePoint {
                    memory_bytes: (self.memory_bytes as f64 * factor) as u64,
                    miss_ratio: estimate.miss_ratio,
                    low: (estimate.miss_ratio - estimate.error).max(0.0),
                    high: (estimate.miss_ratio + estimate.error).min(1.0),
                    lru_miss_ratio: estimate.lru_miss_ratio,
                })
                .collect();
            curve.advice = advice::advise(&curve);
        }
        curve
    }
}
