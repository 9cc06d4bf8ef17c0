//! Reading ahead: the requests of several connections of one iteration are received before the first is served.
//!
//! Each command alone waits twice for memory, for the bucket of its key and for the item. Of connections that are
//! read ahead together the lines behind all first keys are on their way at once, as within one pipeline
//! (`session/execute/batch`), and the kernel's code for receiving runs once for all. What was fetched is a hint: serving
//! looks everything up anew.

use arrayvec::ArrayVec;
use glasscache_protocol::text;
use rustix::event::epoll::{self, EventFlags};

use super::Worker;
use super::slots::WAKE_TOKEN;
use crate::net::connection::{READ_AHEAD_BYTES, receive};
use crate::shared::info::Reason;
use crate::shared::peer_memory::Pressure;

/// Connections read ahead together: as many as one core has line fills in flight.
pub(super) const TOGETHER: usize = 16;

/// A connection that sends more than this has keys enough to fetch them without the others, and reading on would
/// only push what was received out of the nearest cache.
const MUCH_BYTES: usize = 512;

/// What was received of the connections of some events, each at its event's index.
pub(super) struct ReadAhead {
    input: Vec<u8>,
    received: ArrayVec<Option<Result<Option<usize>, Reason>>, TOGETHER>,
}

impl ReadAhead {
    pub(super) fn new() -> ReadAhead {
        ReadAhead {
            input: vec![0; TOGETHER * READ_AHEAD_BYTES],
            received: ArrayVec::new(),
        }
    }

    /// Whether the connection of the event at `index` was read ahead.
    pub(super) fn has_received(&self, index: usize) -> bool {
        matches!(self.received.get(index), Some(Some(_)))
    }

    /// What the connection of the event at `index` sent, or why it is over.
    pub(super) fn received(&self, index: usize) -> Result<Option<&[u8]>, Reason> {
        match self.received.get(index) {
            Some(Some(Ok(Some(bytes)))) => {
                let from = index * READ_AHEAD_BYTES;
                Ok(self.input.get(from..from + bytes))
            }
            Some(Some(Err(reason))) => Err(*reason),
            _ => Ok(None),
        }
    }
}

impl Worker {
    /// Receives what the connections of `events` (at most [`TOGETHER`]) sent and fetches what their first keys need.
    /// A single one gains nothing by it.
    pub(super) fn receive_ahead(&mut self, events: &[epoll::Event]) {
        self.read_ahead.received.clear();
        // While memory is short input is only peeked at.
        if events.len() < 2 || self.shared.memory.pressure() == Pressure::High {
            return;
        }
        let Worker {
            read_ahead,
            connections,
            store,
            counters,
            ..
        } = self;
        let mut asked = ArrayVec::<_, TOGETHER>::new();
        for (event, room) in events
            .iter()
            .zip(read_ahead.input.chunks_mut(READ_AHEAD_BYTES))
        {
            let (key, flags) = ({ event.data }.u64(), { event.flags });
            let connection = (key != WAKE_TOKEN && !flags.contains(EventFlags::OUT))
                .then(|| connections.get_mut(key))
                .flatten()
                .filter(|connection| connection.may_read_ahead());
            let received = connection.map(|connection| receive(&connection.socket, room, counters));
            if let Some(Ok(Some(bytes))) = received
                && let Some(key) = text::likely_key(room.get(..bytes).unwrap_or_default())
            {
                let hash = store.store().hash(key);
                let _ = asked.try_push((hash, store.prefetch_bucket(hash)));
            }
            let _ = read_ahead.received.try_push(received);
            if matches!(received, Some(Ok(Some(MUCH_BYTES..)))) {
                break;
            }
        }
        let guesses: ArrayVec<_, TOGETHER> = asked
            .into_iter()
            .map(|(hash, asked)| (hash, store.prefetch_item(hash, asked)))
            .collect();
        for (hash, guess) in guesses {
            store.prefetch_further(hash, guess);
        }
        // The guesses are forgotten: a write that finds no room may count on nothing being borrowed.
        store.pass();
    }
}
