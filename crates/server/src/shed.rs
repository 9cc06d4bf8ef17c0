//! Who has to go when what all connections share runs short: the idlest upload, the longest-stalled reader.
//!
//! Uncommitted values may take an eighth of the memory, values that wait for slow readers hold at most an
//! eighth of the segments. When such a share is used up, the connection that made no progress for longest
//! is closed, never one that moves: whoever came last waits or is refused until then. Any worker may
//! condemn a connection; the one that owns it closes it when its bell rings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::connection::Info;
use crate::shared::Shared;
use crate::turn::Turn;

/// Without progress for so many seconds of the coarse clock, so for more than one, a connection is stalled.
const STALLED_S: u32 = 2;

/// What of the shared memory one connection ties up.
#[derive(Debug, Default)]
pub(crate) struct Ties {
    /// Its last upload's number and one; 0 before the first. Numbers are never used again.
    upload: AtomicU64,
    /// The second in which a value held for it moved last; 0 while none is.
    held: AtomicU32,
    is_condemned: AtomicBool,
}

impl Ties {
    pub(crate) fn note_upload(&self, id: u64) {
        self.upload.store(id + 1, Ordering::Relaxed);
    }

    /// Whether values are held for its socket, which took something now.
    pub(crate) fn note_held(&self, is_held: bool, turn: &Turn<'_>) {
        let second = if is_held { turn.now.0 } else { 0 };
        self.held.store(second, Ordering::Relaxed);
    }

    pub(crate) fn is_condemned(&self) -> bool {
        self.is_condemned.load(Ordering::Relaxed)
    }
}

/// Connections condemned and not yet closed.
#[derive(Debug, Default)]
pub(crate) struct Condemned(AtomicUsize);

impl Condemned {
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire pairs with the Release of `condemn`: the mark on the connection is seen.
        self.0.load(Ordering::Acquire) == 0
    }

    /// One of them is closed.
    pub(crate) fn closed(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether an upload that finds no room should wait for it: others hold all that uploads may, and the
/// idlest of them is closed once it is stalled. False when there is room, or the upload itself (`own`)
/// is the idlest.
pub(crate) fn waits_for_upload(own: Option<u64>, turn: &Turn<'_>) -> bool {
    let store = turn.store.store();
    if !store.uploads_are_full() {
        return false;
    }
    let Some((idlest, last)) = store.idlest_upload().filter(|(id, _)| Some(*id) != own) else {
        return false;
    };
    if turn.now.0.saturating_sub(last.0) >= STALLED_S {
        let owns = |info: &&Arc<Info>| info.ties.upload.load(Ordering::Relaxed) == idlest + 1;
        condemn(
            turn.shared.connections.list().iter().find(owns),
            turn.shared,
        );
    }
    true
}

/// Closes the longest-stalled reader if readers hold nearly all that they may.
pub(crate) fn stalled_reader(turn: &Turn<'_>) {
    if !turn.store.store().holds_are_scarce() {
        return;
    }
    let connections = turn.shared.connections.list();
    let held = |info: &Arc<Info>| info.ties.held.load(Ordering::Relaxed);
    let longest = connections
        .iter()
        .filter(|info| held(info) != 0)
        .min_by_key(|info| held(info))
        .filter(|info| turn.now.0.saturating_sub(held(info)) >= STALLED_S);
    condemn(longest, turn.shared);
}

fn condemn(info: Option<&Arc<Info>>, shared: &Shared) {
    let Some(info) = info else {
        return;
    };
    if info.ties.is_condemned.swap(true, Ordering::Relaxed) {
        return;
    }
    shared.condemned.0.fetch_add(1, Ordering::Release);
    for (_, waker) in &shared.workers {
        waker.wake();
    }
}
