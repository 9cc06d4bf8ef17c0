//! The page of `curve`: LRU's curve with its interval, the other policies' points, the knee.

use glasscache_sim::page::{Chart, Mark, Page, Series};
use glasscache_sim::replay::Prepared;

use super::jobs::Results;
use super::summary::{Summary, amount};
use super::table::{Grid, describe_trace};
use super::{Args, ModeFlag};

/// Writes the page.
pub(super) fn page(args: &Args, trace: &Prepared, results: &Results, summary: &Summary) -> String {
    let grid = Grid::of(results);
    let table = grid.table(args, trace);
    Page {
        title: format!("Miss-ratio curve of {}", describe_trace(args, trace)),
        sentence: summary.text(),
        tables: if table.rows.is_empty() { Vec::new() } else { vec![table] },
        charts: vec![chart(args, trace, results, summary)],
        notes: vec![
            format!("glasscache {}, seed {}.", env!("CARGO_PKG_VERSION"), args.seed),
            "Cold start; every request counts and every miss stores. Belady policies know the future: no cache \
             can have them. A star marks the fewest misses of the others."
                .to_owned(),
        ],
    }
    .to_html()
}

fn chart(args: &Args, trace: &Prepared, results: &Results, summary: &Summary) -> Chart {
    let points = summary.drawn();
    let is_sampled = results.curves.len() > 1;
    let band =
        |(size, band): &(u64, glasscache_sim::curve::Band)| (*size as f64, band.low, band.high);
    let lru = Series {
        label: if is_sampled {
            "LRU (sampled, all seeds)"
        } else {
            "LRU (exact)"
        }
        .to_owned(),
        points: points
            .iter()
            .map(|(size, band)| (*size as f64, band.mean))
            .collect(),
        band: if is_sampled {
            points.iter().map(band).collect()
        } else {
            Vec::new()
        },
        ..Series::default()
    };
    let mark = |size| Mark {
        x: size as f64,
        label: format!("knee: {}", amount(trace.mode(), size)),
    };
    Chart {
        title: "Miss ratio by size".to_owned(),
        x_label: match args.mode {
            ModeFlag::Objects => "size of the cache (objects, logarithmic)".to_owned(),
            ModeFlag::Bytes => "size of the cache (bytes, logarithmic)".to_owned(),
        },
        x_log: true,
        y_label: "miss ratio (misses / requests)".to_owned(),
        series: std::iter::once(lru).chain(others(results)).collect(),
        marks: summary
            .knee()
            .map(|knee| mark(knee.size))
            .into_iter()
            .collect(),
        ..Chart::default()
    }
}

/// A series of points for each replayed policy except LRU, which has a curve.
fn others(results: &Results) -> Vec<Series> {
    let grid = Grid::of(results);
    let others = grid.policies.iter().filter(|policy| policy.name() != "LRU");
    let series = |&policy: &_| {
        let rows = results.rows.iter().filter(|row| row.policy == policy);
        let mut points: Vec<(f64, f64)> = rows
            .map(|row| (row.capacity as f64, row.result.miss_ratio()))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series {
            label: policy.name().to_owned(),
            points,
            ..Series::default()
        }
    };
    others.map(series).collect()
}
