//! The forecast as a file, written before the replay begins and never again: nobody can fit it to what happened.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::files::to_write_failure;
use crate::output::{Exit, Failure};

/// A new file for one forecast.
pub(super) struct ForecastFile {
    path: PathBuf,
    file: File,
}

impl ForecastFile {
    /// Creates `path`; one that exists is left as it is.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        Self::create_new(path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Failure::new(
                Exit::Usage,
                format!("writing the forecast failed: {} exists", path.display()),
            )
            .with_hint("a forecast is never written again: name another file with --forecast"),
            _ => to_write_failure(path, &error),
        })
    }

    /// Creates `forecast-TIME.json` in the log's folder, or `forecast-TIME-2.json` and so on if another replay began
    /// in the same second.
    pub(super) fn create_in(log_folder: &Path, time: &str) -> Result<Self, Failure> {
        let stem = format!("forecast-{}", time.replace(':', ""));
        let mut path = log_folder.join(format!("{stem}.json"));
        for suffix in 2..=1_000 {
            match Self::create_new(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    path = log_folder.join(format!("{stem}-{suffix}.json"));
                }
                other => return other.map_err(|error| to_write_failure(&path, &error)),
            }
        }
        Self::create(&path)
    }

    fn create_new(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let path = path.to_owned();
        Ok(Self { path, file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the forecast and waits until it is on disk.
    pub(super) fn write(mut self, forecast: &Value) -> Result<(), Failure> {
        let write_result = writeln!(self.file, "{forecast:#}").and_then(|()| self.file.sync_all());
        write_result.map_err(|error| to_write_failure(&self.path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replays_that_begin_in_the_same_second_have_a_file_each() {
        let log_folder = tempfile::tempdir().unwrap();
        let names = [(); 3].map(|()| {
            let file = ForecastFile::create_in(log_folder.path(), "2026-11-23T21:07:18Z").unwrap();
            file.path().file_name().unwrap().to_owned()
        });
        let expected = ["", "-2", "-3"].map(|end| format!("forecast-2026-11-23T210718Z{end}.json"));
        assert_eq!(names.map(|name| name.into_string().unwrap()), expected);
    }
}
