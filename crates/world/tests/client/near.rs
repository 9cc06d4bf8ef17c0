//! Both clients with a strategy, against a real server.

use std::sync::Arc;

use glasscache_client::near::StrategyOptions;
use glasscache_client::{Options, StoreMode};

use crate::face::{Face, item, patient, with_both};
use crate::real::Server;

fn options(lines: &str) -> Options {
    let file = format!("glasscache-strategy 1\n{lines}").parse().unwrap();
    Options {
        strategy: Some(StrategyOptions::new(file)),
        namespace: b"n:".to_vec(),
        ..patient()
    }
}

/// Stores values as another process does.
fn store_as_another(server: &Server, keys: &[&str]) {
    let other = Face::blocking(&server.address, patient());
    for key in keys {
        other.set(&format!("n:{key}"), key.as_bytes()).unwrap();
    }
}

fn calls(face: &Face) -> u64 {
    face.core().near().unwrap().stats().calls
}

#[test]
fn a_value_from_the_process_needs_no_call_and_is_counted_apart() {
    let server = Server::start();
    store_as_another(&server, &["a", "b"]);
    with_both(&server.address, &options("strategy lru:10"), |face| {
        for _ in 0..3 {
            assert_eq!(face.bytes("n:a").unwrap(), b"a");
        }
        assert_eq!(calls(face), 1);
        assert_eq!(face.core().costs().near_hits(), (2, 2));
        let (values, failures) = face.get_many(&["a", "b", "nobody"]).unwrap();
        assert!(failures.is_empty());
        assert_eq!(values, [(0, 7, b"a".to_vec()), (1, 7, b"b".to_vec())]);
        assert_eq!(calls(face), 2);
        assert_eq!(face.core().costs().near_hits(), (3, 3));
        assert!(
            face.gets("n:a").unwrap().unwrap().cas > 0,
            "read from the server"
        );
    });
}

/// Something that changes the value or the expiry of `n:a`.
type Write = fn(&Face);

#[test]
fn every_own_write_is_seen_at_once() {
    let server = Server::start();
    let writes: [(&str, Write); 9] = [
        ("set", |face| _ = face.set("n:a", b"1").unwrap()),
        ("noreply", |face| _ = face.set_noreply("n:a", b"1").unwrap()),
        ("append", |face| {
            _ = face.store(StoreMode::Append, "n:a", b"1").unwrap();
        }),
        ("set many", |face| {
            _ = face.store_many(&[item("n:a", b"1")]).unwrap();
        }),
        ("incr", |face| _ = face.add_to("n:a", 1).unwrap()),
        ("touch", |face| _ = face.touch("n:a", 100).unwrap()),
        ("get and touch", |face| {
            _ = face.get_and_touch("n:a", 100).unwrap();
        }),
        ("delete", |face| _ = face.delete("n:a").unwrap()),
        ("delete many", |face| {
            _ = face.delete_many(&["n:a"]).unwrap();
        }),
    ];
    with_both(&server.address, &options("strategy s3fifo:10"), |face| {
        for (name, write) in writes {
            face.set("n:a", b"0").unwrap();
            face.bytes("n:a");
            face.bytes("n:a");
            let before = calls(face);
            write(face);
            let kept = face.bytes("n:a");
            assert_eq!(calls(face), before + 1, "{name}: {kept:?}");
        }
    });
}

#[test]
fn a_request_reads_its_page_and_children_by_one_call_each_and_no_key_twice() {
    let server = Server::start();
    store_as_another(&server, &["a", "b", "c", "d", "e"]);
    let lines = "strategy fixed:1+subtree:1+children\nkey e\nchild a b\nchild a c\nchild c d";
    with_both(&server.address, &options(lines), |face| {
        let scope = face.core().request_scope(Some(b"a")).unwrap().unwrap();
        face.get_within(&scope, None);
        assert_eq!(calls(face), 1);
        for key in ["a", "b", "b", "c", "d", "d", "e"] {
            let name = format!("n:{key}");
            assert_eq!(
                face.get_within(&scope, Some(&name)).unwrap(),
                key.as_bytes()
            );
        }
        let stats = face.core().near().unwrap().stats();
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
    let face = Arc::new(Face::blocking(&server.address, options("strategy lru:10")));
    face.bytes("n:a");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let face = face.clone();
            std::thread::spawn(move || (0..100).for_each(|_| assert!(face.bytes("n:a").is_some())))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let stats = face.core().near().unwrap().stats();
    assert_eq!(
        (stats.calls, stats.local_cache_hits, stats.reads),
        (1, 400, 401)
    );
}
