//! One strategy and one log: the client's calls, keys, bytes and used keys of each request are those of the simulator.

use std::sync::Arc;
use std::time::Instant;

use glasscache_client::StoreMode;
use glasscache_client::engine::server::ServerState;
use glasscache_client::key::{KeyEncoder, KeyEncoding};
use glasscache_client::near::{
    ByteAccounting, ClientNearCache, NearRead, NearStep, RequestScope, StrategyOptions,
};
use glasscache_client::request::{Item, Request};
use glasscache_server::InMemoryWorker;
use glasscache_sim::strategy::build_file::strategy_file;
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::fixed::choose_fixed;
use glasscache_sim::strategy::learn::learn;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::run::{Choices, CostMode, RequestStats, run};
use glasscache_sim::strategy::{Strategy, StrategyFile};
use glasscache_sim::trace::log::{Items, NONE, RequestLog, Requests};

use super::connected_engine::{ConnectedEngine, FIRST_SECOND, plain, server, state};

/// Requests of each log; with every strategy more than 200,000.
const REQUESTS: usize = 7000;

/// Application processes.
const INSTANCES: u16 = 3;

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    /// Low numbers are more frequent than high ones.
    fn skewed(&mut self, n: usize) -> u32 {
        let limit = 1 + self.below(n);
        self.below(limit) as u32
    }
}

/// A log of a tree of items; half of the requests read a user with what belongs to it.
fn random_log(seed: u64, items: usize) -> RequestLog {
    let mut rng = Rng(seed * 2 + 1);
    let parents = (0..items).map(|item| match rng.below(10) {
        0 => NONE,
        _ if item == 0 => NONE,
        _ => rng.below(item) as u32,
    });
    let parents = parents.collect();
    let kinds = ["user", "profile", "rights"];
    let key = |item: usize| format!("{}:{}", kinds[item % 3], item / 3);
    let sizes = (0..items).map(|_| rng.below(900) as u32).collect();
    let mut requests = Requests {
        starts: vec![0],
        ..Requests::default()
    };
    for number in 0..REQUESTS {
        let mut read_items: Vec<u32> = (0..rng.below(9)).map(|_| rng.skewed(items)).collect();
        if rng.below(2) == 0 {
            let user = rng.skewed(items / 3) * 3;
            read_items.extend(user..user + 3);
        }
        requests.request.push(number as u64);
        requests.time_us.push(number as u64);
        requests.instance.push(rng.below(INSTANCES.into()) as u16);
        requests.base_us.push(1000);
        let page = match rng.below(5) {
            0 => NONE,
            _ => rng.skewed(items),
        };
        requests.page.push(page);
        requests.route.push(NONE);
        requests.items.extend(read_items);
        requests.starts.push(requests.items.len());
    }
    RequestLog {
        items: Items {
            keys: (0..items).map(key).collect(),
            parents,
            sizes,
        },
        requests,
        truncated_after: None,
    }
}

/// Every kind of strategy, and combinations.
fn strategies(items: usize) -> Vec<String> {
    let few = items / 20;
    let alone = [
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
    let together = [
        format!("fixed:{few}+children"),
        format!("fixed-time:{few}+lru:{few}+children-always"),
        format!("lru:{few}+subtree:2+children"),
        format!("fixed-bytes:6k+s3fifo:{few}+children+together:50"),
        "lru-bytes:9k+subtree:1+together:40".to_owned(),
    ];
    alone.into_iter().chain(together).collect()
}

/// A process of the application: what it keeps, and its connection.
struct Process {
    near: Arc<ClientNearCache>,
    connected_engine: ConnectedEngine,
    _state: Arc<ServerState>,
}

impl Process {
    fn new(file: &StrategyFile, worker: &mut InMemoryWorker, now: Instant) -> Self {
        let options = StrategyOptions {
            near_ttl: None,
            byte_accounting: ByteAccounting::Value,
            ..StrategyOptions::new(file.clone())
        };
        let keys = KeyEncoder {
            namespace: b"",
            encoding: KeyEncoding::Refuse,
        };
        let near = Arc::new(ClientNearCache::new(options, keys).unwrap());
        let state = state(&near);
        let connected_engine = ConnectedEngine::new(worker, &state, now);
        Self {
            near,
            connected_engine,
            _state: state,
        }
    }

    fn read(
        &mut self,
        key: Option<&str>,
        scope: &Arc<RequestScope>,
        worker: &mut InMemoryWorker,
        now: Instant,
    ) -> Option<usize> {
        let keys: Vec<_> = key.map(plain).into_iter().collect();
        let mut read = NearRead::new(self.near.clone(), &keys, Some(scope.clone()));
        while let Some(NearStep::Fetch(fetch)) = read.step(now) {
            let (fetched, failures) = self.connected_engine.fetch(worker, &fetch, FIRST_SECOND);
            read.finish_fetch(&fetch, fetched, failures, now);
        }
        let (values, failures) = read.finish();
        assert!(failures.is_empty());
        values
            .first()
            .and_then(|value| Some(value.as_ref()?.bytes.len()))
    }
}

/// A server with every item of the log.
fn server_of(log: &RequestLog, now: Instant) -> InMemoryWorker {
    let mut worker = server();
    let mut connected_engine =
        ConnectedEngine::new(&mut worker, &Arc::new(ServerState::default()), now);
    for (key, &size) in log.items.keys.iter().zip(&log.items.sizes) {
        let body = vec![b'x'; size as usize];
        connected_engine.submit(&Request::Store {
            mode: StoreMode::Set,
            item: Item {
                key: plain(key),
                flags: 0,
                body: &body,
            },
            exptime: 0,
            noreply: false,
        });
        connected_engine.serve(&mut worker, FIRST_SECOND);
        connected_engine.replies(|_, _| {});
    }
    worker
}

/// What the client did in each request.
fn client_stats(
    log: &RequestLog,
    file: &StrategyFile,
    worker: &mut InMemoryWorker,
) -> Vec<RequestStats> {
    let now = Instant::now();
    let mut processes: Vec<Process> = (0..INSTANCES)
        .map(|_| Process::new(file, worker, now))
        .collect();
    let requests = 0..log.requests.len();
    let each = requests.map(|index| {
        let process = &mut processes[usize::from(log.requests.instance[index])];
        let before = process.near.stats();
        let page = log.requests.page[index];
        let page = (page != NONE).then(|| log.items.keys[page as usize].as_bytes());
        let scope = Arc::new(process.near.scope(page).unwrap());
        process.read(None, &scope, worker, now);
        for &item in log.requests.items_of(index) {
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
    each.collect()
}

#[test]
fn a_client_makes_the_calls_that_the_simulator_forecasts_with_every_strategy() {
    let mut compared = 0;
    for seed in 0..2 {
        let log = random_log(seed, 240);
        let cost = CostModel::new(&[(1000.0, 1000.0)], &[(1.0, 1000.0), (11.0, 2000.0)]).unwrap();
        let prepared = PreparedLog::new(&log, |_| true);
        let mut worker = server_of(&log, Instant::now());
        for notation in strategies(log.items.len()) {
            let strategy: Strategy = notation.parse().unwrap();
            let lesson = learn(
                strategy.together,
                &prepared,
                0..prepared.second_half_start(),
            );
            let choices = Choices {
                fixed: &choose_fixed(strategy.fixed, &prepared, &cost),
                learned: &lesson.items,
            };
            let simulated = run(
                &prepared,
                &cost,
                &strategy,
                choices,
                CostMode::Median,
                log.requests.len(),
            );
            // The client runs what was written into the file.
            let file = strategy_file(&prepared, &cost, &strategy).to_string();
            let client = client_stats(&log, &file.parse().unwrap(), &mut worker);
            for (request, (client, simulated)) in client.iter().zip(&simulated).enumerate() {
                let simulated = RequestStats {
                    added_ns: 0,
                    ..*simulated
                };
                assert_eq!(*client, simulated, "{notation}, request {request}");
            }
            compared += client.len();
        }
    }
    assert!(compared >= 200_000, "{compared} requests");
}
