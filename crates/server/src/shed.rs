//! Who has to go when what all connections share runs short: the idlest upload, the longest-stalled reader.
//!
//! Uncommitted values may take an eighth of the memory, values that wait for slow readers hold at most an
//! eighth of the segments. When such a share is used up, the connection that made no progress for longest
//! is closed, never one that moves: whoever came last waits or is refused until then. Any worker may
//! condemn a connection; the one that owns it closes it when its bell rings.

use std::sync::Arc;

use crate::info::Info;
use crate::shared::Shared;
use crate::turn::Turn;

/// Without progress for so many seconds of the coarse clock, so for more than one, a connection is stalled.
const STALLED_S: u32 = 2;

/// Whether an upload that finds no room should wait for it: others hold all that uploads may, and the
/// idlest of them is closed once it is stalled. False when there is room, or the upload itself (`own`)
/// is the idlest. Where all wait for each other the idlest is refused in words when it asks itself.
pub(crate) fn waits_for_upload(own: Option<u64>, turn: &Turn<'_>) -> bool {
    let store = turn.store.store();
    if !store.uploads_are_full() {
        return false;
    }
    let Some(idlest) = store
        .idlest_upload()
        .filter(|idlest| Some(idlest.id) != own)
    else {
        return false;
    };
    if !idlest.waits && turn.now.0.saturating_sub(idlest.last.0) >= STALLED_S {
        let owns = |info: &&Arc<Info>| info.ties.owns_upload(idlest.id);
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
    let held = |info: &Arc<Info>| info.ties.held_since();
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
    if !info.ties.condemn() {
        return;
    }
    shared.condemned.add();
    for (_, waker) in &shared.workers {
        waker.wake();
    }
}
