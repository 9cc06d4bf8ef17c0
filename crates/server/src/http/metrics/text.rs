//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write as _};

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A body of metrics.
#[derive(Default)]
pub(crate) struct Exposition(pub(crate) String);

impl Exposition {
    /// Begins a metric; its samples follow.
    pub(crate) fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Appends a sample; `labels` are pairs of name and value.
    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let separator = if index == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{separator}{label}=\"{text}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    /// A metric with one sample.
    pub(crate) fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.begin(name, kind, help);
        self.sample(name, &[], value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_help_are_escaped() {
        let mut text = Exposition::default();
        text.begin("a_total", Kind::Counter, "one\\\ntwo");
        text.sample("a_total", &[("x", "a\"b\\c\nd"), ("y", "")], 1.5);
        assert_eq!(
            text.0,
            "# HELP a_total one\\\\\\ntwo\n# TYPE a_total counter\na_total{x=\"a\\\"b\\\\c\\nd\",y=\"\"} 1.5\n"
        );
    }
}
