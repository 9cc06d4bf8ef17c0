//! Reading ahead: the requests of several connections of one iteration are received before the first is served.
//!
//! Each command by itself waits twice for memory, for the bucket of its key and for the item. For connections that
//! are read ahead together the cache lines of all first keys are prefetched at once, as within one pipeline
//! (`session/execute/batch`), and the kernel's code for receiving stays in the instruction cache. A prefetch is a
//! hint: serving looks everything up again.

use arrayvec::ArrayVec;
use glasscache_protocol::binary::{self, MAGIC_REQUEST};
use glasscache_protocol::text;
use rustix::event::epoll::{self, EventFlags};

use super::Worker;
use super::slots::WAKE_TOKEN;
use crate::net::connection::READ_AHEAD_BYTES;
use crate::shared::connection_info::CloseReason;
use crate::shared::peer_memory::Pressure;

/// Maximum number of connections read ahead together: one core has about as many line fills in flight.
pub(super) const READ_AHEAD_CONNECTIONS: usize = 16;

/// A connection that sends more than this has enough keys to prefetch without the others, and reading on would only
/// evict received bytes from the L1 cache.
const LONG_INPUT_BYTES: usize = 512;

/// The input received from the connections of some events, each at the index of its event.
pub(super) struct ReadAhead {
    input: Vec<u8>,
    receive_results: ArrayVec<Option<Result<Option<usize>, CloseReason>>, READ_AHEAD_CONNECTIONS>,
}

impl ReadAhead {
    pub(super) fn new() -> ReadAhead {
        ReadAhead {
            input: vec![0; READ_AHEAD_CONNECTIONS * READ_AHEAD_BYTES],
            receive_results: ArrayVec::new(),
        }
    }

    /// Whether the connection of the event at `event_index` was read ahead.
    pub(super) fn has_received(&self, event_index: usize) -> bool {
        matches!(self.receive_results.get(event_index), Some(Some(_)))
    }

    /// The input of the connection of the event at `event_index`, or how it ended.
    pub(super) fn received_input(&self, event_index: usize) -> Result<Option<&[u8]>, CloseReason> {
        match self.receive_results.get(event_index) {
            Some(Some(Ok(Some(received_bytes)))) => {
                let input_start = event_index * READ_AHEAD_BYTES;
                Ok(self.input.get(input_start..input_start + received_bytes))
            }
            Some(Some(Err(reason))) => Err(*reason),
            _ => Ok(None),
        }
    }
}

/// The first key of what a connection sent, in whichever protocol.
fn likely_key(input: &[u8]) -> Option<&[u8]> {
    if input.first() == Some(&MAGIC_REQUEST) {
        binary::likely_key(input)
    } else {
        text::likely_key(input)
    }
}

impl Worker {
    /// Receives the input of the connections of `events` (at most [`READ_AHEAD_CONNECTIONS`]) and prefetches the memory
    /// of their first keys. A single connection gains nothing.
    pub(super) fn receive_ahead(&mut self, events: &[epoll::Event]) {
        self.read_ahead.receive_results.clear();
        // While memory is short input is only peeked.
        if events.len() < 2 || self.shared.peer_memory.pressure() == Pressure::High {
            return;
        }
        let Worker { read_ahead, connections, store_worker, counters, .. } = self;
        let mut prefetches = ArrayVec::<_, READ_AHEAD_CONNECTIONS>::new();
        for (event, buffer) in events.iter().zip(read_ahead.input.chunks_mut(READ_AHEAD_BYTES)) {
            let (slot_key, event_flags) = ({ event.data }.u64(), { event.flags });
            let connection = (slot_key != WAKE_TOKEN && !event_flags.contains(EventFlags::OUT))
                .then(|| connections.get_mut(slot_key))
                .flatten()
                .filter(|connection| connection.may_read_ahead());
            let receive_result =
                connection.map(|connection| connection.stream.receive(buffer, counters));
            if let Some(Ok(Some(received_bytes))) = receive_result
                && let Some(key) = likely_key(buffer.get(..received_bytes).unwrap_or_default())
            {
                let hash = store_worker.store().hash(key);
                let _ = prefetches.try_push((hash, store_worker.prefetch_bucket(hash)));
            }
            let _ = read_ahead.receive_results.try_push(receive_result);
            if matches!(receive_result, Some(Ok(Some(LONG_INPUT_BYTES..)))) {
                break;
            }
        }
        let hints: ArrayVec<_, READ_AHEAD_CONNECTIONS> = prefetches
            .into_iter()
            .map(|(hash, prefetch)| (hash, store_worker.prefetch_item(hash, prefetch)))
            .collect();
        for (hash, hint) in hints {
            store_worker.prefetch_next_line(hash, hint);
        }
        // Drops the lookup hints: a write that finds no segment relies on nothing being borrowed.
        store_worker.pass();
    }
}
