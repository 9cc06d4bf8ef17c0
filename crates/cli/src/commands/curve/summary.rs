//! Summary of a curve in one sentence and in JSON.

use std::fmt::Write as _;

use glasscache_lab::text::format_count_of;
use glasscache_sim::curve::{
    Curve, Knee, MemoryTradeOff, MissRatioRange, compare_memory_and_policies, miss_ratio_range,
};
use glasscache_sim::policy::PolicyKind;
use glasscache_sim::replay::PreparedTrace;
use glasscache_sim::trace::intern::Mode;
use serde_json::{Value, json};

use super::jobs::CurveResults;

/// Points of LRU's curve in JSON.
const JSON_POINTS: u64 = 100;

/// Points of LRU's curve on the page.
const PAGE_POINTS: u32 = 240;

/// The findings, as far as they are known.
pub(super) struct Summary {
    mode: Mode,
    /// The requested miss ratio.
    miss_ratio_wanted: f64,
    /// The unavoidable miss ratio: first uses.
    first_use_ratio: f64,
    knee: Option<Knee>,
    size_at_wanted_ratio: Option<u64>,
    /// The size at which memory and policies are compared, and the comparison.
    trade_off: Option<(u64, MemoryTradeOff<PolicyKind>)>,
    /// The cheapest size and its cost in seconds of waiting, if costs are given.
    pub(super) cheapest: Option<(u64, f64)>,
    json_points: Vec<(u64, MissRatioRange)>,
    /// The points for the page, with a constant ratio between sizes.
    chart_points: Vec<(u64, MissRatioRange)>,
    is_sampled: bool,
}

impl Summary {
    pub(super) fn new(
        results: &CurveResults,
        trace: &PreparedTrace,
        miss_ratio_wanted: f64,
        requested_size: Option<u64>,
    ) -> Self {
        let curve = results.curves.first();
        let knee = curve.and_then(Curve::knee);
        let first_use_ratio = curve.map_or(1.0, |curve| curve.miss_ratio(u64::MAX));
        let nearest_knee = |size| find_nearest_replayed_size(results, size).unwrap_or(size);
        let compared_size = requested_size.or_else(|| knee.map(|knee| nearest_knee(knee.size)));
        let json_sizes = curve.map(|curve| curve.points(JSON_POINTS)).unwrap_or_default();
        let find_range = |size: u64| Some((size, miss_ratio_range(&results.curves, size)?));
        let chart_sizes = curve.map(|curve| curve.sizes_by_ratio(PAGE_POINTS));
        Self {
            mode: trace.mode(),
            miss_ratio_wanted,
            first_use_ratio,
            knee,
            size_at_wanted_ratio: curve.and_then(|curve| curve.size_for(miss_ratio_wanted)),
            trade_off: curve
                .zip(compared_size)
                .map(|(curve, size)| (size, compare_at(curve, results, size))),
            cheapest: None,
            json_points: json_sizes.into_iter().filter_map(|(size, _)| find_range(size)).collect(),
            chart_points: chart_sizes.into_iter().flatten().filter_map(find_range).collect(),
            is_sampled: results.curves.len() > 1,
        }
    }

    /// LRU's curve for the chart, with the spread of the seeds if it was sampled.
    pub(super) fn chart_points(&self) -> &[(u64, MissRatioRange)] {
        &self.chart_points
    }

    pub(super) fn knee(&self) -> Option<Knee> {
        self.knee
    }

    /// The wanted miss ratio and the size that has it.
    pub(super) fn wanted_ratio_and_size(&self) -> Option<(f64, u64)> {
        Some((self.miss_ratio_wanted, self.size_at_wanted_ratio?))
    }

    /// The size at which memory and policies are compared.
    pub(super) fn compared_size(&self) -> Option<u64> {
        self.trade_off.as_ref().map(|(size, _)| *size)
    }

    /// The summary as text.
    pub(super) fn format_text(&self) -> String {
        let mut clauses = Vec::new();
        if let Some(Knee { size, miss_ratio }) = self.knee {
            let size_text = format_size(self.mode, size);
            clauses.push(format!(
                "LRU's curve bends at {size_text} ({} misses)",
                format_percent(miss_ratio)
            ));
        }
        clauses.push(match self.size_at_wanted_ratio {
            Some(size) => {
                format!(
                    "{} misses need {}",
                    format_percent(self.miss_ratio_wanted),
                    format_size(self.mode, size)
                )
            }
            None => format!(
                "no size has {} misses, for {} of the requests miss in a cache of any size",
                format_percent(self.miss_ratio_wanted),
                format_percent(self.first_use_ratio)
            ),
        });
        if let Some((size, trade_off)) = &self.trade_off {
            clauses.push(self.format_trade_off(*size, trade_off));
        }
        if let Some((size, _)) = self.cheapest {
            let size_text = format_size(self.mode, size);
            clauses.push(format!("the cheapest size is {size_text}"));
        }
        if self.is_sampled {
            clauses.push("the curve is sampled, see the intervals".to_owned());
        }
        let mut sentence = clauses.join("; ");
        sentence.push('.');
        sentence
    }

    fn format_trade_off(&self, size: u64, trade_off: &MemoryTradeOff<PolicyKind>) -> String {
        let mut text = format!(
            "at {} 10 % more memory takes LRU from {} to {}",
            format_size(self.mode, size),
            format_percent(trade_off.miss_ratio),
            format_percent(trade_off.miss_ratio_with_more_memory)
        );
        match trade_off.best {
            Some((policy, ratio)) if ratio < trade_off.miss_ratio => {
                let ratio_text = format_percent(ratio);
                let _ = write!(text, ", {policy} in the same memory would have {ratio_text}");
            }
            Some(_) => text.push_str(", and no other policy does better in the same memory"),
            None => {}
        }
        text
    }

    /// The summary as JSON.
    pub(super) fn to_document(&self) -> Value {
        let knee_document =
            self.knee.map(|knee| json!({"size": knee.size, "miss_ratio": knee.miss_ratio}));
        let trade_off_document = self.trade_off.as_ref().map(|(size, trade_off)| {
            let best = trade_off.best.map(
                |(policy, miss_ratio)| json!({"policy": policy.name(), "miss_ratio": miss_ratio}),
            );
            json!({
                "size": size,
                "miss_ratio": trade_off.miss_ratio,
                "with_10_percent_more_memory": trade_off.miss_ratio_with_more_memory,
                "best_policy": best,
            })
        });
        json!({
            "sentence": self.format_text(),
            "knee": knee_document,
            "wanted_miss_ratio": self.miss_ratio_wanted,
            "size_for_wanted": self.size_at_wanted_ratio,
            "least_miss_ratio": self.first_use_ratio,
            "memory_or_policy": trade_off_document,
            "cheapest": self.cheapest.map(|(size, cost_s)| json!({ "size": size, "cost_s": cost_s })),
        })
    }

    /// LRU's curve as JSON.
    pub(super) fn curve_document(&self) -> Value {
        let point = |(size, range): &(u64, MissRatioRange)| json!({"size": size, "miss_ratio": range.mean, "low": range.low, "high": range.high});
        json!({
            "method": if self.is_sampled { "shards" } else { "mattson" },
            "points": self.json_points.iter().map(point).collect::<Vec<_>>(),
        })
    }
}

/// The replayed size nearest to another, by ratio; `None` if none was replayed.
pub(super) fn find_nearest_replayed_size(results: &CurveResults, wanted_size: u64) -> Option<u64> {
    let distance = |size: u64| (size as f64 / wanted_size.max(1) as f64).ln().abs();
    let sizes = results.points.iter().map(|point| point.capacity);
    sizes.min_by(|&a, &b| distance(a).total_cmp(&distance(b)))
}

/// Compares memory with the policies that a cache could have.
fn compare_at(curve: &Curve, results: &CurveResults, size: u64) -> MemoryTradeOff<PolicyKind> {
    let points = results.points.iter().filter(|point| point.capacity == size);
    let online_points =
        points.filter(|point| !point.policy.is_offline() && point.policy != PolicyKind::Lru);
    let online_ratios: Vec<(PolicyKind, f64)> =
        online_points.map(|point| (point.policy, point.result.miss_ratio())).collect();
    compare_memory_and_policies(curve, size, &online_ratios)
}

/// A size with its unit.
pub(super) fn format_size(mode: Mode, size: u64) -> String {
    match mode {
        Mode::Objects => format_count_of(size, "object", "objects"),
        Mode::Bytes if size >= 10 << 20 => format!("{:.1} MiB", size as f64 / f64::from(1 << 20)),
        Mode::Bytes if size >= 10 << 10 => format!("{:.1} KiB", size as f64 / f64::from(1 << 10)),
        Mode::Bytes => format!("{size} bytes"),
    }
}

/// A ratio in per cent with three significant digits.
pub(super) fn format_percent(ratio: f64) -> String {
    let percent_value = ratio * 100.0;
    let decimals = if percent_value >= 99.95 {
        0
    } else if percent_value >= 9.995 {
        1
    } else {
        2
    };
    format!("{percent_value:.decimals$} %")
}
