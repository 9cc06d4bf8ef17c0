//! One strategy and one log: the client's calls, keys, bytes and used keys of each request are those of the simulator.

use std::sync::Arc;
use std::time::Instant;

use glasscache_client::StoreMode;
use glasscache_client::engine::server::ServerState;
use glasscache_client::key::{KeyEncoder, KeyEncoding};
use glasscache_client::near::{ClientNearCache, NearRead, NearStep, RequestScope, StrategyOptions};
use glasscache_client::request::{Item, Request};
use glasscache_server::InMemoryWorker;
use glasscache_sim::strategy::build_file::build_strategy_file;
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::fixed::choose_fixed;
use glasscache_sim::strategy::learn::learn;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::run::{Choices, CostMode, RequestStats, run};
use glasscache_sim::strategy::{Strategy, StrategyFile};
use glasscache_sim::trace::log::{Items, NONE, RequestLog, Requests};

use super::connected_engine::{
    ConnectedEngine, FIRST_SECOND, new_server_state, new_worker, wire_key,
};

/// Requests of each log; with every strategy more than 200,000.
const REQUESTS: usize = 7000;

/// Application processes.
const INSTANCES: u16 = 3;

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// A number below `bound`; low ones are more frequent than high ones.
    fn below_skewed(&mut self, bound: usize) -> u32 {
        let limit = 1 + self.below(bound);
        self.below(limit) as u32
    }
}

/// A log of a tree of items; half of the requests read a user with what belongs to it.
fn random_log(seed: u64, item_count: usize) -> RequestLog {
    let mut rng = Rng(seed * 2 + 1);
    let parents = (0..item_count).map(|item| match rng.below(10) {
        0 => NONE,
        _ if item == 0 => NONE,
        _ => rng.below(item) as u32,
    });
    let parents = parents.collect();
    let kinds = ["user", "profile", "rights"];
    let format_key = |item: usize| format!("{}:{}", kinds[item % 3], item / 3);
    let sizes = (0..item_count).map(|_| rng.below(900) as u32).collect();
    let mut requests = Requests { starts: vec![0], ..Requests::default() };
    for number in 0..REQUESTS {
        let mut read_items: Vec<u32> =
            (0..rng.below(9)).map(|_| rng.below_skewed(item_count)).collect();
        if rng.below(2) == 0 {
            let user = rng.below_skewed(item_count / 3) * 3;
            read_items.extend(user..user + 3);
        }
        requests.numbers.push(number as u64);
        requests.times_us.push(number as u64);
        requests.instances.push(rng.below(INSTANCES.into()) as u16);
        requests.base_times_us.push(1000);
        let page = match rng.below(5) {
            0 => NONE,
            _ => rng.below_skewed(item_count),
        };
        requests.pages.push(page);
        requests.routes.push(NONE);
        requests.items.extend(read_items);
        requests.starts.push(requests.items.len());
    }
    RequestLog {
        items: Items {
            keys: (0..item_count).map(format_key).collect(),
            parents,
            sizes,
            ..Items::default()
        },
        requests,
        truncated_after: None,
    }
}

/// The notation of every kind of strategy, and of combinations.
fn list_notations(item_count: usize) -> Vec<String> {
    let few = item_count / 20;
    let single_terms = [
        "remote".to_owned(),
        "children".to_owned(),
        "children-always".to_owned(),
        "subtree:1".to_owned(),
        "subtree:3".to_owned(),
        "together:60".to_owned(),
        format!("lru:{few}"),
        format!("s3fifo:{few}"),
        "lru-bytes:6k".to_owned(),
        format!("fixed:{few}"),
        format!("fixed-time:{few}"),
        "fixed-bytes:6k".to_owned(),
        format!("fixed-hindsight:{few}"),
    ];
    let combined_terms = [
        format!("fixed:{few}+children"),
        format!("fixed-time:{few}+lru:{few}+children-always"),
        format!("lru:{few}+subtree:2+children"),
        format!("fixed-bytes:6k+s3fifo:{few}+children+together:50"),
        "lru-bytes:9k+subtree:1+together:40".to_owned(),
    ];
    single_terms.into_iter().chain(combined_terms).collect()
}

/// A process of the application: what it keeps, and its connection.
struct Process {
    near: Arc<ClientNearCache>,
    connected_engine: ConnectedEngine,
    _server_state: Arc<ServerState>,
}

impl Process {
    fn new(file: &StrategyFile, worker: &mut InMemoryWorker, now: Instant) -> Self {
        let options = StrategyOptions { near_ttl: None, ..StrategyOptions::new(file.clone()) };
        let key_encoder = KeyEncoder { namespace: b"", encoding: KeyEncoding::Refuse };
        let near = Arc::new(ClientNearCache::new(options, key_encoder).unwrap());
        let server_state = new_server_state(&near);
        let connected_engine = ConnectedEngine::new(worker, &server_state, now);
        Self { near, connected_engine, _server_state: server_state }
    }

    fn read(
        &mut self,
        key: Option<&str>,
        scope: &Arc<RequestScope>,
        worker: &mut InMemoryWorker,
        now: Instant,
    ) -> Option<usize> {
        let keys: Vec<_> = key.map(wire_key).into_iter().collect();
        let mut near_read = NearRead::new(self.near.clone(), &keys, Some(scope.clone()));
        while let Some(NearStep::Fetch(fetch)) = near_read.step(now) {
            let (fetched, failures) = self.connected_engine.run_fetch(worker, &fetch, FIRST_SECOND);
            near_read.finish_fetch(&fetch, fetched, failures, now);
        }
        let (values, failures) = near_read.finish();
        assert!(failures.is_empty());
        values.first().and_then(|value| Some(value.as_ref()?.bytes.len()))
    }
}

/// A server with every item of the log.
fn start_server_with(log: &RequestLog, now: Instant) -> InMemoryWorker {
    let mut worker = new_worker();
    let mut connected_engine =
        ConnectedEngine::new(&mut worker, &Arc::new(ServerState::default()), now);
    for (key, &size) in log.items.keys.iter().zip(&log.items.sizes) {
        let body = vec![b'x'; size as usize];
        connected_engine.submit(&Request::Store {
            mode: StoreMode::Set,
            item: Item { key: wire_key(key), flags: 0, body: &body },
            exptime: 0,
            noreply: false,
        });
        connected_engine.serve(&mut worker, FIRST_SECOND);
        connected_engine.read_replies(|_, _| {});
    }
    worker
}

/// Runs the client on the log; returns what it did in each request.
fn run_client(
    log: &RequestLog,
    file: &StrategyFile,
    worker: &mut InMemoryWorker,
) -> Vec<RequestStats> {
    let now = Instant::now();
    let mut processes: Vec<Process> =
        (0..INSTANCES).map(|_| Process::new(file, worker, now)).collect();
    let request_indices = 0..log.requests.len();
    let stats = request_indices.map(|request_index| {
        let process = &mut processes[usize::from(log.requests.instances[request_index])];
        let before = process.near.stats();
        let page_item = log.requests.pages[request_index];
        let page = (page_item != NONE).then(|| log.items.keys[page_item as usize].as_bytes());
        let scope = Arc::new(process.near.scope(page).unwrap());
        process.read(None, &scope, worker, now);
        for &item in log.requests.items_of(request_index) {
            let key = &log.items.keys[item as usize];
            let bytes = process.read(Some(key), &scope, worker, now);
            assert_eq!(bytes, Some(log.items.sizes[item as usize] as usize));
        }
        let after = process.near.stats();
        RequestStats {
            added_ns: 0,
            bytes: after.bytes - before.bytes,
            calls: (after.calls - before.calls) as u32,
            keys: (after.keys - before.keys) as u32,
            used_keys: (after.used_keys - before.used_keys) as u32,
        }
    });
    stats.collect()
}

#[test]
fn a_client_makes_the_calls_that_the_simulator_forecasts_with_every_strategy() {
    let mut compared_requests = 0;
    for seed in 0..2 {
        let log = random_log(seed, 240);
        let cost = CostModel::new(&[(1000.0, 1000.0)], &[(1.0, 1000.0), (11.0, 2000.0)]).unwrap();
        let prepared = PreparedLog::new(&log, |_| true);
        let mut worker = start_server_with(&log, Instant::now());
        for notation in list_notations(log.items.len()) {
            let strategy: Strategy = notation.parse().unwrap();
            let lesson =
                learn(strategy.companion_share_percent, &prepared, 0..prepared.second_half_start());
            let choices = Choices {
                fixed: &choose_fixed(strategy.fixed, &prepared, &cost),
                learned: &lesson.items,
            };
            let simulated_stats =
                run(&prepared, &cost, &strategy, choices, CostMode::Median, log.requests.len());
            // The client runs what was written into the file.
            let file = build_strategy_file(&prepared, &cost, &strategy).to_string();
            let client_stats = run_client(&log, &file.parse().unwrap(), &mut worker);
            for (request_index, (client, simulated)) in
                client_stats.iter().zip(&simulated_stats).enumerate()
            {
                let simulated = RequestStats { added_ns: 0, ..*simulated };
                assert_eq!(*client, simulated, "{notation}, request {request_index}");
            }
            compared_requests += client_stats.len();
        }
    }
    assert!(compared_requests >= 200_000, "{compared_requests} requests");
}
