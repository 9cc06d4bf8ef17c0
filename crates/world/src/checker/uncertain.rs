//! Keys whose last write or removal ended without a reply: the next call to their server removes them.
//!
//! The checker can require this only of a call that was certainly the next one: a call that was alone at its server from
//! its begin to its end by a reply.

use crate::network::ExecutionIndex;
use crate::plan::Key;

/// The uncertain keys of one client at one server.
#[derive(Debug, Default)]
pub(super) struct UncertainKeys {
    keys: Vec<(Key, ExecutionIndex)>,
    in_flight: usize,
    /// The call in flight that began alone, and how many uncertain keys there were then; nothing has failed since.
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

    /// A call ended, by a reply if `had_reply`; returns the keys that are certainly removed, each with the execution index
    /// after which it was removed.
    pub(super) fn end(&mut self, call: usize, had_reply: bool) -> Vec<(Key, ExecutionIndex)> {
        self.in_flight = self.in_flight.saturating_sub(1);
        if !had_reply {
            self.sole_call = None;
        }
        match self.sole_call {
            Some((sole_call_id, key_count_before)) if sole_call_id == call => {
                self.sole_call = None;
                let is_still_alone = self.in_flight == 0;
                self.keys.drain(..if is_still_alone { key_count_before } else { 0 }).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_with_reply(uncertain_keys: &mut UncertainKeys, call: usize) -> Vec<Key> {
        uncertain_keys.end(call, true).into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn a_call_alone_removes_what_was_uncertain_before_it() {
        let mut uncertain_keys = UncertainKeys::default();
        uncertain_keys.add(3, 5);
        uncertain_keys.begin(1);
        uncertain_keys.add(4, 12);
        assert_eq!(end_with_reply(&mut uncertain_keys, 1), [3]);
        uncertain_keys.begin(2);
        assert_eq!(end_with_reply(&mut uncertain_keys, 2), [4]);
        uncertain_keys.begin(3);
        assert!(end_with_reply(&mut uncertain_keys, 3).is_empty());
    }

    #[test]
    fn a_call_among_others_or_without_a_reply_proves_nothing() {
        let mut uncertain_keys = UncertainKeys::default();
        uncertain_keys.add(3, 5);
        uncertain_keys.begin(1);
        uncertain_keys.begin(2);
        assert!(end_with_reply(&mut uncertain_keys, 1).is_empty());
        assert!(end_with_reply(&mut uncertain_keys, 2).is_empty());
        uncertain_keys.begin(4);
        assert!(uncertain_keys.end(4, false).is_empty());
        uncertain_keys.begin(5);
        assert_eq!(end_with_reply(&mut uncertain_keys, 5), [3]);
    }
}
