//! One process with clients of all servers.

use std::sync::atomic::Ordering;

use super::pool::ServerPool;
use crate::checker::{Checker, Invariant};
use crate::network::Network;
use crate::plan::{Driver, Micros, ProcessPlan};

/// More than any value has.
const VALUE_BYTES_BOUND: u64 = 1 << 20;

/// One process.
pub(super) struct Process {
    pub(super) id: usize,
    plan: ProcessPlan,
    pub(super) incarnation: usize,
    pub(super) server_pools: Vec<ServerPool>,
    frozen_until: Micros,
}

impl Process {
    /// A process of this number; its first incarnation has the number `incarnation`.
    pub(super) fn new(
        id: usize,
        plan: ProcessPlan,
        incarnation: usize,
        requires_login_by_server: impl Iterator<Item = bool>,
    ) -> Self {
        let new_pool =
            |(server, requires_login)| ServerPool::new(id, server, requires_login, plan.protocol);
        let server_pools = requires_login_by_server.enumerate().map(new_pool).collect();
        Self { id, plan, incarnation, server_pools, frozen_until: 0 }
    }

    /// The longest value that its client reads.
    pub(super) fn value_bytes_max(&self) -> u64 {
        self.plan.value_bytes_max
    }

    /// Whether its client reads each value that is written.
    pub(super) fn reads_all_values(&self) -> bool {
        self.plan.value_bytes_max > VALUE_BYTES_BOUND
    }

    /// How many connections to one server it may have for one call each; `None`: all calls share one.
    pub(super) fn pooled_connections_max(&self) -> Option<usize> {
        match self.plan.driver {
            Driver::Pooled(connections_max) => Some(connections_max),
            Driver::Shared => None,
        }
    }

    /// Has it stand still until a moment.
    pub(super) fn freeze(&mut self, until: Micros) {
        self.frozen_until = until.max(self.frozen_until);
    }

    /// Until when it stood still, or stands still.
    pub(super) fn frozen_until(&self) -> Micros {
        self.frozen_until
    }

    /// Begins the incarnation of a child of a fork, with servers of its own.
    pub(super) fn begin_incarnation(&mut self, incarnation: usize) {
        self.incarnation = incarnation;
        for (server, pool) in self.server_pools.iter_mut().enumerate() {
            *pool = ServerPool::new(self.id, server, pool.requires_login, self.plan.protocol);
        }
    }

    /// Checks why servers went down by what has just happened.
    pub(super) fn check_causes_of_down(&mut self, checker: &mut Checker) {
        for pool in &mut self.server_pools {
            pool.check_cause_of_down(checker);
        }
    }

    /// Quiet writes that were counted as failed.
    pub(super) fn noreply_failures(&self) -> u64 {
        let server_pools = self.server_pools.iter();
        server_pools.map(|pool| pool.server_state.noreply_failures.load(Ordering::Relaxed)).sum()
    }

    /// Once all calls have ended, no more connections to a server are open than are of use.
    pub(super) fn check_open_count(&self, server: usize, open_count: usize, checker: &mut Checker) {
        if open_count > self.pooled_connections_max().unwrap_or(1) {
            let text =
                format!("process {} has {open_count} connections to server {server}", self.id);
            checker.report_broken(Invariant::UselessConnectionIsClosed, text);
        }
    }

    /// A server that does not misbehave breaks no protocol, also where no call waits, unless a value is longer than its
    /// reader takes.
    pub(super) fn check_protocol_faults(&self, checker: &mut Checker, network: &Network) {
        let broken = self.server_pools.iter().enumerate().find(|(server, pool)| {
            let faults = pool.server_state.faults.load(Ordering::Relaxed);
            faults > 0 && self.reads_all_values() && !network.has_misbehaved(*server)
        });
        if let Some((server, _)) = broken {
            let text = format!("process {}: server {server} broke the protocol", self.id);
            checker.report_broken(Invariant::ReusedConnectionIsInSync, text);
        }
    }

    /// Quiet writes that were not executed must have been counted as failures.
    pub(super) fn check_quiet_writes(&self, checker: &mut Checker, network: &Network) {
        let counted_failures = self.noreply_failures();
        let any_misbehaved =
            (0..self.server_pools.len()).any(|server| network.has_misbehaved(server));
        let (lost_count, quiet_count) = checker.count_quiet_writes(self.incarnation, network);
        if counted_failures < lost_count || counted_failures > quiet_count && !any_misbehaved {
            let text = format!(
                "{lost_count} of {quiet_count} quiet writes were lost or refused, {counted_failures} counted as failed"
            );
            checker.report_broken(Invariant::QuietWriteIsCounted, text);
        }
    }
}
