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
    position: f64,
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
            position: value,
        }
    }

    fn height(&self) -> f64 {
        LINE_HEIGHT * self.lines.len() as f64
    }

    pub(super) fn write(&self, html: &mut String, x: f64, colour: &str) {
        for (index, line) in self.lines.iter().enumerate() {
            let y = self.position + LINE_HEIGHT * index as f64;
            let _ = write!(
                html,
                "<text class=\"end\" x=\"{x:.1}\" y=\"{y:.1}\" style=\"fill:{colour}\">{}</text>",
                escape(line)
            );
        }
    }
}

/// The width that labels need beside the chart.
pub(super) fn width(labels: &[EndLabel]) -> f64 {
    let lines = labels.iter().flat_map(|label| &label.lines);
    let longest = lines.map(|line| line.chars().count()).max();
    longest.map_or(0.0, |chars| (chars as f64 * CHAR_WIDTH + 16.0).min(260.0))
}

/// Moves labels, each as near to the end of its curve as the others let it be, between `top` and `bottom`.
pub(super) fn arrange(labels: Vec<EndLabel>, y: &Scale, top: f64, bottom: f64) -> Vec<EndLabel> {
    let mut labels: Vec<EndLabel> = labels
        .into_iter()
        .filter_map(|label| {
            let middle = y.to_px(label.position)?;
            let at = middle + 4.0 - (label.height() - LINE_HEIGHT) / 2.0;
            Some(EndLabel {
                position: at,
                ..label
            })
        })
        .collect();
    labels.sort_by(|a, b| a.position.total_cmp(&b.position));
    let mut next_free = top + LINE_HEIGHT - 4.0;
    for label in &mut labels {
        label.position = label.position.max(next_free);
        next_free = label.position + label.height();
    }
    let mut end = bottom + 4.0;
    for label in labels.iter_mut().rev() {
        label.position = label.position.min(end - label.height() + LINE_HEIGHT);
        end = label.position - LINE_HEIGHT;
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
                    pair[1].position - pair[0].position >= LINE_HEIGHT - 0.01,
                    "{arranged:?}"
                );
            }
            assert!(
                arranged[0].position >= 4.0 && arranged[3].position <= 410.0,
                "{arranged:?}"
            );
        }
    }
}
