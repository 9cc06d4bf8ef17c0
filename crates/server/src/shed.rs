//! Who has to go when what all connections share runs short: the idlest upload, the longest-stalled reader.
//!
//! Uncommitted values may take an eighth of the memory, values that wait for slow readers hold at most an
//! eighth of the segments (each at least one value of the largest size). When such a share is used up, the
//! connection that made no progress for longest is closed, never one that moves: whoever came last waits until
//! then, and is rung when room was made. Any worker may condemn a connection; the one that owns it closes it when
//! its bell rings.

use std::sync::Arc;

use crate::info::Info;
use crate::shared::Shared;
use crate::turn::Turn;

/// Without progress for so many seconds of the coarse clock, so for more than one, a connection is stalled.
const STALLED_S: u32 = 2;

/// Where all uploads wait and none had a piece for so many seconds, each in the way of the others, one has to go. Who may
/// go on asks a hundred times a second.
const STUCK_S: u32 = 2;

/// Whether an upload should wait before it begins: others hold all that uploads may.
pub(crate) fn waits_to_upload(turn: &Turn<'_>) -> bool {
    let is_full = turn.store.store().uploads_are_full();
    if is_full {
        stalled_upload(turn);
    }
    is_full
}

/// Whether an upload that others crowded out should wait for them. The store gives room so that one can always go on;
/// only a limit that was lowered meanwhile can leave none, and then whoever asks first gives up.
pub(crate) fn waits_to_go_on(turn: &Turn<'_>) -> bool {
    stalled_upload(turn);
    let store = turn.store.store();
    let all_wait = store.idlest_upload().is_some_and(|idlest| idlest.waits);
    let progressed = store.uploads_progressed();
    !all_wait || progressed.is_none_or(|last| turn.now.0.saturating_sub(last.0) < STUCK_S)
}

/// Closes the idlest upload if its sender has stalled; never one that waits for room itself.
fn stalled_upload(turn: &Turn<'_>) {
    let Some(idlest) = turn.store.store().idlest_upload() else {
        return;
    };
    if !idlest.waits && turn.now.0.saturating_sub(idlest.last.0) >= STALLED_S {
        let owns = |info: &&Arc<Info>| info.ties.owns_upload(idlest.id);
        condemn(
            turn.shared.connections.list().iter().find(owns),
            turn.shared,
        );
    }
}

/// An upload ended: whoever waits for room looks at once. Where many wait, one that looked too late would leave the room
/// idle until the next look.
pub(crate) fn room_was_made(shared: &Shared) {
    if shared.parking.note_room() {
        wake_all(shared);
    }
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
    wake_all(shared);
}

fn wake_all(shared: &Shared) {
    for (_, waker) in &shared.workers {
        waker.wake();
    }
}
