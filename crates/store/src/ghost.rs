//! The ghost: 16-bit tags of items evicted from the small queue, to recognise keys that return.
//!
//! Lines of 28 tags are in segments of the arena, inside the budget; a line is a small ring in which a new tag
//! overwrites the oldest. A false match happens once in 2,300 lookups: the new item then starts in the main queue,
//! which costs a little memory and nothing else. All accesses are single atomics.
// LOSSY: two threads that write one line at once may overwrite each other's tag.

use crate::index::bucket_of;
use crate::memory::arena::LINE_BYTES;
use crate::memory::{Line, LineId, Lines, SegmentId};
use crate::request::KeyHash;
use crate::segments::Segments;
use crate::sync::plain::Mutex;
use crate::sync::{AtomicU32, AtomicUsize, Ordering, guard_if_free};

/// Tags in a slot of 64 bits.
const TAGS_PER_SLOT: usize = 4;
/// Tags in a line.
const TAGS_PER_LINE: usize = crate::memory::SLOTS_PER_LINE * TAGS_PER_SLOT;
/// Bits of a tag.
const TAG_BITS: u32 = 16;

/// The table of tags.
pub(crate) struct Ghost {
    lines: Lines,
    directory: Box<[AtomicU32]>,
    segments_in_use: AtomicUsize,
    next_segment: Mutex<Option<ClearingSegment>>,
    /// Segments taken and not yet in use: 0 or 1.
    segments_ahead: AtomicUsize,
}

/// Lines of the next segment that one call of [`Ghost::resize_step`] clears: clearing all at once takes milliseconds if
/// the kernel has to provide the memory first.
const LINES_CLEARED_PER_CALL: usize = 2048;

/// A segment that will be added once its lines are clear.
struct ClearingSegment {
    segment: SegmentId,
    /// Lines that are clear.
    cleared_lines: usize,
}

impl Ghost {
    pub(crate) fn new(lines: Lines, segments_max: usize) -> Self {
        Ghost {
            lines,
            directory: (0..segments_max).map(|_| AtomicU32::new(0)).collect(),
            segments_in_use: AtomicUsize::new(0),
            next_segment: Mutex::new(None),
            segments_ahead: AtomicUsize::new(0),
        }
    }

    /// Tags that a ghost has in segments of `1 << shift` bytes if it needs `target_tags`: it has whole segments.
    pub(crate) fn tags_for(target_tags: usize, shift: u32) -> usize {
        let tags_per_segment = (1 << shift) / LINE_BYTES * TAGS_PER_LINE;
        target_tags.next_multiple_of(tags_per_segment.max(1))
    }

    /// Bytes of so many tags.
    pub(crate) fn bytes_of(tags: usize) -> usize {
        tags.div_ceil(TAGS_PER_LINE) * LINE_BYTES
    }

    /// Segments that the ghost holds.
    pub(crate) fn segment_count(&self) -> usize {
        self.segments_in_use.load(Ordering::Acquire) + self.segments_ahead.load(Ordering::Relaxed)
    }

    /// Remembers an evicted key.
    pub(crate) fn remember(&self, hash: KeyHash) {
        let Some(line) = self.line_of(hash) else {
            return;
        };
        let oldest_index = line.control_word.load(Ordering::Relaxed) as usize % TAGS_PER_LINE;
        line.control_word
            .store((oldest_index as u64 + 1) % TAGS_PER_LINE as u64, Ordering::Relaxed);
        set_tag(line, oldest_index, tag_of(hash));
    }

    /// Whether the key was evicted recently; the call removes its tag.
    pub(crate) fn forget(&self, hash: KeyHash) -> bool {
        let Some(line) = self.line_of(hash) else {
            return false;
        };
        let tag = tag_of(hash);
        for index in 0..TAGS_PER_LINE {
            if get_tag(line, index) == tag {
                set_tag(line, index, 0);
                return true;
            }
        }
        false
    }

    /// Grows or shrinks by one segment towards `target_tags` tags, if a segment is available; several calls may be
    /// needed.
    pub(crate) fn resize_step(&self, target_tags: usize, segments: &Segments, spare_min: usize) {
        let Some(mut next_segment) = guard_if_free(self.next_segment.try_lock()) else {
            return;
        };
        let segment_count = self.segments_in_use.load(Ordering::Relaxed);
        let tags_per_segment = self.lines.lines_per_segment() * TAGS_PER_LINE;
        // Rounded up: a store of few large items has a ghost too.
        let target_segments = target_tags.div_ceil(tags_per_segment);
        if target_segments > segment_count {
            let Some(directory_entry) = self.directory.get(segment_count) else {
                return;
            };
            let allocate_segment = || {
                let segment = segments.allocate_index_segment(spare_min)?;
                Some(ClearingSegment { segment, cleared_lines: 0 })
            };
            let Some(mut clearing) = next_segment.take().or_else(allocate_segment) else {
                return;
            };
            self.clear_lines(&mut clearing);
            if clearing.cleared_lines < self.lines.lines_per_segment() {
                *next_segment = Some(clearing);
                self.segments_ahead.store(1, Ordering::Relaxed);
                return;
            }
            self.segments_ahead.store(0, Ordering::Relaxed);
            directory_entry.store(clearing.segment.0, Ordering::Release);
            self.segments_in_use.store(segment_count + 1, Ordering::Release);
        } else if let Some(clearing) = next_segment.take() {
            self.segments_ahead.store(0, Ordering::Relaxed);
            segments.free_index_segment(clearing.segment);
        } else if target_segments + 1 < segment_count
            && let Some(directory_entry) = self.directory.get(segment_count - 1)
        {
            self.segments_in_use.store(segment_count - 1, Ordering::Release);
            segments.free_index_segment(SegmentId(directory_entry.load(Ordering::Relaxed)));
        }
    }

    fn clear_lines(&self, clearing: &mut ClearingSegment) {
        let lines_per_segment = self.lines.lines_per_segment();
        let first_line = clearing.segment.0 as usize * lines_per_segment;
        let first_uncleared = clearing.cleared_lines;
        clearing.cleared_lines = (first_uncleared + LINES_CLEARED_PER_CALL).min(lines_per_segment);
        for id in
            (first_line + first_uncleared..first_line + clearing.cleared_lines).map(|id| id as u64)
        {
            let line = self.lines.line(LineId(id));
            line.control_word.store(0, Ordering::Relaxed);
            line.slots.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
        }
    }

    fn line_of(&self, hash: KeyHash) -> Option<&Line> {
        let segment_count = self.segments_in_use.load(Ordering::Acquire);
        if segment_count == 0 {
            return None;
        }
        // Other bits of the hash than those of the index, so that the keys of a bucket spread.
        let spread = KeyHash(hash.0.rotate_right(20));
        let line_number = bucket_of(spread, segment_count * self.lines.lines_per_segment());
        let segment = self
            .directory
            .get(line_number / self.lines.lines_per_segment())?
            .load(Ordering::Acquire);
        let line_in_segment = line_number % self.lines.lines_per_segment();
        Some(self.lines.line(LineId(
            u64::from(segment) * self.lines.lines_per_segment() as u64 + line_in_segment as u64,
        )))
    }
}

fn tag_of(hash: KeyHash) -> u64 {
    (hash.0 >> 4 & 0xffff).max(1)
}

fn get_tag(line: &Line, index: usize) -> u64 {
    let slot = line.slots.get(index / TAGS_PER_SLOT).map_or(0, |slot| slot.load(Ordering::Relaxed));
    slot >> (TAG_BITS * (index % TAGS_PER_SLOT) as u32) & 0xffff
}

fn set_tag(line: &Line, index: usize, tag: u64) {
    if let Some(slot) = line.slots.get(index / TAGS_PER_SLOT) {
        let shift = TAG_BITS * (index % TAGS_PER_SLOT) as u32;
        let other_tags = slot.load(Ordering::Relaxed) & !(0xffff << shift);
        slot.store(other_tags | tag << shift, Ordering::Relaxed);
    }
}
