//! The rounds of a load test: one of one target, or many of two targets in turn; the keys are stored before and removed
//! after them.

use std::sync::Arc;
use std::time::Duration;

use super::LoadError;
use super::result::LoadMeasurement;
use super::settings::{Settings, Traffic};
use super::workload::{DeleteKeys, ThreadShare, TrafficRequests};
use crate::load::{self, LoadPlan, Pace, Report, Window};
use crate::paired::measure_both;
use crate::proc::Meter;
use crate::statistics::RatioInterval;
use crate::target::Target;

/// Rounds of a comparison: enough for the interval of a median ratio, and as many as the time allows. Each round has new
/// connections, and which threads of the server own them changes latencies more than anything within a round.
const ROUNDS_MIN: u32 = 20;
const ROUNDS_MAX: u32 = 80;

/// The shortest round, unless that would leave fewer than [`ROUNDS_MIN`] rounds.
const ROUND_MIN: Duration = Duration::from_millis(25);

/// The fewest requests of a round at a fixed rate, likewise: with fewer, its 99th percentile is its slowest request.
const ROUND_REQUESTS_MIN: f64 = 100.0;

/// Pipeline while keys are stored and removed.
const FILL_DEPTH: usize = 64;

/// Two targets measured in interleaved rounds.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Of each target, over the complete rounds.
    pub(super) measured: [LoadMeasurement; 2],
    /// The first over the second.
    pub(super) ratios: TargetRatios,
    /// Why there are fewer rounds than planned.
    pub(super) early_end: Option<LoadError>,
}

/// Medians over the rounds of the first target's figures over the second's.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(super) struct TargetRatios {
    /// Of the median latency.
    #[serde(rename = "50")]
    pub p50: RatioInterval,
    /// Of the 99th percentile.
    #[serde(rename = "99")]
    pub p99: RatioInterval,
    /// Of the completed requests per second.
    pub requests_per_second: RatioInterval,
    /// Of the server's CPU per request; `None` where one of the processes cannot be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpu_us: Option<RatioInterval>,
}

/// Stores all keys.
pub(super) fn fill(
    settings: &Settings,
    target: &Target,
    traffic: &Traffic,
) -> Result<(), load::Error> {
    let plan = unmeasured_plan(settings, target);
    let first_id = settings.first_id();
    let ids = first_id..first_id + traffic.keys;
    let workloads = load::Fill::over(&ids, &traffic.values, settings.threads);
    load::run(&plan, workloads, &Meter::None)?.0.complete()?;
    Ok(())
}

/// Removes all keys that [`fill`] stored; a stopped run is cleaned as well.
pub(super) fn clear(
    settings: &Settings,
    target: &Target,
    traffic: &Traffic,
) -> Result<(), load::Error> {
    let plan = LoadPlan { stop: Arc::default(), ..unmeasured_plan(settings, target) };
    let first_id = settings.first_id();
    let workload = DeleteKeys { remaining_ids: first_id..first_id + traffic.keys };
    load::run(&plan, vec![workload], &Meter::None)?.0.complete()?;
    Ok(())
}

/// How keys are stored and removed, which is not measured.
fn unmeasured_plan(settings: &Settings, target: &Target) -> LoadPlan {
    LoadPlan {
        depth: FILL_DEPTH,
        measures_delay: false,
        keeps_second_histograms: false,
        ..settings.new_load_plan(target)
    }
}

/// Sends the traffic for `run_for` and returns what was measured, also if that ended early with an error.
pub(super) fn run_once(
    settings: &Settings,
    target: &Target,
    traffic: &Traffic,
    (pace, run_for, warm_up): (Pace, Duration, Duration),
    (round, rounds): (u32, u32),
) -> Result<Report, load::Error> {
    let plan = LoadPlan {
        depth: settings.depth,
        pace,
        window: Window::Timed { warm_up, measured_time: run_for },
        ..settings.new_load_plan(target)
    };
    let new_workload = |thread_index: usize| {
        let seed = load::mix(settings.seed ^ u64::from(round) << 16 ^ thread_index as u64);
        let share = ThreadShare {
            thread_index,
            thread_count: settings.threads,
            round_index: round,
            round_count: rounds,
        };
        TrafficRequests::new(
            (traffic.clone(), settings.first_id()),
            settings.connections,
            share,
            seed,
        )
    };
    let workloads = (0..settings.threads).map(new_workload).collect();
    load::run(&plan, workloads, &target.meter).map(|(report, _)| report)
}

/// Measures one target; also returns what ended that early.
///
/// # Errors
/// A failure before any request was counted.
pub(super) fn measure_one(
    settings: &Settings,
    target: &Target,
    traffic: &Traffic,
) -> Result<(LoadMeasurement, Option<LoadError>), LoadError> {
    let pace_and_times = (settings.pace, settings.run_for, settings.warm_up);
    let report = run_once(settings, target, traffic, pace_and_times, (0, 1));
    let mut report = report.map_err(LoadError::of(target))?;
    let error = report.error.take().map(LoadError::of(target));
    match error {
        Some(error) if report.tally.requests == 0 => Err(error),
        error => Ok((LoadMeasurement::of(&[report], settings, &target.meter), error)),
    }
}

fn count_rounds(run_for: Duration, pace: Pace) -> u32 {
    let seconds = run_for.as_secs_f64();
    let rounds_by_time = seconds / ROUND_MIN.as_secs_f64();
    let rounds = match pace {
        Pace::Closed => rounds_by_time,
        Pace::Open(rate) => rounds_by_time.min(rate * seconds / ROUND_REQUESTS_MIN),
    };
    (rounds as u32).clamp(ROUNDS_MIN, ROUNDS_MAX)
}

/// Measures two targets in interleaved rounds.
///
/// # Errors
/// A failure before both targets have had a round.
pub(super) fn compare(
    settings: &Settings,
    targets: [&Target; 2],
    traffic: &Traffic,
    progress: &mut dyn FnMut(f64),
) -> Result<Comparison, LoadError> {
    let mut pairs: Vec<(Report, Report)> = Vec::new();
    let rounds = count_rounds(settings.run_for, settings.pace);
    let run_for = settings.run_for / rounds;
    let mut early_end = None;
    for round in 0..rounds {
        progress(f64::from(round) / f64::from(rounds));
        let warm_up = if round == 0 { settings.warm_up } else { run_for / 10 };
        let pace_and_times = (settings.pace, run_for, warm_up);
        let measured = measure_both(round as usize, |target_index| {
            let target = targets[target_index];
            run_once(settings, target, traffic, pace_and_times, (round, rounds))
                .and_then(Report::complete)
                .map_err(LoadError::of(target))
        });
        match measured {
            Ok(pair) => pairs.push(pair),
            Err(end) if pairs.is_empty() => return Err(end),
            Err(end) => {
                early_end = Some(end);
                break;
            }
        }
        if settings.is_stopped() {
            break;
        }
    }
    let ratio_of = |figure: &dyn Fn(&Report) -> f64| {
        RatioInterval::of(pairs.iter().map(|(first, second)| figure(first) / figure(second)))
    };
    let are_servers_visible = targets.iter().all(|target| target.meter.workers() > 0);
    let ratios = TargetRatios {
        p50: ratio_of(&|report| report.tally.latency_us(50.0)),
        p99: ratio_of(&|report| report.tally.latency_us(99.0)),
        requests_per_second: ratio_of(&Report::rate),
        server_cpu_us: are_servers_visible.then(|| ratio_of(&Report::cpu_us)),
    };
    let (first, second): (Vec<Report>, Vec<Report>) = pairs.into_iter().unzip();
    Ok(Comparison {
        measured: [
            LoadMeasurement::of(&first, settings, &targets[0].meter),
            LoadMeasurement::of(&second, settings, &targets[1].meter),
        ],
        ratios,
        early_end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_as_many_as_time_and_requests_allow() {
        for (seconds, pace, expected) in [
            (0.1, Pace::Closed, 20),
            (1.0, Pace::Closed, 40),
            (1000.0, Pace::Closed, 80),
            (10.0, Pace::Open(20.0), 20),
            (10.0, Pace::Open(400.0), 40),
            (10.0, Pace::Open(1e6), 80),
        ] {
            let rounds = count_rounds(Duration::from_secs_f64(seconds), pace);
            assert_eq!(rounds, expected, "{seconds} s, {pace:?}");
        }
    }
}
