//! Whether a run was steady: flat, after a warm-up, slowing down, or never.
//!
//! Medians of about 200 parts of the run are cut at change points (`segments`). Levels that differ by less than 5 %
//! count as one, and one short disturbance between two equal levels is ignored. If the levels only fall and the last
//! one lasts for half of the run, the earlier ones were a warm-up; MSER-5 (White, Cobb, Spratt, WSC 2000), which
//! finds the cut that minimises the error of the mean of the rest, may move its end to a later operation. A run that
//! never stays at a level must be reported as such (Barrett et al., OOPSLA 2017): its mean is not a property of the
//! server.

use serde::Serialize;

use super::segments;

/// Most parts into which a run is cut; each needs at least [`PART_SAMPLES_MIN`] samples.
const PARTS_MAX: usize = 200;

/// The batch size of MSER-5.
const PART_SAMPLES_MIN: usize = 5;

/// Levels that differ by less than this are the same, as a share.
const TOLERANCE: f64 = 0.05;

/// The longest disturbance that is ignored, as a share of the run.
const DISTURBANCE_MAX: f64 = 0.06;

/// How the latency developed over a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SteadinessKind {
    /// The same level all the time.
    Flat,
    /// Slower at first, then at one level.
    WarmUp,
    /// Slower from some point on.
    SlowDown,
    /// No steady level.
    None,
}

/// A [`SteadinessKind`], and from which operation on it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Steadiness {
    /// How the latency developed.
    pub kind: SteadinessKind,
    /// The first operation after the warm-up, or of the slow-down.
    pub after_operations: Option<u64>,
}

/// A part of the run at one level.
#[derive(Debug, Clone, Copy)]
struct Segment {
    from: usize,
    until: usize,
    level: f64,
}

impl Steadiness {
    /// Interprets latencies in the order of a run, of which each stands for `stride` operations.
    pub(crate) fn of(latencies: &[f64], stride: u64) -> Self {
        let medians = compute_medians_of_parts(latencies);
        let segments = find_segments(&medians);
        let first_operation_of = |part: usize| {
            (part as f64 / medians.len().max(1) as f64 * latencies.len() as f64) as u64 * stride
        };
        let (kind, part) = classify(&segments, &medians);
        Self { kind, after_operations: part.map(first_operation_of) }
    }
}

fn classify(segments: &[Segment], medians: &[f64]) -> (SteadinessKind, Option<usize>) {
    let [first, .., last] = segments else {
        return (SteadinessKind::Flat, None);
    };
    let lowest_index = segments
        .iter()
        .enumerate()
        .min_by(|(_, a), (_, b)| a.level.total_cmp(&b.level))
        .map_or(0, |(index, _)| index);
    let (segments_to_lowest, segments_after_lowest) = segments.split_at(lowest_index + 1);
    let is_falling = segments_to_lowest.windows(2).all(|pair| pair[1].level < pair[0].level);
    let from_lowest = segments.get(lowest_index..).unwrap_or_default();
    let is_rising = from_lowest.windows(2).all(|pair| pair[1].level > pair[0].level);
    if !is_falling || !is_rising || first.level.is_nan() {
        return (SteadinessKind::None, None);
    }
    if let Some(slower) = segments_after_lowest.first() {
        return (SteadinessKind::SlowDown, Some(slower.from));
    }
    let half = medians.len() / 2;
    if last.until - last.from < half {
        return (SteadinessKind::None, None);
    }
    let warm_up_end = find_warm_up_end(medians);
    let warm_up_end = if warm_up_end <= half { warm_up_end } else { 0 };
    (SteadinessKind::WarmUp, Some(last.from.max(warm_up_end)))
}

/// Logarithms of the medians of equal parts of the run: a change counts by its ratio.
fn compute_medians_of_parts(latencies: &[f64]) -> Vec<f64> {
    let parts = (latencies.len() / PART_SAMPLES_MIN).clamp(1, PARTS_MAX);
    let part_start = |part: usize| part * latencies.len() / parts;
    (0..parts)
        .filter_map(|part| latencies.get(part_start(part)..part_start(part + 1)))
        .map(|latencies_of_part| compute_median(latencies_of_part).max(1e-9).ln())
        .collect()
}

fn compute_median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let value_at = |index: usize| sorted.get(index).copied().unwrap_or_default();
    f64::midpoint(value_at(sorted.len().saturating_sub(1) / 2), value_at(sorted.len() / 2))
}

/// The segments of different level, without one short disturbance.
fn find_segments(medians: &[f64]) -> Vec<Segment> {
    let new_segment = |from: usize, until: usize| Segment {
        from,
        until,
        level: compute_median(medians.get(from..until).unwrap_or_default()),
    };
    let mut from = 0;
    let mut segments = Vec::new();
    for until in segments::find_segment_ends(medians) {
        segments.push(new_segment(from, until));
        from = until;
    }
    let tolerance = (1.0 + TOLERANCE).ln();
    let merge_equal_levels = |segments: &mut Vec<Segment>| {
        while let Some((index, difference)) = segments
            .windows(2)
            .map(|pair| (pair[1].level - pair[0].level).abs())
            .enumerate()
            .min_by(|(_, a), (_, b)| a.total_cmp(b))
            && difference <= tolerance
        {
            let merged = new_segment(segments[index].from, segments[index + 1].until);
            segments.splice(index..=index + 1, [merged]);
        }
    };
    merge_equal_levels(&mut segments);
    let is_short = |candidate: &Segment| {
        (candidate.until - candidate.from) as f64 <= DISTURBANCE_MAX * medians.len() as f64
    };
    if let [segment_before, disturbance, segment_after] = segments[..]
        && is_short(&disturbance)
        && (segment_before.level - segment_after.level).abs() <= tolerance
    {
        return vec![new_segment(segment_before.from, segment_after.until)];
    }
    segments
}

/// MSER-5: the cut after which the mean of the rest has the smallest standard error.
fn find_warm_up_end(medians: &[f64]) -> usize {
    let squared_error_after = |warm_up_end: usize| {
        let steady_medians = medians.get(warm_up_end..).unwrap_or_default();
        let mean = steady_medians.iter().sum::<f64>() / steady_medians.len() as f64;
        steady_medians.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
            / (steady_medians.len() as f64).powi(2)
    };
    (0..medians.len().saturating_sub(PART_SAMPLES_MIN))
        .min_by(|&a, &b| squared_error_after(a).total_cmp(&squared_error_after(b)))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{Development, draw_independent_samples, draw_run_latencies};
    use super::*;

    #[test]
    fn known_developments_are_recognised_in_95_percent_of_runs() {
        for (development, expected) in [
            (Development::Flat, SteadinessKind::Flat),
            (Development::WarmUp, SteadinessKind::WarmUp),
            (Development::SlowDown, SteadinessKind::SlowDown),
            (Development::Unsteady, SteadinessKind::None),
        ] {
            let is_correct = |seed: &u64| {
                Steadiness::of(&draw_run_latencies(development, *seed), 1).kind == expected
            };
            let correct_runs = (0..1000).filter(is_correct).count();
            assert!(correct_runs >= 950, "{expected:?}: {correct_runs} of 1000");
        }
    }

    #[test]
    fn the_end_of_a_sudden_warm_up_is_found_within_a_twentieth_of_the_run() {
        let is_near = |seed: &u64| {
            let noise_samples = draw_independent_samples(10_000, *seed).into_iter().enumerate();
            let series: Vec<f64> = noise_samples
                .map(|(index, noise)| if index < 2_000 { 2.0 * noise } else { noise })
                .collect();
            let found_end = Steadiness::of(&series, 1).after_operations.unwrap_or(0);
            found_end.abs_diff(2_000) <= 500
        };
        let near_count = (0..200).filter(is_near).count();
        assert!(near_count >= 190, "{near_count} of 200");
    }

    #[test]
    fn operations_are_scaled_by_the_stride() {
        let series: Vec<f64> =
            (0..10_000).map(|index| if index < 2_000 { 300.0 } else { 100.0 }).collect();
        let change_after = |stride| Steadiness::of(&series, stride).after_operations;
        assert_eq!((change_after(1), change_after(16)), (Some(2_000), Some(32_000)));
    }

    #[test]
    fn one_short_pause_leaves_a_run_flat() {
        let series: Vec<f64> = (0..10_000)
            .map(|index| {
                if (5_000..5_300).contains(&index) { 9_000.0 } else { 100.0 + f64::from(index % 7) }
            })
            .collect();
        assert_eq!(Steadiness::of(&series, 1).kind, SteadinessKind::Flat);
        assert_eq!(Steadiness::of(&[], 1).kind, SteadinessKind::Flat);
    }
}
