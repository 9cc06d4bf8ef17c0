//! Line charts as SVG: curves labelled at their ends, bands of uncertainty, marks, a legend, labelled axes.
//!
//! The first five curves have colours that colour-blind readers can tell apart, and dashes as well; the rest are grey.

use std::fmt::Write as _;

use serde_json::json;

use super::end_labels::{self, EndLabel};
use super::scale::{Scale, format_short_number};
use super::series::{
    HIGHLIGHTED_MAX, Series, choose_colour, downsample, format_stroke_style, round_significant,
};
use super::{escape, write_data};

/// Size of a chart of a page in SVG units; the page scales it to its width.
const PAGE_SIZE: [f64; 2] = [860.0, 400.0];
const LEFT_MARGIN: f64 = 64.0;
/// The margin to the right of the last point if there are no labels.
const RIGHT_MARGIN: f64 = 16.0;
const TOP_MARGIN: f64 = 18.0;
const BOTTOM_MARGIN: f64 = 48.0;
/// Marks with a label in the chart; where there are more, each has a tooltip.
const MARK_LABELS_MAX: usize = 4;

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
    pub is_x_log: bool,
    /// Whether the vertical axis is logarithmic; values of 0 and below are then left out.
    pub is_y_log: bool,
    /// The curves, in the order of the legend.
    pub series: Vec<Series>,
    /// Vertical lines.
    pub marks: Vec<Mark>,
}

/// A vertical line at an important x value, such as a knee or the edge of a class.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Its x value.
    pub x: f64,
    /// What it is: drawn beside the line, or as its tooltip where there are many.
    pub label: String,
}

/// The area in which a chart is drawn.
struct Frame {
    width: f64,
    height: f64,
    /// The right end of the horizontal axis.
    right: f64,
    x_scale: Scale,
    y_scale: Scale,
}

impl Chart {
    /// The drawing alone, with this width and height in SVG units.
    pub fn to_svg(&self, size: [f64; 2]) -> String {
        let mut html = String::new();
        self.write_svg(&mut html, &self.make_frame(size));
        html
    }

    pub(super) fn write(&self, html: &mut String) {
        let frame = self.make_frame(PAGE_SIZE);
        html.push_str("<section>");
        if !self.title.is_empty() {
            let _ = write!(html, "<h2>{}</h2>", escape(&self.title));
        }
        html.push_str("<div class=\"wide\">");
        self.write_svg(html, &frame);
        html.push_str("</div>");
        self.write_legend(html);
        self.write_chart_data(html, &frame.x_scale, &frame.y_scale);
        html.push_str("</section>");
    }

    fn make_frame(&self, [width, height]: [f64; 2]) -> Frame {
        let labels_width = end_labels::measure_labels(&self.build_end_labels());
        let right = width - labels_width.max(RIGHT_MARGIN);
        let xs =
            self.series.iter().flat_map(Series::xs).chain(self.marks.iter().map(|mark| mark.x));
        let x_scale = Scale::new(xs, self.is_x_log, LEFT_MARGIN, right);
        let ys = self.series.iter().flat_map(Series::ys);
        let y_scale = Scale::new(ys, self.is_y_log, height - BOTTOM_MARGIN, TOP_MARGIN);
        Frame { width, height, right, x_scale, y_scale }
    }

    fn write_svg(&self, html: &mut String, frame: &Frame) {
        let Frame { width, height, right, ref x_scale, ref y_scale } = *frame;
        let _ = write!(
            html,
            "<svg class=\"chart\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
            escape(&self.title)
        );
        self.write_axes(html, frame);
        self.write_marks(html, frame);
        // Grey curves first, so that they lie under the others.
        let mut draw_order: Vec<usize> = (0..self.series.len()).collect();
        draw_order.sort_by_key(|&index| index < HIGHLIGHTED_MAX);
        let placed_labels = end_labels::arrange(
            self.build_end_labels(),
            y_scale,
            TOP_MARGIN,
            height - BOTTOM_MARGIN,
        );
        for index in draw_order {
            let class_attribute = if index < HIGHLIGHTED_MAX { "" } else { " class=\"rest\"" };
            let _ = write!(html, "<g data-series=\"{index}\"{class_attribute}>");
            self.series[index].write(html, index, x_scale, y_scale);
            if let Some(placed_label) =
                placed_labels.iter().find(|placed| placed.label.series_index == index)
            {
                placed_label.write(html, right + 8.0, &choose_colour(index));
            }
            html.push_str("</g>");
        }
        html.push_str("</svg>");
    }

    /// The labels of the coloured lines, where there are several curves; dots are named in the legend.
    fn build_end_labels(&self) -> Vec<EndLabel> {
        if self.series.len() < 2 {
            return Vec::new();
        }
        let highlighted = self.series.iter().enumerate().take(HIGHLIGHTED_MAX);
        highlighted
            .filter(|(_, series)| !series.is_scatter)
            .filter_map(|(index, series)| {
                let &(_, last_value) = series.points.last()?;
                Some(EndLabel::new(index, &series.label, last_value))
            })
            .collect()
    }

    /// The drawn points and both axes for the page's script: values under the pointer, and the data to save.
    fn write_chart_data(&self, html: &mut String, x_scale: &Scale, y_scale: &Scale) {
        let series_documents: Vec<_> = self
            .series
            .iter()
            .map(|series| {
                let points: Vec<[f64; 2]> = downsample(&series.points)
                    .iter()
                    .map(|&(x, y)| [round_significant(x), round_significant(y)])
                    .collect();
                json!({ "label": series.label, "points": points })
            })
            .collect();
        write_data(
            html,
            &json!({
                "x_label": self.x_label,
                "y_label": self.y_label,
                "x_scale": x_scale.to_json(),
                "y_scale": y_scale.to_json(),
                "series": series_documents,
            }),
        );
    }

    fn write_marks(&self, html: &mut String, frame: &Frame) {
        let Frame { height, right, ref x_scale, .. } = *frame;
        let has_labels = self.marks.len() <= MARK_LABELS_MAX;
        for (index, mark) in self.marks.iter().enumerate() {
            let Some(mark_px) = x_scale.to_px(mark.x) else {
                continue;
            };
            let label = escape(&mark.label);
            let bottom = height - BOTTOM_MARGIN;
            let _ = write!(html, "<path class=\"mark\" d=\"M{mark_px:.1} {TOP_MARGIN}V{bottom}\">");
            let _ = write!(html, "<title>{label}</title></path>");
            if has_labels {
                let is_near_end = mark_px > f64::midpoint(LEFT_MARGIN, right);
                let (dx, anchor) = if is_near_end { (-5.0, "end") } else { (5.0, "start") };
                let label_y = TOP_MARGIN + 10.0 + 15.0 * index as f64;
                let _ = write!(
                    html,
                    "<text x=\"{:.1}\" y=\"{label_y}\" text-anchor=\"{anchor}\">{label}</text>",
                    mark_px + dx
                );
            }
        }
    }

    fn write_axes(&self, html: &mut String, frame: &Frame) {
        let Frame { height, right, ref x_scale, ref y_scale, .. } = *frame;
        let bottom = height - BOTTOM_MARGIN;
        for (y_px, tick) in
            y_scale.ticks.iter().filter_map(|&tick| Some((y_scale.to_px(tick)?, tick)))
        {
            let _ = write!(html, "<path class=\"grid\" d=\"M{LEFT_MARGIN} {y_px:.1}H{right}\"/>");
            let _ = write!(
                html,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">",
                LEFT_MARGIN - 8.0,
                y_px + 4.0
            );
            let _ = write!(html, "{}</text>", format_short_number(tick));
        }
        for (x_px, tick) in
            x_scale.ticks.iter().filter_map(|&tick| Some((x_scale.to_px(tick)?, tick)))
        {
            let _ = write!(html, "<path class=\"axis\" d=\"M{x_px:.1} {bottom}v5\"/>");
            let _ = write!(
                html,
                "<text x=\"{x_px:.1}\" y=\"{:.1}\" text-anchor=\"middle\">",
                bottom + 19.0
            );
            let _ = write!(html, "{}</text>", format_short_number(tick));
        }
        let _ = write!(html, "<path class=\"axis\" d=\"M{LEFT_MARGIN} {bottom}H{right}\"/>");
        let middle_x = f64::midpoint(LEFT_MARGIN, right);
        let _ = write!(
            html,
            "<text x=\"{middle_x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            height - 8.0,
            escape(&self.x_label)
        );
        let middle_y = f64::midpoint(TOP_MARGIN, bottom);
        let _ = write!(
            html,
            "<text transform=\"translate(14 {middle_y}) rotate(-90)\" text-anchor=\"middle\">"
        );
        let _ = write!(html, "{}</text>", escape(&self.y_label));
    }

    fn write_legend(&self, html: &mut String) {
        html.push_str("<ul class=\"legend\">");
        for (index, series) in self.series.iter().enumerate() {
            let _ = write!(
                html,
                "<li><button type=\"button\" data-of=\"{index}\" aria-pressed=\"true\"><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\">"
            );
            if series.is_scatter {
                let _ = write!(
                    html,
                    "<circle cx=\"13\" cy=\"5\" r=\"4\" fill=\"{}\"/>",
                    choose_colour(index)
                );
            } else {
                let _ = write!(
                    html,
                    "<path class=\"curve\" d=\"M0 5H26\" {}/>",
                    format_stroke_style(index)
                );
            }
            let _ = write!(html, "</svg>{}</button></li>", escape(&series.label));
        }
        html.push_str("</ul>");
    }
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
            series: vec![series.clone(), Series { band, is_step: true, ..series }],
            marks: vec![Mark { x: 5.0, label: "knee".into() }],
            ..Chart::default()
        };
        let mut html = String::new();
        chart.write(&mut html);
        for expected in [
            "memory (MB)</text>",
            "miss ratio</text>",
            "lru</button></li>",
            "<polygon",
            "<title>knee</title>",
            ">knee</text>",
            "class=\"end\"",
            "\"points\":[[1.0,0.5],[10.0,0.25]]",
        ] {
            assert!(html.contains(expected), "{expected} in {html}");
        }
    }

    #[test]
    fn the_sixth_curve_and_all_after_it_are_grey_and_have_no_label_at_their_end() {
        let numbered_series = |index: usize| Series {
            label: format!("policy {index}"),
            points: vec![(1.0, index as f64), (2.0, index as f64)],
            ..Series::default()
        };
        let chart = Chart { series: (0..7).map(numbered_series).collect(), ..Chart::default() };
        let mut html = String::new();
        chart.write(&mut html);
        assert_eq!(html.matches("<g data-series=").count(), 7);
        assert_eq!(html.matches("class=\"rest\"").count(), 2);
        assert_eq!(html.matches("class=\"end\"").count(), 5);
    }
}
