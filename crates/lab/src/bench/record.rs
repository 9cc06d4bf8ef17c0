//! Stored results: figures with machine, versions, settings, seed and commit.
//!
//! Paths of the machine are not stored because results are read on other machines.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Value, json};

use super::Error;

/// The figures of a run with its circumstances.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// Which benchmark.
    pub name: String,
    /// UTC, as `2026-01-31T23:59:59Z`.
    pub date: String,
    /// Where it ran.
    pub machine: Value,
    /// The replies of both servers to `version`, and the commit of the tree.
    pub versions: Value,
    /// The parameters.
    pub settings: Value,
    /// The results.
    pub figures: Value,
}

impl Record {
    /// A record of a benchmark with the current date and machine. A run of some parts is named after them, so that it does
    /// not replace a complete run.
    pub(crate) fn new(
        benchmark: &str,
        parts: impl IntoIterator<Item = String>,
        versions: &[(&str, &str)],
        settings: Value,
        figures: Value,
    ) -> Self {
        let mut versions_map = serde_json::Map::new();
        for (server, version) in versions {
            versions_map.insert((*server).to_owned(), json!(version));
        }
        versions_map.insert("commit".to_owned(), json!(find_source_commit()));
        Self {
            name: parts
                .into_iter()
                .fold(benchmark.to_owned(), |name, part| format!("{name}-{part}")),
            date: format_now(),
            machine: describe_machine(),
            versions: Value::Object(versions_map),
            settings,
            figures,
        }
    }

    /// Writes it to `folder/DATE-NAME.json` and returns that path; a second run of a day replaces the first.
    pub fn write_to(&self, folder: &Path) -> Result<PathBuf, Error> {
        let calendar_date = self.date.get(..10).unwrap_or_default();
        let path = folder.join(format!("{calendar_date}-{}.json", self.name));
        let write_error = |error: std::io::Error| Error::File(path.clone(), error.to_string());
        std::fs::create_dir_all(folder).map_err(write_error)?;
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        std::fs::write(&path, text).map_err(write_error)?;
        Ok(path)
    }
}

/// The commit of the tree in the working directory, with `+` when it has changes; empty outside of one.
fn find_source_commit() -> String {
    let run_git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(hash) = run_git(&["rev-parse", "--short=12", "HEAD"]) else {
        return String::new();
    };
    let is_clean = run_git(&["status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|status| status.is_empty());
    if is_clean { hash } else { format!("{hash}+") }
}

/// This machine: CPU, cores, memory, kernel.
pub fn describe_machine() -> Value {
    let read_text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let find_field = |text: &str, field_name: &str| {
        let line = text.lines().find(|line| line.starts_with(field_name)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    json!({
        "cpu": find_field(&read_text("/proc/cpuinfo"), "model name"),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "memory": find_field(&read_text("/proc/meminfo"), "MemTotal"),
        "kernel": read_text("/proc/sys/kernel/osrelease").trim(),
    })
}

/// The date in UTC, as `2026-01-31T23:59:59Z`.
pub fn format_now() -> String {
    format_date(now_s())
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// UTC of a Unix time, by the days of the proleptic Gregorian calendar (Hinnant, "chrono-compatible
/// low-level date algorithms").
fn format_date(unix_s: u64) -> String {
    let (days, second_of_day) = (unix_s / 86_400 + 719_468, unix_s % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) =
        (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_dates_at_calendar_edges() {
        assert_eq!(format_date(0), "1970-01-01T00:00:00Z");
        assert_eq!(format_date(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(format_date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(format_date(1_798_761_599), "2026-12-31T23:59:59Z");
    }

    #[test]
    fn stores_a_record_under_date_and_name() {
        let folder = std::env::temp_dir().join(format!("glasscache-record-{}", std::process::id()));
        let record = Record::new(
            "speed",
            ["get-1".to_owned()],
            &[("glasscache", "1")],
            json!({}),
            json!({"x": 1}),
        );
        let path = record.write_to(&folder).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(path.to_string_lossy().ends_with("-speed-get-1.json"));
        assert!(text.contains("\"glasscache\": \"1\"") && text.contains("\"cores\""));
    }
}
