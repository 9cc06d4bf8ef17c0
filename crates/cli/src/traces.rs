//! Traces as the commands meet them: opened by name, faults told with the exit code that belongs to them.

use std::fs::File;
use std::path::Path;

use glasscache_sim::TraceError;
use glasscache_sim::trace::{self, Columns, KeyStream};

use crate::output::{Exit, Failure};

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Failure {
        Failure::new(Exit::BadData, error.to_string())
    }
}

/// Opens a file for reading; a folder is none.
pub(crate) fn open_file(path: &Path) -> Result<File, Failure> {
    if path.is_dir() {
        let fault = format!("{}: is a folder, expected a file", path.display());
        return Err(Failure::new(Exit::BadData, fault));
    }
    let fault = |error| format!("cannot open {}: {error}", path.display());
    File::open(path).map_err(|error| Failure::new(Exit::Unreachable, fault(error)))
}

/// Opens a key stream; the end of the name tells its format.
pub(crate) fn open_keys(path: &Path, columns: Columns) -> Result<Box<dyn KeyStream>, Failure> {
    let file = open_file(path)?;
    Ok(trace::open(&path.to_string_lossy(), file, columns)?)
}

/// A whole number with a comma between thousands, as tables show it.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(123), "123");
        assert_eq!(grouped(5_292_456), "5,292,456");
    }
}
