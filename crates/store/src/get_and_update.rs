//! Gets that may change the item: the decisions of `gat`, `touch` and meta `mg` besides reading.

use std::sync::atomic::Ordering;

use crate::accounting::ItemAccounting;
use crate::chain::ValuePart;
use crate::counters::CounterId;
use crate::item::bits;
use crate::lookup::LocatedItem;
use crate::memory::Addr;
use crate::open_segments::UniqueSource;
use crate::request::{Expiry, GetOptions, KeyHash, Lease, NoRoomYet, Seconds};
use crate::store::Store;
use crate::write::{CopyChanges, NewCopy, RetryReason, WriteOperation};

/// The item that was found, touched or created.
pub(crate) struct ReturnedItem {
    pub(crate) item: LocatedItem,
    /// Its state word as it was before.
    pub(crate) state_word: u16,
    /// Its last access before.
    pub(crate) last_access: Seconds,
    pub(crate) lease: Lease,
}

/// Reads an item, and touches it, creates it or lets the caller win it, depending on the options; `None` is a miss.
pub(crate) fn run_get_and_update(
    write: &mut WriteOperation<'_>,
    options: &GetOptions,
) -> Result<Option<ReturnedItem>, NoRoomYet> {
    write.run(
        |write| match write.found.live_item() {
            Some(old) => read_item(write, &old, options).map(Some),
            None => create_if_requested(write, options),
        },
        |write, _| {
            remove_instead_of_touch(write.allocator.context.accounting, write.key, write.hash);
            None
        },
    )
}

/// Removes an item that could not be touched, because its old expiry would be wrong.
#[cold]
pub(crate) fn remove_instead_of_touch(accounting: &ItemAccounting, key: &[u8], hash: KeyHash) {
    accounting.count(CounterId::Refused, 1);
    accounting.remove_key(key, hash);
}

fn read_item(
    write: &WriteOperation<'_>,
    old: &LocatedItem,
    options: &GetOptions,
) -> Result<ReturnedItem, RetryReason> {
    let store = write.store();
    let old_state_word = store.state_word_of(old.addr);
    let mut item = *old;
    if let Some(expiry) = options.touch {
        let changes = CopyChanges {
            expiry,
            unique_source: UniqueSource::Exactly(store.unique_of(old)),
            state_bits: 0,
            inherited_bits: bits::COPIED_MARKS,
            counts_as_access: !options.no_bump,
        };
        item = store.locate(write.rewrite(old, changes)?.addr);
    }
    // Only now: an operation that waits for a segment is retried, and is one use all the same.
    if !options.no_bump {
        // A touched item was rewritten: its age in the queue is that of the old copy.
        store.record_use(write.key, write.hash, old.addr);
        store.record_access(&item, bits::FETCHED, write.now());
    }
    let lease_item = if options.recache_after_touch { &item } else { old };
    let is_due = is_recache_due(lease_item.header.expiry, options.recache_s, write.now());
    let lease =
        claim_lease(write, item.addr, is_due, options.may_win).ok_or(RetryReason::Changed)?;
    Ok(ReturnedItem {
        item,
        state_word: old_state_word,
        last_access: Store::access_of(old, old_state_word),
        lease: Lease { expiry_before: options.touch.map(|_| old.header.expiry), ..lease },
    })
}

/// Reads the marks, and gives the one win to the caller if it may have it; `None` if the item was replaced meanwhile.
fn claim_lease(
    write: &WriteOperation<'_>,
    addr: Addr,
    is_due: bool,
    may_win: bool,
) -> Option<Lease> {
    let store = write.store();
    let state_word = store.state_word_of(addr);
    let mut lease = Lease { is_stale: state_word & bits::STALE != 0, ..Lease::default() };
    if state_word & bits::WIN != 0 {
        lease.already_won = true;
    } else if may_win && (lease.is_stale || is_due) {
        // Under the lock, so that a concurrent copy includes the win.
        let bucket = store.index.lock(write.hash);
        bucket.find(write.hash, |slot_addr| slot_addr == addr)?;
        let old_state_word = store.arena().state_word(addr).fetch_or(bits::WIN, Ordering::Relaxed);
        lease.already_won = old_state_word & bits::WIN != 0;
        lease.won = !lease.already_won;
    }
    Some(lease)
}

/// Creates an empty item on a miss, won by the caller, if the options request one.
fn create_if_requested(
    write: &WriteOperation<'_>,
    options: &GetOptions,
) -> Result<Option<ReturnedItem>, RetryReason> {
    let Some(expiry) = options.vivify else {
        write.remove_dead();
        return Ok(None);
    };
    let stored = write.publish(&NewCopy {
        flags: 0,
        expiry,
        unique_source: write.unique_source(options.new_unique),
        state_bits: bits::WIN | if options.no_bump { 0 } else { bits::FETCHED },
        inherited_bits: 0,
        last_access: write.now(),
        parts: &[ValuePart::Bytes(b"")],
        is_growing: false,
        is_same_item: false,
    })?;
    Ok(Some(ReturnedItem {
        item: write.store().locate(stored.addr),
        state_word: 0,
        last_access: write.now(),
        lease: Lease {
            won: true,
            created: true,
            expiry_before: Some(Expiry::Never),
            ..Lease::default()
        },
    }))
}

/// Whether the remaining TTL is below the requested one (meta `R`).
fn is_recache_due(expiry: Expiry, recache_s: Option<u32>, now: Seconds) -> bool {
    match (expiry, recache_s) {
        (Expiry::At(second), Some(recache_s)) => second.0.saturating_sub(now.0) < recache_s,
        _ => false,
    }
}
