//! Change points: a series is cut into segments of different level.
//!
//! PELT (Killick, Fearnhead, Eckley, JASA 107, 2012) with the squared error of a constant level as the cost. The
//! noise is estimated from differences of neighbours, which a change of level hardly affects.

/// Price of a further segment, in units of the noise's variance times the logarithm of the length. 2 is the Bayesian
/// information criterion for independent noise; medians of latencies are slightly correlated, so 8.
const PENALTY: f64 = 8.0;

/// Shortest segment.
const SEGMENT_LENGTH_MIN: usize = 2;

/// Where the segments of `series` end; the last is its length.
pub(super) fn find_segment_ends(series: &[f64]) -> Vec<usize> {
    let length = series.len();
    let (sums, square_sums) = (
        compute_running_sums(series, |value| value),
        compute_running_sums(series, |value| value * value),
    );
    let cost = |from: usize, until: usize| {
        let sum = sums[until] - sums[from];
        square_sums[until] - square_sums[from] - sum * sum / (until - from) as f64
    };
    let penalty = PENALTY * (length.max(2) as f64).ln() * estimate_noise_variance(series);
    let mut least_costs = vec![0.0; length + 1];
    least_costs[0] = -penalty;
    let mut previous_ends = vec![0; length + 1];
    let mut starts = vec![0];
    for until in SEGMENT_LENGTH_MIN..=length {
        let total_cost = |from: usize| least_costs[from] + cost(from, until);
        let candidates = starts.iter().copied().filter(|from| until - from >= SEGMENT_LENGTH_MIN);
        let Some(from) = candidates.min_by(|&a, &b| total_cost(a).total_cmp(&total_cost(b))) else {
            continue;
        };
        let cost_at_end = total_cost(from) + penalty;
        let can_start_segment =
            |start: &usize| until - start < SEGMENT_LENGTH_MIN || total_cost(*start) <= cost_at_end;
        let mut next_starts: Vec<usize> =
            starts.iter().copied().filter(can_start_segment).collect();
        next_starts.push(until);
        starts = next_starts;
        least_costs[until] = cost_at_end;
        previous_ends[until] = from;
    }
    let mut ends = vec![length];
    while let Some(&end) = ends.last().filter(|&&end| previous_ends[end] > 0) {
        ends.push(previous_ends[end]);
    }
    ends.reverse();
    ends
}

fn compute_running_sums(series: &[f64], transform: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut sum = 0.0;
    let following_sums = series.iter().map(|&value| {
        sum += transform(value);
        sum
    });
    std::iter::once(0.0).chain(following_sums).collect()
}

/// Variance of the noise: from the median of the differences of neighbours, as if they were normal.
fn estimate_noise_variance(series: &[f64]) -> f64 {
    let mut steps: Vec<f64> = series.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    steps.sort_by(f64::total_cmp);
    let median = steps.get(steps.len() / 2).copied().unwrap_or_default();
    // 0.6745 is the median of the absolute value of a standard normal; a difference has twice the variance.
    (median / 0.6745).powi(2).max(1e-12) / 2.0
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::draw_independent_samples;
    use super::*;

    #[test]
    fn a_level_that_changes_is_cut_where_it_changes() {
        let noise: Vec<f64> =
            draw_independent_samples(200, 3).iter().map(|sample| sample.ln() * 0.1).collect();
        assert_eq!(find_segment_ends(&noise), [200]);
        let with_steps: Vec<f64> = noise
            .iter()
            .enumerate()
            .map(|(index, sample)| sample + if (50..120).contains(&index) { 1.0 } else { 0.0 })
            .collect();
        assert_eq!(find_segment_ends(&with_steps), [50, 120, 200]);
    }

    #[test]
    fn short_and_constant_series_are_one_segment() {
        assert_eq!(find_segment_ends(&[1.0; 50]), [50]);
        assert_eq!(find_segment_ends(&[1.0]), [1]);
        assert_eq!(find_segment_ends(&[]), [0]);
    }
}
