//! A store in a file, and the same store again in the next process (docs/decisions/operation.md, 0101).
//!
//! The file is the arena, byte for byte: segments of items and lines of the index, which contain offsets and no
//! pointers. What a store keeps outside of it, a few dozen bytes for each segment, is the [`Snapshot`], made when
//! nothing runs any more. Recovery maps the file, compares the checksum of each segment, and checks every line and
//! every item before the first request, so that a damaged file is found and never followed. Counters of items are
//! counted again, the ghost starts empty. Knows neither paths nor clocks: the caller opens, locks, and saves.

mod bytes;
mod check;
mod handover;
mod snapshot;

pub use handover::{MappedMemory, MemoryHandover, MemorySize, UncommittedBytes};
pub use snapshot::{Snapshot, SnapshotError, StopTime};

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::index::Index;
use crate::memory::{Arena, Lines, MappedFile, SegmentId};
use crate::policy::PolicyKind;
use crate::store::{Config, Layout, Store, segment_shift};

use bytes::checksum;
use check::{EntriesBySegment, RefusalReason, SegmentVerifier, compare_checksum};

impl Store {
    /// Bytes of memory of an empty store with these settings, which a file for it must have.
    ///
    /// # Errors
    /// Settings that no store can have.
    pub fn file_bytes(config: &Config) -> Result<u64, Error> {
        let shift = segment_shift(config)?;
        Ok((Layout::new(config, shift)?.segment_count as u64) << shift)
    }

    /// Makes an empty store whose memory is part of a file; what that holds is lost.
    ///
    /// # Errors
    /// Settings that no store can have, or a mapping that the system refuses.
    pub fn in_file(config: Config, file: MappedFile<'_>) -> Result<Arc<Store>, Error> {
        let shift = segment_shift(&config)?;
        let layout = Layout::new(&config, shift)?;
        let arena = Arc::new(Arena::in_file(file, layout.segment_count, shift)?);
        arena.clear(SegmentId(0));
        Ok(Store::new_empty(config, PolicyKind::default(), layout, &arena))
    }

    /// Continues the store of which `snapshot` was made, in the memory that it left in the file. The seed of the key
    /// hash is the old one. The file has at least [`Snapshot::memory_bytes`] from its offset on. `in_parallel` may
    /// call its argument in several threads at once, which share the work, and returns when all have returned.
    ///
    /// # Errors
    /// Other settings, or a memory that is not what the store left: then nothing of it has been used.
    pub fn recover(
        config: Config,
        file: MappedFile<'_>,
        snapshot: &Snapshot,
        in_parallel: impl Fn(&(dyn Fn() + Sync)),
    ) -> Result<Arc<Store>, SnapshotError> {
        let memory_bytes = snapshot.memory_bytes(&config)?;
        let unusable = |error: Error| SnapshotError::Unusable(error.to_string());
        let config = Config { hash_seed: snapshot.hash_seed, ..config };
        let layout = Layout::new(&config, snapshot.segment_shift).map_err(unusable)?;
        let segment_count = (memory_bytes >> snapshot.segment_shift) as usize;
        let arena =
            Arena::in_file(file, segment_count, snapshot.segment_shift).map_err(unusable)?;
        let arena = Arc::new(arena);
        let checksums = Some(&*snapshot.checksums);
        let store = recover(config, layout, &arena, (snapshot, checksums), in_parallel);
        store.map(Arc::new).map_err(SnapshotError::damaged)
    }

    /// The snapshot that [`Store::recover`] needs besides the memory file; `None` while there is a worker that could
    /// write.
    pub fn snapshot(&self, stop: StopTime) -> Option<Vec<u8>> {
        let arena = self.arena();
        let uncommitted = UncommittedBytes::default();
        let (mut snapshot, _) = self.snapshot_without_checksums(stop, &uncommitted)?;
        let used_bytes_by_segment = snapshot.used_bytes_by_segment(arena.segment_bytes());
        snapshot.checksums = used_bytes_by_segment
            .map(|(id, used_bytes)| {
                let start = arena.segment_start(SegmentId(id));
                checksum(arena.published_range(start, used_bytes))
            })
            .collect();
        Some(snapshot.encode())
    }

    /// A snapshot, and the live bytes of its segments of items.
    fn snapshot_without_checksums(
        &self,
        stop: StopTime,
        uncommitted: &UncommittedBytes,
    ) -> Option<(Snapshot, Vec<u32>)> {
        let arena = self.arena();
        let bytes_in_use = |id, live_bytes: usize, is_pinned: bool| {
            let uncommitted_bytes = uncommitted.in_segment(id);
            let is_known = !is_pinned || uncommitted_bytes.is_some();
            is_known.then(|| live_bytes.saturating_sub(uncommitted_bytes.unwrap_or(0)))
        };
        let (segments, live_bytes) = self.segments.snapshot(bytes_in_use)?;
        let snapshot = Snapshot {
            stop,
            memory_bytes: self.config().memory_bytes,
            segment_shift: arena.segment_bytes().ilog2(),
            arena_segments: arena.segment_count() as u64,
            hash_seed: self.config().hash_seed,
            last_swept_position: self.last_swept_position.load(Ordering::Relaxed),
            flushes: self.segments.flushes.snapshot(),
            segments,
            index: self.index.snapshot(),
            checksums: Vec::new(),
        };
        Some((snapshot, live_bytes))
    }

    /// Restores what a store has besides segments, index and counters.
    fn complete_restore(&self, snapshot: &Snapshot) {
        self.last_swept_position.store(snapshot.last_swept_position, Ordering::Relaxed);
        self.charge_prefix_table();
    }

    /// The bytes of a snapshot with the checksums that `memory` has, so that tests reach the checks behind them.
    ///
    /// # Errors
    /// As [`Snapshot::decode`], but whatever its checksums are.
    #[cfg(any(test, feature = "strict"))]
    pub fn with_checksums_of(encoded: &[u8], memory: &[u8]) -> Result<Vec<u8>, SnapshotError> {
        let body = encoded.get(..encoded.len().saturating_sub(size_of::<u64>()));
        let mut snapshot = Snapshot::decode(&bytes::with_checksum(body.unwrap_or_default()))?;
        let segment_bytes = 1usize.checked_shl(snapshot.segment_shift).unwrap_or(0);
        let checksum_of = |(id, used_bytes): (u32, usize)| {
            let start = (id as usize).saturating_mul(segment_bytes);
            let bytes = memory.get(start..start.saturating_add(used_bytes));
            checksum(bytes.unwrap_or_default())
        };
        snapshot.checksums =
            snapshot.used_bytes_by_segment(segment_bytes).map(checksum_of).collect();
        Ok(snapshot.encode())
    }
}

/// Makes a store and checks every item. There are no checksums if the memory was in use until now.
fn recover(
    config: Config,
    layout: Layout,
    arena: &Arc<Arena>,
    (snapshot, checksums): (&Snapshot, Option<&[u64]>),
    in_parallel: impl Fn(&(dyn Fn() + Sync)),
) -> Result<Store, RefusalReason> {
    let store = restore(config, layout, arena, snapshot)?;
    let item_segments = &snapshot.segments.item_segments;
    let item_checksums = match checksums {
        Some(checksums) => {
            let (item_checksums, line_checksums) =
                checksums.split_at_checked(item_segments.len()).ok_or("a checksum is missing")?;
            for (id, &checksum) in snapshot.index.segment_ids().zip(line_checksums) {
                compare_checksum(arena, (id, arena.segment_bytes()), checksum)?;
            }
            Some(item_checksums)
        }
        None => None,
    };
    let mut entries_by_segment = EntriesBySegment::new(arena.segment_count());
    store.index.check(&snapshot.index, |bucket, entry| {
        entries_by_segment.add(&store, bucket, entry);
    })?;
    let verifier = SegmentVerifier {
        store: &store,
        segments: item_segments,
        checksums: item_checksums,
        entries_by_segment,
    };
    verifier.verify(in_parallel)?;
    drop(verifier);
    let item_count = store.counters().items;
    store.approximate_item_count.store(item_count as i64, Ordering::Relaxed);
    store.complete_restore(snapshot);
    Ok(store)
}

/// Makes a store of what the snapshot names; live bytes and counters are still to be set.
fn restore(
    config: Config,
    layout: Layout,
    arena: &Arc<Arena>,
    snapshot: &Snapshot,
) -> Result<Store, RefusalReason> {
    let segments = layout.build_segments(&config, arena);
    if snapshot.flushes.prefixes.len() > segments.flushes.prefixes_max() {
        return Err("it has more flushed prefixes than its memory has room for");
    }
    segments.flushes.restore(&snapshot.flushes);
    segments.restore(&snapshot.segments, snapshot.index.segment_ids())?;
    let lines = Lines::new(Arc::clone(arena));
    let index = Index::from_snapshot(lines, &snapshot.index, arena.segment_count())?;
    let policy = PolicyKind::default();
    Ok(Store::from_parts(config, policy, layout, segments, index))
}
