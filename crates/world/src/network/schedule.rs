//! The virtual time, and what is to happen when: events in the order of that time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::link::LinkId;
use crate::plan::{InjectedFault, Micros};

/// Something that happens at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A connection is made, or refused.
    Connected(LinkId),
    /// Bytes or the end arrive at the server.
    ToServer(LinkId),
    /// Bytes or the end arrive at the client.
    ToClient(LinkId),
    /// The server has read, so that the client may send more.
    Writable(LinkId),
    /// A server sends more refusals of its flood.
    Flood(LinkId),
    /// A server goes on after a pause.
    Resume(usize),
    /// A server is back.
    Up(usize),
    /// A task goes on.
    Task(usize),
    /// The time of a call is over.
    Deadline(usize),
    /// A call must have ended.
    Overdue(usize),
    /// A deadline of a connection's calls.
    Tick(usize),
    /// The caller of a call gives up.
    Cancel(usize),
    /// Something goes wrong.
    Fault(InjectedFault),
    /// A process sends what its calls wrote on a connection of an event loop.
    SendOutput(usize, usize),
    /// A process probes a server that is down.
    Probe(usize, usize),
    /// The time of a probe is over.
    ProbeTimeout(usize, usize),
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    time: Micros,
    sequence: u64,
    event: Event,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest first.
        (other.time, other.sequence).cmp(&(self.time, self.sequence))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The virtual time, and events that have not happened.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    now: Micros,
    heap: BinaryHeap<Entry>,
    last_sequence: u64,
}

impl Schedule {
    /// The virtual time.
    pub(crate) fn now(&self) -> Micros {
        self.now
    }

    /// Has something happen after a while.
    pub(crate) fn add(&mut self, wait: Micros, event: Event) {
        self.add_at(self.now + wait, event);
    }

    /// Has something happen at a moment; events of one moment happen in the order in which they were added.
    pub(super) fn add_at(&mut self, time: Micros, event: Event) {
        self.last_sequence += 1;
        let sequence = self.last_sequence;
        self.heap.push(Entry { time, sequence, event });
    }

    /// Goes to the next event.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let Entry { time, event, .. } = self.heap.pop()?;
        self.now = self.now.max(time);
        Some(event)
    }
}
