//! Lines of a text trace: numbers rows, skips blank lines and detects a truncated last line.
//!
//! A writer that was stopped leaves an incomplete last row. That row is left out and reported to the caller; the same
//! problem in any other row is an error.

use crate::TraceError;
use std::io::BufRead;

/// Maximum length of a line in bytes, so that a file without line ends is refused before it fills the memory.
pub(super) const LINE_BYTES_MAX: u64 = 64 << 20;

/// Some programs write this before the first line of a UTF-8 text; it is skipped.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A line without its line end; a separator before it stays, for it ends an empty field.
fn strip_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Reads one line after another into a buffer of its own.
pub(super) struct Lines<R> {
    file: String,
    source: R,
    line: Vec<u8>,
    row_number: u64,
    is_truncated: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(file: &str, source: R) -> Self {
        Self { file: file.to_owned(), source, line: Vec::new(), row_number: 0, is_truncated: false }
    }

    /// Reads the header of a CSV file, which does not count as a row.
    pub(super) fn read_header(&mut self) -> Result<Option<String>, TraceError> {
        let header = self.next()?.map(|line| String::from_utf8_lossy(line).into_owned());
        self.row_number = 0;
        Ok(header)
    }

    /// The next line that is not blank, without its end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, TraceError> {
        loop {
            self.line.clear();
            let mut limited_source = std::io::Read::take(&mut self.source, LINE_BYTES_MAX);
            let read_result = limited_source.read_until(b'\n', &mut self.line);
            self.row_number += 1;
            if self.row_number == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
                self.line.drain(..BYTE_ORDER_MARK.len());
            }
            match read_result {
                Err(error) => return Err(TraceError::row(&self.file, self.row_number, error)),
                Ok(0) => return Ok(None),
                Ok(bytes) if bytes as u64 == LINE_BYTES_MAX => {
                    let fault = format!("the line is longer than {LINE_BYTES_MAX} bytes");
                    return Err(TraceError::row(&self.file, self.row_number, fault));
                }
                Ok(_) if self.line.trim_ascii().is_empty() => self.row_number -= 1,
                Ok(_) => return Ok(Some(strip_line_end(&self.line))),
            }
        }
    }

    /// The name in errors.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// The line last read and its number, counted from 1.
    pub(super) fn last_line(&self) -> (&[u8], u64) {
        (strip_line_end(&self.line), self.row_number)
    }

    /// Treats an error in the last line as the end of the stream if the line has no line end.
    pub(super) fn tolerate_truncated_tail(&mut self, error: TraceError) -> Result<(), TraceError> {
        if self.line.last() == Some(&b'\n') {
            return Err(error);
        }
        self.is_truncated = true;
        Ok(())
    }

    /// The error of the last line: of a truncated file if the line has no line end.
    pub(super) fn mark_if_truncated(&self, error: TraceError) -> TraceError {
        if self.line.last() == Some(&b'\n') { error } else { error.of_truncated_file() }
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.is_truncated
    }
}
