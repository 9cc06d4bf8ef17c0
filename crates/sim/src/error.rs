//! Errors in a trace: one sentence with file, row and column, so that the file can be fixed.

use std::borrow::Cow;
use std::fmt;

/// A trace that cannot be read, and where.
///
/// Rows are counted from 1, without the header of a CSV file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct TraceError {
    /// File name as given by the caller.
    pub file: String,
    /// Row of the error, counted from 1; `None` if the error concerns the whole file.
    pub row: Option<u64>,
    /// Column of the error; `None` if the error concerns the whole row.
    pub column: Option<Cow<'static, str>>,
    /// What is wrong, as the rest of a sentence.
    pub fault: String,
    /// Whether the file ends before its content does, as after a copy that was stopped.
    pub is_truncated: bool,
}

impl fmt::Display for TraceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.file)?;
        if let Some(row) = self.row {
            write!(out, ", row {row}")?;
        }
        if let Some(column) = &self.column {
            write!(out, ", column {column}")?;
        }
        write!(out, ": {}", self.fault)
    }
}

impl TraceError {
    /// An error in the whole file.
    pub fn file(file: &str, fault: impl fmt::Display) -> Self {
        Self {
            file: file.to_owned(),
            row: None,
            column: None,
            fault: fault.to_string(),
            is_truncated: false,
        }
    }

    /// An error in one row, counted from 1.
    pub fn row(file: &str, row: u64, fault: impl fmt::Display) -> Self {
        Self { row: Some(row), ..Self::file(file, fault) }
    }

    /// The same error, of a file that ends before its content does.
    #[must_use]
    pub(crate) fn of_truncated_file(self) -> Self {
        Self { is_truncated: true, ..self }
    }

    /// The same error with the name of its column.
    #[must_use]
    pub fn in_column(self, column: impl Into<Cow<'static, str>>) -> Self {
        Self { column: Some(column.into()), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_file_row_and_column() {
        let error = TraceError::row("web.csv", 17, "expected a whole number, found \"-3\"")
            .in_column("size");
        assert_eq!(
            error.to_string(),
            "web.csv, row 17, column size: expected a whole number, found \"-3\""
        );
        assert_eq!(TraceError::file("web.csv", "is empty").to_string(), "web.csv: is empty");
    }
}
