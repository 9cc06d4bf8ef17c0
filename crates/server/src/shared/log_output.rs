//! The form of the lines of a log, and the file in which they may be kept.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat};
use rustix::fs::OFlags;

use crate::shared::memory_file::check_folder_of;

/// How important a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// The server, or a part of it, does not work.
    Error,
    /// Something is refused, or will fail.
    Warning,
    /// What the server does.
    Info,
    /// Commands and replies (`-vv`).
    Debug,
}

impl LogLevel {
    fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warning => "warning",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        }
    }

    /// Its number in syslog, which systemd's journal reads at the begin of a line (sd-daemon(3)).
    fn syslog_number(self) -> u8 {
        match self {
            LogLevel::Error => 3,
            LogLevel::Warning => 4,
            LogLevel::Info => 6,
            LogLevel::Debug => 7,
        }
    }
}

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogStyle {
    /// The text alone, for people at a terminal.
    #[default]
    Plain,
    /// Time, level and text.
    Timed,
    /// The level as systemd's journal reads it, and the text: the journal has the time.
    Journal,
    /// An object of JSON in each line: `time`, `level`, `message`.
    Json,
}

/// What messages begin with where others write to the same stream.
const PROGRAM_PREFIX: &str = "glasscache: ";

impl LogStyle {
    /// A line with its end, for an event at `at`; a text of several lines has the form in each, or is one object.
    pub fn format(self, level: LogLevel, at: SystemTime, text: &str) -> String {
        let text = text.trim_end();
        let message = text.strip_prefix(PROGRAM_PREFIX).unwrap_or(text);
        match self {
            LogStyle::Plain => format!("{text}\n"),
            LogStyle::Timed => {
                let start = format!("{} {} ", format_time(at), level.name());
                format!("{start}{}\n", text.replace('\n', &format!("\n{start}")))
            }
            LogStyle::Journal => {
                let start = format!("<{}>", level.syslog_number());
                format!("{start}{}\n", message.replace('\n', &format!("\n{start}")))
            }
            LogStyle::Json => format!(
                "{{\"time\":\"{}\",\"level\":\"{}\",\"message\":\"{}\"}}\n",
                format_time(at),
                level.name(),
                escape_for_json(message)
            ),
        }
    }
}

/// The time in UTC with milliseconds, as RFC 3339 has it.
fn format_time(at: SystemTime) -> String {
    let since_epoch = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let milliseconds = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
    let time = DateTime::from_timestamp_millis(milliseconds).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn escape_for_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            '\n' => escaped.push_str("\\n"),
            c if c.is_control() => {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{:04x}", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// The mode of a log file that the server makes: lines have keys and addresses, and log readers are often in a group.
const FILE_MODE: u32 = 0o640;

/// An open log file.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    /// Opens the file, or makes it, as the user that the process now is; never through a link, and nothing that is not
    /// a file.
    ///
    /// # Errors
    /// The folder or the file does not allow it.
    pub(crate) fn open(path: &Path) -> io::Result<LogFile> {
        // Without NONBLOCK a pipe would wait for its reader.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(FILE_MODE);
        let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        Ok(LogFile { path: path.to_owned(), file })
    }

    /// Checks whether the user that the process now is can open the file, without making it.
    ///
    /// # Errors
    /// Those of [`LogFile::open`].
    pub(crate) fn check(path: &Path) -> io::Result<()> {
        if path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return check_folder_of(path);
        }
        LogFile::open(path).map(drop)
    }

    /// Opens the file of the same name again: another program may have renamed the one that is open. Returns a
    /// sentence about it; where that fails the open one stays.
    pub(crate) fn reopen(&mut self) -> Result<String, String> {
        let path = self.path.display();
        match LogFile::open(&self.path) {
            Ok(log_file) => {
                let sentence = format!("log-file: {path} was opened again");
                *self = log_file;
                Ok(sentence)
            }
            Err(error) => {
                Err(format!("log-file: {path} cannot be opened again: {error}; the open one stays"))
            }
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_has_the_form_of_its_style() {
        let at = UNIX_EPOCH + Duration::from_millis(1_795_900_123_045);
        let format =
            |style: LogStyle| style.format(LogLevel::Warning, at, "glasscache: a \"b\"\n\tc\n");
        assert_eq!(format(LogStyle::Plain), "glasscache: a \"b\"\n\tc\n");
        assert_eq!(
            format(LogStyle::Timed),
            "2026-11-28T21:08:43.045Z warning glasscache: a \"b\"\n2026-11-28T21:08:43.045Z warning \tc\n"
        );
        assert_eq!(format(LogStyle::Journal), "<4>a \"b\"\n<4>\tc\n");
        assert_eq!(
            format(LogStyle::Json),
            "{\"time\":\"2026-11-28T21:08:43.045Z\",\"level\":\"warning\",\"message\":\"a \\\"b\\\"\\n\\u0009c\"}\n"
        );
    }

    #[test]
    fn a_log_is_never_written_through_a_link_or_to_what_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let [log, link, victim] = ["log", "link", "victim"].map(|name| folder.path().join(name));
        std::fs::write(&victim, "kept").unwrap();
        symlink(&victim, &link).unwrap();
        for path in [link.as_path(), folder.path(), Path::new("/dev/null"), Path::new("/none/log")]
        {
            assert!(LogFile::open(path).is_err(), "{}", path.display());
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
        let mut log_file = LogFile::open(&log).unwrap();
        std::fs::rename(&log, folder.path().join("log.1")).unwrap();
        log_file.reopen().unwrap();
        assert!(log.is_file());
        std::fs::remove_file(&log).unwrap();
        symlink(&victim, &log).unwrap();
        assert!(log_file.reopen().unwrap_err().contains("the open one stays"));
    }
}
