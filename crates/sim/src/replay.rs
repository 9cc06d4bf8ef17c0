//! Replay: one policy at one size over one trace, request by request.
//!
//! A trace is prepared once (`Prepared`): interned, and each request linked to the object's previous and next one.
//! Everything after that is arrays, shared by all policies and sizes; each replay is a task of its own that a caller
//! may run on any thread and stop between blocks.

use crate::policy::{
    Arc, Belady, BeladySize, Bytes, Clock, Fifo, Gdsf, LeCar, Lfu, Lhd, Links, Lirs, Lru, Ones,
    Policy, PolicyKind, S3Fifo, Sieve, Slru, TinyLfu, TwoQ, Weights,
};
use crate::trace::intern::{Interned, Mode};

/// Requests of a block: the cache lines that a block warms stay in the first-level cache until they are used.
const BLOCK: usize = 256;

/// Objects from which warming pays: below, one word an object stays in the second-level cache by itself.
const WARM_FROM: usize = 1 << 17;

/// Requests between two looks at whether to go on.
const STRIDE: u32 = 1 << 18;

/// A trace that is ready to be replayed.
#[derive(Debug, Clone)]
pub struct Prepared {
    ids: Vec<u32>,
    keys: Vec<u64>,
    sizes: Vec<u32>,
    links: Links,
    bytes: u64,
}

impl Prepared {
    /// Links the requests of an interned trace; objects count their bytes if it was interned by bytes.
    pub fn new(trace: Interned) -> Self {
        let Interned {
            ids, keys, sizes, ..
        } = trace;
        let links = Links::of(&ids, keys.len());
        let bytes = if sizes.is_empty() {
            0
        } else {
            ids.iter().map(|&id| u64::from(sizes[id as usize])).sum()
        };
        Self {
            ids,
            keys,
            sizes,
            links,
            bytes,
        }
    }

    /// Number of requests.
    pub fn requests(&self) -> usize {
        self.ids.len()
    }

    /// Number of distinct objects.
    pub fn distinct(&self) -> usize {
        self.keys.len()
    }

    /// Whether objects count 1 or their bytes.
    pub fn mode(&self) -> Mode {
        if self.sizes.is_empty() {
            Mode::Objects
        } else {
            Mode::Bytes
        }
    }

    /// What all distinct objects count together: the size at which only first uses miss.
    pub fn footprint(&self) -> u64 {
        match self.mode() {
            Mode::Objects => self.keys.len() as u64,
            Mode::Bytes => self.sizes.iter().map(|&size| u64::from(size)).sum(),
        }
    }

    /// The object of each request.
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

/// What came of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Requests replayed.
    pub requests: u64,
    /// Those that missed.
    pub misses: u64,
    /// Bytes requested; 0 where objects count 1.
    pub bytes: u64,
    /// Bytes of the requests that missed.
    pub missed_bytes: u64,
}

impl Outcome {
    /// Misses per request, 0 for an empty trace.
    pub fn miss_ratio(&self) -> f64 {
        ratio(self.misses, self.requests)
    }

    /// Missed bytes per requested byte, where objects count their bytes.
    pub fn byte_miss_ratio(&self) -> Option<f64> {
        (self.bytes > 0).then(|| ratio(self.missed_bytes, self.bytes))
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// One policy at one capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Task {
    /// The policy.
    pub policy: PolicyKind,
    /// Objects or bytes that fit, as the trace was interned.
    pub capacity: u64,
    /// Seed of the policies that draw lots.
    pub seed: u64,
}

impl Task {
    /// Replays the trace; `None` if `goes_on`, asked every few hundred thousand requests, said no.
    pub fn run(&self, trace: &Prepared, goes_on: &dyn Fn() -> bool) -> Option<Outcome> {
        match trace.mode() {
            Mode::Objects => self.run_with(trace, Ones, goes_on),
            Mode::Bytes => {
                let outcome = self.run_with(trace, Bytes(&trace.sizes), goes_on)?;
                Some(Outcome {
                    bytes: trace.bytes,
                    ..outcome
                })
            }
        }
    }

    fn run_with<W: Weights>(
        &self,
        trace: &Prepared,
        weights: W,
        goes_on: &dyn Fn() -> bool,
    ) -> Option<Outcome> {
        let Self { capacity, seed, .. } = *self;
        let (ids, links) = (trace.ids.as_slice(), &trace.links);
        let (distinct, requests) = (trace.distinct(), trace.requests());
        let drive = Drive {
            ids,
            distinct,
            capacity,
            goes_on,
        };
        match self.policy {
            PolicyKind::Lru => drive.run(weights, Lru::new(ids, links, weights, capacity)),
            PolicyKind::Fifo => drive.run(weights, Fifo::new(distinct, weights, capacity)),
            PolicyKind::Clock => drive.run(weights, Clock::new(distinct, weights, capacity)),
            PolicyKind::Lfu => drive.run(weights, Lfu::new(distinct, requests, weights, capacity)),
            PolicyKind::Sieve => drive.run(weights, Sieve::new(distinct, weights, capacity)),
            PolicyKind::S3Fifo => drive.run(weights, S3Fifo::new(distinct, weights, capacity)),
            PolicyKind::Arc => drive.run(weights, Arc::new(distinct, weights, capacity)),
            PolicyKind::TwoQ => drive.run(weights, TwoQ::new(distinct, weights, capacity)),
            PolicyKind::Slru => drive.run(weights, Slru::new(distinct, weights, capacity)),
            PolicyKind::Lirs => drive.run(weights, Lirs::new(distinct, weights, capacity)),
            PolicyKind::WTinyLfu => drive.run(weights, TinyLfu::new(distinct, weights, capacity)),
            PolicyKind::Lhd => drive.run(
                weights,
                Lhd::new(distinct, requests, weights, capacity, seed),
            ),
            PolicyKind::LeCar => drive.run(
                weights,
                LeCar::new(distinct, requests, weights, capacity, seed),
            ),
            PolicyKind::Gdsf => drive.run(weights, Gdsf::new(distinct, weights, capacity)),
            PolicyKind::Belady => {
                drive.run(weights, Belady::new(ids, links, weights, capacity, false))
            }
            PolicyKind::BeladyBypass => {
                drive.run(weights, Belady::new(ids, links, weights, capacity, true))
            }
            PolicyKind::BeladySize => drive.run(
                weights,
                BeladySize::new(distinct, links, weights, capacity, seed),
            ),
            #[cfg(feature = "own-policy")]
            PolicyKind::Own => drive.run(
                weights,
                crate::policy::Own::new(distinct, weights, capacity),
            ),
        }
    }
}

/// The loop over a trace.
struct Drive<'a> {
    ids: &'a [u32],
    distinct: usize,
    capacity: u64,
    goes_on: &'a dyn Fn() -> bool,
}

impl Drive<'_> {
    #[inline(never)]
    fn run<W: Weights, P: Policy>(&self, weights: W, mut policy: P) -> Option<Outcome> {
        let mut outcome = Outcome {
            requests: self.ids.len() as u64,
            ..Outcome::default()
        };
        let mut at = 0_u32;
        for ids in self.ids.chunks(BLOCK) {
            if at.is_multiple_of(STRIDE) && !(self.goes_on)() {
                return None;
            }
            if self.distinct >= WARM_FROM {
                std::hint::black_box(policy.warm(ids));
            }
            for &id in ids {
                let weight = weights.of(id);
                let is_hit = weight <= self.capacity && policy.request(at, id);
                outcome.misses += u64::from(!is_hit);
                outcome.missed_bytes += if is_hit { 0 } else { weight };
                at += 1;
            }
        }
        Some(outcome)
    }
}
