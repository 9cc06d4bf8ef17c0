//! The model of a running store: it takes the events of the sampling layer and keeps what is reported up to date.
//!
//! How a miniature treats a read in which it and the store differ follows from the look-aside use of a cache, in which
//! the application stores what it missed:
//!
//! | the store | the miniature | then |
//! |---|---|---|
//! | hits | misses | it would have been stored now, with its whole TTL: the miniature stores it |
//! | misses | hits | it would not have been stored: the set that follows within a minute changes nothing there |
//! | misses | misses | the set that follows stores it |

use std::sync::Arc;

use super::advice;
use super::distinct::DistinctKeys;
use super::hot_keys::HotKeys;
use super::input::LiveInput;
use super::items::SampledKey;
use super::lru::LruBands;
use super::miniature::{Capacity, Miniature, StoredItem};
use super::prefixes::Prefixes;
use super::report::{CurvePoint, CurveState, LiveCurve, LiveReport, SamplingCosts};
use super::resize_check::ResizeCheck;
use super::window::{GROUPS, PRESENT, SIZE_COUNT, SIZES, Window};
use crate::counters::Counters;
use crate::footprint::record_bytes;
use crate::policy::TwoQueuePolicy;
use crate::request::{KeyHash, Seconds};
use crate::sampling::{self, Event, EventKind, KEYS_PER_SAMPLE_MAX};
use crate::store::Store;

/// All that is held for the sampling takes at most this fraction of `-m`, and may take the minimum anyway.
const MEMORY_DIVISOR: u64 = 200;
const MEMORY_BYTES_MIN: u64 = 256 << 10;
/// More than this gains nothing.
const MEMORY_BYTES_MAX: u64 = 4 << 20;

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

/// Requests that are reported a second, about.
const REQUEST_SAMPLES_PER_S: u64 = 4000;
const REQUEST_INTERVAL_MIN: u64 = 8;
const REQUEST_INTERVAL_MAX: u64 = 1024;

/// A set this long after a miss of the same key fills it.
const FILL_S: u32 = 60;

/// Entries of the table of misses that have not been filled.
const PENDING_FILLS: usize = 512;

/// Live bytes per byte of memory, before the store is full and shows its own.
const UTILISATION_START: f64 = 0.93;

/// The mean size of new items is taken over about this many sampled ones.
const MEAN_WINDOW: f64 = 64.0;

/// After this time a store that has never evicted is as warm as it gets.
const WARM_AFTER_S: u32 = 900;

/// A choice of the hottest keys is made this often.
const CHOICE_INTERVAL_MS: u64 = 250;

/// The model of one store.
pub struct LiveModel {
    store: Arc<Store>,
    sample: SampledKeys,
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

/// The sampled keys at each size.
struct SampledKeys {
    /// One in this many keys is sampled.
    keys_per_sample: u32,
    miniatures: [Miniature; SIZE_COUNT],
    lru: LruBands<SIZE_COUNT>,
    distinct: DistinctKeys,
    pending: PendingFills,
    window: Window,
    mean_bytes: f64,
}

impl LiveModel {
    /// A model of a store that samples; a prefix of a key ends with `delimiter`.
    pub fn new(store: &Arc<Store>, delimiter: u8, input: LiveInput) -> Self {
        LiveModel {
            sample: SampledKeys {
                keys_per_sample: 1,
                miniatures: std::array::from_fn(|_| Miniature::new(TwoQueuePolicy::OWN)),
                lru: LruBands::default(),
                distinct: DistinctKeys::default(),
                pending: PendingFills::default(),
                window: Window::default(),
                mean_bytes: 0.0,
            },
            hot_keys: HotKeys::default(),
            prefixes: Prefixes::new(delimiter),
            costs: SamplingCosts { keys_per_sample: 1, ..SamplingCosts::default() },
            last_curve: LiveCurve::default(),
            resize_check: ResizeCheck::default(),
            last_second: input,
            last_rate_check: input,
            last_choice_ms: input.elapsed_ms,
            memory_bytes: store.memory_bytes(),
            generation: store.segments.generation(),
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
            self.hot_keys.choose_exact(&self.store.sampling, self.sample.keys_per_sample);
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
            } else if sampling::is_sampled(event.hash, self.sample.keys_per_sample) {
                self.sample.apply(event);
                sampled_count += 1;
                if sampled_count % EVENTS_PER_MEMORY_CHECK == 0 {
                    self.keep_memory_limit();
                }
            }
        });
        if event_count >= EVENTS_TO_COMPARE && dropped * DROPPED_DIVISOR > event_count {
            self.follow_drops(request_count * 2 > event_count);
        }
        self.costs.events += event_count;
        self.costs.dropped_events += dropped;
        event_count
    }

    /// Reports fewer requests or, if they are not what fills the rings, samples fewer keys, as long as enough will be left
    /// when the store is full.
    fn follow_drops(&mut self, are_mostly_requests: bool) {
        let interval = self.store.sampling.request_interval();
        let items_if_full =
            self.sample.present().capacity_bytes() as f64 / self.sample.mean_bytes.max(1.0);
        if are_mostly_requests && u64::from(interval) < REQUEST_INTERVAL_MAX {
            self.store.sampling.set_request_interval(interval * 2);
        } else if items_if_full / 2.0 >= ITEMS_MIN as f64 {
            self.lower_rate();
        }
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
        LiveReport {
            curve,
            hot_keys: self.hot_keys.report(),
            prefixes: self.prefixes.report(),
            costs: self.costs,
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
        let keys_per_sample = f64::from(self.sample.keys_per_sample);
        let memory_bytes = self.memory_bytes as f64;
        let index_bytes = (counters.index_bytes + counters.ghost_bytes) as f64;
        let outside_bytes = |memory_bytes: f64| {
            crate::store::index_outside_bytes(memory_bytes as u64, self.store.config().workers)
                as f64
        };
        let item_memory = |factor: f64| {
            let memory_bytes = memory_bytes * factor;
            memory_bytes - (index_bytes * factor - outside_bytes(memory_bytes)).max(0.0)
        };
        let utilisation = if counters.evictions > 0 {
            (counters.item_bytes as f64 / item_memory(1.0)).clamp(0.5, 1.0)
        } else {
            UTILISATION_START
        };
        let mut lru_capacities = [0; SIZE_COUNT];
        for ((miniature, factor), lru_capacity) in
            self.sample.miniatures.iter_mut().zip(SIZES).zip(&mut lru_capacities)
        {
            let bytes = (item_memory(factor) * utilisation / keys_per_sample) as u64;
            let items = miniature.item_count() as f64 * keys_per_sample;
            let ghost_tags =
                self.store.ghost_tags_for(items as usize, (memory_bytes * factor) as u64);
            miniature.set_capacity(Capacity {
                bytes,
                ghost_tags: (ghost_tags as f64 / keys_per_sample) as usize,
                keep_budget_bytes: bytes / KEEP_BUDGET_DIVISOR,
            });
            *lru_capacity = bytes;
        }
        self.sample.lru.set_capacities(lru_capacities);
    }

    /// Lets the rates follow memory, CPU time and dropped events.
    fn update_rates(&mut self, input: LiveInput, gets: u64) {
        let interval = gets / REQUEST_SAMPLES_PER_S;
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
        let may_lower = self.sample.present().item_count() / 2 >= ITEMS_MIN;
        let is_over_share = cpu_us * 1000 > elapsed_us.max(process_cpu_us) * CPU_PER_MILLE;
        let is_over_limit = cpu_us * 1000 > elapsed_us * CPU_PER_MILLE_MAX;
        if may_lower && is_over_share || is_over_limit {
            self.lower_rate();
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
    }

    /// Samples half of the keys; false if it is one in the maximum already.
    fn lower_rate(&mut self) -> bool {
        let may_lower = self.sample.keys_per_sample < KEYS_PER_SAMPLE_MAX;
        if may_lower {
            // What was inserted so far counts as half as much from now on, as the capacity does.
            let inserted_before = self.sample.present().inserted_bytes();
            self.sample.lower_rate();
            let since = inserted_before - self.cold_since_bytes;
            self.cold_since_bytes = inserted_before - since / 2;
            let counters = self.store.counters();
            self.update_capacities(&counters);
            self.hot_keys.choose_exact(&self.store.sampling, self.sample.keys_per_sample);
        }
        may_lower
    }

    fn memory_limit_bytes(&self) -> u64 {
        (self.memory_bytes / MEMORY_DIVISOR).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX)
    }

    fn used_bytes(&self) -> u64 {
        let parts = [
            self.store.sampling.memory_bytes(),
            self.sample.memory_bytes(),
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

/// The store may keep four segments beyond the share of a sweep, of 512.
const KEEP_BUDGET_DIVISOR: u64 = 128;

impl SampledKeys {
    /// The miniature of the present size.
    fn present(&self) -> &Miniature {
        let [_, _, _, present, ..] = &self.miniatures;
        const { assert!(PRESENT == 3) };
        present
    }

    fn memory_bytes(&self) -> usize {
        self.miniatures.iter().map(Miniature::memory_bytes).sum::<usize>()
            + self.lru.memory_bytes()
            + self.distinct.memory_bytes()
            + self.window.memory_bytes()
            + size_of::<PendingFills>()
    }

    fn lower_rate(&mut self) {
        self.keys_per_sample *= 2;
        let level_min = self.keys_per_sample.ilog2() as u8;
        self.miniatures.iter_mut().for_each(|miniature| miniature.retain_level(level_min));
        self.lru.retain_level(level_min);
        self.distinct.retain_level(level_min);
    }

    fn clear(&mut self) {
        self.miniatures.iter_mut().for_each(Miniature::clear);
        self.lru.clear();
    }

    fn apply(&mut self, event: &Event<'_>) {
        let key = sampled_key(event.hash);
        let now = event.at.0;
        let stored = StoredItem { bytes: stored_bytes(event), expires_at: event.expires_at };
        match event.kind {
            EventKind::GetHit | EventKind::GetMiss => {
                self.apply_read(key, stored, event.kind == EventKind::GetHit, now);
            }
            EventKind::Set => self.apply_set(key, stored, now),
            EventKind::Delete => {
                self.miniatures.iter_mut().for_each(|miniature| miniature.delete(key.tag));
                self.lru.delete(key.tag);
                self.distinct.delete(key.tag);
            }
            EventKind::Touch => {
                let expires_at = event.expires_at;
                for miniature in &mut self.miniatures {
                    miniature.touch(key.tag, expires_at, now);
                }
                self.lru.touch(key.tag, expires_at, now);
                self.distinct.touch(key.tag, expires_at);
            }
        }
    }

    fn apply_read(&mut self, key: SampledKey, stored: StoredItem, is_hit: bool, now: u32) {
        let scale = self.keys_per_sample as f32;
        let ttl_s = self.lru.ttl_s(key.tag);
        let lru_hit_from = self.lru.get(key.tag, now);
        let mean_bytes = self.mean_bytes as u64;
        // Stored now it would live for its whole TTL.
        let whole_ttl = if ttl_s > 0 && stored.expires_at > 0 { now + ttl_s } else { 0 };
        let refilled = StoredItem { expires_at: stored.expires_at.max(whole_ttl), ..stored };
        let mut missed = [false; SIZE_COUNT];
        for (miniature, missed) in self.miniatures.iter_mut().zip(&mut missed) {
            *missed = !miniature.get(key.tag, now);
            if *missed && is_hit {
                miniature.set(key, refilled, mean_bytes, now);
            }
        }
        if is_hit && lru_hit_from == SIZE_COUNT {
            self.lru.set(key, stored, now);
        }
        if !is_hit {
            self.pending.add(key.tag, now);
        }
        let group = key.tag as usize % GROUPS;
        self.window.count_read(group, scale, missed, lru_hit_from, now);
        match self.distinct.get(key.tag, now) {
            Some(true) if !is_hit => {
                let scale = self.distinct.scale() * f64::from(self.keys_per_sample);
                self.window.count_avoidable(scale, now);
            }
            Some(false) if is_hit => self.distinct.set(key, stored, now),
            _ => {}
        }
    }

    fn apply_set(&mut self, key: SampledKey, stored: StoredItem, now: u32) {
        let is_fill = self.pending.take(key.tag, now);
        if is_fill || self.mean_bytes == 0.0 {
            let window = if self.mean_bytes == 0.0 { 1.0 } else { MEAN_WINDOW };
            self.mean_bytes += (f64::from(stored.bytes) - self.mean_bytes) / window;
        }
        let mean_bytes = self.mean_bytes as u64;
        for miniature in &mut self.miniatures {
            if !(is_fill && miniature.contains(key.tag, now)) {
                miniature.set(key, stored, mean_bytes, now);
            }
        }
        self.lru.set(key, stored, now);
        self.distinct.set(key, stored, now);
    }
}

/// What the sample knows of a key.
fn sampled_key(hash: KeyHash) -> SampledKey {
    // Other bits than those by which keys are sampled.
    let tag = (hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> u32::BITS) as u32;
    SampledKey { tag, level: sampling::level_of(hash) }
}

/// Bytes of an item's record, as the store writes it.
fn stored_bytes(event: &Event<'_>) -> u32 {
    let expiry_bytes = if event.expires_at == 0 { 0 } else { EXPIRY_BYTES };
    record_bytes(event.key_bytes.into(), event.value_bytes) as u32 + expiry_bytes
}

/// Bytes of an expiry in a record.
const EXPIRY_BYTES: u32 = 2;

/// Misses of the store that were not filled so far: one for each slot, the last.
struct PendingFills([(u32, u32); PENDING_FILLS]);

impl Default for PendingFills {
    fn default() -> Self {
        PendingFills([(0, 0); PENDING_FILLS])
    }
}

impl PendingFills {
    fn add(&mut self, tag: u32, now: u32) {
        if let Some(slot) = self.0.get_mut(tag as usize % PENDING_FILLS) {
            *slot = (tag, now);
        }
    }

    /// Whether a set of this key fills a miss, which it ends.
    fn take(&mut self, tag: u32, now: u32) -> bool {
        let slot = self.0.get_mut(tag as usize % PENDING_FILLS);
        let Some(slot) = slot.filter(|(slot_tag, _)| *slot_tag == tag) else {
            return false;
        };
        let (_, missed_at) = std::mem::take(slot);
        now.saturating_sub(missed_at) <= FILL_S
    }
}
