//! The names of curves at their ends: in short lines, moved apart where they would cover each other.

use std::fmt::Write as _;

use super::escape;
use super::scale::Scale;

/// The most characters of a line of a label, unless one word is longer.
const LINE_CHARS_MAX: usize = 20;
/// Height of a line and width of a character in bold, in SVG units; on a phone the text is 13 units high.
const LINE_HEIGHT: f64 = 14.0;
const CHAR_WIDTH: f64 = 8.2;

/// The label of one curve.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EndLabel {
    /// Which curve it names.
    pub(super) series_index: usize,
    lines: Vec<String>,
    /// The value of the curve at its end.
    value: f64,
}

/// A label with its position.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlacedLabel {
    pub(super) label: EndLabel,
    first_line_y: f64,
}

impl EndLabel {
    pub(super) fn new(series_index: usize, name: &str, value: f64) -> Self {
        let mut lines: Vec<String> = Vec::new();
        for word in name.split_whitespace() {
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + word.chars().count() <= LINE_CHARS_MAX => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        Self { series_index, lines, value }
    }

    fn height(&self) -> f64 {
        LINE_HEIGHT * self.lines.len() as f64
    }
}

impl PlacedLabel {
    pub(super) fn write(&self, html: &mut String, x: f64, colour: &str) {
        for (index, line) in self.label.lines.iter().enumerate() {
            let y = self.first_line_y + LINE_HEIGHT * index as f64;
            let _ = write!(
                html,
                "<text class=\"end\" x=\"{x:.1}\" y=\"{y:.1}\" style=\"fill:{colour}\">{}</text>",
                escape(line)
            );
        }
    }
}

/// The width that labels need beside the chart.
pub(super) fn measure_labels(labels: &[EndLabel]) -> f64 {
    let lines = labels.iter().flat_map(|label| &label.lines);
    let line_chars_max = lines.map(|line| line.chars().count()).max();
    line_chars_max.map_or(0.0, |chars| (chars as f64 * CHAR_WIDTH + 16.0).min(260.0))
}

/// Places labels, each as near to the end of its curve as the others allow, between `top` and `bottom`.
pub(super) fn arrange(
    labels: Vec<EndLabel>,
    y_scale: &Scale,
    top: f64,
    bottom: f64,
) -> Vec<PlacedLabel> {
    let mut placed_labels: Vec<PlacedLabel> = labels
        .into_iter()
        .filter_map(|label| {
            let middle_y = y_scale.to_px(label.value)?;
            let first_line_y = middle_y + 4.0 - (label.height() - LINE_HEIGHT) / 2.0;
            Some(PlacedLabel { label, first_line_y })
        })
        .collect();
    placed_labels.sort_by(|a, b| a.first_line_y.total_cmp(&b.first_line_y));
    let mut next_free_y = top + LINE_HEIGHT - 4.0;
    for placed in &mut placed_labels {
        placed.first_line_y = placed.first_line_y.max(next_free_y);
        next_free_y = placed.first_line_y + placed.label.height();
    }
    let mut end_y = bottom + 4.0;
    for placed in placed_labels.iter_mut().rev() {
        let last_possible_y = end_y - placed.label.height() + LINE_HEIGHT;
        placed.first_line_y = placed.first_line_y.min(last_possible_y);
        end_y = placed.first_line_y - LINE_HEIGHT;
    }
    placed_labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_has_several_lines_and_no_cut_word() {
        let label = EndLabel::new(0, "cache1:11211, from the intended time", 1.0);
        assert_eq!(label.lines, ["cache1:11211, from", "the intended time"]);
    }

    #[test]
    fn labels_at_one_height_are_moved_apart_and_stay_inside() {
        let y_scale = Scale::new([0.0, 1.0].into_iter(), false, 400.0, 0.0);
        for value in [0.0, 0.5, 1.0] {
            let labels = (0..4).map(|index| EndLabel::new(index, "lru", value)).collect();
            let placed_labels = arrange(labels, &y_scale, 0.0, 400.0);
            for pair in placed_labels.windows(2) {
                assert!(
                    pair[1].first_line_y - pair[0].first_line_y >= LINE_HEIGHT - 0.01,
                    "{placed_labels:?}"
                );
            }
            assert!(
                placed_labels[0].first_line_y >= 4.0 && placed_labels[3].first_line_y <= 410.0,
                "{placed_labels:?}"
            );
        }
    }
}
