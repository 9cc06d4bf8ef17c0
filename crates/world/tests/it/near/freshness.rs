//! Values from the process under writers, deletes and expiries, in virtual time: never past their TTL, never older than
//! `near_ttl`, and own writes are seen at once.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use glasscache_client::StoreMode;
use glasscache_client::engine::server::ServerState;
use glasscache_client::key::{KeyEncoder, KeyEncoding};
use glasscache_client::near::{ClientNearCache, Fetch, NearRead, NearStep, StrategyOptions};
use glasscache_client::request::{Item, Request};
use glasscache_server::InMemoryWorker;

use super::connected_engine::{
    ConnectedEngine, FIRST_SECOND, new_server_state, new_worker, wire_key,
};

/// Operations of the everyday test; `GLASSCACHE_NEAR_OPERATIONS` sets another number.
const OPERATIONS: usize = 200_000;

/// Clients, and calls that each makes at the same time.
const CLIENTS: usize = 3;
const CALLS_IN_FLIGHT_MAX: usize = 4;

/// Keys; the first ones are the fixed set.
const KEYS: usize = 40;
const FIXED_KEYS: usize = 5;

const NEAR_TTL: Duration = Duration::from_millis(1500);

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// A change of a key that the server has executed.
struct Version {
    /// The value since then; `None`: there is none.
    value: Option<u32>,
    /// The second from which on the value is expired.
    expiry_second: Option<u32>,
    client: usize,
    acknowledged_at: Option<Instant>,
}

/// What a call does.
enum Operation {
    Read(Box<NearRead>, Fetch, Instant),
    /// The versions that it made, once it is executed: the key and the index of each.
    Write(Change, Vec<(usize, usize)>),
}

#[derive(Clone, Copy)]
enum Change {
    Set(u32, i64),
    Delete,
    Flush,
}

/// A call in flight: written, and later executed.
struct Call {
    connected_engine: ConnectedEngine,
    key: usize,
    operation: Option<Operation>,
    replies: Option<Vec<u8>>,
}

struct Client {
    near: Arc<ClientNearCache>,
    _server_state: Arc<ServerState>,
    calls: Vec<Call>,
}

struct Simulation {
    worker: InMemoryWorker,
    clients: Vec<Client>,
    /// The changes of each key in the order in which the server executed them.
    versions: Vec<Vec<Version>>,
    start: Instant,
    now: Instant,
    last_value: u32,
    rng: Rng,
    /// What the checks allow instead of the near cache's own `near_ttl`.
    near_ttl: Duration,
    hits: usize,
    violations: Vec<String>,
}

fn key_name(key: usize) -> String {
    format!("k{key}")
}

impl Simulation {
    fn new(seed: u64, notation: &str) -> Self {
        let now = Instant::now();
        let mut text = format!("glasscache-strategy 1\nstrategy fixed:{FIXED_KEYS}+{notation}\n");
        (0..FIXED_KEYS).for_each(|key| _ = writeln!(text, "key {}", key_name(key)));
        let options = StrategyOptions {
            near_ttl: Some(NEAR_TTL),
            ..StrategyOptions::new(text.parse().unwrap())
        };
        let mut worker = new_worker();
        let key_encoder = KeyEncoder { namespace: b"", encoding: KeyEncoding::Refuse };
        let mut new_client = |_| {
            let near = Arc::new(ClientNearCache::new(options.clone(), key_encoder).unwrap());
            let server_state = new_server_state(&near);
            let new_call = |_| Call {
                connected_engine: ConnectedEngine::new(&mut worker, &server_state, now),
                key: 0,
                operation: None,
                replies: None,
            };
            let calls = (0..CALLS_IN_FLIGHT_MAX).map(new_call).collect();
            Client { near, _server_state: server_state, calls }
        };
        let clients = (0..CLIENTS).map(&mut new_client).collect();
        Self {
            clients,
            worker,
            versions: (0..KEYS).map(|_| Vec::new()).collect(),
            start: now,
            now,
            last_value: 0,
            rng: Rng(seed * 2 + 1),
            near_ttl: NEAR_TTL,
            hits: 0,
            violations: Vec::new(),
        }
    }

    fn second(&self) -> u32 {
        FIRST_SECOND + (self.now - self.start).as_secs() as u32
    }

    /// Lets one call do its next step.
    fn step(&mut self) {
        // A pause outlasts `near_ttl`, so few of them leave enough hits whichever keys are evicted.
        let pause_us = match self.rng.below(600) {
            0 => 2_000_000,
            micros => micros * 3,
        };
        self.now += Duration::from_micros(pause_us as u64);
        let (client, call) = (self.rng.below(CLIENTS), self.rng.below(CALLS_IN_FLIGHT_MAX));
        let call_state = &mut self.clients[client].calls[call];
        match (&call_state.operation, call_state.replies.take()) {
            (None, _) => self.begin(client, call),
            (Some(_), None) => self.execute(client, call),
            (Some(_), Some(replies)) => self.end(client, call, &replies),
        }
    }

    fn begin(&mut self, client: usize, call: usize) {
        let key = self.rng.below(KEYS);
        self.clients[client].calls[call].key = key;
        if self.rng.below(10) < 8 {
            let near = self.clients[client].near.clone();
            let read = NearRead::new(near, &[wire_key(&key_name(key))], None);
            return self.continue_read(client, call, read, self.now);
        }
        let change = match self.rng.below(200) {
            0 => Change::Flush,
            1..50 => Change::Delete,
            _ => {
                self.last_value += 1;
                let exptime = [0, 0, 0, 1, 2, 3, 5][self.rng.below(7)];
                Change::Set(self.last_value, exptime)
            }
        };
        let name = key_name(key);
        let call_state = &mut self.clients[client].calls[call];
        match change {
            Change::Set(value, exptime) => call_state.connected_engine.submit(&Request::Store {
                mode: StoreMode::Set,
                item: Item { key: wire_key(&name), flags: 0, body: value.to_string().as_bytes() },
                exptime,
                noreply: false,
            }),
            Change::Delete => call_state
                .connected_engine
                .submit(&Request::Delete { key: wire_key(&name), noreply: false }),
            Change::Flush => call_state.connected_engine.submit(&Request::Flush { delay_s: 0 }),
        };
        call_state.operation = Some(Operation::Write(change, Vec::new()));
    }

    /// Makes the next call of a read, or ends it.
    fn continue_read(
        &mut self,
        client: usize,
        call: usize,
        mut read: NearRead,
        started_at: Instant,
    ) {
        let call_state = &mut self.clients[client].calls[call];
        if let Some(NearStep::Fetch(fetch)) = read.step(self.now) {
            call_state.connected_engine.submit(&Request::GetWithTtls { keys: &fetch.keys() });
            call_state.operation = Some(Operation::Read(Box::new(read), fetch, started_at));
            return;
        }
        let (hit_count, _) = read.hit_count_and_bytes();
        let is_hit = hit_count > 0;
        let key = call_state.key;
        let (values, _) = read.finish();
        let value = values[0].as_ref().map(|value| {
            let text = String::from_utf8(value.bytes.to_vec()).unwrap();
            text.parse::<u32>().unwrap()
        });
        self.check(client, key, value, started_at, is_hit);
    }

    fn execute(&mut self, client: usize, call: usize) {
        let second = self.second();
        let call_state = &mut self.clients[client].calls[call];
        call_state.replies = Some(call_state.connected_engine.execute(&mut self.worker, second));
        let Some(Operation::Write(change, made_versions)) = &mut call_state.operation else {
            return;
        };
        let (value, expiry_second) = match *change {
            Change::Set(value, 0) => (Some(value), None),
            Change::Set(value, exptime) => (Some(value), Some(second + exptime as u32)),
            Change::Delete | Change::Flush => (None, None),
        };
        let keys = match change {
            Change::Flush => 0..KEYS,
            Change::Set(..) | Change::Delete => call_state.key..call_state.key + 1,
        };
        for key in keys {
            made_versions.push((key, self.versions[key].len()));
            self.versions[key].push(Version {
                value,
                expiry_second,
                client,
                acknowledged_at: None,
            });
        }
    }

    fn end(&mut self, client: usize, call: usize, replies: &[u8]) {
        let call_state = &mut self.clients[client].calls[call];
        call_state.connected_engine.engine.wire_mut().feed(replies);
        match call_state.operation.take() {
            Some(Operation::Read(mut read, fetch, started_at)) => {
                let (fetched, failures) =
                    call_state.connected_engine.read_fetched_items(fetch.keys().len());
                read.finish_fetch(&fetch, fetched, failures, self.now);
                self.continue_read(client, call, *read, started_at);
            }
            Some(Operation::Write(_, made_versions)) => {
                call_state.connected_engine.read_replies(|_, _| {});
                for (key, version_index) in made_versions {
                    self.versions[key][version_index].acknowledged_at = Some(self.now);
                }
            }
            None => {}
        }
    }

    /// Checks the value of a read that began at `started_at`.
    fn check(
        &mut self,
        client: usize,
        key: usize,
        value: Option<u32>,
        started_at: Instant,
        is_hit: bool,
    ) {
        let Some(value) = value else { return };
        self.hits += usize::from(is_hit);
        let versions = &self.versions[key];
        let version_index = versions.iter().position(|version| version.value == Some(value));
        let Some(version_index) = version_index else {
            return self.violations.push(format!("k{key} has {value}, which was never written"));
        };
        let second = self.second();
        if is_hit
            && versions[version_index]
                .expiry_second
                .is_some_and(|expiry_second| second >= expiry_second)
        {
            self.violations.push(format!("k{key} is served past its TTL"));
        }
        let stale = versions[version_index + 1..].iter().find_map(|later| {
            let age = started_at.checked_duration_since(later.acknowledged_at?)?;
            (later.client == client || age > self.near_ttl).then_some((later.client, age))
        });
        if let Some((writer, age)) = stale {
            let text = format!(
                "k{key}: client {client} reads a value that client {writer} replaced {age:?} before"
            );
            self.violations.push(text);
        }
    }

    fn run(&mut self, operation_count: usize) {
        // Each operation has a begin, an execution and an end, unless the process has the value.
        for _ in 0..operation_count * 2 {
            self.step();
        }
    }
}

fn read_operation_count() -> usize {
    let number = std::env::var("GLASSCACHE_NEAR_OPERATIONS");
    number.map_or(OPERATIONS, |number| number.parse().unwrap())
}

#[test]
fn a_value_from_the_process_is_never_past_its_ttl_nor_older_than_near_ttl_nor_than_an_own_write() {
    for (seed, notation) in ["lru:20", "s3fifo:20", "lru-bytes:4000"].iter().enumerate() {
        let mut simulation = Simulation::new(seed as u64, notation);
        simulation.run(read_operation_count() / 3);
        assert!(
            simulation.violations.is_empty(),
            "{notation}: {:?}",
            simulation.violations.first()
        );
        eprintln!("{notation}: {} hits", simulation.hits);
        assert!(
            simulation.hits > read_operation_count() / 30,
            "{notation}: {} hits",
            simulation.hits
        );
    }
}

#[test]
fn the_check_finds_values_that_are_kept_for_too_long() {
    let mut simulation = Simulation::new(9, "lru:20");
    simulation.near_ttl = NEAR_TTL / 2;
    simulation.run(20_000);
    assert!(!simulation.violations.is_empty());
}
