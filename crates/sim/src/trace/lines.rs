//! Lines of a text trace: numbered rows, blank ones skipped, and a last line without its end told apart.
//!
//! A writer that was stopped leaves half a row behind. Such a row is left out and the caller is told, for the rows
//! before it are whole; the same fault further up is an error.

use crate::TraceError;
use std::io::BufRead;

/// Bytes a line may have, so that a foreign file without line ends is refused before it fills the memory.
pub(super) const LINE_BYTES_MAX: u64 = 64 << 20;

/// What some programs put before the first line of a text in UTF-8; it says nothing.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Reads one line after another into a buffer of its own.
pub(super) struct Lines<R> {
    file: String,
    source: R,
    line: Vec<u8>,
    row: u64,
    is_cut: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(file: &str, source: R) -> Self {
        Self {
            file: file.to_owned(),
            source,
            line: Vec::new(),
            row: 0,
            is_cut: false,
        }
    }

    /// Takes the header of a CSV file, which is no row.
    pub(super) fn header(&mut self) -> Result<Option<String>, TraceError> {
        let header = self
            .next()?
            .map(|line| String::from_utf8_lossy(line).into_owned());
        self.row = 0;
        Ok(header)
    }

    /// The next line that is not blank, without its end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, TraceError> {
        loop {
            self.line.clear();
            let mut limited = std::io::Read::take(&mut self.source, LINE_BYTES_MAX);
            let read = limited.read_until(b'\n', &mut self.line);
            self.row += 1;
            if self.row == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
                self.line.drain(..BYTE_ORDER_MARK.len());
            }
            match read {
                Err(error) => return Err(TraceError::row(&self.file, self.row, error)),
                Ok(0) => return Ok(None),
                Ok(bytes) if bytes as u64 == LINE_BYTES_MAX => {
                    let fault = format!("the line is longer than {LINE_BYTES_MAX} bytes");
                    return Err(TraceError::row(&self.file, self.row, fault));
                }
                Ok(_) if self.line.trim_ascii().is_empty() => self.row -= 1,
                Ok(_) => return Ok(Some(self.line.trim_ascii())),
            }
        }
    }

    /// The name in errors.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// The line last read and its number, counted from 1.
    pub(super) fn last(&self) -> (&[u8], u64) {
        (self.line.trim_ascii(), self.row)
    }

    /// Turns the fault of the last line into the end of the stream if the file stops there without a line end.
    pub(super) fn forgive_cut(&mut self, error: TraceError) -> Result<(), TraceError> {
        if self.line.last() == Some(&b'\n') {
            return Err(error);
        }
        self.is_cut = true;
        Ok(())
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }
}
