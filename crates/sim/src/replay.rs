//! Replay: one policy at one size over one trace, request by request.
//!
//! A trace is prepared once (`PreparedTrace`): interned, and each request linked to the object's previous and next one.
//! Everything after that is arrays, shared by all policies and sizes; each replay is a task of its own that a caller
//! may run on any thread and cancel between blocks.

use crate::policy::{
    Arc, Belady, BeladySize, ByteWeights, Clock, Fifo, Gdsf, Goal, LeCar, Lfu, Lhd, Lirs, Lru,
    Memcached, OwnItems, Policy, PolicyKind, PolicySettings, QueuePolicy, Removable, RequestLinks,
    S3Fifo, S4Fifo, Sieve, Slru, SwitchRecord, TinyLfu, Tuned, TunedOptions, TwoQ, UnitWeights,
    Weights,
};
use crate::trace::Effect;
use crate::trace::intern::{InternedTrace, Mode};
use crate::trace::timeline::{NEVER_EXPIRES, NO_OBJECT, Timeline, UNKNOWN_TTL};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Requests per block: the cache lines that are prefetched for a block stay in the first-level cache until they are
/// used.
const BLOCK_REQUESTS: usize = 256;

/// Minimum number of objects for which prefetching pays off; below it the policy's array stays in the second-level
/// cache anyway.
const PREFETCH_OBJECTS_MIN: usize = 1 << 17;

/// Number of requests between two calls of `should_continue`.
const REQUESTS_PER_CHECK: u32 = 1 << 18;

/// A trace that is ready to be replayed.
#[derive(Debug, Clone)]
pub struct PreparedTrace {
    ids: Vec<u32>,
    keys: Vec<u64>,
    sizes: Vec<u32>,
    links: RequestLinks,
    /// Bytes of all requests; 0 where objects count 1.
    requested_bytes: u64,
    request_count: usize,
    timeline: Option<Timeline>,
}

impl PreparedTrace {
    /// Links the requests of an interned trace; objects count their bytes if it was interned by bytes.
    pub fn new(trace: InternedTrace) -> Self {
        let InternedTrace { ids, keys, sizes, timeline, .. } = trace;
        let links = RequestLinks::of(&ids, keys.len());
        let requested_bytes = if sizes.is_empty() {
            0
        } else {
            let is_request_row = |row: usize| {
                timeline.as_ref().is_none_or(|timeline| timeline.effects[row] == Effect::Request)
            };
            let request_rows = ids.iter().enumerate().filter(|(row, _)| is_request_row(*row));
            request_rows.map(|(_, &id)| u64::from(sizes[id as usize])).sum()
        };
        let request_count = timeline.as_ref().map_or(ids.len(), |timeline| {
            let is_request = |effect: &&Effect| **effect == Effect::Request;
            timeline.effects.iter().filter(is_request).count()
        });
        Self { ids, keys, sizes, links, requested_bytes, request_count, timeline }
    }

    /// Number of requests: rows that hit or miss.
    pub fn requests(&self) -> usize {
        self.request_count
    }

    /// Times, TTLs, writes and deletes, if the trace has any.
    pub fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_ref()
    }

    /// Number of distinct objects.
    pub fn distinct(&self) -> usize {
        self.keys.len()
    }

    /// Whether objects count 1 or their bytes.
    pub fn mode(&self) -> Mode {
        if self.sizes.is_empty() { Mode::Objects } else { Mode::Bytes }
    }

    /// Total weight of all distinct objects: the size at which only first uses miss.
    pub fn footprint(&self) -> u64 {
        match self.mode() {
            Mode::Objects => self.keys.len() as u64,
            Mode::Bytes => self.sizes.iter().map(|&size| u64::from(size)).sum(),
        }
    }

    /// The object of each row.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The key of each object.
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// Bytes of each object; empty where every object counts 1.
    pub fn sizes(&self) -> &[u32] {
        &self.sizes
    }
}

/// The result of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayResult {
    /// Requests replayed.
    pub requests: u64,
    /// Those that missed.
    pub misses: u64,
    /// Bytes requested; 0 where objects count 1.
    pub bytes: u64,
    /// Bytes of the requests that missed.
    pub missed_bytes: u64,
}

impl ReplayResult {
    /// Misses per request, 0 for an empty trace.
    pub fn miss_ratio(&self) -> f64 {
        ratio(self.misses, self.requests)
    }

    /// Missed bytes per requested byte, where objects count their bytes.
    pub fn byte_miss_ratio(&self) -> Option<f64> {
        (self.bytes > 0).then(|| ratio(self.missed_bytes, self.bytes))
    }
}

fn ratio(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}

/// One policy at one capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Task {
    /// The policy.
    pub policy: PolicyKind,
    /// Objects or bytes that fit, as the trace was interned.
    pub capacity: u64,
    /// Seed of the randomised policies.
    pub seed: u64,
}

impl Task {
    /// Replays the trace; `None` if `should_continue`, which is called every few hundred thousand requests, returned
    /// false.
    pub fn run(
        &self,
        trace: &PreparedTrace,
        should_continue: &dyn Fn() -> bool,
    ) -> Option<ReplayResult> {
        match trace.mode() {
            Mode::Objects => self.run_with_weights(trace, UnitWeights, should_continue),
            Mode::Bytes => {
                let weights = ByteWeights(&trace.sizes);
                let result = self.run_with_weights(trace, weights, should_continue)?;
                Some(ReplayResult { bytes: trace.requested_bytes, ..result })
            }
        }
    }

    fn run_with_weights<W: Weights>(
        &self,
        trace: &PreparedTrace,
        weights: W,
        should_continue: &dyn Fn() -> bool,
    ) -> Option<ReplayResult> {
        match &trace.timeline {
            None => self.run_untimed(trace, weights, should_continue),
            Some(timeline) => self.run_timed(trace, timeline, weights, should_continue),
        }
    }

    /// Replays a trace in which objects expire, are written or deleted.
    fn run_timed<W: Weights>(
        &self,
        trace: &PreparedTrace,
        timeline: &Timeline,
        weights: W,
        should_continue: &dyn Fn() -> bool,
    ) -> Option<ReplayResult> {
        let Self { capacity, seed, .. } = *self;
        let (ids, links) = (trace.ids.as_slice(), &trace.links);
        let (distinct, row_count) = (trace.distinct(), trace.ids.len());
        let timed_loop = TimedLoop { ids, distinct, capacity, timeline, should_continue };
        let belady = |may_bypass| {
            Belady::new(ids, links, weights, capacity, may_bypass).with_removal(distinct)
        };
        match self.policy {
            PolicyKind::Lru => {
                timed_loop.run(weights, QueuePolicy::<W, true>::new(distinct, weights, capacity))
            }
            PolicyKind::Fifo => {
                timed_loop.run(weights, QueuePolicy::<W, false>::new(distinct, weights, capacity))
            }
            PolicyKind::Clock => timed_loop.run(weights, Clock::new(distinct, weights, capacity)),
            PolicyKind::Lfu => {
                timed_loop.run(weights, Lfu::new(distinct, row_count, weights, capacity))
            }
            PolicyKind::Sieve => {
                timed_loop.run(weights, Sieve::with_removal(distinct, weights, capacity))
            }
            PolicyKind::S3Fifo => timed_loop.run(weights, S3Fifo::new(distinct, weights, capacity)),
            PolicyKind::S4Fifo(settings) => {
                timed_loop.run(weights, S4Fifo::new(distinct, weights, capacity, settings))
            }
            PolicyKind::Arc => timed_loop.run(weights, Arc::new(distinct, weights, capacity)),
            PolicyKind::TwoQ => timed_loop.run(weights, TwoQ::new(distinct, weights, capacity)),
            PolicyKind::Slru => timed_loop.run(weights, Slru::new(distinct, weights, capacity)),
            PolicyKind::Lirs => timed_loop.run(weights, Lirs::new(distinct, weights, capacity)),
            PolicyKind::WTinyLfu => {
                timed_loop.run(weights, TinyLfu::new(distinct, weights, capacity))
            }
            PolicyKind::Lhd => {
                timed_loop.run(weights, Lhd::new(distinct, row_count, weights, capacity, seed))
            }
            PolicyKind::LeCar => {
                timed_loop.run(weights, LeCar::new(distinct, row_count, weights, capacity, seed))
            }
            PolicyKind::Gdsf => timed_loop.run(weights, Gdsf::new(distinct, weights, capacity)),
            PolicyKind::Belady => timed_loop.run(weights, belady(false)),
            PolicyKind::BeladyBypass => timed_loop.run(weights, belady(true)),
            PolicyKind::BeladySize => {
                timed_loop.run(weights, BeladySize::new(distinct, links, weights, capacity, seed))
            }
            PolicyKind::Tuned(goal) => {
                let options = TunedOptions { goal, seed };
                let clock = clock_of(timeline);
                timed_loop.run(weights, Tuned::new(distinct, weights, capacity, options, clock))
            }
            PolicyKind::Memcached { key_bytes } => {
                timed_loop.run(weights, Memcached::new(distinct, weights, capacity, key_bytes))
            }
            #[cfg(feature = "own-policy")]
            PolicyKind::ServerStore if trace.mode() == Mode::Objects => {
                let own = crate::policy::OwnItems::with_defaults(distinct, weights, capacity);
                timed_loop.run(weights, own)
            }
            #[cfg(feature = "own-policy")]
            PolicyKind::ServerStore => timed_loop
                .run(weights, crate::policy::ServerStore::new(distinct, weights, capacity)),
        }
    }

    fn run_untimed<W: Weights>(
        &self,
        trace: &PreparedTrace,
        weights: W,
        should_continue: &dyn Fn() -> bool,
    ) -> Option<ReplayResult> {
        let Self { capacity, seed, .. } = *self;
        let (ids, links) = (trace.ids.as_slice(), &trace.links);
        let (distinct, request_count) = (trace.distinct(), trace.requests());
        let untimed_loop = UntimedLoop { ids, distinct, capacity, should_continue };
        match self.policy {
            PolicyKind::Lru => untimed_loop.run(weights, Lru::new(ids, links, weights, capacity)),
            PolicyKind::Fifo => untimed_loop.run(weights, Fifo::new(distinct, weights, capacity)),
            PolicyKind::Clock => untimed_loop.run(weights, Clock::new(distinct, weights, capacity)),
            PolicyKind::Lfu => {
                untimed_loop.run(weights, Lfu::new(distinct, request_count, weights, capacity))
            }
            PolicyKind::Sieve => untimed_loop.run(weights, Sieve::new(distinct, weights, capacity)),
            PolicyKind::S3Fifo => {
                untimed_loop.run(weights, S3Fifo::new(distinct, weights, capacity))
            }
            PolicyKind::S4Fifo(settings) => {
                untimed_loop.run(weights, S4Fifo::new(distinct, weights, capacity, settings))
            }
            PolicyKind::Arc => untimed_loop.run(weights, Arc::new(distinct, weights, capacity)),
            PolicyKind::TwoQ => untimed_loop.run(weights, TwoQ::new(distinct, weights, capacity)),
            PolicyKind::Slru => untimed_loop.run(weights, Slru::new(distinct, weights, capacity)),
            PolicyKind::Lirs => untimed_loop.run(weights, Lirs::new(distinct, weights, capacity)),
            PolicyKind::WTinyLfu => {
                untimed_loop.run(weights, TinyLfu::new(distinct, weights, capacity))
            }
            PolicyKind::Lhd => untimed_loop
                .run(weights, Lhd::new(distinct, request_count, weights, capacity, seed)),
            PolicyKind::LeCar => untimed_loop
                .run(weights, LeCar::new(distinct, request_count, weights, capacity, seed)),
            PolicyKind::Gdsf => untimed_loop.run(weights, Gdsf::new(distinct, weights, capacity)),
            PolicyKind::Belady => {
                untimed_loop.run(weights, Belady::new(ids, links, weights, capacity, false))
            }
            PolicyKind::BeladyBypass => {
                untimed_loop.run(weights, Belady::new(ids, links, weights, capacity, true))
            }
            PolicyKind::BeladySize => {
                untimed_loop.run(weights, BeladySize::new(distinct, links, weights, capacity, seed))
            }
            PolicyKind::Tuned(goal) => {
                let options = TunedOptions { goal, seed };
                untimed_loop.run(weights, Tuned::new(distinct, weights, capacity, options, &[]))
            }
            PolicyKind::Memcached { key_bytes } => {
                untimed_loop.run(weights, Memcached::new(distinct, weights, capacity, key_bytes))
            }
            #[cfg(feature = "own-policy")]
            PolicyKind::ServerStore if trace.mode() == Mode::Objects => {
                let own = crate::policy::OwnItems::with_defaults(distinct, weights, capacity);
                untimed_loop.run(weights, own)
            }
            #[cfg(feature = "own-policy")]
            PolicyKind::ServerStore => untimed_loop
                .run(weights, crate::policy::ServerStore::new(distinct, weights, capacity)),
        }
    }
}

/// The times of the rows, if the trace has TTLs and so a clock that matters.
fn clock_of(timeline: &Timeline) -> &[u64] {
    if timeline.rows_with_ttl() > 0 { &timeline.times } else { &[] }
}

/// What the tuned policy did in a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct TunedReplay {
    /// Requests and misses.
    pub result: ReplayResult,
    /// The same with the default settings all the time.
    pub untuned: ReplayResult,
    /// The last switches, the oldest first.
    pub switches: Vec<SwitchRecord>,
    /// The settings at the end.
    pub settings: PolicySettings,
    /// Why nothing was changed at the end.
    pub wait_reason: String,
}

/// Replays the tuned policy and returns what it did; `None` as for [`Task::run`].
pub fn replay_tuned(
    trace: &PreparedTrace,
    capacity: u64,
    (goal, seed): (Goal, u64),
    should_continue: &dyn Fn() -> bool,
) -> Option<TunedReplay> {
    let tuned_loop = TunedLoop { trace, capacity, options: TunedOptions { goal, seed } };
    match trace.mode() {
        Mode::Objects => tuned_loop.run(UnitWeights, should_continue),
        Mode::Bytes => tuned_loop.run(ByteWeights(&trace.sizes), should_continue),
    }
}

/// A replay of the tuned policy.
struct TunedLoop<'a> {
    trace: &'a PreparedTrace,
    capacity: u64,
    options: TunedOptions,
}

impl TunedLoop<'_> {
    fn run<W: Weights>(
        &self,
        weights: W,
        should_continue: &dyn Fn() -> bool,
    ) -> Option<TunedReplay> {
        let Self { trace, capacity, options } = *self;
        let distinct = trace.distinct();
        let times = trace.timeline.as_ref().map_or(&[][..], clock_of);
        let mut policy = Tuned::new(distinct, weights, capacity, options, times);
        let result = self.replay(weights, &mut policy, should_continue)?;
        let untuned = OwnItems::new(distinct, weights, capacity, PolicySettings::DEFAULT);
        Some(TunedReplay {
            result,
            untuned: self.replay(weights, untuned, should_continue)?,
            switches: policy.records(),
            settings: policy.settings(),
            wait_reason: policy.wait_reason(),
        })
    }

    fn replay<W: Weights>(
        &self,
        weights: W,
        policy: impl Removable,
        should_continue: &dyn Fn() -> bool,
    ) -> Option<ReplayResult> {
        let Self { trace, capacity, .. } = *self;
        let (ids, distinct) = (trace.ids.as_slice(), trace.distinct());
        match &trace.timeline {
            None => UntimedLoop { ids, distinct, capacity, should_continue }.run(weights, policy),
            Some(timeline) => TimedLoop { ids, distinct, capacity, timeline, should_continue }
                .run(weights, policy),
        }
    }
}

/// The loop over a trace in which no object expires, is written or deleted.
struct UntimedLoop<'a> {
    ids: &'a [u32],
    distinct: usize,
    capacity: u64,
    should_continue: &'a dyn Fn() -> bool,
}

impl UntimedLoop<'_> {
    #[inline(never)]
    fn run<W: Weights, P: Policy>(&self, weights: W, mut policy: P) -> Option<ReplayResult> {
        let mut result =
            ReplayResult { requests: self.ids.len() as u64, ..ReplayResult::default() };
        let mut position = 0_u32;
        for ids in self.ids.chunks(BLOCK_REQUESTS) {
            if position.is_multiple_of(REQUESTS_PER_CHECK) && !(self.should_continue)() {
                return None;
            }
            if self.distinct >= PREFETCH_OBJECTS_MIN {
                std::hint::black_box(policy.prefetch_cache_lines(ids));
            }
            for &id in ids {
                let weight = weights.of(id);
                let is_hit = weight <= self.capacity && policy.request(position, id);
                result.misses += u64::from(!is_hit);
                result.missed_bytes += if is_hit { 0 } else { weight };
                position += 1;
            }
        }
        Some(result)
    }
}

/// The loop over a trace in which objects expire, are written or deleted.
struct TimedLoop<'a> {
    ids: &'a [u32],
    distinct: usize,
    capacity: u64,
    timeline: &'a Timeline,
    should_continue: &'a dyn Fn() -> bool,
}

/// When the objects of a cache expire.
struct Deadlines {
    /// The moment at which each object expires.
    deadline_by_id: Vec<u64>,
    /// Deadlines with their objects; one that differs from `deadline_by_id` is stale.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    /// The TTL with which each object was last written.
    written_ttls: Vec<u64>,
}

impl Deadlines {
    fn new(distinct: usize) -> Self {
        Self {
            deadline_by_id: vec![NEVER_EXPIRES; distinct],
            queue: BinaryHeap::new(),
            written_ttls: vec![NEVER_EXPIRES; distinct],
        }
    }

    /// Notes that an object was stored now.
    fn store(&mut self, id: u32, now: u64, ttl: u64) {
        let deadline = now.saturating_add(ttl);
        self.deadline_by_id[id as usize] = deadline;
        if deadline != NEVER_EXPIRES {
            self.queue.push(Reverse((deadline, id)));
        }
    }

    /// Removes and returns an object that has expired by now.
    fn pop_expired(&mut self, now: u64) -> Option<u32> {
        while let Some(&Reverse((deadline, id))) = self.queue.peek()
            && deadline <= now
        {
            self.queue.pop();
            if self.deadline_by_id[id as usize] == deadline {
                self.deadline_by_id[id as usize] = NEVER_EXPIRES;
                return Some(id);
            }
        }
        None
    }
}

impl TimedLoop<'_> {
    #[inline(never)]
    fn run<W: Weights, P: Removable>(&self, weights: W, mut policy: P) -> Option<ReplayResult> {
        let mut result = ReplayResult::default();
        let mut deadlines = Deadlines::new(self.distinct);
        let Timeline { times, ttls, effects, replaced_ids } = self.timeline;
        for (row, &id) in self.ids.iter().enumerate() {
            let position = row as u32;
            if position.is_multiple_of(REQUESTS_PER_CHECK) && !(self.should_continue)() {
                return None;
            }
            let now = times[row];
            while let Some(expired_id) = deadlines.pop_expired(now) {
                policy.remove(expired_id);
            }
            if let Some(&replaced_id) = replaced_ids.get(row)
                && replaced_id != NO_OBJECT
            {
                policy.remove(replaced_id);
                deadlines.deadline_by_id[replaced_id as usize] = NEVER_EXPIRES;
            }
            let weight = weights.of(id);
            let fits = weight <= self.capacity;
            match effects[row] {
                Effect::Request => {
                    let is_hit = fits && policy.request(position, id);
                    result.requests += 1;
                    result.misses += u64::from(!is_hit);
                    result.missed_bytes += if is_hit { 0 } else { weight };
                    if !is_hit {
                        let ttl = match ttls[row] {
                            UNKNOWN_TTL => deadlines.written_ttls[id as usize],
                            ttl => ttl,
                        };
                        deadlines.store(id, now, ttl);
                    }
                }
                Effect::Set => {
                    if fits {
                        policy.write(position, id);
                    }
                    let ttl = match ttls[row] {
                        UNKNOWN_TTL => NEVER_EXPIRES,
                        ttl => ttl,
                    };
                    deadlines.written_ttls[id as usize] = ttl;
                    deadlines.store(id, now, ttl);
                }
                Effect::Delete => {
                    policy.remove(id);
                    deadlines.deadline_by_id[id as usize] = NEVER_EXPIRES;
                }
                Effect::None => {}
            }
        }
        Some(result)
    }
}
