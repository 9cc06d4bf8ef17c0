//! A server of the world: real sessions over a real store, behind what can go wrong around them.

use std::path::PathBuf;
use std::sync::OnceLock;

use glasscache_server::{Config, InMemoryWorker, RestartableMemory, UsersFile, UsersFileFormat};

use super::link::{LinkId, Session};
use super::misbehaviour;
use crate::plan::{Micros, Misbehaviour, Proxy, ServerPlan};
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
    pub(super) plan: ServerPlan,
    seed: u64,
    pub(super) workers: Vec<InMemoryWorker>,
    memory_file: Option<RestartableMemory>,
    next_worker: usize,
    /// Connections whose server's side is open.
    pub(super) links: Vec<LinkId>,
    pub(super) is_up: bool,
    pub(super) paused_until: Micros,
    pub(super) unreachable_until: Micros,
    pub(super) cut_request_after_thousandths: Option<u16>,
    /// Cuts the next reply.
    pub(super) cut_reply: Option<CutReply>,
    pub(super) misbehaviour: Option<(Misbehaviour, u32)>,
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

    /// Starts it: after a clean stop with the items that it had, else empty.
    pub(super) fn start(&mut self, now: Micros) {
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

    pub(super) fn advance_clock(&mut self, seconds: u32) {
        self.clock_ahead_s += seconds;
    }

    pub(super) fn move_wall_clock(&mut self, seconds: i32, now: Micros) {
        self.wall_clock_shift_s += i64::from(seconds);
        self.set_wall_clock(now);
    }

    fn set_wall_clock(&self, now: Micros) {
        let unix_s = FIRST_UNIX_S
            + i64::from(self.clock_second(now) - FIRST_SECOND)
            + self.wall_clock_shift_s;
        if let Some(worker) = self.workers.first() {
            worker.set_wall_clock(unix_s, self.clock_second(now));
        }
    }

    /// A session for a new connection.
    pub(super) fn accept(&mut self) -> Option<Session> {
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

    /// What it sends in place of a reply, and whether that is a misbehaviour.
    pub(super) fn alter_reply(
        &self,
        reply: Vec<u8>,
        previous_reply: &[u8],
        random: &mut Random,
    ) -> (Vec<u8>, bool) {
        match self.misbehaviour {
            Some((misbehaviour, one_in))
                if misbehaviour != Misbehaviour::Flood
                    && !reply.is_empty()
                    && random.below(u64::from(one_in)) == 0 =>
            {
                (misbehaviour::alter_reply(misbehaviour, &reply, previous_reply, random), true)
            }
            _ => (reply, false),
        }
    }

    /// Fills its memory with values that are not read.
    pub(super) fn fill_store(&mut self, now: Micros) {
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
