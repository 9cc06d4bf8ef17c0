//! Files of the operator that are read again when they change: the version that shows a change, and a bounded read.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Maximum size of such a file in bytes; they are written by hand or by a script.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Modification time in nanoseconds, length and inode of a file.
pub(crate) type FileVersion = (i64, i64, u64, u64);

/// The version of the file at `path`, if there is one.
pub(crate) fn file_version(path: &Path) -> Option<FileVersion> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.mtime(), metadata.mtime_nsec(), metadata.len(), metadata.ino()))
}

/// The content of a file, or the end of a sentence about why it cannot be read.
pub(crate) fn read_bounded(path: &Path) -> Result<Vec<u8>, String> {
    let file = fs::File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is larger than {FILE_BYTES_MAX} bytes"));
    }
    Ok(bytes)
}
