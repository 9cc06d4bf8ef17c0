//! What a load test sends, and how.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::key_trace::KeyTrace;
use super::objective::Objective;
use crate::load::{self, LoadPlan, Pace, Picker, Size, ValueCheck, Values};
use crate::target::Target;

/// The keys, and how the next one is chosen.
#[derive(Debug, Clone)]
pub enum Keys {
    /// By chance.
    Random {
        /// How many keys.
        count: u64,
        /// By Zipf's law with this exponent, or each with the same chance.
        zipf_exponent: Option<f64>,
    },
    /// In the order of a trace, over and over. Threads take turns.
    Trace(KeyTrace),
}

impl Keys {
    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Random { count, .. } => *count,
            Self::Trace(trace) => trace.keys,
        }
    }
}

/// How the next key is chosen.
#[derive(Debug, Clone)]
pub(super) enum Popularity {
    /// By chance.
    Random(Picker),
    /// The number of the key of each request.
    Trace(Arc<[u32]>),
}

/// What is sent.
#[derive(Debug, Clone)]
pub(super) struct Traffic {
    pub(super) popularity: Popularity,
    pub(super) keys: u64,
    pub(super) values: Values,
    pub(super) mix: Mix,
    pub(super) ttl_s: u32,
    pub(super) fills_misses: bool,
}

impl Traffic {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            popularity: match &settings.keys {
                Keys::Random { count, zipf_exponent } => {
                    Popularity::Random(Picker::new(*count, *zipf_exponent))
                }
                Keys::Trace(trace) => Popularity::Trace(trace.requested_key_numbers.clone()),
            },
            keys: settings.keys.count(),
            values: Values::new(settings.size.clone(), settings.seed),
            mix: settings.mix,
            ttl_s: settings.ttl_s,
            fills_misses: settings.fills_misses,
        }
    }
}

/// Shares of the kinds of requests; they need not add up to 1.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Mix {
    /// Gets of one key.
    pub get: f64,
    /// Gets of several keys.
    pub multi_get: f64,
    /// Keys of each of those.
    pub keys_per_get: usize,
    /// Sets.
    pub set: f64,
    /// Deletes.
    pub delete: f64,
}

/// What is sent, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The keys.
    pub keys: Keys,
    /// Length of each value.
    pub size: Size,
    /// Kinds of requests.
    pub mix: Mix,
    /// TTL of what is set while measuring, in seconds; 0 is none.
    pub ttl_s: u32,
    /// Stores a key that was missed, as a look-aside application does.
    pub fills_misses: bool,
    /// Connections to each target.
    pub connections: usize,
    /// Requests in flight on each connection.
    pub depth: usize,
    /// Threads of the generator.
    pub threads: usize,
    /// Closed or open loop.
    pub pace: Pace,
    /// Searches for the highest rate that holds this, with one target.
    pub objective: Option<Objective>,
    /// Length of the measurement of each target.
    pub run_for: Duration,
    /// Sent before it, not counted.
    pub warm_up: Duration,
    /// CPUs of the generator's threads; no pinning if empty.
    pub cpus: Vec<usize>,
    /// How much of each value is compared.
    pub check: ValueCheck,
    /// Decides keys, values and schedule.
    pub seed: u64,
    /// Ends the run when set; what was counted is returned.
    pub stop: Arc<AtomicBool>,
}

impl Settings {
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn new_load_plan(&self, target: &Target) -> LoadPlan {
        LoadPlan {
            connections: self.connections,
            check: self.check,
            cpus: self.cpus.clone(),
            seed: self.seed,
            measures_delay: true,
            keeps_second_histograms: true,
            returns_partial_report: true,
            stop: self.stop.clone(),
            ..LoadPlan::new(target.access.clone())
        }
    }

    /// The first key: another seed has other keys, so that runs do not read values of each other.
    pub(super) fn first_id(&self) -> u64 {
        load::mix(self.seed) << 32
    }
}
