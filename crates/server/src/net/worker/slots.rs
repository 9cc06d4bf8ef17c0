//! A worker's connections by slot, under keys that detect stale events.

use rustix::event::epoll::EventFlags;

use crate::net::connection::{Connection, Interest};

/// The event data of the worker's waker.
pub(super) const WAKE_TOKEN: u64 = u64::MAX;

/// Connections by slot; a key is slot and generation, so that a stale event matches no connection.
#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<(u32, Option<Connection>)>,
    free_slots: Vec<u32>,
}

impl Slots {
    pub(super) fn insert(&mut self, connection: Connection) -> u64 {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        match self.slots.get_mut(slot as usize) {
            Some((generation, slot_connection)) => {
                *generation = generation.wrapping_add(1) & 0x7fff_ffff;
                *slot_connection = Some(connection);
                u64::from(*generation) << 32 | u64::from(slot)
            }
            // Impossible: the slot exists. This key matches no connection.
            None => WAKE_TOKEN,
        }
    }

    pub(super) fn get_mut(&mut self, slot_key: u64) -> Option<&mut Connection> {
        let (generation, slot_connection) = self.slots.get_mut(slot_key as u32 as usize)?;
        if u64::from(*generation) == slot_key >> 32 { slot_connection.as_mut() } else { None }
    }

    pub(super) fn get(&self, slot_key: u64) -> Option<&Connection> {
        let (generation, slot_connection) = self.slots.get(slot_key as u32 as usize)?;
        let is_current = u64::from(*generation) == slot_key >> 32;
        slot_connection.as_ref().filter(|_| is_current)
    }

    /// Records what `flags` report about the peer's end; returns whether a waiting connection no longer has a peer.
    pub(super) fn record_hangup(&mut self, slot_key: u64, flags: EventFlags) -> bool {
        if !flags.intersects(EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP) {
            return false;
        }
        let Some(connection) = self.get_mut(slot_key) else {
            return false;
        };
        connection.is_half_closed |= flags.intersects(EventFlags::HUP | EventFlags::RDHUP);
        connection.interest == Interest::Nothing && flags.contains(EventFlags::HUP)
    }

    pub(super) fn remove(&mut self, slot_key: u64) -> Option<Connection> {
        self.get_mut(slot_key)?;
        let slot = slot_key as u32;
        self.free_slots.push(slot);
        let (_, slot_connection) = self.slots.get_mut(slot as usize)?;
        slot_connection.take()
    }

    /// The keys of all connections that `is_wanted`.
    pub(super) fn keys_where(&self, is_wanted: impl Fn(&Connection) -> bool) -> Vec<u64> {
        let wanted_key =
            |(slot, (generation, slot_connection)): (usize, &(u32, Option<Connection>))| {
                let is_wanted_slot = slot_connection.as_ref().is_some_and(&is_wanted);
                is_wanted_slot.then_some(u64::from(*generation) << 32 | slot as u64)
            };
        self.slots.iter().enumerate().filter_map(wanted_key).collect()
    }
}
