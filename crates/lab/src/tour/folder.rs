//! The files of a tour: a folder read into memory, each file under its path.

use std::path::{Path, PathBuf};

/// Files of more than this many bytes do not fit memcached's default item size.
pub(crate) const FILE_BYTES_MAX: u64 = 1_000_000;

/// A tour stops collecting at this many bytes: enough for figures, little enough for any machine.
pub(crate) const FOLDER_BYTES_MAX: u64 = 256 << 20;

/// At most this many files.
const FILES_MAX: usize = 50_000;

/// The files of a tour, in memory, under their paths.
#[derive(Debug)]
pub(crate) struct Folder {
    /// The folder.
    pub path: PathBuf,
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// Files left out because of their size or name.
    pub skipped_files: usize,
    /// Whether files were left out because of the limits.
    pub is_truncated: bool,
}

impl Folder {
    /// Reads the files under `path`, in the order of their names; those that cannot be items are skipped, and
    /// so are folders whose name is in `excluded_names`.
    pub(crate) fn read(path: &Path, excluded_names: &[&str]) -> std::io::Result<Self> {
        Self::read_files_up_to(FILE_BYTES_MAX, path, excluded_names)
    }

    /// The same with files of up to `file_bytes_max` bytes, which need not be items.
    pub(crate) fn read_files_up_to(
        file_bytes_max: u64,
        path: &Path,
        excluded_names: &[&str],
    ) -> std::io::Result<Self> {
        let mut folder = Self {
            path: path.to_owned(),
            files: Vec::new(),
            skipped_files: 0,
            is_truncated: false,
        };
        let (mut unvisited_folders, mut total_bytes) = (vec![path.to_owned()], 0_u64);
        while let Some(folder_path) = unvisited_folders.pop() {
            let entries = match std::fs::read_dir(&folder_path) {
                Ok(entries) => entries,
                // Only the folder that was named must be readable.
                Err(error) if folder_path == path => return Err(error),
                Err(_) => continue,
            };
            let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            paths.sort_unstable();
            for entry_path in paths {
                let Ok(metadata) = entry_path.symlink_metadata() else {
                    continue;
                };
                if metadata.is_dir() {
                    let is_wanted = entry_path.file_name().is_none_or(|folder_name| {
                        excluded_names.iter().all(|excluded_name| folder_name != *excluded_name)
                    });
                    unvisited_folders.extend(is_wanted.then_some(entry_path));
                } else if metadata.is_file() {
                    if folder.files.len() >= FILES_MAX
                        || total_bytes + metadata.len() > FOLDER_BYTES_MAX
                    {
                        folder.is_truncated = true;
                        return Ok(folder);
                    }
                    total_bytes += folder.add_file(&entry_path, metadata.len(), file_bytes_max);
                }
            }
        }
        Ok(folder)
    }

    /// Adds one file and returns its bytes, or counts it as skipped.
    fn add_file(&mut self, path: &Path, file_bytes: u64, file_bytes_max: u64) -> u64 {
        let name =
            path.strip_prefix(&self.path).ok().and_then(Path::to_str).filter(|name| is_key(name));
        let content =
            name.filter(|_| file_bytes <= file_bytes_max).and_then(|_| std::fs::read(path).ok());
        let (Some(name), Some(content)) = (name, content) else {
            self.skipped_files += 1;
            return 0;
        };
        let content_bytes = content.len() as u64;
        self.files.push((name.to_owned(), content));
        content_bytes
    }

    /// The files, under their paths.
    pub(crate) fn into_files(self) -> Vec<(String, Vec<u8>)> {
        self.files
    }

    /// How many items the files become.
    pub(crate) fn items(&self) -> usize {
        self.files.len()
    }

    /// Bytes of all names and contents.
    pub(crate) fn user_bytes(&self) -> u64 {
        self.files.iter().map(|(name, content)| (name.len() + content.len()) as u64).sum()
    }
}

/// Whether a path can be a memcached key as it is.
fn is_key(name: &str) -> bool {
    (1..=250).contains(&name.len()) && name.bytes().all(|byte| byte > 32 && byte != 127)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_names_that_are_not_valid_keys() {
        assert!(is_key("asyncio/base_events.py") && is_key("ä"));
        assert!(!is_key("a b") && !is_key("a\n") && !is_key("") && !is_key(&"x".repeat(251)));
    }

    #[test]
    fn reads_a_folder_with_subfolders_in_order() {
        let path = std::env::temp_dir().join(format!("glasscache-tour-{}", std::process::id()));
        std::fs::create_dir_all(path.join("sub")).unwrap();
        std::fs::create_dir_all(path.join("not")).unwrap();
        std::fs::write(path.join("not/c"), b"1").unwrap();
        std::fs::write(path.join("b"), b"22").unwrap();
        std::fs::write(path.join("sub/a c"), b"333").unwrap();
        std::fs::write(path.join("sub/a"), b"").unwrap();
        let folder = Folder::read(&path, &["not"]).unwrap();
        std::fs::remove_dir_all(&path).unwrap();
        assert_eq!((folder.items(), folder.user_bytes(), folder.skipped_files), (2, 3 + 5, 1));
    }
}
