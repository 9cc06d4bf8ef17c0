//! Delivers packets: bytes and ends of connections that arrive at a client or at a server.
//!
//! What arrives at a server is executed by its session here, and the reply is sent, altered or cut as the plan's faults
//! require. How long a packet travels is decided in the parent module, which faults happen and when in `faults`, and
//! how a server alters its replies in `misbehaviour`.

use super::host::Host;
use super::link::{Direction, End, LinkId, Packet};
use super::queue::Event;
use super::{Network, misbehaviour};
use crate::plan::{Misbehaviour, Sabotage};

impl Network {
    pub(super) fn arrive_at_client(&mut self, link: LinkId) -> Option<LinkId> {
        if self.delay_if_partitioned(link, Event::ToClient(link)) {
            return None;
        }
        let packet = self.links[link].to_client.packets.pop_front()?;
        if let Packet::Bytes(bytes) = &packet {
            self.add_to_digest(bytes);
        }
        let link_state = &mut self.links[link];
        match packet {
            Packet::Bytes(bytes) => {
                link_state.to_client.bytes_in_transit -= bytes.len();
                // Nothing is received behind an end.
                if link_state.end_at_client.is_none() {
                    append_arrived(&mut link_state.client_input, bytes);
                }
            }
            Packet::End(end) => {
                if end == End::Reset {
                    link_state.client_input.clear();
                }
                link_state.end_at_client = Some(end);
            }
        }
        (!link_state.is_closed_by_client).then_some(link)
    }

    pub(super) fn arrive_at_server(&mut self, link: LinkId) -> Option<LinkId> {
        if self.delay_if_partitioned(link, Event::ToServer(link)) {
            return None;
        }
        let link_state = &mut self.links[link];
        let packet = link_state.to_server.packets.pop_front()?;
        if link_state.session.is_none() {
            // The server's side is gone, so the sender gets a reset.
            if let Packet::Bytes(bytes) = &packet {
                link_state.to_server.bytes_in_transit -= bytes.len();
                self.reset_client(link);
            }
            return None;
        }
        if let Packet::Bytes(bytes) = &packet {
            self.add_to_digest(bytes);
        }
        let link_state = &mut self.links[link];
        match packet {
            Packet::Bytes(bytes) => {
                link_state.to_server.bytes_in_transit -= bytes.len();
                append_arrived(&mut link_state.server_input, bytes);
                self.serve(link);
            }
            Packet::End(End::InOrder)
                if !self.hosts[self.links[link].server].is_serving(self.now) =>
            {
                self.links[link].has_pending_end = true;
            }
            Packet::End(End::InOrder) => {
                self.serve(link);
                self.end_session(link);
            }
            Packet::End(End::Reset) => self.end_session(link),
        }
        None
    }

    /// Resets the client's side, after a while.
    fn reset_client(&mut self, link: LinkId) {
        if self.links[link].end_at_client.is_none() {
            self.enqueue_end(link, Direction::ToClient, End::Reset);
        }
    }

    pub(super) fn end_session(&mut self, link: LinkId) {
        let link_state = &mut self.links[link];
        link_state.end_session();
        let server = link_state.server;
        self.hosts[server].links.retain(|waiting_link| *waiting_link != link);
    }

    /// Has the server read what has arrived on a connection.
    pub(super) fn serve(&mut self, link: LinkId) {
        let server = self.links[link].server;
        if !self.hosts[server].is_serving(self.now) {
            return;
        }
        self.serve_link(link);
        if self.random.below(8) == 0 {
            self.hosts[server].maintain(self.now);
            // Others may have waited for room that there is now.
            let has_unread_requests = |waiting_link: &LinkId| {
                let session = self.links[*waiting_link].session.as_ref();
                *waiting_link != link
                    && session.is_some_and(|session| session.connection.pending_bytes() > 0)
            };
            let waiting_links: Vec<LinkId> =
                self.hosts[server].links.iter().copied().filter(has_unread_requests).collect();
            for waiting_link in waiting_links {
                self.serve_link(waiting_link);
            }
        }
    }

    fn serve_link(&mut self, link: LinkId) {
        let link_state = &mut self.links[link];
        let host = &mut self.hosts[link_state.server];
        let mut input = std::mem::take(&mut link_state.server_input);
        if !link_state.has_passed_proxy && !input.is_empty() {
            let Some((consumed_bytes, proxy_reply, closes)) = host.apply_proxy(&input) else {
                link_state.server_input = input;
                return;
            };
            link_state.has_passed_proxy = true;
            link_state.bytes_passed_to_session += consumed_bytes as u64;
            input.drain(..consumed_bytes);
            if closes {
                self.end_session(link);
                return self.enqueue_end(link, Direction::ToClient, End::InOrder);
            }
            if !proxy_reply.is_empty() {
                self.transmit(link, Direction::ToClient, proxy_reply);
            }
        }
        let link_state = &mut self.links[link];
        let host = &mut self.hosts[link_state.server];
        let Some(session) = &mut link_state.session else {
            return;
        };
        let is_clock_stopped = self.sabotage == Some(Sabotage::StopsItsClock);
        let reply = host.execute(session, &input, if is_clock_stopped { 0 } else { self.now });
        let is_closed = session.connection.is_closed();
        link_state.bytes_passed_to_session += input.len() as u64;
        self.run_number += 1;
        let second = host.clock_second(self.now);
        link_state.record_execution(self.run_number, second);
        if std::mem::take(&mut link_state.is_blocked) {
            self.schedule(0, Event::Writable(link));
        }
        self.send_reply(link, reply);
        self.begin_flood(link, &input);
        if is_closed {
            self.end_session(link);
            self.enqueue_end(link, Direction::ToClient, End::InOrder);
        }
    }

    /// Sends a reply, or what becomes of it.
    fn send_reply(&mut self, link: LinkId, reply: Vec<u8>) {
        if reply.is_empty() {
            return;
        }
        let server = self.links[link].server;
        let host = &mut self.hosts[server];
        let (mut altered_reply, is_wrong) =
            host.alter_reply(reply, &self.links[link].last_reply, &mut self.random);
        match self.sabotage {
            Some(Sabotage::ChangesValues) => misbehaviour::change_value(&mut altered_reply),
            Some(Sabotage::SendsOldValues) => {
                misbehaviour::replace_with_first_reply(&mut altered_reply, &mut self.first_replies);
            }
            _ => {}
        }
        self.has_misbehaved[server] |= is_wrong;
        let cut = host.cut_reply.take();
        let sent_bytes = cut.map_or(altered_reply.len(), |cut| {
            altered_reply.len() * usize::from(cut.after_thousandths) / 1000
        });
        self.transmit(link, Direction::ToClient, &altered_reply[..sent_bytes]);
        if repeats_previous_replies(&self.hosts[server]) {
            self.links[link].last_reply = altered_reply;
        }
        match cut {
            Some(cut) if !cut.restarts_server => {
                self.end_session(link);
                self.enqueue_end(link, Direction::ToClient, End::Reset);
            }
            Some(_) => self.restart(server, Some(End::Reset)),
            None => {}
        }
    }
}

/// Appends what has arrived to what has not been read: mostly there is nothing, and nothing is copied.
fn append_arrived(unread: &mut Vec<u8>, arrived: Vec<u8>) {
    if unread.is_empty() {
        *unread = arrived;
    } else {
        unread.extend_from_slice(&arrived);
    }
}

fn repeats_previous_replies(host: &Host) -> bool {
    matches!(host.misbehaviour, Some((Misbehaviour::RepeatsPrevious, _)))
}
