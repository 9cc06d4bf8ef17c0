//! The names of curves at their ends: in short lines, moved apart where they would cover each other.

use std::fmt::Write as _;

use super::escape;
use super::scale::Scale;

/// Characters of a line of a label.
const LINE_CHARS: usize = 20;
/// Height of a line and width of a character in bold, in SVG units; on a phone the text is 13 units high.
const LINE_HEIGHT: f64 = 14.0;
const CHAR_WIDTH: f64 = 8.2;

/// The label of one curve.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EndLabel {
    /// Which curve it names.
    pub(super) series: usize,
    lines: Vec<String>,
    /// The value of the curve at its end, and after [`arrange`] the position of the first line.
    value_or_y: f64,
}

impl EndLabel {
    pub(super) fn new(series: usize, label: &str, value: f64) -> Self {
        let mut lines: Vec<String> = Vec::new();
        for word in label.split_whitespace() {
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + word.chars().count() <= LINE_CHARS => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        Self {
            series,
            lines,
            value_or_y: value,
        }
    }

    fn height(&self) -> f64 {
        LINE_HEIGHT * self.lines.len() as f64
    }

    pub(super) fn write(&self, html: &mut String, x: f64, colour: &str) {
        for (index, line) in self.lines.iter().enumerate() {
            let y = self.value_or_y + LINE_HEIGHT * index as f64;
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
    let longest = lines.map(|line| line.chars().count()).max();
    longest.map_or(0.0, |chars| (chars as f64 * CHAR_WIDTH + 16.0).min(260.0))
}

/// Moves labels, each as near to the end of its curve as the others let it be, between `top` and `bottom`.
pub(super) fn arrange(labels: Vec<EndLabel>, y: &Scale, top: f64, bottom: f64) -> Vec<EndLabel> {
    let mut labels: Vec<EndLabel> = labels
        .into_iter()
        .filter_map(|label| {
            let middle = y.to_px(label.value_or_y)?;
            let first_line_y = middle + 4.0 - (label.height() - LINE_HEIGHT) / 2.0;
            Some(EndLabel {
                value_or_y: first_line_y,
                ..label
            })
        })
        .collect();
    labels.sort_by(|a, b| a.value_or_y.total_cmp(&b.value_or_y));
    let mut next_free_y = top + LINE_HEIGHT - 4.0;
    for label in &mut labels {
        label.value_or_y = label.value_or_y.max(next_free_y);
        next_free_y = label.value_or_y + label.height();
    }
    let mut end_y = bottom + 4.0;
    for label in labels.iter_mut().rev() {
        label.value_or_y = label.value_or_y.min(end_y - label.height() + LINE_HEIGHT);
        end_y = label.value_or_y - LINE_HEIGHT;
    }
    labels
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
        let y = Scale::new([0.0, 1.0].into_iter(), false, 400.0, 0.0);
        for value in [0.0, 0.5, 1.0] {
            let labels = (0..4)
                .map(|index| EndLabel::new(index, "lru", value))
                .collect();
            let arranged = arrange(labels, &y, 0.0, 400.0);
            for pair in arranged.windows(2) {
                assert!(
                    pair[1].value_or_y - pair[0].value_or_y >= LINE_HEIGHT - 0.01,
                    "{arranged:?}"
                );
            }
            assert!(
                arranged[0].value_or_y >= 4.0 && arranged[3].value_or_y <= 410.0,
                "{arranged:?}"
            );
        }
    }
}
