//! Opens traces by file name and maps their errors to exit codes.

use std::fs::File;
use std::path::Path;

use glasscache_record::{ReadError, read_folder};
use glasscache_sim::TraceError;
use glasscache_sim::trace::log::RequestLog;
use glasscache_sim::trace::{self, Columns, KeyStream};

use crate::output::{Exit, Failure};

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Failure {
        Failure::new(Exit::BadData, error.to_string())
    }
}

/// Opens a file for reading; refuses folders.
pub(crate) fn open_file(path: &Path) -> Result<File, Failure> {
    if path.is_dir() {
        let fault = format!("{}: is a folder, expected a file", path.display());
        let hint = "a request log is a folder: glasscache simulate and inspect read it";
        return Err(Failure::new(Exit::BadData, fault).hint(hint));
    }
    let fault = |error| format!("cannot open {}: {error}", path.display());
    File::open(path).map_err(|error| Failure::new(Exit::Unreachable, fault(error)))
}

/// Reads the request log in a folder.
pub(crate) fn read_log(folder: &Path) -> Result<RequestLog, Failure> {
    read_folder(folder).map_err(|error| match error {
        ReadError::Trace(error) => error.into(),
        ReadError::Open { .. } => Failure::new(Exit::Unreachable, error.to_string()),
        ReadError::NotAFolder(_) => Failure::new(Exit::BadData, error.to_string())
            .hint("a key stream in one file is what glasscache curve and inspect read"),
        ReadError::Missing(_) => Failure::new(Exit::BadData, error.to_string())
            .hint("docs/reference/formats.md describes the files of a request log"),
    })
}

/// Opens a key stream; the file name extension determines its format.
pub(crate) fn open_keys(path: &Path, columns: Columns) -> Result<Box<dyn KeyStream>, Failure> {
    let file = open_file(path)?;
    Ok(trace::open(&path.to_string_lossy(), file, columns)?)
}
