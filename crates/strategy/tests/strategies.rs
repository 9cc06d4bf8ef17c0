//! Strategy notation, policies compared with naive lists, and the local cache compared with a map.

use std::collections::{HashMap, VecDeque};

use glasscache_strategy::file::{
    FixedRule, Forecast, LearnedTogetherRules, LocalRule, Strategy, StrategyFile, parse_bytes,
};
use glasscache_strategy::local_cache::LocalCache;
use glasscache_strategy::near_values::{
    ClientContext, FetchedValue, NearValues, RelatedItems, Validity,
};
use glasscache_strategy::never_kept::NeverRules;
use glasscache_strategy::policy::{Lru, LruBytes, Policy, Released, S3Fifo};
use glasscache_strategy::rules::{ChildrenRule, store_fetched};
use glasscache_strategy::scope::Scope;
use glasscache_strategy::together::{TogetherRule, TogetherRules};
use proptest::prelude::*;

#[test]
fn parses_terms_in_any_order_and_formats_them_in_one() {
    let strategy: Strategy = "children+fixed:206+lru:10+subtree:2".parse().unwrap();
    assert_eq!(strategy.fixed, Some(FixedRule::Requests(206)));
    assert_eq!(strategy.local, LocalRule::Lru(10));
    assert_eq!(strategy.children, ChildrenRule::WhenMissing);
    assert_eq!(strategy.to_string(), "fixed:206+lru:10+children+subtree:2");
    assert_eq!("remote".parse::<Strategy>().unwrap().to_string(), "remote");
    assert_eq!("lru-bytes:2k".parse::<Strategy>().unwrap().local, LocalRule::LruBytes(2048));
}

#[test]
fn policies_of_the_simulator_are_read_and_no_file_has_them() {
    let read = |notation: &str| notation.parse::<Strategy>().unwrap();
    let with_settings = read("s4fifo:206:small=0.05,skip=0.25+children");
    let full = "s4fifo:206:small=0.05,main=2,ghost-main=0,ghost=0.9,skip=0.25+children";
    assert_eq!(with_settings.to_string(), full);
    assert_eq!(read(full), with_settings);
    assert_eq!(read("s4fifo:206:small=0.1").to_string(), "s4fifo:206");
    assert_eq!(read("tuned:600+subtree:1").local, LocalRule::Tuned(600));
    assert!(read("lru:206+children").check_runnable().is_ok());
    for notation in ["s4fifo:206", full, "fixed:10+tuned:600"] {
        let refusal = read(notation).check_runnable().unwrap_err().to_string();
        let sentence =
            "is for the simulator alone, no client has its policy; choose lru, lru-bytes or s3fifo";
        assert_eq!(refusal, format!("strategy `{notation}` {sentence}"));
        let file = format!("glasscache-strategy 1\nstrategy {notation}\n");
        let refusal_of_file = file.parse::<StrategyFile>().unwrap_err().to_string();
        assert!(refusal_of_file.contains("line 2") && refusal_of_file.contains(sentence));
    }
}

#[test]
fn parse_errors_name_the_problem() {
    let message = |notation: &str| notation.parse::<Strategy>().unwrap_err().to_string();
    assert!(message("lfu:3").starts_with("unknown strategy `lfu:3`"));
    assert!(message("children:3").starts_with("unknown strategy `children:3`"));
    assert_eq!(
        message("lru"),
        "strategy `lru` needs a whole number after the colon, as in `lru:206`"
    );
    for (term, example) in [
        ("fixed:x", "fixed:206"),
        ("fixed-time:", "fixed-time:206"),
        ("fixed-hindsight:-1", "fixed-hindsight:206"),
        ("fixed-bytes:x", "fixed-bytes:8M"),
        ("s3fifo", "s3fifo:206"),
        ("s4fifo:small=0.1", "s4fifo:206:small=0.05,skip=0.25"),
        ("tuned", "tuned:206"),
        ("lru-bytes:M", "lru-bytes:8M"),
        ("subtree:x", "subtree:2"),
    ] {
        assert!(message(term).ends_with(&format!("as in `{example}`")));
    }
    assert_eq!(
        message("s4fifo:9:small=2"),
        "strategy `s4fifo:9:small=2`: \"small=2\" is not a setting of S4-FIFO: expected a share from 0.0001 to 0.9999"
    );
    assert_eq!(
        message("remote+lru:10"),
        "strategy `remote+lru:10`: `remote` means that nothing is kept; write it alone or leave it out"
    );
    assert!(message("children + remote").contains("write it alone or leave it out"));
    assert!(message("remote+remote").contains("write it alone or leave it out"));
    assert_eq!(
        message("lru:1+s3fifo:2"),
        "strategy `lru:1+s3fifo:2` has two local caches; one at most"
    );
    assert_eq!(
        message("fixed:1+fixed:2"),
        "strategy `fixed:1+fixed:2` has two fixed sets; one at most"
    );
    assert_eq!(parse_bytes("64M"), Some(64 << 20));
    assert_eq!(parse_bytes("M"), None);
}

#[test]
fn strategy_file_round_trips() {
    let file = StrategyFile {
        strategy: "fixed:2+children".parse().unwrap(),
        forecast: vec![Forecast { figure: "calls".into(), value: 3.21, low: 3.1, high: 3.33 }],
        fixed_keys: vec!["c:0:0".into(), "c:3:9f".into()],
        children: vec![("c:0:0".into(), "c:1:4".into())],
        learned: LearnedTogetherRules {
            with_items: TogetherRules::new(&[
                TogetherRule::parse("user:{1} profile:{1} config").unwrap(),
                TogetherRule::parse("c:0:0 c:0:1").unwrap(),
            ]),
            with_pages: TogetherRules::new(&[TogetherRule::parse("p:{1} p:{1} q:{1}").unwrap()]),
        },
        never: NeverRules {
            prefixes: vec!["cart:".into()],
            allowed_prefixes: vec!["views:".into()],
            keys_and_patterns: ["lock", "stock:*"].map(str::to_owned).into(),
        },
    };
    assert_eq!(file.to_string().parse::<StrategyFile>().unwrap(), file);
}

#[test]
fn a_strategy_file_that_cannot_be_read_names_line_and_rule() {
    for (lines, problem) in [
        ("glasscache-strategy 2\nstrategy lru:1\n", "line 1: version `2` is unknown"),
        ("strategy lru:1\n", "line 1: must be `glasscache-strategy 1`"),
        ("glasscache-strategy 1\nstrategy lru:x\n", "line 2: `strategy` strategy `lru:x` needs"),
        ("glasscache-strategy 1\nkey a\n", "line 2: no line begins with `strategy`"),
        (
            "glasscache-strategy 1\nstrategy together:50\ntogether user:{1}\n",
            "line 3: `together` needs",
        ),
        (
            "glasscache-strategy 1\nstrategy lru:1\n\n# c\nbefore a b\n",
            "line 5: unknown rule `before`",
        ),
        ("glasscache-strategy 1\nstrategy lru:1\nchild a\n", "line 3: `child` needs two keys"),
        (
            "glasscache-strategy 1\nstrategy lru:1\nforecast calls 3 x 4\n",
            "line 3: `forecast` needs a name",
        ),
        (
            "glasscache-strategy 1\nstrategy lru:1\nforecast calls 3 4 2\n",
            "line 3: `forecast` has an interval from 4 to 2",
        ),
        (
            "glasscache-strategy 1\nstrategy lru:1\nstrategy lru:2\n",
            "line 3: `strategy` is there twice",
        ),
        (
            "glasscache-strategy 1\nstrategy subtree:9\nchild a b\nchild c b\n",
            "line 4: `child` names b under a and under c",
        ),
        (
            "glasscache-strategy 1\nstrategy subtree:9\nchild a b\nchild b c\nchild c a\n",
            "line 5: `child` makes `a` its own ancestor",
        ),
        (
            "glasscache-strategy 1\nstrategy subtree:9\nchild a a\n",
            "line 3: `child` makes `a` its own ancestor",
        ),
    ] {
        let error = lines.parse::<StrategyFile>().unwrap_err().to_string();
        assert!(error.contains(problem), "{lines:?}: {error}");
    }
}

#[test]
fn a_key_or_child_that_a_strategy_file_lists_twice_is_kept_once() {
    let lines =
        "glasscache-strategy 1\nstrategy fixed:2\nkey a\nkey b\nkey a\nchild a b\nchild a b\n";
    let file: StrategyFile = lines.parse().unwrap();
    assert_eq!(file.fixed_keys, ["a", "b"]);
    assert_eq!(file.children.len(), 1);
}

/// LRU as a list, newest at the back; capacity in bytes, `bytes` of 1 each make it a capacity in items.
struct NaiveLru {
    capacity: u64,
    items: VecDeque<(u32, u64)>,
}

impl NaiveLru {
    fn access(&mut self, slot: u32, bytes: u64) -> bool {
        let index = self.items.iter().position(|&(candidate, _)| candidate == slot);
        let entry = index.and_then(|index| self.items.remove(index));
        if entry.is_none() && bytes > self.capacity {
            return false;
        }
        self.items.push_back(entry.unwrap_or((slot, bytes)));
        while self.items.iter().map(|&(_, item_bytes)| item_bytes).sum::<u64>() > self.capacity {
            self.items.pop_front();
        }
        entry.is_some()
    }
}

/// S3-FIFO with naive lists, written from the reference document.
#[derive(Default)]
struct NaiveS3Fifo {
    capacity: usize,
    small: VecDeque<(u32, u32)>,
    main: VecDeque<(u32, u32)>,
    ghost: VecDeque<u32>,
}

impl NaiveS3Fifo {
    fn access(&mut self, slot: u32) -> bool {
        for (candidate, uses) in self.small.iter_mut().chain(&mut self.main) {
            if *candidate == slot {
                *uses = 3.min(*uses + 1);
                return true;
            }
        }
        if self.capacity == 0 {
            return false;
        }
        let ghost_index = self.ghost.iter().position(|&candidate| candidate == slot);
        if let Some(index) = ghost_index {
            self.ghost.remove(index);
        }
        if self.small.len() + self.main.len() == self.capacity {
            self.evict();
        }
        if ghost_index.is_some() {
            self.main.push_back((slot, 0));
        } else {
            self.small.push_back((slot, 0));
        }
        false
    }

    fn evict(&mut self) {
        let small_capacity = 1.max(self.capacity / 10);
        loop {
            if self.small.len() >= small_capacity || self.main.is_empty() {
                let (slot, uses) = self.small.pop_front().unwrap();
                if uses >= 2 {
                    self.main.push_back((slot, 0));
                    continue;
                }
                self.ghost.push_back(slot);
                while self.ghost.len() > self.capacity - small_capacity {
                    self.ghost.pop_front();
                }
                return;
            }
            let (slot, uses) = self.main.pop_front().unwrap();
            if uses == 0 {
                return;
            }
            self.main.push_back((slot, uses - 1));
        }
    }
}

fn access(policy: &mut impl Policy, slot: u32, bytes: u32) -> bool {
    let is_hit = policy.get(slot);
    if !is_hit {
        policy.insert(slot, bytes, &mut |_, _| {});
    }
    is_hit
}

proptest! {
    #[test]
    fn lru_equals_a_naive_list(capacity in 0usize..8, slots in prop::collection::vec(0u32..16, 0..300)) {
        let mut policy = Lru::new(capacity);
        let mut naive = NaiveLru { capacity: capacity as u64, items: VecDeque::new() };
        for slot in slots {
            prop_assert_eq!(access(&mut policy, slot, 1), naive.access(slot, 1));
        }
    }

    #[test]
    fn lru_of_bytes_equals_a_naive_list(capacity in 0u64..40, slots in prop::collection::vec(0u32..16, 0..300)) {
        let mut policy = LruBytes::new(capacity);
        let mut naive = NaiveLru { capacity, items: VecDeque::new() };
        for slot in slots {
            prop_assert_eq!(access(&mut policy, slot, slot), naive.access(slot, u64::from(slot.max(1))));
        }
    }

    #[test]
    fn s3fifo_equals_naive_lists(capacity in 0usize..25, slots in prop::collection::vec(0u32..40, 0..600)) {
        let mut policy = S3Fifo::new(capacity);
        let mut naive = NaiveS3Fifo { capacity, ..NaiveS3Fifo::default() };
        for slot in slots {
            prop_assert_eq!(access(&mut policy, slot, 1), naive.access(slot));
        }
    }

    #[test]
    fn a_local_cache_returns_only_the_latest_value(
        notation in prop::sample::select(vec!["lru:5", "s3fifo:12", "lru-bytes:30", "remote"]),
        steps in prop::collection::vec((0u8..20, 0u32..4, 0u32..12), 0..400),
    ) {
        let local = notation.parse::<Strategy>().unwrap().local;
        let mut local_cache = LocalCache::new(local.new_policy());
        let mut expected_values = HashMap::new();
        // A value is the number of bytes that it counts.
        for (key, operation, bytes) in steps {
            match operation {
                0 => { local_cache.remove(&key); expected_values.remove(&key); }
                1 => { local_cache.insert(&key, bytes, bytes); expected_values.insert(key, bytes); }
                _ => if let Some(value) = local_cache.get(&key) { prop_assert_eq!(Some(value), expected_values.get(&key)); },
            }
            prop_assert!(local_cache.len() <= 30);
        }
    }
}

#[test]
fn s3fifo_remembers_early_evictions() {
    let mut policy = S3Fifo::new(10);
    let mut released = Vec::new();
    for slot in 0..12 {
        policy.insert(slot, 1, &mut |released_slot, released_part| {
            released.push((released_slot, released_part));
        });
    }
    assert_eq!(released, [(0, Released::Value), (1, Released::Value)]);
    policy.clear();
    assert!((0..12).all(|slot| !policy.contains(slot)));
}

struct BinaryTree;

impl RelatedItems<u32> for BinaryTree {
    fn children(&self, key: &u32, fetch_list: &mut Vec<u32>) {
        if *key < 3 {
            fetch_list.extend([key * 2 + 1, key * 2 + 2]);
        }
    }

    fn sort_level(&self, level: &mut [u32]) {
        level.sort_unstable();
    }

    fn companions(&self, key: &u32, fetch_list: &mut Vec<u32>) {
        fetch_list.extend([key + 100, key + 101]);
    }

    fn page_companions(&self, page: &u32, fetch_list: &mut Vec<u32>) {
        fetch_list.extend([*page, page + 200]);
    }
}

/// Values that are even may be served.
struct EvenValuesAreFresh;

impl Validity<u32, u32> for EvenValuesAreFresh {
    fn may_keep(&self, key: &u32) -> bool {
        *key < 1000
    }

    fn is_fresh(&self, value: &u32) -> bool {
        value.is_multiple_of(2)
    }

    fn is_current(&self, _: &u32, value: &u32) -> bool {
        value.is_multiple_of(2)
    }
}

/// A process whose remote values are ten times their keys.
struct TestProcess {
    rules: glasscache_strategy::rules::PrefetchRules,
    near_values: NearValues<u32, u32>,
    scope: Scope<u32, u32>,
    fetched_values: HashMap<u32, FetchedValue<u32>>,
    fetch_list: Vec<u32>,
}

impl TestProcess {
    fn new(notation: &str, fixed_keys: &[u32]) -> Self {
        let strategy: Strategy = notation.parse().unwrap();
        let fetched_value = |key: u32| FetchedValue { value: key * 10, cached_bytes: Some(1) };
        let mut near_values =
            NearValues::new(fixed_keys.iter().copied(), strategy.local.new_policy());
        for key in fixed_keys {
            near_values.insert(key, key * 10, 1);
        }
        Self {
            rules: strategy.prefetch_rules(),
            near_values,
            scope: Scope::default(),
            fetched_values: (0..400).map(|key| (key, fetched_value(key))).collect(),
            fetch_list: Vec::new(),
        }
    }

    fn context_and_fetch_list(
        &mut self,
    ) -> (ClientContext<'_, u32, u32, BinaryTree, EvenValuesAreFresh>, &mut Vec<u32>) {
        let context = ClientContext {
            near_values: &mut self.near_values,
            scope: &mut self.scope,
            fetched_values: &self.fetched_values,
            related_items: &BinaryTree,
            validity: &EvenValuesAreFresh,
        };
        (context, &mut self.fetch_list)
    }

    /// Begins a request and returns what it fetches.
    fn begin_request(&mut self, page: u32) -> Vec<u32> {
        let rules = self.rules;
        let (mut context, fetch_list) = self.context_and_fetch_list();
        rules.begin_request(&context, &page, fetch_list);
        store_fetched(&mut context, fetch_list);
        fetch_list.clone()
    }

    /// Looks an item up and returns what is fetched for it.
    fn look_up(&mut self, key: u32) -> Vec<u32> {
        let rules = self.rules;
        let (mut context, fetch_list) = self.context_and_fetch_list();
        rules.look_up(&mut context, &key, fetch_list);
        store_fetched(&mut context, fetch_list);
        fetch_list.clone()
    }
}

#[test]
fn a_request_fetches_companions_with_what_is_missing() {
    let mut process = TestProcess::new("children+together:50", &[101]);
    assert_eq!(process.begin_request(7), [7, 207]);
    assert_eq!(process.look_up(0), [0, 1, 2, 100]);
    assert!(process.look_up(7).is_empty());
}

#[test]
fn a_request_fetches_children_once_and_holds_them() {
    let mut process = TestProcess::new("lru:1+children", &[]);
    assert_eq!(process.look_up(0), [0, 1, 2]);
    assert!(process.look_up(2).is_empty());
    assert_eq!(process.scope.get(&2), Some(&20));
}

#[test]
fn a_value_that_may_not_be_served_is_fetched() {
    let mut process = TestProcess::new("lru:10", &[5]);
    assert!(process.look_up(5).is_empty(), "the fixed set is loaded");
    process.near_values.insert(&5, 51, 1);
    process.near_values.insert(&6, 61, 1);
    process.scope = Scope::default();
    assert_eq!(process.look_up(5), [5]);
    assert_eq!(process.look_up(6), [6]);
    assert_eq!(
        process.near_values.local_cache().len(),
        1,
        "a fixed item is not in the local cache"
    );
    process.near_values.remove(&5);
    process.near_values.clear();
    assert!(
        process.near_values.local_cache().is_empty() && process.near_values.fixed()[&5].is_none()
    );
    assert_eq!(process.near_values.get(&6, |_| true), None);
}
