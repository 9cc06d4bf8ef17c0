//! Slots of connections that have not proven anything yet, and which of them has to go when a newer one needs its
//! slot.
//!
//! Many silent connections must not keep an honest client out. So the source with the most slots gives one up first,
//! and of its connections the one that has done least, the oldest if several have done equally little.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::shared::source::Source;

/// How long a connection keeps its slot in any case: many honest clients may connect at once, and what they sent is
/// still to be read.
pub(crate) const KEPT_TIME: Duration = Duration::from_millis(50);

/// The serial numbers of the connections that have a slot, by source and by what they have done.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    by_serial: BTreeMap<u64, Slot>,
    /// The effort and the serial number of each connection of a source: the first has to go first.
    by_source: BTreeMap<Source, BTreeSet<(u32, u64)>>,
    /// The sources by the number of their slots.
    sources_by_count: BTreeSet<(usize, Source)>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    source: Source,
    effort: u32,
    taken_at: Instant,
}

impl Slots {
    /// The number of slots that are taken.
    pub(crate) fn len(&self) -> usize {
        self.by_serial.len()
    }

    /// Gives a slot to a connection that has done nothing yet.
    pub(crate) fn insert(&mut self, serial: u64, source: Source, now: Instant) {
        self.remove(serial);
        self.add(serial, Slot { source, effort: 0, taken_at: now });
    }

    /// Records what a connection has done so far: the more, the later it has to go. One without a slot gets none.
    pub(crate) fn set_effort(&mut self, serial: u64, effort: u32) {
        if let Some(slot) = self.by_serial.get(&serial).copied()
            && slot.effort != effort
        {
            self.remove(serial);
            self.add(serial, Slot { effort, ..slot });
        }
    }

    /// Takes the slot from a connection; false if it had none.
    pub(crate) fn remove(&mut self, serial: u64) -> bool {
        let Some(Slot { source, effort, .. }) = self.by_serial.remove(&serial) else {
            return false;
        };
        if let Some(slots) = self.by_source.get_mut(&source) {
            self.sources_by_count.remove(&(slots.len(), source));
            slots.remove(&(effort, serial));
            if slots.is_empty() {
                self.by_source.remove(&source);
            } else {
                self.sources_by_count.insert((slots.len(), source));
            }
        }
        true
    }

    /// The connection that has to go first, if it has done less than `effort_max` and has had its slot for
    /// [`KEPT_TIME`]: of the source with the most slots the one that has done least, and of those the oldest.
    pub(crate) fn first_to_go(&self, effort_max: u32, now: Instant) -> Option<u64> {
        let (effort, serial) = self.slots_of_largest_source()?.first()?;
        let taken_at = self.by_serial.get(serial)?.taken_at;
        let may_go = *effort < effort_max && now.duration_since(taken_at) >= KEPT_TIME;
        may_go.then_some(*serial)
    }

    /// The newest connection of the source with the most slots, if another source has a slot too and this one more
    /// than one.
    pub(crate) fn newest_of_largest_source(&self) -> Option<u64> {
        let slots = self.slots_of_largest_source()?;
        let (_, newest) = slots.iter().max_by_key(|(_, serial)| *serial)?;
        (self.by_source.len() > 1 && slots.len() > 1).then_some(*newest)
    }

    fn slots_of_largest_source(&self) -> Option<&BTreeSet<(u32, u64)>> {
        let (_, source) = self.sources_by_count.last()?;
        self.by_source.get(source)
    }

    fn add(&mut self, serial: u64, slot: Slot) {
        self.by_serial.insert(serial, slot);
        let slots = self.by_source.entry(slot.source).or_default();
        self.sources_by_count.remove(&(slots.len(), slot.source));
        slots.insert((slot.effort, serial));
        self.sources_by_count.insert((slots.len(), slot.source));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shared::connection_info::Peer;

    fn source(number: u8) -> Source {
        Source::of(&Peer::Tcp(([10, 0, 0, number], 1).into()))
    }

    #[test]
    fn the_source_with_most_slots_loses_the_one_that_has_done_least() {
        let mut slots = Slots::default();
        let opened_at = Instant::now();
        for (serial, number) in [(1, 1), (2, 2), (3, 2), (4, 2), (5, 3), (6, 3)] {
            slots.insert(serial, source(number), opened_at);
        }
        let now = opened_at + KEPT_TIME;
        assert_eq!(slots.first_to_go(10, now.checked_sub(Duration::from_millis(1)).unwrap()), None);
        assert_eq!(slots.first_to_go(10, now), Some(2));
        slots.set_effort(2, 5);
        assert_eq!(slots.first_to_go(10, now), Some(3));
        slots.set_effort(3, 10);
        slots.set_effort(4, 10);
        assert_eq!((slots.first_to_go(6, now), slots.first_to_go(5, now)), (Some(2), None));
        assert_eq!(slots.newest_of_largest_source(), Some(4));
        assert!(slots.remove(4) && !slots.remove(4) && slots.remove(3));
        assert_eq!((slots.len(), slots.first_to_go(1, now)), (4, Some(5)));
    }

    proptest! {
        #[test]
        fn every_removal_follows_the_rule_and_nothing_is_left_behind(
            steps in proptest::collection::vec((0_u64..40, 0_u8..4, 0_u32..4, 0_u8..4), 1..200),
        ) {
            let mut slots = Slots::default();
            let opened_at = Instant::now();
            let mut expected: BTreeMap<u64, (u8, u32)> = BTreeMap::new();
            for (serial, number, effort, step) in steps {
                match step {
                    0 | 1 => {
                        slots.insert(serial, source(number), opened_at);
                        expected.insert(serial, (number, 0));
                    }
                    2 => {
                        slots.set_effort(serial, effort);
                        if let Some((_, expected_effort)) = expected.get_mut(&serial) {
                            *expected_effort = effort;
                        }
                    }
                    _ => prop_assert_eq!(slots.remove(serial), expected.remove(&serial).is_some()),
                }
                let count_of = |number: u8| {
                    expected.values().filter(|(other, _)| *other == number).count()
                };
                let most = expected.values().map(|(number, _)| count_of(*number)).max();
                let first = slots.first_to_go(u32::MAX, opened_at + KEPT_TIME);
                prop_assert_eq!(slots.len(), expected.len());
                prop_assert_eq!(first.is_some(), !expected.is_empty());
                if let Some(first) = first {
                    let (number, effort) = expected[&first];
                    prop_assert_eq!(Some(count_of(number)), most);
                    let has_earlier = expected.iter().any(|(serial, other)| {
                        other.0 == number && (other.1, *serial) < (effort, first)
                    });
                    prop_assert!(!has_earlier);
                }
            }
        }
    }
}
