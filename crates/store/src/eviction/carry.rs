//! Carrying: how what a sweep keeps gets to its new place.
//!
//! A copy is published in the old one's place, if that still stands. A piece has no slot of its own: its head is
//! written anew, with the copy's address in its table.

use super::sweep::{Copied, Sweep, Waiting};
use crate::item::{PIECE_HEADER, bits, piece_bytes};
use crate::log::{Body, Draft, Log, Refill, Unique};
use crate::lookup::Located;
use crate::memory::Addr;
use crate::publish::Publication;
use crate::request::{KeyHash, Seconds};
use crate::{Store, Worker};

impl Worker {
    /// Copies an item.
    pub(super) fn move_item(
        &self,
        sweep: &Sweep,
        hash: KeyHash,
        item: &Located,
        log: Log,
        frequency: u8,
        now: Seconds,
    ) -> Copied {
        let store = &*self.store;
        let pieces: Vec<Addr> = store.pieces_of(item).collect();
        let value = [store.inline_value(item)];
        let body = if item.header.is_chained {
            Body::Chain {
                value_bytes: item.header.value_bytes,
                pieces: &pieces,
            }
        } else {
            Body::Inline(&value)
        };
        self.publish_copy(sweep, hash, item, body, &pieces, log, frequency, now)
    }

    #[expect(clippy::too_many_arguments, reason = "what a moved copy is made of")]
    fn publish_copy(
        &self,
        sweep: &Sweep,
        hash: KeyHash,
        item: &Located,
        body: Body<'_>,
        pieces: &[Addr],
        log: Log,
        frequency: u8,
        now: Seconds,
    ) -> Copied {
        let store = &*self.store;
        let draft = Draft {
            key: store.key_of(item),
            flags: item.header.flags,
            expiry: item.header.expiry,
            unique: store.carried_unique(item),
            marks: 0,
            access: Store::access_of(item, store.mutable_of(item.at)),
            body,
        };
        let is_renewed = matches!(draft.unique, Unique::Renewed(_));
        let Some(placed) = self
            .logs
            .place(store, log, &draft, now, refill(sweep, item, log))
        else {
            return Copied::NoRoom;
        };
        self.note_carried(placed.bytes);
        let publication = Publication {
            key: draft.key,
            hash,
            expected: Some(item.at),
            new: placed.at,
            frequency: Some(frequency),
            keeps: bits::MARKS,
            is_of_expected: true,
            is_renewed,
        };
        if self.publish(&publication, now) {
            self.account(&store.locate(placed.at), 1);
            self.forget(item, pieces);
            Copied::Done
        } else {
            self.logs.undo(store, &placed);
            if is_renewed && store.is_told(item.at) {
                // Told while it was copied: once more, with the unique as it is.
                return self.publish_copy(sweep, hash, item, body, pieces, log, frequency, now);
            }
            Copied::Overtaken
        }
    }

    /// Copies a piece and writes a new head that names the copy.
    pub(super) fn move_piece(
        &self,
        sweep: &Sweep,
        record: &Waiting,
        head: &Located,
        log: Log,
        frequency: u8,
        now: Seconds,
    ) -> Copied {
        let store = &*self.store;
        let data = store.piece_data(record.at);
        let mut own = Vec::new();
        let mut copied = 0;
        while let Some(rest) = data.get(copied..).filter(|rest| !rest.is_empty()) {
            let refill = refill(sweep, head, log);
            let Some((piece, len)) =
                self.logs
                    .place_piece(store, log, record.hash, rest.len(), now, refill)
            else {
                break;
            };
            store.arena().write(
                piece.plus(PIECE_HEADER),
                rest.get(..len).unwrap_or_default(),
            );
            self.note_carried(piece_bytes(len));
            own.push(piece);
            copied += len;
        }
        let before = store.pieces_of(head);
        let mut pieces = Vec::with_capacity(before.len() + own.len());
        for piece in before {
            if piece == record.at {
                pieces.extend_from_slice(&own);
            } else {
                pieces.push(piece);
            }
        }
        let body = Body::Chain {
            value_bytes: head.header.value_bytes,
            pieces: &pieces,
        };
        let outcome = if copied == data.len() {
            self.publish_copy(sweep, record.hash, head, body, &pieces, log, frequency, now)
        } else {
            Copied::NoRoom
        };
        for &piece in &own {
            if outcome != Copied::Done {
                store
                    .segments
                    .unlive(piece, piece_bytes(store.piece_data_bytes(piece)));
            }
            store.segments.unpin(piece);
        }
        outcome
    }
}

/// A mover may take the last segments, and what it opens starts where the victim did.
fn refill(sweep: &Sweep, item: &Located, log: Log) -> Refill {
    let order = matches!(log, Log::AgedSmall | Log::AgedMain).then_some(sweep.order);
    Refill {
        floor: 0,
        base: item.base,
        order,
    }
}
