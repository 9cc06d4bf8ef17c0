//! What surrounds the clients: the servers and the network, the checker, and the journal of what happened.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use glasscache_client::Error;
use glasscache_client::pipeline::Fault;

use super::{ServerCallId, SimulationResult};
use crate::checker::{Checker, Invariant};
use crate::network::Network;
use crate::plan::{Micros, Plan, Sabotage};

/// What surrounds the clients.
pub(super) struct Environment {
    pub(super) network: Network,
    pub(super) checker: Checker,
    pub(super) journal: Journal,
    sabotage: Option<Sabotage>,
}

impl Environment {
    pub(super) fn new(plan: &Plan, keeps_log: bool) -> Self {
        let any_misbehaves = (0..plan.servers.len()).any(|server| plan.misbehaves(server));
        let item_bytes_limits = plan.servers.iter().map(|server_plan| server_plan.item_bytes_max);
        Self {
            network: Network::new(plan),
            checker: Checker::new(item_bytes_limits.collect(), !any_misbehaves),
            journal: Journal { log: keeps_log.then(Vec::new), ..Journal::default() },
            sabotage: plan.sabotage,
        }
    }

    /// The virtual time.
    pub(super) fn now(&self) -> Micros {
        self.network.schedule.now()
    }

    /// Whether a test has planted this bug.
    pub(super) fn is_sabotaged_by(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    /// Logs an event, if events are logged.
    pub(super) fn log(&mut self, text: impl FnOnce() -> String) {
        let now = self.now();
        if let Some(log) = &mut self.journal.log {
            log.push(format!("{now:>9} {}", text()));
        }
    }

    /// A server that does not misbehave breaks no protocol, unless a value is longer than its reader takes.
    pub(super) fn check_error(&mut self, server_call: ServerCallId, server: usize, error: &Error) {
        if let Error::Protocol { fault, .. } = error
            && !matches!(fault, Fault::TooLong { .. })
            && !self.network.has_misbehaved(server)
        {
            let text = format!("server call {server_call}: {error:?}");
            self.checker.report_broken(Invariant::ReusedConnectionIsInSync, text);
        }
    }

    /// The result of the world at its end.
    pub(super) fn into_result(self) -> SimulationResult {
        SimulationResult {
            violation: self.checker.violation().cloned(),
            digest: self.network.digest() ^ self.journal.results_hash,
            counts: self.journal.counts,
            log: self.journal.log.unwrap_or_default(),
        }
    }
}

/// What happened in a world.
#[derive(Default)]
pub(super) struct Journal {
    counts: BTreeMap<&'static str, u64>,
    results_hash: u64,
    log: Option<Vec<String>>,
}

impl Journal {
    /// Counts an event by its name.
    pub(super) fn count(&mut self, event_name: &'static str) {
        *self.counts.entry(event_name).or_default() += 1;
    }

    /// Notes the result of a server call.
    pub(super) fn add_result(
        &mut self,
        server_call: ServerCallId,
        outcome_name: &'static str,
        now: Micros,
    ) {
        let mut hasher = DefaultHasher::new();
        (self.results_hash, server_call, outcome_name, now).hash(&mut hasher);
        self.results_hash = hasher.finish();
    }
}
