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
const WALKED_UPLOADS_MAX: usize = 32;

/// One upload as the others see it.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenUpload {
    pub(super) held_bytes: u64,
    pub(super) missing_bytes: u64,
    pub(super) last_progress: Seconds,
    pub(super) is_waiting: bool,
}

/// The summary of a span of uploads.
#[derive(Debug, Clone, Copy)]
pub(super) struct RangeSummary {
    /// The bytes that these uploads hold.
    pub(super) held_bytes: u64,
    /// Free bytes with which each could be completed after those of the span that are older.
    pub(super) needed_bytes: u64,
    /// When the longest waiting one had its last piece; `u32::MAX` if none waits.
    pub(super) waits_since: u32,
    /// Whether it waits, its last progress, and its index: smallest for the idlest. The index is `usize::MAX` if
    /// there is none.
    idlest: (bool, u32, usize),
    /// When one that holds anything had its last piece.
    pub(super) latest_progress: Option<u32>,
}

impl RangeSummary {
    const EMPTY: RangeSummary = RangeSummary {
        held_bytes: 0,
        needed_bytes: 0,
        waits_since: u32::MAX,
        idlest: (true, u32::MAX, usize::MAX),
        latest_progress: None,
    };

    fn from_upload(upload: &OpenUpload, index: usize) -> RangeSummary {
        RangeSummary {
            held_bytes: upload.held_bytes,
            needed_bytes: upload.missing_bytes,
            waits_since: if upload.is_waiting { upload.last_progress.0 } else { u32::MAX },
            idlest: (upload.is_waiting, upload.last_progress.0, index),
            latest_progress: (upload.held_bytes > 0).then_some(upload.last_progress.0),
        }
    }

    /// The summary of both, `self` being the older one.
    fn followed_by(&self, later: &RangeSummary) -> RangeSummary {
        let needed_later = later.needed_bytes.saturating_sub(self.held_bytes);
        RangeSummary {
            held_bytes: self.held_bytes + later.held_bytes,
            needed_bytes: self.needed_bytes.max(needed_later),
            waits_since: self.waits_since.min(later.waits_since),
            idlest: self.idlest.min(later.idlest),
            latest_progress: self.latest_progress.max(later.latest_progress),
        }
    }
}

/// The open uploads.
#[derive(Default)]
pub(super) struct UploadsByArrival {
    next_id: u64,
    /// Numbers by index, rising; those of indexes that were never taken are missing.
    ids: Vec<u64>,
    /// By index; `None` if the upload ended, which occurs only with a tree.
    uploads: Vec<Option<OpenUpload>>,
    /// The tree: the whole at 1, the halves of `n` at `2 n` and `2 n + 1`, indexes in the second half. Empty while
    /// there are at most [`WALKED_UPLOADS_MAX`] indexes.
    tree: Vec<RangeSummary>,
    /// Spans examined and changed, for tests.
    #[cfg(test)]
    pub(super) steps: std::cell::Cell<u64>,
}

impl UploadsByArrival {
    /// Adds the next upload and returns its number.
    pub(super) fn add(&mut self, upload: OpenUpload) -> u64 {
        if self.ids.len() >= WALKED_UPLOADS_MAX.max(self.tree.len() / 2) {
            self.rebuild();
        }
        let id = self.next_id;
        self.next_id += 1;
        self.ids.push(id);
        self.uploads.push(Some(upload));
        self.update_tree(self.ids.len() - 1);
        id
    }

    /// Removes an upload.
    pub(super) fn remove(&mut self, id: u64) -> Option<OpenUpload> {
        let index = self.index_of(id)?;
        if self.tree.is_empty() {
            self.ids.remove(index);
            return self.uploads.remove(index);
        }
        let upload = self.uploads.get_mut(index)?.take()?;
        self.update_tree(index);
        Some(upload)
    }

    pub(super) fn get(&self, id: u64) -> Option<OpenUpload> {
        *self.uploads.get(self.index_of(id)?)?
    }

    /// Changes an upload that is open.
    pub(super) fn update(&mut self, id: u64, change: impl FnOnce(&mut OpenUpload)) {
        if let Some(index) = self.index_of(id)
            && let Some(Some(upload)) = self.uploads.get_mut(index)
        {
            change(upload);
            self.update_tree(index);
        }
    }

    /// The summary of all uploads.
    pub(super) fn summary(&self) -> RangeSummary {
        if self.tree.is_empty() {
            return self.summarize_walk(0..self.ids.len());
        }
        self.node_summary(1)
    }

    /// The summaries of the uploads older and younger than `id`.
    pub(super) fn summaries_around(&self, id: u64) -> Option<(RangeSummary, RangeSummary)> {
        let index = self.index_of(id)?;
        if self.tree.is_empty() {
            return Some((
                self.summarize_walk(0..index),
                self.summarize_walk(index + 1..self.ids.len()),
            ));
        }
        let (mut older, mut younger) = (RangeSummary::EMPTY, RangeSummary::EMPTY);
        let mut node = self.tree.len() / 2 + index;
        while node > 1 {
            let sibling = self.node_summary(node ^ 1);
            if node % 2 == 1 {
                older = sibling.followed_by(&older);
            } else {
                younger = younger.followed_by(&sibling);
            }
            node /= 2;
        }
        Some((older, younger))
    }

    /// The idlest, as [`crate::Store::idlest_upload`] defines it.
    pub(super) fn idlest(&self) -> Option<(u64, OpenUpload)> {
        let (_, _, index) = self.summary().idlest;
        Some((*self.ids.get(index)?, (*self.uploads.get(index)?)?))
    }

    fn index_of(&self, id: u64) -> Option<usize> {
        self.ids.binary_search(&id).ok()
    }

    /// The summary that the tree would have of the uploads at `indexes`.
    fn summarize_walk(&self, indexes: Range<usize>) -> RangeSummary {
        let uploads = self.uploads.get(indexes.clone()).unwrap_or_default();
        let summaries = indexes.zip(uploads).filter_map(|(index, upload)| {
            self.count_step();
            Some(RangeSummary::from_upload(upload.as_ref()?, index))
        });
        summaries.fold(RangeSummary::EMPTY, |older, younger| older.followed_by(&younger))
    }

    fn node_summary(&self, node: usize) -> RangeSummary {
        self.count_step();
        self.tree.get(node).copied().unwrap_or(RangeSummary::EMPTY)
    }

    /// Updates the tree for the upload at `index`.
    fn update_tree(&mut self, index: usize) {
        if self.tree.is_empty() {
            return;
        }
        let mut node = self.tree.len() / 2 + index;
        let upload = self.uploads.get(index).copied().flatten();
        let mut span =
            upload.map_or(RangeSummary::EMPTY, |upload| RangeSummary::from_upload(&upload, index));
        loop {
            if let Some(node_summary) = self.tree.get_mut(node) {
                *node_summary = span;
            }
            node /= 2;
            if node == 0 {
                return;
            }
            span = self.node_summary(2 * node).followed_by(&self.node_summary(2 * node + 1));
        }
    }

    /// Closes the gaps of ended uploads; half of the indexes are free afterwards. A few that are left need no tree.
    fn rebuild(&mut self) {
        let pair_with_id =
            |(&id, upload): (&u64, &Option<OpenUpload>)| upload.map(|upload| (id, upload));
        let open_uploads: Vec<(u64, OpenUpload)> =
            self.ids.iter().zip(&self.uploads).filter_map(pair_with_id).collect();
        self.ids = open_uploads.iter().map(|&(id, _)| id).collect();
        self.uploads = open_uploads.iter().map(|&(_, upload)| Some(upload)).collect();
        self.tree = Vec::new();
        if open_uploads.len() < WALKED_UPLOADS_MAX / 2 {
            return;
        }
        let index_count = (2 * open_uploads.len()).next_power_of_two();
        self.tree = vec![RangeSummary::EMPTY; 2 * index_count];
        for (index, (_, upload)) in open_uploads.iter().enumerate() {
            if let Some(node_summary) = self.tree.get_mut(index_count + index) {
                *node_summary = RangeSummary::from_upload(upload, index);
            }
        }
        for node in (1..index_count).rev() {
            let merged = self.node_summary(2 * node).followed_by(&self.node_summary(2 * node + 1));
            if let Some(node_summary) = self.tree.get_mut(node) {
                *node_summary = merged;
            }
        }
    }

    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "steps are counted in tests only"))]
    fn count_step(&self) {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
    }
}
