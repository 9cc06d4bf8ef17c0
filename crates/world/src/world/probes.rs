//! Probing a server that is down, so that no call has to find out whether it is back.

use glasscache_client::engine::health::{PROBE_TIMEOUT, probe_pause};

use super::state::{BadCalls, Probe};
use super::{EventReceiver, World};
use crate::checker::Invariant;
use crate::network::{Event, Received};
use crate::plan::{Micros, Sabotage};

/// Bad calls in a row after which a server counts as down.
const BAD_CALLS_MAX: u32 = 3;

impl World {
    /// Schedules a probe of a server that has just gone down, and closes its idle connections.
    pub(super) fn check_health(&mut self, process: usize, server: usize) {
        let pool = &mut self.processes[process].server_pools[server];
        if !pool.server_state.health.take_needs_probe() {
            return;
        }
        pool.needs_probe = true;
        pool.must_explain_down = true;
        self.count("down");
        self.log_event(|_| format!("process {process}: server {server} is down"));
        self.close_idle(process, server);
        self.probe_later(process, server);
    }

    /// Checks why servers went down by what has just happened. Not before all of it is counted: calls that fail together
    /// are handled one by one.
    pub(super) fn check_causes_of_down(&mut self) {
        for (process, process_state) in self.processes.iter_mut().enumerate() {
            for (server, pool) in process_state.server_pools.iter_mut().enumerate() {
                let is_due = std::mem::take(&mut pool.must_explain_down);
                let BadCalls { count, was_unreachable, .. } = pool.bad_calls;
                if is_due && count < BAD_CALLS_MAX && !was_unreachable {
                    let text = format!(
                        "process {process}: server {server} is down after {count} bad calls"
                    );
                    self.checker.report_broken(Invariant::DownHasACause, text);
                }
            }
        }
    }

    fn probe_later(&mut self, process: usize, server: usize) {
        let random_bits = self.network.random().next_u64();
        let pause = probe_pause(random_bits).as_micros() as Micros;
        self.network.schedule(pause, Event::Probe(process, server));
    }

    pub(super) fn begin_probe(&mut self, process: usize, server: usize) {
        if !self.processes[process].server_pools[server].needs_probe
            || self.is_sabotaged_by(Sabotage::NeverProbes)
        {
            return;
        }
        let link = self.network.connect(server);
        self.set_receiver(link, EventReceiver::Probe(process, server));
        self.processes[process].server_pools[server].probe =
            Some(Probe { link, is_sent: false, expected_prefix: b"", reply: Vec::new() });
        let timeout = PROBE_TIMEOUT.as_micros() as Micros;
        self.network.schedule(timeout, Event::ProbeTimeout(process, server));
    }

    pub(super) fn handle_probe_ready(&mut self, process: usize, server: usize) {
        let pool = &mut self.processes[process].server_pools[server];
        let Some(probe) = &mut pool.probe else { return };
        if self.network.is_connected(probe.link) != Some(true) {
            return;
        }
        if !probe.is_sent {
            probe.is_sent = true;
            let (request, expected_prefix) =
                pool.server_state.probe_request_and_reply().unwrap_or_default();
            probe.expected_prefix = expected_prefix;
            let _ = self.network.send(probe.link, &request);
        }
        if let Received::Bytes(bytes) = self.network.receive(probe.link) {
            probe.reply.extend_from_slice(&bytes);
            if probe.reply.starts_with(probe.expected_prefix) {
                pool.server_state.health.mark_up();
                pool.needs_probe = false;
                pool.bad_calls = BadCalls::default();
                self.end_probe(process, server);
                self.count("up");
                self.log_event(|_| format!("process {process}: server {server} is up"));
            }
        }
    }

    pub(super) fn handle_probe_timeout(&mut self, process: usize, server: usize) {
        if self.processes[process].server_pools[server].probe.is_some() {
            self.end_probe(process, server);
            self.probe_later(process, server);
        }
    }

    pub(super) fn end_probe(&mut self, process: usize, server: usize) {
        if let Some(probe) = self.processes[process].server_pools[server].probe.take() {
            self.set_receiver(probe.link, EventReceiver::Gone);
            self.network.close(probe.link);
        }
    }
}
