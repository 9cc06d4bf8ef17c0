//! Deleting: the decisions of `delete` and meta `md`, whether an item is removed, marked stale, or kept without a
//! value.

use crate::accounting::ItemAccounting;
use crate::chain::ValuePart;
use crate::counters::CounterId;
use crate::item::bits;
use crate::lookup::LocatedItem;
use crate::open_segments::UniqueSource;
use crate::request::{DeleteOptions, DeleteOutcome, Expiry, KeyHash, NoRoomYet};
use crate::sampling::{EventKind, Operation};
use crate::write::{CopyChanges, NewCopy, PublishedCopy, RetryReason, WriteOperation};

/// Removes an item, or marks it as meta `md` requests.
pub(crate) fn run_delete(
    write: &mut WriteOperation<'_>,
    options: &DeleteOptions,
) -> Result<DeleteOutcome, NoRoomYet> {
    write.run(
        |write| try_delete(write, options),
        |write, reason| match reason {
            // After a thousand changes it has another unique.
            RetryReason::Changed if options.required_cas.is_some() => DeleteOutcome::Exists,
            _ => remove_instead_of_mark(write.allocator.context.accounting, write.key, write.hash),
        },
    )
}

/// Removes an item that could not be marked: that is at least as strong as the mark.
#[cold]
pub(crate) fn remove_instead_of_mark(
    accounting: &ItemAccounting,
    key: &[u8],
    hash: KeyHash,
) -> DeleteOutcome {
    accounting.count(CounterId::Refused, 1);
    accounting.remove_key(key, hash);
    DeleteOutcome::Deleted
}

fn try_delete(
    write: &WriteOperation<'_>,
    options: &DeleteOptions,
) -> Result<DeleteOutcome, RetryReason> {
    let Some(old) = write.found.live_item() else {
        write.remove_dead();
        return Ok(DeleteOutcome::NotFound);
    };
    if options.required_cas.is_some_and(|required| required.0 != write.store().unique_of(&old)) {
        return Ok(DeleteOutcome::Exists);
    }
    if options.clear_value {
        clear_value(write, &old, options)?;
    } else if options.invalidate {
        mark_stale(write, &old, options)?;
    } else {
        let accounting = write.allocator.context.accounting;
        if !accounting.remove_from_index(write.hash, old.addr) {
            return Err(RetryReason::Changed);
        }
        accounting.release_item_except(&old, &[]);
        accounting.sample(write.hash, || Operation {
            key: write.key,
            hash: write.hash,
            kind: EventKind::Delete,
            value_bytes: 0,
            expiry: Expiry::Never,
            now: write.now(),
        });
    }
    Ok(DeleteOutcome::Deleted)
}

/// Executes `md I`: the item is stale and open for one win, with a new unique and perhaps another expiry.
fn mark_stale(
    write: &WriteOperation<'_>,
    old: &LocatedItem,
    options: &DeleteOptions,
) -> Result<PublishedCopy, RetryReason> {
    let changes = CopyChanges {
        expiry: options.expiry.unwrap_or(old.header.expiry),
        unique_source: write.unique_source(options.new_unique),
        state_bits: bits::STALE,
        inherited_bits: bits::FETCHED,
        counts_as_access: false,
    };
    write.rewrite(old, changes)
}

/// Executes `md x`, perhaps with `I`: leaves an empty item with the same unique (a new one with `I`). Its expiry is the
/// given one, or never, as in memcached.
fn clear_value(
    write: &WriteOperation<'_>,
    old: &LocatedItem,
    options: &DeleteOptions,
) -> Result<PublishedCopy, RetryReason> {
    let unique_source = if options.invalidate || options.new_unique.is_some() {
        write.unique_source(options.new_unique)
    } else {
        UniqueSource::Exactly(write.store().unique_of(old))
    };
    write.publish(&NewCopy {
        flags: 0,
        expiry: options.expiry.unwrap_or(Expiry::Never),
        unique_source,
        state_bits: if options.invalidate { bits::STALE } else { 0 },
        inherited_bits: 0,
        last_access: write.now(),
        parts: &[ValuePart::Bytes(b"")],
        is_growing: false,
        is_same_item: false,
    })
}
