//! Both clients with a strategy, against a real server.

use std::sync::Arc;

use glasscache_client::near::StrategyOptions;
use glasscache_client::{Options, StoreMode};

use crate::either_client::{EitherClient, item, long_timeout, with_both};
use crate::server_methods::Server;

fn options(lines: &str) -> Options {
    let file = format!("glasscache-strategy 1\n{lines}").parse().unwrap();
    Options {
        strategy: Some(StrategyOptions::new(file)),
        namespace: b"n:".to_vec(),
        ..long_timeout()
    }
}

/// Stores values as another process does.
fn store_as_another(server: &Server, keys: &[&str]) {
    let other = EitherClient::blocking(&server.address, long_timeout());
    for key in keys {
        other.set(&format!("n:{key}"), key.as_bytes()).unwrap();
    }
}

fn calls(either_client: &EitherClient) -> u64 {
    either_client.core().near().unwrap().stats().calls
}

#[test]
fn a_value_from_the_process_needs_no_call_and_is_counted_apart() {
    let server = Server::start();
    store_as_another(&server, &["a", "b"]);
    with_both(
        &server.address,
        &options("strategy lru:10"),
        |either_client| {
            for _ in 0..3 {
                assert_eq!(either_client.bytes("n:a").unwrap(), b"a");
            }
            assert_eq!(calls(either_client), 1);
            assert_eq!(either_client.core().costs().near_hits(), (2, 2));
            let (values, failures) = either_client.get_many(&["a", "b", "nobody"]).unwrap();
            assert!(failures.is_empty());
            assert_eq!(values, [(0, 7, b"a".to_vec()), (1, 7, b"b".to_vec())]);
            assert_eq!(calls(either_client), 2);
            assert_eq!(either_client.core().costs().near_hits(), (3, 3));
            assert!(
                either_client.gets("n:a").unwrap().unwrap().cas > 0,
                "read from the server"
            );
        },
    );
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
    with_both(
        &server.address,
        &options("strategy s3fifo:10"),
        |either_client| {
            for (name, write) in writes {
                either_client.set("n:a", b"0").unwrap();
                either_client.bytes("n:a");
                either_client.bytes("n:a");
                let before = calls(either_client);
                write(either_client);
                let kept = either_client.bytes("n:a");
                assert_eq!(calls(either_client), before + 1, "{name}: {kept:?}");
            }
        },
    );
}

#[test]
fn a_request_reads_its_page_and_children_by_one_call_each_and_no_key_twice() {
    let server = Server::start();
    store_as_another(&server, &["a", "b", "c", "d", "e"]);
    let lines = "strategy fixed:1+subtree:1+children\nkey e\nchild a b\nchild a c\nchild c d";
    with_both(&server.address, &options(lines), |either_client| {
        let scope = either_client
            .core()
            .request_scope(Some(b"a"))
            .unwrap()
            .unwrap();
        either_client.get_within(&scope, None);
        assert_eq!(calls(either_client), 1);
        for key in ["a", "b", "b", "c", "d", "d", "e"] {
            let name = format!("n:{key}");
            assert_eq!(
                either_client.get_within(&scope, Some(&name)).unwrap(),
                key.as_bytes()
            );
        }
        let stats = either_client.core().near().unwrap().stats();
        assert_eq!((stats.calls, stats.keys, stats.used_keys), (2, 4, 4));
        assert_eq!(
            (stats.fixed_set_calls, stats.fixed_loaded, stats.fixed_hits),
            (1, 1, 1)
        );
    });
}

#[test]
fn threads_share_what_the_process_keeps() {
    let server = Server::start();
    store_as_another(&server, &["a"]);
    let either_client = Arc::new(EitherClient::blocking(
        &server.address,
        options("strategy lru:10"),
    ));
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
    assert_eq!(
        (stats.calls, stats.local_cache_hits, stats.reads),
        (1, 400, 401)
    );
}
