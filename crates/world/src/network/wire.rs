//! How bytes travel between the two sides of a connection: when they arrive, and in how many pieces.

use super::link::{Direction, End, Link, Packet};
use super::schedule::{Event, Schedule};
use crate::plan::{Micros, NetworkPlan};
use crate::random::Random;

/// What carries packets from end to end.
pub(super) struct Wire {
    plan: NetworkPlan,
    pub(super) random: Random,
}

impl Wire {
    pub(super) fn new(plan: NetworkPlan, random: Random) -> Self {
        Self { plan, random }
    }

    /// How much more the socket of a side takes that has not read `unread_bytes`.
    pub(super) fn window_left(&self, unread_bytes: usize) -> usize {
        self.plan.receive_window_bytes.saturating_sub(unread_bytes)
    }

    pub(super) fn draw_latency(&mut self) -> Micros {
        let NetworkPlan { latency_min, latency_max, .. } = self.plan;
        // Most are fast: the few slow ones change the order.
        let drawn_max =
            if self.random.chance(80) { (latency_min + latency_max) / 8 } else { latency_max };
        self.random.between(latency_min, drawn_max.max(latency_min))
    }

    /// Sends bytes on their way, in one piece or in several.
    pub(super) fn send_bytes(
        &mut self,
        link: &mut Link,
        direction: Direction,
        mut bytes: &[u8],
        schedule: &mut Schedule,
    ) {
        let cuts =
            if self.random.chance(self.plan.cut_percent) { self.random.between(1, 4) } else { 0 };
        for _ in 0..cuts {
            if bytes.len() > 1 {
                // Cuts near the ends meet line ends and heads.
                let cut_index_max =
                    self.random.pick(&[3, 20, bytes.len() - 1]).min(bytes.len() - 1);
                let cut_index = self.random.between(1, cut_index_max as u64) as usize;
                let cut_index =
                    if self.random.chance(30) { bytes.len() - cut_index } else { cut_index };
                let (piece, rest) = bytes.split_at(cut_index);
                self.send_packet(link, direction, Packet::Bytes(piece.to_vec()), schedule);
                bytes = rest;
            }
        }
        if !bytes.is_empty() {
            self.send_packet(link, direction, Packet::Bytes(bytes.to_vec()), schedule);
        }
    }

    /// Sends an end on its way, behind what was sent before.
    pub(super) fn send_end(
        &mut self,
        link: &mut Link,
        direction: Direction,
        end: End,
        schedule: &mut Schedule,
    ) {
        self.send_packet(link, direction, Packet::End(end), schedule);
    }

    fn send_packet(
        &mut self,
        link: &mut Link,
        direction: Direction,
        packet: Packet,
        schedule: &mut Schedule,
    ) {
        let arrives_at = link.pipe(direction).push(packet, schedule.now() + self.draw_latency());
        let event = match direction {
            Direction::ToServer => Event::ToServer(link.id),
            Direction::ToClient => Event::ToClient(link.id),
        };
        schedule.add_at(arrives_at, event);
    }
}
