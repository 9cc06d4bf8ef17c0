//! A strategy in a share of the requests: what each group reads, what is counted, and how a bad one is disabled.

use std::sync::Arc;
use std::time::Duration;

use glasscache_strategy::rollout::rollout_share::{Group, RolloutShare, ShareBy};

use super::super::watch::{ReportLevel, WatchEvent};
use super::super::{ChildrenOf, NearRead, NearStep, RequestScope};
use super::{TestClient, wire_key};

fn client_under_rollout(lines: &str, fraction: f64, by: ShareBy) -> TestClient {
    TestClient::with_options(lines, |options| {
        options.share = Some(RolloutShare { fraction, by });
    })
}

/// A request of this group; requests of the other group that come before do nothing.
fn scope_of(client: &TestClient, group: Group) -> Arc<RequestScope> {
    let mut scopes = std::iter::repeat_with(|| client.scope(None));
    scopes.find(|scope| scope.group() == group).unwrap()
}

fn read_all(client: &mut TestClient, scope: &Arc<RequestScope>, keys: &[&str]) {
    for key in keys {
        assert_eq!(client.read_in(scope, key).as_deref(), Some(*key));
    }
}

#[test]
fn a_control_request_fetches_every_key_that_it_reads_as_without_a_strategy() {
    let mut client = client_under_rollout("strategy fixed:1+lru:9\nkey f", 0.5, ShareBy::Request);
    let control_scope = scope_of(&client, Group::Control);
    read_all(&mut client, &control_scope, &["a", "a", "f"]);
    client.read_while(&["a", "b", "b"], Some(&control_scope), |_| {});
    assert_eq!(client.take_fetched_keys(), ["a", "a", "f", "a b"]);
    assert_eq!(client.near.stats().reads, 0, "the strategy served none of them");
}

#[test]
fn what_a_control_request_read_is_in_the_near_cache_for_requests_of_the_strategy() {
    let mut client = client_under_rollout("strategy lru:9", 0.5, ShareBy::Request);
    let control_scope = scope_of(&client, Group::Control);
    read_all(&mut client, &control_scope, &["a", "b"]);
    client.take_fetched_keys();
    let strategy_scope = scope_of(&client, Group::Strategy);
    read_all(&mut client, &strategy_scope, &["a", "b", "c"]);
    assert_eq!(client.take_fetched_keys(), ["c"]);
    assert_eq!(client.near.stats().local_cache_hits, 2);
}

#[test]
fn an_own_write_is_seen_by_both_groups() {
    let mut client = client_under_rollout("strategy lru:9", 0.5, ShareBy::Request);
    let control_scope = scope_of(&client, Group::Control);
    read_all(&mut client, &control_scope, &["a"]);
    client.set("a", "new");
    assert_eq!(client.read_in(&control_scope, "a").as_deref(), Some("new"));
    let strategy_scope = scope_of(&client, Group::Strategy);
    assert_eq!(client.read_in(&strategy_scope, "a").as_deref(), Some("new"));
}

#[test]
fn reads_outside_requests_go_to_the_server_where_only_some_requests_run_the_strategy() {
    let mut client = client_under_rollout("strategy lru:9", 0.5, ShareBy::Request);
    client.read("a");
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a", "a"]);
    let mut client = client_under_rollout("strategy lru:9", 1.0, ShareBy::Request);
    client.read("a");
    client.read("a");
    assert_eq!(client.take_fetched_keys(), ["a"]);
}

#[test]
fn a_process_of_the_control_group_keeps_and_loads_nothing() {
    let mut client = client_under_rollout("strategy fixed:1+lru:9\nkey f", 0.0, ShareBy::Process);
    let scope = client.scope(None);
    assert_eq!(scope.group(), Group::Control);
    read_all(&mut client, &scope, &["a", "f", "a"]);
    client.read("f");
    assert_eq!(client.take_fetched_keys(), ["a", "f", "a", "f"]);
    let stats = client.near.stats();
    assert_eq!((stats.near_items, stats.fixed_set_calls), (0, 0));
}

#[test]
fn a_process_of_the_control_group_counts_its_requests_from_the_first_on() {
    let mut client = client_under_rollout("strategy fixed:1+lru:9\nkey f", 0.0, ShareBy::Process);
    for _ in 0..3 {
        let scope = client.scope(None);
        read_all(&mut client, &scope, &["a", "f"]);
        scope.end();
    }
    let process_cache = client.near.current();
    let process_rollout = process_cache.state().rollout.process_rollout().clone();
    assert_eq!(process_rollout.warm_up_requests(), 0, "it has nothing to warm up");
    assert_eq!(process_rollout.groups().control.sum.requests, 3);
    assert_eq!(process_rollout.groups().control.sum.calls, 6);
}

#[test]
fn requests_are_counted_once_in_their_group_and_failed_ones_apart() {
    let mut client = client_under_rollout("strategy remote", 0.5, ShareBy::Request);
    for request_number in 0..4 {
        let scope = client.scope(None);
        client.read_while(&["a", "b"], Some(&scope), |client| client.wait(3));
        client.is_down = request_number == 3;
        client.read_in(&scope, "c");
        scope.end();
        scope.end();
    }
    let process_cache = client.near.current();
    let state = process_cache.state();
    let groups = state.rollout.process_rollout().groups().clone();
    let (strategy, control) = (groups.strategy, groups.control);
    assert_eq!(strategy.sum.requests + control.sum.requests, 3);
    assert_eq!(strategy.failed_requests + control.failed_requests, 1);
    assert_eq!(strategy.sum.calls + control.sum.calls, 6);
    assert_eq!(strategy.sum.keys + control.sum.keys, 9);
    assert_eq!(strategy.sum.added_ns + control.sum.added_ns, 9_000_000);
}

#[test]
fn a_request_waits_until_the_caller_of_its_call_resumes() {
    let mut client = client_under_rollout("strategy remote", 0.5, ShareBy::Request);
    let scope = scope_of(&client, Group::Strategy);
    let mut read = NearRead::new(client.near.clone(), &[wire_key("a")], Some(scope.clone()));
    let Some(NearStep::Fetch(fetch)) = read.step(client.now) else { panic!("no fetch") };
    let (fetched, failures) = client.reply_to(&fetch);
    client.wait(3);
    read.finish_fetch(&fetch, fetched, failures, client.now);
    client.wait(2);
    assert!(read.step(client.now).is_none());
    client.wait(1);
    scope.end();
    let process_cache = client.near.current();
    let groups = process_cache.state().rollout.process_rollout().groups().clone();
    assert_eq!(groups.strategy.sum.added_ns, 5_000_000);
}

/// A request about the page `a`, whose child `f` nobody reads: under `subtree:1` it needs one call more than without.
fn request_that_subtree_makes_slower(client: &mut TestClient) {
    let scope = client.scope(Some("a"));
    scope.set_route("/slow");
    client.read_while(&["b", "c"], Some(&scope), |client| client.wait(1));
    scope.end();
}

fn client_with_useless_children(fraction: f64) -> TestClient {
    TestClient::with_options("strategy subtree:1\nforecast calls 9 8 9.5", |options| {
        options.share = Some(RolloutShare { fraction, by: ShareBy::Request });
        options.children_of = Some(ChildrenOf::new(|_| vec![b"f".to_vec()]));
    })
}

#[test]
fn a_strategy_worse_than_its_control_group_keeps_nothing_from_then_on_and_warns_once() {
    let mut client = client_with_useless_children(0.5);
    let last_request_number = (1..=2000).find(|_| {
        request_that_subtree_makes_slower(&mut client);
        client.near.stats().disabled.is_some()
    });
    assert_eq!(last_request_number, Some(500), "whatever the forecast is");
    let warning = client.near.take_warning().unwrap();
    let expected =
        "the strategy subtree:1 has disabled itself: calls 1.00 -> 2.00 from the control";
    assert!(warning.starts_with(expected), "{warning}");
    assert_eq!(client.near.take_warning(), None);
    client.take_fetched_keys();
    let scope = client.scope(Some("a"));
    read_all(&mut client, &scope, &["a", "a", "f"]);
    assert_eq!(client.take_fetched_keys(), ["a", "a", "f"]);
    let json = client.near.rollout_json();
    assert!(json.contains("\"disabled\":\"calls 1.00"), "{json}");
    assert!(json.contains("\"route\":\"/slow\""), "{json}");
}

#[test]
fn a_strategy_that_misses_its_forecast_and_is_better_than_its_control_group_stays() {
    let lines = "strategy lru:9\nforecast calls 0.0001 0 0.0002";
    let mut client = client_under_rollout(lines, 0.5, ShareBy::Request);
    for request_number in 0..4000 {
        let scope = client.scope(None);
        let written = ["a", "b", "c"][request_number % 3];
        client.set(written, written);
        read_all(&mut client, &scope, &["a", "b", "c"]);
        scope.end();
    }
    assert_eq!(client.near.stats().disabled, None);
}

#[test]
fn a_strategy_without_share_stays_enabled_whatever_its_requests_need() {
    let mut client = TestClient::new("strategy lru:1\nforecast calls 0.5 0.4 0.6");
    for _ in 0..3000 {
        let scope = client.scope(None);
        read_all(&mut client, &scope, &["a", "b"]);
    }
    assert_eq!(client.near.stats().disabled, None);
    assert_eq!(client.near.take_warning(), None);
}

#[test]
fn a_process_that_cannot_load_its_fixed_set_is_not_warm() {
    let lines = "strategy fixed:1\nforecast calls 0 0 0\nkey f";
    let mut client = client_under_rollout(lines, 1.0, ShareBy::Request);
    client.is_down = true;
    for _ in 0..600 {
        let scope = client.scope(None);
        client.read_in(&scope, "f");
    }
    let process_cache = client.near.current();
    assert_eq!(process_cache.state().rollout.process_rollout().warm_up_requests(), 600);
    assert!(process_cache.state().rollout.process_rollout().disable_reason().is_none());
}

/// A client under roll-out that follows the changes of others.
fn coherent_client(fraction: f64) -> TestClient {
    let client = TestClient::with_options("strategy lru:9", |options| {
        options.share = Some(RolloutShare { fraction, by: ShareBy::Request });
        options.is_coherent = true;
        options.near_check = 1.0;
    });
    client.near.expect_watches(&[0]);
    client.report(WatchEvent::Began(ReportLevel::Changes));
    client.confirm();
    client
}

#[test]
fn a_watch_that_is_lost_over_and_over_costs_calls_of_the_strategy() {
    let mut client = coherent_client(0.5);
    for request_number in 1..=2000 {
        if request_number % 5 == 1 {
            client.near.handle_watch_loss(0);
            client.report(WatchEvent::Began(ReportLevel::Changes));
            client.confirm();
        }
        let scope = client.scope(None);
        read_all(&mut client, &scope, &["a", "b"]);
        scope.end();
    }
    let process_cache = client.near.current();
    let groups = process_cache.state().rollout.process_rollout().groups().clone();
    let calls_a_request = groups.strategy.sum.calls as f64 / groups.strategy.sum.requests as f64;
    assert!((0.1..1.0).contains(&calls_a_request), "{calls_a_request}");
    assert_eq!(client.near.stats().disabled, None);
}

#[test]
fn requests_after_an_own_flush_are_excluded_from_the_comparison() {
    let mut client = client_with_useless_children(0.5);
    for request_number in 1..=1000 {
        if request_number % 200 == 1 {
            client.near.clear();
        }
        request_that_subtree_makes_slower(&mut client);
    }
    assert_eq!(client.near.stats().disabled, None, "no window has enough requests");
}

/// One request that reads a key; the reports of the servers are complete until then.
fn request_of(client: &mut TestClient, key: &str) -> Option<String> {
    client.confirm();
    let scope = client.scope(None);
    let value = client.read_in(&scope, key);
    scope.end();
    value
}

#[test]
fn a_value_that_the_process_serves_past_its_bound_is_wrong_and_disables_the_strategy() {
    for fraction in [1.0, 0.5] {
        let mut client = coherent_client(fraction);
        request_of(&mut client, "a");
        // Another client's change that the server does not report.
        client.values.insert("a", ("new", -1));
        let mut requests = 0;
        while client.near.stats().disabled.is_none() && requests < 300 {
            client.wait(1);
            // Reads of other keys take the comparisons along.
            client.set("b", "b");
            request_of(&mut client, "b");
            request_of(&mut client, "a");
            requests += 1;
        }
        let reason = client.near.stats().disabled.unwrap();
        assert!(requests > 40, "not before the bound: {requests}");
        let expected = "it served 1 value that had been replaced longer than 50 ms ago";
        assert!(reason.starts_with(expected), "share {fraction}: {reason}");
    }
}

#[test]
fn a_replaced_value_within_its_bound_is_counted_and_not_wrong() {
    let mut client = TestClient::with_options("strategy lru:9", |options| {
        options.share = Some(RolloutShare { fraction: 0.5, by: ShareBy::Request });
        options.near_ttl = Some(std::time::Duration::from_secs(3));
        options.near_check = 1.0;
    });
    for (number, value) in ["new", "newer", "newest"].into_iter().cycle().take(900).enumerate() {
        client.values.insert("a", (value, -1));
        client.wait(100);
        request_of(&mut client, if number % 7 == 0 { "b" } else { "a" });
    }
    let process_cache = client.near.current();
    let checks = process_cache.state().rollout.process_rollout().value_checks();
    assert!(checks.compared > 100 && checks.differing > 50, "{checks:?}");
    assert_eq!((checks.wrong, client.near.stats().disabled), (0, None));
}

#[test]
fn comparisons_need_keys_and_one_call_for_many_of_them() {
    let mut client = TestClient::with_options("strategy lru:9", |options| {
        options.share = Some(RolloutShare::default());
        options.near_check = 1.0;
        options.near_ttl = Some(std::time::Duration::from_hours(1));
    });
    for _ in 0..320 {
        request_of(&mut client, "a");
    }
    let process_cache = client.near.current();
    let checks = process_cache.state().rollout.process_rollout().value_checks();
    assert!((8..=10).contains(&checks.compared), "{checks:?}");
    assert_eq!(client.take_fetched_keys().len() as u64, 1 + checks.compared);
    let mut unchecked = TestClient::with_options("strategy lru:9", |options| {
        options.share = Some(RolloutShare::default());
        options.near_check = 0.0;
    });
    for _ in 0..320 {
        request_of(&mut unchecked, "a");
    }
    assert_eq!(unchecked.take_fetched_keys(), ["a"]);
}

#[test]
fn the_time_of_decoding_counts_for_the_group_of_the_request_and_not_as_its_wait() {
    let mut client = client_under_rollout("strategy lru:9", 0.5, ShareBy::Request);
    for _ in 0..2000 {
        let scope = client.scope(None);
        read_all(&mut client, &scope, &["a"]);
        scope.add_decode_time(Duration::from_micros(200));
        scope.add_decode_time(Duration::from_micros(360));
        scope.end();
    }
    let process_cache = client.near.current();
    let state = process_cache.state();
    let groups = state.rollout.process_rollout().groups();
    for group in [&groups.control, &groups.strategy] {
        assert!(group.sum.requests > 0);
        assert_eq!(group.sum.decode_ns, group.sum.requests * 560_000);
        assert_eq!(group.sum.added_ns, 0);
    }
}
