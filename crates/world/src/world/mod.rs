//! One world: processes with clients, servers, a network between them, and a checker that watches.
//!
//! Clients move bytes, pass in the time and wait, as the drivers of the real client do; every decision is the
//! client engine's.
//!
//! Words: a *link* is a TCP connection with its bytes in flight, a *client connection* the client's engine on one
//! link. A *server call* is the requests of a call that go to one server, a *round trip* those that it writes at
//! once with their replies. An *incarnation* of a client is the time of a process between two forks; *sabotage* is a
//! bug that a test plants, to prove that the checker finds it.

mod call_splitter;
mod calls;
mod clients;
mod clock;
mod connection;
mod connections;
mod environment;
mod event_names;
mod handle_replies;
mod pool;
mod process;
mod server_operation;
mod tasks;

use std::collections::BTreeMap;

use crate::checker::{Invariant, Violation};
use crate::network::{Event, LinkId, Receiver};
use crate::plan::{InjectedFault, Plan, TaskStep};
use clients::Clients;
use environment::Environment;
use event_names::fault_name;
use tasks::Tasks;

type CallId = usize;
type ServerCallId = usize;
type ConnectionId = usize;

/// Events of a world, at most: more means an endless loop.
const EVENTS_MAX: u64 = 200_000;

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

/// A world that runs.
struct World {
    env: Environment,
    clients: Clients,
    tasks: Tasks,
}

/// Runs the world of a plan to its end, or until an invariant is broken.
pub(crate) fn run(plan: &Plan, keeps_log: bool) -> SimulationResult {
    let mut world = World::new(plan, keeps_log);
    world.run();
    world.env.into_result()
}

impl World {
    fn new(plan: &Plan, keeps_log: bool) -> Self {
        let mut env = Environment::new(plan, keeps_log);
        let clients = Clients::new(plan, &mut env);
        for task in 0..plan.tasks.len() {
            env.network.schedule.add(0, Event::Task(task));
        }
        Self { env, clients, tasks: Tasks::new(plan) }
    }

    fn run(&mut self) {
        let mut event_count = 0;
        while self.env.checker.violation().is_none() {
            let Some(event) = self.env.network.schedule.next_event() else {
                break;
            };
            event_count += 1;
            if event_count > EVENTS_MAX {
                let text = "the world does not end";
                self.env.checker.report_broken(Invariant::CallEndsOnce, text);
            }
            self.handle(event);
            for process in &mut self.clients.processes {
                process.check_causes_of_down(&mut self.env.checker);
            }
        }
        if self.env.checker.violation().is_none() {
            self.run_final_checks();
        }
    }

    fn handle(&mut self, event: Event) {
        if let Some(process) = self.clients.process_of(event)
            && self.delay_if_frozen(process, event)
        {
            return;
        }
        let Self { env, clients, .. } = self;
        match event {
            Event::Task(task) => self.run_next_steps(task),
            Event::Deadline(call) => clients.expire_call(call, env),
            Event::Overdue(call) => {
                let frozen_until = clients.processes[clients.calls.process(call)].frozen_until();
                clients.calls.check_overdue(call, frozen_until, env);
            }
            Event::Tick(connection) => clients.tick(connection, env),
            Event::Cancel(call) => clients.cancel(call, env),
            Event::SendOutput(_, connection) => clients.send_shared(connection, env),
            Event::Probe(process, server) => clients.pool(process, server).begin_probe(env),
            Event::ProbeTimeout(process, server) => {
                clients.pool(process, server).handle_probe_timeout(&mut env.network);
            }
            Event::Fault(fault) => self.inject_fault(fault),
            event => {
                if let Some(link) = env.network.handle(event) {
                    self.notify_receiver(link);
                }
            }
        }
    }

    /// Puts an event off while its process is frozen.
    fn delay_if_frozen(&mut self, process: usize, event: Event) -> bool {
        let frozen_until = self.clients.processes[process].frozen_until();
        let wait = frozen_until.saturating_sub(self.env.now());
        if wait > 0 {
            self.env.network.schedule.add(wait, event);
        }
        wait > 0
    }

    /// Notifies the part of a client that uses a connection.
    fn notify_receiver(&mut self, link: LinkId) {
        let Some(receiver) = self.env.network.link(link).receiver() else {
            return;
        };
        let process = self.clients.process_of_receiver(receiver);
        if self.delay_if_frozen(process, Event::Writable(link)) {
            return;
        }
        let Self { env, clients, .. } = self;
        match receiver {
            Receiver::Connection(connection) => clients.handle_ready(connection, env),
            Receiver::Probe(process, server) => {
                clients.pool(process, server).handle_probe_ready(env);
            }
        }
    }

    fn run_next_steps(&mut self, task: usize) {
        let Self { env, clients, tasks } = self;
        loop {
            match tasks.take_step(task) {
                None => return self.finish_task(),
                Some(TaskStep::Sleep(time)) => {
                    return env.network.schedule.add(time, Event::Task(task));
                }
                Some(TaskStep::Fault(wait, fault)) => {
                    env.network.schedule.add(wait, Event::Fault(fault));
                }
                Some(TaskStep::Call(call)) => return clients.start_call(task, &call, env),
            }
        }
    }

    fn inject_fault(&mut self, fault: InjectedFault) {
        let Self { env, clients, tasks } = self;
        if tasks.are_faults_over() {
            return;
        }
        env.log(|| format!("fault {fault:?}"));
        env.journal.count(fault_name(fault));
        if let Some(recovery) = env.network.inject(fault) {
            env.journal.count("recovered");
            if recovery.items_at_start != recovery.items_at_stop {
                let text = format!("{fault:?}: {recovery:?}");
                env.checker.report_broken(Invariant::CleanRestartKeepsItems, text);
            }
        }
        match fault {
            InjectedFault::Freeze { process, duration } => {
                clients.processes[process].freeze(env.now() + duration);
            }
            InjectedFault::Fork { process } => clients.fork(process, env),
            _ => {}
        }
    }

    /// Ends a task; after the last one no more faults happen, and final calls check whether the world recovers.
    fn finish_task(&mut self) {
        if !self.tasks.finish() {
            return;
        }
        let Self { env, clients, tasks } = self;
        env.log(|| "nothing goes wrong any more".to_owned());
        env.network.end_faults();
        for (task, process) in clients.processes.iter().enumerate() {
            // A client that accepts only short values may read a longer one, which is an error.
            let read_keys = clients.key_map.plain_keys();
            let read_keys = read_keys.map(|key| key.filter(|_| process.reads_all_values()));
            tasks.begin_final_calls(task, &read_keys.collect::<Vec<_>>());
            env.network.schedule.add(0, Event::Task(task));
        }
    }

    /// What can be seen once all is over: connections are closed, and nothing is left open or uncounted.
    fn run_final_checks(&mut self) {
        let Self { env, clients, .. } = self;
        clients.close_all(env);
        let Environment { network, checker, .. } = env;
        while let Some(event) = network.schedule.next_event() {
            network.handle(event);
        }
        for process in &clients.processes {
            process.check_quiet_writes(checker, network);
            process.check_protocol_faults(checker, network);
        }
        clients.calls.check_all_ended(checker);
        for server in 0..clients.key_map.server_count() {
            if let Some((bytes, limit_bytes)) = network.memory_usage(server)
                && bytes > limit_bytes + limit_bytes / 4
            {
                let text = format!("server {server} has {bytes} bytes of {limit_bytes}");
                checker.report_broken(Invariant::MemoryIsBounded, text);
            }
        }
        checker.check_at_end(network);
    }
}

impl SimulationResult {
    /// Of a world that did not end.
    pub fn from_violation(violation: Violation) -> Self {
        Self { violation: Some(violation), digest: 0, counts: BTreeMap::new(), log: Vec::new() }
    }
}
