//! The calls of an application: with values that need no conversion, by size, and with the recommended codec.

use std::time::Instant;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::call::{CallTime, CallTimes, CodecObjective};
use super::choice::{Choice, TIME_TOLERANCE, compute_mean_call_us, compute_median};
use super::compressors::Compressor;
use super::python::{PythonFailure, PythonValues};
use super::sample::Sample;
use super::value_store::ValueStore;
use crate::target::CallError;

/// Sizes at which a call is measured.
const VALUE_SIZES: [usize; 9] = [1, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000];

/// Keys of these calls: as many as a small application has, so that neither side finds everything in its caches.
const KEYS_PER_SIZE: usize = 100;

/// Passes over these keys that count.
const PASSES_PER_SIZE: usize = 5;

/// Passes over the values with a codec in one round, the first of which warms up.
const CODEC_PASSES: usize = 5;

/// Rounds in which two codecs are compared, or one measured.
const ROUNDS: usize = 5;

/// The share of the time of a call by which another form has to be better in the median of the rounds.
const GAIN_MIN: f64 = 0.05;

/// A form that is as fast is better with at most this share of the bytes.
const FEWER_BYTES: f64 = 0.8;

/// The median times of measured calls.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct MeasuredCalls {
    /// Of a set.
    pub set_us: f64,
    /// Of a get.
    pub get_us: f64,
    /// Values that were absent or others than those stored.
    #[serde(rename = "wrong")]
    pub wrong_values: u64,
}

/// Real calls with another form over those with the codec in use, in turns.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Comparison {
    /// The other form.
    #[serde(skip)]
    pub other: Choice,
    /// The share of the time of a call that it takes, the median of the rounds.
    pub time_share: f64,
    /// The smallest share of a round.
    pub low: f64,
    /// The largest share of a round.
    pub high: f64,
    /// Its bytes over those of the codec in use.
    pub bytes_share: f64,
    /// Whether it is worth the change.
    pub is_better: bool,
}

/// The client that makes the calls: Python's where there is one.
pub(super) struct Caller<'t> {
    pub(super) python: Option<PythonValues>,
    pub(super) rust_client: ValueStore<'t>,
    pub(super) key_prefix: String,
}

impl Caller<'_> {
    fn python_with_client(&mut self) -> Option<&mut PythonValues> {
        self.python.as_mut().filter(|python| python.has_client)
    }

    /// The name of the client for the report.
    pub(super) fn client_name(&self) -> &'static str {
        if self.python.as_ref().is_some_and(|python| python.has_client) {
            "Python's Client"
        } else {
            "the Rust client"
        }
    }

    /// The time of calls by size, up to the first size of at least `bytes_max`.
    pub(super) fn measure_call_times(&mut self, bytes_max: usize) -> Result<CallTimes, CallError> {
        let mut times = CallTimes::default();
        let last_size_index = VALUE_SIZES.iter().position(|value_bytes| *value_bytes >= bytes_max);
        for &value_bytes in VALUE_SIZES
            .iter()
            .take(last_size_index.map_or(VALUE_SIZES.len(), |last_size_index| last_size_index + 1))
        {
            let meter_before = self.rust_client.target.meter.read();
            let [set_us, get_us] = self.time_calls_without_conversion(value_bytes)?;
            let used_cpu = self.rust_client.target.meter.read().since(&meter_before);
            let is_server_cpu_visible = self.rust_client.target.meter.workers() > 0;
            let call_count = (2 * KEYS_PER_SIZE * (1 + PASSES_PER_SIZE)) as f64;
            let server_us = used_cpu.server.cpu_s() * 1e6 / call_count;
            let new_call_time = |us: f64| CallTime {
                bytes: value_bytes,
                us,
                server_us: is_server_cpu_visible.then(|| server_us.min(us)),
            };
            times.set.push(new_call_time(set_us));
            times.get.push(new_call_time(get_us));
        }
        Ok(times)
    }

    /// The median times of a set and a get of bytes that need no conversion, over many keys, the first pass not
    /// counted.
    fn time_calls_without_conversion(&mut self, value_bytes: usize) -> Result<[f64; 2], CallError> {
        let key_prefix = format!("{}calls:", self.key_prefix);
        let server = self.rust_client.target.address();
        if let Some(python) = self.python_with_client() {
            let request = json!({ "do": "calls_without_conversion", "server": server, "key": key_prefix, "bytes": value_bytes,
                "keys": KEYS_PER_SIZE, "passes": PASSES_PER_SIZE });
            let reply = python.request(&request)?;
            return Ok(["set_us", "get_us"].map(|name| reply[name].as_f64().unwrap_or(0.0)));
        }
        let values = vec![vec![0; value_bytes]; KEYS_PER_SIZE];
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        let mut compressor = Compressor::new(("none", None))?;
        let measured =
            self.time_rust_client(&mut compressor, &values, &key_prefix, 1 + PASSES_PER_SIZE)?;
        Ok([measured.set_us, measured.get_us])
    }

    /// Calls with the codec in use and with the best other form, in turns; without another, with the codec in use.
    pub(super) fn compare(
        &mut self,
        in_use: &Choice,
        other: Option<&Choice>,
        samples: &[&Sample],
        objective: &CodecObjective,
    ) -> Result<(MeasuredCalls, Option<Comparison>), CallError> {
        let (mut rounds_in_use, mut rounds_of_other) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            rounds_in_use.push(self.measure(in_use, samples)?);
            if let Some(other) = other {
                rounds_of_other.push(self.measure(other, samples)?);
            }
        }
        let Some(other) = other else {
            return Ok((MeasuredCalls::median_of(&rounds_in_use), None));
        };
        let value_count = samples.len().max(1) as f64;
        let call_us = |calls: &MeasuredCalls, choice: &Choice| {
            let network_us = objective.ns_per_byte * choice.bytes as f64 / value_count / 1e3;
            compute_mean_call_us(calls.set_us, calls.get_us, objective) + network_us
        };
        let rounds = rounds_in_use.iter().zip(&rounds_of_other);
        let mut shares: Vec<f64> = rounds
            .map(|(calls, calls_of_other)| {
                call_us(calls_of_other, other) / call_us(calls, in_use).max(f64::MIN_POSITIVE)
            })
            .collect();
        shares.sort_unstable_by(f64::total_cmp);
        let bytes_share = other.bytes as f64 / in_use.bytes.max(1) as f64;
        let comparison = Comparison::new(other.clone(), &shares, bytes_share);
        let rounds = if comparison.is_better { &rounds_of_other } else { &rounds_in_use };
        Ok((MeasuredCalls::median_of(rounds), Some(comparison)))
    }

    /// Sets and gets of the values with the chosen codec.
    fn measure(
        &mut self,
        choice: &Choice,
        samples: &[&Sample],
    ) -> Result<MeasuredCalls, CallError> {
        let (server, key_prefix) = (self.rust_client.target.address(), self.key_prefix.clone());
        if let Some(python) = self.python_with_client() {
            let request = json!({ "do": "calls", "server": server, "key": key_prefix, "passes": CODEC_PASSES,
                "codec": choice.codec_arguments() });
            let reply = python.request(&request)?;
            let read_us = |name: &str| reply[name].as_f64().unwrap_or(0.0);
            return Ok(MeasuredCalls {
                set_us: read_us("set_us"),
                get_us: read_us("get_us"),
                wrong_values: reply["wrong"].as_u64().unwrap_or(0),
            });
        }
        let values: Vec<&[u8]> = samples.iter().map(|sample| &sample.bytes[..]).collect();
        let mut compressor = Compressor::of_choice(choice)?;
        self.time_rust_client(&mut compressor, &values, &key_prefix, CODEC_PASSES)
    }

    /// Sets and gets of values by the Rust client; the first of the passes is not counted.
    fn time_rust_client(
        &mut self,
        compressor: &mut Compressor,
        values: &[&[u8]],
        key_prefix: &str,
        passes: usize,
    ) -> Result<MeasuredCalls, CallError> {
        let (mut set_times_ns, mut get_times_ns, mut wrong_values) = (Vec::new(), Vec::new(), 0);
        for pass in 0..passes {
            for (index, value) in values.iter().enumerate() {
                let key = format!("{key_prefix}{index}");
                let started = Instant::now();
                self.rust_client.set(&key, &compressor.compress(value))?;
                let set_ns = started.elapsed().as_nanos() as u64;
                let started = Instant::now();
                let found = self.rust_client.get(&key)?;
                let found_value = found.and_then(|compressed| compressor.decompress(&compressed));
                let get_ns = started.elapsed().as_nanos() as u64;
                wrong_values += u64::from(found_value.as_deref() != Some(*value));
                if pass > 0 {
                    set_times_ns.push(set_ns);
                    get_times_ns.push(get_ns);
                }
            }
        }
        for index in 0..values.len() {
            self.rust_client.delete(&format!("{key_prefix}{index}"))?;
        }
        Ok(MeasuredCalls {
            set_us: median_us(set_times_ns),
            get_us: median_us(get_times_ns),
            wrong_values,
        })
    }
}

impl MeasuredCalls {
    fn median_of(rounds: &[Self]) -> Self {
        let median =
            |time_us: fn(&Self) -> f64| compute_median(rounds.iter().map(time_us).collect());
        Self {
            set_us: median(|calls| calls.set_us),
            get_us: median(|calls| calls.get_us),
            wrong_values: rounds.iter().map(|calls| calls.wrong_values).sum(),
        }
    }
}

impl Comparison {
    /// From the shares of the time of a call in each round, ascending.
    fn new(other: Choice, shares: &[f64], bytes_share: f64) -> Self {
        let at = |index: usize| shares.get(index).copied().unwrap_or(1.0);
        let (low, time_share, high) = (at(0), at(shares.len() / 2), at(shares.len() - 1));
        let is_faster = time_share <= 1.0 - GAIN_MIN && high < 1.0;
        let is_as_fast = time_share <= 1.0 + TIME_TOLERANCE;
        let is_better = is_faster || (is_as_fast && bytes_share <= FEWER_BYTES);
        Self { other, time_share, low, high, bytes_share, is_better }
    }
}

fn median_us(mut times_ns: Vec<u64>) -> f64 {
    times_ns.sort_unstable();
    times_ns.get(times_ns.len() / 2).copied().unwrap_or(0) as f64 / 1e3
}

impl From<PythonFailure> for CallError {
    fn from(failure: PythonFailure) -> Self {
        Self::Unreachable(failure.reason)
    }
}

impl Choice {
    /// The arguments of Python's `Codec` for it.
    pub(super) fn codec_arguments(&self) -> Map<String, Value> {
        let mut arguments = Map::new();
        let objects = match self.serialiser.as_str() {
            "Codec msgpack" => Some("msgpack"),
            "pickle" => Some("pickle"),
            _ => None,
        };
        arguments.extend(objects.map(|objects| ("objects".to_owned(), json!(objects))));
        let Some(threshold_bytes) = self.threshold_bytes else {
            arguments.insert("compress".to_owned(), Value::Null);
            return arguments;
        };
        let mut parts = self.compressor.split(' ');
        arguments.insert("compress".to_owned(), json!(parts.next()));
        if let Some(level) = parts.next().and_then(|level| level.parse::<i32>().ok()) {
            arguments.insert("level".to_owned(), json!(level));
        }
        arguments.insert("threshold".to_owned(), json!(threshold_bytes));
        arguments
    }

    /// The Python expression that makes the codec.
    pub(super) fn codec_expression(&self) -> String {
        let arguments = self.codec_arguments();
        let argument_texts: Vec<String> = arguments
            .iter()
            .map(|(name, value)| match value {
                Value::Null => format!("{name}=None"),
                value => format!("{name}={value}"),
            })
            .collect();
        format!("Codec({})", argument_texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_form_is_better_if_every_round_is_faster_or_it_is_as_fast_with_fewer_bytes() {
        let is_better = |shares: [f64; 5], bytes_share| {
            Comparison::new(Choice::default(), &shares, bytes_share).is_better
        };
        assert!(is_better([0.7, 0.8, 0.9, 0.95, 0.99], 1.5));
        assert!(!is_better([0.7, 0.8, 0.9, 0.95, 1.01], 1.0), "a round was slower");
        assert!(!is_better([0.95, 0.96, 0.97, 0.98, 0.99], 0.9), "within 5 %");
        assert!(is_better([0.9, 1.0, 1.04, 1.1, 1.2], 0.7), "as fast, fewer bytes");
        assert!(!is_better([1.0, 1.0, 1.06, 1.1, 1.2], 0.7), "slower");
    }
}
