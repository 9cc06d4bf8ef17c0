//! One curve of a chart: a line or dots with tooltips, and a band of uncertainty around it.

use std::fmt::Write as _;

use super::escape;
use super::scale::{Scale, format_short_number};

/// The least distance between two points of a line, in SVG units; points that are closer overlap and are left out.
const POINT_DISTANCE_MIN: f64 = 1.5;
/// Maximum number of points drawn per curve.
const POINTS_MAX: usize = 400;
/// Curves with at most this many points show a dot with a tooltip for each point.
const DOTS_MAX: usize = 48;
/// Curves with a colour of the style sheet; further ones are grey.
pub(super) const HIGHLIGHTED_MAX: usize = 5;

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

impl Series {
    pub(super) fn xs(&self) -> impl Iterator<Item = f64> {
        self.points.iter().map(|&(x, _)| x).chain(self.band.iter().map(|&(x, ..)| x))
    }

    pub(super) fn ys(&self) -> impl Iterator<Item = f64> {
        self.points
            .iter()
            .map(|&(_, y)| y)
            .chain(self.band.iter().flat_map(|&(_, low, high)| [low, high]))
    }

    pub(super) fn write(
        &self,
        html: &mut String,
        series_index: usize,
        x_scale: &Scale,
        y_scale: &Scale,
    ) {
        self.write_band(html, series_index, x_scale, y_scale);
        let pixels: Vec<(f64, f64)> = self
            .points
            .iter()
            .filter_map(|&(x, y)| Some((x_scale.to_px(x)?, y_scale.to_px(y)?)))
            .collect();
        if !self.is_scatter {
            let _ =
                write!(html, "<path class=\"curve\" {} d=\"", format_stroke_style(series_index));
            for (point_index, (px, py)) in
                downsample(&drop_overlaps(&pixels)).into_iter().enumerate()
            {
                let _ = match (point_index, self.is_step) {
                    (0, _) => write!(html, "M{px:.1} {py:.1}"),
                    (_, true) => write!(html, "H{px:.1}V{py:.1}"),
                    (_, false) => write!(html, "L{px:.1} {py:.1}"),
                };
            }
            html.push_str("\"/>");
        }
        if self.points.len() <= DOTS_MAX || self.is_scatter {
            self.write_dots(html, series_index, x_scale, y_scale);
        }
    }

    fn write_band(&self, html: &mut String, series_index: usize, x_scale: &Scale, y_scale: &Scale) {
        let pixels: Vec<(f64, f64, f64)> = self
            .band
            .iter()
            .filter_map(|&(x, low, high)| {
                Some((x_scale.to_px(x)?, y_scale.to_px(low)?, y_scale.to_px(high)?))
            })
            .collect();
        if pixels.is_empty() {
            return;
        }
        let pixels = downsample(&pixels);
        let _ = write!(
            html,
            "<polygon fill=\"{}\" opacity=\".18\" points=\"",
            choose_colour(series_index)
        );
        let edge = pixels
            .iter()
            .map(|&(px, _, high_px)| (px, high_px))
            .chain(pixels.iter().rev().map(|&(px, low_px, _)| (px, low_px)));
        for (px, py) in edge {
            let _ = write!(html, "{px:.1},{py:.1} ");
        }
        html.push_str("\"/>");
    }

    fn write_dots(&self, html: &mut String, series_index: usize, x_scale: &Scale, y_scale: &Scale) {
        for &(x, y) in &downsample(&self.points) {
            let (Some(px), Some(py)) = (x_scale.to_px(x), y_scale.to_px(y)) else {
                continue;
            };
            let _ = write!(
                html,
                "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3.2\" fill=\"{}\">",
                choose_colour(series_index)
            );
            let label = escape(&self.label);
            let _ = write!(
                html,
                "<title>{label}: {} at {}</title></circle>",
                format_short_number(y),
                format_short_number(x)
            );
        }
    }
}

/// The colour of curve `index`.
pub(super) fn choose_colour(index: usize) -> String {
    if index < HIGHLIGHTED_MAX { format!("var(--s{index})") } else { "var(--rest)".to_owned() }
}

/// The stroke attributes of curve `index`: a colour and, for readers who see no colours, dashes of its own.
pub(super) fn format_stroke_style(index: usize) -> String {
    let dash_patterns = ["", "9 4", "2 3", "12 3 2 3", "5 2"];
    match dash_patterns.get(index) {
        Some(&"") | None => format!("stroke=\"{}\"", choose_colour(index)),
        Some(dash_pattern) => {
            format!("stroke=\"{}\" stroke-dasharray=\"{dash_pattern}\"", choose_colour(index))
        }
    }
}

/// A number cut to five significant digits: what a chart can show.
pub(super) fn round_significant(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

/// The points that are far enough away from the previous one, and the last point.
fn drop_overlaps(pixels: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut selected: Vec<(f64, f64)> = Vec::new();
    for &(px, py) in pixels {
        let is_far_enough = |&(last_px, last_py): &(f64, f64)| {
            (px - last_px).abs().max((py - last_py).abs()) >= POINT_DISTANCE_MIN
        };
        if selected.last().is_none_or(is_far_enough) {
            selected.push((px, py));
        }
    }
    selected.extend(pixels.last());
    selected
}

/// About [`POINTS_MAX`] evenly chosen points, including the first and the last.
pub(super) fn downsample<P: Copy>(points: &[P]) -> Vec<P> {
    let stride = points.len().div_ceil(POINTS_MAX).max(1);
    let mut selected: Vec<P> = points.iter().copied().step_by(stride).collect();
    if stride > 1 && !(points.len() - 1).is_multiple_of(stride) {
        selected.extend(points.last());
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downsampling_keeps_both_ends() {
        let points: Vec<u32> = (0..10_007).collect();
        let selected = downsample(&points);
        assert!(selected.len() <= POINTS_MAX + 1);
        assert_eq!((selected[0], selected[selected.len() - 1]), (0, 10_006));
    }
}
