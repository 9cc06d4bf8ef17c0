//! Two builds of glasscache under the same load: the cost of a change per request.
//!
//! Every scenario is measured in pairs, both builds within a second of each other, and only the ratios of a pair are
//! compared. The pairs are spread over several passes through all scenarios, each with newly started servers: memory
//! placement and the load of the machine then differ from pass to pass and do not determine the result of a scenario.
//! A scenario that compares two protocols runs in its own protocol on both builds.

use serde::Serialize;

use super::interference;
use super::scenario::{Scenario, Versus};
use super::speed::{Progress, SideMeasurement, SpeedBenchmark};
use crate::bench::{Error, ServerPair};
use crate::paired::ConfidenceInterval;

/// Pairs of one scenario in one pass.
const PAIRS_PER_PASS: usize = 6;

/// A reader with interference is measured this many times longer because its rate is low.
const INTERFERENCE_SECONDS_FACTOR: f64 = 2.0;

/// How long to measure, how often.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct PairPlan {
    /// Pairs of each scenario.
    #[serde(rename = "pairs")]
    pub(super) pair_count: usize,
    /// How long each side of a pair is measured.
    pub(super) seconds: f64,
}

/// All pairs of one scenario.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ComparedScenario {
    /// The scenario.
    pub(super) scenario: Scenario,
    /// The new build and the old one, pair by pair.
    pub(super) pairs: Vec<(SideMeasurement, SideMeasurement)>,
    /// CPU per request, new over old.
    #[serde(rename = "cpu")]
    pub(super) cpu_ratio: ConfidenceInterval,
    /// Pairs during which other processes used more than 0.2 core.
    #[serde(rename = "disturbed")]
    pub(super) disturbed_pairs: usize,
}

/// The results of all scenarios.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Comparison {
    /// Scenario by scenario.
    pub(super) scenarios: Vec<ComparedScenario>,
    /// The geometric mean of the scenarios' median ratios.
    #[serde(rename = "mean")]
    pub(super) mean_cpu_ratio: f64,
    /// The geometric mean over the scenarios within the first, second ... pair, and the interval of its median.
    #[serde(rename = "mean_of_pairs")]
    pub(super) mean_cpu_ratio_of_pairs: ConfidenceInterval,
}

impl Comparison {
    /// Sums the pairs up.
    pub(super) fn of(
        measured_scenarios: Vec<(Scenario, Vec<(SideMeasurement, SideMeasurement)>)>,
    ) -> Self {
        let pair_count = measured_scenarios.iter().map(|(_, pairs)| pairs.len()).min().unwrap_or(0);
        let ratios_of_pair = |pair_index: usize| {
            measured_scenarios
                .iter()
                .filter_map(move |(_, pairs)| pairs.get(pair_index).map(compute_cpu_ratio))
        };
        let mean_cpu_ratio_of_pairs = ConfidenceInterval::of(
            (0..pair_count).map(|pair_index| geometric_mean(ratios_of_pair(pair_index))),
        );
        let compared_scenarios: Vec<ComparedScenario> = measured_scenarios
            .into_iter()
            .map(|(scenario, pairs)| ComparedScenario {
                scenario,
                cpu_ratio: ConfidenceInterval::of(pairs.iter().map(compute_cpu_ratio)),
                disturbed_pairs: pairs
                    .iter()
                    .filter(|(new, old)| new.is_disturbed() || old.is_disturbed())
                    .count(),
                pairs,
            })
            .collect();
        Self {
            mean_cpu_ratio: geometric_mean(
                compared_scenarios.iter().map(|compared| compared.cpu_ratio.median),
            ),
            mean_cpu_ratio_of_pairs,
            scenarios: compared_scenarios,
        }
    }

    /// The scenario with the highest median ratio.
    pub(super) fn worst(&self) -> Option<&ComparedScenario> {
        self.scenarios.iter().max_by(|a, b| a.cpu_ratio.median.total_cmp(&b.cpu_ratio.median))
    }
}

fn compute_cpu_ratio((new, old): &(SideMeasurement, SideMeasurement)) -> f64 {
    new.cpu_us / old.cpu_us
}

fn geometric_mean(ratios: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = ratios.map(f64::ln).collect();
    if logs.is_empty() {
        return f64::NAN;
    }
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

/// Compares the builds of `servers`: `glasscache` is the new one, the peer the old one.
pub(super) fn compare(
    servers: &ServerPair,
    scenarios: &[Scenario],
    pair_plan: PairPlan,
    progress: &mut Progress<'_>,
) -> Result<Comparison, Error> {
    let mut measured_scenarios: Vec<(Scenario, Vec<(SideMeasurement, SideMeasurement)>)> =
        scenarios
            .iter()
            .map(|scenario| (to_paired_scenario(scenario, pair_plan.seconds), Vec::new()))
            .collect();
    let mut first_pair = 0;
    while first_pair < pair_plan.pair_count {
        let pass_end = pair_plan.pair_count.min(first_pair + PAIRS_PER_PASS);
        progress(&format!("pairs {} to {pass_end} of {}", first_pair + 1, pair_plan.pair_count));
        measure_pass(servers, &mut measured_scenarios, first_pair..pass_end, progress)?;
        first_pair = pass_end;
    }
    Ok(Comparison::of(measured_scenarios))
}

/// The scenario as both builds run it.
fn to_paired_scenario(scenario: &Scenario, seconds: f64) -> Scenario {
    let seconds_factor =
        if scenario.interference.is_some() { INTERFERENCE_SECONDS_FACTOR } else { 1.0 };
    Scenario { seconds: seconds * seconds_factor, versus: Versus::Peer, ..scenario.clone() }
}

/// One pass through all scenarios with new servers.
fn measure_pass(
    servers: &ServerPair,
    measured_scenarios: &mut [(Scenario, Vec<(SideMeasurement, SideMeasurement)>)],
    pair_indices: std::ops::Range<usize>,
    progress: &mut Progress<'_>,
) -> Result<(), Error> {
    let mut speed = SpeedBenchmark::start(servers.clone())?;
    for (scenario, pairs) in measured_scenarios.iter_mut().filter(|(s, _)| s.interference.is_none())
    {
        let result = speed.run(scenario, pair_indices.clone(), progress)?;
        pairs.extend(result.rounds);
    }
    drop(speed);
    for (scenario, pairs) in measured_scenarios.iter_mut() {
        let Some(interference) = scenario.interference else {
            continue;
        };
        for pair_index in pair_indices.clone() {
            let pair = interference::measure_pair(servers, scenario, interference, pair_index)?;
            let (new, old) = &pair;
            progress(&format!(
                "{}: pair {} of {}: CPU {:.2} against {:.2} us, ratio {:.2}",
                scenario.title,
                pair_index + 1,
                pair_indices.end,
                new.cpu_us,
                old.cpu_us,
                compute_cpu_ratio(&pair),
            ));
            pairs.push(pair);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn measured_with_cpu(cpu_us: f64) -> SideMeasurement {
        SideMeasurement {
            requests_per_s: 1.0,
            cpu_us,
            user_us: cpu_us,
            kernel_us: 0.0,
            p50_us: 1.0,
            p99_us: 1.0,
            p999_us: 1.0,
            p99_from_send_us: 1.0,
            generator_us: 1.0,
            other_cores: 0.0,
            is_generator_bound: false,
            misses: 0,
        }
    }

    #[test]
    fn json_has_the_field_names_of_earlier_results() {
        let scenario = Scenario::built_in().unwrap().remove(0);
        let pair = (measured_with_cpu(2.0), measured_with_cpu(1.0));
        let comparison_json =
            serde_json::to_value(Comparison::of(vec![(scenario, vec![pair])])).unwrap();
        let field_names = |value: &serde_json::Value| -> Vec<String> {
            let names: BTreeSet<_> = value.as_object().unwrap().keys().cloned().collect();
            names.into_iter().collect()
        };
        assert_eq!(field_names(&comparison_json), ["mean", "mean_of_pairs", "scenarios"]);
        let scenario_fields = field_names(&comparison_json["scenarios"][0]);
        assert_eq!(scenario_fields, ["cpu", "disturbed", "pairs", "scenario"]);
    }

    #[test]
    fn the_mean_is_the_geometric_mean_of_scenario_medians() {
        let scenario = Scenario::built_in().unwrap().remove(0);
        let slower = vec![
            (measured_with_cpu(2.0), measured_with_cpu(1.0)),
            (measured_with_cpu(20.0), measured_with_cpu(10.0)),
        ];
        let faster = vec![
            (measured_with_cpu(1.0), measured_with_cpu(2.0)),
            (measured_with_cpu(5.0), measured_with_cpu(10.0)),
        ];
        let comparison = Comparison::of(vec![(scenario.clone(), slower), (scenario, faster)]);
        assert!((comparison.mean_cpu_ratio - 1.0).abs() < 1e-9);
        assert!((comparison.mean_cpu_ratio_of_pairs.median - 1.0).abs() < 1e-9);
        assert!((comparison.worst().unwrap().cpu_ratio.median - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_protocol_scenario_uses_its_protocol_on_both_builds() {
        let scenarios = Scenario::built_in().unwrap();
        let meta = scenarios.iter().find(|scenario| scenario.name == "meta-get").unwrap();
        let paired_scenario = to_paired_scenario(meta, 0.5);
        assert_eq!(paired_scenario.versus, Versus::Peer);
        assert_eq!(paired_scenario.protocol, meta.protocol);
    }
}
