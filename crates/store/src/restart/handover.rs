//! A store that passes from one running process to the next: both have the memory mapped, one after the other uses it.
//!
//! The next process maps the memory and its pages ahead of time, so that at the handover only a [`MemoryHandover`] has
//! to pass: what a snapshot has, with live bytes and counters instead of checksums. Nothing is checked item by item,
//! because the memory was in use until this moment and never lay on a disk (docs/decisions/operation.md, 0104). Values
//! that are still being uploaded stay behind: their bytes belong to no item of the next process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::counters::{CounterId, Counters};
use crate::item::piece_record_bytes;
use crate::memory::{Arena, MappedFile, SegmentId};
use crate::reservation::Reservation;
use crate::store::{Config, Layout, Store, segment_shift};
use crate::worker::Worker;

use super::bytes::{Reader, Writer};
use super::snapshot::{self, LAYOUT_VERSION, Snapshot, SnapshotError};
use super::{StopTime, recover, restore};

/// The first bytes of every version.
const MAGIC: &[u8; 8] = b"GLASSHND";
/// The version of these bytes; a change of the layout changes [`LAYOUT_VERSION`].
const HANDOVER_VERSION: u32 = 1;
/// Bytes before the fields.
const HEAD_BYTES: usize = MAGIC.len() + size_of::<u64>();

/// The memory that a process uses, as the next one has to map it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySize {
    /// `-m`.
    pub memory_bytes: u64,
    /// Segments of the mapping.
    pub segments: u64,
}

impl MemorySize {
    /// Bytes that a store with these settings needs to continue in the memory.
    ///
    /// # Errors
    /// Settings with another layout.
    pub fn file_bytes(&self, config: &Config) -> Result<u64, SnapshotError> {
        snapshot::continued_bytes(config, self.memory_bytes, self.segments)
    }
}

/// Memory that was mapped for a store that another process still uses: nothing is read or written here before
/// [`Store::take_over`].
pub struct MappedMemory(Arc<Arena>);

impl MappedMemory {
    /// Maps `file_bytes` of the file, and requests its pages from the system, which changes no byte.
    ///
    /// # Errors
    /// Settings that no store can have, or a mapping that the system refuses.
    pub fn new(
        config: &Config,
        file: MappedFile<'_>,
        file_bytes: u64,
    ) -> Result<MappedMemory, crate::Error> {
        let shift = segment_shift(config)?;
        let arena = Arena::in_file(file, (file_bytes >> shift) as usize, shift)?;
        arena.populate();
        Ok(MappedMemory(Arc::new(arena)))
    }
}

/// The bytes of values that are being uploaded, by segment.
#[derive(Debug, Default)]
pub struct UncommittedBytes(BTreeMap<u32, usize>);

impl UncommittedBytes {
    /// Adds the bytes that an upload has reserved.
    pub fn add(&mut self, reservation: &Reservation) {
        for (SegmentId(segment), bytes) in reservation.reserved_bytes() {
            *self.0.entry(segment).or_default() += bytes;
        }
    }

    pub(crate) fn in_segment(&self, segment: SegmentId) -> Option<usize> {
        self.0.get(&segment.0).copied()
    }
}

impl Reservation {
    /// The reserved bytes, each with its segment.
    fn reserved_bytes(&self) -> impl Iterator<Item = (SegmentId, usize)> + '_ {
        let store = self.store();
        self.pieces().iter().map(|&piece| {
            let record_bytes = piece_record_bytes(store.piece_data_bytes(piece));
            (store.arena().segment_of(piece), record_bytes)
        })
    }
}

impl Worker {
    /// Closes what it has open, so that the store can be handed over; the next write opens it again.
    pub fn close_segments(&mut self) {
        self.sweeper.release_unfinished(&self.store);
        self.appender.seal(None);
        self.go_offline();
    }
}

/// What one process passes to the next besides the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryHandover {
    snapshot: Snapshot,
    /// Live bytes of each segment of items, in the order of the snapshot.
    live_bytes: Vec<u32>,
    /// Items, their requested bytes, and their bytes in segments.
    counts: [u64; 3],
    /// Bounds of the slab classes.
    slab_chunk_bytes: Vec<u32>,
    /// Items and their bytes in each slab class.
    by_slab_class: Vec<(u64, u64)>,
}

impl MemoryHandover {
    /// The version of all that passes: two processes can hand over if it is equal.
    pub const VERSION: u64 = (LAYOUT_VERSION as u64) << 32 | HANDOVER_VERSION as u64;

    /// Decodes what [`Store::hand_over`] returned.
    ///
    /// # Errors
    /// Other bytes, another version, a wrong checksum.
    pub fn decode(bytes: &[u8]) -> Result<MemoryHandover, SnapshotError> {
        let version_bytes =
            bytes.strip_prefix(MAGIC).and_then(|after_magic| after_magic.first_chunk());
        if version_bytes.map(|version_bytes| u64::from_le_bytes(*version_bytes))
            != Some(MemoryHandover::VERSION)
        {
            return Err(SnapshotError::Foreign);
        }
        let mut reader =
            Reader::new(bytes).ok_or_else(|| SnapshotError::damaged("its checksum is wrong"))?;
        let handover = reader.skip(HEAD_BYTES).and_then(|()| read_handover(&mut reader));
        let handover = handover.filter(|handover| {
            let segment_count = handover.snapshot.segments.item_segments.len();
            reader.is_at_end() && handover.live_bytes.len() == segment_count
        });
        handover.ok_or_else(|| SnapshotError::damaged("its fields are wrong"))
    }

    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes(MAGIC);
        writer.u64(MemoryHandover::VERSION);
        snapshot::write_snapshot(&self.snapshot, &mut writer);
        writer.list(&self.live_bytes, |writer, live_bytes| {
            writer.u32(*live_bytes);
        });
        for &count in &self.counts {
            writer.u64(count);
        }
        writer.list(&self.slab_chunk_bytes, |writer, chunk_bytes| {
            writer.u32(*chunk_bytes);
        });
        writer.list(&self.by_slab_class, |writer, &(items, bytes)| {
            writer.u64(items);
            writer.u64(bytes);
        });
        writer.finish()
    }
}

fn read_handover(reader: &mut Reader<'_>) -> Option<MemoryHandover> {
    Some(MemoryHandover {
        snapshot: snapshot::read_snapshot(reader)?,
        live_bytes: reader.list(Reader::u32)?,
        counts: [reader.u64()?, reader.u64()?, reader.u64()?],
        slab_chunk_bytes: reader.list(Reader::u32)?,
        by_slab_class: reader.list(|reader| Some((reader.u64()?, reader.u64()?)))?,
    })
}

impl Store {
    /// The memory that it uses.
    pub fn memory_size(&self) -> MemorySize {
        MemorySize {
            memory_bytes: self.config().memory_bytes,
            segments: self.arena().segment_count() as u64,
        }
    }

    /// A number above every unique that an item has had.
    pub fn uniques_end(&self) -> u64 {
        self.segments.uniques.end()
    }

    /// Makes the uniques of an empty store begin at `start`, so that none of a previous store comes again.
    pub fn begin_uniques_at(&self, start: u64) {
        self.segments.uniques.begin_at(start);
    }

    /// What the next process needs besides the memory; `None` while a worker does not rest, or an upload is not in
    /// `uncommitted`. The store can be used again if the next process does not take it over.
    pub fn hand_over(&self, stop: StopTime, uncommitted: &UncommittedBytes) -> Option<Vec<u8>> {
        let (snapshot, live_bytes) = self.snapshot_without_checksums(stop, uncommitted)?;
        let Counters { items, user_bytes, item_bytes, by_slab_class, .. } = self.counters();
        let handover = MemoryHandover {
            snapshot,
            live_bytes,
            counts: [items, user_bytes, item_bytes],
            slab_chunk_bytes: self.config().slab_chunk_bytes.clone(),
            by_slab_class,
        };
        Some(handover.encode())
    }

    /// Continues the store of a process that has handed it over and does not use it any more. With other slab classes
    /// than before the items have to be counted again, which takes as long as a recovery; `in_parallel` is that of
    /// [`Store::recover`].
    ///
    /// # Errors
    /// Other settings, or numbers that do not belong to the memory: then nothing of it has been changed.
    pub fn take_over(
        config: Config,
        memory: MappedMemory,
        handover: &MemoryHandover,
        in_parallel: impl Fn(&(dyn Fn() + Sync)),
    ) -> Result<Arc<Store>, SnapshotError> {
        let MappedMemory(arena) = memory;
        let snapshot = &handover.snapshot;
        let memory_bytes = snapshot.memory_bytes(&config)?;
        if arena.segment_count() as u64 != memory_bytes >> snapshot.segment_shift {
            return Err(SnapshotError::damaged("its memory has another size"));
        }
        let config = Config { hash_seed: snapshot.hash_seed, ..config };
        let layout = Layout::new(&config, snapshot.segment_shift)
            .map_err(|error| SnapshotError::Unusable(error.to_string()))?;
        if config.slab_chunk_bytes != handover.slab_chunk_bytes {
            let store = recover(config, layout, &arena, (snapshot, None), in_parallel);
            return store.map(Arc::new).map_err(SnapshotError::damaged);
        }
        let store = restore(config, layout, &arena, snapshot).map_err(SnapshotError::damaged)?;
        for (segment, &live_bytes) in
            snapshot.segments.item_segments.iter().zip(&handover.live_bytes)
        {
            if live_bytes == 0 || live_bytes > segment.used_bytes {
                return Err(SnapshotError::damaged("live bytes are out of range"));
            }
            store.segments.restore_live_bytes(SegmentId(segment.id), live_bytes);
        }
        handover.count_items(&store);
        store.complete_restore(snapshot);
        Ok(Arc::new(store))
    }
}

impl MemoryHandover {
    /// Counts the items as the recovery of a file does.
    fn count_items(&self, store: &Store) {
        let Some(block) = store.counter_blocks.first() else {
            return;
        };
        let [items, user_bytes, item_bytes] = self.counts.map(|count| count as i64);
        block.add(CounterId::Items, items);
        block.add(CounterId::ItemsTotal, items);
        block.add(CounterId::UserBytes, user_bytes);
        block.add(CounterId::ItemBytes, item_bytes);
        for (class, &(items, bytes)) in self.by_slab_class.iter().enumerate() {
            block.add_to_class(class, items as i64, bytes as i64);
        }
        store.approximate_item_count.store(items, Ordering::Relaxed);
    }
}
