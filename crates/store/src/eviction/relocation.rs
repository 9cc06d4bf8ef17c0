//! Moving the records that a sweep keeps.
//!
//! A copy is published in place of the original, if that is still current. A piece has no slot of its own: its head
//! is rewritten, with the copy's address in its table.

use std::cell::Cell;

use crate::item::{PIECE_HEADER_BYTES, bits, piece_record_bytes};
use crate::lookup::LocatedItem;
use crate::memory::Addr;
use crate::open_segments::{NewRecord, RecordBody, SegmentKind, SegmentRequest, UniqueSource};
use crate::publish::{Publication, WriteContext};
use crate::request::KeyHash;
use crate::store::Store;

/// The result of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyOutcome {
    /// It is published in place of the original.
    Done,
    /// The item was replaced or removed by others meanwhile.
    Changed,
    /// No segment is free for it.
    NoRoom,
}

/// An item that a sweep keeps, while it is moved.
pub(super) struct Relocation<'a> {
    pub(super) context: WriteContext<'a>,
    /// Counts the bytes written for it.
    pub(super) written_bytes: &'a Cell<usize>,
    /// The position in the queue of the segment that is swept.
    pub(super) queue_position: u64,
    pub(super) hash: KeyHash,
    pub(super) item: &'a LocatedItem,
    /// The kind of its target segment, and its frequency there.
    pub(super) segment_kind: SegmentKind,
    pub(super) frequency: u8,
}

impl Relocation<'_> {
    /// Copies the item.
    pub(super) fn copy_item(&self) -> CopyOutcome {
        let (store, item) = (self.context.accounting.store(), self.item);
        let pieces: Vec<Addr> = store.pieces_of(item).collect();
        let value = [store.inline_value(item)];
        let body = if item.header.is_chained {
            RecordBody::Chain { value_bytes: item.header.value_bytes, pieces: &pieces }
        } else {
            RecordBody::Inline(&value)
        };
        self.replace_record(body, &pieces)
    }

    /// Copies the piece at `addr` and writes a new head, which names the copy.
    pub(super) fn copy_piece(&self, addr: Addr) -> CopyOutcome {
        let store = self.context.accounting.store();
        let data = store.piece_data(addr);
        let mut copies = Vec::new();
        let mut copied_bytes = 0;
        while let Some(remaining) =
            data.get(copied_bytes..).filter(|remaining| !remaining.is_empty())
        {
            let appender = self.context.appender;
            let appended = appender.append_piece(
                self.segment_kind,
                self.hash,
                remaining.len(),
                self.segment_request(),
            );
            let Some((piece, len)) = appended else {
                break;
            };
            store
                .arena()
                .write(piece.plus(PIECE_HEADER_BYTES), remaining.get(..len).unwrap_or_default());
            self.count_written(piece_record_bytes(len));
            copies.push(piece);
            copied_bytes += len;
        }
        let old_pieces = store.pieces_of(self.item);
        let mut pieces = Vec::with_capacity(old_pieces.len() + copies.len());
        for piece in old_pieces {
            if piece == addr {
                pieces.extend_from_slice(&copies);
            } else {
                pieces.push(piece);
            }
        }
        let body = RecordBody::Chain { value_bytes: self.item.header.value_bytes, pieces: &pieces };
        let outcome = if copied_bytes == data.len() {
            self.replace_record(body, &pieces)
        } else {
            CopyOutcome::NoRoom
        };
        for &piece in &copies {
            if outcome != CopyOutcome::Done {
                store.segments.count_dead(piece, piece_record_bytes(store.piece_data_bytes(piece)));
            }
            store.segments.unpin(piece);
        }
        outcome
    }

    /// Appends a copy with this body and publishes it in place of the original, which is released without `kept_pieces`.
    fn replace_record(&self, body: RecordBody<'_>, kept_pieces: &[Addr]) -> CopyOutcome {
        let (store, item) = (self.context.accounting.store(), self.item);
        let new_record = NewRecord {
            key: store.key_of(item),
            flags: item.header.flags,
            expiry: item.header.expiry,
            unique_source: store.unique_for_copy(item),
            state_bits: 0,
            last_access: Store::access_of(item, store.state_word_of(item.addr)),
            body,
        };
        let has_new_unique = matches!(new_record.unique_source, UniqueSource::Renewed(_));
        let appender = self.context.appender;
        let Some(appended) =
            appender.append(self.segment_kind, &new_record, self.segment_request())
        else {
            return CopyOutcome::NoRoom;
        };
        self.count_written(appended.bytes);
        let publication = Publication {
            key: new_record.key,
            hash: self.hash,
            expected_addr: Some(item.addr),
            new_addr: appended.addr,
            frequency: Some(self.frequency),
            inherited_bits: bits::COPIED_MARKS,
            only_if_expected_unflushed: true,
            has_new_unique,
        };
        if publication.publish(self.context) {
            let accounting = self.context.accounting;
            accounting.count_new(&store.locate(appended.addr));
            accounting.release_item_except(item, kept_pieces);
            CopyOutcome::Done
        } else {
            appender.undo_append(&appended);
            if has_new_unique && store.is_unique_exposed(item.addr) {
                // Exposed while it was copied: once more, with the same unique.
                return self.replace_record(body, kept_pieces);
            }
            CopyOutcome::Changed
        }
    }

    fn count_written(&self, bytes: usize) {
        self.written_bytes.set(self.written_bytes.get() + bytes);
    }

    /// A sweep may take the last segments, and a segment that it opens has the position of the victim.
    fn segment_request(&self) -> SegmentRequest {
        let holds_survivors =
            matches!(self.segment_kind, SegmentKind::SmallSurvivors | SegmentKind::MainSurvivors);
        SegmentRequest {
            spare_min: 0,
            base_time: self.item.base_time,
            queue_position: holds_survivors.then_some(self.queue_position),
            now: self.context.now,
        }
    }
}
