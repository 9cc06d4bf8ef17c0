//! The memory of a server without sockets, in a file without a name, for tests in which it stops and starts again.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use glasscache_store::{Config, MappedFile, Seconds, Snapshot, SnapshotError, StopTime, Store};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::shared::error::Error;

/// Memory that outlives the workers of a group; see [`crate::InMemoryWorker::group_in`].
#[derive(Debug)]
pub struct RestartableMemory {
    file: OwnedFd,
    /// What the last group left beside its memory, if it was stopped.
    encoded_snapshot: Option<Vec<u8>>,
}

impl RestartableMemory {
    /// Memory that no server has used.
    ///
    /// # Errors
    /// The system has none.
    pub fn new() -> Result<Self, Error> {
        let create_result = memfd_create("glasscache-replay", MemfdFlags::CLOEXEC);
        Ok(Self {
            file: create_result.map_err(|error| Error::System(error.into()))?,
            encoded_snapshot: None,
        })
    }

    /// The store of the last group if that was stopped, else an empty one. It changes from here on, so that what was
    /// kept beside it is used once.
    pub(crate) fn make_store(&mut self, config: Config) -> Result<Arc<Store>, Error> {
        let snapshot_failure = |error: SnapshotError| Error::System(std::io::Error::other(error));
        if let Some(encoded_snapshot) = self.encoded_snapshot.take() {
            let snapshot = Snapshot::decode(&encoded_snapshot).map_err(snapshot_failure)?;
            let recovered = Store::recover(config, self.mapped_file(), &snapshot, |check| check());
            return recovered.map_err(snapshot_failure);
        }
        ftruncate(&self.file, Store::file_bytes(&config)?)
            .map_err(|error| Error::System(error.into()))?;
        Ok(Store::in_file(config, self.mapped_file())?)
    }

    /// Keeps what a store needs beside its memory. False while there is a worker that could write.
    pub(crate) fn save(&mut self, store: &Store, now: Seconds) -> bool {
        let stop_time = StopTime { second: now, unix_ms: 0 };
        self.encoded_snapshot = store.snapshot(stop_time);
        self.encoded_snapshot.is_some()
    }

    fn mapped_file(&self) -> MappedFile<'_> {
        MappedFile { descriptor: self.file.as_fd(), offset: 0 }
    }
}
