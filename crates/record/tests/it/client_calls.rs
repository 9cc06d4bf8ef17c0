//! Requests recorded through the calls of both clients: every read as issued, in order, with sizes and parents.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use glasscache_client::engine::{Counter, InitialNumber};
use glasscache_client::near::StrategyOptions;
use glasscache_client::options::KeyEncoding;
use glasscache_client::{AsyncClient, Budget, Options, StoreMode};
use glasscache_peers::Peer;
use glasscache_record::{Recorder, read_folder};
use glasscache_sim::trace::log::{NONE, RequestLog};

use crate::either_client::{EitherClient, item, long_timeout, wire_key, with_both};
use crate::live_server::Server;

const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// Ends the recording, however long a busy machine takes for it, and reads the log.
fn read_log(recorder: &Recorder, folder: &Path) -> RequestLog {
    assert!((0..60).any(|_| recorder.close()), "the log stays incomplete");
    read_folder(folder).unwrap().log
}

fn open_recorder(folder: &Path) -> Recorder {
    Recorder::open(glasscache_record::Options::new(folder)).unwrap()
}

fn keys_of_request(log: &RequestLog, request_index: usize) -> Vec<&str> {
    let items = log.requests.items_of(request_index).iter();
    items.map(|&item| log.items.keys[item as usize].as_str()).collect()
}

#[test]
fn each_call_is_recorded_once_whatever_requests_it_takes() {
    let server = Server::start();
    let strategy_file = "glasscache-strategy 1\nstrategy lru:10".parse().unwrap();
    for strategy in [None, Some(StrategyOptions::new(strategy_file))] {
        let options = Options {
            namespace: b"n:".to_vec(),
            keys: KeyEncoding::Base64,
            value_bytes_max: 1000,
            strategy,
            ..long_timeout()
        };
        with_both(&server.address, &options, |either_client| {
            let folder = tempfile::tempdir().unwrap();
            let recorder = open_recorder(folder.path());
            let request = recorder.begin_request().unwrap();
            both!(either_client, delete(wire_key("n:number"), false, &Budget::new(WRITE_TIMEOUT)))
                .unwrap();
            record_calls(either_client, &Budget::new(WRITE_TIMEOUT).recorded_by(Some(&request)));
            both!(either_client, get(wire_key("n:unrecorded"), false, &Budget::new(WRITE_TIMEOUT)))
                .unwrap();
            drop(request);
            let log = read_log(&recorder, folder.path());
            let read_keys = ["a", "absent", "a", "a", "a", "b", "a b", "c"];
            assert_eq!(keys_of_request(&log, 0), read_keys);
            assert_eq!(log.items.keys, ["a", "absent", "course:1", "b", "a b", "c"]);
            assert_eq!(log.items.sizes, [5, 0, 0, 2, 0, 3]);
            assert_eq!(log.items.ttls_s, [100, 0, 0, 100, 0, 60]);
            assert_eq!(log.items.parents, [NONE, 2, NONE, 2, 2, 2]);
            let meta_text = std::fs::read_to_string(folder.path().join("meta.json")).unwrap();
            let compact_meta: String = meta_text.split_whitespace().collect();
            assert!(compact_meta.contains("\"writes\":8}"), "{compact_meta}");
        });
    }
}

/// Eight reads of keys and eight writes.
fn record_calls(either_client: &EitherClient, budget: &Budget<'_>) {
    let course_budget = Budget { parent: Some(b"course:1"), ..*budget };
    let key_a = wire_key("n:a");
    let mode = StoreMode::Set;
    both!(either_client, store(mode, item("n:a", b"12345"), 0, false, budget)).unwrap();
    both!(either_client, get(key_a, false, budget)).unwrap();
    both!(either_client, get(wire_key("n:absent"), false, &course_budget)).unwrap();
    both!(either_client, get(key_a, true, budget)).unwrap();
    both!(either_client, get_and_touch(key_a, 100, budget)).unwrap();
    both!(either_client, inspect(key_a, budget)).unwrap();
    let items = [item("n:b", b"12"), item("n:c", b"123")];
    both!(either_client, store_many(mode, &items, 60, budget)).unwrap();
    let keys = [b"b".as_slice(), b"a b", b"c"];
    both!(either_client, get_many(&keys, &course_budget)).unwrap();
    both!(either_client, delete(wire_key("n:b"), false, budget)).unwrap();
    both!(either_client, touch(wire_key("n:b"), 100, false, budget)).unwrap();
    let initial = InitialNumber { number: 1, flags: 7, digits: "1".to_owned(), exptime: 0 };
    let counter = Counter::new(wire_key("n:number"), 1, false, initial);
    both!(either_client, run_steps(counter, budget)).unwrap();
    both!(either_client, delete_many(&[wire_key("n:c")], budget)).unwrap();
    both!(either_client, store(mode, item("n:b", b"1"), 0, true, budget)).unwrap();
    both!(either_client, store(mode, item("n:b", &[b'x'; 1001]), 0, false, budget)).unwrap_err();
}

#[test]
fn a_hundred_tasks_record_their_own_requests_in_order() {
    let server = Server::start();
    let EitherClient::Tokio(client, runtime) = EitherClient::tokio(&server.address, long_timeout())
    else {
        unreachable!()
    };
    let folder = tempfile::tempdir().unwrap();
    let (client, recorder) = (Arc::new(client), open_recorder(folder.path()));
    runtime.block_on(async {
        let spawn_request =
            |task| tokio::spawn(run_request(client.clone(), recorder.clone(), task));
        for task in (0..100).map(spawn_request).collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
    let log = read_log(&recorder, folder.path());
    assert_eq!((log.requests.len(), recorder.stats().dropped), (100, 0));
    let mut route_names = log.requests.route_names.clone();
    route_names.sort_unstable();
    route_names.dedup();
    assert_eq!(route_names.len(), 100);
    for request_index in 0..100 {
        let route = log.requests.routes[request_index] as usize;
        let task: usize = log.requests.route_names[route].parse().unwrap();
        assert_eq!(keys_of_request(&log, request_index), expected_keys(task), "task {task}");
    }
    for (key, &bytes) in log.items.keys.iter().zip(&log.items.sizes) {
        let (task, _) = key.split_once(':').unwrap();
        let expected = if key.contains(":many") { 0 } else { 1 + task.parse::<u32>().unwrap() };
        assert_eq!(bytes, expected, "{key}");
    }
}

fn expected_keys(task: usize) -> Vec<String> {
    let single_keys = (0..task % 5).map(|step| format!("{task}:{step}"));
    let bulk_keys = [0, 1, 0].map(|number| format!("{task}:many{number}"));
    single_keys.chain(bulk_keys).collect()
}

async fn run_request(client: Arc<AsyncClient>, recorder: Recorder, task: usize) {
    let request = recorder.begin_request().unwrap();
    request.set_route(&task.to_string());
    let budget = Budget::new(WRITE_TIMEOUT).recorded_by(Some(&request));
    let keys = expected_keys(task);
    let (single_keys, bulk_keys) = keys.split_at(task % 5);
    for key in single_keys {
        let body = vec![b'x'; task + 1];
        let store_call = client.store(StoreMode::Set, item(key, &body), 0, false, &budget);
        store_call.await.unwrap();
        client.get(wire_key(key), false, &budget).await.unwrap();
        tokio::task::yield_now().await;
    }
    let bulk_key_bytes: Vec<&[u8]> = bulk_keys.iter().map(String::as_bytes).collect();
    client.get_many(&bulk_key_bytes, &budget).await.unwrap();
}

#[test]
fn a_call_that_is_given_up_is_no_longer_pending() {
    let address = Peer::silent().address().to_string();
    let EitherClient::Tokio(client, runtime) = EitherClient::tokio(&address, long_timeout()) else {
        unreachable!()
    };
    let folder = tempfile::tempdir().unwrap();
    let recorder = open_recorder(folder.path());
    let request = recorder.begin_request().unwrap();
    let pause = Duration::from_millis(50);
    runtime.block_on(async {
        let budget = Budget::new(WRITE_TIMEOUT).recorded_by(Some(&request));
        let mut call = Box::pin(client.get(wire_key("k"), false, &budget));
        let first_poll = poll_fn(|context| Poll::Ready(call.as_mut().poll(context)));
        assert!(first_poll.await.is_pending());
        drop(call);
        tokio::time::sleep(pause).await;
    });
    drop(request);
    let log = read_log(&recorder, folder.path());
    assert_eq!(keys_of_request(&log, 0), ["k"]);
    // What passes after the call was dropped is the request's own time.
    assert!(u128::from(log.requests.base_times_us[0]) >= pause.as_micros());
}
