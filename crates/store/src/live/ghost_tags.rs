//! The ghost of a miniature: tags of keys that were evicted from its small queue.
//!
//! As in the store's own, a line of tags is a small ring in which a new one overwrites the oldest.

/// Tags in a line.
const TAGS_PER_LINE: usize = 16;

/// The number of lines follows the capacity when it differs by more than one part in this many.
const RESIZE_DIVISOR: usize = 8;

/// A line and the index of its oldest tag. 0 is no tag.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    tags: [u32; TAGS_PER_LINE],
    oldest: u8,
}

/// The tags.
#[derive(Debug, Clone, Default)]
pub(super) struct GhostTags {
    /// Empty until the first tag: a miniature that has evicted nothing needs none.
    lines: Vec<Line>,
    line_count: usize,
}

impl GhostTags {
    /// Bytes of memory that it takes, or will take from the first tag on.
    pub(super) fn memory_bytes(&self) -> usize {
        self.line_count * size_of::<Line>()
    }

    /// Changes about how many tags it keeps.
    pub(super) fn set_capacity(&mut self, tags: usize) {
        let line_count = tags.div_ceil(TAGS_PER_LINE);
        if line_count.abs_diff(self.line_count) * RESIZE_DIVISOR > self.line_count {
            self.line_count = line_count;
            for line in std::mem::take(&mut self.lines) {
                let (younger, older) = line.tags.split_at(usize::from(line.oldest));
                older.iter().chain(younger).for_each(|tag| self.remember(*tag));
            }
        }
    }

    /// Remembers a tag.
    pub(super) fn remember(&mut self, tag: u32) {
        if tag == 0 {
            return;
        }
        if self.lines.is_empty() {
            self.lines = vec![Line::default(); self.line_count];
        }
        let Some(line) = self.line_of(tag) else {
            return;
        };
        if let Some(oldest) = line.tags.get_mut(usize::from(line.oldest)) {
            *oldest = tag;
        }
        line.oldest = (line.oldest + 1) % TAGS_PER_LINE as u8;
    }

    /// Whether the tag is remembered; the call removes it.
    pub(super) fn forget(&mut self, tag: u32) -> bool {
        let found = self.line_of(tag).and_then(|line| line.tags.iter_mut().find(|t| **t == tag));
        found.filter(|found| **found != 0).is_some_and(|found| std::mem::take(found) != 0)
    }

    fn line_of(&mut self, tag: u32) -> Option<&mut Line> {
        // The high half of the product: the line by the high bits of the tag.
        let index = (u64::from(tag) * self.lines.len() as u64) >> u32::BITS;
        self.lines.get_mut(index as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_remembered_once_and_survives_a_resize() {
        let mut ghost = GhostTags::default();
        ghost.remember(7);
        assert!(!ghost.forget(7), "no capacity");
        ghost.set_capacity(64);
        ghost.remember(7);
        ghost.set_capacity(640);
        assert!(ghost.forget(7));
        assert!(!ghost.forget(7));
    }

    #[test]
    fn the_oldest_tag_of_a_line_is_overwritten() {
        let mut ghost = GhostTags::default();
        ghost.set_capacity(TAGS_PER_LINE);
        for tag in 1..=TAGS_PER_LINE as u32 + 1 {
            ghost.remember(tag);
        }
        assert!(!ghost.forget(1));
        assert!(ghost.forget(2));
    }
}
