//! Line charts as SVG: curves, bands of uncertainty, marks, a legend, labelled axes.

use std::fmt::Write as _;

use super::escape;
use super::scale::{Scale, short_number};

/// Size of the chart in SVG units; the page scales it to its width.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 48.0;
/// Points closer than this, in SVG units, would overlap.
const DOT_WIDTH: f64 = 1.5;
/// Maximum number of points drawn per curve.
const POINTS_MAX: usize = 700;
/// Curves with at most this many points show a dot with a tooltip for each point.
const DOTS_MAX: usize = 48;
/// Number of colours in the style sheet.
const COLOURS: usize = 8;

/// A chart of one or more curves.
#[derive(Debug, Clone, Default)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x_label: String,
    /// Name and unit of the vertical axis.
    pub y_label: String,
    /// Whether the horizontal axis is logarithmic; values of 0 and below are then left out.
    pub x_log: bool,
    /// Whether the vertical axis is logarithmic; values of 0 and below are then left out.
    pub y_log: bool,
    /// The curves, in the order of the legend.
    pub series: Vec<Series>,
    /// Vertical lines.
    pub marks: Vec<Mark>,
}

/// One curve.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Its name in the legend.
    pub label: String,
    /// Points (x, y) in ascending x.
    pub points: Vec<(f64, f64)>,
    /// The interval around the curve as (x, low, high) in ascending x; may be empty.
    pub band: Vec<(f64, f64, f64)>,
    /// Whether the value holds until the next point (a staircase), as in a distribution.
    pub is_step: bool,
    /// Whether the points are drawn alone, without a line between them.
    pub is_scatter: bool,
}

/// A vertical line at an important x value, such as a knee or the edge of a class.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Its x value.
    pub x: f64,
    /// Its tooltip.
    pub label: String,
}

impl Chart {
    pub(super) fn write(&self, html: &mut String) {
        let xs = self
            .series
            .iter()
            .flat_map(Series::xs)
            .chain(self.marks.iter().map(|m| m.x));
        let x = Scale::new(xs, self.x_log, LEFT, WIDTH - RIGHT);
        let y = Scale::new(
            self.series.iter().flat_map(Series::ys),
            self.y_log,
            HEIGHT - BOTTOM,
            TOP,
        );
        html.push_str("<section>");
        if !self.title.is_empty() {
            let _ = write!(html, "<h2>{}</h2>", escape(&self.title));
        }
        let _ = write!(
            html,
            "<div class=\"wide\"><svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(&self.title)
        );
        self.write_axes(html, &x, &y);
        for mark in &self.marks {
            write_mark(html, mark, &x);
        }
        for (index, series) in self.series.iter().enumerate() {
            series.write(html, index, &x, &y);
        }
        html.push_str("</svg></div>");
        self.write_legend(html);
        html.push_str("</section>");
    }

    fn write_axes(&self, html: &mut String, x: &Scale, y: &Scale) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for (at, tick) in y.ticks.iter().filter_map(|&t| Some((y.to_px(t)?, t))) {
            let _ = write!(html, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>");
            let _ = write!(
                html,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">",
                LEFT - 8.0,
                at + 4.0
            );
            let _ = write!(html, "{}</text>", short_number(tick));
        }
        for (at, tick) in x.ticks.iter().filter_map(|&t| Some((x.to_px(t)?, t))) {
            let _ = write!(html, "<path class=\"axis\" d=\"M{at:.1} {bottom}v5\"/>");
            let _ = write!(
                html,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">",
                bottom + 19.0
            );
            let _ = write!(html, "{}</text>", short_number(tick));
        }
        let _ = write!(
            html,
            "<path class=\"axis\" d=\"M{LEFT} {bottom}H{right}\"/>"
        );
        let middle = f64::midpoint(LEFT, right);
        let _ = write!(
            html,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 8.0,
            escape(&self.x_label)
        );
        let middle = f64::midpoint(TOP, bottom);
        let _ = write!(
            html,
            "<text transform=\"translate(14 {middle}) rotate(-90)\" text-anchor=\"middle\">"
        );
        let _ = write!(html, "{}</text>", escape(&self.y_label));
    }

    fn write_legend(&self, html: &mut String) {
        html.push_str("<ul class=\"legend\">");
        for (index, series) in self.series.iter().enumerate() {
            let _ = write!(
                html,
                "<li><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><path class=\"curve\" d=\"M0 5H26\" {}/></svg>",
                stroke_style(index)
            );
            let _ = write!(html, "{}</li>", escape(&series.label));
        }
        html.push_str("</ul>");
    }
}

impl Series {
    fn xs(&self) -> impl Iterator<Item = f64> {
        self.points
            .iter()
            .map(|p| p.0)
            .chain(self.band.iter().map(|b| b.0))
    }

    fn ys(&self) -> impl Iterator<Item = f64> {
        self.points
            .iter()
            .map(|p| p.1)
            .chain(self.band.iter().flat_map(|b| [b.1, b.2]))
    }

    fn write(&self, html: &mut String, index: usize, x: &Scale, y: &Scale) {
        self.write_band(html, index, x, y);
        let pixels: Vec<(f64, f64)> = self
            .points
            .iter()
            .filter_map(|p| Some((x.to_px(p.0)?, y.to_px(p.1)?)))
            .collect();
        if !self.is_scatter {
            let _ = write!(html, "<path class=\"curve\" {} d=\"", stroke_style(index));
            for (at, (px, py)) in downsample(&without_overlaps(&pixels))
                .into_iter()
                .enumerate()
            {
                let _ = match (at, self.is_step) {
                    (0, _) => write!(html, "M{px:.1} {py:.1}"),
                    (_, true) => write!(html, "H{px:.1}V{py:.1}"),
                    (_, false) => write!(html, "L{px:.1} {py:.1}"),
                };
            }
            html.push_str("\"/>");
        }
        if self.points.len() <= DOTS_MAX || self.is_scatter {
            self.write_dots(html, index, x, y);
        }
    }

    fn write_band(&self, html: &mut String, index: usize, x: &Scale, y: &Scale) {
        let pixels: Vec<(f64, f64, f64)> = self
            .band
            .iter()
            .filter_map(|b| Some((x.to_px(b.0)?, y.to_px(b.1)?, y.to_px(b.2)?)))
            .collect();
        if pixels.is_empty() {
            return;
        }
        let pixels = downsample(&pixels);
        let _ = write!(
            html,
            "<polygon fill=\"var(--s{})\" opacity=\".18\" points=\"",
            index % COLOURS
        );
        let edge = pixels
            .iter()
            .map(|p| (p.0, p.2))
            .chain(pixels.iter().rev().map(|p| (p.0, p.1)));
        for (px, py) in edge {
            let _ = write!(html, "{px:.1},{py:.1} ");
        }
        html.push_str("\"/>");
    }

    fn write_dots(&self, html: &mut String, index: usize, x: &Scale, y: &Scale) {
        for &(vx, vy) in &downsample(&self.points) {
            let (Some(px), Some(py)) = (x.to_px(vx), y.to_px(vy)) else {
                continue;
            };
            let _ = write!(
                html,
                "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3\" fill=\"var(--s{})\">",
                index % COLOURS
            );
            let label = escape(&self.label);
            let _ = write!(
                html,
                "<title>{label}: {} at {}</title></circle>",
                short_number(vy),
                short_number(vx)
            );
        }
    }
}

fn write_mark(html: &mut String, mark: &Mark, x: &Scale) {
    if let Some(at) = x.to_px(mark.x) {
        let _ = write!(
            html,
            "<path class=\"mark\" d=\"M{at:.1} {TOP}V{}\">",
            HEIGHT - BOTTOM
        );
        let _ = write!(html, "<title>{}</title></path>", escape(&mark.label));
    }
}

/// The stroke attributes of curve `index`: colours repeat, and curves from the ninth on are dashed.
fn stroke_style(index: usize) -> String {
    let dashes = ["", " stroke-dasharray=\"7 4\"", " stroke-dasharray=\"2 3\""];
    format!(
        "stroke=\"var(--s{})\"{}",
        index % COLOURS,
        dashes[(index / COLOURS) % dashes.len()]
    )
}

/// The points that are more than a dot's width away from the previous one, and the last point.
fn without_overlaps(pixels: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for &(px, py) in pixels {
        let is_far_enough =
            |last: &(f64, f64)| (px - last.0).abs().max((py - last.1).abs()) >= DOT_WIDTH;
        if kept.last().is_none_or(is_far_enough) {
            kept.push((px, py));
        }
    }
    kept.extend(pixels.last());
    kept
}

/// About [`POINTS_MAX`] evenly chosen points, including the first and the last.
fn downsample<P: Copy>(points: &[P]) -> Vec<P> {
    let stride = points.len().div_ceil(POINTS_MAX).max(1);
    let mut kept: Vec<P> = points.iter().copied().step_by(stride).collect();
    if stride > 1 && !(points.len() - 1).is_multiple_of(stride) {
        kept.extend(points.last());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_labels_axes_and_curves() {
        let series = Series {
            label: "lru".into(),
            points: vec![(1.0, 0.5), (10.0, 0.25)],
            ..Series::default()
        };
        let band = vec![(1.0, 0.4, 0.6), (10.0, 0.2, 0.3)];
        let chart = Chart {
            x_label: "memory (MB)".into(),
            y_label: "miss ratio".into(),
            series: vec![
                series.clone(),
                Series {
                    band,
                    is_step: true,
                    ..series
                },
            ],
            marks: vec![Mark {
                x: 5.0,
                label: "knee".into(),
            }],
            ..Chart::default()
        };
        let mut html = String::new();
        chart.write(&mut html);
        for part in [
            "memory (MB)</text>",
            "miss ratio</text>",
            "lru</li>",
            "<polygon",
            "<title>knee</title>",
            "H844.0V",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
    }

    #[test]
    fn downsampling_keeps_both_ends() {
        let points: Vec<u32> = (0..10_007).collect();
        let kept = downsample(&points);
        assert!(kept.len() <= POINTS_MAX + 1);
        assert_eq!((kept[0], kept[kept.len() - 1]), (0, 10_006));
    }
}
