//! Values that the process serves itself, compared with those of the servers while a strategy is rolled out.
//!
//! A value that differs was replaced, which a near cache may not know for a while. It is wrong if the process still serves
//! it when that while is over, counted from the moment at which it was known to differ: the same value, not one that was
//! fetched again. Keys to compare are read along with the next call that is made anyway, so that a comparison costs keys
//! and hardly ever a call.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use glasscache_strategy::rollout::value_checks::{ValueChecks, WAITING_KEYS_MAX};

use super::entry::{NearKey, NearValue};

/// Replaced values that are watched for at a time.
const REPLACED_VALUES_MAX: usize = 256;

/// A value that a server has replaced.
#[derive(Debug)]
struct ReplacedValue {
    bytes: Arc<[u8]>,
    known_at: Instant,
}

/// The comparisons of one process.
#[derive(Debug)]
pub(super) struct ValueComparison {
    /// The fraction of the hits to compare.
    fraction: f64,
    /// The state of a generator of random numbers (xorshift64*), never 0.
    random_state: u64,
    keys: Vec<NearKey>,
    replaced_values: HashMap<NearKey, ReplacedValue>,
    checks: ValueChecks,
}

impl ValueComparison {
    pub(super) fn new(fraction: f64) -> Self {
        Self {
            fraction,
            random_state: RandomState::new().hash_one(std::process::id()) | 1,
            keys: Vec::new(),
            replaced_values: HashMap::new(),
            checks: ValueChecks::default(),
        }
    }

    /// Notes that the process served this value of a key, which it may do until `age_bound` after it was replaced.
    pub(super) fn note_hit(
        &mut self,
        key: impl Fn() -> NearKey,
        value: &NearValue,
        age_bound: Duration,
        now: Instant,
    ) {
        if !self.replaced_values.is_empty() {
            self.find_wrong_value(&key(), value, age_bound, now);
        }
        if self.keys.len() < WAITING_KEYS_MAX && self.draw_fraction() < self.fraction {
            self.keys.push(key());
        }
    }

    fn find_wrong_value(
        &mut self,
        key: &NearKey,
        value: &NearValue,
        age_bound: Duration,
        now: Instant,
    ) {
        let Some(replaced_value) = self.replaced_values.get(key) else {
            return;
        };
        let is_same_value = Arc::ptr_eq(&replaced_value.bytes, &value.bytes);
        let is_over = now.saturating_duration_since(replaced_value.known_at) > age_bound;
        if is_same_value && !is_over {
            return;
        }
        if is_same_value {
            self.checks.wrong += 1;
            self.checks.bound_ms = age_bound.as_millis() as u64;
        }
        self.replaced_values.remove(key);
    }

    fn draw_fraction(&mut self) -> f64 {
        self.random_state ^= self.random_state >> 12;
        self.random_state ^= self.random_state << 25;
        self.random_state ^= self.random_state >> 27;
        (self.random_state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether so many keys wait that they get a call of their own.
    pub(super) fn is_due(&self) -> bool {
        self.keys.len() >= WAITING_KEYS_MAX
    }

    /// The keys whose values are to be compared, each once.
    pub(super) fn take_keys(&mut self) -> Vec<NearKey> {
        let mut keys = std::mem::take(&mut self.keys);
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Compares what the process kept of a key with what its server has, known at `now`.
    pub(super) fn compare(
        &mut self,
        key: &NearKey,
        kept_value: &NearValue,
        server_value: &NearValue,
        now: Instant,
    ) {
        self.checks.compared += 1;
        if kept_value == server_value {
            return;
        }
        self.checks.differing += 1;
        let bytes = kept_value.bytes.clone();
        let known = self.replaced_values.get(key);
        let is_known = known.is_some_and(|known| Arc::ptr_eq(&known.bytes, &bytes));
        if is_known {
            return;
        }
        if self.replaced_values.len() >= REPLACED_VALUES_MAX {
            let oldest = self.replaced_values.iter().min_by_key(|(_, replaced)| replaced.known_at);
            let oldest_key = oldest.map(|(key, _)| key.clone());
            oldest_key.and_then(|key| self.replaced_values.remove(&key));
        }
        self.replaced_values.insert(key.clone(), ReplacedValue { bytes, known_at: now });
    }

    /// What was counted since the last time.
    pub(super) fn take_checks(&mut self) -> ValueChecks {
        std::mem::take(&mut self.checks)
    }
}
