//! Reads under a strategy against a server that is a map, with a clock that the test sets.

mod in_flight;
mod rollout;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use glasscache_protocol::meta::request::WireKey;
use glasscache_protocol::text::request::StoreMode;
use glasscache_strategy::file::StrategyFile;

use super::scope::ScopeState;
use super::watch::{ReportLevel, WatchEvent, possible_near_keys};
use super::{
    ChildrenOf, ClientNearCache, Fetch, FetchReason, FetchedItems, NearRead, NearStep, NearValue,
    NearWriteGuard, RequestScope, StrategyOptions,
};
use crate::error::{Error, Failures};
use crate::key::{KeyEncoder, KeyEncoding};
use crate::request::{Item, Request};

/// A client whose server holds values with their remaining TTL.
struct TestClient {
    near: Arc<ClientNearCache>,
    values: HashMap<&'static str, (&'static str, i64)>,
    is_down: bool,
    now: Instant,
    /// The keys of each call, and why it was made.
    calls: Vec<(FetchReason, Vec<String>)>,
}

fn wire_key(key: &str) -> WireKey<'_> {
    WireKey { bytes: key.as_bytes(), is_base64: false }
}

impl TestClient {
    fn with_options(lines: &str, change_options: impl FnOnce(&mut StrategyOptions)) -> Self {
        let file = format!("glasscache-strategy 1\n{lines}").parse().unwrap();
        let mut options = StrategyOptions::new(file);
        // Comparisons fetch keys at random; the tests about them switch them on.
        options.near_check = 0.0;
        change_options(&mut options);
        let encoder = KeyEncoder { namespace: b"", encoding: KeyEncoding::Base64 };
        let names = ["a", "b", "c", "d", "e", "f"];
        Self {
            near: Arc::new(ClientNearCache::new(options, encoder).unwrap()),
            values: names.into_iter().map(|name| (name, (name, -1))).collect(),
            is_down: false,
            now: Instant::now(),
            calls: Vec::new(),
        }
    }

    fn new(lines: &str) -> Self {
        Self::with_options(lines, |_| {})
    }

    fn wait(&mut self, time_ms: u64) {
        self.now += Duration::from_millis(time_ms);
    }

    /// Reads keys, and does `meanwhile` before the first reply.
    fn read_while(
        &mut self,
        keys: &[&str],
        scope: Option<&Arc<RequestScope>>,
        meanwhile: impl FnOnce(&mut Self),
    ) -> Vec<Option<String>> {
        let keys: Vec<WireKey<'_>> = keys.iter().map(|key| wire_key(key)).collect();
        let mut read = NearRead::new(self.near.clone(), &keys, scope.cloned());
        let mut meanwhile = Some(meanwhile);
        while let Some(NearStep::Fetch(fetch)) = read.step(self.now) {
            let (fetched, failures) = self.reply_to(&fetch);
            if let Some(meanwhile) = meanwhile.take() {
                meanwhile(self);
            }
            read.finish_fetch(&fetch, fetched, failures, self.now);
        }
        let (values, _) = read.finish();
        let to_text = |value: NearValue| String::from_utf8(value.bytes.to_vec()).unwrap();
        values.into_iter().map(|value| value.map(to_text)).collect()
    }

    /// What the server replies to a call, which is noted.
    fn reply_to(&mut self, fetch: &Fetch) -> (FetchedItems, Failures) {
        let names: Vec<String> =
            fetch.keys().iter().map(|key| String::from_utf8(key.bytes.to_vec()).unwrap()).collect();
        let (mut fetched, mut failures) = (FetchedItems::default(), Vec::new());
        for (index, name) in names.iter().enumerate() {
            if self.is_down {
                failures.push((index, Error::Closed));
                continue;
            }
            let found = self.values.get(name.as_str());
            let value =
                found.map(|(value, _)| NearValue { flags: 0, bytes: value.as_bytes().into() });
            fetched.record_item(index, value, found.map(|(_, ttl)| *ttl));
        }
        self.calls.push((fetch.reason(), names));
        (fetched, failures)
    }

    /// Whether the process has no value of a key that it may serve.
    fn is_stale(&self, key: &str) -> bool {
        let process_cache = self.near.current();
        !process_cache.state().is_available(
            &key.as_bytes().into(),
            &ScopeState::of_single_read(),
            self.now,
        )
    }

    fn read(&mut self, key: &str) -> Option<String> {
        self.read_while(&[key], None, |_| {}).remove(0)
    }

    fn read_in(&mut self, scope: &Arc<RequestScope>, key: &str) -> Option<String> {
        self.read_while(&[key], Some(scope), |_| {}).remove(0)
    }

    fn scope(&self, page: Option<&str>) -> Arc<RequestScope> {
        Arc::new(self.near.scope(page.map(str::as_bytes)).unwrap())
    }

    /// The keys of the calls since the last time.
    fn take_fetched_keys(&mut self) -> Vec<String> {
        let calls = std::mem::take(&mut self.calls).into_iter();
        calls.map(|(_, keys)| keys.join(" ")).collect()
    }

    fn guard_write(&self, request: &Request<'_>) -> NearWriteGuard {
        let requests = std::slice::from_ref(request);
        NearWriteGuard::new(&self.near, requests, self.now).unwrap()
    }

    fn begin_set(&self, key: &str) -> NearWriteGuard {
        let item = Item { key: wire_key(key), flags: 0, body: b"" };
        self.guard_write(&Request::Store { mode: StoreMode::Set, item, exptime: 0, noreply: false })
    }

    fn set(&mut self, key: &'static str, value: &'static str) {
        let write_guard = self.begin_set(key);
        self.values.insert(key, (value, -1));
        drop(write_guard);
    }
}

#[test]
fn a_value_is_served_from_the_process_until_its_age_is_the_near_ttl() {
    let mut client = TestClient::with_options("strategy lru:10", |options| {
        options.near_ttl = Some(Duration::from_secs(3));
    });
    client.read("a");
    client.wait(2999);
    assert_eq!(client.read("a").as_deref(), Some("a"));
    assert_eq!(client.take_fetched_keys(), ["a"]);
    client.wait(1);
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a"]);
}

#[test]
fn a_value_is_never_served_past_its_ttl_nor_kept_if_that_is_unknown_or_too_near() {
    let mut client = TestClient::with_options("strategy lru:10", |options| options.near_ttl = None);
    client.values.insert("a", ("a", 5));
    client.values.insert("b", ("b", 1));
    client.values.insert("c", ("c", 0));
    client.read("a");
    client.wait(3999);
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a"]);
    client.wait(1);
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a"], "of 5 s that were left 4 are sure");
    for key in ["b", "c", "b", "c"] {
        client.read(key);
    }
    assert_eq!(client.take_fetched_keys(), ["b", "c", "b", "c"]);
}

#[test]
fn own_writes_and_deletes_are_seen_at_once() {
    let mut client = TestClient::new("strategy s3fifo:20");
    client.read("a");
    client.set("a", "new");
    assert_eq!(client.read("a").as_deref(), Some("new"));
    let delete_guard = client.guard_write(&Request::Delete { key: wire_key("a"), noreply: false });
    client.values.remove("a");
    drop(delete_guard);
    assert_eq!(client.read("a"), None);
    assert_eq!(client.near.stats().invalidated, 2);
}

#[test]
fn own_writes_of_other_keys_leave_values_in_the_process() {
    let mut client = TestClient::new("strategy s3fifo:20");
    let kept_keys = ["a", "b", "c", "d", "e"];
    for key in kept_keys {
        client.values.insert(key, (key, -1));
        client.read(key);
    }
    client.take_fetched_keys();
    for number in 0..5000 {
        drop(client.begin_set(&format!("other:{number}")));
    }
    let scope = client.scope(None);
    for key in kept_keys {
        assert_eq!(client.read_in(&scope, key).as_deref(), Some(key));
        assert_eq!(client.read_in(&scope, key).as_deref(), Some(key));
        assert_eq!(client.read(key).as_deref(), Some(key));
    }
    assert!(client.take_fetched_keys().is_empty());
}

#[test]
fn a_value_that_was_fetched_while_its_key_was_written_is_not_kept() {
    let mut client = TestClient::new("strategy lru:10");
    // The write begins and ends within the fetch.
    let old_values = client.read_while(&["a"], None, |client| client.set("a", "new"));
    assert_eq!(old_values[0].as_deref(), Some("a"));
    assert_eq!(client.read("a").as_deref(), Some("new"));
    // The fetch lies within the write.
    let write_guard = client.begin_set("b");
    client.read("b");
    client.values.insert("b", ("new", -1));
    drop(write_guard);
    assert_eq!(client.read("b").as_deref(), Some("new"));
    client.take_fetched_keys();
    client.read("b");
    assert!(client.take_fetched_keys().is_empty());
}

#[test]
fn a_flush_empties_the_process_and_a_delayed_one_keeps_it_empty_until_it_is_over() {
    let mut client = TestClient::new("strategy lru:10");
    client.read("a");
    drop(client.guard_write(&Request::Flush { delay_s: 0 }));
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a", "a"]);
    let prefix = WireKey { bytes: b"n:", is_base64: false };
    drop(client.guard_write(&Request::FlushPrefix { prefix }));
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a"]);
    drop(client.guard_write(&Request::Flush { delay_s: 3 }));
    client.read("a");
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a", "a"]);
    client.wait(5000);
    client.read("a");
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a"]);
}

#[test]
fn the_fixed_set_is_loaded_by_the_first_read_and_refreshed_before_it_is_stale() {
    let mut client = TestClient::with_options("strategy fixed:2+lru:1\nkey a\nkey b", |options| {
        options.near_ttl = Some(Duration::from_secs(4));
    });
    assert_eq!(client.read("b").as_deref(), Some("b"));
    assert_eq!(client.calls, [(FetchReason::Load, vec!["a".into(), "b".into()])]);
    client.take_fetched_keys();
    client.read("c");
    client.read("d");
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["c", "d"]);
    client.values.insert("a", ("new", -1)); // by another process
    client.wait(3500);
    assert_eq!(client.read("a").as_deref(), Some("a"), "not yet");
    client.wait(100);
    assert_eq!(client.near.get_without_call(wire_key("a"), client.now), None, "a load is due");
    assert_eq!(client.read("a").as_deref(), Some("new"));
    assert_eq!(client.take_fetched_keys(), ["a b"]);
    let stats = client.near.stats();
    assert_eq!((stats.fixed_set_calls, stats.fixed_set_keys, stats.calls), (2, 4, 2));
    assert_eq!((stats.fixed_keys, stats.fixed_loaded), (2, 2));
}

#[test]
fn a_refresh_fetches_the_keys_that_expired_and_not_before_half_of_near_ttl() {
    let mut client = TestClient::with_options("strategy fixed:3\nkey a\nkey b\nkey c", |options| {
        options.near_ttl = Some(Duration::from_secs(20));
    });
    client.values.insert("a", ("short", 3));
    client.values.insert("b", ("one second", 1));
    client.read("c");
    assert_eq!(client.take_fetched_keys(), ["a b c"]);
    client.wait(2500);
    client.read("c");
    assert_eq!(
        client.take_fetched_keys(),
        [""; 0],
        "the value of a has expired, and nobody reads it"
    );
    client.read("a");
    client.read("b");
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a", "b"], "read like any other key, and kept again");
    client.wait(7400);
    client.read("c");
    assert_eq!(client.take_fetched_keys(), [""; 0], "9.9 s after the load");
    client.wait(100);
    client.read("c");
    assert_eq!(client.take_fetched_keys(), ["a"], "what may not be kept is not fetched again");
    client.wait(8000);
    client.read("c");
    assert_eq!(
        client.take_fetched_keys(),
        [""; 0],
        "18 s after the load: within 2 s of its end, 8 s after a refresh"
    );
    client.wait(2000);
    client.read("c");
    assert_eq!(client.take_fetched_keys(), ["a c"]);
    client.wait(40_000);
    client.read("c");
    assert_eq!(client.take_fetched_keys(), ["a b c"], "after a minute b is tried again");
}

/// A fixed set of 2,500 keys of which a tenth expires after 2 to 30 s, read at random 50 times a second.
#[test]
fn refreshing_a_fixed_set_fetches_no_more_keys_than_expired() {
    for near_ttl_s in [10, 600, 0] {
        let names: Vec<&'static str> =
            (0..2500).map(|number| &*Box::leak(format!("k{number}").into_boxed_str())).collect();
        let lines: Vec<String> = names.iter().map(|name| format!("key {name}")).collect();
        let near_ttl = (near_ttl_s > 0).then(|| Duration::from_secs(near_ttl_s));
        let mut client = TestClient::with_options(
            &format!("strategy fixed:2500\n{}", lines.join("\n")),
            |options| {
                options.near_ttl = near_ttl;
            },
        );
        for (number, &name) in names.iter().enumerate() {
            let ttl_s = if number % 10 == 0 { 2 + (number as i64 / 10) % 29 } else { 3600 };
            client.values.insert(name, (name, ttl_s));
        }
        client.read(names[0]);
        let loaded_keys = client.near.stats().fixed_set_keys;
        assert_eq!(loaded_keys, 2500);
        let (mut expired_keys, mut was_stale) = (0, vec![false; 2500]);
        for tick in 0..3000_usize {
            client.wait(20);
            if tick % 50 == 0 {
                for (was_stale, name) in was_stale.iter_mut().zip(&names) {
                    let is_stale = client.is_stale(name);
                    expired_keys += u64::from(is_stale && !*was_stale);
                    *was_stale = is_stale;
                }
            }
            client.read(names[tick * 7919 % 2500]);
        }
        let stats = client.near.stats();
        let refreshed_keys = stats.fixed_set_keys - loaded_keys;
        // Values whose age is near_ttl are refreshed a little earlier.
        let aged_keys = if near_ttl_s == 10 { 2250 * 6 } else { 0 };
        let most = ((expired_keys + aged_keys) as f64 * 1.2) as u64;
        assert!(
            refreshed_keys <= most,
            "near_ttl {near_ttl_s}: {refreshed_keys} of {expired_keys}"
        );
        let refreshes_max = 60 * 2 / if near_ttl_s == 0 { 10 } else { near_ttl_s };
        assert!(stats.fixed_set_calls - 1 <= refreshes_max, "{}", stats.fixed_set_calls);
    }
}

#[test]
fn a_process_that_starts_while_the_server_is_down_loads_the_fixed_set_later() {
    let mut client = TestClient::new("strategy fixed:1+lru:1\nkey a");
    client.is_down = true;
    assert_eq!(client.read("b"), None);
    assert_eq!(client.take_fetched_keys(), ["a", "b"]);
    client.is_down = false;
    assert_eq!(client.read("b").as_deref(), Some("b"));
    assert_eq!(client.take_fetched_keys(), ["b"], "the next load waits for a second");
    client.wait(1000);
    assert_eq!(client.read("a").as_deref(), Some("a"));
    assert_eq!(client.take_fetched_keys(), ["a"]);
    assert!(client.near.get_without_call(wire_key("a"), client.now).is_some());
}

#[test]
fn one_read_at_a_time_loads_the_fixed_set_and_one_that_gives_up_leaves_it_to_others() {
    let mut client = TestClient::new("strategy fixed:2\nkey a\nkey c");
    let mut first_read = NearRead::new(client.near.clone(), &[wire_key("b")], None);
    let Some(NearStep::Fetch(load)) = first_read.step(client.now) else {
        panic!("no fetch");
    };
    assert_eq!(load.reason(), FetchReason::Load);
    assert_eq!(
        load.deadline(client.now + Duration::from_secs(2)),
        client.now + Duration::from_secs(1)
    );
    assert_eq!(client.read("a").as_deref(), Some("a"));
    assert_eq!(client.take_fetched_keys(), ["a"], "a read of its own, which the fixed set keeps");
    drop(first_read);
    client.wait(1000);
    client.read("b");
    assert_eq!(client.take_fetched_keys(), ["c", "b"], "what the fixed set does not have yet");
}

#[test]
fn keys_of_the_fixed_set_that_the_server_lacks_are_reported_and_warned_of_once() {
    let mut client = TestClient::new("strategy fixed:2\nkey a\nkey nobody");
    client.read("a");
    assert_eq!(client.near.stats().missing_keys, ["nobody"]);
    let warning = client.near.take_warning().unwrap();
    assert!(warning.contains("do not have 1 of its 2 keys"), "{warning}");
    client.wait(60_000);
    client.read("a");
    assert_eq!(client.near.take_warning(), None);
    client.set("nobody", "x");
    assert_eq!(client.read("nobody").as_deref(), Some("x"));
    client.take_fetched_keys();
    client.read("nobody");
    assert!(client.take_fetched_keys().is_empty(), "the fixed set has it now");
}

#[test]
fn a_request_fetches_a_key_once_and_sees_its_own_writes() {
    let mut client = TestClient::new("strategy remote");
    let scope = client.scope(None);
    client.read_in(&scope, "a");
    client.values.insert("a", ("by another", -1));
    assert_eq!(client.read_in(&scope, "a").as_deref(), Some("a"), "as old as the request");
    assert_eq!(client.take_fetched_keys(), ["a"]);
    client.set("a", "own");
    assert_eq!(client.read_in(&scope, "a").as_deref(), Some("own"));
    client.read_in(&scope, "a");
    assert_eq!(client.take_fetched_keys(), ["a"]);
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a"], "without a request nothing is held");
}

#[test]
fn children_come_with_their_parent_and_only_within_a_request() {
    let lines = "strategy children\nchild a d\nchild a b\nchild b c";
    let mut client = TestClient::new(lines);
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a"]);
    let scope = client.scope(None);
    client.read_in(&scope, "a");
    client.read_in(&scope, "b");
    assert_eq!(client.take_fetched_keys(), ["a d b"]);
    let stats = client.near.stats();
    assert_eq!((stats.calls, stats.keys, stats.used_keys), (2, 4, 3));
}

#[test]
fn the_page_of_a_request_is_fetched_with_its_subtree_before_the_first_read() {
    let lines = "strategy subtree:2\nchild b f\nchild a d\nchild a b\nchild d c";
    let mut client = TestClient::new(lines);
    let scope = client.scope(Some("a"));
    client.read_in(&scope, "c");
    client.read_in(&scope, "e");
    // Each level in the order of the file.
    assert_eq!(client.take_fetched_keys(), ["a d b f c", "e"]);
    let scope_without_reads = client.scope(Some("b"));
    client.read_while(&[], Some(&scope_without_reads), |_| {});
    assert_eq!(client.take_fetched_keys(), ["b f"]);
}

#[test]
fn children_that_the_application_names_replace_those_of_the_file() {
    let children_of = ChildrenOf::new(|key| match key {
        b"a" => vec![b"e".to_vec(), b"b".to_vec()],
        _ => Vec::new(),
    });
    let mut client =
        TestClient::with_options("strategy children+subtree:1\nchild a d", |options| {
            options.children_of = Some(children_of);
        });
    let scope = client.scope(Some("a"));
    client.read_in(&scope, "a");
    client.read_in(&scope, "c");
    assert_eq!(client.take_fetched_keys(), ["a e b", "c"]);
}

#[test]
fn a_graph_with_cycles_that_the_application_names_is_fetched_once_whatever_the_depth() {
    let children_of = ChildrenOf::new(|_| [b"a", b"b", b"c"].map(|key| key.to_vec()).into());
    let mut client = TestClient::with_options("strategy subtree:4000000000", |options| {
        options.children_of = Some(children_of);
    });
    let scope = client.scope(Some("a"));
    client.read_in(&scope, "c");
    assert_eq!(client.take_fetched_keys(), ["a b c"]);
}

#[test]
fn a_graph_without_an_end_that_the_application_names_is_cut_at_a_bound() {
    let children_of = ChildrenOf::new(|key| {
        let number: u64 = String::from_utf8_lossy(key).parse().unwrap();
        vec![(number + 1).to_string().into_bytes()]
    });
    let mut client = TestClient::with_options("strategy subtree:4000000000", |options| {
        options.children_of = Some(children_of);
    });
    let scope = client.scope(Some("1"));
    client.read_in(&scope, "1");
    let fetched_keys = client.take_fetched_keys().concat();
    assert_eq!(fetched_keys.split(' ').count(), 10_000);
}

#[test]
fn keys_that_learned_rules_name_come_along_and_a_missing_one_is_known_for_one_read() {
    let lines = "strategy together:50\ntogether user:{1} profile:{1}\ntogether-page a b";
    let mut client = TestClient::new(lines);
    client.values.insert("user:7", ("u", -1));
    let scope = client.scope(Some("a"));
    client.read_in(&scope, "user:7");
    assert_eq!(client.read_in(&scope, "profile:7"), None);
    assert_eq!(client.take_fetched_keys(), ["b", "user:7 profile:7"]);
    client.values.insert("profile:7", ("p", -1)); // by another process, which this one waits for
    assert_eq!(client.read_in(&scope, "profile:7").as_deref(), Some("p"));
}

#[test]
fn a_read_of_many_keys_makes_one_call_for_those_that_are_not_available() {
    let mut client = TestClient::new("strategy lru:10");
    client.read("b");
    client.take_fetched_keys();
    let values = client.read_while(&["a", "b", "nobody", "a"], None, |_| {});
    let values: Vec<_> = values.iter().map(Option::as_deref).collect();
    assert_eq!(values, [Some("a"), Some("b"), None, Some("a")]);
    assert_eq!(client.take_fetched_keys(), ["a nobody"]);
}

#[test]
fn a_near_cache_of_bytes_counts_the_memory_that_an_item_takes() {
    let mut client = TestClient::new("strategy lru-bytes:1000");
    for key in ["a", "b", "c", "d", "e", "f"] {
        client.read(key);
    }
    let stats = client.near.stats();
    assert!(stats.near_bytes > 100 * stats.near_items && stats.near_bytes <= 1000, "{stats:?}");
    assert!((1..6).contains(&stats.near_items), "{stats:?}");
}

#[test]
fn a_key_of_the_strategy_that_cannot_be_sent_is_refused() {
    let file = "glasscache-strategy 1\nstrategy fixed:1\nkey a b".parse().unwrap();
    let encoder = KeyEncoder { namespace: b"n:", encoding: KeyEncoding::Refuse };
    let error = ClientNearCache::new(StrategyOptions::new(file), encoder).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("strategy rule `key`"), "{message}");
    assert!(message.contains("a b"), "{message}");
}

#[test]
fn a_strategy_that_only_the_simulator_has_is_refused() {
    let mut file: StrategyFile = "glasscache-strategy 1\nstrategy lru:1".parse().unwrap();
    file.strategy = "tuned:600+children".parse().unwrap();
    let encoder = KeyEncoder { namespace: b"n:", encoding: KeyEncoding::Refuse };
    let error = ClientNearCache::new(StrategyOptions::new(file), encoder).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("`tuned:600+children` is for the simulator alone"), "{message}");
}

/// A client that follows the changes of others, on one server that reports all of them.
fn coherent_client(lines: &str) -> TestClient {
    let client = TestClient::with_options(lines, |options| {
        options.is_coherent = true;
        options.near_ttl = None;
    });
    client.near.expect_watches(&[0]);
    client.report(WatchEvent::Began(ReportLevel::Changes));
    client
}

impl TestClient {
    /// Passes on what the watch of the server received.
    fn report(&self, event: WatchEvent) {
        self.near.handle_watch_event((0, "server"), event, self.now);
    }

    fn confirm(&self) {
        self.report(WatchEvent::Confirmed(self.now));
    }

    fn report_changed(&self, key: &str) {
        self.report(WatchEvent::Changed(key.as_bytes().to_vec()));
    }
}

#[test]
fn changes_of_others_are_seen_when_they_are_reported() {
    let mut client = coherent_client("strategy lru:10");
    client.confirm();
    client.read("a");
    client.read("b");
    client.values.insert("a", ("new", -1));
    assert_eq!(client.read("a").as_deref(), Some("a"));
    client.report_changed("a");
    assert_eq!(client.read("a").as_deref(), Some("new"));
    client.read("b");
    assert_eq!(client.take_fetched_keys(), ["a", "b", "a"]);
    let stats = client.near.stats();
    assert_eq!((stats.changed_by_others, stats.invalidated), (1, 0));
}

#[test]
fn nothing_is_served_while_reports_are_not_confirmed() {
    let mut client = coherent_client("strategy fixed:1+lru:10\nkey a");
    for _ in 0..2 {
        client.read("b");
    }
    assert_eq!(client.take_fetched_keys(), ["b", "b"], "and no fixed set, which would not be kept");
    client.confirm();
    client.read("a");
    client.read("b");
    client.take_fetched_keys();
    client.wait(39);
    client.read("b");
    assert_eq!(client.take_fetched_keys(), [""; 0]);
    client.wait(1);
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a"], "40 ms after the last confirmation");
    // A late confirmation makes what was kept usable: every change until then was reported.
    client.confirm();
    client.read("b");
    assert_eq!(client.take_fetched_keys(), [""; 0]);
}

#[test]
fn value_that_was_fetched_while_its_change_was_reported_is_not_kept() {
    let mut client = coherent_client("strategy lru:10");
    client.confirm();
    client.read_while(&["a"], None, |client| {
        client.values.insert("a", ("new", -1));
        client.report_changed("a");
    });
    assert_eq!(client.read("a").as_deref(), Some("new"));
    assert_eq!(client.take_fetched_keys(), ["a", "a"]);
}

#[test]
fn lost_lines_lost_watches_and_changed_servers_clear_the_near_cache() {
    type ClearFn = fn(&mut TestClient);
    let clears: [(&str, ClearFn); 4] = [
        ("lost lines", |client| {
            client.report(WatchEvent::ChangedMany);
        }),
        ("a lost watch", |client| {
            client.near.handle_watch_loss(0);
            client.confirm();
        }),
        ("another watch", |client| {
            client.report(WatchEvent::Began(ReportLevel::Changes));
            client.confirm();
        }),
        ("changed servers", |client| {
            client.near.clear();
            client.near.expect_watches(&[0]);
        }),
    ];
    for (name, clear) in clears {
        let mut client = coherent_client("strategy lru:10");
        client.confirm();
        client.read("a");
        clear(&mut client);
        client.read("a");
        assert_eq!(client.take_fetched_keys(), ["a", "a"], "{name}");
        // What was fetched before is not kept either.
        client.read_while(&["b"], None, clear);
        client.read("b");
        assert_eq!(client.take_fetched_keys(), ["b", "b"], "{name}");
        client.read("b");
        assert_eq!(client.take_fetched_keys(), [""; 0], "{name}");
    }
}

#[test]
fn lost_watch_keeps_values_out_until_it_begins_again() {
    let mut client = coherent_client("strategy lru:10");
    client.confirm();
    client.near.handle_watch_loss(0);
    for _ in 0..3 {
        client.read("a");
    }
    assert_eq!(client.take_fetched_keys(), ["a", "a", "a"]);
    client.near.expect_watches(&[0, 1]);
    client.report(WatchEvent::Began(ReportLevel::Changes));
    client.confirm();
    client.read("a");
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a", "a"], "a new server is not watched yet");
}

#[test]
fn flush_that_another_client_delayed_keeps_values_out_until_it_is_over() {
    let mut client = coherent_client("strategy lru:10");
    client.confirm();
    client.read("a");
    client.report(WatchEvent::FlushIn(1));
    for _ in 0..2 {
        client.read("a");
    }
    assert_eq!(client.take_fetched_keys(), ["a", "a", "a"]);
    client.wait(3001);
    client.confirm();
    client.read("a");
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a"]);
}

#[test]
fn servers_that_report_less_are_bounded_by_near_ttl_and_named_once() {
    for (report_level, expected_text) in [
        (ReportLevel::StoresAndDeletes, "reports stores and deletes only"),
        (ReportLevel::Nothing, "watching server failed"),
    ] {
        let mut client =
            TestClient::with_options("strategy lru:10", |options| options.is_coherent = true);
        client.near.expect_watches(&[0]);
        for _ in 0..2 {
            client.report(WatchEvent::Began(report_level));
        }
        client.read("a");
        client.wait(9999);
        client.read("a");
        assert_eq!(client.take_fetched_keys(), ["a"]);
        client.wait(1);
        client.read("a");
        assert_eq!(client.take_fetched_keys(), ["a"]);
        let warning = client.near.take_warning().unwrap();
        assert!(warning.contains(expected_text) && warning.contains("near_ttl, 10 s"), "{warning}");
        assert_eq!(client.near.take_warning(), None);
    }
}

#[test]
fn keys_in_base64_are_found_by_the_bytes_that_servers_report() {
    let [plain_key, base64_key] = possible_near_keys("ä b".as_bytes());
    assert_eq!(&*plain_key, "ä b".as_bytes());
    assert_eq!(&*base64_key, b"\0w6QgYg==");
}
