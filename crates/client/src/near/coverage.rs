//! How long a coherent near cache may be served: until the reports of all servers about other clients' changes are no
//! longer known to be complete.

use std::time::{Duration, Instant};

use super::watch::ReportLevel;

/// How long after a heartbeat was sent the process may serve what it keeps. Heartbeats follow each other every 10 ms;
/// what other clients changed is seen within 50 ms of its acknowledgement.
const CONFIRMATION_VALIDITY: Duration = Duration::from_millis(40);

/// How long after a change was acknowledged the process may serve the value before, if all servers report changes.
pub(super) const COHERENT_BOUND: Duration = Duration::from_millis(50);

/// Until when the reports of all servers are complete, for a client whose near cache follows them.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// The slot of each server and the state of its watch.
    watches: Vec<(usize, WatchState)>,
    serve_until: ServeUntil,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchState {
    /// It is being connected, or has not confirmed anything.
    Waiting,
    /// All changes that were made before this time were reported.
    Confirmed(Instant),
    /// The server never confirms its reports, or reports nothing: only `near_ttl` bounds the age of a value.
    Unconfirmed,
}

/// Until when a value may be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ServeUntil {
    /// Some server does not report at present.
    #[default]
    Never,
    Moment(Instant),
    Unbounded,
}

impl Coverage {
    /// Expects reports of the servers in these slots; those of others end.
    pub(super) fn set_expected_slots(&mut self, slots: &[usize]) {
        let slot_and_state = |&slot: &usize| {
            let known_watch = self.watches.iter().find(|(known_slot, _)| *known_slot == slot);
            (slot, known_watch.map_or(WatchState::Waiting, |&(_, state)| state))
        };
        self.watches = slots.iter().map(slot_and_state).collect();
        self.update_serve_until();
    }

    pub(super) fn record_begin(&mut self, slot: usize, report_level: ReportLevel) {
        let state = match report_level {
            ReportLevel::Changes => WatchState::Waiting,
            ReportLevel::StoresAndDeletes | ReportLevel::Nothing => WatchState::Unconfirmed,
        };
        self.set_watch_state(slot, state);
    }

    pub(super) fn record_confirmation(&mut self, slot: usize, sent_at: Instant) {
        self.set_watch_state(slot, WatchState::Confirmed(sent_at));
    }

    pub(super) fn record_loss(&mut self, slot: usize) {
        self.set_watch_state(slot, WatchState::Waiting);
    }

    /// Whether what is kept may be served now.
    pub(super) fn is_complete(&self, now: Instant) -> bool {
        match self.serve_until {
            ServeUntil::Never => false,
            ServeUntil::Moment(moment) => now < moment,
            ServeUntil::Unbounded => true,
        }
    }

    /// Whether all servers confirm their reports, which bound the age of a value.
    pub(super) fn is_confirmed(&self) -> bool {
        matches!(self.serve_until, ServeUntil::Moment(_))
    }

    fn set_watch_state(&mut self, slot: usize, state: WatchState) {
        if let Some((_, known_state)) =
            self.watches.iter_mut().find(|(known_slot, _)| *known_slot == slot)
        {
            *known_state = state;
            self.update_serve_until();
        }
    }

    fn update_serve_until(&mut self) {
        if self.watches.is_empty() {
            self.serve_until = ServeUntil::Never;
            return;
        }
        let earlier_bound = |bound, &(_, state): &(usize, WatchState)| match (bound, state) {
            (ServeUntil::Never, _) | (_, WatchState::Waiting) => ServeUntil::Never,
            (bound, WatchState::Unconfirmed) => bound,
            (ServeUntil::Moment(moment), WatchState::Confirmed(sent_at)) => {
                ServeUntil::Moment(moment.min(sent_at + CONFIRMATION_VALIDITY))
            }
            (ServeUntil::Unbounded, WatchState::Confirmed(sent_at)) => {
                ServeUntil::Moment(sent_at + CONFIRMATION_VALIDITY)
            }
        };
        self.serve_until = self.watches.iter().fold(ServeUntil::Unbounded, earlier_bound);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_is_that_of_the_server_that_confirmed_least() {
        let mut coverage = Coverage::default();
        let now = Instant::now();
        assert!(!coverage.is_complete(now));
        coverage.set_expected_slots(&[0, 2]);
        coverage.record_begin(0, ReportLevel::Changes);
        coverage.record_begin(2, ReportLevel::StoresAndDeletes);
        assert!(!coverage.is_complete(now));
        coverage.record_confirmation(0, now);
        assert!(coverage.is_complete(now));
        assert!(!coverage.is_complete(now + CONFIRMATION_VALIDITY));
        coverage.record_confirmation(7, now);
        coverage.record_loss(2);
        assert!(!coverage.is_complete(now));
        coverage.set_expected_slots(&[0]);
        assert!(coverage.is_complete(now));
        coverage.record_begin(0, ReportLevel::Nothing);
        assert!(coverage.is_complete(now + Duration::from_hours(1)));
    }
}
