//! What can be seen once all is over.

use std::sync::atomic::Ordering;

use super::{Process, ServerPool, World};
use crate::checker::Invariant;

/// More than any value has.
const VALUE_BYTES_BOUND: u64 = 1 << 20;

impl World {
    /// What can be seen once all is over: connections are closed, and nothing is left open or uncounted.
    pub(super) fn run_final_checks(&mut self) {
        for process in 0..self.processes.len() {
            self.check_connections(process);
        }
        for connection in 0..self.connections.len() {
            self.close_connection(connection);
        }
        while let Some(event) = self.network.next_event() {
            self.network.handle(event);
        }
        for process in 0..self.processes.len() {
            self.check_quiet(process);
            self.check_protocol_faults(process);
        }
        if self.calls.iter().any(|call| !call.is_ended) {
            self.checker.report_broken(Invariant::CallEndsOnce, "a call has not ended");
        }
        for server in 0..self.server_count() {
            if let Some((bytes, limit_bytes)) = self.network.memory_usage(server)
                && bytes > limit_bytes + limit_bytes / 4
            {
                let text = format!("server {server} has {bytes} bytes of {limit_bytes}");
                self.checker.report_broken(Invariant::MemoryIsBounded, text);
            }
        }
        self.checker.check_at_end(&self.network);
    }

    pub(super) fn server_count(&self) -> usize {
        self.processes.first().map_or(0, |process| process.server_pools.len())
    }

    /// A server that does not misbehave breaks no protocol, also where no call waits, unless a value is longer than its
    /// reader takes.
    fn check_protocol_faults(&mut self, process: usize) {
        let Process { plan, server_pools, .. } = &self.processes[process];
        let reads_all_values = plan.value_bytes_max > VALUE_BYTES_BOUND;
        let broken = server_pools.iter().enumerate().find(|(server, pool)| {
            let faults = pool.server_state.faults.load(Ordering::Relaxed);
            faults > 0 && reads_all_values && !self.network.has_misbehaved(*server)
        });
        if let Some((server, _)) = broken {
            let text = format!("process {process}: server {server} broke the protocol");
            self.checker.report_broken(Invariant::ReusedConnectionIsInSync, text);
        }
    }

    /// Quiet writes that were not executed must have been counted as failures.
    fn check_quiet(&mut self, process: usize) {
        let Process { incarnation, server_pools, .. } = &self.processes[process];
        let failures =
            |pool: &ServerPool| pool.server_state.noreply_failures.load(Ordering::Relaxed);
        let counted_failures: u64 = server_pools.iter().map(failures).sum();
        let any_misbehaved =
            (0..server_pools.len()).any(|server| self.network.has_misbehaved(server));
        let (lost_count, quiet_count) =
            self.checker.count_quiet_writes(*incarnation, &self.network);
        if counted_failures < lost_count || counted_failures > quiet_count && !any_misbehaved {
            let text = format!(
                "{lost_count} of {quiet_count} quiet writes were lost or refused, {counted_failures} counted as failed"
            );
            self.checker.report_broken(Invariant::QuietWriteIsCounted, text);
        }
    }
}
