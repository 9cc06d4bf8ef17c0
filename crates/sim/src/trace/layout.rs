//! Where a key stream's values are found in a file that others wrote: its form, its columns' names, its unit of time.

use super::Format;
use crate::TraceError;
use regex::bytes::Regex;

/// The form of a file; the default is the project's own form, as docs/reference/formats.md describes it.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// The file format; without it, the file name extension decides.
    pub format: Option<Format>,
    /// The columns' names.
    pub names: ColumnNames,
    /// Reads each line by a pattern instead of by columns.
    pub pattern: Option<LinePattern>,
    /// The unit of the column `time`: times are then converted to microseconds. Without it they stay as they are.
    pub time_unit: Option<TimeUnit>,
}

/// The names of the columns in a file; `None` is the format's own name, and a column with a name given here must exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnNames {
    /// Instead of `key`.
    pub key: Option<String>,
    /// Instead of `time`.
    pub time: Option<String>,
    /// Instead of `size`.
    pub size: Option<String>,
    /// Instead of `op`.
    pub op: Option<String>,
    /// Instead of `ttl`.
    pub ttl: Option<String>,
}

impl ColumnNames {
    fn custom_name(&self, column: &str) -> Option<&str> {
        match column {
            "key" => self.key.as_deref(),
            "time" => self.time.as_deref(),
            "size" => self.size.as_deref(),
            "op" => self.op.as_deref(),
            "ttl" => self.ttl.as_deref(),
            _ => None,
        }
    }

    /// The name in the file of one of the format's columns.
    pub(super) fn name<'a>(&'a self, column: &'a str) -> &'a str {
        self.custom_name(column).unwrap_or(column)
    }

    /// Whether a caller named the column, so that a file without it is an error.
    pub(super) fn has_custom_name(&self, column: &str) -> bool {
        self.custom_name(column).is_some()
    }

    /// The error with the column's name in the file.
    pub(super) fn with_name_in_file(&self, mut error: TraceError) -> TraceError {
        if let Some(name) = error.column.as_deref().and_then(|column| self.custom_name(column)) {
            error.column = Some(name.to_owned().into());
        }
        error
    }
}

/// The unit of a column of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeUnit {
    /// Seconds.
    #[default]
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
}

impl TimeUnit {
    /// Microseconds in one unit.
    pub fn microseconds(self) -> u64 {
        match self {
            Self::Seconds => 1_000_000,
            Self::Milliseconds => 1000,
            Self::Microseconds => 1,
        }
    }
}

/// A regular expression whose groups are the columns of a line.
#[derive(Debug, Clone)]
pub struct LinePattern {
    pub(super) regex: Regex,
}

impl LinePattern {
    /// Compiles a regular expression.
    ///
    /// # Errors
    /// A sentence: not a valid expression, without the group `key`, or with a group of another name.
    pub fn new(text: &str) -> Result<Self, String> {
        let regex = Regex::new(text).map_err(|error| {
            let message = error.to_string();
            let reason = message.lines().last().unwrap_or_default();
            format!("the regular expression is not valid: {reason}")
        })?;
        let names: Vec<&str> = regex.capture_names().flatten().collect();
        let known_names = ["key", "time", "size", "op", "ttl"];
        if let Some(unknown_name) = names.iter().find(|name| !known_names.contains(name)) {
            return Err(format!(
                "the regular expression names a group \"{unknown_name}\": the groups are key, time, size, op and ttl"
            ));
        }
        if !names.contains(&"key") {
            return Err("the regular expression needs a group (?P<key>...)".to_owned());
        }
        Ok(Self { regex })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_needs_the_group_key_and_no_others() {
        let error_of = |text: &str| LinePattern::new(text).unwrap_err();
        assert!(error_of("GET (.*)").contains("(?P<key>"));
        assert!(error_of("(?P<url>.*)").contains("\"url\""));
        assert!(error_of("(?P<key>").starts_with("the regular expression is not valid"));
        assert!(LinePattern::new("^(?P<op>GET|PUT) (?P<key>\\S+)").is_ok());
    }
}
