//! SHARDS: the curve of LRU from the requests of a sample of keys, chosen by hash, of a fixed number.
//!
//! A key is in the sample if its hash is below a threshold, which falls as the sample fills; distances of the sample
//! are divided by the rate at which keys are taken, and so is each request counted (Waldspurger et al., FAST 2015).
//! The difference between the expected and the sampled number of requests is added to the shortest distance (the
//! paper's "adj"); without it the error is ten times as large. Several seeds give an interval.

use super::distances::Distances;
use super::{Curve, Histogram};
use crate::random::mix;
use crate::replay::PreparedTrace;
use std::collections::BinaryHeap;

/// How to sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleOptions {
    /// Maximum number of keys in the sample.
    pub keys_max: usize,
    /// Seed of the hash that selects them.
    pub seed: u64,
}

impl Default for SampleOptions {
    /// 8192 keys: a mean error of 0.001 on real traces, in 400 kB.
    fn default() -> Self {
        Self { keys_max: 8192, seed: 1 }
    }
}

/// The sampled curve of LRU.
pub fn shards(trace: &PreparedTrace, options: SampleOptions) -> Curve {
    let salt = mix(options.seed);
    let hashes: Vec<u64> = trace.keys().iter().map(|&key| mix(key ^ salt)).collect();
    let mut sample = Sample {
        threshold: u64::MAX,
        members: BinaryHeap::new(),
        distances: Distances::new(trace.distinct(), options.keys_max + 1),
        keys_max: options.keys_max.max(1),
    };
    let mut histogram = Histogram::new(trace.footprint());
    let mut counted_requests = 0.0;
    for &id in trace.ids() {
        let hash = hashes[id as usize];
        if hash > sample.threshold {
            continue;
        }
        let scale = 1.0 / sample.rate();
        counted_requests += scale;
        let weight = trace.sizes().get(id as usize).copied().unwrap_or(1);
        if let Some(distance) = sample.record_use(id, hash, weight) {
            // The object itself counts once; the others also represent objects outside the sample.
            let other_weight = (distance - u64::from(weight)) as f64 * scale;
            histogram.add(other_weight.round() as u64 + u64::from(weight), scale);
        }
    }
    let requests = trace.requests() as f64;
    histogram.add(1, requests - counted_requests);
    histogram.into_curve(requests)
}

/// The keys of the sample and their last uses.
struct Sample {
    /// Keys with a higher hash are not sampled.
    threshold: u64,
    /// Hash and id of each key of the sample, the highest hash first.
    members: BinaryHeap<(u64, u32)>,
    distances: Distances,
    keys_max: usize,
}

impl Sample {
    /// The share of keys that is sampled.
    fn rate(&self) -> f64 {
        (self.threshold as f64 + 1.0) / 2.0_f64.powi(64)
    }

    /// Records a use; if the sample is over its size, the threshold falls below the highest hash.
    fn record_use(&mut self, id: u32, hash: u64, weight: u32) -> Option<u64> {
        let distance = self.distances.record_use(id, weight);
        if distance.is_none() {
            self.members.push((hash, id));
            if self.members.len() > self.keys_max {
                self.lower_threshold();
            }
        }
        distance
    }

    fn lower_threshold(&mut self) {
        if let Some((hash, id)) = self.members.pop() {
            self.threshold = hash.saturating_sub(1);
            self.distances.remove(id);
        }
        while self.members.peek().is_some_and(|&(hash, _)| hash > self.threshold) {
            if let Some((_, id)) = self.members.pop() {
                self.distances.remove(id);
            }
        }
    }
}

/// Miss ratios at one size, over several seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MissRatioRange {
    /// Mean of the seeds.
    pub mean: f64,
    /// The lowest of the seeds.
    pub low: f64,
    /// The highest of the seeds.
    pub high: f64,
}

/// The spread of several sampled curves at a size; `None` without a curve.
pub fn miss_ratio_range(curves: &[Curve], size: u64) -> Option<MissRatioRange> {
    let ratios: Vec<f64> = curves.iter().map(|curve| curve.miss_ratio(size)).collect();
    let low = ratios.iter().copied().reduce(f64::min)?;
    let high = ratios.iter().copied().reduce(f64::max)?;
    Some(MissRatioRange { mean: ratios.iter().sum::<f64>() / ratios.len() as f64, low, high })
}
