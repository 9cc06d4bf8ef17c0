//! A strategy in a share of the requests: what each group reads, what is counted, and how a bad one is disabled.

use std::sync::Arc;

use glasscache_strategy::rollout::rollout_share::{Group, RolloutShare, ShareBy};

use super::super::RequestScope;
use super::super::watch::{ReportLevel, WatchEvent};
use super::TestClient;

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
    let process_rollout = process_cache.state().process_rollout().clone();
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
    let groups = state.process_rollout().groups().clone();
    let (strategy, control) = (groups.strategy, groups.control);
    assert_eq!(strategy.sum.requests + control.sum.requests, 3);
    assert_eq!(strategy.failed_requests + control.failed_requests, 1);
    assert_eq!(strategy.sum.calls + control.sum.calls, 6);
    assert_eq!(strategy.sum.keys + control.sum.keys, 9);
    assert_eq!(strategy.sum.added_ns + control.sum.added_ns, 9_000_000);
}

#[test]
fn a_strategy_that_misses_its_forecast_keeps_nothing_from_then_on_and_warns_once() {
    let lines = "strategy fixed:1+lru:1\nforecast calls 0.5 0.4 0.6\nkey f";
    let mut client = client_under_rollout(lines, 0.1, ShareBy::Request);
    let last_request_number = (1..=2000).find(|_| {
        let scope = client.scope(None);
        read_all(&mut client, &scope, &["a", "b", "c", "f"]);
        scope.end();
        client.near.stats().disabled.is_some()
    });
    assert_eq!(last_request_number, Some(500));
    let warning = client.near.take_warning().unwrap();
    assert!(
        warning.starts_with("the strategy fixed:1+lru:1 has disabled itself: calls is 3.000"),
        "{warning}"
    );
    assert_eq!(client.near.take_warning(), None);
    client.take_fetched_keys();
    let scope = client.scope(None);
    read_all(&mut client, &scope, &["a", "a", "f"]);
    client.read("f");
    assert_eq!(client.take_fetched_keys(), ["a", "a", "f", "f"]);
    assert_eq!(client.near.stats().near_items, 0);
    assert!(client.near.rollout_json().contains("\"disabled\":\"calls is"));
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
    assert_eq!(process_cache.state().process_rollout().warm_up_requests(), 600);
    assert!(process_cache.state().process_rollout().disable_reason().is_none());
}

#[test]
fn a_strategy_whose_watch_is_lost_over_and_over_is_disabled() {
    let lines = "strategy lru:9\nforecast calls 0.02 0.01 0.03";
    let mut client = TestClient::with_options(lines, |options| {
        let by = ShareBy::Request;
        options.share = Some(RolloutShare { fraction: 1.0, by });
        options.is_coherent = true;
    });
    client.near.expect_watches(&[0]);
    let last_request_number = (1..=2000).find(|request_number| {
        if request_number % 5 == 1 {
            client.near.handle_watch_loss(0);
            client.report(WatchEvent::Began(ReportLevel::Changes));
            client.confirm();
        }
        let scope = client.scope(None);
        read_all(&mut client, &scope, &["a", "b"]);
        scope.end();
        client.near.stats().disabled.is_some()
    });
    assert_eq!(last_request_number, Some(1500));
}

#[test]
fn requests_after_an_own_flush_are_excluded_from_the_comparison() {
    let mut client = client_under_rollout(
        "strategy lru:9\nforecast calls 0.02 0.01 0.03",
        1.0,
        ShareBy::Request,
    );
    for request_number in 1..=2000 {
        if request_number % 5 == 1 {
            client.near.clear();
        }
        let scope = client.scope(None);
        read_all(&mut client, &scope, &["a", "b"]);
        scope.end();
    }
    assert_eq!(client.near.stats().disabled, None);
}
