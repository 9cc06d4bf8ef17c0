//! Both clients with a strategy, against a real server.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use glasscache_client::error::Phase;
use glasscache_client::near::{RequestScope, StrategyOptions};
use glasscache_client::{Budget, Error, Options, StoreMode};
use glasscache_peers::Peer;

use crate::either_client::{EitherClient, item, long_timeout, wire_key, with_both};
use crate::live_server::Server;

fn near_options(strategy_lines: &str) -> Options {
    let strategy_file = format!("glasscache-strategy 1\n{strategy_lines}").parse().unwrap();
    Options {
        strategy: Some(StrategyOptions::new(strategy_file)),
        namespace: b"n:".to_vec(),
        ..long_timeout()
    }
}

/// Stores values as another process does.
fn store_as_another(server: &Server, keys: &[&str]) {
    let other_client = EitherClient::blocking(&server.address, long_timeout());
    for key in keys {
        other_client.set(&format!("n:{key}"), key.as_bytes()).unwrap();
    }
}

fn count_calls(either_client: &EitherClient) -> u64 {
    either_client.core().near().unwrap().stats().calls
}

#[test]
fn a_value_from_the_process_needs_no_call_and_is_counted_apart() {
    let server = Server::start();
    store_as_another(&server, &["a", "b"]);
    with_both(&server.address, &near_options("strategy lru:10"), |either_client| {
        for _ in 0..3 {
            assert_eq!(either_client.bytes("n:a").unwrap(), b"a");
        }
        assert_eq!(count_calls(either_client), 1);
        assert_eq!(either_client.core().costs().near_hits(), (2, 2));
        let (values, failures) = either_client.get_many(&["a", "b", "nobody"]).unwrap();
        assert!(failures.is_empty());
        assert_eq!(values, [(0, 7, b"a".to_vec()), (1, 7, b"b".to_vec())]);
        assert_eq!(count_calls(either_client), 2);
        assert_eq!(either_client.core().costs().near_hits(), (3, 3));
        assert!(either_client.gets("n:a").unwrap().unwrap().cas > 0, "read from the server");
    });
}

/// Something that changes the value or the expiry of `n:a`.
type Write = fn(&EitherClient);

#[test]
fn every_own_write_is_seen_at_once() {
    let server = Server::start();
    let writes: [(&str, Write); 9] = [
        ("set", |either_client| {
            _ = either_client.set("n:a", b"1").unwrap();
        }),
        ("noreply", |either_client| {
            _ = either_client.set_noreply("n:a", b"1").unwrap();
        }),
        ("append", |either_client| {
            _ = either_client.store(StoreMode::Append, "n:a", b"1").unwrap();
        }),
        ("set many", |either_client| {
            _ = either_client.store_many(&[item("n:a", b"1")]).unwrap();
        }),
        ("incr", |either_client| {
            _ = either_client.add_to("n:a", 1).unwrap();
        }),
        ("touch", |either_client| {
            _ = either_client.touch("n:a", 100).unwrap();
        }),
        ("get and touch", |either_client| {
            _ = either_client.get_and_touch("n:a", 100).unwrap();
        }),
        ("delete", |either_client| {
            _ = either_client.delete("n:a").unwrap();
        }),
        ("delete many", |either_client| {
            _ = either_client.delete_many(&["n:a"]).unwrap();
        }),
    ];
    with_both(&server.address, &near_options("strategy s3fifo:10"), |either_client| {
        for (name, write) in writes {
            either_client.set("n:a", b"0").unwrap();
            either_client.bytes("n:a");
            either_client.bytes("n:a");
            let calls_before = count_calls(either_client);
            write(either_client);
            let read_value = either_client.bytes("n:a");
            assert_eq!(count_calls(either_client), calls_before + 1, "{name}: {read_value:?}");
        }
    });
}

#[test]
fn a_request_reads_its_page_and_children_by_one_call_each_and_no_key_twice() {
    let server = Server::start();
    store_as_another(&server, &["a", "b", "c", "d", "e"]);
    let strategy_lines =
        "strategy fixed:1+subtree:1+children\nkey e\nchild a b\nchild a c\nchild c d";
    with_both(&server.address, &near_options(strategy_lines), |either_client| {
        let scope = either_client.core().request_scope(Some(b"a")).unwrap().unwrap();
        either_client.get_within(&scope, None);
        assert_eq!(count_calls(either_client), 1);
        for key in ["a", "b", "b", "c", "d", "d", "e"] {
            let full_key = format!("n:{key}");
            assert_eq!(either_client.get_within(&scope, Some(&full_key)).unwrap(), key.as_bytes());
        }
        let stats = either_client.core().near().unwrap().stats();
        assert_eq!((stats.calls, stats.keys, stats.used_keys), (2, 4, 4));
        assert_eq!((stats.fixed_set_calls, stats.fixed_loaded, stats.fixed_hits), (1, 1, 1));
    });
}

#[test]
fn threads_share_what_the_process_keeps() {
    let server = Server::start();
    store_as_another(&server, &["a"]);
    let either_client =
        Arc::new(EitherClient::blocking(&server.address, near_options("strategy lru:10")));
    either_client.bytes("n:a");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let either_client = either_client.clone();
            std::thread::spawn(move || {
                (0..100).for_each(|_| assert!(either_client.bytes("n:a").is_some()));
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let stats = either_client.core().near().unwrap().stats();
    assert_eq!((stats.calls, stats.local_cache_hits, stats.reads), (1, 400, 401));
}

/// A budget of a call within a request.
fn budget_within(scope: &Arc<RequestScope>, timeout: Duration) -> Budget<'_> {
    Budget { scope: Some(scope), ..Budget::new(timeout) }
}

fn scope_of(either_client: &EitherClient) -> Arc<RequestScope> {
    either_client.core().request_scope(None).unwrap().unwrap()
}

#[test]
fn threads_of_one_request_fetch_a_key_once() {
    let server = Server::start();
    let keys: Vec<String> = (0..200).map(|number| format!("k{number}")).collect();
    let key_refs: Vec<&str> = keys.iter().map(String::as_str).collect();
    store_as_another(&server, &key_refs);
    let either_client = EitherClient::blocking(&server.address, near_options("strategy remote"));
    let scope = scope_of(&either_client);
    let barrier = Barrier::new(4);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for key in &keys {
                    barrier.wait();
                    let value = either_client.get_within(&scope, Some(&format!("n:{key}")));
                    assert_eq!(value.unwrap(), key.as_bytes());
                }
            });
        }
    });
    let stats = either_client.core().near().unwrap().stats();
    assert_eq!((stats.calls, stats.keys, stats.reads), (200, 200, 800));
    assert_eq!((stats.used_keys, stats.request_scope_hits), (200, 600));
}

/// How many values a task of a request finds.
async fn read_within(
    either_client: &EitherClient,
    scope: &Arc<RequestScope>,
    keys: &[&str],
) -> usize {
    let EitherClient::Tokio(client, _) = either_client else { unreachable!() };
    let near = client.core().near().unwrap().clone();
    let keys: Vec<_> = keys.iter().map(|key| wire_key(key)).collect();
    let budget = budget_within(scope, Duration::from_secs(20));
    let (values, failures) = client.read_near((near, &keys), &budget).await.unwrap();
    assert_eq!(failures, []);
    values.iter().flatten().count()
}

#[test]
fn tasks_of_one_request_fetch_a_key_once() {
    let server = Server::start();
    store_as_another(&server, &["a", "b", "c"]);
    let either_client =
        EitherClient::tokio_on_one_thread(&server.address, near_options("strategy remote"));
    let scope = scope_of(&either_client);
    let found = either_client.block_on(async {
        tokio::join!(
            read_within(&either_client, &scope, &["n:a"]),
            read_within(&either_client, &scope, &["n:b", "n:a", "n:c"]),
            read_within(&either_client, &scope, &["n:c", "n:nobody"]),
            read_within(&either_client, &scope, &["n:nobody"]),
        )
    });
    assert_eq!(found, (1, 3, 1, 0));
    let stats = either_client.core().near().unwrap().stats();
    assert_eq!((stats.calls, stats.keys), (3, 4), "a; b c; nobody");
}

#[test]
fn a_cancelled_task_leaves_its_key_to_the_tasks_that_wait() {
    let server = Server::start();
    store_as_another(&server, &["a"]);
    let either_client =
        EitherClient::tokio_on_one_thread(&server.address, near_options("strategy remote"));
    let scope = scope_of(&either_client);
    either_client.block_on(async {
        let mut first = Box::pin(read_within(&either_client, &scope, &["n:a"]));
        let mut second = Box::pin(read_within(&either_client, &scope, &["n:a"]));
        let mut third = Box::pin(read_within(&either_client, &scope, &["n:a"]));
        tokio::select! {
            biased;
            _ = &mut first => unreachable!("it is connecting"),
            _ = &mut second => unreachable!("it waits for the first"),
            _ = &mut third => unreachable!("it waits for the first"),
            () = std::future::ready(()) => {}
        }
        drop(first);
        assert_eq!(tokio::join!(second, third), (1, 1));
    });
    assert_eq!(count_calls(&either_client), 1, "the first was not finished");
}

#[test]
fn a_read_that_waits_for_another_keeps_its_own_deadline() {
    let address = Peer::silent().address().to_string();
    let (long, short) = (Duration::from_secs(3), Duration::from_millis(200));
    let check = |error: &Error, begin: Instant| {
        let Error::Deadline(context) = error else { panic!("{error}") };
        assert_eq!((context.server.as_str(), context.phase), (address.as_str(), Phase::Read));
        assert!(begin.elapsed() < long / 2, "{:?}", begin.elapsed());
    };
    with_both(&address, &near_options("strategy remote"), |either_client| {
        let (scope, core) = (scope_of(either_client), either_client.core());
        let begin = Instant::now();
        match either_client {
            EitherClient::Blocking(client) => std::thread::scope(|threads| {
                let first = threads.spawn(|| {
                    let budget = budget_within(&scope, long);
                    client.get(wire_key("n:a"), false, &budget)
                });
                std::thread::sleep(short);
                let second = client.get(wire_key("n:a"), false, &budget_within(&scope, short));
                check(&second.unwrap_err(), begin);
                assert!(first.join().unwrap().is_err());
            }),
            EitherClient::Tokio(client, runtime) => runtime.block_on(async {
                let (long_budget, short_budget) =
                    (budget_within(&scope, long), budget_within(&scope, short));
                let first = client.get(wire_key("n:a"), false, &long_budget);
                let second = async {
                    let second_result = client.get(wire_key("n:a"), false, &short_budget).await;
                    check(&second_result.unwrap_err(), begin);
                };
                assert!(tokio::join!(first, second).0.is_err());
            }),
        }
        assert_eq!(core.near().unwrap().stats().calls, 1, "of the first alone");
    });
}
