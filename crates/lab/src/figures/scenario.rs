//! Scenarios of the speed benchmark, from `bench/scenarios/speed.toml`.

use serde::{Deserialize, Serialize};

use crate::access::Protocol;
use crate::load::Size;

/// The scenarios that the binary carries, so that it can be run from anywhere.
const BUILT_IN_SCENARIOS: &str = include_str!("../../../../bench/scenarios/speed.toml");

/// One scenario.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    /// Its short name, for `--scenario`.
    pub(super) name: String,
    /// Its line in the table.
    pub(super) title: String,
    /// How many keys there are.
    #[serde(default = "default_keys")]
    pub(super) keys: u64,
    /// Length of each value.
    pub(super) value_bytes: u32,
    /// Connections over all threads.
    #[serde(default = "default_connections")]
    pub(super) connections: usize,
    /// Requests a connection sends before it waits.
    #[serde(default = "default_depth")]
    pub(super) depth: usize,
    /// Keys of a get.
    #[serde(default = "default_keys_per_get")]
    pub(super) keys_per_get: usize,
    /// Share of sets.
    #[serde(default)]
    pub(super) write_share: f64,
    /// Exponent of Zipf's law; uniform without.
    pub(super) zipf: Option<f64>,
    /// Of its requests; values are stored by classic text before.
    #[serde(default)]
    pub(super) protocol: Protocol,
    /// Requests a second of an open loop; a closed loop without.
    pub(super) rate: Option<f64>,
    /// How long each side of a round is measured.
    #[serde(default = "default_seconds")]
    pub(super) seconds: f64,
    /// How many paired rounds.
    #[serde(default = "default_rounds")]
    pub(super) rounds: usize,
    /// The two sides.
    #[serde(default)]
    pub(super) versus: Versus,
    /// The interference with the reader.
    #[serde(rename = "beside")]
    pub(super) interference: Option<Interference>,
    /// Ratios that must not be exceeded.
    #[serde(default, rename = "demand")]
    pub(super) required_ratios: RequiredRatios,
}

/// What is compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Versus {
    /// glasscache with the other server of the pair, which is a memcached or another build of glasscache.
    #[default]
    Peer,
    /// glasscache in this protocol with glasscache in classic text.
    #[serde(rename = "own-text")]
    ClassicText,
}

/// The interference with a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Interference {
    /// 100 k/s new keys while the index doubles twice.
    Growth,
    /// 100 k/s new keys while memory is full.
    Full,
    /// 200 sets/s and 200 gets/s of 1 MB.
    Large,
}

/// Ratios glasscache / memcached.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequiredRatios {
    /// CPU per request.
    pub(super) cpu: Option<f64>,
    /// 99th percentile of latency.
    pub(super) p99: Option<f64>,
    /// 99.9th percentile of latency.
    pub(super) p999: Option<f64>,
    /// 99th percentile with interference, over that of glasscache without.
    pub(super) p99_of_calm: Option<f64>,
}

#[derive(Deserialize)]
struct ScenarioFile {
    scenario: Vec<Scenario>,
}

impl Scenario {
    /// The scenarios built into the binary.
    pub(super) fn built_in() -> Result<Vec<Self>, toml::de::Error> {
        Self::parse(BUILT_IN_SCENARIOS)
    }

    /// The scenarios of a file's text.
    pub(super) fn parse(text: &str) -> Result<Vec<Self>, toml::de::Error> {
        toml::from_str::<ScenarioFile>(text).map(|file| file.scenario)
    }

    /// The first of this scenario's keys: values of one size share a key space.
    pub(super) fn first_id(&self) -> u64 {
        u64::from(self.value_bytes) << 36
    }

    /// Length of its values.
    pub(super) const fn size(&self) -> Size {
        Size::Fixed(self.value_bytes)
    }
}

const fn default_keys() -> u64 {
    1_000_000
}

const fn default_connections() -> usize {
    50
}

const fn default_depth() -> usize {
    1
}

const fn default_keys_per_get() -> usize {
    1
}

const fn default_rounds() -> usize {
    5
}

const fn default_seconds() -> f64 {
    1.2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_scenarios_are_complete_with_unique_names() {
        let scenarios = Scenario::built_in().unwrap();
        let mut names: Vec<_> = scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), scenarios.len());
        assert!(scenarios.iter().all(|scenario| scenario.first_id() + scenario.keys < 1 << 60));
        assert!(scenarios.iter().all(|scenario| scenario.required_ratios.cpu.is_some()
            || scenario.required_ratios.p99.is_some()));
    }

    #[test]
    fn rejects_a_misspelt_field() {
        let text = "[[scenario]]\nname = 'a'\ntitle = 'a'\nvalue_bytes = 1\nconections = 5\n";
        assert!(Scenario::parse(text).is_err());
    }
}
