//! The metrics of a group of requests, each with an interval, and the difference between two groups.
//!
//! An interval covers the true metric in 99 of 100 cases. That of a mean comes from blocks of neighbouring requests
//! (batch means). That of a percentile comes from ranks, whose spread is that of independent requests, widened by what
//! the blocks vary more. The interval of a difference combines those of both groups (Zou and Donner 2008, MOVER).

use super::counts::{Block, GroupCounts};

/// The quantile of the normal distribution at 99.5 %: one of 100 intervals does not cover the metric.
const NORMAL_QUANTILE: f64 = 2.576;

/// With fewer blocks there is no interval.
const BLOCKS_MIN: usize = 8;

/// A metric of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Mean calls of a request.
    Calls,
    /// Mean keys of a request.
    Keys,
    /// Mean of the time that calls add to a request, in milliseconds.
    AddedMean,
    /// Its median.
    AddedP50,
    /// Its 95th percentile.
    AddedP95,
    /// Mean of the time in which the values of a request are decoded, in milliseconds; none if no decoding time
    /// was measured.
    DecodeMean,
}

/// Every metric.
pub const METRICS: [Metric; 6] = [
    Metric::Calls,
    Metric::Keys,
    Metric::AddedMean,
    Metric::AddedP50,
    Metric::AddedP95,
    Metric::DecodeMean,
];

/// A metric and the interval in which the true one lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// What was measured.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end; infinite where the requests are too few for one.
    pub high: f64,
}

impl Metric {
    /// Its name: in the strategy file's lines `forecast`, and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Keys => "keys",
            Self::AddedMean => "added_ms_mean",
            Self::AddedP50 => "added_ms_p50",
            Self::AddedP95 => "added_ms_p95",
            Self::DecodeMean => "decode_ms_mean",
        }
    }

    /// What it is, in the words of a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Keys => "keys",
            Self::AddedMean => "ms that a request waits",
            Self::AddedP50 => "ms that a request waits, at the median",
            Self::AddedP95 => "ms that a request waits, at p95",
            Self::DecodeMean => "ms that a request decodes",
        }
    }

    /// The metric under a name.
    pub fn from_name(name: &str) -> Option<Self> {
        METRICS.into_iter().find(|metric| metric.name() == name)
    }

    /// Whether it depends on how fast servers and network are at the moment.
    pub const fn is_time(self) -> bool {
        !matches!(self, Self::Calls | Self::Keys)
    }

    /// The metric of a group; `None` without requests.
    pub fn value(self, group: &GroupCounts) -> Option<f64> {
        if group.sum.requests == 0 || (self == Self::DecodeMean && group.sum.decode_ns == 0) {
            return None;
        }
        Some(match self {
            Self::Calls | Self::Keys | Self::AddedMean | Self::DecodeMean => self.mean(&group.sum),
            Self::AddedP50 => added_ms_at(group, 0.5),
            Self::AddedP95 => added_ms_at(group, 0.95),
        })
    }

    /// The metric of a group with its interval; `None` if the requests are too few.
    pub fn estimate(self, group: &GroupCounts) -> Option<Estimate> {
        match self {
            Self::Calls | Self::Keys | Self::AddedMean | Self::DecodeMean => {
                self.estimate_of_mean(group)
            }
            Self::AddedP50 => estimate_of_percentile(group, 0.5),
            Self::AddedP95 => estimate_of_percentile(group, 0.95),
        }
    }

    /// How much more a request of `strategy` needs than one of `control`, below 0 if it needs less.
    pub fn difference(self, strategy: &GroupCounts, control: &GroupCounts) -> Option<Estimate> {
        let (of_strategy, of_control) = (self.estimate(strategy)?, self.estimate(control)?);
        let value = of_strategy.value - of_control.value;
        let margin_below =
            (of_strategy.value - of_strategy.low).hypot(of_control.high - of_control.value);
        let margin_above =
            (of_strategy.high - of_strategy.value).hypot(of_control.value - of_control.low);
        Some(Estimate { value, low: value - margin_below, high: value + margin_above })
    }

    fn mean(self, block: &Block) -> f64 {
        let sum = match self {
            Self::Calls => block.calls as f64,
            Self::Keys => block.keys as f64,
            Self::AddedMean | Self::AddedP50 | Self::AddedP95 => block.added_ns as f64 / 1e6,
            Self::DecodeMean => block.decode_ns as f64 / 1e6,
        };
        sum / block.requests.max(1) as f64
    }

    fn estimate_of_mean(self, group: &GroupCounts) -> Option<Estimate> {
        let value = self.value(group)?;
        let deviation = (self.variance(group)? / group.sum.requests as f64).sqrt();
        let margin = deviation * student_quantile(group.blocks().len() - 1);
        Some(Estimate { value, low: (value - margin).max(0.0), high: value + margin })
    }

    /// The variance of one request, as the means of blocks vary: above that of the requests themselves if neighbours
    /// resemble each other.
    fn variance(self, group: &GroupCounts) -> Option<f64> {
        let blocks = group.blocks();
        if blocks.len() < BLOCKS_MIN {
            return None;
        }
        let mean = self.mean(&group.sum);
        let squares =
            blocks.iter().map(|block| (self.mean(block) - mean).powi(2) * block.requests as f64);
        Some(squares.sum::<f64>() / (blocks.len() - 1) as f64)
    }
}

/// Student's quantile at 99.5 %, from the normal one (Abramowitz and Stegun 26.7.5).
fn student_quantile(degrees_of_freedom: usize) -> f64 {
    let (z, degrees_of_freedom) = (NORMAL_QUANTILE, degrees_of_freedom as f64);
    z + (z.powi(3) + z) / (4.0 * degrees_of_freedom)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * degrees_of_freedom.powi(2))
}

/// The added time below which this quantile of the requests is, in milliseconds.
fn added_ms_at(group: &GroupCounts, quantile: f64) -> f64 {
    let rank = (quantile * group.sum.requests as f64).ceil().max(1.0) as u64;
    let mut requests_below = 0;
    let bucket_of_rank = group.added_ns_counts().find(|(_, count)| {
        requests_below += count;
        requests_below >= rank
    });
    bucket_of_rank.map_or(0.0, |(added_ns, _)| added_ns as f64 / 1e6)
}

fn estimate_of_percentile(group: &GroupCounts, quantile: f64) -> Option<Estimate> {
    let requests = group.sum.requests as f64;
    Metric::AddedMean.variance(group)?;
    let variance_of_share = quantile * (1.0 - quantile) * variance_inflation(group);
    let margin = NORMAL_QUANTILE * (variance_of_share / requests).sqrt();
    let (low_quantile, high_quantile) = (quantile - margin, quantile + margin);
    Some(Estimate {
        value: added_ms_at(group, quantile),
        low: if low_quantile > 0.0 { added_ms_at(group, low_quantile) } else { 0.0 },
        high: if high_quantile * requests <= requests - 1.0 {
            added_ms_at(group, high_quantile)
        } else {
            f64::INFINITY
        },
    })
}

/// How many times more a mean over these requests varies than one over independent requests would, at least 1.
pub(super) fn variance_inflation(group: &GroupCounts) -> f64 {
    let variance = Metric::AddedMean.variance(group);
    let ratio = variance.map_or(1.0, |variance| variance / variance_of_single_requests(group));
    if ratio.is_finite() { ratio.max(1.0) } else { 1.0 }
}

/// The variance of the added time of single requests, in square milliseconds.
fn variance_of_single_requests(group: &GroupCounts) -> f64 {
    let mean = Metric::AddedMean.mean(&group.sum);
    let squares = group
        .added_ns_counts()
        .map(|(added_ns, count)| (added_ns as f64 / 1e6 - mean).powi(2) * count as f64);
    squares.sum::<f64>() / group.sum.requests.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::counts::RequestCost;
    use super::super::simulated::{Random, Traffic};
    use super::*;

    fn group_of(added_us: impl Iterator<Item = u64>) -> GroupCounts {
        let mut group = GroupCounts::default();
        for added_us in added_us {
            group.add(&RequestCost {
                calls: 1,
                keys: 3,
                bytes: 0,
                added_ns: added_us * 1000,
                decode_ns: 0,
                has_failed: false,
            });
        }
        group
    }

    #[test]
    fn metrics_of_known_requests_are_their_means_and_percentiles() {
        let group = group_of((1..=1000).map(|number| number * 10));
        assert_eq!(Metric::Calls.value(&group), Some(1.0));
        assert_eq!(Metric::Keys.value(&group), Some(3.0));
        let assert_near = |metric: Metric, expected: f64| {
            let value = metric.value(&group).unwrap();
            assert!((value / expected - 1.0).abs() < 0.01, "{metric:?} {value}");
        };
        assert_near(Metric::AddedMean, 5.005);
        assert_near(Metric::AddedP50, 5.0);
        assert_near(Metric::AddedP95, 9.5);
        assert_eq!(Metric::AddedP95.value(&GroupCounts::default()), None);
    }

    #[test]
    fn too_few_requests_have_no_interval_and_a_high_percentile_no_upper_end() {
        let too_small_group = group_of(0..100);
        assert_eq!(Metric::Calls.estimate(&too_small_group), None);
        let estimate = Metric::AddedP95.estimate(&group_of(0..140)).unwrap();
        assert!(estimate.high.is_infinite());
    }

    #[test]
    fn intervals_cover_the_metrics_of_correlated_requests_in_95_of_100_groups() {
        let mut random = Random(11);
        let true_group = Traffic::typical().draw_group(400_000, &mut random);
        let mut uncovered_by_metric = [0; METRICS.len()];
        for _ in 0..300 {
            let group = Traffic::typical().draw_group(2000, &mut random);
            for (metric, uncovered) in METRICS.iter().zip(&mut uncovered_by_metric) {
                let estimate = metric.estimate(&group).unwrap();
                let value = metric.value(&true_group).unwrap();
                *uncovered += usize::from(value < estimate.low || value > estimate.high);
            }
        }
        assert!(
            uncovered_by_metric.iter().all(|&uncovered| uncovered <= 15),
            "{uncovered_by_metric:?} of 300"
        );
    }

    #[test]
    fn a_difference_between_equal_groups_includes_zero_and_one_between_unequal_groups_does_not() {
        let mut random = Random(5);
        let (first_group, second_group) = (
            Traffic::typical().draw_group(2000, &mut random),
            Traffic::typical().draw_group(2000, &mut random),
        );
        let more_calls = Traffic::typical().with_calls(2.0).draw_group(2000, &mut random);
        for metric in METRICS {
            let equal = metric.difference(&first_group, &second_group).unwrap();
            assert!(equal.low < 0.0 && equal.high > 0.0, "{metric:?} {equal:?}");
            let worse = metric.difference(&more_calls, &first_group).unwrap();
            assert!(worse.low > 0.0, "{metric:?} {worse:?}");
        }
    }

    #[test]
    fn students_quantile_is_that_of_the_tables() {
        for (degrees_of_freedom, expected) in [(7, 3.499), (15, 2.947), (63, 2.656)] {
            assert!((student_quantile(degrees_of_freedom) - expected).abs() < 0.05);
        }
    }
}
