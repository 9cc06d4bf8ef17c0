//! A connection's wait for peer memory: how many bytes, and since when.

use std::time::{Duration, Instant};

use crate::shared::peer_memory::PeerMemory;

/// A connection's wait for peer memory, if it waits.
#[derive(Debug, Default)]
pub(crate) struct MemoryWait {
    /// Bytes of memory that it waits for; 0 while it does not wait.
    wanted_bytes: usize,
    /// Since when it waits.
    since: Option<Instant>,
    /// Bytes missing from its incomplete command for which no memory was granted; 0 if all of its memory is granted.
    missing_bytes: usize,
    /// It is in the worker's queue of connections that wait for memory.
    is_in_queue: bool,
}

impl MemoryWait {
    pub(crate) fn wanted_bytes(&self) -> usize {
        self.wanted_bytes
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.wanted_bytes > 0
    }

    pub(super) fn missing_bytes(&self) -> usize {
        self.missing_bytes
    }

    /// Sets the missing bytes of its command for which no memory was granted.
    pub(super) fn set_missing_bytes(&mut self, missing_bytes: usize) {
        self.missing_bytes = missing_bytes;
    }

    /// Its command was received, or starts over; returns the bytes that were missing.
    pub(super) fn take_missing_bytes(&mut self) -> usize {
        std::mem::take(&mut self.missing_bytes)
    }

    /// Whether it waits for memory and not for its peer: the rest of its command is in the socket.
    pub(crate) fn is_for_server(&self) -> bool {
        self.is_waiting() && self.missing_bytes == 0
    }

    /// Whether it has waited for at least this long.
    pub(crate) fn has_lasted(&self, time: Duration, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) >= time)
    }

    /// Records the bytes that it waits for now, or 0; returns whether a wait begins.
    pub(super) fn update(
        &mut self,
        wanted_bytes: usize,
        peer_memory: &PeerMemory,
        now: Instant,
    ) -> bool {
        if wanted_bytes == self.wanted_bytes {
            return false;
        }
        peer_memory.record_wanted(self.wanted_bytes, wanted_bytes);
        let begins = self.wanted_bytes == 0;
        if begins {
            self.since = Some(now);
        } else if wanted_bytes == 0 {
            self.since = None;
        }
        self.wanted_bytes = wanted_bytes;
        begins
    }

    /// Ends the wait because the connection is closed.
    pub(crate) fn end(&mut self, peer_memory: &PeerMemory) {
        peer_memory.record_wanted(std::mem::take(&mut self.wanted_bytes), 0);
        self.since = None;
    }

    /// Records that it is in the worker's queue; returns whether it was not.
    pub(crate) fn enter_queue(&mut self) -> bool {
        !std::mem::replace(&mut self.is_in_queue, true)
    }

    pub(crate) fn leave_queue(&mut self) {
        self.is_in_queue = false;
    }
}

#[cfg(test)]
mod tests {
    use glasscache_store::{Config, Store};

    use super::*;

    #[test]
    fn a_wait_lasts_from_the_first_bytes_wanted_until_none_are() {
        let config = Config { memory_bytes: 64 << 20, workers: 1, ..Config::default() };
        let memory = PeerMemory::new(Store::new(config).unwrap(), Vec::new());
        let began_at = Instant::now();
        let at = |ms| began_at + Duration::from_millis(ms);
        let (mut wait, limit) = (MemoryWait::default(), Duration::from_millis(100));
        assert!(wait.update(10, &memory, began_at));
        assert!(!wait.update(20, &memory, at(60)), "the same wait, for more");
        assert_eq!((memory.waiting_connections(), memory.wanted_bytes()), (1, 20));
        assert!(!wait.has_lasted(limit, at(99)) && wait.has_lasted(limit, at(100)));
        assert!(!wait.update(0, &memory, at(120)));
        assert!(!wait.is_waiting() && !wait.has_lasted(limit, at(1000)));
        assert!(wait.update(5, &memory, at(130)));
        wait.end(&memory);
        assert_eq!((memory.waiting_connections(), memory.wanted_bytes()), (0, 0));
    }

    #[test]
    fn a_connection_whose_command_is_incomplete_waits_for_its_peer() {
        let mut wait = MemoryWait { wanted_bytes: 10, ..MemoryWait::default() };
        assert!(wait.is_for_server());
        wait.set_missing_bytes(3);
        assert!(!wait.is_for_server());
        assert_eq!(wait.take_missing_bytes(), 3);
        assert!(wait.is_for_server());
    }
}
