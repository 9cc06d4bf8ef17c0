//! The index after a restart: its lines are still in their segments; this file has what else it needs, and the check
//! that the lines are those of an index.
//!
//! Nothing in the lines is trusted. Each link must lead to an overflow line that belongs to the bucket and was not
//! reached before, free lines must be linked, and buckets that a split will fill must be empty. What the entries name
//! is checked by the caller, which gets each once.

use std::sync::atomic::Ordering;

use super::bucket::{BUCKETS_MAX, is_locked, link_of, owner_of};
use super::overflow::{Overflow, OverflowSnapshot};
use super::resize::ResizeControl;
use super::{CHAIN_LINES_MAX, Entry, Index};
use crate::memory::{Line, LineId, Lines};
use crate::sync::{AtomicU32, AtomicUsize};

/// What the index needs besides its lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IndexSnapshot {
    pub(crate) bucket_count: u64,
    /// Segments of primary buckets, in order.
    pub(crate) directory: Vec<u32>,
    pub(crate) overflow_segments: Vec<OverflowSnapshot>,
}

impl IndexSnapshot {
    /// The numbers of all segments of lines.
    pub(crate) fn segment_ids(&self) -> impl Iterator<Item = u32> + '_ {
        let overflow_segments = self.overflow_segments.iter().map(|overflow| overflow.segment);
        self.directory.iter().copied().chain(overflow_segments)
    }
}

/// Which lines of the overflow segments were reached, by segment.
struct ReachedLines {
    segments: Vec<Option<Box<[bool]>>>,
    lines_per_segment: usize,
}

impl ReachedLines {
    /// Marks a line; false if it is not an overflow line, or if it was reached before.
    fn mark(&mut self, id: LineId) -> bool {
        let (segment, line) =
            (id.0 as usize / self.lines_per_segment, id.0 as usize % self.lines_per_segment);
        let line_flags = self.segments.get_mut(segment).and_then(Option::as_mut);
        line_flags
            .and_then(|flags| flags.get_mut(line))
            .is_some_and(|was_reached| !std::mem::replace(was_reached, true))
    }
}

impl Index {
    /// The input of [`Index::from_snapshot`]; no thread changes the index meanwhile.
    pub(crate) fn snapshot(&self) -> IndexSnapshot {
        let bucket_count = self.bucket_count();
        let directory = self.directory.iter();
        IndexSnapshot {
            bucket_count: bucket_count as u64,
            directory: directory
                .take(bucket_count.div_ceil(1 << self.lines_per_segment_shift))
                .map(|segment| segment.load(Ordering::Acquire))
                .collect(),
            overflow_segments: self.overflow.snapshot(),
        }
    }

    /// The index whose lines are in the segments that the snapshot names. [`Index::check`] must accept it before it
    /// is used.
    pub(crate) fn from_snapshot(
        lines: Lines,
        snapshot: &IndexSnapshot,
        segments_max: usize,
    ) -> Result<Self, &'static str> {
        let lines_per_segment = lines.lines_per_segment();
        let segment_count = snapshot.directory.len();
        let bucket_count = usize::try_from(snapshot.bucket_count).unwrap_or(usize::MAX);
        if bucket_count < lines_per_segment
            || bucket_count > BUCKETS_MAX
            || bucket_count.div_ceil(lines_per_segment) != segment_count
            || segment_count > segments_max
        {
            return Err("the number of buckets is wrong");
        }
        let bucket_segments = snapshot.directory.iter().copied();
        let unused_entries = std::iter::repeat_n(0, segments_max - segment_count);
        Ok(Index {
            directory: bucket_segments.chain(unused_entries).map(AtomicU32::new).collect(),
            bucket_count: AtomicUsize::new(bucket_count),
            lines_per_segment_shift: lines_per_segment.trailing_zeros(),
            overflow: Overflow::from_snapshot(lines_per_segment, &snapshot.overflow_segments),
            resize: ResizeControl::new(segment_count),
            lines,
        })
    }

    /// Checks every line and passes each entry with its bucket to `visit`. The segments of lines have been compared
    /// with the arena and with each other.
    pub(crate) fn check(
        &self,
        snapshot: &IndexSnapshot,
        mut visit: impl FnMut(usize, Entry),
    ) -> Result<(), &'static str> {
        let lines_per_segment = 1 << self.lines_per_segment_shift;
        let mut reached_lines = ReachedLines {
            segments: (0..self.directory.len()).map(|_| None).collect(),
            lines_per_segment,
        };
        for overflow in &snapshot.overflow_segments {
            if let Some(line_flags) = reached_lines.segments.get_mut(overflow.segment as usize) {
                *line_flags = Some(vec![false; lines_per_segment].into());
            }
        }
        let bucket_count = self.bucket_count();
        for bucket_number in 0..bucket_count {
            self.check_chain(bucket_number, &mut reached_lines, &mut visit)?;
        }
        let is_empty = |line: &Line| {
            let control_word = line.control_word.load(Ordering::Relaxed);
            let is_zero = |slot: &crate::sync::AtomicU64| slot.load(Ordering::Relaxed) == 0;
            !is_locked(control_word)
                && link_of(control_word).is_none()
                && line.slots.iter().all(is_zero)
        };
        let mut unused_buckets = bucket_count..snapshot.directory.len() * lines_per_segment;
        if !unused_buckets.all(|bucket_number| is_empty(self.bucket_line(bucket_number))) {
            return Err("a bucket that is not in use holds something");
        }
        let mut overflow_segments = snapshot.overflow_segments.iter();
        overflow_segments.try_for_each(|overflow| self.check_overflow(overflow, &mut reached_lines))
    }

    fn check_chain(
        &self,
        bucket_number: usize,
        reached_lines: &mut ReachedLines,
        visit: &mut impl FnMut(usize, Entry),
    ) -> Result<(), &'static str> {
        let mut line = self.bucket_line(bucket_number);
        let mut control_word = line.control_word.load(Ordering::Relaxed);
        if is_locked(control_word) {
            return Err("a bucket is locked");
        }
        for _ in 0..=CHAIN_LINES_MAX {
            let slots = line.slots.iter();
            let entries = slots.map(|slot| Entry(slot.load(Ordering::Relaxed)));
            entries.filter(|entry| entry.0 != 0).for_each(|entry| visit(bucket_number, entry));
            let Some(next) = link_of(control_word) else {
                return Ok(());
            };
            if !reached_lines.mark(next) {
                return Err("a chain leads to a line that is not its own");
            }
            line = self.lines.line(next);
            control_word = line.control_word.load(Ordering::Relaxed);
            if owner_of(control_word) != bucket_number {
                return Err("an overflow line belongs to another bucket");
            }
        }
        Err("a chain is too long")
    }

    /// Checks that every allocated line of the segment is in a chain or in the list of free lines, and no other.
    fn check_overflow(
        &self,
        overflow: &OverflowSnapshot,
        reached_lines: &mut ReachedLines,
    ) -> Result<(), &'static str> {
        let count_reached = |reached_lines: &ReachedLines| {
            let line_flags = reached_lines.segments.get(overflow.segment as usize);
            let line_flags = line_flags.and_then(Option::as_deref).unwrap_or_default();
            let flags_beyond_end = line_flags.iter().skip(overflow.allocated_end as usize);
            let reached_count = line_flags.iter().filter(|is_reached| **is_reached).count();
            let reached_beyond_end = flags_beyond_end.filter(|is_reached| **is_reached).count();
            (reached_count, reached_beyond_end)
        };
        let (used_count, _) = count_reached(reached_lines);
        if used_count != overflow.used_lines as usize {
            return Err("the number of overflow lines is wrong");
        }
        let mut next_free_line =
            (overflow.free_list_head != 0).then_some(LineId(overflow.free_list_head));
        while let Some(id) = next_free_line {
            let segment = id.0 as usize >> self.lines_per_segment_shift;
            if segment != overflow.segment as usize || !reached_lines.mark(id) {
                return Err("the list of free overflow lines is wrong");
            }
            next_free_line = link_of(self.lines.line(id).control_word.load(Ordering::Relaxed));
        }
        if count_reached(reached_lines) != (overflow.allocated_end as usize, 0) {
            return Err("an overflow line is neither free nor in use");
        }
        Ok(())
    }
}
