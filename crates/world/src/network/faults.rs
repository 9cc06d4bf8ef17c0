//! What goes wrong with servers and connections.

use super::Network;
use super::host::{CutReply, Recovery};
use super::link::{Direction, End, ExecutionIndex, RUN_SHIFT};
use super::queue::Event;
use crate::plan::{InjectedFault, Sabotage};

impl Network {
    /// Ends all connections of a server; its clients receive `client_end`, or nothing.
    pub(super) fn end_connections(&mut self, server: usize, client_end: Option<End>) {
        for link in self.hosts[server].links.clone() {
            self.end_session(link);
            self.links[link].to_server.clear();
            if let Some(end) = client_end {
                self.enqueue_end(link, Direction::ToClient, end);
            }
        }
    }

    pub(super) fn restart(&mut self, server: usize, client_end: Option<End>) {
        self.end_connections(server, client_end);
        self.start(server);
    }

    fn start(&mut self, server: usize) {
        self.record_lost_items(server);
        let now = self.now;
        self.hosts[server].start(now);
    }

    fn record_lost_items(&mut self, server: usize) {
        self.run_number += 1;
        self.restart_indexes[server].push(self.run_number << RUN_SHIFT);
    }

    /// The execution indexes at which a server lost all its items.
    pub(crate) fn restart_indexes(&self, server: usize) -> &[ExecutionIndex] {
        &self.restart_indexes[server]
    }

    /// Has a server stop cleanly and start again; its connections have ended.
    fn restart_cleanly(&mut self, server: usize) -> Option<Recovery> {
        let now = self.now;
        let loses_items = self.sabotage == Some(Sabotage::LosesItems);
        let recovery = self.hosts[server].restart_cleanly(now, loses_items);
        if recovery.is_none() {
            self.record_lost_items(server);
        }
        recovery
    }

    /// Has something go wrong. Returns what became of the items of a server that stopped cleanly and started again with them.
    pub(crate) fn inject(&mut self, fault: InjectedFault) -> Option<Recovery> {
        let now = self.now;
        match fault {
            InjectedFault::Reset(server) => {
                for link in self.hosts[server].links.clone() {
                    self.links[link].to_client.clear();
                    self.enqueue_end(link, Direction::ToClient, End::Reset);
                }
                self.end_connections(server, None);
            }
            InjectedFault::ResetToClient(server) => {
                for link in self.hosts[server].links.clone() {
                    self.links[link].to_client.clear();
                    self.enqueue_end(link, Direction::ToClient, End::Reset);
                }
            }
            InjectedFault::ResetToServer(server) => self.end_connections(server, None),
            InjectedFault::Close(server) => self.end_connections(server, Some(End::InOrder)),
            InjectedFault::Pause(server, duration) => {
                self.hosts[server].paused_until = now + duration;
                self.schedule(duration, Event::Resume(server));
            }
            InjectedFault::Unreachable(server, duration) => {
                self.hosts[server].unreachable_until = now + duration;
            }
            InjectedFault::Restart { server, is_reported } => {
                self.restart(server, is_reported.then_some(End::Reset));
            }
            InjectedFault::CleanRestart { server, is_reported } => {
                self.end_connections(server, is_reported.then_some(End::Reset));
                return self.restart_cleanly(server);
            }
            InjectedFault::Down(server, duration) => {
                self.restart(server, Some(End::Reset));
                self.hosts[server].is_up = false;
                self.schedule(duration, Event::Up(server));
            }
            InjectedFault::CutReply(server, cut_after_thousandths) => {
                self.hosts[server].cut_reply = Some(CutReply {
                    after_thousandths: cut_after_thousandths,
                    restarts_server: false,
                });
            }
            InjectedFault::KillInReply(server, cut_after_thousandths) => {
                self.hosts[server].cut_reply = Some(CutReply {
                    after_thousandths: cut_after_thousandths,
                    restarts_server: true,
                });
            }
            InjectedFault::CutRequest(server, cut_after_thousandths) => {
                self.hosts[server].cut_request_after_thousandths = Some(cut_after_thousandths);
            }
            InjectedFault::Misbehave { server, misbehaviour, one_in } => {
                self.hosts[server].misbehaviour = Some((misbehaviour, one_in));
            }
            InjectedFault::Fill(server) => self.hosts[server].fill_store(now),
            InjectedFault::ServerClock(server, seconds) => {
                self.hosts[server].advance_clock(seconds);
            }
            InjectedFault::WallClock(server, seconds) => {
                self.hosts[server].move_wall_clock(seconds, now);
            }
            InjectedFault::Freeze { .. } | InjectedFault::Fork { .. } => {}
        }
        None
    }

    /// All that went wrong is over: servers that are down or paused go on as soon as those events come.
    pub(crate) fn end_faults(&mut self) {
        for host in &mut self.hosts {
            host.misbehaviour = None;
            host.cut_reply = None;
            host.cut_request_after_thousandths = None;
            host.unreachable_until = 0;
        }
    }
}
