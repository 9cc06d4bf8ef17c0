//! The audit: every byte of the arena counted once, every item found exactly once. For tests and `strict`.

use std::collections::HashSet;

use crate::item::{Record, piece_record_bytes};
use crate::memory::{Addr, SegmentId};
use crate::request::KeyHash;
use crate::segments::SegmentState;
use crate::store::Store;
use crate::worker::Worker;

/// How the bytes of an arena are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Audit {
    /// Records that a slot, or a chained item named by a slot, refers to.
    pub live_bytes: usize,
    /// Records that nothing refers to.
    pub dead_bytes: usize,
    /// Bytes not yet written in open segments, and unused ends of sealed ones.
    pub open_bytes: usize,
    /// Free segments, segments that wait for readers, and segments never used.
    pub free_bytes: usize,
    /// Segments of the index and of the ghost.
    pub line_bytes: usize,
    /// Items, each found once in the index and once in a segment.
    pub items: usize,
}

impl Audit {
    /// The bytes of the whole arena.
    pub fn total(&self) -> usize {
        self.live_bytes + self.dead_bytes + self.open_bytes + self.free_bytes + self.line_bytes
    }
}

#[allow(clippy::panic, reason = "a check for tests: it fails by a panic")]
impl Store {
    /// Counts everything. `workers` are all workers, and none of them runs meanwhile.
    ///
    /// # Panics
    /// If a byte is counted twice or not at all, or an item is lost or found twice.
    pub fn audit(&self, workers: &[&Worker]) -> Audit {
        let mut audit = Audit::default();
        let segment_bytes = self.arena().segment_bytes();
        let mut open_segments = Vec::new();
        for worker in workers {
            worker.appender.list_segments(|id, used_bytes| open_segments.push((id, used_bytes)));
        }
        let mut live_items = HashSet::new();
        let mut segment_count = 0;
        for view in self.segments.list_segments() {
            let open_used_bytes = open_segments
                .iter()
                .find(|(id, _)| *id == view.id)
                .map(|(_, used_bytes)| *used_bytes);
            let used_bytes = match open_used_bytes {
                Some(used_bytes) => used_bytes,
                None if view.has_state(SegmentState::Sealed)
                    || view.has_state(SegmentState::Sweeping) =>
                {
                    view.used_bytes
                }
                None => {
                    assert!(
                        !view.has_state(SegmentState::Open),
                        "an open segment that no worker knows"
                    );
                    let category_bytes = if view.has_state(SegmentState::Lines) {
                        &mut audit.line_bytes
                    } else {
                        &mut audit.free_bytes
                    };
                    *category_bytes += segment_bytes;
                    segment_count += 1;
                    continue;
                }
            };
            let live_bytes = self.audit_segment(view.id, used_bytes, &mut live_items);
            assert_eq!(live_bytes, view.live_bytes, "live bytes of segment {:?}", view.id);
            audit.live_bytes += live_bytes;
            audit.dead_bytes += used_bytes - live_bytes;
            audit.open_bytes += segment_bytes - used_bytes;
            segment_count += 1;
        }
        audit.free_bytes += (self.arena().segment_count() - segment_count) * segment_bytes;
        assert_eq!(
            audit.total(),
            self.arena().segment_count() * segment_bytes,
            "a byte counted twice or not at all"
        );
        audit.items = self.audit_index(&live_items);
        assert_eq!(
            audit.items as u64,
            self.counters().items,
            "items in the index and in the counters"
        );
        assert_eq!(
            audit.line_bytes / segment_bytes,
            self.index.segment_count() + self.ghost.segment_count()
        );
        audit
    }

    /// Walks a segment; notes the items that are alive, and returns their bytes and those of living pieces.
    fn audit_segment(
        &self,
        id: SegmentId,
        used_bytes: usize,
        live_items: &mut HashSet<Addr>,
    ) -> usize {
        let start = self.arena().segment_start(id);
        let (mut offset, mut live_bytes) = (0, 0);
        while offset < used_bytes {
            let addr = start.plus(offset);
            let (record_bytes, is_live) = match self.record_at(addr) {
                Some(Record::Piece { data_bytes, hash }) => {
                    (piece_record_bytes(data_bytes), self.has_owner(addr, KeyHash(hash)))
                }
                Some(Record::Item) => {
                    let item = self.locate(addr);
                    let hash = self.hash(self.key_of(&item));
                    let is_live = self.index.find(hash, |slot_addr| slot_addr == addr).is_some();
                    if is_live {
                        assert!(live_items.insert(addr), "an item found twice");
                    }
                    (self.record_bytes(&item), is_live)
                }
                None => panic!("no record at {addr:?}"),
            };
            offset += record_bytes;
            live_bytes += if is_live { record_bytes } else { 0 };
        }
        assert_eq!(offset, used_bytes, "a record runs over the end of its segment");
        live_bytes
    }

    fn has_owner(&self, piece: Addr, hash: KeyHash) -> bool {
        let owns = |addr| {
            let item = self.locate(addr);
            item.header.is_chained && self.pieces_of(&item).any(|item_piece| item_piece == piece)
        };
        self.index.find(hash, owns).is_some()
    }

    /// Every slot names an item that was found, no two the same.
    fn audit_index(&self, live_items: &HashSet<Addr>) -> usize {
        let (mut cursor, mut seen_addresses, mut entries) = (Some(0), HashSet::new(), Vec::new());
        while let Some(walk_cursor) = cursor {
            let bucket_count =
                self.index.entries_of(KeyHash(u64::reverse_bits(walk_cursor)), &mut entries);
            cursor = crate::index::next_cursor(walk_cursor, bucket_count);
            for entry in &entries {
                assert!(
                    live_items.contains(&entry.item_addr()),
                    "a slot names what is not in a segment"
                );
                assert!(seen_addresses.insert(entry.item_addr()), "two slots name one item");
            }
        }
        assert_eq!(
            seen_addresses.len(),
            live_items.len(),
            "an item that no walk of the index finds"
        );
        seen_addresses.len()
    }
}
