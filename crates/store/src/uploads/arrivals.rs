//! Uploads in the order of their arrival, with the sums and bounds needed to grant memory.
//!
//! Whether an upload may have more depends on all older and all younger ones. A tree over the order of arrival
//! keeps a summary of each span of uploads, so that a query and a change cost the logarithm of their number: with
//! nine hundred waiting uploads each query would otherwise walk all nine hundred. A few uploads have no tree:
//! walking them costs less than maintaining one.

use std::ops::Range;

use crate::request::Seconds;

/// Maximum number of uploads without a tree. One upload changes four times and queries once: at this number the
/// walk costs as much as the tree.
const WALKED_MAX: usize = 32;

/// One upload as the others see it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) held_bytes: u64,
    pub(super) missing_bytes: u64,
    pub(super) last: Seconds,
    pub(super) waits: bool,
}

/// The summary of a span of uploads.
#[derive(Debug, Clone, Copy)]
pub(super) struct RangeSummary {
    /// The bytes that they hold.
    pub(super) held_bytes: u64,
    /// Free bytes with which each could be completed after those of the span that are older.
    pub(super) needed_bytes: u64,
    /// When the longest waiting one had its last piece; `u32::MAX` if none waits.
    pub(super) waits_since: u32,
    /// Whether it waits, its last progress, and its index: smallest for the idlest. The index is `usize::MAX` if
    /// there is none.
    idlest: (bool, u32, usize),
    /// When one that holds anything had its last piece.
    pub(super) progressed: Option<u32>,
}

impl RangeSummary {
    const EMPTY: RangeSummary = RangeSummary {
        held_bytes: 0,
        needed_bytes: 0,
        waits_since: u32::MAX,
        idlest: (true, u32::MAX, usize::MAX),
        progressed: None,
    };

    fn of(open: &Open, index: usize) -> RangeSummary {
        RangeSummary {
            held_bytes: open.held_bytes,
            needed_bytes: open.missing_bytes,
            waits_since: if open.waits { open.last.0 } else { u32::MAX },
            idlest: (open.waits, open.last.0, index),
            progressed: (open.held_bytes > 0).then_some(open.last.0),
        }
    }

    /// Both, `self` being the older one.
    fn then(&self, later: &RangeSummary) -> RangeSummary {
        let needed_later = later.needed_bytes.saturating_sub(self.held_bytes);
        RangeSummary {
            held_bytes: self.held_bytes + later.held_bytes,
            needed_bytes: self.needed_bytes.max(needed_later),
            waits_since: self.waits_since.min(later.waits_since),
            idlest: self.idlest.min(later.idlest),
            progressed: self.progressed.max(later.progressed),
        }
    }
}

/// The open uploads.
#[derive(Default)]
pub(super) struct Arrivals {
    next: u64,
    /// Numbers by index, rising; those of indexes that were never taken are missing.
    ids: Vec<u64>,
    /// By index; `None` if the upload ended, which occurs only with a tree.
    open: Vec<Option<Open>>,
    /// The tree: the whole at 1, the halves of `n` at `2 n` and `2 n + 1`, indexes in the second half. Empty while
    /// there are at most [`WALKED_MAX`] indexes.
    tree: Vec<RangeSummary>,
    /// Spans examined and changed, for tests.
    #[cfg(test)]
    pub(super) steps: std::cell::Cell<u64>,
}

impl Arrivals {
    /// Adds the next upload and returns its number.
    pub(super) fn enter(&mut self, open: Open) -> u64 {
        if self.ids.len() >= WALKED_MAX.max(self.tree.len() / 2) {
            self.rebuild();
        }
        let id = self.next;
        self.next += 1;
        self.ids.push(id);
        self.open.push(Some(open));
        self.note(self.ids.len() - 1);
        id
    }

    /// Removes an upload.
    pub(super) fn leave(&mut self, id: u64) -> Option<Open> {
        let index = self.index_of(id)?;
        if self.tree.is_empty() {
            self.ids.remove(index);
            return self.open.remove(index);
        }
        let open = self.open.get_mut(index)?.take()?;
        self.note(index);
        Some(open)
    }

    pub(super) fn get(&self, id: u64) -> Option<Open> {
        *self.open.get(self.index_of(id)?)?
    }

    /// Changes an upload that is open.
    pub(super) fn change(&mut self, id: u64, change: impl FnOnce(&mut Open)) {
        if let Some(index) = self.index_of(id)
            && let Some(Some(open)) = self.open.get_mut(index)
        {
            change(open);
            self.note(index);
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> RangeSummary {
        if self.tree.is_empty() {
            return self.walk(0..self.ids.len());
        }
        self.span(1)
    }

    /// The older ones and the younger ones than `id`.
    pub(super) fn update_path(&self, id: u64) -> Option<(RangeSummary, RangeSummary)> {
        let index = self.index_of(id)?;
        if self.tree.is_empty() {
            return Some((self.walk(0..index), self.walk(index + 1..self.ids.len())));
        }
        let (mut before, mut after) = (RangeSummary::EMPTY, RangeSummary::EMPTY);
        let mut node = self.tree.len() / 2 + index;
        while node > 1 {
            let sibling = self.span(node ^ 1);
            if node % 2 == 1 {
                before = sibling.then(&before);
            } else {
                after = after.then(&sibling);
            }
            node /= 2;
        }
        Some((before, after))
    }

    /// The idlest, as [`crate::Store::idlest_upload`] defines it.
    pub(super) fn idlest(&self) -> Option<(u64, Open)> {
        let (_, _, index) = self.all().idlest;
        Some((*self.ids.get(index)?, (*self.open.get(index)?)?))
    }

    fn index_of(&self, id: u64) -> Option<usize> {
        self.ids.binary_search(&id).ok()
    }

    /// The summary that the tree would have of the uploads at `indexes`.
    fn walk(&self, indexes: Range<usize>) -> RangeSummary {
        let open = self.open.get(indexes.clone()).unwrap_or_default();
        let each = indexes.zip(open).filter_map(|(index, open)| {
            self.step();
            Some(RangeSummary::of(open.as_ref()?, index))
        });
        each.fold(RangeSummary::EMPTY, |all, one| all.then(&one))
    }

    fn span(&self, node: usize) -> RangeSummary {
        self.step();
        self.tree.get(node).copied().unwrap_or(RangeSummary::EMPTY)
    }

    /// Updates the tree for the upload at `index`.
    fn note(&mut self, index: usize) {
        if self.tree.is_empty() {
            return;
        }
        let mut node = self.tree.len() / 2 + index;
        let open = self.open.get(index).copied().flatten();
        let mut span = open.map_or(RangeSummary::EMPTY, |open| RangeSummary::of(&open, index));
        loop {
            if let Some(own) = self.tree.get_mut(node) {
                *own = span;
            }
            node /= 2;
            if node == 0 {
                return;
            }
            span = self.span(2 * node).then(&self.span(2 * node + 1));
        }
    }

    /// Closes the gaps of ended uploads; half of the indexes are free afterwards. A few that are left need no tree.
    fn rebuild(&mut self) {
        let live = |(&id, open): (&u64, &Option<Open>)| open.map(|open| (id, open));
        let left: Vec<(u64, Open)> = self.ids.iter().zip(&self.open).filter_map(live).collect();
        self.ids = left.iter().map(|&(id, _)| id).collect();
        self.open = left.iter().map(|&(_, open)| Some(open)).collect();
        self.tree = Vec::new();
        if left.len() < WALKED_MAX / 2 {
            return;
        }
        let indexes = (2 * left.len()).next_power_of_two();
        self.tree = vec![RangeSummary::EMPTY; 2 * indexes];
        for (index, (_, open)) in left.iter().enumerate() {
            if let Some(own) = self.tree.get_mut(indexes + index) {
                *own = RangeSummary::of(open, index);
            }
        }
        for node in (1..indexes).rev() {
            let both = self.span(2 * node).then(&self.span(2 * node + 1));
            if let Some(own) = self.tree.get_mut(node) {
                *own = both;
            }
        }
    }

    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, reason = "steps are counted in tests only")
    )]
    fn step(&self) {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
    }
}
