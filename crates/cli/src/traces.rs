//! Opens traces and maps their errors to exit codes; the flags that say what form a trace has.

use std::fs::File;
use std::path::Path;

use clap::ValueEnum;
use glasscache_lab::text::format_count;
use glasscache_record::{FolderLog, ReadError, read_folder};
use glasscache_sim::TraceError;
use glasscache_sim::trace::{
    self, ColumnNames, Columns, Format, KeyStream, Layout, LinePattern, StreamFacts, TimeUnit,
};

use crate::output::{Exit, Failure};

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Failure {
        Failure::new(Exit::BadData, error.to_string())
    }
}

/// The form of a key stream that another program wrote.
#[derive(clap::Args, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Form of the trace")]
pub(crate) struct InputArgs {
    /// File format; without it, the file name extension decides
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<FormatFlag>,
    /// Column of the keys; text is hashed to 64 bits
    #[arg(long, value_name = "NAME")]
    key_column: Option<String>,
    /// Column of the value sizes in bytes
    #[arg(long, value_name = "NAME")]
    size_column: Option<String>,
    /// Column of the times: numbers, ISO 8601, or as in access logs
    #[arg(long, value_name = "NAME")]
    time_column: Option<String>,
    /// Column of the operations: get, set, delete ...
    #[arg(long, value_name = "NAME")]
    op_column: Option<String>,
    /// Column of the TTLs in seconds, 0 for none
    #[arg(long, value_name = "NAME")]
    ttl_column: Option<String>,
    /// Read the lines of a log: a regular expression with the groups key, time, size, op, ttl
    #[arg(long, value_name = "REGEX")]
    regex: Option<String>,
    /// Unit of times that are numbers [default: s]
    #[arg(long, value_enum, value_name = "UNIT")]
    time_unit: Option<UnitFlag>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatFlag {
    /// Apache Parquet
    Parquet,
    /// Comma-separated values with a header line
    Csv,
    /// One JSON object a line
    Jsonl,
    /// Lines of memcached's `watch fetchers mutations`
    Watch,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum UnitFlag {
    /// Seconds
    #[default]
    S,
    /// Milliseconds
    Ms,
    /// Microseconds
    Us,
}

impl InputArgs {
    /// The layout; refuses flags that have no effect together.
    fn build_layout(&self) -> Result<Layout, Failure> {
        let column_names = ColumnNames {
            key: self.key_column.clone(),
            time: self.time_column.clone(),
            size: self.size_column.clone(),
            op: self.op_column.clone(),
            ttl: self.ttl_column.clone(),
        };
        let has_names = column_names != ColumnNames::default();
        let is_watch = self.format == Some(FormatFlag::Watch);
        if has_names && (is_watch || self.regex.is_some()) {
            return Err(Failure::usage(
                "lines of a log or of watch have no columns: leave out --key-column and the like",
            ));
        }
        if self.regex.is_some() && self.format.is_some() {
            return Err(Failure::usage("--regex reads the lines of a log: leave out --format"));
        }
        if is_watch && self.time_unit.is_some() {
            return Err(Failure::usage(
                "the times of watch have their own unit: leave out --time-unit",
            ));
        }
        let pattern = self.regex.as_deref().map(LinePattern::new).transpose();
        Ok(Layout {
            format: self.format.map(|format| match format {
                FormatFlag::Parquet => Format::Parquet,
                FormatFlag::Csv => Format::Csv,
                FormatFlag::Jsonl => Format::JsonLines,
                FormatFlag::Watch => Format::Watch,
            }),
            names: column_names,
            pattern: pattern.map_err(|error| Failure::usage(format!("{error} (--regex)")))?,
            time_unit: Some(match self.time_unit.unwrap_or_default() {
                UnitFlag::S => TimeUnit::Seconds,
                UnitFlag::Ms => TimeUnit::Milliseconds,
                UnitFlag::Us => TimeUnit::Microseconds,
            }),
        })
    }

    /// Whether any of these flags is given.
    pub(crate) fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// Refuses any of these flags, for a file that has a form of its own.
    pub(crate) fn refuse_all(&self, reason: &str) -> Result<(), Failure> {
        refuse_first_given(
            &[
                ("--format", self.format.is_some()),
                ("--key-column", self.key_column.is_some()),
                ("--size-column", self.size_column.is_some()),
                ("--time-column", self.time_column.is_some()),
                ("--op-column", self.op_column.is_some()),
                ("--ttl-column", self.ttl_column.is_some()),
                ("--regex", self.regex.is_some()),
                ("--time-unit", self.time_unit.is_some()),
            ],
            reason,
        )
    }

    /// Refuses the flags about times, where no time of the trace matters.
    pub(crate) fn refuse_times(&self, reason: &str) -> Result<(), Failure> {
        refuse_first_given(
            &[
                ("--time-unit", self.time_unit.is_some()),
                ("--time-column", self.time_column.is_some()),
            ],
            reason,
        )
    }

    /// Refuses the unit of times that are numbers, where no time is one.
    pub(crate) fn refuse_time_unit(&self, reason: &str) -> Result<(), Failure> {
        refuse_first_given(&[("--time-unit", self.time_unit.is_some())], reason)
    }

    /// Opens a key stream, its times in microseconds.
    pub(crate) fn open(
        &self,
        path: &Path,
        columns: Columns,
    ) -> Result<Box<dyn KeyStream>, Failure> {
        open_stream(path, columns, &self.build_layout()?)
    }

    /// Opens a key stream whose times stay in the file's own unit.
    pub(crate) fn open_with_unconverted_times(
        &self,
        path: &Path,
        columns: Columns,
    ) -> Result<Box<dyn KeyStream>, Failure> {
        let layout = Layout { time_unit: None, ..self.build_layout()? };
        open_stream(path, columns, &layout)
    }
}

fn open_stream(
    path: &Path,
    columns: Columns,
    layout: &Layout,
) -> Result<Box<dyn KeyStream>, Failure> {
    let file = open_file(path)?;
    let name = path.to_string_lossy();
    let has_form = layout.format.is_some() || layout.pattern.is_some();
    trace::open_with(&name, file, columns, layout).map_err(|error| {
        let failure = Failure::from(error);
        if has_form || Format::of(&name).is_ok() {
            return failure;
        }
        failure.with_hint("--format names the form of a file with another name, --regex describes the lines of a log")
    })
}

fn refuse_first_given(flags: &[(&str, bool)], reason: &str) -> Result<(), Failure> {
    match flags.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(Failure::usage(format!("{flag} has no effect: {reason}"))),
        None => Ok(()),
    }
}

/// Notes on stderr about what a stream left out.
pub(crate) fn report_left_out(name: &str, rows: u64, stream: &dyn KeyStream) {
    let StreamFacts { key_collisions, skipped_lines, oversized_rows, .. } = stream.facts();
    if stream.is_truncated() {
        let row_count_text = format_count(rows);
        eprintln!("note: {name} ends within a row; its {row_count_text} complete rows are used");
    }
    if skipped_lines > 0 {
        let skipped_text = format_count(skipped_lines);
        eprintln!("note: {skipped_text} lines of {name} hold no request and are left out");
    }
    if oversized_rows > 0 {
        let oversized_text = match oversized_rows {
            1 => "1 row is".to_owned(),
            rows => format!("{} rows are", format_count(rows)),
        };
        let max_text = format_count(u32::MAX.into());
        eprintln!(
            "note: {oversized_text} left out of {name}: a size or a TTL is greater than {max_text}"
        );
    }
    if key_collisions > 0 {
        let collisions_text = format_count(key_collisions);
        eprintln!(
            "note: {collisions_text} rows have a key whose 64-bit hash is that of another key"
        );
    }
}

/// Opens a file for reading; refuses folders.
pub(crate) fn open_file(path: &Path) -> Result<File, Failure> {
    if path.is_dir() {
        let message = format!("{}: is a folder, expected a file", path.display());
        let hint = "a request log is a folder: glasscache simulate and inspect read it";
        return Err(Failure::new(Exit::BadData, message).with_hint(hint));
    }
    let format_error = |error| format!("cannot open {}: {error}", path.display());
    File::open(path)
        .map_err(|error| hint_at_record(path, Failure::new(Exit::Unreachable, format_error(error))))
}

/// Adds how the load of a server is recorded, if the name of what does not exist is the address of one.
fn hint_at_record(path: &Path, failure: Failure) -> Failure {
    match path.to_str() {
        Some(address) if is_server_address(address) => failure.with_hint(format!(
            "that is the address of a server: record its load first, glasscache record {address} --for 10m --out trace.parquet; \
             glasscache curve {address} --live asks a running glasscache"
        )),
        _ => failure,
    }
}

/// Whether the text is `host:port`, and no path.
fn is_server_address(text: &str) -> bool {
    let host_and_port = text.rsplit_once(':');
    host_and_port.is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()
    })
}

/// Reads the request log in a folder; warns on stderr of its parts that are left out.
pub(crate) fn read_log(folder: &Path) -> Result<FolderLog, Failure> {
    let folder_log = read_folder(folder).map_err(|error| match error {
        ReadError::Trace(error) => error.into(),
        ReadError::Open { .. } | ReadError::NoFolder(_) => {
            hint_at_record(folder, Failure::new(Exit::Unreachable, error.to_string()))
        }
        ReadError::NotAFolder(_) => Failure::new(Exit::BadData, error.to_string())
            .with_hint("a key stream in one file is what glasscache curve and inspect read"),
        ReadError::NoCompletePart { .. } => Failure::new(Exit::BadData, error.to_string()),
        ReadError::NoLog(_) => Failure::new(Exit::BadData, error.to_string())
            .with_hint("docs/reference/formats.md describes the files of a request log"),
    })?;
    for part in &folder_log.left_out {
        eprintln!("warning: {part}");
    }
    Ok(folder_log)
}
