//! The table of `curve`: one row per policy, that of the fewest misses first, one column per size; a star marks the
//! fewest misses of the realisable policies.

use std::fmt::Write as _;

use glasscache_lab::report::ReportTable;
use glasscache_lab::text::{format_count, format_count_of};
use glasscache_sim::policy::PolicyKind;
use glasscache_sim::replay::PreparedTrace;
use glasscache_sim::trace::intern::Mode;

use super::jobs::{CurveResults, ReplayedPoint};
use super::summary::{Summary, find_nearest_replayed_size, format_size};
use super::{Args, ModeFlag};

/// The replayed points as cells: policies, sizes, and the point of each pair that was replayed.
pub(super) struct Grid<'a> {
    pub(super) policies: Vec<PolicyKind>,
    pub(super) sizes: Vec<u64>,
    points: &'a [ReplayedPoint],
    /// The size whose misses order the policies, if they are in order.
    ordering_size: Option<u64>,
}

impl<'a> Grid<'a> {
    pub(super) fn from_results(results: &'a CurveResults) -> Self {
        let (mut policies, mut sizes) = (Vec::new(), Vec::new());
        for point in &results.points {
            if !policies.contains(&point.policy) {
                policies.push(point.policy);
            }
            if !sizes.contains(&point.capacity) {
                sizes.push(point.capacity);
            }
        }
        Self { policies, sizes, points: &results.points, ordering_size: None }
    }

    /// The policies in order of their misses at the size at which the summary compares them, or the replayed one next
    /// to it; those that were not replayed there are the last.
    pub(super) fn best_first(results: &'a CurveResults, summary: &Summary) -> Self {
        let mut grid = Self::from_results(results);
        let compared_size = summary.compared_size();
        let ordering_size =
            compared_size.and_then(|size| find_nearest_replayed_size(results, size));
        let ordering_size = ordering_size.or(grid.sizes.last().copied());
        if let Some(size) = ordering_size {
            let mut policies = std::mem::take(&mut grid.policies);
            policies.sort_by_key(|&policy| {
                let point = grid.find(policy, size);
                point.map_or(u64::MAX, |point| point.result.misses)
            });
            grid.policies = policies;
        }
        Self { ordering_size, ..grid }
    }

    /// The grid as a table: one row per policy, one column per size.
    pub(super) fn to_table(&self, args: &Args, trace: &PreparedTrace) -> ReportTable {
        let footprint = trace.footprint() as f64;
        let size_heading = |&size: &u64| {
            let share = format_two_significant_digits(size as f64 / footprint * 100.0);
            format!("{} ({share} %)", format_count(size))
        };
        let format_row = |&policy: &PolicyKind| {
            let cells = self.sizes.iter().map(|&size| self.format_cell(policy, size));
            std::iter::once(policy.to_string()).chain(cells).collect()
        };
        let order = self.ordering_size.map(|size| {
            let size_text = format_size(trace.mode(), size);
            format!(", fewest misses at {size_text} first")
        });
        let title = format!(
            "miss ratio by size in {} (share of all){}",
            args.mode.name(),
            order.unwrap_or_default()
        );
        let header =
            std::iter::once("policy".to_owned()).chain(self.sizes.iter().map(size_heading));
        ReportTable {
            is_best_first: true,
            kept_name: Some(PolicyKind::ServerStore.name().into_owned()),
            ..ReportTable::new(title, header, self.policies.iter().map(format_row))
        }
    }

    fn find(&self, policy: PolicyKind, size: u64) -> Option<&ReplayedPoint> {
        self.points.iter().find(|point| point.policy == policy && point.capacity == size)
    }

    /// The fewest misses at a size among policies without knowledge of the future; `None` if most policies have as
    /// few, as at a size of one object, where a mark would be meaningless.
    fn fewest_misses_at(&self, size: u64) -> Option<u64> {
        let is_online_at_size =
            |point: &&ReplayedPoint| point.capacity == size && !point.policy.is_offline();
        let misses: Vec<u64> =
            self.points.iter().filter(is_online_at_size).map(|point| point.result.misses).collect();
        let fewest_misses = misses.iter().copied().min()?;
        let tied_policies = misses.iter().filter(|&&misses| misses == fewest_misses).count();
        (tied_policies * 2 <= misses.len()).then_some(fewest_misses)
    }

    /// Miss ratio, or a dash if the replay was stopped; a star marks the lowest of the policies without knowledge of
    /// the future.
    fn format_cell(&self, policy: PolicyKind, size: u64) -> String {
        let Some(point) = self.find(policy, size) else {
            return "-".to_owned();
        };
        let is_best =
            !policy.is_offline() && self.fewest_misses_at(size) == Some(point.result.misses);
        format!("{:.4}{}", point.result.miss_ratio(), if is_best { "*" } else { " " })
    }
}

/// Requests, objects and their weight.
pub(super) fn describe_trace(args: &Args, trace: &PreparedTrace) -> String {
    let name = args.trace_path.file_name().unwrap_or_default().to_string_lossy();
    let (requests, objects) = (trace.requests() as u64, trace.distinct() as u64);
    let mut text = format!(
        "{name}: {}, {}",
        format_count_of(requests, "request", "requests"),
        format_count_of(objects, "object", "objects")
    );
    if args.mode == ModeFlag::Bytes {
        let _ = write!(text, " of {} together", format_size(Mode::Bytes, trace.footprint()));
    }
    if let Some(timeline) = trace.timeline() {
        let rows_with_ttl = format_count_of(timeline.rows_with_ttl(), "row", "rows");
        let _ = write!(text, ", {rows_with_ttl} with a TTL");
    }
    text
}

/// A number with two significant digits.
fn format_two_significant_digits(value: f64) -> String {
    let decimals = if value >= 9.95 {
        0
    } else if value >= 0.995 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}
