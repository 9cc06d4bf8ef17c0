//! The memory file (`-e`): items outlive a clean stop of the server (docs/decisions/operation.md, 0101).
//!
//! FILE is the memory of the store; FILE.meta, a snapshot of what else the store needs, is written last at a clean stop
//! and removed before the first request. So after any other end there is none, and the next server starts empty. The
//! space of FILE is allocated at the start, because a page that a full file system cannot provide ends the process.
//! What the bytes mean, and whether they can be trusted, is the business of the store.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use glasscache_store::{
    Config, MappedFile, MappedMemory, MemorySize, Snapshot, SnapshotError, StopTime, Store,
};
use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, ResolveFlags, accessat,
    fallocate, flock, openat2, statvfs,
};
use rustix::process::geteuid;

use crate::shared::clock::{Clock, read_first_unique};
use crate::shared::error::Error;

/// The first bytes of the file, by which one that holds something else is recognised.
const MAGIC: &[u8] = b"memory of a glasscache server\n";
/// Where the memory starts: at a multiple of the size of a huge page. Between is a hole in the file.
const MEMORY_OFFSET: u64 = 2 << 20;
/// Bytes of the first page, which holds the magic bytes.
const FIRST_PAGE_BYTES: u64 = 4096;
/// Maximum size of a snapshot in bytes; that of 1 TiB has 60 MB.
const SNAPSHOT_BYTES_MAX: u64 = 256 << 20;
/// The end of the name of the snapshot.
const SNAPSHOT_ENDING: &str = ".meta";
/// The end of the name of a file that takes the place of another.
const REPLACEMENT_ENDING: &str = ".new";
const NOT_A_MEMORY_FILE: &str =
    "is not the memory of a glasscache server; remove it or choose another file";
const MORE_SPACE_HINT: &str = "choose a file system with more space, or a smaller -m";
/// Only the user of the server may read and write the files.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// An open and locked memory file.
pub(crate) struct MemoryFile {
    path: PathBuf,
    file: File,
    /// Whether it was empty or did not exist when it was opened.
    was_created: bool,
    /// Whether it is to replace another file; dropped before that, it is removed.
    is_replacement: bool,
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if self.is_replacement {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A store in a memory file, and its clock.
pub(crate) struct PreparedStore {
    pub(crate) store: Arc<Store>,
    /// The clock of the store.
    pub(crate) clock: Clock,
    /// For the log: whether items came back, or why not.
    pub(crate) recovery_message: String,
}

impl PreparedStore {
    /// A store that continues none. Its uniques come after those of all servers before, which clients may still have.
    pub(crate) fn empty(store: Arc<Store>, recovery_message: String) -> PreparedStore {
        store.begin_uniques_at(read_first_unique());
        PreparedStore { store, clock: Clock::start(), recovery_message }
    }
}

impl MemoryFile {
    /// Opens the file, or makes it, and locks it against other servers until this one ends.
    ///
    /// # Errors
    /// A file that cannot be opened, is in use, holds something else, or may be read or written by another user.
    pub(crate) fn open(path: &Path) -> Result<MemoryFile, Error> {
        let failure = |reason: String| Error::MemoryFile { path: path.to_owned(), reason };
        let file = loop {
            let file = open_without_following(path, OpenOptions::new().write(true).create(true))
                .map_err(|error| failure(describe_open_error(&error)))?;
            flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
                failure(if error == rustix::io::Errno::WOULDBLOCK {
                    "is in use by another server; choose another file".to_owned()
                } else {
                    format!("cannot be locked: {error}")
                })
            })?;
            // A server that held the lock may have removed or replaced the file after it was opened here.
            match is_named(&file, path) {
                Ok(true) => break file,
                Ok(false) => {}
                Err(error) => return Err(failure(format!("cannot be read: {error}"))),
            }
        };
        match prepare_opened(&file).map_err(|error| failure(format!("cannot be read: {error}")))? {
            Ok(was_created) => {
                Ok(MemoryFile { path: path.to_owned(), file, was_created, is_replacement: false })
            }
            Err(reason) => Err(failure(reason)),
        }
    }

    /// Makes the folder of a memory file if there is none; the error is a warning: a server serves without the file.
    pub(crate) fn make_folder(path: &Path) -> Result<(), String> {
        let folder = folder_of(path);
        let make = || DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder);
        if folder.exists() { Ok(()) } else { make().map_err(|error| without_file(path, &error)) }
    }

    /// Checks whether [`MemoryFile::make_folder`] and [`MemoryFile::open`] would succeed and find the space, without
    /// making or changing anything. Whether another server uses the file is not checked. Returns a warning.
    ///
    /// # Errors
    /// As [`MemoryFile::open`].
    pub(crate) fn check(path: &Path, memory_bytes: u64) -> Result<Option<String>, Error> {
        if !folder_of(path).exists() {
            let existing = folder_of(path).ancestors().find(|folder| folder.exists());
            let check_result = check_folder_of(&existing.unwrap_or(Path::new(".")).join("file"));
            return Ok(check_result.err().map(|error| without_file(path, &error)));
        }
        let failure = |reason: String| Error::MemoryFile { path: path.to_owned(), reason };
        let allocated_bytes = match open_without_following(path, OpenOptions::new().write(true)) {
            Ok(file) => {
                let metadata = file.metadata().map_err(|error| failure(error.to_string()))?;
                let is_memory = metadata.len() == 0 || has_magic(&file).unwrap_or(false);
                if !metadata.is_file() || !is_memory {
                    return Err(failure(NOT_A_MEMORY_FILE.to_owned()));
                }
                check_access(&metadata)
                    .map_err(|reason| failure(describe_refused_access(&reason)))?;
                metadata.blocks() * 512
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                check_folder_of(path).map_err(|error| failure(describe_open_error(&error)))?;
                0
            }
            Err(error) => return Err(failure(describe_open_error(&error))),
        };
        check_space(path, memory_bytes.saturating_sub(allocated_bytes)).map_err(failure)?;
        Ok(None)
    }

    /// Takes over the file of a server that is being replaced: the lock belongs to both processes.
    pub(crate) fn inherited(path: &Path, descriptor: OwnedFd) -> MemoryFile {
        MemoryFile {
            path: path.to_owned(),
            file: descriptor.into(),
            was_created: false,
            is_replacement: false,
        }
    }

    /// Makes a new file beside that of a server that is being replaced and whose memory cannot be continued.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn make_replacement(path: &Path) -> Result<MemoryFile, Error> {
        // Also what an attempt that was killed has left; that of one that still runs is locked.
        let mut replacement = MemoryFile::open(&with_ending(path, REPLACEMENT_ENDING))?;
        replacement.is_replacement = true;
        Ok(replacement)
    }

    /// Gives a file that was made beside another one the name of that one.
    ///
    /// # Errors
    /// The folder does not allow it.
    pub(crate) fn rename_over(&mut self, path: &Path) -> io::Result<()> {
        if std::mem::take(&mut self.is_replacement) {
            fs::rename(&self.path, path)?;
            path.clone_into(&mut self.path);
        }
        Ok(())
    }

    /// A copy of the descriptor, with the same lock.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// Maps the memory of a running server with its pages, or returns why a store of these settings cannot continue it.
    ///
    /// # Errors
    /// The file system has no space for the segments of more workers.
    pub(crate) fn map_ahead(
        &self,
        config: &Config,
        size: MemorySize,
    ) -> Result<Result<MappedMemory, String>, Error> {
        let memory_bytes = match size.file_bytes(config) {
            Ok(memory_bytes) => memory_bytes,
            Err(reason) => return Ok(Err(reason.to_string())),
        };
        // It never shrinks: it may be the file of another successor, if this one comes too late.
        self.allocate(memory_bytes)?;
        Ok(Ok(MappedMemory::new(config, self.mapped_file(), memory_bytes)?))
    }

    /// An empty store in a new file.
    ///
    /// # Errors
    /// The file system has no space for the memory.
    pub(crate) fn make_empty_store(&self, config: &Config) -> Result<Arc<Store>, Error> {
        self.reserve(Store::file_bytes(config)?)?;
        Ok(Store::in_file(config.clone(), self.mapped_file())?)
    }

    /// Makes the store: the one that was saved, or if there is none or it cannot be used an empty one.
    ///
    /// # Errors
    /// FILE.meta is not a snapshot, or the file system has no space for the memory. A file that was made for this
    /// server is removed.
    pub(crate) fn make_store(&self, config: &Config) -> Result<PreparedStore, Error> {
        let prepared_store = self.read_snapshot().and_then(|snapshot| match snapshot {
            Ok(snapshot) => match self.recover(config, &snapshot)? {
                Ok(recovered) => Ok(recovered),
                Err(reason) => self.make_empty_with_message(config, &reason),
            },
            Err(reason) => self.make_empty_with_message(config, &reason),
        });
        if prepared_store.is_err() && self.was_created {
            let _ = fs::remove_file(&self.path);
        }
        prepared_store
    }

    /// Removes the snapshot: from here on the memory changes.
    ///
    /// # Errors
    /// The folder does not allow it, or does not allow the next one.
    pub(crate) fn remove_snapshot(&self) -> Result<(), Error> {
        let folder = self.folder();
        check_folder_of(&self.path).map_err(|error| {
            let reason = format!("the folder of the snapshot cannot be written: {error}");
            self.failure(reason)
        })?;
        let remove = || match fs::remove_file(self.snapshot_path()) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            // Before the first change of the memory: a power failure must not leave both.
            remove_result => remove_result.and_then(|()| File::open(folder)?.sync_all()),
        };
        remove()
            .map_err(|error| self.failure(format!("the old snapshot cannot be removed: {error}")))
    }

    /// Saves the store of a server that has ended, memory first and snapshot last.
    pub(crate) fn save(&self, store: &Store, stop_time: StopTime) -> io::Result<()> {
        let encoded_snapshot =
            store.snapshot(stop_time).ok_or_else(|| io::Error::other("a worker has not ended"))?;
        self.file.sync_all()?;
        let new_path = self.with_ending(".meta.new");
        match fs::remove_file(&new_path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut snapshot_file =
            open_without_following(&new_path, OpenOptions::new().write(true).create_new(true))?;
        snapshot_file.write_all(&encoded_snapshot)?;
        snapshot_file.sync_all()?;
        fs::rename(&new_path, self.snapshot_path())?;
        File::open(self.folder())?.sync_all()
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The snapshot, or why there is none that can be used.
    fn read_snapshot(&self) -> Result<Result<Snapshot, String>, Error> {
        let path = self.snapshot_path();
        let read = || -> io::Result<(Metadata, Vec<u8>)> {
            let snapshot_file = open_without_following(&path, &mut OpenOptions::new())?;
            let metadata = snapshot_file.metadata()?;
            if !metadata.is_file() {
                return Err(io::Error::other("not a file"));
            }
            let mut encoded_snapshot = Vec::new();
            snapshot_file.take(SNAPSHOT_BYTES_MAX).read_to_end(&mut encoded_snapshot)?;
            Ok((metadata, encoded_snapshot))
        };
        let failure = |reason: String| {
            let hint = "remove it to start with an empty cache";
            Error::MemoryFile { path: path.clone(), reason: format!("{reason}; {hint}") }
        };
        let (metadata, encoded_snapshot) = match read() {
            Ok(metadata_and_snapshot) => metadata_and_snapshot,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Err("no server has saved it".to_owned()));
            }
            Err(error) => return Err(failure(format!("cannot be read: {error}"))),
        };
        let decoded = Snapshot::decode(&encoded_snapshot);
        if matches!(decoded, Err(SnapshotError::Foreign)) {
            return Err(failure("is not the snapshot of a glasscache server".to_owned()));
        }
        check_access(&metadata)
            .map_err(|reason| failure(format!("{reason}; chown and chmod it, or")))?;
        Ok(decoded.map_err(|error| error.to_string()))
    }

    /// The saved store, or why it cannot be used.
    fn recover(
        &self,
        config: &Config,
        snapshot: &Snapshot,
    ) -> Result<Result<PreparedStore, String>, Error> {
        let began_at = Instant::now();
        let Some(clock) = Clock::resumed_from(snapshot.stop()) else {
            return Ok(Err("the clock is before the time when it was saved".to_owned()));
        };
        let memory_bytes = match snapshot.memory_bytes(config) {
            Ok(memory_bytes) => memory_bytes,
            Err(reason) => return Ok(Err(reason.to_string())),
        };
        self.reserve(memory_bytes)?;
        let workers = config.workers;
        let recovered = Store::recover(config.clone(), self.mapped_file(), snapshot, |check| {
            // This thread is one of them.
            std::thread::scope(|scope| (1..workers).for_each(|_| drop(scope.spawn(check))));
        });
        let store = match recovered {
            Ok(store) => store,
            Err(reason) => return Ok(Err(reason.to_string())),
        };
        let recovery_message = format!(
            "{}: {} items are back after {} ms",
            self.path.display(),
            store.counters().items,
            began_at.elapsed().as_millis()
        );
        Ok(Ok(PreparedStore { store, clock, recovery_message }))
    }

    fn make_empty_with_message(
        &self,
        config: &Config,
        reason: &str,
    ) -> Result<PreparedStore, Error> {
        let recovery_message = format!("{} starts empty: {reason}", self.path.display());
        Ok(PreparedStore::empty(self.make_empty_store(config)?, recovery_message))
    }

    fn mapped_file(&self) -> MappedFile<'_> {
        MappedFile { descriptor: self.file.as_fd(), offset: MEMORY_OFFSET }
    }

    /// Gives the file its size and allocates its space; what it holds stays.
    fn reserve(&self, memory_bytes: u64) -> Result<(), Error> {
        let set_size = self.file.set_len(MEMORY_OFFSET + memory_bytes);
        set_size.map_err(|error| self.space_failure(memory_bytes, &error))?;
        self.allocate(memory_bytes)
    }

    /// Allocates its space, and makes it larger if it has to be.
    fn allocate(&self, memory_bytes: u64) -> Result<(), Error> {
        // An allocation that fails has taken all the space there is, from everybody, until the file is removed.
        let allocated_bytes = self.file.metadata().map_or(0, |metadata| metadata.blocks() * 512);
        check_space(&self.path, memory_bytes.saturating_sub(allocated_bytes))
            .map_err(|reason| self.failure(reason))?;
        let allocate = || -> io::Result<()> {
            let no_flags = FallocateFlags::empty();
            fallocate(&self.file, no_flags, 0, FIRST_PAGE_BYTES)?;
            Ok(fallocate(&self.file, no_flags, MEMORY_OFFSET, memory_bytes)?)
        };
        allocate().map_err(|error| self.space_failure(memory_bytes, &error))
    }

    fn space_failure(&self, memory_bytes: u64, error: &io::Error) -> Error {
        self.failure(format!(
            "{memory_bytes} bytes cannot be allocated: {error}; {MORE_SPACE_HINT}"
        ))
    }

    fn failure(&self, reason: String) -> Error {
        Error::MemoryFile { path: self.path.clone(), reason }
    }

    fn snapshot_path(&self) -> PathBuf {
        self.with_ending(SNAPSHOT_ENDING)
    }

    fn with_ending(&self, ending: &str) -> PathBuf {
        with_ending(&self.path, ending)
    }

    fn folder(&self) -> &Path {
        folder_of(&self.path)
    }
}

/// Checks whether the file system has so many bytes for this process's user; else why not.
fn check_space(path: &Path, needed_bytes: u64) -> Result<(), String> {
    let free_bytes = statvfs(folder_of(path)).map_or(u64::MAX, |file_system| {
        let is_root = geteuid().is_root();
        let free_blocks = if is_root { file_system.f_bfree } else { file_system.f_bavail };
        free_blocks.saturating_mul(file_system.f_frsize)
    });
    if needed_bytes <= free_bytes {
        return Ok(());
    }
    Err(format!(
        "{needed_bytes} bytes cannot be allocated: No space left on device, {free_bytes} are free; {MORE_SPACE_HINT}"
    ))
}

fn without_file(path: &Path, error: &io::Error) -> String {
    format!(
        "memory file (-e) {}: its folder does not exist and cannot be created: {error}; the server runs without the file and loses its items when it stops",
        path.display()
    )
}

/// The folder that a file is or will be in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Checks whether this process's user may create a file in the folder of `path`, without creating it.
///
/// # Errors
/// The folder does not exist, or its permissions do not allow it.
pub fn check_folder_of(path: &Path) -> io::Result<()> {
    let rights = Access::WRITE_OK | Access::EXEC_OK;
    Ok(accessat(CWD, folder_of(path), rights, AtFlags::EACCESS)?)
}

/// Gives the memory file `path` of root, and its snapshot, to the user as whom the server will run: earlier versions
/// made them as root. Only files of a server that no server uses are given, and none that is reached by a link.
///
/// What cannot be given stays as it is, and is refused when it is opened.
pub fn give_memory_file(path: &Path, user_id: u32, group_id: u32) {
    let files: [(_, &[u8]); 2] = [
        (path.to_owned(), MAGIC),
        (with_ending(path, SNAPSHOT_ENDING), glasscache_store::Snapshot::MAGIC),
    ];
    for (path, first_bytes) in files {
        // LOSSY: the reason is in the message of the refusal.
        let _ = give_file(&path, first_bytes, (user_id, group_id));
    }
}

fn give_file(path: &Path, first_bytes: &[u8], (user_id, group_id): (u32, u32)) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let file = File::from(file);
    let metadata = file.metadata()?;
    let mut found_bytes = vec![0; first_bytes.len()];
    if metadata.is_file() && metadata.uid() == 0 && metadata.nlink() == 1 {
        file.read_exact_at(&mut found_bytes, 0)?;
        if found_bytes == first_bytes {
            fchown(&file, Some(user_id), Some(group_id))?;
        }
    }
    Ok(())
}

/// Checks an open and locked file, and makes an empty one a memory file. Returns whether it was empty, or why it is
/// refused.
fn prepare_opened(file: &File) -> io::Result<Result<bool, String>> {
    let metadata = file.metadata()?;
    let was_created = metadata.is_file() && metadata.len() == 0;
    let is_memory = was_created || metadata.is_file() && has_magic(file)?;
    if !is_memory {
        return Ok(Err(NOT_A_MEMORY_FILE.to_owned()));
    }
    if let Err(reason) = check_access(&metadata) {
        return Ok(Err(describe_refused_access(&reason)));
    }
    if was_created {
        file.write_all_at(MAGIC, 0)?;
    }
    Ok(Ok(was_created))
}

fn describe_refused_access(reason: &str) -> String {
    format!("{reason}; chown and chmod it, remove it, or choose another file")
}

fn describe_open_error(error: &io::Error) -> String {
    let hint = match error.kind() {
        ErrorKind::PermissionDenied => "; it must belong to the user of the server (-u)",
        _ => "",
    };
    format!("cannot be opened: {error}{hint}")
}

fn has_magic(file: &File) -> io::Result<bool> {
    let mut magic = [0; MAGIC.len()];
    match file.read_exact_at(&mut magic, 0) {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(error),
        read_result => Ok(read_result.is_ok() && magic == *MAGIC),
    }
}

/// Whether only this process's user may read and write a file; else why not. What another user can write is not
/// checked again while the server uses it as its memory.
fn check_access(metadata: &Metadata) -> Result<(), String> {
    let (user_id, mode) = (geteuid().as_raw(), metadata.mode() & 0o777);
    if metadata.uid() != user_id {
        let owner_id = metadata.uid();
        return Err(format!("belongs to the user {owner_id}, and the server runs as {user_id}"));
    }
    if mode & 0o077 != 0 {
        return Err(format!(
            "may be used by other users (mode {mode:03o} instead of {FILE_MODE:o})"
        ));
    }
    Ok(())
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(ending);
    path.into()
}

/// Whether `path` is the name of this open file, and not of another one or of none.
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens a file that is not a link, without waiting for the other end of a pipe.
fn open_without_following(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.read(true).mode(FILE_MODE).custom_flags(flags.bits().cast_signed()).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_that_comes_too_late_does_not_shrink_the_file_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        let config = |workers| Config { memory_bytes: 8 << 20, workers, ..Config::default() };
        let file = MemoryFile::open(&path).unwrap();
        let store = file.make_empty_store(&config(1)).unwrap();
        let size = store.memory_size();
        let measure_file_bytes = || fs::metadata(&path).unwrap().len();
        let bytes_for_one_worker = measure_file_bytes();
        let late_successor = MemoryFile::inherited(&path, file.descriptor().unwrap());
        let other_successor = MemoryFile::inherited(&path, file.descriptor().unwrap());
        assert!(other_successor.map_ahead(&config(8), size).unwrap().is_ok());
        let bytes_for_eight_workers = measure_file_bytes();
        assert!(bytes_for_eight_workers > bytes_for_one_worker);
        assert!(late_successor.map_ahead(&config(1), size).unwrap().is_ok());
        assert_eq!(measure_file_bytes(), bytes_for_eight_workers);
    }

    #[test]
    fn a_file_that_another_successor_is_making_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        let first = MemoryFile::make_replacement(&path).unwrap();
        assert!(MemoryFile::make_replacement(&path).is_err());
        assert!(first.path().exists());
        drop(first);
        let mut second = MemoryFile::make_replacement(&path).unwrap();
        second.rename_over(&path).unwrap();
        drop(second);
        assert!(path.exists());
    }

    #[test]
    fn a_file_that_another_successor_removes_between_opening_and_locking_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        let make_often = || {
            for _ in 0..5000 {
                if let Ok(replacement) = MemoryFile::make_replacement(&path) {
                    assert!(is_named(&replacement.file, replacement.path()).unwrap());
                }
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(make_often))));
    }
}
