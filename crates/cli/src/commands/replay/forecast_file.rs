//! The forecast as a file, written before the replay begins and never again: nobody can fit it to what happened.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::files::cannot_write;
use crate::output::{Exit, Failure};

/// The file of a forecast that was given none: in the folder of the log, named by its time.
pub(super) fn default_path(log: &Path, time: &str) -> PathBuf {
    log.join(format!("forecast-{}.json", time.replace(':', "")))
}

/// Writes a new file; one that exists is left as it is.
pub(super) fn write(path: &Path, forecast: &Value) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::new(
            Exit::Usage,
            format!("writing the forecast failed: {} exists", path.display()),
        )
        .hint("a forecast is never written again: name another file with --forecast"),
        _ => cannot_write(path, &error),
    })?;
    let written = writeln!(file, "{forecast:#}").and_then(|()| file.sync_all());
    written.map_err(|error| cannot_write(path, &error))
}
