//! The registry of uploads: what each holds and needs, and whether it may have more.
//!
//! An upload keeps its memory until it is complete or closed. If all took their next piece as they came, sixteen of
//! 1 MB could hold half of theirs each, and none could continue. So a piece is granted only if all could still be
//! completed one after the other, the oldest first (Dijkstra's banker, in the order of arrival): the oldest can
//! always continue, unless its sender stalls, for which it is closed.

mod arrivals;

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use self::arrivals::{OpenUpload, UploadsByArrival};
use crate::request::Seconds;
use crate::sync::plain::{Mutex, MutexGuard};

/// Maximum length of a piece: large enough that a value of 100 KB is received in one call, small enough that a
/// stalled client ties up little.
pub(crate) const PIECE_BYTES_MAX: usize = 128 << 10;

/// An upload that waits for this many seconds of the coarse clock, so for more than one, is served before younger
/// ones. Not sooner: waiting uploads query only from time to time, and memory that is kept for one that does not
/// query is unused.
const LONG_WAIT_S: u32 = 2;

/// The open uploads, and how many bytes each holds and lacks.
#[derive(Default)]
pub(crate) struct Uploads {
    arrivals: Mutex<UploadsByArrival>,
    /// The bytes that all uploads hold; changed under the lock only.
    held_bytes: AtomicU64,
}

/// The upload that has to be closed first, as [`crate::Store::idlest_upload`] finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleUpload {
    /// Its number, as [`crate::Reservation::id`] returns it.
    pub id: u64,
    /// Second of its last progress.
    pub last_progress: Seconds,
    /// Whether it waits for memory, and not for its sender.
    pub is_waiting: bool,
}

impl Uploads {
    /// Bytes that all uncommitted uploads hold.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// The one without progress for longest; those that wait for room come after all that do not.
    pub(crate) fn idlest(&self) -> Option<IdleUpload> {
        let (id, upload) = self.lock().idlest()?;
        Some(IdleUpload { id, last_progress: upload.last_progress, is_waiting: upload.is_waiting })
    }

    /// The second in which an upload that holds anything had its last piece.
    pub(crate) fn last_progress(&self) -> Option<Seconds> {
        self.lock().summary().latest_progress.map(Seconds)
    }

    /// Registers an upload that lacks this many bytes.
    pub(crate) fn begin(&self, missing_bytes: u64, now: Seconds) -> u64 {
        self.lock().add(OpenUpload {
            held_bytes: 0,
            missing_bytes,
            last_progress: now,
            is_waiting: false,
        })
    }

    /// Gives `id` this many bytes of the `bytes_max` that all may hold, if that leaves every upload a way to its end
    /// and no older one has waited for long; else it waits.
    pub(crate) fn try_grant(&self, id: u64, bytes: u64, bytes_max: u64, now: Seconds) -> bool {
        let mut uploads = self.lock();
        let free_bytes = bytes_max.checked_sub(self.held_bytes() + bytes);
        let is_granted =
            free_bytes.is_some_and(|free_bytes| may_grant(&uploads, (id, bytes), free_bytes, now));
        uploads.update(id, |upload| {
            upload.is_waiting = !is_granted;
            if is_granted {
                upload.held_bytes += bytes;
                upload.missing_bytes = upload.missing_bytes.saturating_sub(bytes);
                self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        });
        is_granted
    }

    /// Returns the unused part of the bytes granted last.
    pub(crate) fn return_unused(&self, id: u64, bytes: u64) {
        self.lock().update(id, |upload| {
            upload.held_bytes = upload.held_bytes.saturating_sub(bytes);
            upload.missing_bytes += bytes;
            self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        });
    }

    pub(crate) fn record_progress(&self, id: u64, now: Seconds) {
        self.lock().update(id, |upload| upload.last_progress = now);
    }

    pub(crate) fn end(&self, id: u64) {
        let mut uploads = self.lock();
        if let Some(upload) = uploads.remove(id) {
            self.held_bytes.fetch_sub(upload.held_bytes, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, UploadsByArrival> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the requester `(id, bytes)` may have its bytes where `free_bytes` are left then: all could still be
/// completed one after the other, and no older one has waited for [`LONG_WAIT_S`].
fn may_grant(
    uploads: &UploadsByArrival,
    (id, bytes): (u64, u64),
    free_bytes: u64,
    now: Seconds,
) -> bool {
    let (Some(upload), Some((older, younger))) = (uploads.get(id), uploads.summaries_around(id))
    else {
        return false;
    };
    let free_after_older = free_bytes + older.held_bytes;
    let free_after_upload = free_after_older + upload.held_bytes + bytes;
    let older_waits_long =
        older.waits_since != u32::MAX && now.0.saturating_sub(older.waits_since) >= LONG_WAIT_S;
    !older_waits_long
        && older.needed_bytes <= free_bytes
        && upload.missing_bytes.saturating_sub(bytes) <= free_after_older
        && younger.needed_bytes <= free_after_upload
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Seconds = Seconds(5);

    #[test]
    fn uploads_that_exceed_the_memory_together_are_completed_one_after_the_other() {
        let uploads = Uploads::default();
        let sizes = [8, 8, 3, 1, 8, 5, 8, 8, 2, 8];
        let mut unfinished: Vec<(u64, u64)> =
            sizes.iter().map(|&size| (uploads.begin(size, NOW), size)).collect();
        let mut rounds = 0;
        while !unfinished.is_empty() {
            rounds += 1;
            assert!(rounds < 100, "{} are stuck", unfinished.len());
            for (id, missing) in &mut unfinished {
                if *missing > 0 && uploads.try_grant(*id, 1, 10, NOW) {
                    *missing -= 1;
                }
            }
            assert!(uploads.held_bytes() <= 10);
            unfinished.retain(|&(id, missing)| {
                if missing == 0 {
                    uploads.end(id);
                }
                missing > 0
            });
        }
        assert_eq!(uploads.held_bytes(), 0);
        assert_eq!(uploads.idlest(), None);
    }

    #[test]
    fn unused_bytes_are_available_to_others() {
        let uploads = Uploads::default();
        let (first, second) = (uploads.begin(8, NOW), uploads.begin(8, NOW));
        assert!(uploads.try_grant(first, 8, 10, NOW));
        assert!(!uploads.try_grant(second, 3, 10, NOW));
        uploads.return_unused(first, 4);
        assert_eq!(uploads.held_bytes(), 4);
        // The first one needs four again, which have to stay free.
        assert!(!uploads.try_grant(second, 3, 10, NOW));
        assert!(uploads.try_grant(second, 2, 10, NOW));
        uploads.end(first);
        assert!(uploads.try_grant(second, 6, 10, NOW));
        assert_eq!(uploads.held_bytes(), 8);
    }

    #[test]
    fn a_younger_upload_does_not_take_what_an_older_one_waits_for() {
        let uploads = Uploads::default();
        let (first, second, third) =
            (uploads.begin(8, NOW), uploads.begin(8, NOW), uploads.begin(1, NOW));
        assert!(uploads.try_grant(first, 8, 10, NOW));
        assert!(!uploads.try_grant(second, 8, 10, NOW));
        assert!(uploads.try_grant(third, 1, 10, NOW));
        uploads.return_unused(third, 1);
        let later = Seconds(NOW.0 + LONG_WAIT_S);
        assert!(!uploads.try_grant(third, 1, 10, later));
        uploads.end(first);
        assert!(uploads.try_grant(second, 8, 10, later));
        assert!(uploads.try_grant(third, 1, 10, later));
    }

    #[test]
    fn a_waiting_upload_is_the_idlest_only_if_all_wait() {
        let uploads = Uploads::default();
        let (first, second) = (uploads.begin(8, Seconds(1)), uploads.begin(8, Seconds(3)));
        assert_eq!(uploads.last_progress(), None);
        assert!(!uploads.try_grant(first, 8, 7, NOW));
        assert_eq!(uploads.idlest().map(|idle| (idle.id, idle.is_waiting)), Some((second, false)));
        assert!(!uploads.try_grant(second, 8, 7, NOW));
        assert_eq!(uploads.idlest().map(|idle| (idle.id, idle.is_waiting)), Some((first, true)));
        assert!(uploads.try_grant(first, 2, 16, NOW));
        uploads.record_progress(first, NOW);
        assert_eq!(uploads.last_progress(), Some(NOW));
    }

    /// The rule as a walk over all uploads, in the order of their arrival.
    fn grants_by_walk(
        uploads_by_arrival: &[(u64, OpenUpload)],
        (requester_id, requested_bytes): (u64, u64),
        mut free_bytes: u64,
        now: Seconds,
    ) -> bool {
        let waits_long = |upload: &OpenUpload| {
            upload.is_waiting && now.0.saturating_sub(upload.last_progress.0) >= LONG_WAIT_S
        };
        let older_waits_long =
            uploads_by_arrival.iter().any(|(id, upload)| *id < requester_id && waits_long(upload));
        !older_waits_long
            && uploads_by_arrival.iter().all(|(id, upload)| {
                let granted_bytes = if *id == requester_id { requested_bytes } else { 0 };
                let can_complete = upload.missing_bytes.saturating_sub(granted_bytes) <= free_bytes;
                free_bytes += upload.held_bytes + granted_bytes;
                can_complete
            })
    }

    #[test]
    fn the_tree_grants_exactly_what_a_walk_over_all_would() {
        let uploads = Uploads::default();
        let mut uploads_by_arrival: Vec<(u64, OpenUpload)> = Vec::new();
        let mut random_state = 11_u64;
        let mut random_below = |below: u64| {
            random_state = random_state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random_state >> 33) % below
        };
        let (mut granted, mut refused) = (0, 0);
        for round in 0..40_000 {
            let now = Seconds(5 + round / 50);
            let index = random_below(uploads_by_arrival.len().max(1) as u64) as usize;
            match random_below(8) {
                0 if uploads_by_arrival.len() < 200 => {
                    let missing_bytes = 1 + random_below(30);
                    let id = uploads.begin(missing_bytes, now);
                    uploads_by_arrival.push((id, uploads.lock().get(id).unwrap()));
                }
                1 if !uploads_by_arrival.is_empty() => {
                    uploads.end(uploads_by_arrival.remove(index).0);
                }
                2 if !uploads_by_arrival.is_empty()
                    && uploads_by_arrival[index].1.held_bytes > 0 =>
                {
                    uploads.return_unused(uploads_by_arrival[index].0, 1);
                    uploads_by_arrival[index].1.held_bytes -= 1;
                    uploads_by_arrival[index].1.missing_bytes += 1;
                }
                _ if !uploads_by_arrival.is_empty() => {
                    let (id, bytes, bytes_max) =
                        (uploads_by_arrival[index].0, 1 + random_below(6), 60);
                    let free_bytes = u64::checked_sub(bytes_max, uploads.held_bytes() + bytes);
                    let is_granted = free_bytes.is_some_and(|free_bytes| {
                        grants_by_walk(&uploads_by_arrival, (id, bytes), free_bytes, now)
                    });
                    assert_eq!(uploads.try_grant(id, bytes, bytes_max, now), is_granted);
                    let upload = &mut uploads_by_arrival[index].1;
                    upload.is_waiting = !is_granted;
                    if is_granted {
                        upload.held_bytes += bytes;
                        upload.missing_bytes = upload.missing_bytes.saturating_sub(bytes);
                        upload.last_progress = now;
                        uploads.record_progress(id, now);
                        granted += 1;
                    } else {
                        refused += 1;
                    }
                }
                _ => {}
            }
            let idlest = uploads_by_arrival
                .iter()
                .min_by_key(|(id, upload)| (upload.is_waiting, upload.last_progress, *id));
            assert_eq!(uploads.idlest().map(|idle| idle.id), idlest.map(|(id, _)| *id));
            let holders = uploads_by_arrival.iter().filter(|(_, upload)| upload.held_bytes > 0);
            assert_eq!(
                uploads.last_progress(),
                holders.map(|(_, upload)| upload.last_progress).max()
            );
            let held_bytes: u64 =
                uploads_by_arrival.iter().map(|(_, upload)| upload.held_bytes).sum();
            assert_eq!(uploads.held_bytes(), held_bytes);
        }
        assert!(granted > 1_000 && refused > 1_000, "{granted} given, {refused} refused");
    }

    #[test]
    fn a_query_of_one_of_ten_thousand_uploads_examines_a_few_spans() {
        let uploads = Uploads::default();
        let ids: Vec<u64> = (0..10_000).map(|_| uploads.begin(8, NOW)).collect();
        assert!(uploads.try_grant(ids[0], 4, 10, NOW));
        let steps_before = uploads.lock().steps.get();
        for &id in &ids[1..] {
            assert!(!uploads.try_grant(id, 8, 10, NOW));
            assert!(uploads.idlest().is_some());
            uploads.last_progress();
        }
        let examined = uploads.lock().steps.get() - steps_before;
        eprintln!("{} examined for each of {} uploads", examined / 9_999, ids.len());
        // Sixteen levels: one visit on the way up for each, two if something changed.
        assert!(examined <= 9_999 * 60, "{examined} examined");
    }

    #[test]
    fn a_query_of_one_of_sixteen_uploads_examines_each_of_the_others() {
        let uploads = Uploads::default();
        for _ in 0..15 {
            uploads.begin(8, NOW);
        }
        let steps_before = uploads.lock().steps.get();
        for _ in 0..1_000 {
            let id = uploads.begin(8, NOW);
            assert!(uploads.try_grant(id, 8, 16, NOW));
            uploads.record_progress(id, NOW);
            uploads.end(id);
        }
        let examined = uploads.lock().steps.get() - steps_before;
        assert!(examined <= 1_000 * 15, "{examined} examined");
    }
}
