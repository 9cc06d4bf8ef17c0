//! The servers and the network between them and the clients, in virtual time.
//!
//! A client's side of a connection is used as a socket that does not block. Each piece of what is sent arrives after a
//! time of its own, but in order; what one connection carries may overtake what another does.
//!
//! Here the parts meet: what arrives at a server is executed by its session, and the reply is sent, altered or cut as
//! the plan's faults require. A `host` decides what its server does, a `link` what its two sockets have, the `wire` how
//! long a packet travels.

mod digest;
mod executions;
mod flood;
mod host;
mod link;
mod misbehaviour;
mod schedule;
mod wire;

use crate::plan::{InjectedFault, Plan, Sabotage};
use crate::random::Random;
use digest::Digest;
pub(crate) use executions::ExecutionIndex;
use executions::Executions;
use flood::{Flood, PAUSE_MICROS_MAX};
pub(crate) use host::{FIRST_UNIX_S, PASSWORD, USER};
use host::{Host, Recovery};
use link::{Arrival, Direction};
pub(crate) use link::{End, ExecutionState, Link, LinkId, Received, Receiver};
pub(crate) use schedule::{Event, Schedule};
use wire::Wire;

/// The servers and all connections to them.
pub(crate) struct Network {
    /// The virtual time, and what is to happen.
    pub(crate) schedule: Schedule,
    wire: Wire,
    hosts: Vec<Host>,
    links: Vec<Link>,
    executions: Executions,
    digest: Digest,
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
            schedule: Schedule::default(),
            hosts: server_plans
                .map(|server_plan| Host::new(*server_plan, random.next_u64()))
                .collect(),
            wire: Wire::new(plan.network, random),
            links: Vec::new(),
            executions: Executions::default(),
            digest: Digest::default(),
            sabotage: plan.sabotage,
            first_replies: Vec::new(),
        }
    }

    /// A random sequence for another part of the world.
    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.wire.random
    }

    /// A number that stands for all bytes that travelled.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// Whether a server misbehaved.
    pub(crate) fn has_misbehaved(&self, server: usize) -> bool {
        self.hosts[server].has_misbehaved
    }

    /// Whether a server misbehaved in a way that no client can recognise.
    pub(crate) fn has_misbehaved_in_classic(&self, server: usize) -> bool {
        self.hosts[server].has_misbehaved_in_classic()
    }

    /// The execution indexes at which a server lost all its items.
    pub(crate) fn restart_indexes(&self, server: usize) -> &[ExecutionIndex] {
        &self.hosts[server].restart_indexes
    }

    /// The index after all that was executed so far.
    pub(crate) fn execution_index(&self) -> ExecutionIndex {
        self.executions.index()
    }

    /// Whether the requests before byte `end_offset` of a connection were executed.
    pub(crate) fn execution_state(&self, link: LinkId, end_offset: u64) -> ExecutionState {
        self.links[link].execution_state(end_offset)
    }

    /// Bytes of a server's items and their limit.
    pub(crate) fn memory_usage(&mut self, server: usize) -> Option<(u64, u64)> {
        let now = self.schedule.now();
        let (bytes, limit_bytes) = self.hosts[server].memory_usage(now)?;
        let keeps_more = self.sabotage == Some(Sabotage::KeepsTooMuch);
        Some((if keeps_more { bytes + limit_bytes } else { bytes }, limit_bytes))
    }

    /// A connection.
    pub(crate) fn link(&mut self, link: LinkId) -> &mut Link {
        &mut self.links[link]
    }

    /// Begins a connection; what happens on it is for `receiver`, until it is closed.
    pub(crate) fn connect(&mut self, server: usize, receiver: Receiver) -> LinkId {
        let link = self.links.len();
        self.links.push(Link::new(link, server, receiver));
        self.schedule.add(self.wire.draw_latency(), Event::Connected(link));
        link
    }

    /// Sends what the peer's socket takes of `bytes`; an error: the connection broke.
    pub(crate) fn send(&mut self, link: LinkId, bytes: &[u8]) -> Result<usize, End> {
        let link_state = &mut self.links[link];
        if link_state.is_reset() {
            return Err(End::Reset);
        }
        let window_left = self.wire.window_left(link_state.unread_bytes_of_server());
        let accepted_bytes = bytes.len().min(window_left);
        link_state.is_blocked = accepted_bytes < bytes.len();
        let cut_bytes = self.hosts[link_state.server].cut_request(accepted_bytes);
        let arriving_bytes = &bytes[..cut_bytes.unwrap_or(accepted_bytes)];
        self.send_bytes(link, Direction::ToServer, arriving_bytes);
        if cut_bytes.is_some() {
            self.send_end(link, Direction::ToServer, End::Reset);
            self.send_end(link, Direction::ToClient, End::Reset);
        }
        Ok(accepted_bytes)
    }

    /// Closes the client's side; what was sent still arrives.
    pub(crate) fn close(&mut self, link: LinkId) {
        if self.links[link].close_by_client() {
            self.send_end(link, Direction::ToServer, End::InOrder);
        }
    }

    fn send_bytes(&mut self, link: LinkId, direction: Direction, bytes: &[u8]) {
        self.wire.send_bytes(&mut self.links[link], direction, bytes, &mut self.schedule);
    }

    fn send_end(&mut self, link: LinkId, direction: Direction, end: End) {
        self.wire.send_end(&mut self.links[link], direction, end, &mut self.schedule);
    }

    /// What happens by itself; returns a connection whose client should be notified.
    pub(crate) fn handle(&mut self, event: Event) -> Option<LinkId> {
        match event {
            Event::Connected(link) => return self.finish_connect(link),
            Event::ToClient(link) => return self.arrive_at_client(link),
            Event::Writable(link) => return Some(link),
            Event::ToServer(link) => self.arrive_at_server(link),
            Event::Flood(link) => self.continue_flood(link),
            Event::Resume(server) => self.resume(server),
            Event::Up(server) => self.hosts[server].come_up(),
            _ => {}
        }
        None
    }

    /// Puts an event of a connection off while nothing gets through to its server.
    fn delay_if_partitioned(&mut self, link: LinkId, event: Event) -> bool {
        let until = self.hosts[self.links[link].server].unreachable_until;
        let is_partitioned = until > self.schedule.now();
        if is_partitioned {
            self.schedule.add_at(until, event);
        }
        is_partitioned
    }

    fn finish_connect(&mut self, link: LinkId) -> Option<LinkId> {
        if self.links[link].receiver().is_none()
            || self.delay_if_partitioned(link, Event::Connected(link))
        {
            return None;
        }
        let link_state = &mut self.links[link];
        link_state.finish_connect(self.hosts[link_state.server].accept(link));
        Some(link)
    }

    fn arrive_at_client(&mut self, link: LinkId) -> Option<LinkId> {
        let is_delayed = self.delay_if_partitioned(link, Event::ToClient(link));
        (!is_delayed && self.links[link].arrive_at_client(&mut self.digest)).then_some(link)
    }

    fn arrive_at_server(&mut self, link: LinkId) {
        if self.delay_if_partitioned(link, Event::ToServer(link)) {
            return;
        }
        let link_state = &mut self.links[link];
        let is_serving = self.hosts[link_state.server].is_serving(self.schedule.now());
        match link_state.arrive_at_server(is_serving, &mut self.digest) {
            Arrival::Nothing => {}
            Arrival::Late => self.send_end(link, Direction::ToClient, End::Reset),
            Arrival::Serve => self.serve(link),
            Arrival::ServeAndEnd => {
                self.serve(link);
                self.end_session(link);
            }
            Arrival::End => self.end_session(link),
        }
    }

    /// A server goes on after a pause.
    fn resume(&mut self, server: usize) {
        for link in self.hosts[server].links.clone() {
            self.serve(link);
            if self.links[link].has_pending_end
                && self.hosts[server].is_serving(self.schedule.now())
            {
                self.end_session(link);
            }
        }
    }

    fn end_session(&mut self, link: LinkId) {
        let link_state = &mut self.links[link];
        link_state.end_session();
        self.hosts[link_state.server].links.retain(|other_link| *other_link != link);
    }

    /// Has the server read what has arrived on a connection.
    fn serve(&mut self, link: LinkId) {
        let (server, now) = (self.links[link].server, self.schedule.now());
        if !self.hosts[server].is_serving(now) {
            return;
        }
        self.serve_link(link);
        if self.wire.random.below(8) == 0 {
            self.hosts[server].maintain(now);
            // Others may have waited for room that there is now.
            let has_unread_requests = |other_link: &LinkId| {
                *other_link != link && self.links[*other_link].pending_bytes() > 0
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
                return self.send_end(link, Direction::ToClient, End::InOrder);
            }
            if !proxy_reply.is_empty() {
                self.send_bytes(link, Direction::ToClient, proxy_reply);
            }
        }
        let now = self.schedule.now();
        let link_state = &mut self.links[link];
        let host = &mut self.hosts[link_state.server];
        let Some(session) = &mut link_state.session else {
            return;
        };
        let is_clock_stopped = self.sabotage == Some(Sabotage::StopsItsClock);
        let reply = host.execute(session, &input, if is_clock_stopped { 0 } else { now });
        let is_closed = session.connection.is_closed();
        link_state.bytes_passed_to_session += input.len() as u64;
        link_state.record_execution(self.executions.begin_run(), host.clock_second(now));
        if std::mem::take(&mut link_state.is_blocked) {
            self.schedule.add(0, Event::Writable(link));
        }
        self.send_reply(link, reply);
        self.begin_flood(link, &input);
        if is_closed {
            self.end_session(link);
            self.send_end(link, Direction::ToClient, End::InOrder);
        }
    }

    /// Sends a reply, or what becomes of it.
    fn send_reply(&mut self, link: LinkId, reply: Vec<u8>) {
        if reply.is_empty() {
            return;
        }
        let link_state = &mut self.links[link];
        let server = link_state.server;
        let host = &mut self.hosts[server];
        let mut altered_reply =
            host.alter_reply(reply, &link_state.last_reply, &mut self.wire.random);
        match self.sabotage {
            Some(Sabotage::ChangesValues) => misbehaviour::change_value(&mut altered_reply),
            Some(Sabotage::SendsOldValues) => {
                misbehaviour::replace_with_first_reply(&mut altered_reply, &mut self.first_replies);
            }
            _ => {}
        }
        let cut = host.cut_reply.take();
        let keeps_reply = host.repeats_previous_replies();
        let sent_bytes = cut.map_or(altered_reply.len(), |cut| {
            altered_reply.len() * usize::from(cut.after_thousandths) / 1000
        });
        self.send_bytes(link, Direction::ToClient, &altered_reply[..sent_bytes]);
        if keeps_reply {
            self.links[link].last_reply = altered_reply;
        }
        match cut {
            Some(cut) if !cut.restarts_server => {
                self.end_session(link);
                self.send_end(link, Direction::ToClient, End::Reset);
            }
            Some(_) => self.restart(server, Some(End::Reset)),
            None => {}
        }
    }

    /// Begins a flood after the requests in `request_bytes`, if the server is to send one.
    fn begin_flood(&mut self, link: LinkId, request_bytes: &[u8]) {
        let link_state = &mut self.links[link];
        let host = &mut self.hosts[link_state.server];
        let Some(one_in) = host.flood_one_in() else {
            return;
        };
        if link_state.flood.is_some()
            || request_bytes.is_empty()
            || self.wire.random.below(one_in) != 0
        {
            return;
        }
        let refuses_first = self.wire.random.chance(50);
        link_state.flood = Some(Flood::new(request_bytes, refuses_first));
        host.has_misbehaved = true;
        self.schedule.add(0, Event::Flood(link));
    }

    /// Sends as many refusals as the client's socket takes, and more of them later.
    fn continue_flood(&mut self, link: LinkId) {
        let link_state = &mut self.links[link];
        let host = &self.hosts[link_state.server];
        let is_flooding = host.flood_one_in().is_some() && link_state.can_reach_client();
        let window_left = self.wire.window_left(link_state.unread_bytes_of_client());
        let flood = link_state.flood.as_mut().filter(|_| is_flooding);
        let Some(refusals) = flood.and_then(|flood| flood.next_refusals(window_left)) else {
            link_state.flood = None;
            return;
        };
        if host.is_serving(self.schedule.now()) {
            self.send_bytes(link, Direction::ToClient, &refusals);
        }
        let pause = self.wire.random.between(1, PAUSE_MICROS_MAX);
        self.schedule.add(pause, Event::Flood(link));
    }

    /// Breaks the client's side of all connections of a server.
    fn reset_clients(&mut self, server: usize) {
        for link in self.hosts[server].links.clone() {
            self.links[link].pipe(Direction::ToClient).clear();
            self.send_end(link, Direction::ToClient, End::Reset);
        }
    }

    /// Ends all connections of a server; its clients receive `client_end`, or nothing.
    fn end_connections(&mut self, server: usize, client_end: Option<End>) {
        for link in self.hosts[server].links.clone() {
            self.end_session(link);
            self.links[link].pipe(Direction::ToServer).clear();
            if let Some(end) = client_end {
                self.send_end(link, Direction::ToClient, end);
            }
        }
    }

    fn restart(&mut self, server: usize, client_end: Option<End>) {
        self.end_connections(server, client_end);
        self.hosts[server].restart(self.executions.begin_run(), self.schedule.now());
    }

    /// Has a server stop cleanly and start again; its connections have ended.
    fn restart_cleanly(&mut self, server: usize) -> Option<Recovery> {
        let loses_items = self.sabotage == Some(Sabotage::LosesItems);
        let host = &mut self.hosts[server];
        let recovery = host.restart_cleanly(self.schedule.now(), loses_items);
        if recovery.is_none() {
            host.record_lost_items(self.executions.begin_run());
        }
        recovery
    }

    /// Has something go wrong. Returns what became of the items of a server that stopped cleanly and started again with them.
    pub(crate) fn inject(&mut self, fault: InjectedFault) -> Option<Recovery> {
        let now = self.schedule.now();
        match fault {
            InjectedFault::Reset(server) => {
                self.reset_clients(server);
                self.end_connections(server, None);
            }
            InjectedFault::ResetToClient(server) => self.reset_clients(server),
            InjectedFault::ResetToServer(server) => self.end_connections(server, None),
            InjectedFault::Close(server) => self.end_connections(server, Some(End::InOrder)),
            InjectedFault::Restart { server, is_reported } => {
                self.restart(server, is_reported.then_some(End::Reset));
            }
            InjectedFault::CleanRestart { server, is_reported } => {
                self.end_connections(server, is_reported.then_some(End::Reset));
                return self.restart_cleanly(server);
            }
            InjectedFault::Pause(server, duration) => {
                self.hosts[server].inject(fault, now);
                self.schedule.add(duration, Event::Resume(server));
            }
            InjectedFault::Down(server, duration) => {
                self.restart(server, Some(End::Reset));
                self.hosts[server].inject(fault, now);
                self.schedule.add(duration, Event::Up(server));
            }
            InjectedFault::Unreachable(server, _)
            | InjectedFault::CutReply(server, _)
            | InjectedFault::KillInReply(server, _)
            | InjectedFault::CutRequest(server, _)
            | InjectedFault::Misbehave { server, .. }
            | InjectedFault::Fill(server)
            | InjectedFault::ServerClock(server, _)
            | InjectedFault::WallClock(server, _) => self.hosts[server].inject(fault, now),
            InjectedFault::Freeze { .. } | InjectedFault::Fork { .. } => {}
        }
        None
    }

    /// All that went wrong is over: servers that are down or paused go on as soon as those events come.
    pub(crate) fn end_faults(&mut self) {
        self.hosts.iter_mut().for_each(Host::end_faults);
    }
}
