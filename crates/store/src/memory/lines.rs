//! Lines: the 64-byte rows of atomics in which the index (and the ghost) live, one cache line each.
//!
//! They are in segments of the arena, so that index and items share one budget. A line consists of atomics only, so
//! a reader that still reads a line which was given to another bucket sees old or new numbers and no torn ones; the
//! version in the word makes it look again.

use std::sync::Arc;

use super::arena::{Arena, LINE_BYTES};
use crate::sync::AtomicU64;

/// Slots of a line in addition to its control word.
pub(crate) const SLOTS_PER_LINE: usize = 7;

/// One cache line: a control word for the owner's use and seven slots.
#[cfg_attr(not(loom), repr(C, align(64)))]
pub(crate) struct Line {
    /// For a bucket: version, lock bit and link to the overflow line.
    pub(crate) control_word: AtomicU64,
    /// For a bucket: tag, frequency and address of an item each.
    pub(crate) slots: [AtomicU64; SLOTS_PER_LINE],
}

/// The number of a line: its byte offset in the arena over 64. Line 0 is the first bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineId(pub(crate) u64);

/// The lines of an arena.
#[cfg(not(loom))]
pub(crate) struct Lines {
    arena: Arc<Arena>,
}

#[cfg(not(loom))]
impl Lines {
    /// All lines of `arena`.
    pub(crate) fn new(arena: Arc<Arena>) -> Self {
        Lines { arena }
    }

    /// The line with this number. The caller knows that it is in a segment that holds lines, or that
    /// held lines when its epoch began.
    #[inline]
    pub(crate) fn line(&self, id: LineId) -> &Line {
        let line: *const Line = self.arena.pointer_at(id.0 as usize * LINE_BYTES);
        // SAFETY: in bounds by `pointer_at`; aligned, since segments start at multiples of 64; a segment of lines
        // becomes a segment of items only after every online worker has passed (rule 3), so nothing
        // writes these bytes in a plain way while a reader can reach them. All bit patterns are valid.
        unsafe { &*line }
    }

    /// Prefetches a line.
    #[inline]
    pub(crate) fn prefetch(&self, id: LineId) {
        self.arena.prefetch(super::arena::Addr(id.0 * LINE_BYTES as u64));
    }

    /// Lines per segment.
    pub(crate) fn lines_per_segment(&self) -> usize {
        self.arena.segment_bytes() / LINE_BYTES
    }
}

/// Under loom an atomic is a tracked object and cannot be in raw memory: a table replaces it.
#[cfg(loom)]
pub(crate) struct Lines {
    table: Vec<Line>,
    lines_per_segment: usize,
}

#[cfg(loom)]
impl Lines {
    pub(crate) fn new(arena: Arc<Arena>) -> Self {
        Self::with_segment_count(arena.segment_count(), arena.segment_bytes() / LINE_BYTES)
    }

    pub(crate) fn with_segment_count(segment_count: usize, lines_per_segment: usize) -> Self {
        let new_line = || Line {
            control_word: AtomicU64::new(0),
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        Lines {
            table: (0..segment_count * lines_per_segment).map(|_| new_line()).collect(),
            lines_per_segment,
        }
    }

    pub(crate) fn line(&self, id: LineId) -> &Line {
        self.table.get(id.0 as usize).unwrap_or_else(|| unreachable!("a line of the test's table"))
    }

    pub(crate) fn prefetch(&self, _id: LineId) {}

    pub(crate) fn lines_per_segment(&self) -> usize {
        self.lines_per_segment
    }
}
