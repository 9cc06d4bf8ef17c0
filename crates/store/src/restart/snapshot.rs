//! What is saved besides the memory file: settings, clock, flushes, and what each segment holds, as bytes.
//!
//! Decoding checks the form and what can be checked without the memory; what the numbers refer to is checked when the
//! memory is mapped (`check`).

use crate::flush::FlushSnapshot;
use crate::index::{IndexSnapshot, OverflowSnapshot};
use crate::prefix_flushes::{LENGTH_MASK, PREFIXES_MAX};
use crate::request::{KEY_BYTES_MAX, Seconds};
use crate::segments::{ItemSegment, Queue, SegmentsSnapshot, UniquesSnapshot};
use crate::store::{Config, Layout, segment_shift};

use super::bytes::{Reader, Writer};

/// [`Snapshot::MAGIC`].
const MAGIC: &[u8; 8] = b"GLASSMEM";
/// The version of the layout of items, of the index and of these bytes.
pub(super) const LAYOUT_VERSION: u32 = 2;
/// Bytes before what differs between versions.
const HEAD_BYTES: usize = MAGIC.len() + size_of::<u32>();
/// The clock of a store that has run for less than sixty years is below this.
const SECOND_MAX: Seconds = Seconds(u32::MAX / 2);
/// Counts stay below this, so that none overflows.
const COUNT_MAX: u64 = 1 << 60;

/// When a store was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopTime {
    /// The second of the store's clock.
    pub second: Seconds,
    /// When that second began, in milliseconds of Unix time.
    pub unix_ms: i64,
}

/// Why a snapshot cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes are not a snapshot of any version.
    #[error("it is not a snapshot of a cache")]
    Foreign,
    /// It was written by another version, or is damaged: an empty store is right.
    #[error("{0}")]
    Unusable(String),
}

impl SnapshotError {
    pub(super) fn damaged(reason: &str) -> Self {
        SnapshotError::Unusable(format!("it is damaged: {reason}"))
    }
}

/// A stopped store without its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub(super) stop: StopTime,
    pub(super) memory_bytes: u64,
    pub(super) segment_shift: u32,
    /// Segments of the memory.
    pub(super) arena_segments: u64,
    pub(super) hash_seed: u64,
    pub(super) last_swept_position: u64,
    pub(super) flushes: FlushSnapshot,
    pub(super) segments: SegmentsSnapshot,
    pub(super) index: IndexSnapshot,
    /// Checksums of the segments of items, of buckets and of overflow lines, in the order of their lists.
    pub(super) checksums: Vec<u64>,
}

impl Snapshot {
    /// The first bytes of a snapshot of every version.
    pub const MAGIC: &[u8] = MAGIC;

    /// Decodes what [`crate::Store::snapshot`] returned.
    ///
    /// # Errors
    /// Other bytes, another version, a wrong checksum.
    pub fn decode(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
        let version_bytes =
            bytes.strip_prefix(MAGIC).and_then(|after_magic| after_magic.first_chunk());
        let version = u32::from_le_bytes(*version_bytes.ok_or(SnapshotError::Foreign)?);
        if version != LAYOUT_VERSION {
            return Err(SnapshotError::Unusable(format!(
                "its layout has version {version}, this server has {LAYOUT_VERSION}"
            )));
        }
        let mut reader =
            Reader::new(bytes).ok_or_else(|| SnapshotError::damaged("its checksum is wrong"))?;
        let snapshot = reader.skip(HEAD_BYTES).and_then(|()| read_snapshot(&mut reader));
        let snapshot = snapshot.filter(|snapshot| reader.is_at_end() && snapshot.is_plausible());
        snapshot.ok_or_else(|| SnapshotError::damaged("its fields are wrong"))
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes(MAGIC);
        writer.u32(LAYOUT_VERSION);
        write_snapshot(self, &mut writer);
        writer.finish()
    }

    /// The time at which the store was stopped.
    pub fn stop(&self) -> StopTime {
        self.stop
    }

    /// Bytes of memory that a store of these settings needs to continue this one.
    ///
    /// # Errors
    /// Settings with another layout.
    pub fn memory_bytes(&self, config: &Config) -> Result<u64, SnapshotError> {
        let bytes = continued_bytes(config, self.memory_bytes, self.arena_segments)?;
        if segment_shift(config).is_ok_and(|segment_shift| segment_shift != self.segment_shift) {
            return Err(SnapshotError::damaged("its segments have another size"));
        }
        Ok(bytes)
    }

    /// Each segment with its bytes in use, in the order of the checksums.
    pub(super) fn used_bytes_by_segment(
        &self,
        segment_bytes: usize,
    ) -> impl Iterator<Item = (u32, usize)> + '_ {
        let item_segments = self.segments.item_segments.iter();
        let item_segments = item_segments.map(|segment| (segment.id, segment.used_bytes as usize));
        item_segments.chain(self.index.segment_ids().map(move |id| (id, segment_bytes)))
    }

    fn is_plausible(&self) -> bool {
        let flushes = &self.flushes;
        let is_valid_prefix = |&(hash, flush_number): &(u64, u64)| {
            let length = (hash & LENGTH_MASK) as usize;
            (1..=KEY_BYTES_MAX).contains(&length) && flush_number <= flushes.flush_count
        };
        let segment_count = self.segments.item_segments.len() + self.index.segment_ids().count();
        flushes.flush_count < COUNT_MAX
            && flushes.last_full_flush <= flushes.flush_count
            && flushes.due_second_plus_one <= u64::from(u32::MAX) + 1
            && flushes.prefixes.len() <= PREFIXES_MAX
            && flushes.prefixes.iter().all(is_valid_prefix)
            && u32::try_from(self.arena_segments).is_ok()
            && self.stop.second <= SECOND_MAX
            && self.checksums.len() == segment_count
    }
}

/// Bytes of memory that a store of these settings needs to continue in `segment_count` segments that were made with
/// `memory_bytes`.
pub(super) fn continued_bytes(
    config: &Config,
    memory_bytes: u64,
    segment_count: u64,
) -> Result<u64, SnapshotError> {
    let unusable = SnapshotError::Unusable;
    let segment_shift = segment_shift(config).map_err(|error| unusable(error.to_string()))?;
    if memory_bytes != config.memory_bytes {
        return Err(unusable(format!(
            "it was made with {memory_bytes} bytes of memory, now there are {} (-m)",
            config.memory_bytes
        )));
    }
    let layout = Layout::new(config, segment_shift).map_err(|error| unusable(error.to_string()))?;
    // More workers have more segments; with fewer those that there are stay.
    Ok((layout.segment_count as u64).max(segment_count) << segment_shift)
}

pub(super) fn write_snapshot(snapshot: &Snapshot, writer: &mut Writer) {
    writer.u32(snapshot.stop.second.0);
    writer.u64(snapshot.stop.unix_ms.cast_unsigned());
    writer.u64(snapshot.memory_bytes);
    writer.u32(snapshot.segment_shift);
    writer.u64(snapshot.arena_segments);
    writer.u64(snapshot.hash_seed);
    writer.u64(snapshot.last_swept_position);
    let flushes = &snapshot.flushes;
    writer.u64(flushes.flush_count);
    writer.u64(flushes.last_full_flush);
    writer.u64(flushes.due_second_plus_one);
    writer.list(&flushes.prefixes, |writer, &(hash, number)| {
        writer.u64(hash);
        writer.u64(number);
    });
    writer.u64(snapshot.segments.uniques.next_sequence);
    writer.u64(snapshot.segments.uniques.halved_counted);
    writer.u64(snapshot.segments.next_queue_position);
    writer.list(&snapshot.segments.item_segments, |writer, segment| {
        writer.u32(segment.id);
        writer.u32(u32::from(segment.queue == Queue::Main));
        writer.u32(segment.used_bytes);
        writer.u32(segment.expires_at_s);
        writer.u64(segment.queue_position);
        writer.u64(segment.sequence);
        writer.u64(segment.generation);
        writer.u32(segment.base_time);
    });
    writer.u64(snapshot.index.bucket_count);
    writer.list(&snapshot.index.directory, |writer, segment| {
        writer.u32(*segment);
    });
    writer.list(&snapshot.index.overflow_segments, |writer, overflow| {
        writer.u32(overflow.segment);
        writer.u32(overflow.used_lines);
        writer.u32(overflow.allocated_end);
        writer.u64(overflow.free_list_head);
    });
    writer.list(&snapshot.checksums, |writer, checksum| {
        writer.u64(*checksum);
    });
}

pub(super) fn read_snapshot(reader: &mut Reader<'_>) -> Option<Snapshot> {
    Some(Snapshot {
        stop: StopTime { second: Seconds(reader.u32()?), unix_ms: reader.u64()?.cast_signed() },
        memory_bytes: reader.u64()?,
        segment_shift: reader.u32()?,
        arena_segments: reader.u64()?,
        hash_seed: reader.u64()?,
        last_swept_position: reader.u64()?,
        flushes: FlushSnapshot {
            flush_count: reader.u64()?,
            last_full_flush: reader.u64()?,
            due_second_plus_one: reader.u64()?,
            prefixes: reader.list(|reader| Some((reader.u64()?, reader.u64()?)))?,
        },
        segments: SegmentsSnapshot {
            uniques: UniquesSnapshot {
                next_sequence: reader.u64()?,
                halved_counted: reader.u64()?,
            },
            next_queue_position: reader.u64()?,
            item_segments: reader.list(read_segment)?,
        },
        index: IndexSnapshot {
            bucket_count: reader.u64()?,
            directory: reader.list(Reader::u32)?,
            overflow_segments: reader.list(read_overflow)?,
        },
        checksums: reader.list(Reader::u64)?,
    })
}

fn read_segment(reader: &mut Reader<'_>) -> Option<ItemSegment> {
    Some(ItemSegment {
        id: reader.u32()?,
        queue: if reader.u32()? == 0 { Queue::Small } else { Queue::Main },
        used_bytes: reader.u32()?,
        expires_at_s: reader.u32()?,
        queue_position: reader.u64()?,
        sequence: reader.u64()?,
        generation: reader.u64()?,
        base_time: reader.u32()?,
    })
}

fn read_overflow(reader: &mut Reader<'_>) -> Option<OverflowSnapshot> {
    Some(OverflowSnapshot {
        segment: reader.u32()?,
        used_lines: reader.u32()?,
        allocated_end: reader.u32()?,
        free_list_head: reader.u64()?,
    })
}
