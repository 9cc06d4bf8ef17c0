//! Reads the folder of a request log: `items` and `requests`, in one pair of files or in parts of several processes.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use glasscache_sim::TraceError;
use glasscache_sim::trace::log::RequestLog;

use crate::meta::changed_of_meta;

/// The extensions of the files of a log.
const EXTENSIONS: [&str; 2] = ["parquet", "jsonl"];

/// What the name of a file has at its end while the file is being written.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

/// Why a folder could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file or the folder cannot be opened.
    #[error("cannot open {}: {error}", path.display())]
    Open {
        /// What was opened.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// A file was named.
    #[error("{}: is a file; a request log is a folder", .0.display())]
    NotAFolder(PathBuf),
    /// There is nothing of that name.
    #[error("the folder {} does not exist; a request log is a folder with items and requests", .0.display())]
    NoFolder(PathBuf),
    /// The folder holds no log.
    #[error(
        "{}: has no requests.parquet, no requests.jsonl and no parts such as requests-0-000000.parquet with their items",
        .0.display()
    )]
    NoLog(PathBuf),
    /// No part of the log can be read.
    #[error("reading {} failed: no part of the log is complete; {first_left_out}", folder.display())]
    NoCompletePart {
        /// The folder.
        folder: PathBuf,
        /// The first of the parts that were left out.
        first_left_out: LeftOutPart,
    },
    /// The files are not a log.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// The log in a folder, and what of the folder is not in it.
#[derive(Debug)]
pub struct FolderLog {
    /// All parts that could be read, as one log.
    pub log: RequestLog,
    /// The parts that could not, because they were never completed or are truncated.
    pub left_out: Vec<LeftOutPart>,
}

/// A part that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutPart {
    /// The file with its requests.
    pub name: String,
    /// The bytes of that file.
    pub bytes: u64,
    /// Why, and what to do, as the rest of a sentence.
    pub reason: String,
}

/// Reads the log in a folder: `items.*` and `requests.*`, or all parts `requests-<instance>-<number>.*` with their
/// `items-...`, which are left out beside a `requests.*`. A part that was never completed, or that is truncated, is left out.
pub fn read_folder(folder: &Path) -> Result<FolderLog, ReadError> {
    if folder.is_file() {
        return Err(ReadError::NotAFolder(folder.to_owned()));
    }
    if !folder.exists() {
        return Err(ReadError::NoFolder(folder.to_owned()));
    }
    let changed = read_changed(folder);
    if let Some(pair) = find_single_pair(folder) {
        let mut log = read_pair(&pair)?;
        log.items.changed = changed;
        let (parts, mut left_out) = list_parts(folder)?;
        left_out.extend(parts.iter().map(|part| {
            let read_file = pair.requests_path.file_name().unwrap_or_default().to_string_lossy();
            let reason = format!("{read_file} is read instead; move that away to read the parts");
            LeftOutPart::new(&part.requests_path, reason)
        }));
        left_out.sort_by(|a, b| a.name.cmp(&b.name));
        return Ok(FolderLog { log, left_out });
    }
    let (parts, mut left_out) = list_parts(folder)?;
    let mut logs = Vec::new();
    for part in &parts {
        match read_pair(part) {
            Ok(log) => logs.push(log),
            Err(ReadError::Trace(error)) if error.is_truncated => {
                left_out.push(LeftOutPart::new(&part.requests_path, truncation_reason(&error)));
            }
            Err(error) => return Err(error),
        }
    }
    left_out.sort_by(|a, b| a.name.cmp(&b.name));
    if logs.is_empty() {
        let folder = folder.to_owned();
        return Err(match left_out.into_iter().next() {
            Some(first_left_out) => ReadError::NoCompletePart { folder, first_left_out },
            None => ReadError::NoLog(folder),
        });
    }
    let mut log = RequestLog::merge(&logs, &folder.to_string_lossy())?;
    log.items.changed = changed;
    Ok(FolderLog { log, left_out })
}

/// What the log has as changed in place: of a log of an earlier version, or without `meta.json`, nothing.
fn read_changed(folder: &Path) -> BTreeSet<String> {
    let content = std::fs::read(folder.join("meta.json")).unwrap_or_default();
    serde_json::from_slice(&content).map_or_else(|_| BTreeSet::new(), |meta| changed_of_meta(&meta))
}

impl fmt::Display for LeftOutPart {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, bytes, reason } = self;
        write!(out, "{name} ({bytes} bytes) was skipped: {reason}")
    }
}

impl LeftOutPart {
    fn new(requests_path: &Path, reason: String) -> Self {
        let name = requests_path.file_name().unwrap_or_default();
        Self {
            name: name.to_string_lossy().into_owned(),
            bytes: requests_path.metadata().map_or(0, |metadata| metadata.len()),
            reason,
        }
    }
}

/// Which file of the part is truncated, and where.
fn truncation_reason(error: &TraceError) -> String {
    let file_name = Path::new(&error.file).file_name().unwrap_or_default();
    let error = TraceError { file: file_name.to_string_lossy().into_owned(), ..error.clone() };
    format!("{error}; copy the file again")
}

/// The paths of items and requests that belong together.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FilePair {
    items_path: PathBuf,
    requests_path: PathBuf,
}

fn find_single_pair(folder: &Path) -> Option<FilePair> {
    EXTENSIONS.iter().find_map(|extension| {
        let path_of = |stem: &str| folder.join(format!("{stem}.{extension}"));
        let pair = FilePair { items_path: path_of("items"), requests_path: path_of("requests") };
        pair.requests_path.is_file().then_some(pair)
    })
}

/// The parts by instance and number, and those that were never completed.
fn list_parts(folder: &Path) -> Result<(Vec<FilePair>, Vec<LeftOutPart>), ReadError> {
    let open_error = |error| ReadError::Open { path: folder.to_owned(), error };
    let (mut parts, mut left_out) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder).map_err(open_error)? {
        let os_name = entry.map_err(open_error)?.file_name();
        let file_name = os_name.to_string_lossy();
        let requests_path = folder.join(&*file_name);
        let final_name = file_name.strip_suffix(TEMPORARY_SUFFIX);
        if let Some((instance, part_number, _)) = parse_part_name(&file_name, "requests") {
            let items_name = file_name.replacen("requests", "items", 1);
            let items_path = folder.join(&items_name);
            if items_path.is_file() {
                parts.push(((instance, part_number), FilePair { items_path, requests_path }));
            } else {
                let reason = format!("{items_name} is missing; copy it into the folder");
                left_out.push(LeftOutPart::new(&requests_path, reason));
            }
        } else if final_name.is_some_and(|name| parse_part_name(name, "requests").is_some()) {
            let reason =
                "the recorder did not complete it; close the recorder before you read its log"
                    .to_owned();
            left_out.push(LeftOutPart::new(&requests_path, reason));
        }
    }
    parts.sort();
    let parts = parts.into_iter().map(|(_, pair)| pair).collect();
    Ok((parts, left_out))
}

/// Instance, number and extension of a part's file name such as `requests-3-000017.parquet`.
pub(crate) fn parse_part_name<'n>(name: &'n str, stem: &str) -> Option<(u16, u64, &'n str)> {
    let (instance_and_number, extension) =
        name.strip_prefix(stem)?.strip_prefix('-')?.split_once('.')?;
    let (instance, part_number) = instance_and_number.split_once('-')?;
    let part = (instance.parse().ok()?, part_number.parse().ok()?, extension);
    EXTENSIONS.contains(&extension).then_some(part)
}

fn read_pair(FilePair { items_path, requests_path }: &FilePair) -> Result<RequestLog, ReadError> {
    let open = |path: &PathBuf| {
        File::open(path).map_err(|error| ReadError::Open { path: path.clone(), error })
    };
    Ok(RequestLog::read(
        (&items_path.to_string_lossy(), open(items_path)?),
        (&requests_path.to_string_lossy(), open(requests_path)?),
    )?)
}
