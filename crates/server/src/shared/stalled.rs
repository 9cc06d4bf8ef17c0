//! The rule by which a connection is closed when memory that all connections share runs short.
//!
//! One rule: while others wait, the connection that holds the memory they wait for and made no progress for
//! longest, at least two ticks of the coarse clock; never one that makes progress or waits itself. It applies to
//! the memory of uploads (an eighth of the memory), to values that slow readers hold (an eighth of the segments,
//! each at least one value of the largest size) and to the budget of copied memory (`peer_memory`). Any worker may
//! mark a connection for close; the one that owns it closes it when it is woken.

use std::sync::Arc;

use glasscache_store::Seconds;

use crate::shared::Shared;
use crate::shared::connection_info::ConnectionInfo;

/// Without progress for this many seconds of the coarse clock, so for more than one, a connection is stalled.
const STALLED_AFTER_S: u32 = 2;

/// If all uploads wait and none had a piece for this many seconds, each blocking the others, one is closed. An
/// upload that may continue checks a hundred times a second.
const BLOCKED_AFTER_S: u32 = 2;

/// Where stalled connections are closed for others, this part of the budget is made free in addition.
const RESERVE_DIVISOR: u64 = 4;

/// Whether an upload should wait before it begins: others hold all the upload memory. If so, a stalled one is closed.
pub(crate) fn must_wait_to_upload(shared: &Shared, now: Seconds) -> bool {
    let is_full = shared.store.uploads_are_full();
    if is_full {
        close_stalled_upload(shared, now);
    }
    is_full
}

/// Whether an upload that others crowded out should wait for them. The store divides the memory so that one can
/// always continue; only a limit that was lowered meanwhile can leave none, and then the first to check gives up.
pub(crate) fn must_wait_to_resume(shared: &Shared, now: Seconds) -> bool {
    close_stalled_upload(shared, now);
    let store = &shared.store;
    let all_wait = store.idlest_upload().is_some_and(|idlest| idlest.is_waiting);
    let last_progress = store.uploads_last_progress();
    !all_wait || last_progress.is_none_or(|last| now.0.saturating_sub(last.0) < BLOCKED_AFTER_S)
}

/// Closes the idlest upload if its sender has stalled; never one that waits for memory itself.
fn close_stalled_upload(shared: &Shared, now: Seconds) {
    let Some(idlest) = shared.store.idlest_upload() else {
        return;
    };
    if !idlest.is_waiting && now.0.saturating_sub(idlest.last_progress.0) >= STALLED_AFTER_S {
        let owns = |info: &&Arc<ConnectionInfo>| info.held_memory.owns_upload(idlest.id);
        mark_for_close(shared.connections.list().iter().find(owns), shared);
    }
}

/// Records that an upload ended, so that waiting ones check at once. If many wait, one that checked too late would
/// leave the memory unused until the next check.
pub(crate) fn record_upload_release(shared: &Shared) {
    if shared.parked_connections.record_release() {
        wake_all(shared);
    }
}

/// Closes stalled connections while others wait for their memory; checks ten times a second, and only if some wait.
///
/// Of the connections that hold memory and made no progress for [`STALLED_AFTER_S`], the longest stalled are closed
/// first, until what is held and what is waited for fit, and a quarter of the budget is free for the next. One that
/// waits for memory itself, and not for its peer, is not stalled: if only such connections hold memory, the first in
/// line is granted its request, once a second.
#[inline]
pub(crate) fn close_stalled(shared: &Shared, now: Seconds) {
    if shared.peer_memory.should_check_stalled() {
        close_longest_stalled(shared, now);
    }
}

#[cold]
fn close_longest_stalled(shared: &Shared, now: Seconds) {
    let peer_memory = &shared.peer_memory;
    let line_bytes = shared.watchers.unsent_bytes();
    let mut is_any_held = false;
    let mut stalled = shared.connections.select(|info| {
        let mut snapshot = info.held_memory.snapshot().filter(|snapshot| !snapshot.is_waiting)?;
        snapshot.bytes += line_bytes.get(&info.id.serial).copied().unwrap_or(0);
        is_any_held = true;
        (now.0.saturating_sub(snapshot.last_progress_s) >= STALLED_AFTER_S).then_some(snapshot)
    });
    if !is_any_held {
        return peer_memory.allow_overdraft(now);
    }
    stalled.sort_unstable_by_key(|(snapshot, _)| snapshot.last_progress_s);
    let reserve_bytes = peer_memory.budget_bytes() / RESERVE_DIVISOR;
    let mut bytes_to_free = match peer_memory.missing_bytes() {
        0 => peer_memory.wanted_bytes(),
        missing_bytes => peer_memory.wanted_bytes().max(missing_bytes + reserve_bytes),
    };
    for (snapshot, info) in stalled {
        if bytes_to_free == 0 {
            break;
        }
        mark_for_close(Some(&info), shared);
        bytes_to_free = bytes_to_free.saturating_sub(snapshot.bytes);
    }
}

/// Closes a connection with TLS that has not sent a request, for a new one; false if there is none. One that has sent a
/// part of it has the time that others have, since that is the memory it holds.
pub(crate) fn close_unproven(shared: &Shared) -> bool {
    let last_part = Seconds(shared.clock.now().0.saturating_sub(STALLED_AFTER_S));
    let unproven = shared.connections.take_unproven(last_part);
    mark_for_close(unproven.as_ref(), shared);
    unproven.is_some()
}

fn mark_for_close(info: Option<&Arc<ConnectionInfo>>, shared: &Shared) {
    if info.is_some_and(|info| shared.marked_for_close.mark(&info.held_memory)) {
        wake_all(shared);
    }
}

fn wake_all(shared: &Shared) {
    for (_, waker) in &shared.counters_and_wakers {
        waker.wake();
    }
}
