//! Roll-outs of a generated site: the requests of one process through the client's near cache, with a share of them under
//! the strategy, against a server that is a map. Calls take times drawn from the latency table of the forecast.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use glasscache_client::WireKey;
use glasscache_client::key::{KeyEncoder, KeyEncoding};
use glasscache_client::near::{
    ClientNearCache, FetchedItems, NearRead, NearStep, NearValue, RequestScope, RolloutShare,
    ShareBy, StrategyOptions,
};
use glasscache_sim::strategy::StrategyFile;
use glasscache_sim::strategy::build_file::build_strategy_file;
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::trace::generate::topic_tree::{LATENCY_JSON, TopicTreeConfig, topic_tree};
use glasscache_sim::trace::log::{NONE, RequestLog};

use super::connected_engine::wire_key;

/// Requests of the log; a process makes some of its second half.
const REQUESTS: usize = 20_000;

/// Requests within which a process decides.
const REQUESTS_COMPARED: usize = 2000;

/// A log, its prices, and its values.
struct Site {
    log: RequestLog,
    cost: CostModel,
    sizes: HashMap<String, u32>,
}

impl Site {
    fn new() -> Self {
        let log = topic_tree(&TopicTreeConfig {
            items: 2000,
            requests: REQUESTS as u32,
            instances: 1,
            ..TopicTreeConfig::default()
        });
        let keys = log.items.keys.iter().cloned();
        Self {
            sizes: keys.zip(log.items.sizes.iter().copied()).collect(),
            cost: CostModel::parse(LATENCY_JSON).unwrap(),
            log,
        }
    }

    fn new_strategy_file(&self, notation: &str) -> StrategyFile {
        let prepared = PreparedLog::new(&self.log, |_| true);
        build_strategy_file(&prepared, &self.cost, &notation.parse().unwrap())
    }
}

/// One process of the application.
struct Process<'s> {
    site: &'s Site,
    near: Arc<ClientNearCache>,
    now: Instant,
    random_state: u64,
}

impl<'s> Process<'s> {
    fn new(site: &'s Site, file: &StrategyFile, share: f64, seed: u64) -> Self {
        let by = ShareBy::Request;
        let options = StrategyOptions {
            share: Some(RolloutShare { fraction: share, by }),
            near_ttl: None,
            ..StrategyOptions::new(file.clone())
        };
        let key_encoder = KeyEncoder { namespace: b"", encoding: KeyEncoding::Refuse };
        Self {
            site,
            near: Arc::new(ClientNearCache::new(options, key_encoder).unwrap()),
            now: Instant::now(),
            random_state: seed * 2 + 1,
        }
    }

    fn draw_fraction(&mut self) -> f64 {
        self.random_state ^= self.random_state << 13;
        self.random_state ^= self.random_state >> 7;
        self.random_state ^= self.random_state << 17;
        (self.random_state >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn read(&mut self, key: Option<&str>, scope: &Arc<RequestScope>) {
        let keys: Vec<WireKey<'_>> = key.map(wire_key).into_iter().collect();
        let mut near_read = NearRead::new(self.near.clone(), &keys, Some(scope.clone()));
        while let Some(NearStep::Fetch(fetch)) = near_read.step(self.now) {
            let (mut fetched_items, mut fetched_bytes) = (FetchedItems::default(), 0);
            let keys = fetch.keys();
            for (index, key) in keys.iter().enumerate() {
                let size = self.site.sizes[std::str::from_utf8(key.bytes).unwrap()];
                fetched_bytes += u64::from(size);
                let value = NearValue { flags: 0, bytes: vec![0; size as usize].into() };
                fetched_items.record_item(index, Some(value), Some(-1));
            }
            let key_count = keys.len() as u64;
            let call_ns = self.draw_latency_ns(key_count, fetched_bytes);
            self.now += Duration::from_nanos(call_ns);
            near_read.finish_fetch(&fetch, fetched_items, Vec::new(), self.now);
        }
    }

    fn draw_latency_ns(&mut self, key_count: u64, fetched_bytes: u64) -> u64 {
        let fraction = self.draw_fraction();
        let cost = &self.site.cost;
        let drawn_ns = cost.drawn_call_ns((key_count, fetched_bytes), false, fraction);
        drawn_ns.map_or_else(|| cost.call_ns(key_count, fetched_bytes), |ns| ns as u64)
    }

    /// Makes the requests of the log from `start` on; returns how many were made before the one at which the strategy
    /// disabled itself.
    fn run_until_disabled(&mut self, start: usize) -> Option<usize> {
        let log = &self.site.log;
        (0..REQUESTS_COMPARED).find(|number| {
            let request_index = start + number;
            let page_item = log.requests.pages[request_index];
            let page = (page_item != NONE).then(|| log.items.keys[page_item as usize].as_bytes());
            let scope = Arc::new(self.near.scope(page).unwrap());
            self.read(None, &scope);
            for &item in log.requests.items_of(request_index) {
                self.read(Some(&log.items.keys[item as usize]), &scope);
            }
            scope.end();
            self.near.take_warning().is_some()
        })
    }
}

/// In how many of `process_count` processes the strategy disabled itself.
fn count_disabled_processes(
    site: &Site,
    file: &StrategyFile,
    share: f64,
    process_count: usize,
) -> usize {
    let is_disabled = |&process_index: &usize| {
        // Processes start somewhere in the second half, which the forecast is for and no choice has seen.
        let latest_start = REQUESTS / 2 - REQUESTS_COMPARED;
        let start = REQUESTS / 2 + process_index * latest_start / process_count;
        let mut process = Process::new(site, file, share, process_index as u64);
        process.run_until_disabled(start).is_some()
    };
    (0..process_count).filter(is_disabled).count()
}

#[test]
fn good_strategies_are_kept_in_95_of_100_processes() {
    let site = Site::new();
    let mut disabled = Vec::new();
    for notation in
        ["fixed:100", "lru:100", "fixed-bytes:512k+s3fifo:75+children+subtree:1", "together:60"]
    {
        let file = site.new_strategy_file(notation);
        assert_eq!(file.forecast.len(), 4, "{notation}");
        let counts_by_share = [(0.1, 25), (0.5, 10)].map(|(share, process_count)| {
            count_disabled_processes(&site, &file, share, process_count)
        });
        disabled.push((notation, counts_by_share));
    }
    let sum =
        |share_index: usize| disabled.iter().map(|(_, counts)| counts[share_index]).sum::<usize>();
    eprintln!(
        "disabled, of 25 with a share of 0.1 and of 10 with half of the requests: {disabled:?}"
    );
    assert!(sum(0) <= 5, "of 25 each: {disabled:?}");
    assert!(sum(1) <= 2, "of 10 each: {disabled:?}");
}

/// Rules that fetch five items with each, which no request reads: as many calls as without them, and longer ones.
#[test]
fn bad_strategies_are_disabled_within_2000_requests_in_95_of_100_processes() {
    let mut site = Site::new();
    let mut file = site.new_strategy_file("children-always");
    file.children.clear();
    let unread_key = |parent: &String, number: usize| format!("{parent}/unread:{number}");
    for parent in &site.log.items.keys {
        let children = (0..5).map(|number| unread_key(parent, number));
        file.children.extend(children.clone().map(|child| (parent.clone(), child)));
        site.sizes.extend(children.map(|child| (child, 20_000)));
    }
    let disabled = count_disabled_processes(&site, &file, 0.1, 100);
    eprintln!("{disabled} of 100 bad ones disabled");
    assert!(disabled >= 95, "{disabled} of 100");
}
