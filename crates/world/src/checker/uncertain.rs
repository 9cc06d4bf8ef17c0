//! Keys whose last write or removal ended without a reply: the next call to their server removes them.
//!
//! An invariant of the client, which can be held against it only where it is plain which call was the next: one that had
//! its server for itself from its begin to its good end.

use crate::network::ExecutionIndex;
use crate::plan::Key;

/// The doubts of one client about one server.
#[derive(Debug, Default)]
pub(super) struct UncertainKeys {
    keys: Vec<(Key, ExecutionIndex)>,
    in_flight: usize,
    /// The call in flight that began alone, and how many doubts there were then; nothing has failed since.
    sole_call: Option<(usize, usize)>,
}

impl UncertainKeys {
    /// Notes that the outcome of a write or removal is not known.
    pub(super) fn add(&mut self, key: Key, now: ExecutionIndex) {
        self.keys.push((key, now));
    }

    /// A call begins.
    pub(super) fn begin(&mut self, call: usize) {
        self.sole_call = match (self.in_flight, self.sole_call) {
            (0, _) => Some((call, self.keys.len())),
            (_, sole_call) => sole_call,
        };
        self.in_flight += 1;
    }

    /// A call ended; returns the keys that are certainly removed, each with the place behind which that was.
    /// `had_reply`: it ended by a reply.
    pub(super) fn end(&mut self, call: usize, had_reply: bool) -> Vec<(Key, ExecutionIndex)> {
        self.in_flight = self.in_flight.saturating_sub(1);
        if !had_reply {
            self.sole_call = None;
        }
        match self.sole_call {
            Some((sole_call, keys_before)) if sole_call == call => {
                self.sole_call = None;
                let is_still_alone = self.in_flight == 0;
                self.keys
                    .drain(..if is_still_alone { keys_before } else { 0 })
                    .collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed_keys(uncertain: &mut UncertainKeys, call: usize) -> Vec<Key> {
        uncertain
            .end(call, true)
            .into_iter()
            .map(|(key, _)| key)
            .collect()
    }

    #[test]
    fn a_call_alone_removes_what_was_doubtful_before_it() {
        let mut uncertain = UncertainKeys::default();
        uncertain.add(3, 5);
        uncertain.begin(1);
        uncertain.add(4, 12);
        assert_eq!(removed_keys(&mut uncertain, 1), [3]);
        uncertain.begin(2);
        assert_eq!(removed_keys(&mut uncertain, 2), [4]);
        uncertain.begin(3);
        assert!(removed_keys(&mut uncertain, 3).is_empty());
    }

    #[test]
    fn a_call_among_others_or_without_a_reply_proves_nothing() {
        let mut uncertain = UncertainKeys::default();
        uncertain.add(3, 5);
        uncertain.begin(1);
        uncertain.begin(2);
        assert!(removed_keys(&mut uncertain, 1).is_empty());
        assert!(removed_keys(&mut uncertain, 2).is_empty());
        uncertain.begin(4);
        assert!(uncertain.end(4, false).is_empty());
        uncertain.begin(5);
        assert_eq!(removed_keys(&mut uncertain, 5), [3]);
    }
}
