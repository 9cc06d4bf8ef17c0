//! A memory file and the stores in it, one after the other; and damage to it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use glasscache_store::{
    Config, DeleteOptions, Expiry, MappedFile, MappedMemory, MemoryHandover, Seconds, SetOptions,
    Snapshot, SnapshotError, StopTime, Store, UncommittedBytes,
};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};

pub(crate) const NOW: Seconds = Seconds(2);
pub(crate) const STOP_TIME: StopTime =
    StopTime { second: Seconds(500), unix_ms: 1_800_000_000_000 };
/// The memory starts behind other bytes of the file.
const OFFSET: u64 = 1 << 16;

pub(crate) fn config(memory_bytes: u64) -> Config {
    Config {
        memory_bytes,
        item_bytes_max: 1 << 20,
        workers: 2,
        evict: true,
        hash_seed: 7,
        samples: true,
        slab_chunk_bytes: vec![96, 120, 152, 192, 240, 1184, 8192, 1 << 20],
    }
}

pub(crate) struct RestartableStore {
    file: OwnedFd,
    config: Config,
}

impl RestartableStore {
    pub(crate) fn new(config: Config) -> RestartableStore {
        let file = memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
        let memory_bytes = Store::file_bytes(&config).unwrap();
        ftruncate(&file, OFFSET + memory_bytes).unwrap();
        RestartableStore { file, config }
    }

    fn mapped_file(&self) -> MappedFile<'_> {
        MappedFile { descriptor: self.file.as_fd(), offset: OFFSET }
    }

    pub(crate) fn make_empty(&self) -> Arc<Store> {
        Store::in_file(self.config.clone(), self.mapped_file()).unwrap()
    }

    pub(crate) fn recover(&self, snapshot: &[u8]) -> Result<Arc<Store>, SnapshotError> {
        self.recover_as(snapshot, self.config.clone())
    }

    pub(crate) fn recover_as(
        &self,
        snapshot: &[u8],
        config: Config,
    ) -> Result<Arc<Store>, SnapshotError> {
        let decoded = Snapshot::decode(snapshot)?;
        let memory_bytes = decoded.memory_bytes(&config)?;
        // A file for a memory of this size at most: more is not what these tests are about.
        if memory_bytes > 64 << 20 {
            return Err(SnapshotError::Unusable("too large for a test".to_owned()));
        }
        ftruncate(&self.file, OFFSET + memory_bytes).unwrap();
        Store::recover(config, self.mapped_file(), &decoded, |walk| {
            std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(walk))));
        })
    }

    #[allow(dead_code, reason = "the fuzz target has no need of it")]
    pub(crate) fn restart(&self, store: Arc<Store>) -> Arc<Store> {
        let snapshot = store.snapshot(STOP_TIME).unwrap();
        drop(store);
        self.recover(&snapshot).unwrap()
    }

    /// The next process maps the memory while the first one still uses it, and continues its store.
    #[allow(dead_code, reason = "the fuzz target has no need of it")]
    pub(crate) fn take_over_as(
        &self,
        store: Arc<Store>,
        config: Config,
    ) -> Result<Arc<Store>, SnapshotError> {
        let file_bytes = store.memory_size().file_bytes(&config)?;
        ftruncate(&self.file, OFFSET + file_bytes).unwrap();
        let memory = MappedMemory::new(&config, self.mapped_file(), file_bytes).unwrap();
        let handover = store.hand_over(STOP_TIME, &UncommittedBytes::default()).unwrap();
        drop(store);
        Store::take_over(config, memory, &MemoryHandover::decode(&handover)?, |_| ())
    }

    /// The store of a process that has handed over and is not used any more, although it is still there.
    #[allow(dead_code, reason = "the fuzz target has no need of it")]
    pub(crate) fn take_over_of_live(
        &self,
        store: &Store,
        uncommitted: &UncommittedBytes,
    ) -> Option<Arc<Store>> {
        let file_bytes = store.memory_size().file_bytes(&self.config).unwrap();
        let memory = MappedMemory::new(&self.config, self.mapped_file(), file_bytes).unwrap();
        let encoded = store.hand_over(STOP_TIME, uncommitted)?;
        let handover = MemoryHandover::decode(&encoded).unwrap();
        Some(Store::take_over(self.config.clone(), memory, &handover, |_| ()).unwrap())
    }

    pub(crate) fn read(&self) -> Vec<u8> {
        let mut memory = vec![0; Store::file_bytes(&self.config).unwrap() as usize];
        assert_eq!(pread(&self.file, &mut memory, OFFSET).unwrap(), memory.len());
        memory
    }

    pub(crate) fn write(&self, offset: u64, source: &[u8]) {
        assert_eq!(pwrite(&self.file, source, OFFSET + offset).unwrap(), source.len());
    }
}

/// Some items of each kind: short, with all fields, in pieces, deleted and overwritten.
pub(crate) fn fill(store: &Arc<Store>) {
    let mut worker = store.worker();
    worker.go_online();
    for number in 0..1500u32 {
        let key = format!("key:{}", number % 1000);
        let hash = store.hash(key.as_bytes());
        let options = SetOptions {
            flags: number % 3 * 1000,
            expiry: if number % 5 == 0 { Expiry::At(Seconds(number * 100)) } else { Expiry::Never },
            ..SetOptions::default()
        };
        let value = vec![number as u8; (number % 90) as usize];
        worker.set(key.as_bytes(), hash, &value, &options, NOW);
        worker.pass();
        if number % 7 == 0 {
            let key = format!("key:{}", number / 3);
            let hash = store.hash(key.as_bytes());
            worker.delete(key.as_bytes(), hash, &DeleteOptions::default(), NOW);
        }
    }
    for number in 0..8u8 {
        let key = format!("large:{number}");
        let hash = store.hash(key.as_bytes());
        let value = vec![number; 20_000];
        worker.set(key.as_bytes(), hash, &value, &SetOptions::default(), NOW);
        worker.pass();
    }
    store.flush_prefix(b"key:99", NOW).unwrap();
}

/// Changes bytes of the memory or of the snapshot, makes the checksums right again, and recovers: true if the store
/// was accepted, and then it is whole and works. `random_below` chooses a number below its argument.
pub(crate) fn recover_damaged(
    restartable_store: &RestartableStore,
    snapshot: &[u8],
    memory: &[u8],
    mut random_below: impl FnMut(u64) -> u64,
) -> bool {
    let (mut snapshot, mut damaged) = (snapshot.to_vec(), memory.to_vec());
    for _ in 0..=random_below(3) {
        let is_snapshot = random_below(2) == 0;
        let target = if is_snapshot {
            // Behind magic and version, before the checksum.
            let end = snapshot.len() - 8;
            &mut snapshot[12..end]
        } else {
            &mut damaged[..]
        };
        let index = random_below(target.len() as u64) as usize;
        let changed_bits = match random_below(4) {
            0 => 1 << random_below(8),
            1 => 0xff,
            _ => random_below(256) as u8,
        };
        target[index] ^= changed_bits;
    }
    let Ok(snapshot) = Store::with_checksums_of(&snapshot, &damaged) else {
        return false;
    };
    restartable_store.write(0, &damaged);
    let store = restartable_store.recover(&snapshot);
    let is_accepted = store.is_ok();
    if let Ok(store) = store {
        run_operations(&store);
    }
    restartable_store.write(0, memory);
    is_accepted
}

/// Everything is counted once; then reads, and enough writes that every segment is swept and reused.
fn run_operations(store: &Arc<Store>) {
    store.audit(&[]);
    let mut worker = store.worker();
    worker.go_online();
    for round in 0..3u32 {
        for number in 0..1000u32 {
            let key = format!("key:{number}");
            let hash = store.hash(key.as_bytes());
            if let Some(item) = worker.get(key.as_bytes(), hash, NOW) {
                assert_eq!(
                    item.pieces().map(<[u8]>::len).sum::<usize>(),
                    item.value_bytes() as usize
                );
                item.unique();
            }
            let value = vec![round as u8; 700];
            worker.set(
                key.as_bytes(),
                hash,
                &value,
                &SetOptions::default(),
                Seconds(2 + round * 100),
            );
            worker.pass();
        }
    }
    worker.maintain(Seconds(1000));
    store.audit(&[&worker]);
}
