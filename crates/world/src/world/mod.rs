//! One world: processes with clients, servers, a network between them, and a checker that watches.
//!
//! Clients move bytes, pass in the time and wait, as the drivers of the real client do; every decision is the
//! client engine's.
//!
//! Words: a *link* is a TCP connection with its bytes in flight, a *client connection* the client's engine on one
//! link. A *server call* is the requests of a call that go to one server, a *round trip* those that it writes at
//! once with their replies. An *incarnation* of a client is the time of a process between two forks; *sabotage* is a
//! bug that a test plants, to prove that the checker finds it.

mod calls;
mod clock;
mod connections;
mod event_names;
mod final_checks;
mod forks;
mod handle_replies;
mod move_bytes;
mod probes;
mod server_operation;
mod start_calls;
mod state;

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::checker::{Checker, Invariant, Violation};
use crate::network::{Event, LinkId, Network};
use crate::plan::{
    Call, InjectedFault, Key, Micros, Operation, Plan, Sabotage, TaskStep, VALUE_KEYS, is_base64,
};
use clock::{instant, micros};
use event_names::{error_name, fault_name};
use state::{
    CallId, CallState, ClientConnection, ConnectionId, Process, ServerCall, ServerCallId,
    ServerPool, Task, new_server_pools,
};

/// Events of a world, at most: more means an endless loop.
const EVENTS_MAX: u64 = 200_000;
/// How long the world waits, once nothing goes wrong any more, before calls have to succeed.
const CALM_BEFORE_FINAL_CALLS: Micros = 2_000_000;
/// Calls to a server before that, which may fail: a process has as many connections.
const BROKEN_CONNECTIONS_MAX: usize = 4;
/// The serials of such calls.
const MUST_SUCCEED_CALL_SERIAL: u32 = u32::MAX;
const MAY_FAIL_CALL_SERIAL: u32 = u32::MAX - 1;
/// How long such a call may take.
const FINAL_CALL_TIME_LIMIT: Micros = 1_000_000;

/// The result of a world.
#[derive(Debug, Clone)]
pub struct SimulationResult {
    /// An invariant that was broken.
    pub violation: Option<Violation>,
    /// A hash of all bytes on the network and of the results of all calls.
    pub digest: u64,
    /// How often each event happened, by name.
    pub counts: BTreeMap<&'static str, u64>,
    /// The events in order, if they are logged.
    pub log: Vec<String>,
}

/// The receiver of a connection's events.
#[derive(Debug, Clone, Copy)]
enum EventReceiver {
    Connection(ConnectionId),
    Probe(usize, usize),
    Gone,
}

/// A world that runs.
pub(crate) struct World {
    network: Network,
    checker: Checker,
    processes: Vec<Process>,
    connections: Vec<ClientConnection>,
    server_calls: Vec<ServerCall>,
    calls: Vec<CallState>,
    tasks: Vec<Task>,
    tasks_left: usize,
    are_faults_over: bool,
    receivers: Vec<EventReceiver>,
    counts: BTreeMap<&'static str, u64>,
    results_hash: u64,
    next_opaque: u32,
    server_by_key: Vec<usize>,
    sabotage: Option<Sabotage>,
    log: Option<Vec<String>>,
}

/// Runs the world of a plan to its end, or until an invariant is broken.
pub(crate) fn run(plan: &Plan, keeps_log: bool) -> SimulationResult {
    let mut world = World::new(plan, keeps_log);
    world.run();
    world.into_result()
}

impl World {
    fn new(plan: &Plan, keeps_log: bool) -> Self {
        let server_count = plan.servers.len();
        let any_misbehaves = (0..server_count).any(|server| plan.misbehaves(server));
        let item_bytes_limits = plan.servers.iter().map(|server_plan| server_plan.item_bytes_max);
        let mut checker = Checker::new(item_bytes_limits.collect(), !any_misbehaves);
        let processes = plan.processes.iter().map(|process_plan| Process {
            plan: *process_plan,
            incarnation: checker.begin_incarnation(),
            server_pools: new_server_pools(
                plan.servers.iter().map(|server_plan| server_plan.requires_login),
                process_plan.protocol,
            ),
            frozen_until: 0,
        });
        let processes: Vec<Process> = processes.collect();
        let mut network = Network::new(plan);
        let tasks = plan
            .tasks
            .iter()
            .map(|steps| Task { steps: steps.iter().cloned().collect(), uniques: HashMap::new() });
        let tasks: Vec<Task> = tasks.collect();
        for task in 0..tasks.len() {
            network.schedule(0, Event::Task(task));
        }
        Self {
            network,
            checker,
            processes,
            connections: Vec::new(),
            server_calls: Vec::new(),
            calls: Vec::new(),
            tasks_left: tasks.len(),
            tasks,
            are_faults_over: false,
            receivers: Vec::new(),
            counts: BTreeMap::new(),
            results_hash: 0,
            next_opaque: 1,
            server_by_key: (0..=Key::MAX).map(|key| plan.server_of(key)).collect(),
            sabotage: plan.sabotage,
            log: keeps_log.then(Vec::new),
        }
    }

    /// Whether a test has planted this bug.
    fn is_sabotaged_by(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    fn log_event(&mut self, text: impl FnOnce(&Self) -> String) {
        if self.log.is_some() {
            let line = format!("{:>9} {}", self.network.now, text(self));
            self.log.get_or_insert_default().push(line);
        }
    }

    fn count(&mut self, event_name: &'static str) {
        *self.counts.entry(event_name).or_default() += 1;
    }

    fn run(&mut self) {
        let mut event_count = 0;
        while self.checker.violation().is_none() {
            let Some(event) = self.network.next_event() else {
                break;
            };
            event_count += 1;
            if event_count > EVENTS_MAX {
                self.checker.report_broken(Invariant::CallEndsOnce, "the world does not end");
            }
            self.handle(event);
            self.check_causes_of_down();
        }
        if self.checker.violation().is_none() {
            self.run_final_checks();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Task(task) => self.run_when_awake(self.process_of(task), event, |world| {
                world.run_next_steps(task);
            }),
            Event::Deadline(call) => {
                self.run_when_awake(self.calls[call].process, event, |world| {
                    world.expire_call(call);
                });
            }
            Event::Overdue(call) => self.run_when_awake(self.calls[call].process, event, |world| {
                world.check_overdue(call);
            }),
            Event::Tick(connection) => {
                self.run_when_awake(self.connections[connection].process, event, |world| {
                    world.tick(connection);
                });
            }
            Event::Cancel(call) => self.run_when_awake(self.calls[call].process, event, |world| {
                world.cancel(call);
            }),
            Event::SendOutput(process, connection) => {
                self.run_when_awake(process, event, |world| {
                    world.send_shared(connection);
                });
            }
            Event::Probe(process, server) => self.run_when_awake(process, event, |world| {
                world.begin_probe(process, server);
            }),
            Event::ProbeTimeout(process, server) => self.run_when_awake(process, event, |world| {
                world.handle_probe_timeout(process, server);
            }),
            Event::Fault(fault) => self.inject_fault(fault),
            event => {
                if let Some(link) = self.network.handle(event) {
                    self.notify_receiver(link);
                }
            }
        }
    }

    /// Runs an action in a process, later if the process is frozen.
    fn run_when_awake(&mut self, process: usize, event: Event, action: impl FnOnce(&mut Self)) {
        let wait = self.processes[process].frozen_until.saturating_sub(self.network.now);
        if wait > 0 {
            self.network.schedule(wait, event);
        } else {
            action(self);
        }
    }

    /// Notifies the owner of a connection.
    fn notify_receiver(&mut self, link: LinkId) {
        let receiver = self.receivers.get(link).copied().unwrap_or(EventReceiver::Gone);
        let process = match receiver {
            EventReceiver::Connection(connection) => self.connections[connection].process,
            EventReceiver::Probe(process, _) => process,
            EventReceiver::Gone => return,
        };
        self.run_when_awake(process, Event::Writable(link), |world| match receiver {
            EventReceiver::Connection(connection) => world.handle_connection_ready(connection),
            EventReceiver::Probe(process, server) => world.handle_probe_ready(process, server),
            EventReceiver::Gone => {}
        });
    }

    fn set_receiver(&mut self, link: LinkId, receiver: EventReceiver) {
        if self.receivers.len() <= link {
            self.receivers.resize(link + 1, EventReceiver::Gone);
        }
        self.receivers[link] = receiver;
    }

    fn process_of(&self, task: usize) -> usize {
        task % self.processes.len()
    }

    fn run_next_steps(&mut self, task: usize) {
        loop {
            match self.tasks[task].steps.pop_front() {
                None => return self.finish_task(),
                Some(TaskStep::Sleep(time)) => {
                    return self.network.schedule(time, Event::Task(task));
                }
                Some(TaskStep::Fault(wait, fault)) => {
                    self.network.schedule(wait, Event::Fault(fault));
                }
                Some(TaskStep::Call(call)) => return self.start_call(task, &call),
            }
        }
    }

    fn inject_fault(&mut self, fault: InjectedFault) {
        if self.are_faults_over {
            return;
        }
        self.log_event(|_| format!("fault {fault:?}"));
        self.count(fault_name(fault));
        if let Some(recovery) = self.network.inject(fault) {
            self.count("recovered");
            if recovery.items_at_start != recovery.items_at_stop {
                let text = format!("{fault:?}: {recovery:?}");
                self.checker.report_broken(Invariant::CleanRestartKeepsItems, text);
            }
        }
        match fault {
            InjectedFault::Freeze { process, duration } => {
                let until = self.network.now + duration;
                let frozen_until = &mut self.processes[process].frozen_until;
                *frozen_until = until.max(*frozen_until);
            }
            InjectedFault::Fork { process } => self.fork(process),
            _ => {}
        }
    }

    /// Ends a task; after the last one no more faults happen, and final calls check whether the world recovers.
    fn finish_task(&mut self) {
        self.tasks_left -= 1;
        if self.tasks_left > 0 || self.are_faults_over {
            return;
        }
        self.are_faults_over = true;
        self.log_event(|_| "nothing goes wrong any more".to_owned());
        self.network.end_faults();
        for process in 0..self.processes.len() {
            let mut steps = VecDeque::from([TaskStep::Sleep(CALM_BEFORE_FINAL_CALLS)]);
            // Connections that broke unnoticed may cost a call each.
            for server in 0..self.processes[process].server_pools.len() {
                steps.extend(
                    (0..BROKEN_CONNECTIONS_MAX)
                        .map(|_| final_call(Operation::Version(server), false)),
                );
            }
            steps.push_back(TaskStep::Sleep(CALM_BEFORE_FINAL_CALLS));
            for server in 0..self.processes[process].server_pools.len() {
                let key = (0..VALUE_KEYS).find(|key| {
                    self.server_by_key[usize::from(*key)] == server && !is_base64(*key)
                });
                // A client that accepts only short values may read a longer one, which is an error.
                let reads_all_values = self.processes[process].plan.value_bytes_max > 1 << 20;
                steps.extend(
                    key.filter(|_| reads_all_values)
                        .map(|key| final_call(Operation::Get(key), true)),
                );
                steps.push_back(final_call(Operation::Version(server), true));
            }
            self.tasks[process].steps = steps;
            self.tasks_left += 1;
            self.network.schedule(0, Event::Task(process));
        }
    }

    fn into_result(self) -> SimulationResult {
        SimulationResult {
            violation: self.checker.violation().cloned(),
            digest: self.network.digest() ^ self.results_hash,
            counts: self.counts,
            log: self.log.unwrap_or_default(),
        }
    }
}

/// A call after the last fault; all but the first ones must succeed.
fn final_call(operation: Operation, must_succeed: bool) -> TaskStep {
    TaskStep::Call(Call {
        serial: if must_succeed { MUST_SUCCEED_CALL_SERIAL } else { MAY_FAIL_CALL_SERIAL },
        operation,
        timeout: FINAL_CALL_TIME_LIMIT,
        cancel_after: None,
    })
}

impl SimulationResult {
    /// Of a world that did not end.
    pub fn from_violation(violation: Violation) -> Self {
        Self { violation: Some(violation), digest: 0, counts: BTreeMap::new(), log: Vec::new() }
    }
}
