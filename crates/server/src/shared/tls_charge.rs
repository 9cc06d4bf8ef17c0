//! The memory that TLS keeps for handshakes and for open connections, each within a share of its own.
//!
//! Handshakes come from peers without any credentials, so they cannot take what logged-in clients need. Open
//! connections keep their keys and a buffer for as long as they are open, so their number is bounded by memory too.
//! Both shares are parts of the limit of `peer_memory`, and what they take is subtracted from its budget.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::shared::peer_memory::PeerMemory;
use crate::shared::tls_memory::{Share, TlsMemory};

/// What rustls keeps for an open connection without data in bytes: its state, its keys, and the 4 KiB into which it
/// receives.
pub(crate) const OPEN_BYTES: usize = 7 << 10;

/// What rustls keeps for a handshake in bytes, beside what the client has sent.
pub(crate) const HANDSHAKE_BYTES: usize = 12 << 10;

/// Open connections and requests together may exceed the limit by this part of it: connections that open take memory
/// that requests already have.
const EXCESS_DIVISOR: u64 = 32;

/// Handshakes may take this part of the limit, while open connections and requests leave as much.
const HANDSHAKE_DIVISOR: u64 = 4;

/// What open connections and those that are being closed for them may exceed the limit by together.
const DISPLACED_DIVISOR: u64 = 16;

/// Whether there is memory for one more open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenRoom {
    Free,
    /// Another has to be closed, which may take its time.
    AfterClose,
    /// What others hold leaves nothing, not even until another is closed.
    Nothing,
}

/// Bytes of a share, returned when dropped.
#[derive(Debug)]
pub(crate) struct TlsCharge {
    memory: Arc<PeerMemory>,
    share: Share,
    bytes: usize,
}

impl TlsCharge {
    /// A charge for a handshake, which takes nothing yet. Only one thread makes handshakes.
    pub(crate) fn for_handshake(memory: &Arc<PeerMemory>) -> TlsCharge {
        TlsCharge { memory: Arc::clone(memory), share: Share::Handshakes, bytes: 0 }
    }

    /// Bytes charged.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges `bytes` of the share of handshakes from now on, if these are available.
    pub(crate) fn try_set(&mut self, bytes: usize) -> bool {
        let is_granted =
            bytes <= self.bytes || self.may_take_for_handshake((bytes - self.bytes) as u64);
        if is_granted {
            self.set(bytes);
        }
        is_granted
    }

    /// Whether handshakes may take more: always the least share, beyond it only what requests have left of the limit.
    fn may_take_for_handshake(&self, more_bytes: u64) -> bool {
        let memory = &self.memory;
        let limit_bytes = memory.limit_bytes();
        let handshake_bytes = memory.tls.bytes_of(Share::Handshakes) + more_bytes;
        let rest_bytes =
            memory.tls.open_rest_bytes(limit_bytes).min(limit_bytes / HANDSHAKE_DIVISOR);
        handshake_bytes <= TlsMemory::least_handshake_bytes(limit_bytes)
            || (handshake_bytes <= rest_bytes
                && memory.held_bytes() + more_bytes <= limit_bytes + limit_bytes / EXCESS_DIVISOR)
    }

    /// Whether this connection, whose handshake is complete, may be open instead: within the share, and within a little
    /// more than what requests and the others have left of the limit.
    pub(crate) fn room_for_open(&self) -> OpenRoom {
        let limit_bytes = self.memory.limit_bytes();
        let held_bytes = self.memory.held_bytes().saturating_sub(self.bytes as u64);
        let held_bytes = held_bytes + OPEN_BYTES as u64;
        if !self.is_open_share_full() && held_bytes <= limit_bytes + limit_bytes / EXCESS_DIVISOR {
            OpenRoom::Free
        } else if held_bytes <= limit_bytes + limit_bytes / DISPLACED_DIVISOR {
            OpenRoom::AfterClose
        } else {
            OpenRoom::Nothing
        }
    }

    /// Whether open connections have all of their share, whatever requests hold.
    pub(crate) fn is_open_share_full(&self) -> bool {
        self.memory.tls.open_rest_bytes(self.memory.limit_bytes()) < OPEN_BYTES as u64
    }

    /// Keeps no more than an open connection takes, once the handshake is complete.
    pub(crate) fn finish_handshake(&mut self) {
        self.set(OPEN_BYTES);
    }

    /// Turns the charge for a handshake into that of an open connection, whose memory was checked.
    pub(crate) fn become_open(&mut self) {
        self.set(0);
        self.share = Share::Open;
        self.set(OPEN_BYTES);
    }

    fn set(&mut self, bytes: usize) {
        let difference = bytes as i64 - std::mem::replace(&mut self.bytes, bytes) as i64;
        self.memory.tls.of_share(self.share).fetch_add(difference, Ordering::Relaxed);
        self.memory.record_change(difference);
        if difference < 0 {
            self.memory.record_release();
        }
    }
}

impl Drop for TlsCharge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use glasscache_store::{Config, Store};
    use proptest::prelude::*;

    use super::*;
    use crate::shared::peer_memory::Charge;

    fn memory() -> Arc<PeerMemory> {
        let config = Config { memory_bytes: 16 << 20, workers: 1, ..Config::default() };
        PeerMemory::new(Store::new(config).unwrap(), Vec::new())
    }

    /// What peers hold in a program of [`Peers::step`].
    #[derive(Default)]
    struct Peers {
        handshakes: Vec<TlsCharge>,
        open: Vec<TlsCharge>,
        /// Those that are being closed for others.
        closing: Vec<TlsCharge>,
        requests: Vec<Charge>,
    }

    impl Peers {
        fn step(&mut self, memory: &Arc<PeerMemory>, action: u8, bytes: usize) {
            match action {
                0 | 1 => {
                    let mut charge = TlsCharge::for_handshake(memory);
                    charge.try_set(HANDSHAKE_BYTES);
                    self.handshakes.push(charge);
                }
                2 => {
                    if let Some(charge) = self.handshakes.last_mut() {
                        charge.try_set(HANDSHAKE_BYTES + bytes % (20 << 10));
                    }
                }
                3 | 4 => self.open_last_handshake(),
                5 | 6 => self.requests.extend(memory.try_charge(bytes % (84 << 10), false)),
                7 => {
                    let is_granted = memory.try_grant_input(bytes % (2 << 10), false);
                    self.requests.extend(is_granted.then(|| memory.charge(bytes % (2 << 10))));
                }
                8 => self.closing.clear(),
                _ => {
                    self.requests.truncate(bytes % (self.requests.len() + 1));
                    self.handshakes.truncate(bytes % (self.handshakes.len() + 1));
                }
            }
        }

        fn open_last_handshake(&mut self) {
            let Some(mut charge) = self.handshakes.pop() else {
                return;
            };
            if charge.bytes() == 0 {
                return;
            }
            charge.finish_handshake();
            let room = charge.room_for_open();
            let displaced = if room == OpenRoom::AfterClose { self.open.pop() } else { None };
            if room == OpenRoom::Free || displaced.is_some() {
                self.closing.extend(displaced);
                charge.become_open();
                self.open.push(charge);
            } else {
                self.handshakes.push(charge);
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_peers_begin_the_limit_holds(
            steps in proptest::collection::vec((0_u8..10, 1_usize..1 << 20), 1..800),
        ) {
            let memory = memory();
            let mut peers = Peers::default();
            for (action, bytes) in steps {
                peers.step(&memory, action, bytes);
                let (held_bytes, limit_bytes) = (memory.held_bytes(), memory.limit_bytes());
                prop_assert!(held_bytes * 10 <= limit_bytes * 11, "{held_bytes}");
            }
            prop_assert_eq!(memory.faults(), 0);
            drop(peers);
            prop_assert_eq!(memory.held_bytes(), 0);
        }
    }

    #[test]
    fn what_a_handshake_took_is_not_held_against_its_own_connection() {
        let memory = memory();
        let mut charge = TlsCharge::for_handshake(&memory);
        assert!(charge.try_set(HANDSHAKE_BYTES + (8 << 10)));
        let limit_bytes = memory.limit_bytes() as usize;
        let held = memory.charge(limit_bytes + limit_bytes / EXCESS_DIVISOR as usize - OPEN_BYTES);
        assert_eq!(charge.room_for_open(), OpenRoom::Free);
        drop(held);
        let held = memory.charge(limit_bytes);
        assert_eq!(charge.room_for_open(), OpenRoom::Free);
        let more = memory.charge(limit_bytes / EXCESS_DIVISOR as usize);
        assert_eq!(charge.room_for_open(), OpenRoom::AfterClose);
        let most = memory.charge(limit_bytes / EXCESS_DIVISOR as usize);
        assert_eq!(charge.room_for_open(), OpenRoom::Nothing);
        drop((held, more, most));
    }

    #[test]
    fn requests_leave_memory_for_handshakes_and_those_take_it() {
        let memory = memory();
        let mut first = TlsCharge::for_handshake(&memory);
        assert!(first.try_set(HANDSHAKE_BYTES));
        let mut requests = Vec::new();
        while let Some(charge) = memory.try_charge(10 << 10, false) {
            requests.push(charge);
        }
        let mut handshakes: Vec<TlsCharge> =
            (0..20).map(|_| TlsCharge::for_handshake(&memory)).collect();
        let granted = handshakes
            .iter_mut()
            .filter_map(|charge| charge.try_set(HANDSHAKE_BYTES).then_some(()));
        let granted_count = granted.count();
        assert!(granted_count >= 15, "{granted_count} beside requests that hold all they may");
        assert!(memory.held_bytes() * 32 <= memory.limit_bytes() * 33);
    }
}
