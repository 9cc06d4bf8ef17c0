//! The servers and the network between them and the clients, in virtual time.
//!
//! A client's side of a connection is used as a socket that does not block. Each piece of what is sent arrives after a
//! time of its own, but in order; what one connection carries may overtake what another does.

mod delivery;
mod faults;
mod flood;
mod host;
mod link;
mod misbehaviour;
mod queue;

use rapidhash::v3::rapidhash_v3;

use crate::plan::{Micros, NetworkPlan, Plan, Proxy, Sabotage};
use crate::random::Random;
use host::Host;
pub(crate) use host::{FIRST_UNIX_S, PASSWORD, USER};
use link::{Direction, Link, Packet, Pipe, RUN_SHIFT};
pub(crate) use link::{End, ExecutionIndex, ExecutionState, LinkId};
pub(crate) use queue::Event;
use queue::Queue;

/// An odd factor, so that the digest depends on the order of what travelled.
const DIGEST_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// What a client's socket gives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Bytes.
    Bytes(Vec<u8>),
    /// The end.
    End(End),
    /// Nothing yet.
    Nothing,
}

/// The servers and all connections to them.
pub(crate) struct Network {
    /// The virtual time.
    pub(crate) now: Micros,
    plan: NetworkPlan,
    random: Random,
    queue: Queue,
    hosts: Vec<Host>,
    links: Vec<Link>,
    /// The number of the last run in which a server executed something.
    run_number: u64,
    /// A hash of all bytes that travelled.
    digest: u64,
    /// Servers that misbehaved.
    has_misbehaved: Vec<bool>,
    restart_indexes: Vec<Vec<ExecutionIndex>>,
    sabotage: Option<Sabotage>,
    /// The first reply with each value, where a test has servers send these again.
    first_replies: Vec<Vec<u8>>,
}

impl Network {
    /// The servers of a plan, started.
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut random = Random::new(plan.seed ^ 0x5EED);
        let server_plans = plan.servers.iter();
        Self {
            now: 0,
            plan: plan.network,
            queue: Queue::default(),
            hosts: server_plans
                .map(|server_plan| Host::new(*server_plan, random.next_u64()))
                .collect(),
            random,
            links: Vec::new(),
            run_number: 0,
            digest: 0,
            has_misbehaved: vec![false; plan.servers.len()],
            restart_indexes: vec![Vec::new(); plan.servers.len()],
            sabotage: plan.sabotage,
            first_replies: Vec::new(),
        }
    }

    /// A random sequence for another part of the world.
    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Has something happen after a while.
    pub(crate) fn schedule(&mut self, wait: Micros, event: Event) {
        self.queue.push(self.now + wait, event);
    }

    /// Goes to the next event.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let (happens_at, event) = self.queue.pop()?;
        self.now = self.now.max(happens_at);
        Some(event)
    }

    /// A number that stands for all bytes that travelled.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    fn add_to_digest(&mut self, bytes: &[u8]) {
        self.digest =
            (self.digest.rotate_left(1) ^ rapidhash_v3(bytes)).wrapping_mul(DIGEST_FACTOR);
    }

    /// Whether a server misbehaved.
    pub(crate) fn has_misbehaved(&self, server: usize) -> bool {
        self.has_misbehaved[server]
    }

    /// Whether a server misbehaved that no client can recognise: a line of classic text names neither its request nor
    /// its key, so that one that came twice is taken for the next reply.
    pub(crate) fn has_misbehaved_in_classic(&self, server: usize) -> bool {
        self.has_misbehaved(server) && self.hosts[server].plan.proxy != Proxy::None
    }

    /// The index after all that was executed so far.
    pub(crate) fn execution_index(&self) -> ExecutionIndex {
        (self.run_number << RUN_SHIFT) | ((1 << RUN_SHIFT) - 1)
    }

    /// Whether the requests before byte `end_offset` of a connection were executed.
    pub(crate) fn execution_state(&self, link: LinkId, end_offset: u64) -> ExecutionState {
        self.links[link].execution_state(end_offset)
    }

    /// Bytes of a server's items and their limit.
    pub(crate) fn memory_usage(&mut self, server: usize) -> Option<(u64, u64)> {
        let now = self.now;
        let (bytes, limit_bytes) = self.hosts[server].memory_usage(now)?;
        let keeps_more = self.sabotage == Some(Sabotage::KeepsTooMuch);
        Some((if keeps_more { bytes + limit_bytes } else { bytes }, limit_bytes))
    }

    /// Begins a connection.
    pub(crate) fn connect(&mut self, server: usize) -> LinkId {
        self.links.push(Link::new(server));
        let link = self.links.len() - 1;
        let wait = self.draw_latency();
        self.schedule(wait, Event::Connected(link));
        link
    }

    /// Whether a connection is made, `None` while it is not known.
    pub(crate) fn is_connected(&self, link: LinkId) -> Option<bool> {
        let link_state = &self.links[link];
        match (link_state.is_connected, link_state.end_at_client) {
            (true, _) => Some(true),
            (false, Some(_)) => Some(false),
            (false, None) => None,
        }
    }

    /// Whether neither side has more for the other.
    pub(crate) fn is_drained_both_ways(&self, link: LinkId) -> bool {
        let link_state = &self.links[link];
        let session = link_state.session.as_ref();
        let pending_bytes = session.map_or(0, |session| session.connection.pending_bytes());
        let bytes_in_transit =
            link_state.to_client.bytes_in_transit + link_state.to_server.bytes_in_transit;
        bytes_in_transit
            + pending_bytes
            + link_state.client_input.len()
            + link_state.server_input.len()
            == 0
    }

    /// Whether both sides of a connection are open.
    pub(crate) fn is_established(&self, link: LinkId) -> bool {
        let link_state = &self.links[link];
        link_state.session.is_some()
            && link_state.end_at_client.is_none()
            && !link_state.is_closed_by_client
    }

    fn draw_latency(&mut self) -> Micros {
        let NetworkPlan { latency_min, latency_max, .. } = self.plan;
        // Most are fast: the few slow ones change the order.
        let drawn_max =
            if self.random.chance(80) { (latency_min + latency_max) / 8 } else { latency_max };
        self.random.between(latency_min, drawn_max.max(latency_min))
    }

    /// Sends what the peer's socket takes of `bytes`; an error: the connection broke.
    pub(crate) fn send(&mut self, link: LinkId, bytes: &[u8]) -> Result<usize, End> {
        let receive_window_bytes = self.plan.receive_window_bytes;
        let link_state = &mut self.links[link];
        if link_state.end_at_client == Some(End::Reset) {
            return Err(End::Reset);
        }
        let unread_bytes = link_state.to_server.bytes_in_transit + link_state.server_input.len();
        let accepted_bytes = bytes.len().min(receive_window_bytes.saturating_sub(unread_bytes));
        link_state.is_blocked = accepted_bytes < bytes.len();
        let server = link_state.server;
        let cut_after_thousandths =
            self.hosts[server].cut_request_after_thousandths.take_if(|_| accepted_bytes > 0);
        let arriving_bytes = cut_after_thousandths
            .map_or(accepted_bytes, |cut_after_thousandths| {
                accepted_bytes * usize::from(cut_after_thousandths) / 1000
            });
        self.transmit(link, Direction::ToServer, &bytes[..arriving_bytes]);
        if cut_after_thousandths.is_some() {
            self.enqueue_end(link, Direction::ToServer, End::Reset);
            self.enqueue_end(link, Direction::ToClient, End::Reset);
        }
        Ok(accepted_bytes)
    }

    /// Takes what has arrived at the client.
    pub(crate) fn receive(&mut self, link: LinkId) -> Received {
        let link_state = &mut self.links[link];
        if !link_state.client_input.is_empty() {
            return Received::Bytes(std::mem::take(&mut link_state.client_input));
        }
        link_state.end_at_client.map_or(Received::Nothing, Received::End)
    }

    /// Whether there is something to receive.
    pub(crate) fn is_readable(&self, link: LinkId) -> bool {
        let link_state = &self.links[link];
        !link_state.client_input.is_empty() || link_state.end_at_client.is_some()
    }

    /// Closes the client's side; what was sent still arrives.
    pub(crate) fn close(&mut self, link: LinkId) {
        let link_state = &mut self.links[link];
        if !std::mem::replace(&mut link_state.is_closed_by_client, true)
            && link_state.session.is_some()
        {
            self.enqueue_end(link, Direction::ToServer, End::InOrder);
        }
    }

    fn pipe(&mut self, link: LinkId, direction: Direction) -> &mut Pipe {
        let link_state = &mut self.links[link];
        match direction {
            Direction::ToServer => &mut link_state.to_server,
            Direction::ToClient => &mut link_state.to_client,
        }
    }

    fn enqueue_packet(&mut self, link: LinkId, direction: Direction, packet: Packet) {
        let arrival = self.now + self.draw_latency();
        let pipe = self.pipe(link, direction);
        pipe.last_arrival = pipe.last_arrival.max(arrival);
        if let Packet::Bytes(bytes) = &packet {
            pipe.bytes_in_transit += bytes.len();
        }
        pipe.packets.push_back(packet);
        let arrives_at = pipe.last_arrival;
        let event = match direction {
            Direction::ToServer => Event::ToServer(link),
            Direction::ToClient => Event::ToClient(link),
        };
        self.queue.push(arrives_at, event);
    }

    fn enqueue_end(&mut self, link: LinkId, direction: Direction, end: End) {
        self.enqueue_packet(link, direction, Packet::End(end));
    }

    /// Sends bytes on their way, in one piece or in several.
    fn transmit(&mut self, link: LinkId, direction: Direction, mut bytes: &[u8]) {
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
                self.enqueue_packet(link, direction, Packet::Bytes(piece.to_vec()));
                bytes = rest;
            }
        }
        if !bytes.is_empty() {
            self.enqueue_packet(link, direction, Packet::Bytes(bytes.to_vec()));
        }
    }

    /// What happens by itself; returns a connection whose client should be notified.
    pub(crate) fn handle(&mut self, event: Event) -> Option<LinkId> {
        match event {
            Event::Connected(link) => self.finish_connect(link),
            Event::ToServer(link) => self.arrive_at_server(link),
            Event::ToClient(link) => self.arrive_at_client(link),
            Event::Flood(link) => {
                self.continue_flood(link);
                None
            }
            Event::Resume(server) => {
                for link in self.hosts[server].links.clone() {
                    self.serve(link);
                    if self.links[link].has_pending_end && self.hosts[server].is_serving(self.now) {
                        self.end_session(link);
                    }
                }
                None
            }
            Event::Up(server) => {
                self.hosts[server].is_up = true;
                None
            }
            Event::Writable(link) => Some(link),
            _ => None,
        }
    }

    /// Puts an event of a connection off while nothing gets through to its server.
    fn delay_if_partitioned(&mut self, link: LinkId, event: Event) -> bool {
        let until = self.hosts[self.links[link].server].unreachable_until;
        let is_partitioned = until > self.now;
        if is_partitioned {
            self.queue.push(until, event);
        }
        is_partitioned
    }

    fn finish_connect(&mut self, link: LinkId) -> Option<LinkId> {
        if self.links[link].is_closed_by_client
            || self.delay_if_partitioned(link, Event::Connected(link))
        {
            return None;
        }
        let server = self.links[link].server;
        let host = &mut self.hosts[server];
        let link_state = &mut self.links[link];
        if host.is_up {
            link_state.session = host.accept();
            link_state.is_connected = true;
            host.links.push(link);
        } else {
            link_state.end_at_client = Some(End::Reset);
        }
        Some(link)
    }
}
