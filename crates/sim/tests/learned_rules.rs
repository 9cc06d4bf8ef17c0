//! Rules learned from a log: found where requests read items together, none where they do not, and worth their bytes.

use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::figures::{Figures, compute_figures};
use glasscache_sim::strategy::fixed::choose_fixed;
use glasscache_sim::strategy::learn::{LearnedRules, learn};
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::run::{Choices, CostMode, run};
use glasscache_sim::strategy::{Strategy, StrategyFile};
use glasscache_sim::trace::generate::topic_tree::{LATENCY_JSON, TopicTreeConfig, topic_tree};
use glasscache_sim::trace::log::{Items, NONE, RequestLog, Requests};

/// A small generator of numbers: the tests need no good one, only a repeatable one.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    /// A rank below `bound` that falls roughly as a power law.
    fn power_law_rank(&mut self, bound: usize) -> usize {
        let fraction = self.below(1 << 20) as f64 / f64::from(1 << 20);
        ((bound as f64).powf(fraction) - 1.0) as usize
    }
}

/// A log of requests that read these keys, each item of 100 bytes.
fn log_of(requests: impl IntoIterator<Item = (Option<String>, Vec<String>)>) -> RequestLog {
    let mut items = Items::default();
    let mut requests_read = Requests {
        starts: vec![0],
        ..Requests::default()
    };
    let mut index_of_key = |key: String| {
        if let Some(index) = items.keys.iter().position(|listed_key| *listed_key == key) {
            return index as u32;
        }
        items.keys.push(key);
        items.parents.push(NONE);
        items.sizes.push(100);
        items.keys.len() as u32 - 1
    };
    for (page, keys) in requests {
        let request_number = requests_read.request.len() as u64;
        requests_read.request.push(request_number);
        requests_read.time_us.push(request_number);
        requests_read.instance.push(0);
        requests_read.base_us.push(10_000);
        requests_read
            .page
            .push(page.map_or(NONE, &mut index_of_key));
        requests_read.route.push(NONE);
        requests_read
            .items
            .extend(keys.into_iter().map(&mut index_of_key));
        requests_read.starts.push(requests_read.items.len());
    }
    RequestLog {
        items,
        requests: requests_read,
        truncated_after: None,
    }
}

fn learn_rules(log: &RequestLog, share: u8) -> LearnedRules {
    let prepared = PreparedLog::new(log, |_| true);
    learn(Some(share), &prepared, 0..prepared.second_half_start())
}

/// The figures of a strategy on the second half.
fn second_half_figures(log: &RequestLog, notation: &str) -> Figures {
    let prepared = PreparedLog::new(log, |_| true);
    let cost = CostModel::parse(LATENCY_JSON).unwrap();
    let strategy: Strategy = notation.parse().unwrap();
    let fixed = choose_fixed(strategy.fixed, &prepared, &cost);
    let learned_rules = learn(
        strategy.together,
        &prepared,
        0..prepared.second_half_start(),
    );
    let choices = Choices {
        fixed: &fixed,
        learned: &learned_rules.items,
    };
    let stats = run(
        &prepared,
        &cost,
        &strategy,
        choices,
        CostMode::Median,
        prepared.len(),
    );
    compute_figures(
        &prepared,
        &stats,
        prepared.second_half_start()..prepared.len(),
    )
}

fn rules_of(learned_rules: &LearnedRules) -> Vec<String> {
    let (items, pages) = (
        learned_rules.rules.with_items.rules(),
        learned_rules.rules.with_pages.rules(),
    );
    items.iter().chain(pages).map(ToString::to_string).collect()
}

#[test]
fn families_of_keys_are_fetched_together_for_users_never_seen() {
    // Each user comes once, so a rule about single keys could not help.
    let log = log_of((0..200).map(|user| {
        let keys = ["user", "profile", "rights"].map(|kind| format!("{kind}:{user}"));
        (None, keys.to_vec())
    }));
    let rules = rules_of(&learn_rules(&log, 80));
    assert!(
        rules.contains(&"user:{1} profile:{1} rights:{1}".to_owned()),
        "{rules:?}"
    );
    let (figures_alone, figures_together) = (
        second_half_figures(&log, "remote"),
        second_half_figures(&log, "together:80"),
    );
    assert_eq!((figures_alone.calls, figures_together.calls), (300, 100));
    assert_eq!(
        (
            figures_alone.keys,
            figures_together.keys,
            figures_together.used_keys
        ),
        (300, 300, 300)
    );
}

#[test]
fn a_companion_that_is_missing_counts_as_a_key() {
    // Every fourth user has no rights; the rule fetches them all the same.
    let log = log_of((0..400).map(|user| {
        let mut keys = vec![format!("user:{user}"), format!("profile:{user}")];
        keys.extend((user % 4 > 0).then(|| format!("rights:{user}")));
        (None, keys)
    }));
    let figures_together = second_half_figures(&log, "together:60");
    assert_eq!(
        (
            figures_together.calls,
            figures_together.keys,
            figures_together.used_keys
        ),
        (200, 600, 550)
    );
    assert_eq!(figures_together.bytes, 550 * 100);
}

#[test]
fn single_keys_are_fetched_together_and_pages_in_advance() {
    let mut rng = Rng(1);
    let groups = [["nav", "foot", "banner"], ["prices", "stock", "taxes"]];
    let log = log_of((0..400).map(|_| {
        let group = rng.below(2);
        let noise_key = format!("noise-{}", (b'a' + rng.below(26) as u8) as char);
        let mut keys = vec![noise_key];
        keys.extend(groups[group].map(String::from));
        (Some(format!("page-{}", ["x", "y"][group])), keys)
    }));
    let learned_rules = learn_rules(&log, 90);
    let pages: Vec<String> = learned_rules
        .rules
        .with_pages
        .rules()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        pages.contains(&"page-x banner foot nav".to_owned())
            || pages.contains(&"page-x nav foot banner".to_owned()),
        "{pages:?}"
    );
    let figures_together = second_half_figures(&log, "together:90");
    assert_eq!(
        figures_together.calls, 400,
        "a call for the page's three and one for the rest"
    );
}

#[test]
fn nothing_is_learned_from_random_requests() {
    for seed in 0..20 {
        let mut rng = Rng(seed);
        let log = log_of((0..1000).map(|_| {
            let keys = (0..8).map(|_| format!("item:{}", rng.power_law_rank(300)));
            let keys = keys.collect();
            (Some(format!("item:{}", rng.power_law_rank(300))), keys)
        }));
        for share in [10, 50, 80] {
            let rules = rules_of(&learn_rules(&log, share));
            assert!(rules.is_empty(), "seed {seed}, share {share}: {rules:?}");
        }
    }
}

#[test]
fn rules_replace_the_tree_when_parents_are_unknown() {
    let mut log = topic_tree(&TopicTreeConfig::default());
    let parents = log.items.parents.clone();
    log.items.parents.fill(NONE);
    let mut calls_of_rules = 0;
    for local in [
        "",
        "+s3fifo:206",
        "+fixed-bytes:1m",
        "+fixed-bytes:512k+s3fifo:200",
    ] {
        let figures_without_rules = second_half_figures(&log, &format!("remote{local}"));
        let figures_together = second_half_figures(&log, &format!("together:80{local}"));
        let calls = figures_together.calls as f64 / figures_without_rules.calls as f64;
        let bytes = figures_together.bytes as f64 / figures_without_rules.bytes as f64;
        eprintln!("remote{local}: with rules {calls:.2} of the calls, {bytes:.2} of the bytes");
        assert!(
            calls <= 0.6 && bytes <= 1.3,
            "remote{local}: {calls} {bytes}"
        );
        calls_of_rules = calls_of_rules.max(figures_together.calls);
    }
    log.items.parents = parents;
    let tree = ["children", "subtree:1", "subtree:2", "children+subtree:1"];
    let calls_of_tree = tree.map(|notation| second_half_figures(&log, notation).calls);
    eprintln!("calls: rules {calls_of_rules}, the tree's own {calls_of_tree:?}");
    assert!(calls_of_tree.iter().all(|&calls| calls_of_rules <= calls));
}

#[test]
fn a_file_gives_the_companions_that_were_replayed() {
    let mut log = topic_tree(&TopicTreeConfig {
        requests: 5000,
        items: 600,
        ..TopicTreeConfig::default()
    });
    log.items.parents.fill(NONE);
    let learned_rules = learn_rules(&log, 50);
    let file = StrategyFile {
        strategy: "together:50".parse().unwrap(),
        learned: learned_rules.rules.clone(),
        ..StrategyFile::default()
    };
    let file_read: StrategyFile = file.to_string().parse().unwrap();
    assert_eq!(file_read, file);
    let mut companion_count = 0;
    for (item, key) in log.items.keys.iter().enumerate() {
        let mut companions = Vec::new();
        file_read
            .learned
            .with_items
            .companions(key, &mut companions);
        let replayed = learned_rules.items.fetched_with_item(item as u32);
        assert_eq!(companions.len(), replayed.len());
        for (companion, &number) in companions.iter().zip(replayed) {
            assert!(
                log.items
                    .keys
                    .get(number as usize)
                    .is_none_or(|key| key == companion)
            );
        }
        companion_count += companions.len();
    }
    assert!(companion_count > 0);
}
