//! Storing values: the decisions of `set`, `add`, `replace`, `append`, `prepend` and their conditions.

use crate::accounting::ItemAccounting;
use crate::chain::ValuePart;
use crate::counters::CounterId;
use crate::item::bits;
use crate::lookup::LocatedItem;
use crate::memory::Addr;
use crate::request::{CasUnique, Expiry, KeyHash, NoRoomYet, SetMode, SetOptions, SetOutcome};
use crate::write::{NewCopy, PublishedCopy, RetryReason, WriteOperation};

/// Appending to a chain rewrites its last piece while that is shorter than this, so that a key appended to in a
/// loop has few pieces and each append copies little.
const APPEND_PIECE_BYTES: usize = 8 << 10;

/// A value to be stored.
pub(crate) struct SetOperation<'a> {
    pub(crate) value_parts: &'a [ValuePart<'a>],
    pub(crate) options: &'a SetOptions,
}

/// The properties of the copy that a plain write decides besides its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overwrite {
    expiry: Expiry,
    state_bits: u16,
    inherited_bits: u16,
}

impl Overwrite {
    fn plain(expiry: Expiry) -> Self {
        Overwrite { expiry, state_bits: 0, inherited_bits: 0 }
    }
}

impl SetOperation<'_> {
    /// Decides what the write does, and publishes the new copy.
    #[inline]
    pub(crate) fn run(&self, write: &mut WriteOperation<'_>) -> Result<SetOutcome, NoRoomYet> {
        write.run(
            |write| self.try_set(write),
            |write, _| {
                refuse(write.allocator.context.accounting, write.key, write.hash, self.options)
            },
        )
    }

    fn try_set(&self, write: &WriteOperation<'_>) -> Result<SetOutcome, RetryReason> {
        let options = self.options;
        let overwrite = match (options.mode, write.found.live_item()) {
            (SetMode::Add, Some(old)) => {
                write.store().record_use(write.key, write.hash, old.addr);
                write.store().record_access(&old, 0, write.now());
                return Ok(SetOutcome::NotStored);
            }
            (SetMode::Append | SetMode::Prepend, Some(old)) => {
                return self.append_or_prepend(write, &old);
            }
            (SetMode::Append | SetMode::Prepend, None) => match options.vivify {
                Some(expiry) => Overwrite::plain(expiry),
                None => return Ok(SetOutcome::NotStored),
            },
            (SetMode::Set | SetMode::Replace, Some(old)) => {
                match self.decide_overwrite(write, &old) {
                    Ok(decided) => decided,
                    Err(outcome) => return Ok(outcome),
                }
            }
            (SetMode::Set | SetMode::Replace, None) if options.required_cas.is_some() => {
                return Ok(SetOutcome::NotFound);
            }
            (SetMode::Replace, None) => return Ok(SetOutcome::NotStored),
            (SetMode::Set | SetMode::Add, None) => Overwrite::plain(options.expiry),
        };
        self.overwrite(write, overwrite).map(stored_outcome)
    }

    /// Decides by the CAS unique, for `cas`, `ms C` and `ms C I`, whether and how the item is overwritten.
    pub(crate) fn decide_overwrite(
        &self,
        write: &WriteOperation<'_>,
        old: &LocatedItem,
    ) -> Result<Overwrite, SetOutcome> {
        let present_unique = write.store().unique_of(old);
        match self.options.required_cas {
            Some(CasUnique(required_unique)) if required_unique != present_unique => {
                if !(self.options.invalidate && required_unique < present_unique) {
                    return Err(SetOutcome::Exists);
                }
                // An older unique with `I` stores, marks stale, and leaves expiry and a sent win unchanged; the win
                // as it is at the moment of publication, because it may be sent until then.
                Ok(Overwrite {
                    expiry: old.header.expiry,
                    state_bits: bits::STALE,
                    inherited_bits: bits::WIN,
                })
            }
            _ => Ok(Overwrite::plain(self.options.expiry)),
        }
    }

    /// Replaces the item that was found by the value.
    pub(crate) fn overwrite(
        &self,
        write: &WriteOperation<'_>,
        overwrite: Overwrite,
    ) -> Result<PublishedCopy, RetryReason> {
        write.publish(&NewCopy {
            flags: self.options.flags,
            expiry: overwrite.expiry,
            unique_source: write.unique_source(self.options.new_unique),
            state_bits: overwrite.state_bits | bits::exposed_bit(self.options.hides_unique),
            inherited_bits: overwrite.inherited_bits,
            last_access: write.now(),
            parts: self.value_parts,
            is_growing: false,
            is_same_item: false,
        })
    }

    /// Prepends or appends the value to the item that was found.
    fn append_or_prepend(
        &self,
        write: &WriteOperation<'_>,
        old: &LocatedItem,
    ) -> Result<SetOutcome, RetryReason> {
        let (options, store) = (self.options, write.store());
        if options
            .required_cas
            .is_some_and(|required_unique| required_unique.0 != store.unique_of(old))
        {
            return Ok(SetOutcome::Exists);
        }
        let added_bytes: usize = self.value_parts.iter().map(|part| part.len(store)).sum();
        let total_bytes = old.header.value_bytes as usize + added_bytes;
        if store.is_too_large(write.key, total_bytes, old.header.flags) {
            // memcached's reply to an append without memory; the old value stays.
            return Ok(SetOutcome::NotStored);
        }
        let old_pieces: Vec<Addr> = store.pieces_of(old).collect();
        let short_piece_bytes = APPEND_PIECE_BYTES.min(store.arena().segment_bytes() / 4);
        let is_short = |piece: &&Addr| store.piece_data_bytes(**piece) < short_piece_bytes;
        let inline_part = ValuePart::Bytes(store.inline_value(old));
        let piece_part = |piece: Option<&Addr>| {
            ValuePart::Bytes(piece.map_or(&[], |&piece| store.piece_data(piece)))
        };
        let new_parts: Vec<ValuePart<'_>> = if options.mode == SetMode::Append {
            let short_last_piece = old_pieces.last().filter(is_short);
            let kept_pieces = old_pieces
                .get(..old_pieces.len() - usize::from(short_last_piece.is_some()))
                .unwrap_or_default();
            [inline_part, ValuePart::Pieces(kept_pieces), piece_part(short_last_piece)]
                .iter()
                .chain(self.value_parts)
                .copied()
                .collect()
        } else {
            let short_first_piece = old_pieces.first().filter(is_short);
            let kept_pieces =
                old_pieces.get(usize::from(short_first_piece.is_some())..).unwrap_or_default();
            self.value_parts
                .iter()
                .chain(&[
                    inline_part,
                    piece_part(short_first_piece),
                    ValuePart::Pieces(kept_pieces),
                ])
                .copied()
                .collect()
        };
        let new_copy = NewCopy {
            flags: old.header.flags,
            expiry: old.header.expiry,
            unique_source: write.unique_source(options.new_unique),
            state_bits: bits::exposed_bit(options.hides_unique),
            inherited_bits: 0,
            last_access: write.now(),
            parts: &new_parts,
            is_growing: true,
            is_same_item: false,
        };
        write.publish(&new_copy).map(stored_outcome)
    }
}

fn stored_outcome(stored: PublishedCopy) -> SetOutcome {
    SetOutcome::Stored(stored.unique)
}

/// Counts a refusal and returns the outcome of a write that got no segment.
#[cold]
pub(crate) fn refuse(
    accounting: &ItemAccounting,
    key: &[u8],
    hash: KeyHash,
    options: &SetOptions,
) -> SetOutcome {
    accounting.count(CounterId::Refused, 1);
    remove_refused(accounting, key, hash, options);
    SetOutcome::NoMemory
}

/// Removes the old value of a plain set that fails, because it would be out of date; other writes leave it, as in
/// memcached.
pub(crate) fn remove_refused(
    accounting: &ItemAccounting,
    key: &[u8],
    hash: KeyHash,
    options: &SetOptions,
) {
    if options.mode == SetMode::Set && options.required_cas.is_none() {
        accounting.remove_key(key, hash);
    }
}
