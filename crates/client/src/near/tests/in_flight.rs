//! Reads of one request at the same time: a key is fetched once, and a read that waits for it never waits for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use glasscache_protocol::meta::request::WireKey;
use glasscache_strategy::rollout::rollout_share::{RolloutShare, ShareBy};

use super::super::{Fetch, NearRead, NearStep, RequestScope};
use super::{TestClient, wire_key};
use crate::error::Error;

/// Counts how often a waiting read was woken.
#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A read under way, as a driver that is a test.
struct DrivenRead {
    read: NearRead,
    /// The call that it makes.
    fetch: Option<Fetch>,
    wake_counter: Arc<WakeCounter>,
}

impl DrivenRead {
    /// Begins a read and does what comes before its first reply.
    fn begin(client: &TestClient, keys: &[&str], scope: Option<&Arc<RequestScope>>) -> Self {
        let keys: Vec<WireKey<'_>> = keys.iter().map(|key| wire_key(key)).collect();
        let mut driven = Self {
            read: NearRead::new(client.near.clone(), &keys, scope.cloned()),
            fetch: None,
            wake_counter: Arc::default(),
        };
        driven.proceed(client);
        driven
    }

    /// Takes the next step, if the read does not make a call.
    fn proceed(&mut self, client: &TestClient) {
        match self.read.step(client.now) {
            Some(NearStep::Fetch(fetch)) => self.fetch = Some(fetch),
            Some(NearStep::Wait) => {
                let waker = Waker::from(self.wake_counter.clone());
                assert!(self.read.poll_wait(&waker).is_pending());
            }
            None => {}
        }
    }

    fn fetched_keys(&self) -> String {
        let keys = self.fetch.as_ref().map(Fetch::keys).unwrap_or_default();
        let names = keys.iter().map(|key| String::from_utf8_lossy(key.bytes));
        names.collect::<Vec<_>>().join(" ")
    }

    fn is_waiting(&mut self, client: &TestClient) -> bool {
        self.fetch.is_none() && matches!(self.read.step(client.now), Some(NearStep::Wait))
    }

    fn wake_count(&self) -> usize {
        self.wake_counter.0.load(Ordering::Relaxed)
    }

    /// Receives the reply to its call, and takes the next step.
    fn receive(&mut self, client: &mut TestClient) {
        let fetch = self.fetch.take().unwrap();
        let (fetched, failures) = client.reply_to(&fetch);
        self.read.finish_fetch(&fetch, fetched, failures, client.now);
        self.proceed(client);
    }

    /// The values of a read that is over, each as text; `-` is a miss, `!` a failure.
    fn values(mut self, client: &TestClient) -> String {
        assert!(self.fetch.is_none() && self.read.step(client.now).is_none());
        let (values, failures) = self.read.finish();
        let to_text = |(index, value): (usize, &Option<_>)| match value {
            Some(super::NearValue { bytes, .. }) => String::from_utf8_lossy(bytes).into_owned(),
            None if failures.iter().any(|(failed_index, _)| *failed_index == index) => {
                "!".to_owned()
            }
            None => "-".to_owned(),
        };
        let texts = values.iter().enumerate().map(to_text);
        texts.collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn read_waits_for_the_fetch_of_another_and_is_served_what_that_brought() {
    let mut client = TestClient::new("strategy remote");
    let scope = client.scope(None);
    let mut first = DrivenRead::begin(&client, &["a"], Some(&scope));
    let mut others: Vec<DrivenRead> =
        (0..3).map(|_| DrivenRead::begin(&client, &["a"], Some(&scope))).collect();
    assert!(others.iter_mut().all(|other| other.is_waiting(&client)));
    first.receive(&mut client);
    assert_eq!(first.values(&client), "a");
    for mut other in others {
        assert_eq!(other.wake_count(), 1);
        other.proceed(&client);
        assert_eq!(other.read.hit_count_and_bytes(), (1, 1));
        assert_eq!(other.values(&client), "a");
    }
    assert_eq!(client.take_fetched_keys(), ["a"]);
    let stats = client.near.stats();
    assert_eq!((stats.reads, stats.request_scope_hits, stats.calls), (4, 3, 1));
    assert_eq!((stats.keys, stats.used_keys), (1, 1));
}

#[test]
fn keys_that_a_fetch_failed_to_bring_are_fetched_by_one_of_those_that_waited() {
    let mut client = TestClient::new("strategy remote");
    let scope = client.scope(None);
    let mut first = DrivenRead::begin(&client, &["a", "b"], Some(&scope));
    let mut second = DrivenRead::begin(&client, &["a"], Some(&scope));
    let mut third = DrivenRead::begin(&client, &["a"], Some(&scope));
    client.is_down = true;
    first.receive(&mut client);
    assert_eq!(first.values(&client), "! !");
    client.is_down = false;
    assert_eq!((second.wake_count(), third.wake_count()), (1, 1));
    second.proceed(&client);
    third.proceed(&client);
    assert_eq!(second.fetched_keys(), "a");
    assert!(third.is_waiting(&client));
    second.receive(&mut client);
    third.proceed(&client);
    assert_eq!(third.values(&client), "a");
    assert_eq!(second.values(&client), "a");
    assert_eq!(client.take_fetched_keys(), ["a b", "a"]);
}

#[test]
fn read_that_is_dropped_leaves_its_keys_to_those_that_wait() {
    let client = TestClient::new("strategy remote");
    let scope = client.scope(None);
    let first = DrivenRead::begin(&client, &["a"], Some(&scope));
    let mut second = DrivenRead::begin(&client, &["a"], Some(&scope));
    assert!(second.is_waiting(&client));
    drop(first);
    assert_eq!(second.wake_count(), 1);
    second.proceed(&client);
    assert_eq!(second.fetched_keys(), "a");
}

#[test]
fn read_fetches_what_no_other_read_does_before_it_waits() {
    let mut client = TestClient::new("strategy remote");
    let scope = client.scope(None);
    let mut first = DrivenRead::begin(&client, &["a", "b"], Some(&scope));
    let mut second = DrivenRead::begin(&client, &["c", "b", "d", "a", "c"], Some(&scope));
    assert_eq!(second.fetched_keys(), "c d");
    second.receive(&mut client);
    assert!(second.is_waiting(&client));
    first.receive(&mut client);
    second.proceed(&client);
    assert_eq!(second.values(&client), "c b d a c");
    assert_eq!(client.take_fetched_keys(), ["c d", "a b"]);
}

#[test]
fn reads_that_need_keys_of_each_other_both_end() {
    let mut client = TestClient::new("strategy remote");
    let scope = client.scope(None);
    let gone = DrivenRead::begin(&client, &["a"], Some(&scope));
    let mut left = DrivenRead::begin(&client, &["a", "b"], Some(&scope));
    let mut right = DrivenRead::begin(&client, &["c", "b", "a"], Some(&scope));
    assert_eq!((left.fetched_keys(), right.fetched_keys()), ("b".into(), "c".into()));
    right.receive(&mut client);
    left.receive(&mut client);
    right.proceed(&client);
    assert!(left.is_waiting(&client) && right.is_waiting(&client));
    drop(gone);
    right.proceed(&client);
    left.proceed(&client);
    assert_eq!((left.fetched_keys(), right.fetched_keys()), (String::new(), "a".into()));
    right.receive(&mut client);
    left.proceed(&client);
    assert_eq!(left.values(&client), "a b");
    assert_eq!(right.values(&client), "c b a");
}

#[test]
fn keys_that_the_rules_fetch_ahead_of_need_are_in_flight_too() {
    let lines = "strategy subtree:1+children+together:50\nchild a b\nchild c d\ntogether e d f\n";
    let mut client = TestClient::new(lines);
    let scope = client.scope(Some("a"));
    let mut page = DrivenRead::begin(&client, &["b"], Some(&scope));
    let mut second = DrivenRead::begin(&client, &["c", "b"], Some(&scope));
    // "d" comes with "c", so that "e" brings "f" alone.
    let mut third = DrivenRead::begin(&client, &["e"], Some(&scope));
    let mut fourth = DrivenRead::begin(&client, &["d", "f"], Some(&scope));
    assert_eq!(page.fetched_keys(), "a b");
    assert_eq!(second.fetched_keys(), "c d");
    assert_eq!(third.fetched_keys(), "e f");
    assert!(fourth.is_waiting(&client));
    for read in [&mut page, &mut second, &mut third] {
        read.receive(&mut client);
    }
    fourth.proceed(&client);
    assert_eq!(page.values(&client), "b");
    assert_eq!(second.values(&client), "c b");
    assert_eq!(third.values(&client), "e");
    assert_eq!(fourth.values(&client), "d f");
    let stats = client.near.stats();
    assert_eq!((stats.calls, stats.keys, stats.used_keys), (3, 6, 5));
}

#[test]
fn miss_serves_the_reads_that_waited_for_it_and_no_later_one() {
    for (lines, key) in
        [("strategy remote", "nobody"), ("strategy children\nchild nobody nothing", "nothing")]
    {
        let mut client = TestClient::new(lines);
        let scope = client.scope(None);
        let mut first = DrivenRead::begin(&client, &["nobody"], Some(&scope));
        let mut others: Vec<DrivenRead> =
            (0..3).map(|_| DrivenRead::begin(&client, &[key], Some(&scope))).collect();
        first.receive(&mut client);
        for other in &mut others {
            other.proceed(&client);
            assert_eq!(other.fetched_keys(), "", "{lines}");
            assert_eq!(other.read.hit_count_and_bytes(), (1, 0));
        }
        client.values.insert(key, ("new", -1)); // by another process
        assert_eq!(client.read_in(&scope, key).as_deref(), Some("new"));
        assert_eq!(client.near.stats().reads, 5);
    }
}

#[test]
fn own_write_during_a_fetch_is_seen_by_the_reads_that_waited_for_it() {
    let mut client = TestClient::new("strategy remote");
    for key in ["a", "nobody"] {
        let scope = client.scope(None);
        let mut first = DrivenRead::begin(&client, &[key], Some(&scope));
        let fetch = first.fetch.take().unwrap();
        let (fetched, failures) = client.reply_to(&fetch);
        client.set(key, "own");
        let mut second = DrivenRead::begin(&client, &[key], Some(&scope));
        assert!(second.is_waiting(&client));
        let now = client.now;
        first.read.finish_fetch(&fetch, fetched, failures, now);
        second.proceed(&client);
        second.receive(&mut client);
        assert_eq!(second.values(&client), "own");
    }
}

#[test]
fn read_whose_time_is_over_fails_alone_and_its_request_is_counted_as_failed() {
    let mut client = TestClient::new("strategy remote");
    let scope = client.scope(None);
    let mut first = DrivenRead::begin(&client, &["a"], Some(&scope));
    let mut second = DrivenRead::begin(&client, &["b", "a", "a"], Some(&scope));
    second.receive(&mut client);
    assert!(second.is_waiting(&client));
    second.read.time_out(|_| Error::Closed);
    assert_eq!(second.read.hit_count_and_bytes(), (0, 0));
    assert_eq!(second.values(&client), "b ! !");
    assert!(scope.state().cost.has_failed);
    first.receive(&mut client);
    assert_eq!(first.values(&client), "a");
    assert_eq!(client.near.stats().reads, 4);
}

#[test]
fn read_that_waits_leaves_one_waker_and_none_when_it_is_dropped() {
    let client = TestClient::new("strategy remote");
    let scope = client.scope(None);
    let first = DrivenRead::begin(&client, &["a"], Some(&scope));
    let mut second = DrivenRead::begin(&client, &["a"], Some(&scope));
    let wake_counter = second.wake_counter.clone();
    let reference_count = Arc::strong_count(&wake_counter);
    for _ in 0..3 {
        second.proceed(&client);
    }
    assert_eq!(Arc::strong_count(&wake_counter), reference_count);
    drop(second);
    assert_eq!(Arc::strong_count(&wake_counter), 1);
    drop(first);
    assert_eq!(wake_counter.0.load(Ordering::Relaxed), 0);
}

#[test]
fn reads_outside_of_requests_and_in_the_control_group_fetch_for_themselves() {
    let client = TestClient::new("strategy lru:9");
    let reads = [(); 2].map(|()| DrivenRead::begin(&client, &["a"], None));
    assert_eq!(reads.map(|read| read.fetched_keys()), ["a", "a"]);
    let client = TestClient::with_options("strategy lru:9", |options| {
        options.share = Some(RolloutShare { fraction: 0.0, by: ShareBy::Request });
    });
    let scope = client.scope(None);
    let reads = [(); 2].map(|()| DrivenRead::begin(&client, &["a"], Some(&scope)));
    assert_eq!(reads.map(|read| read.fetched_keys()), ["a", "a"]);
}
