//! Files that a command writes, whole or not at all, and texts that it reads.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::output::{Exit, Failure};

/// Reads a text, without the byte order mark that some programs write before it.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let text = std::fs::read_to_string(path)?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// A file that is being written beside its final name, which it gets by [`AtomicFile::finish`].
///
/// Dropped before that, it is removed, and a file that already had the name stays as it was. What is not a regular
/// file, such as /dev/stdout, is written directly.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    path: PathBuf,
    /// Where the file is until it is finished.
    temporary_path: Option<PathBuf>,
    file: File,
}

impl AtomicFile {
    /// Creates the file beside `path`.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let is_special = path.exists() && !path.is_file();
        let temporary_path = (!is_special).then(|| {
            let mut name = OsString::from(".");
            name.push(path.file_name().unwrap_or_default());
            name.push(format!(".{}.part", std::process::id()));
            path.with_file_name(name)
        });
        Ok(Self {
            path: path.to_owned(),
            file: File::create(temporary_path.as_deref().unwrap_or(path))?,
            temporary_path,
        })
    }

    /// Makes what was written durable and gives it its name.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if let Some(temporary_path) = &self.temporary_path {
            self.file.sync_all()?;
            std::fs::rename(temporary_path, &self.path)?;
            self.temporary_path = None;
        }
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(temporary_path) = &self.temporary_path {
            // A leftover part is harmless; the failure that led here is reported by the caller.
            let _ = std::fs::remove_file(temporary_path);
        }
    }
}

/// Writes a whole file, or leaves an old one as it was.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let write_result = AtomicFile::create(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.finish()
    });
    write_result.map_err(|error| to_write_failure(path, &error))
}

/// The failure to write a file.
pub(crate) fn to_write_failure(path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot write {}: {error}", path.display());
    Failure::new(Exit::Unreachable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        write_atomically(&path, b"old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"half of the n").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        write_atomically(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_does_not_exist_is_reported() {
        let failure = write_atomically(Path::new("/no/such/folder/page.html"), b"x").unwrap_err();
        assert!(format!("{failure:?}").contains("cannot write /no/such/folder/page.html"));
    }
}
