//! Rules learned from a log: found where requests read items together, none where they do not, and worth their bytes.

use glasscache_sim::strategy::build_file::build_strategy_file;
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::figures::{Figures, compute_figures};
use glasscache_sim::strategy::fixed::choose_fixed;
use glasscache_sim::strategy::learn::{LearnedRules, learn};
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::run::{Choices, CostMode, run};
use glasscache_sim::strategy::{Strategy, StrategyFile};
use glasscache_sim::trace::InMemoryFile;
use glasscache_sim::trace::generate::topic_tree::{LATENCY_JSON, TopicTreeConfig, topic_tree};
use glasscache_sim::trace::log::{Items, NONE, RequestLog, Requests};

/// A linear congruential generator: repeatable, which is all that the tests need.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    /// A rank below `bound` that falls roughly as a power law.
    fn power_law_rank(&mut self, bound: usize) -> usize {
        let fraction = self.below(1 << 20) as f64 / f64::from(1 << 20);
        ((bound as f64).powf(fraction) - 1.0) as usize
    }
}

/// A log of requests that read these keys, each item of 100 bytes.
fn log_of_reads(requests: impl IntoIterator<Item = (Option<String>, Vec<String>)>) -> RequestLog {
    let mut items = Items::default();
    let mut log_requests = Requests { starts: vec![0], ..Requests::default() };
    let mut item_of_key = |key: String| {
        if let Some(index) = items.keys.iter().position(|listed_key| *listed_key == key) {
            return index as u32;
        }
        items.keys.push(key);
        items.parents.push(NONE);
        items.sizes.push(100);
        items.keys.len() as u32 - 1
    };
    for (page, keys) in requests {
        let request_number = log_requests.numbers.len() as u64;
        log_requests.numbers.push(request_number);
        log_requests.times_us.push(request_number);
        log_requests.instances.push(0);
        log_requests.base_times_us.push(10_000);
        log_requests.pages.push(page.map_or(NONE, &mut item_of_key));
        log_requests.routes.push(NONE);
        log_requests.items.extend(keys.into_iter().map(&mut item_of_key));
        log_requests.starts.push(log_requests.items.len());
    }
    RequestLog { items, requests: log_requests, truncated_after: None }
}

fn learn_rules(log: &RequestLog, share_percent: u8) -> LearnedRules {
    let prepared = PreparedLog::new(log, |_| true);
    learn(Some(share_percent), &prepared, 0..prepared.second_half_start())
}

/// The figures of a strategy on the second half, with the rules that it learns from the first.
fn figures_of_second_half(log: &RequestLog, notation: &str) -> Figures {
    let prepared = PreparedLog::new(log, |_| true);
    let strategy: Strategy = notation.parse().unwrap();
    let learned_rules =
        learn(strategy.companion_share_percent, &prepared, 0..prepared.second_half_start());
    figures_with_rules(&prepared, &learned_rules, notation)
}

/// The figures of a strategy on the second half, with these rules.
fn figures_with_rules(
    prepared: &PreparedLog,
    learned_rules: &LearnedRules,
    notation: &str,
) -> Figures {
    let cost = CostModel::parse(LATENCY_JSON).unwrap();
    let strategy: Strategy = notation.parse().unwrap();
    let fixed = choose_fixed(strategy.fixed, prepared, &cost);
    let choices = Choices { fixed: &fixed, learned: &learned_rules.items };
    let request_stats = run(prepared, &cost, &strategy, choices, CostMode::Median, prepared.len());
    compute_figures(prepared, &request_stats, prepared.second_half_start()..prepared.len())
}

fn rule_texts(learned_rules: &LearnedRules) -> Vec<String> {
    let (item_rules, page_rules) =
        (learned_rules.rules.with_items.rules(), learned_rules.rules.with_pages.rules());
    item_rules.iter().chain(&page_rules).map(ToString::to_string).collect()
}

#[test]
fn key_families_are_fetched_together_for_ids_that_were_not_in_the_first_half() {
    // Each user comes once, so a rule about single keys could not help.
    let log = log_of_reads((0..200).map(|user| {
        let keys = ["user", "profile", "rights"].map(|kind| format!("{kind}:{user}"));
        (None, keys.to_vec())
    }));
    let rules = rule_texts(&learn_rules(&log, 80));
    assert!(rules.contains(&"user:{1} profile:{1} rights:{1}".to_owned()), "{rules:?}");
    let (without_rules, with_rules) =
        (figures_of_second_half(&log, "remote"), figures_of_second_half(&log, "together:80"));
    assert_eq!((without_rules.calls, with_rules.calls), (300, 100));
    assert_eq!((without_rules.keys, with_rules.keys, with_rules.used_keys), (300, 300, 300));
}

#[test]
fn a_companion_that_is_missing_counts_as_a_key() {
    // Every fourth user has no rights; the rule fetches them all the same.
    let log = log_of_reads((0..400).map(|user| {
        let mut keys = vec![format!("user:{user}"), format!("profile:{user}")];
        keys.extend((user % 4 > 0).then(|| format!("rights:{user}")));
        (None, keys)
    }));
    let with_rules = figures_of_second_half(&log, "together:60");
    assert_eq!((with_rules.calls, with_rules.keys, with_rules.used_keys), (200, 600, 550));
    assert_eq!(with_rules.bytes, 550 * 100);
}

#[test]
fn keys_of_a_group_are_fetched_with_its_page() {
    let mut rng = Rng(1);
    let groups = [["nav", "foot", "banner"], ["prices", "stock", "taxes"]];
    let log = log_of_reads((0..400).map(|_| {
        let group_index = rng.below(2);
        let noise_key = format!("noise-{}", (b'a' + rng.below(26) as u8) as char);
        let mut keys = vec![noise_key];
        keys.extend(groups[group_index].map(String::from));
        (Some(format!("page-{}", ["x", "y"][group_index])), keys)
    }));
    let learned_rules = learn_rules(&log, 90);
    let page_rules: Vec<String> =
        learned_rules.rules.with_pages.rules().iter().map(ToString::to_string).collect();
    assert!(
        page_rules.contains(&"page-x banner foot nav".to_owned())
            || page_rules.contains(&"page-x nav foot banner".to_owned()),
        "{page_rules:?}"
    );
    let with_rules = figures_of_second_half(&log, "together:90");
    assert_eq!(with_rules.calls, 400, "a call for the page's three and one for the rest");
}

#[test]
fn nothing_is_learned_from_random_requests() {
    for seed in 0..20 {
        let mut rng = Rng(seed);
        let log = log_of_reads((0..1000).map(|_| {
            let keys = (0..8).map(|_| format!("item:{}", rng.power_law_rank(300))).collect();
            (Some(format!("item:{}", rng.power_law_rank(300))), keys)
        }));
        for share_percent in [10, 50, 80] {
            let rules = rule_texts(&learn_rules(&log, share_percent));
            assert!(rules.is_empty(), "seed {seed}, share {share_percent}: {rules:?}");
        }
    }
}

#[test]
fn learned_rules_need_no_more_calls_than_the_rules_of_the_tree() {
    let mut log = topic_tree(&TopicTreeConfig::default());
    let parents = log.items.parents.clone();
    log.items.parents.fill(NONE);
    let prepared = PreparedLog::new(&log, |_| true);
    let learn_with = |percent| learn(percent, &prepared, 0..prepared.second_half_start());
    let (no_rules, rules) = (learn_with(None), learn_with(Some(80)));
    let mut most_calls_with_rules = 0;
    for (without_rules_notation, with_rules_notation) in [
        ("remote", "together:80"),
        ("s3fifo:206", "together:80+s3fifo:206"),
        ("fixed-bytes:1m", "together:80+fixed-bytes:1m"),
        ("fixed-bytes:512k+s3fifo:200", "together:80+fixed-bytes:512k+s3fifo:200"),
    ] {
        let without_rules = figures_with_rules(&prepared, &no_rules, without_rules_notation);
        let with_rules = figures_with_rules(&prepared, &rules, with_rules_notation);
        let calls_ratio = with_rules.calls as f64 / without_rules.calls as f64;
        let bytes_ratio = with_rules.bytes as f64 / without_rules.bytes as f64;
        eprintln!(
            "{without_rules_notation}: with rules {calls_ratio:.2} of the calls, {bytes_ratio:.2} of the bytes"
        );
        assert!(
            calls_ratio <= 0.6 && bytes_ratio <= 1.3,
            "{without_rules_notation}: {calls_ratio} {bytes_ratio}"
        );
        most_calls_with_rules = most_calls_with_rules.max(with_rules.calls);
    }
    log.items.parents = parents;
    let prepared = PreparedLog::new(&log, |_| true);
    let tree_notations = ["children", "subtree:1", "subtree:2", "children+subtree:1"];
    let calls_of_tree_rules =
        tree_notations.map(|notation| figures_with_rules(&prepared, &no_rules, notation).calls);
    eprintln!("calls: rules {most_calls_with_rules}, the tree's own {calls_of_tree_rules:?}");
    assert!(calls_of_tree_rules.iter().all(|&calls| most_calls_with_rules <= calls));
}

#[test]
fn a_strategy_file_keeps_the_companions_that_were_replayed() {
    let mut log =
        topic_tree(&TopicTreeConfig { requests: 5000, items: 600, ..TopicTreeConfig::default() });
    log.items.parents.fill(NONE);
    let learned_rules = learn_rules(&log, 50);
    let file = StrategyFile {
        strategy: "together:50".parse().unwrap(),
        learned: learned_rules.rules.clone(),
        ..StrategyFile::default()
    };
    let parsed_file: StrategyFile = file.to_string().parse().unwrap();
    assert_eq!(parsed_file, file);
    let mut companion_count = 0;
    for (item, key) in log.items.keys.iter().enumerate() {
        let mut companions = Vec::new();
        parsed_file.learned.with_items.companions(key, &mut companions);
        let replayed_companions = learned_rules.items.fetched_with_item(item as u32);
        assert_eq!(companions.len(), replayed_companions.len());
        for (companion, &companion_item) in companions.iter().zip(replayed_companions) {
            assert!(log.items.keys.get(companion_item as usize).is_none_or(|key| key == companion));
        }
        companion_count += companions.len();
    }
    assert!(companion_count > 0);
}

#[test]
fn a_strategy_keeps_no_session_and_names_none() {
    let session_key = |number: usize| format!(":1:django.contrib.sessions.cache{number:032}");
    let mut log = log_of_reads((0..400).map(|number| {
        let (visitor, page) = (number % 3, number % 5);
        let keys = [session_key(visitor), format!("page:{page}"), format!("title:{page}")];
        (Some(session_key(visitor)), keys.into())
    }));
    // Sessions as parents and as children, in a log that names them in clear.
    (0..log.items.len())
        .for_each(|item| log.items.parents[item] = if item == 0 { NONE } else { 0 });
    let prepared = PreparedLog::new(&log, |_| true);
    let cost = CostModel::parse(LATENCY_JSON).unwrap();
    for notation in [
        "fixed:99",
        "fixed-time:99",
        "fixed-bytes:1m",
        "fixed-hindsight:99+children",
        "lru:99+together:50+subtree:3",
    ] {
        let strategy: Strategy = notation.parse().unwrap();
        let file = build_strategy_file(&prepared, &cost, &strategy).to_string();
        assert!(!file.contains("sess"), "{notation}: {file}");
        let fixed = choose_fixed(strategy.fixed, &prepared, &cost);
        let learned = learn(strategy.companion_share_percent, &prepared, 0..200);
        let choices = Choices { fixed: &fixed, learned: &learned.items };
        let request_stats = run(&prepared, &cost, &strategy, choices, CostMode::Median, 400);
        // Each request fetches its session, alone.
        assert!(
            request_stats.iter().all(|stats| stats.calls >= 1 && stats.keys >= 1),
            "{notation}"
        );
        assert!(request_stats[399].keys == 1, "{notation}: {:?}", request_stats[399]);
    }
}

#[test]
fn a_log_that_names_sessions_is_read_with_their_hashes() {
    let log =
        log_of_reads((0..3).map(|number| (None, vec![format!("session:{number}"), "page".into()])));
    let (mut items, mut requests) = (Vec::new(), Vec::new());
    log.write_jsonl(&mut items, &mut requests).unwrap();
    let read_log = RequestLog::read(
        ("items.jsonl", InMemoryFile::new(items)),
        ("requests.jsonl", InMemoryFile::new(requests)),
    )
    .unwrap();
    assert_eq!(read_log.requests, log.requests);
    assert_eq!(read_log.items.keys[1], "page");
    assert!(read_log.items.keys[0].starts_with("session:#"), "{:?}", read_log.items.keys);
    let mut again = Vec::new();
    read_log.write_jsonl(&mut again, &mut Vec::new()).unwrap();
    assert!(!String::from_utf8(again).unwrap().contains("session:0"));
}
