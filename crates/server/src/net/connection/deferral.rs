//! Why the worker serves a connection later: it is queued behind others, or parked until it may try again
//! (`net/worker/deferred`).

use std::time::{Duration, Instant};

/// Quotas of one transfer before other transfers have their turn: a value of a megabyte and its line.
const QUOTAS_MAX: u32 = 17;

/// Why a connection is served later.
#[derive(Debug, Default)]
pub(crate) struct Deferral {
    /// It is in the worker's queue of deferred connections.
    is_queued: bool,
    /// How many quotas of one transfer it has used in a row.
    quotas_used: u32,
    /// It is one of the worker's parked connections.
    is_parked: bool,
    /// It was parked and is now retrying.
    is_retrying: bool,
    /// Its position among those that wait to begin an upload.
    upload_queue_number: Option<u64>,
    /// The time since which one of its writes waits for a segment.
    segment_wait_since: Option<Instant>,
}

/// How a parked connection's wait ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EndedWait {
    /// It was still parked: something else woke it.
    pub(crate) was_parked: bool,
    /// Its position among those that wait to begin an upload, if it was one of them.
    pub(crate) upload_queue_number: Option<u64>,
    /// It tried again, and its write got a segment.
    pub(crate) got_segment: bool,
    /// It tried again, and its upload got memory.
    pub(crate) got_upload_memory: bool,
}

impl Deferral {
    pub(crate) fn is_queued(&self) -> bool {
        self.is_queued
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.is_parked
    }

    /// Records that it is in the queue; returns whether it was not.
    pub(crate) fn enter_queue(&mut self) -> bool {
        !std::mem::replace(&mut self.is_queued, true)
    }

    pub(crate) fn leave_queue(&mut self) {
        self.is_queued = false;
    }

    /// Records that it used a quota; returns whether other transfers now have their turn.
    pub(crate) fn use_quota(&mut self) -> bool {
        self.quotas_used += 1;
        let is_last = self.quotas_used >= QUOTAS_MAX;
        if is_last {
            self.quotas_used = 0;
        }
        is_last
    }

    /// Its upload, which has begun, waits for memory; returns whether it waited to begin until now.
    pub(crate) fn wait_in_upload(&mut self) -> bool {
        self.segment_wait_since = None;
        self.upload_queue_number.take().is_some()
    }

    /// Its upload waits to begin; returns its position, which is `next_number` unless it has one.
    pub(crate) fn wait_to_upload(&mut self, next_number: impl FnOnce() -> u64) -> u64 {
        self.segment_wait_since = None;
        *self.upload_queue_number.get_or_insert_with(next_number)
    }

    /// One of its writes waits for a segment; `is_new` if it is not the write that waited before. Returns whether it
    /// waits from `now` on.
    pub(crate) fn wait_for_segment(&mut self, is_new: bool, now: Instant) -> bool {
        let begins = is_new || self.segment_wait_since.is_none();
        if begins {
            self.segment_wait_since = Some(now);
        }
        begins
    }

    /// Whether a write has waited for a segment for this long.
    pub(crate) fn has_waited_for_segment(&self, time: Duration, now: Instant) -> bool {
        self.segment_wait_since.is_some_and(|since| now.duration_since(since) >= time)
    }

    /// Parks it for what it waits for; returns whether it was not parked.
    pub(crate) fn park(&mut self) -> bool {
        self.is_retrying = false;
        !std::mem::replace(&mut self.is_parked, true)
    }

    /// Starts a retry; false if it is not parked.
    pub(crate) fn retry(&mut self) -> bool {
        let was_parked = std::mem::take(&mut self.is_parked);
        self.is_retrying |= was_parked;
        was_parked
    }

    /// Ends its wait for memory or a segment, if it waited.
    #[inline]
    pub(crate) fn unpark(&mut self) -> EndedWait {
        let has_retried = std::mem::take(&mut self.is_retrying);
        let waited_for_segment = self.segment_wait_since.take().is_some();
        EndedWait {
            was_parked: std::mem::take(&mut self.is_parked),
            upload_queue_number: self.upload_queue_number.take(),
            got_segment: has_retried && waited_for_segment,
            got_upload_memory: has_retried && !waited_for_segment,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a connection leaves that has waited for nothing.
    const NO_WAIT: EndedWait = EndedWait {
        was_parked: false,
        upload_queue_number: None,
        got_segment: false,
        got_upload_memory: false,
    };

    #[test]
    fn a_transfer_gives_way_after_its_last_quota_in_a_row() {
        let mut deferral = Deferral::default();
        for _ in 0..2 {
            assert_eq!((1..QUOTAS_MAX).filter(|_| deferral.use_quota()).count(), 0);
            assert!(deferral.use_quota());
        }
    }

    #[test]
    fn an_upload_keeps_its_position_until_it_begins() {
        let mut deferral = Deferral::default();
        assert_eq!(deferral.wait_to_upload(|| 7), 7);
        assert!(deferral.park());
        assert!(deferral.retry() && !deferral.retry());
        assert_eq!(deferral.wait_to_upload(|| 8), 7, "it got nothing");
        assert!(deferral.park() && !deferral.park());
        assert!(deferral.retry());
        assert!(deferral.wait_in_upload());
        assert!(!deferral.wait_in_upload(), "it had begun");
        assert!(deferral.park() && deferral.retry());
        assert_eq!(deferral.unpark(), EndedWait { got_upload_memory: true, ..NO_WAIT });
        assert_eq!(deferral.unpark(), NO_WAIT);
    }

    #[test]
    fn a_parked_upload_that_something_else_woke_got_nothing() {
        let mut deferral = Deferral::default();
        deferral.wait_to_upload(|| 7);
        deferral.park();
        let woken = EndedWait { was_parked: true, upload_queue_number: Some(7), ..NO_WAIT };
        assert_eq!(deferral.unpark(), woken);
        assert!(!deferral.is_parked());
    }

    #[test]
    fn a_write_waits_for_a_segment_from_its_first_attempt_on() {
        let began_at = Instant::now();
        let at = |ms| began_at + Duration::from_millis(ms);
        let (mut deferral, limit) = (Deferral::default(), Duration::from_millis(100));
        assert!(deferral.wait_for_segment(false, began_at));
        deferral.park();
        deferral.retry();
        assert!(!deferral.wait_for_segment(false, at(50)), "the same write");
        assert!(!deferral.has_waited_for_segment(limit, at(99)));
        assert!(deferral.has_waited_for_segment(limit, at(100)));
        assert!(deferral.wait_for_segment(true, at(100)), "the next write");
        assert!(!deferral.has_waited_for_segment(limit, at(199)));
        deferral.park();
        deferral.retry();
        assert_eq!(deferral.unpark(), EndedWait { got_segment: true, ..NO_WAIT });
        assert!(!deferral.has_waited_for_segment(limit, at(1000)));
    }
}
