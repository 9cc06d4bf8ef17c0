//! Reads the folder of a request log: `items` and `requests`, in one pair of files or in parts of several processes.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use glasscache_sim::TraceError;
use glasscache_sim::trace::log::RequestLog;

/// The extensions of the files of a log.
const EXTENSIONS: [&str; 2] = ["parquet", "jsonl"];

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
    #[error("there is no folder {}; a request log is a folder with items and requests", .0.display())]
    NoFolder(PathBuf),
    /// The folder holds no log.
    #[error(
        "{}: has no requests.parquet, no requests.jsonl and no parts such as requests-0-000000.parquet with their items",
        .0.display()
    )]
    NoLog(PathBuf),
    /// The files are not a log.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// Reads the log in a folder: `items.*` and `requests.*`, or all parts `requests-<instance>-<number>.*` with their
/// `items-...`. A part without items was never completed and is left out.
pub fn read_folder(folder: &Path) -> Result<RequestLog, ReadError> {
    if folder.is_file() {
        return Err(ReadError::NotAFolder(folder.to_owned()));
    }
    if !folder.exists() {
        return Err(ReadError::NoFolder(folder.to_owned()));
    }
    if let Some(pair) = find_single_pair(folder) {
        return read_pair(&pair);
    }
    let parts = list_parts(folder)?;
    let logs = parts.iter().map(read_pair).collect::<Result<Vec<_>, _>>()?;
    if logs.is_empty() {
        return Err(ReadError::NoLog(folder.to_owned()));
    }
    Ok(RequestLog::merge(&logs, &folder.to_string_lossy())?)
}

/// The paths of items and requests that belong together.
type LogFiles = (PathBuf, PathBuf);

fn find_single_pair(folder: &Path) -> Option<LogFiles> {
    EXTENSIONS.iter().find_map(|extension| {
        let file = |stem: &str| folder.join(format!("{stem}.{extension}"));
        let pair = (file("items"), file("requests"));
        pair.1.is_file().then_some(pair)
    })
}

/// The complete parts by instance and number.
fn list_parts(folder: &Path) -> Result<Vec<LogFiles>, ReadError> {
    let open_error = |error| ReadError::Open {
        path: folder.to_owned(),
        error,
    };
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(open_error)? {
        let name = entry.map_err(open_error)?.file_name();
        let name = name.to_string_lossy();
        if let Some((instance, part_number, _)) = parse_part_name(&name, "requests") {
            let items = folder.join(name.replacen("requests", "items", 1));
            if items.is_file() {
                parts.push(((instance, part_number), (items, folder.join(&*name))));
            }
        }
    }
    parts.sort();
    Ok(parts.into_iter().map(|(_, pair)| pair).collect())
}

/// Instance, number and extension of a part's file name such as `requests-3-000017.parquet`.
pub(crate) fn parse_part_name<'n>(name: &'n str, stem: &str) -> Option<(u16, u64, &'n str)> {
    let (instance_and_number, extension) = name
        .strip_prefix(stem)?
        .strip_prefix('-')?
        .split_once('.')?;
    let (instance, part_number) = instance_and_number.split_once('-')?;
    let part = (instance.parse().ok()?, part_number.parse().ok()?, extension);
    EXTENSIONS.contains(&extension).then_some(part)
}

fn read_pair((items, requests): &LogFiles) -> Result<RequestLog, ReadError> {
    let open = |path: &PathBuf| {
        File::open(path).map_err(|error| ReadError::Open {
            path: path.clone(),
            error,
        })
    };
    Ok(RequestLog::read(
        (&items.to_string_lossy(), open(items)?),
        (&requests.to_string_lossy(), open(requests)?),
    )?)
}
