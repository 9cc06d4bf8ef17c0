//! Stacked bars over ranges of one logarithmic axis, in panels below each other: what two ways to divide the same range
//! cost.

use std::fmt::Write as _;

use serde_json::json;

use super::scale::{Scale, format_short_number};
use super::{escape, write_data};

/// Sizes and margins in SVG units.
const WIDTH: f64 = 860.0;
const PANEL_HEIGHT: f64 = 190.0;
const LEFT_MARGIN: f64 = 64.0;
const RIGHT_MARGIN: f64 = 16.0;
const TOP_MARGIN: f64 = 26.0;
const BOTTOM_MARGIN: f64 = 48.0;

/// Panels of stacked bars with the same axes.
#[derive(Debug, Clone, Default)]
pub struct BarChart {
    /// What they show.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x_label: String,
    /// Name and unit of the vertical axis.
    pub y_label: String,
    /// Names of the lower and the upper part of each bar.
    pub part_names: [String; 2],
    /// The panels, from top to bottom.
    pub panels: Vec<Panel>,
}

/// Bars with a title.
#[derive(Debug, Clone, Default)]
pub struct Panel {
    /// What its bars show.
    pub title: String,
    /// The bars in ascending order.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Bar {
    /// The range on the horizontal axis.
    pub range: (f64, f64),
    /// The lower and the upper part.
    pub parts: [f64; 2],
}

impl BarChart {
    pub(super) fn write(&self, html: &mut String) {
        let all_bars = || self.panels.iter().flat_map(|panel| &panel.bars);
        let x_scale = Scale::new(
            all_bars().flat_map(|bar| <[f64; 2]>::from(bar.range)),
            true,
            LEFT_MARGIN,
            WIDTH - RIGHT_MARGIN,
        );
        let bar_heights = all_bars().map(|bar| bar.parts[0] + bar.parts[1]);
        let y_scale = Scale::new(bar_heights.chain([0.0]), false, PANEL_HEIGHT, TOP_MARGIN);
        let chart_height = PANEL_HEIGHT * self.panels.len() as f64 + BOTTOM_MARGIN;
        let title = escape(&self.title);
        let _ = write!(
            html,
            "<section><h2>{title}</h2><div class=\"wide\"><svg class=\"chart\" viewBox=\"0 0 {WIDTH} {chart_height}\" role=\"img\" aria-label=\"{title}\">"
        );
        for (index, panel) in self.panels.iter().enumerate() {
            let _ = write!(html, "<g transform=\"translate(0 {})\">", PANEL_HEIGHT * index as f64);
            self.write_panel(html, panel, &x_scale, &y_scale);
            html.push_str("</g>");
        }
        self.write_x_axis(html, &x_scale, chart_height);
        html.push_str("</svg></div>");
        self.write_legend(html);
        self.write_chart_data(html);
        html.push_str("</section>");
    }

    fn write_panel(&self, html: &mut String, panel: &Panel, x_scale: &Scale, y_scale: &Scale) {
        let right = WIDTH - RIGHT_MARGIN;
        for (tick_px, tick) in
            y_scale.ticks.iter().filter_map(|&tick| Some((y_scale.to_px(tick)?, tick)))
        {
            let _ =
                write!(html, "<path class=\"grid\" d=\"M{LEFT_MARGIN} {tick_px:.1}H{right}\"/>");
            let _ = write!(
                html,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT_MARGIN - 8.0,
                tick_px + 4.0,
                format_short_number(tick)
            );
        }
        for bar in &panel.bars {
            self.write_bar(html, bar, x_scale, y_scale);
        }
        let _ = write!(html, "<text x=\"{LEFT_MARGIN}\" y=\"14\">{}</text>", escape(&panel.title));
    }

    fn write_bar(&self, html: &mut String, bar: &Bar, x_scale: &Scale, y_scale: &Scale) {
        let [bottom_value, top_value] = bar.parts;
        let (range_start, range_end) = bar.range;
        let x_edges = (x_scale.to_px(range_start), x_scale.to_px(range_end));
        let (Some(left_px), Some(right_px)) = x_edges else {
            return;
        };
        let y_edges = (
            y_scale.to_px(0.0),
            y_scale.to_px(bottom_value),
            y_scale.to_px(bottom_value + top_value),
        );
        let (Some(baseline_px), Some(middle_px), Some(top_px)) = y_edges else {
            return;
        };
        // A gap between neighbours, but not more than the bar has.
        let width = (right_px - left_px - 1.0).max(0.6);
        html.push_str("<g>");
        for (class, upper_px, lower_px) in
            [("requested", middle_px, baseline_px), ("wasted", top_px, middle_px)]
        {
            let _ = write!(
                html,
                "<rect class=\"{class}\" x=\"{left_px:.1}\" y=\"{upper_px:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>",
                lower_px - upper_px
            );
        }
        let [bottom_name, top_name] = &self.part_names;
        let _ = write!(
            html,
            "<title>{} to {}: {} {}, {} {}</title></g>",
            format_short_number(range_start),
            format_short_number(range_end),
            escape(bottom_name),
            format_short_number(bottom_value),
            escape(top_name),
            format_short_number(top_value)
        );
    }

    fn write_x_axis(&self, html: &mut String, x_scale: &Scale, chart_height: f64) {
        let (bottom, right) = (chart_height - BOTTOM_MARGIN, WIDTH - RIGHT_MARGIN);
        let _ = write!(html, "<path class=\"axis\" d=\"M{LEFT_MARGIN} {bottom}H{right}\"/>");
        for (tick_px, tick) in
            x_scale.ticks.iter().filter_map(|&tick| Some((x_scale.to_px(tick)?, tick)))
        {
            let _ = write!(html, "<path class=\"axis\" d=\"M{tick_px:.1} {bottom}v5\"/>");
            let _ = write!(
                html,
                "<text x=\"{tick_px:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 19.0,
                format_short_number(tick)
            );
        }
        let middle_x = f64::midpoint(LEFT_MARGIN, right);
        let _ = write!(
            html,
            "<text x=\"{middle_x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            chart_height - 8.0,
            escape(&self.x_label)
        );
        let _ = write!(
            html,
            "<text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(TOP_MARGIN, bottom),
            escape(&self.y_label)
        );
    }

    fn write_legend(&self, html: &mut String) {
        html.push_str("<ul class=\"legend\">");
        for (class, name) in ["requested", "wasted"].iter().zip(&self.part_names) {
            let _ = write!(
                html,
                "<li><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><rect class=\"{class}\" width=\"26\" height=\"10\"/></svg>{}</li>",
                escape(name)
            );
        }
        html.push_str("</ul>");
    }

    /// The bars for the page's script, as the rows of a file.
    fn write_chart_data(&self, html: &mut String) {
        let [bottom_name, top_name] = &self.part_names;
        let mut rows = vec![json!(["panel", "from", "to", bottom_name, top_name])];
        for panel in &self.panels {
            rows.extend(panel.bars.iter().map(|bar| {
                let (range_start, range_end) = bar.range;
                json!([panel.title, range_start, range_end, bar.parts[0], bar.parts[1]])
            }));
        }
        write_data(html, &json!({ "rows": rows }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_panel_has_its_bars_in_two_parts_and_the_data_to_save() {
        let bar = |from: f64, parts| Bar { range: (from, 2.0 * from), parts };
        let panel = |title: &str| Panel {
            title: title.to_owned(),
            bars: vec![bar(96.0, [80.0, 20.0]), bar(192.0, [10.0, 5.0])],
        };
        let bar_chart = BarChart {
            part_names: ["requested".to_owned(), "wasted".to_owned()],
            panels: vec![panel("today"), panel("optimum")],
            ..BarChart::default()
        };
        let mut html = String::new();
        bar_chart.write(&mut html);
        assert_eq!(html.matches("<rect class=\"requested\" x=").count(), 4);
        assert!(html.contains("<title>96 to 192: requested 80, wasted 20</title>"), "{html}");
        assert!(html.contains("[\"optimum\",192.0,384.0,10.0,5.0]"), "{html}");
    }
}
