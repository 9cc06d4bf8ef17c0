//! Forks: a child goes on with a copy of its parent's clients, and the parent ends.

use std::sync::atomic::Ordering;

use super::{World, new_server_pools};
use crate::checker::Invariant;
use crate::plan::Sabotage;

impl World {
    /// A process forks: what it had in flight is its parent's, which ends; the child has servers of its own.
    pub(super) fn fork(&mut self, process: usize) {
        let failures_before = self.noreply_failures(process);
        for connection in 0..self.connections.len() {
            if self.connections[connection].process == process
                && self.connections[connection].engine_connection.is_some()
            {
                self.abandon(connection);
            }
        }
        if self.noreply_failures(process) != failures_before {
            let text = "a child counts its parent's quiet writes as its own";
            self.checker.report_broken(Invariant::ForkLeavesParentAlone, text);
        }
        let server_count = self.server_count();
        for server in 0..server_count {
            let pool = &mut self.processes[process].server_pools[server];
            let waiting_server_calls = std::mem::take(&mut pool.waiting_server_calls);
            for server_call in waiting_server_calls {
                self.fail_forked(server_call);
            }
            self.end_probe(process, server);
        }
        let incarnation = self.checker.begin_incarnation();
        let process_state = &mut self.processes[process];
        process_state.incarnation = incarnation;
        let inherited_pools = std::mem::take(&mut process_state.server_pools);
        let requires_login_by_server = inherited_pools.iter().map(|pool| pool.requires_login);
        process_state.server_pools =
            new_server_pools(requires_login_by_server, process_state.plan.protocol);
    }

    fn noreply_failures(&self, process: usize) -> u64 {
        let server_pools = self.processes[process].server_pools.iter();
        server_pools.map(|pool| pool.server_state.noreply_failures.load(Ordering::Relaxed)).sum()
    }

    /// A connection is the parent's: the child ends its calls and sends nothing.
    fn abandon(&mut self, connection: usize) {
        let client_connection = &mut self.connections[connection];
        let Some(mut engine) = client_connection.engine_connection.take() else {
            return;
        };
        let uncertain_keys = engine.server().uncertain.take_all();
        let key_count_before = uncertain_keys.len();
        engine.server().uncertain.add(uncertain_keys);
        if self.sabotage != Some(Sabotage::KeepsParentConnections) {
            engine.abandon();
        }
        if !engine.must_close() {
            let text = format!("connection {connection} is used behind a fork");
            self.checker.report_broken(Invariant::ForkLeavesParentAlone, text);
        }
        let server_state = engine.server().clone();
        drop(engine);
        let keys_after = server_state.uncertain.take_all();
        if keys_after.len() != key_count_before {
            let text = format!("a child removes keys of its parent's calls: {keys_after:?}");
            self.checker.report_broken(Invariant::ForkLeavesParentAlone, text);
        }
        server_state.uncertain.add(keys_after);
        let link = client_connection.link;
        let server_calls_in_flight = std::mem::take(&mut client_connection.server_calls_in_flight)
            .into_iter()
            .map(|(_, server_call)| server_call);
        let waiting_server_calls = std::mem::take(&mut client_connection.waiting_server_calls);
        let server_calls: Vec<usize> = client_connection
            .owner
            .take()
            .into_iter()
            .chain(waiting_server_calls)
            .chain(server_calls_in_flight)
            .collect();
        self.set_receiver(link, super::EventReceiver::Gone);
        self.network.close(link);
        for server_call in server_calls {
            if !self.server_calls[server_call].is_ended {
                self.fail_forked(server_call);
            }
        }
    }

    fn fail_forked(&mut self, server_call: usize) {
        self.server_calls[server_call].connection = None;
        self.end_forked_server_call(server_call);
    }
}
