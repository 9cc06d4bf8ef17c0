//! The policy that tunes itself in the real store, with passed-in time: what it does with loads for which other settings
//! are better, and with input from which nothing follows.

use std::sync::Arc;
use std::time::Duration;

use glasscache_store::tuning::{Goal, PolicySettings, WaitReason};
use glasscache_store::{
    Config, Expiry, LiveInput, LiveModel, LiveReport, PolicyReport, Seconds, SetOptions, Store,
    Worker,
};

/// The second at which a replay starts.
const START_S: u32 = 2;

/// Requests between two passes of the worker and steps of the model.
const REQUESTS_PER_PASS: u64 = 64;

/// A store with its model, and a clock that is driven by requests.
struct Replay {
    store: Arc<Store>,
    worker: Worker,
    model: LiveModel,
    input: LiveInput,
    requests_per_s: u64,
    requests: u64,
    value: Vec<u8>,
    /// How long a client takes to fill a miss of a key, if it is measured.
    fill_time_of: Option<fn(u64) -> Duration>,
    ttl_s: Option<u32>,
    report: LiveReport,
    /// The largest memory that the sampling had.
    sampling_bytes_max: u64,
}

impl Replay {
    fn new(memory_bytes: u64, value_bytes: usize, requests_per_s: u64, goal: Option<Goal>) -> Self {
        let config = Config {
            memory_bytes,
            item_bytes_max: 1 << 20,
            workers: 1,
            samples: true,
            hash_seed: 1,
            ..Config::default()
        };
        let store = Store::new(config).unwrap();
        let mut worker = store.worker();
        worker.go_online();
        let input = LiveInput { now: Seconds(START_S), ..LiveInput::default() };
        Replay {
            model: LiveModel::new(&store, b':', goal, input),
            worker,
            input,
            requests_per_s,
            requests: 0,
            value: vec![b'v'; value_bytes],
            fill_time_of: None,
            ttl_s: None,
            report: LiveReport::default(),
            sampling_bytes_max: 0,
            store,
        }
    }

    fn policy(&self) -> &PolicyReport {
        &self.report.policy
    }

    /// Lets the time follow the requests.
    fn tick(&mut self) {
        let elapsed_ms = self.requests * 1000 / self.requests_per_s;
        self.input.elapsed_ms = elapsed_ms;
        self.input.now = Seconds(START_S + (elapsed_ms / 1000) as u32);
        self.step();
        self.requests += 1;
    }

    fn step(&mut self) {
        if self.requests.is_multiple_of(REQUESTS_PER_PASS) {
            self.worker.pass();
            self.worker.maintain(self.input.now);
            if let Some(report) = self.model.step(self.input).1 {
                self.sampling_bytes_max = self.sampling_bytes_max.max(report.costs.memory_bytes);
                self.report = report;
            }
        }
    }

    fn set(&mut self, key: u64) {
        self.tick();
        self.store_value(key);
    }

    fn store_value(&mut self, key: u64) {
        let (key, now) = (key.to_be_bytes(), self.input.now);
        let expiry = self.ttl_s.map_or(Expiry::Never, |ttl_s| Expiry::At(Seconds(now.0 + ttl_s)));
        let options = SetOptions { expiry, ..SetOptions::default() };
        self.worker.set(&key, self.store.hash(&key), &self.value, &options, now);
    }

    /// A get, and a set if it misses.
    fn get(&mut self, key: u64) {
        self.tick();
        let key_bytes = key.to_be_bytes();
        self.input.gets += 1;
        let hash = self.store.hash(&key_bytes);
        if self.worker.get(&key_bytes, hash, self.input.now).is_none() {
            self.input.misses += 1;
            self.store_value(key);
            if let Some(fill_time_of) = self.fill_time_of {
                self.worker.note_fill(hash, fill_time_of(key), self.input.now);
            }
        }
    }

    /// The misses of these requests, per request.
    fn miss_ratio_of(&mut self, keys: impl Iterator<Item = u64>) -> f64 {
        let before = self.input;
        keys.for_each(|key| self.get(key));
        (self.input.misses - before.misses) as f64 / (self.input.gets - before.gets) as f64
    }
}

const MEMORY_BYTES: u64 = 64 << 20;
const VALUE_BYTES: usize = 114_000;
/// About as many of these items fit: every key of them can be sampled in 0.7 % of the memory.
const ITEMS: u64 = 560;
/// A window has 2,300 requests and lasts a minute.
const REQUESTS_PER_S: u64 = 60;

fn small_store(goal: Option<Goal>) -> Replay {
    Replay::new(MEMORY_BYTES, VALUE_BYTES, REQUESTS_PER_S, goal)
}

/// Every key in turn.
fn loops(length: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |index| index % length)
}

/// Each key twice, ten requests apart, and never again.
fn pairs(first_key: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |index| first_key + index / 20 * 10 + index % 10)
}

#[test]
fn loops_over_more_than_the_memory_are_followed_as_was_forecast_and_pairs_again() {
    let (mut tuned, mut fixed) = (small_store(Some(Goal::Objects)), small_store(None));
    let length = ITEMS * 5 / 4;
    let [in_loops, in_loops_fixed] = [&mut tuned, &mut fixed].map(|replay| {
        replay.miss_ratio_of(pairs(1 << 40, 8_000));
        replay.miss_ratio_of(loops(length, 40_000))
    });
    let policy = tuned.policy().clone();
    assert!(policy.is_tuned() && policy.switches > 0 && policy.undos == 0, "{policy:?}");
    assert!(in_loops < 0.9 * in_loops_fixed, "{in_loops} {in_loops_fixed} {policy:?}");
    let first = policy.last_switches.last().unwrap();
    assert_eq!(first.from, PolicySettings::DEFAULT);
    assert_eq!(first.record.is_forecast_met(), Some(true), "{policy:?}");
    assert_eq!(tuned.store.policy_settings(), Some(policy.settings));
    // The two bounds of the memory: 0.7 % of it.
    assert!(tuned.sampling_bytes_max <= MEMORY_BYTES * 7 / 1000, "{}", tuned.sampling_bytes_max);
    let [in_pairs, in_pairs_fixed] =
        [&mut tuned, &mut fixed].map(|replay| replay.miss_ratio_of(pairs(1 << 50, 8_000)));
    assert!(in_pairs <= in_pairs_fixed + 0.02, "{in_pairs} {in_pairs_fixed}");
    let expected = (false, None, PolicySettings::DEFAULT, 0);
    let policy = fixed.policy();
    assert_eq!((policy.is_tuned(), policy.wait_reason, policy.settings, policy.switches), expected);
}

/// A tuned replay in which nothing may be changed.
fn check_unchanged(name: &str, run: impl FnOnce(&mut Replay)) -> PolicyReport {
    let mut replay = small_store(Some(Goal::Objects));
    run(&mut replay);
    assert_eq!(replay.policy().switches, 0, "{name}: {:?}", replay.policy());
    assert_eq!(replay.store.policy_settings(), Some(PolicySettings::DEFAULT), "{name}");
    assert!(replay.sampling_bytes_max <= MEMORY_BYTES * 7 / 1000, "{name}");
    replay.report.policy
}

#[test]
fn loads_from_which_nothing_follows_change_nothing() {
    let one_key = check_unchanged("one key", |replay| {
        replay.miss_ratio_of(std::iter::repeat_n(7, 20_000));
    });
    assert_eq!(one_key.windows, 0);
    let misses = check_unchanged("only misses", |replay| {
        replay.miss_ratio_of(0..16_000);
    });
    assert!(misses.windows > 2 && misses.wait_reason == Some(WaitReason::NothingBetter));
    let sets =
        check_unchanged("only sets", |replay| (0..10_000).for_each(|key| replay.set(key % 2000)));
    assert_eq!(sets.windows, 0);
    check_unchanged("all expire", |replay| {
        replay.ttl_s = Some(1);
        replay.miss_ratio_of(loops(ITEMS * 5 / 4, 16_000));
    });
}

#[test]
fn a_memory_limit_that_changes_every_second_keeps_the_settings() {
    let policy = check_unchanged("-m changes", |replay| {
        for second in 0..250 {
            replay.store.set_memory(MEMORY_BYTES - (second % 2) * (8 << 20)).unwrap();
            replay.miss_ratio_of(loops(ITEMS * 5 / 4, REQUESTS_PER_S));
        }
    });
    assert_eq!((policy.windows, policy.wait_reason), (0, Some(WaitReason::Disturbed)));
}

#[test]
fn a_clock_that_jumps_ends_no_window_and_a_flush_begins_anew() {
    let policy = check_unchanged("the clock jumps", |replay| {
        replay.miss_ratio_of(pairs(1 << 40, 8_000));
        let windows = replay.policy().windows;
        for jump_s in [3_600, 1, 1_000_000] {
            replay.input.now.0 += jump_s;
            replay.step();
            assert!(replay.policy().windows <= windows + 1);
        }
        replay.miss_ratio_of(pairs(1 << 41, 4_000));
        replay.store.flush(replay.input.now, replay.input.now);
        replay.miss_ratio_of(pairs(1 << 42, 300));
    });
    assert_eq!(policy.wait_reason, Some(WaitReason::Disturbed));
}

/// Two of three requests from a loop over more than fits, which a small queue of most of the memory would evict, and the
/// third from pairs of uses of a key, from 2^40 on, that are so far apart that they need such a queue.
fn loop_and_pairs(items: u64, count: u64) -> impl Iterator<Item = u64> {
    let (length, apart) = (items * 11 / 10, items * 4 / 10);
    let pair = move |index: u64| (1 << 40) + index / (2 * apart) * apart + index % apart;
    (0..count).map(move |index| match index % 3 {
        0 => pair(index / 3),
        _ => (index - index / 3 - 1) % length,
    })
}

fn is_of_loop(key: u64) -> bool {
    key < 1 << 40
}

fn fill_time(key: u64, ms_of_loop: u64, ms_of_pair: u64) -> Duration {
    Duration::from_millis(if is_of_loop(key) { ms_of_loop } else { ms_of_pair })
}

/// The misses of the loop and of the pairs, of that load.
fn misses_of_loop_and_pairs(
    goal: Option<Goal>,
    items: u64,
    prepare: impl FnOnce(&mut Replay),
) -> (PolicyReport, [u64; 2]) {
    let mut replay = small_store(goal);
    prepare(&mut replay);
    let mut misses = [0; 2];
    for key in loop_and_pairs(items, 70_000) {
        let before = replay.input.misses;
        replay.get(key);
        misses[usize::from(!is_of_loop(key))] += replay.input.misses - before;
    }
    (replay.policy().clone(), misses)
}

#[test]
fn the_goal_of_time_decides_as_that_of_objects_until_a_fill_is_measured() {
    let time = |fill_time_of: Option<fn(u64) -> Duration>| {
        misses_of_loop_and_pairs(Some(Goal::Time), ITEMS, |replay| {
            replay.fill_time_of = fill_time_of;
        })
    };
    let (unmeasured, misses_unmeasured) = time(None);
    let (objects, misses_of_objects) = misses_of_loop_and_pairs(Some(Goal::Objects), ITEMS, |_| {});
    assert_eq!((unmeasured.goal, unmeasured.mean_fill_us), (Some(Goal::Time), None));
    assert_eq!(
        (misses_unmeasured, unmeasured.switches),
        (misses_of_objects, objects.switches),
        "without a fill all misses count alike"
    );
    let (policy, _) = time(Some(|key| fill_time(key, 1, 100)));
    assert!(policy.mean_fill_us.is_some_and(|mean_us| mean_us > 1000), "{policy:?}");
}
