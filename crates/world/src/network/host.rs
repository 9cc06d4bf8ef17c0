//! A server of the world: real sessions over a real store, behind what can go wrong around them.

use std::path::PathBuf;
use std::sync::OnceLock;

use glasscache_server::{Config, InMemoryWorker, RestartableMemory, UsersFile, UsersFileFormat};

use super::executions::{ExecutionIndex, index_in_run};
use super::link::{LinkId, Session};
use super::misbehaviour;
use crate::plan::{InjectedFault, Micros, Misbehaviour, Proxy, ServerPlan};
use crate::random::Random;

/// The second that a server's clock shows when the world begins.
const FIRST_SECOND: u32 = 10;
/// The Unix time when the world begins.
pub(crate) const FIRST_UNIX_S: i64 = 1_700_000_000;
/// Microseconds of a second.
const MICROS_PER_SECOND: Micros = 1_000_000;
/// Length of the values that fill a server's memory.
const FILL_VALUE_BYTES: usize = 7000;

/// The user and the password of servers that require a login.
pub(crate) const USER: &str = "user";
pub(crate) const PASSWORD: &str = "password of the world";

/// The file of users, written once for all worlds of this process.
fn users_file() -> UsersFile {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let file_name = format!("glasscache-world-users-{}", std::process::id());
        let path = std::env::temp_dir().join(file_name);
        std::fs::write(&path, format!("{USER}:{PASSWORD}\n")).expect("a file of users");
        path
    });
    UsersFile { path: path.clone(), format: UsersFileFormat::AuthFile }
}

/// A memory file that no server has used.
fn make_memory_file() -> RestartableMemory {
    RestartableMemory::new().expect("a file in memory")
}

/// Items of a server that stopped cleanly and started again with them; `None` where its statistics need a login.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recovery {
    pub(crate) items_at_stop: Option<u64>,
    pub(crate) items_at_start: Option<u64>,
}

/// Where a reply is cut, and what follows.
#[derive(Debug, Clone, Copy)]
pub(super) struct CutReply {
    pub(super) after_thousandths: u16,
    /// Whether the server restarts then, instead of breaking the connection alone.
    pub(super) restarts_server: bool,
}

/// One server.
pub(super) struct Host {
    plan: ServerPlan,
    seed: u64,
    workers: Vec<InMemoryWorker>,
    memory_file: Option<RestartableMemory>,
    next_worker: usize,
    /// Connections whose server's side is open.
    pub(super) links: Vec<LinkId>,
    is_up: bool,
    paused_until: Micros,
    /// Nothing gets through to it before.
    pub(super) unreachable_until: Micros,
    cut_request_after_thousandths: Option<u16>,
    /// Cuts the next reply.
    pub(super) cut_reply: Option<CutReply>,
    misbehaviour: Option<(Misbehaviour, u32)>,
    pub(super) has_misbehaved: bool,
    /// The execution indexes at which it lost all its items.
    pub(super) restart_indexes: Vec<ExecutionIndex>,
    clock_ahead_s: u32,
    wall_clock_shift_s: i64,
}

impl Host {
    pub(super) fn new(plan: ServerPlan, seed: u64) -> Self {
        let mut host = Self {
            plan,
            seed,
            workers: Vec::new(),
            memory_file: plan.has_memory_file.then(make_memory_file),
            next_worker: 0,
            links: Vec::new(),
            is_up: true,
            paused_until: 0,
            unreachable_until: 0,
            cut_request_after_thousandths: None,
            cut_reply: None,
            misbehaviour: None,
            has_misbehaved: false,
            restart_indexes: Vec::new(),
            clock_ahead_s: 0,
            wall_clock_shift_s: 0,
        };
        host.start(0);
        host
    }

    /// Stops it cleanly and starts it again; its connections have ended. `None` if it has no memory file and starts
    /// without its items. With `loses_items`, which a test plants, it starts with another file.
    pub(super) fn restart_cleanly(&mut self, now: Micros, loses_items: bool) -> Option<Recovery> {
        let items_at_stop = self.count_items(now);
        let second = self.clock_second(now);
        let workers = std::mem::take(&mut self.workers);
        if let Some(memory_file) = &mut self.memory_file {
            let is_saved = InMemoryWorker::stop(workers, memory_file, second);
            assert!(is_saved, "a worker still has the store");
        }
        if loses_items {
            self.memory_file = self.plan.has_memory_file.then(make_memory_file);
        }
        self.start(now);
        self.plan
            .has_memory_file
            .then(|| Recovery { items_at_stop, items_at_start: self.count_items(now) })
    }

    /// Starts it again, empty, in a run of this number; its connections have ended.
    pub(super) fn restart(&mut self, run_number: u64, now: Micros) {
        self.record_lost_items(run_number);
        self.start(now);
    }

    /// It has lost all its items in a run of this number.
    pub(super) fn record_lost_items(&mut self, run_number: u64) {
        self.restart_indexes.push(index_in_run(run_number, 0));
    }

    /// Starts it: after a clean stop with the items that it had, else empty.
    fn start(&mut self, now: Micros) {
        let config = Config {
            memory_bytes: self.plan.memory_bytes,
            item_bytes_max: self.plan.item_bytes_max,
            evict: self.plan.evict,
            hash_seed: Some(self.seed),
            users: self.plan.requires_login.then(users_file),
            ..Config::default()
        };
        // The old store goes first: both would be mapped at once.
        self.workers.clear();
        let new_workers = match &mut self.memory_file {
            Some(memory_file) => InMemoryWorker::group_in(config, self.plan.workers, memory_file),
            None => InMemoryWorker::group(config, self.plan.workers),
        };
        self.workers = new_workers.expect("memory for a small store, and what a clean stop left");
        self.links.clear();
        self.is_up = true;
        self.cut_reply = None;
        self.set_wall_clock(now);
    }

    /// The second that its clock shows.
    pub(super) fn clock_second(&self, now: Micros) -> u32 {
        FIRST_SECOND + self.clock_ahead_s + (now / MICROS_PER_SECOND) as u32
    }

    /// Something goes wrong with the server itself: what it does with its connections is not decided here.
    pub(super) fn inject(&mut self, fault: InjectedFault, now: Micros) {
        match fault {
            InjectedFault::Pause(_, duration) => self.paused_until = now + duration,
            InjectedFault::Unreachable(_, duration) => self.unreachable_until = now + duration,
            InjectedFault::Down(..) => self.is_up = false,
            InjectedFault::CutReply(_, after_thousandths) => {
                self.cut_reply = Some(CutReply { after_thousandths, restarts_server: false });
            }
            InjectedFault::KillInReply(_, after_thousandths) => {
                self.cut_reply = Some(CutReply { after_thousandths, restarts_server: true });
            }
            InjectedFault::CutRequest(_, after_thousandths) => {
                self.cut_request_after_thousandths = Some(after_thousandths);
            }
            InjectedFault::Misbehave { misbehaviour, one_in, .. } => {
                self.misbehaviour = Some((misbehaviour, one_in));
            }
            InjectedFault::Fill(_) => self.fill_store(now),
            InjectedFault::ServerClock(_, seconds) => self.clock_ahead_s += seconds,
            InjectedFault::WallClock(_, seconds) => {
                self.wall_clock_shift_s += i64::from(seconds);
                self.set_wall_clock(now);
            }
            _ => {}
        }
    }

    /// All that goes wrong is over: a server that is down or paused goes on as soon as that event comes.
    pub(super) fn end_faults(&mut self) {
        self.misbehaviour = None;
        self.cut_reply = None;
        self.cut_request_after_thousandths = None;
        self.unreachable_until = 0;
    }

    /// It is back.
    pub(super) fn come_up(&mut self) {
        self.is_up = true;
    }

    /// How many of `accepted_bytes` arrive before their connection breaks; `None`: all, and it does not break.
    pub(super) fn cut_request(&mut self, accepted_bytes: usize) -> Option<usize> {
        let thousandths = self.cut_request_after_thousandths.take_if(|_| accepted_bytes > 0)?;
        Some(accepted_bytes * usize::from(thousandths) / 1000)
    }

    /// Whether it misbehaved in a way that no client can recognise: a line of classic text names neither its request
    /// nor its key, so that one that came twice is taken for the next reply.
    pub(super) fn has_misbehaved_in_classic(&self) -> bool {
        self.has_misbehaved && self.plan.proxy != Proxy::None
    }

    /// After one request in how many it floods the connection with refusals; `None`: it does not.
    pub(super) fn flood_one_in(&self) -> Option<u64> {
        match self.misbehaviour {
            Some((Misbehaviour::Flood, one_in)) => Some(u64::from(one_in)),
            _ => None,
        }
    }

    /// Whether it repeats replies, so that the last one has to be kept.
    pub(super) fn repeats_previous_replies(&self) -> bool {
        matches!(self.misbehaviour, Some((Misbehaviour::RepeatsPrevious, _)))
    }

    fn set_wall_clock(&self, now: Micros) {
        let unix_s = FIRST_UNIX_S
            + i64::from(self.clock_second(now) - FIRST_SECOND)
            + self.wall_clock_shift_s;
        if let Some(worker) = self.workers.first() {
            worker.set_wall_clock(unix_s, self.clock_second(now));
        }
    }

    /// Accepts a connection by a session, or refuses it while it is down.
    pub(super) fn accept(&mut self, link: LinkId) -> Option<Session> {
        if !self.is_up {
            return None;
        }
        self.links.push(link);
        let worker_index = self.next_worker % self.workers.len();
        self.next_worker += 1;
        Some(Session { worker_index, connection: self.workers.get_mut(worker_index)?.connect() })
    }

    /// Whether it serves at this moment.
    pub(super) fn is_serving(&self, now: Micros) -> bool {
        self.is_up && self.paused_until <= now
    }

    /// What the proxy before it does with the first bytes of a connection: how many it takes, its reply, and whether
    /// it closes; `None`: there are too few to decide.
    pub(super) fn apply_proxy(&self, input: &[u8]) -> Option<(usize, &'static [u8], bool)> {
        const PROBE: &[u8] = b"mn\r\n";
        if self.plan.proxy == Proxy::None {
            return Some((0, b"", false));
        }
        if input.len() < PROBE.len() && PROBE.starts_with(input) {
            return None;
        }
        match (input.starts_with(PROBE), self.plan.proxy) {
            (true, Proxy::RefusesMeta) => Some((PROBE.len(), b"ERROR\r\n", false)),
            (true, Proxy::ClosesOnMeta) => Some((0, b"", true)),
            _ => Some((0, b"", false)),
        }
    }

    /// Has a session execute `input`.
    pub(super) fn execute(&mut self, session: &mut Session, input: &[u8], now: Micros) -> Vec<u8> {
        let second = self.clock_second(now);
        let Some(worker) = self.workers.get_mut(session.worker_index) else {
            return Vec::new();
        };
        worker.feed(&mut session.connection, input, second)
    }

    /// The background work of its workers.
    pub(super) fn maintain(&mut self, now: Micros) {
        let second = self.clock_second(now);
        for worker in &mut self.workers {
            worker.maintain(second);
        }
    }

    /// What it sends in place of a reply.
    pub(super) fn alter_reply(
        &mut self,
        reply: Vec<u8>,
        previous_reply: &[u8],
        random: &mut Random,
    ) -> Vec<u8> {
        match self.misbehaviour {
            Some((misbehaviour, one_in))
                if misbehaviour != Misbehaviour::Flood
                    && !reply.is_empty()
                    && random.below(u64::from(one_in)) == 0 =>
            {
                self.has_misbehaved = true;
                misbehaviour::alter_reply(misbehaviour, &reply, previous_reply, random)
            }
            _ => reply,
        }
    }

    /// Fills its memory with values that are not read.
    fn fill_store(&mut self, now: Micros) {
        let second = self.clock_second(now);
        let Some(worker) = self.workers.first_mut() else {
            return;
        };
        let mut connection = worker.connect();
        let body = vec![b'f'; FILL_VALUE_BYTES];
        let item_count = 2 * self.plan.memory_bytes as usize / FILL_VALUE_BYTES;
        let mut request = Vec::with_capacity(FILL_VALUE_BYTES + 64);
        for item_index in 0..item_count {
            request.clear();
            let head = format!("set fill{item_index} 0 0 {FILL_VALUE_BYTES} noreply\r\n");
            request.extend_from_slice(head.as_bytes());
            request.extend_from_slice(&body);
            request.extend_from_slice(b"\r\n");
            worker.feed(&mut connection, &request, second);
        }
    }

    /// Bytes of items that its statistics report, and the limit.
    pub(super) fn memory_usage(&mut self, now: Micros) -> Option<(u64, u64)> {
        let statistics = self.read_statistics(now, &["bytes", "limit_maxbytes"])?;
        Some((*statistics.first()?, *statistics.get(1)?))
    }

    fn count_items(&mut self, now: Micros) -> Option<u64> {
        self.read_statistics(now, &["curr_items"])?.first().copied()
    }

    /// Numbers that its statistics report; `None` where one is not a number, as before a login.
    fn read_statistics(&mut self, now: Micros, names: &[&str]) -> Option<Vec<u64>> {
        let second = self.clock_second(now);
        let worker = self.workers.first_mut()?;
        let mut connection = worker.connect();
        let reply = worker.feed(&mut connection, b"stats\r\n", second);
        let text = String::from_utf8_lossy(&reply);
        let find_statistic = |name: &str| -> Option<u64> {
            let prefix = format!("STAT {name} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&prefix))?;
            line.trim().parse().ok()
        };
        names.iter().map(|name| find_statistic(name)).collect()
    }
}
