//! The register of uploads: what each holds and lacks, and whether it may have more.
//!
//! An upload keeps what it holds until it is whole or given up. If all took their next piece as they came, sixteen
//! of 1 MB could hold half of theirs each, and none could go on. So a piece is given only where all could still be
//! completed one after the other, the oldest first (Dijkstra's banker, in the order of arrival): the oldest always
//! can go on, unless its sender stands still, for which it is closed.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::request::Seconds;
use crate::sync::plain::{Mutex, MutexGuard};

/// Who waits for so many seconds of the coarse clock, so for more than one, is served before whoever came later. Not
/// sooner: those that wait ask now and then only, and room that is kept for one that does not ask lies idle.
const LONG_S: u32 = 2;

/// Which uploads there are, how much they hold and lack.
#[derive(Default)]
pub(crate) struct Uploads {
    open: Mutex<BTreeMap<u64, Open>>,
    /// What all hold; changed under the lock only.
    held_bytes: AtomicU64,
    next: AtomicU64,
}

/// One upload as the others see it.
#[derive(Clone, Copy)]
struct Open {
    held_bytes: u64,
    missing_bytes: u64,
    last: Seconds,
    waits: bool,
}

impl Open {
    /// Whether it waits and had nothing for [`LONG_S`].
    fn has_waited(&self, now: Seconds) -> bool {
        self.waits && now.0.saturating_sub(self.last.0) >= LONG_S
    }
}

/// The upload that has to go first, as [`crate::Store::idlest_upload`] finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleUpload {
    /// Its name, as [`crate::Reservation::id`] gives it.
    pub id: u64,
    /// Second of its last progress.
    pub last: Seconds,
    /// Whether it stands still for want of room, so by no fault of its sender.
    pub waits: bool,
}

impl Uploads {
    /// Bytes that all uncommitted uploads hold.
    pub(crate) fn bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// The one without progress for longest; those that wait for room come after all that do not.
    pub(crate) fn idlest(&self) -> Option<IdleUpload> {
        self.lock()
            .iter()
            .map(|(&id, open)| IdleUpload {
                id,
                last: open.last,
                waits: open.waits,
            })
            .min_by_key(|upload| (upload.waits, upload.last))
    }

    /// When one that holds anything had its last piece.
    pub(crate) fn last_progress(&self) -> Option<Seconds> {
        let open = self.lock();
        let holders = open.values().filter(|open| open.held_bytes > 0);
        holders.map(|open| open.last).max()
    }

    /// Enters an upload that lacks so many bytes.
    pub(super) fn begin(&self, missing_bytes: u64, now: Seconds) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let open = Open {
            held_bytes: 0,
            missing_bytes,
            last: now,
            waits: false,
        };
        self.lock().insert(id, open);
        id
    }

    /// Gives `id` so many bytes of the `bytes_max` that all may hold, if that leaves every upload a way to its end
    /// and no older one has waited for long; else it waits.
    pub(super) fn take(&self, id: u64, bytes: u64, bytes_max: u64, now: Seconds) -> bool {
        let mut open = self.lock();
        let free = bytes_max.checked_sub(self.bytes() + bytes);
        let is_behind = open.range(..id).any(|(_, older)| older.has_waited(now));
        let may = !is_behind && free.is_some_and(|free| leaves_a_way(&open, (id, bytes), free));
        if let Some(own) = open.get_mut(&id) {
            own.waits = !may;
            if may {
                own.held_bytes += bytes;
                own.missing_bytes = own.missing_bytes.saturating_sub(bytes);
                self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        }
        may
    }

    /// Takes back what of the bytes given last was not used.
    pub(super) fn give_back(&self, id: u64, bytes: u64) {
        if let Some(own) = self.lock().get_mut(&id) {
            own.held_bytes = own.held_bytes.saturating_sub(bytes);
            own.missing_bytes += bytes;
            self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn note_progress(&self, id: u64, now: Seconds) {
        if let Some(own) = self.lock().get_mut(&id) {
            own.last = now;
        }
    }

    pub(super) fn end(&self, id: u64) {
        let mut open = self.lock();
        if let Some(own) = open.remove(&id) {
            self.held_bytes.fetch_sub(own.held_bytes, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether all could be completed one after the other, where `free` bytes are left once the taker `(id, bytes)` has its.
fn leaves_a_way(open: &BTreeMap<u64, Open>, taker: (u64, u64), mut free: u64) -> bool {
    open.iter().all(|(&id, open)| {
        let bytes = if id == taker.0 { taker.1 } else { 0 };
        let has_way = open.missing_bytes.saturating_sub(bytes) <= free;
        free += open.held_bytes + bytes;
        has_way
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Seconds = Seconds(5);

    #[test]
    fn uploads_that_all_want_more_than_there_is_are_completed_one_after_the_other() {
        let uploads = Uploads::default();
        let sizes = [8, 8, 3, 1, 8, 5, 8, 8, 2, 8];
        let mut open: Vec<(u64, u64)> = sizes
            .iter()
            .map(|&size| (uploads.begin(size, NOW), size))
            .collect();
        let mut rounds = 0;
        while !open.is_empty() {
            rounds += 1;
            assert!(rounds < 100, "{} are stuck", open.len());
            for (id, missing) in &mut open {
                if *missing > 0 && uploads.take(*id, 1, 10, NOW) {
                    *missing -= 1;
                }
            }
            assert!(uploads.bytes() <= 10);
            open.retain(|&(id, missing)| {
                if missing == 0 {
                    uploads.end(id);
                }
                missing > 0
            });
        }
        assert_eq!(uploads.bytes(), 0);
        assert_eq!(uploads.idlest(), None);
    }

    #[test]
    fn what_was_not_used_is_there_for_others() {
        let uploads = Uploads::default();
        let (one, two) = (uploads.begin(8, NOW), uploads.begin(8, NOW));
        assert!(uploads.take(one, 8, 10, NOW));
        assert!(!uploads.take(two, 3, 10, NOW));
        uploads.give_back(one, 4);
        assert_eq!(uploads.bytes(), 4);
        // The one lacks four again, which have to stay free.
        assert!(!uploads.take(two, 3, 10, NOW));
        assert!(uploads.take(two, 2, 10, NOW));
        uploads.end(one);
        assert!(uploads.take(two, 6, 10, NOW));
        assert_eq!(uploads.bytes(), 8);
    }

    #[test]
    fn who_came_later_does_not_take_what_another_waited_for() {
        let uploads = Uploads::default();
        let (one, two, three) = (
            uploads.begin(8, NOW),
            uploads.begin(8, NOW),
            uploads.begin(1, NOW),
        );
        assert!(uploads.take(one, 8, 10, NOW));
        assert!(!uploads.take(two, 8, 10, NOW));
        assert!(uploads.take(three, 1, 10, NOW));
        uploads.give_back(three, 1);
        let later = Seconds(NOW.0 + LONG_S);
        assert!(!uploads.take(three, 1, 10, later));
        uploads.end(one);
        assert!(uploads.take(two, 8, 10, later));
        assert!(uploads.take(three, 1, 10, later));
    }

    #[test]
    fn who_waits_is_the_idlest_only_among_those_that_wait() {
        let uploads = Uploads::default();
        let (one, two) = (uploads.begin(8, Seconds(1)), uploads.begin(8, Seconds(3)));
        assert_eq!(uploads.last_progress(), None);
        assert!(!uploads.take(one, 8, 7, NOW));
        assert_eq!(
            uploads.idlest().map(|idle| (idle.id, idle.waits)),
            Some((two, false))
        );
        assert!(!uploads.take(two, 8, 7, NOW));
        assert_eq!(
            uploads.idlest().map(|idle| (idle.id, idle.waits)),
            Some((one, true))
        );
        assert!(uploads.take(one, 2, 16, NOW));
        uploads.note_progress(one, NOW);
        assert_eq!(uploads.last_progress(), Some(NOW));
    }
}
