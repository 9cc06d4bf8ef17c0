//! Hearing: what several connections of one turn ask is received before the first is answered.
//!
//! Each command alone waits twice for memory, for the bucket of its key and for the item. Of connections that are
//! heard together the lines behind all first keys are on their way at once, as within one pipeline
//! (`execute/batch`), and the kernel's code for receiving runs once for all. What was fetched is a hint: serving
//! looks everything up anew.

use arrayvec::ArrayVec;
use glasscache_protocol::text;
use rustix::event::epoll::{self, EventFlags};

use super::Worker;
use super::slots::BELL;
use crate::net::connection::{HEARD_BYTES, receive};
use crate::shared::info::Reason;
use crate::shared::peer_memory::Pressure;

/// Connections heard together: as many as one core has line fills in flight.
pub(super) const TOGETHER: usize = 16;

/// Who says more than this has keys enough to fetch them ahead without the others, and hearing on would only push
/// what was received out of the nearest cache.
const MUCH_BYTES: usize = 512;

/// What was received of the connections of some events, each at its event's place.
pub(super) struct Ahead {
    input: Vec<u8>,
    heard: ArrayVec<Option<Result<Option<usize>, Reason>>, TOGETHER>,
}

impl Ahead {
    pub(super) fn new() -> Ahead {
        Ahead {
            input: vec![0; TOGETHER * HEARD_BYTES],
            heard: ArrayVec::new(),
        }
    }

    /// Whether the connection of the event at `place` was heard.
    pub(super) fn has_heard(&self, place: usize) -> bool {
        matches!(self.heard.get(place), Some(Some(_)))
    }

    /// What the connection of the event at `place` said, or why it is over.
    pub(super) fn heard(&self, place: usize) -> Result<Option<&[u8]>, Reason> {
        match self.heard.get(place) {
            Some(Some(Ok(Some(bytes)))) => {
                let from = place * HEARD_BYTES;
                Ok(self.input.get(from..from + bytes))
            }
            Some(Some(Err(reason))) => Err(*reason),
            _ => Ok(None),
        }
    }
}

impl Worker {
    /// Receives what the connections of `events` (at most [`TOGETHER`]) say and fetches what their first keys need.
    /// A single one gains nothing by it.
    pub(super) fn hear(&mut self, events: &[epoll::Event]) {
        self.ahead.heard.clear();
        // While memory is short input is only peeked at.
        if events.len() < 2 || self.shared.memory.pressure() == Pressure::High {
            return;
        }
        let Worker {
            ahead,
            connections,
            store,
            counters,
            ..
        } = self;
        let mut asked = ArrayVec::<_, TOGETHER>::new();
        for (event, room) in events.iter().zip(ahead.input.chunks_mut(HEARD_BYTES)) {
            let (key, flags) = ({ event.data }.u64(), { event.flags });
            let connection = (key != BELL && !flags.contains(EventFlags::OUT))
                .then(|| connections.get_mut(key))
                .flatten()
                .filter(|connection| connection.may_be_heard());
            let heard = connection.map(|connection| receive(&connection.socket, room, counters));
            if let Some(Ok(Some(bytes))) = heard
                && let Some(key) = text::likely_key(room.get(..bytes).unwrap_or_default())
            {
                let hash = store.store().hash(key);
                let _ = asked.try_push((hash, store.prefetch_bucket(hash)));
            }
            let _ = ahead.heard.try_push(heard);
            if matches!(heard, Some(Ok(Some(MUCH_BYTES..)))) {
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
