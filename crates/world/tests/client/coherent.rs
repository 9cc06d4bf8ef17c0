//! Both clients with a coherent near cache, against a real server: what another client changes is seen without a wait
//! for `near_ttl`, and nothing is served from the process while the server cannot report.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use glasscache_client::near::StrategyOptions;
use glasscache_client::request::Request;
use glasscache_client::{Address, Budget, Options};

use crate::face::{Face, patient, plain, with_both};
use crate::real::Server;

/// What reports may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A near cache that forgets nothing by itself.
fn options() -> Options {
    let file = "glasscache-strategy 1\nstrategy lru:10".parse().unwrap();
    Options {
        strategy: Some(StrategyOptions {
            is_coherent: true,
            near_ttl: None,
            ..StrategyOptions::new(file)
        }),
        namespace: b"n:".to_vec(),
        ..patient()
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn near_hits(face: &Face) -> u64 {
    face.core().near().unwrap().stats().local_cache_hits
}

/// Reads a key until the process serves it.
fn read_until_kept(face: &Face, key: &str) {
    let before = near_hits(face);
    wait_until("no value is served from the process", || {
        face.get(key).unwrap();
        near_hits(face) > before
    });
}

/// Something that another client does to `n:a`, whose value is `1`.
type Change = fn(&Face);

#[test]
fn every_change_of_another_client_is_seen() {
    let server = Server::start();
    let other = Face::blocking(&server.address, patient());
    let changes: [(&str, Change, Option<&[u8]>); 6] = [
        (
            "set",
            |other| _ = other.set("n:a", b"2").unwrap(),
            Some(b"2"),
        ),
        (
            "set with noreply",
            |other| _ = other.set_noreply("n:a", b"2").unwrap(),
            Some(b"2"),
        ),
        (
            "incr",
            |other| _ = other.add_to("n:a", 1).unwrap(),
            Some(b"2"),
        ),
        ("delete", |other| _ = other.delete("n:a").unwrap(), None),
        (
            "flush_all",
            |other| request(other, &Request::Flush { delay_s: 0 }),
            None,
        ),
        (
            "flush_prefix",
            |other| request(other, &Request::FlushPrefix { prefix: plain("n") }),
            None,
        ),
    ];
    with_both(&server.address, &options(), |face| {
        for (name, change, expected) in changes {
            other.set("n:a", b"1").unwrap();
            wait_until(name, || face.bytes("n:a").as_deref() == Some(b"1"));
            read_until_kept(face, "n:a");
            change(&other);
            wait_until(name, || face.bytes("n:a").as_deref() == expected);
        }
    });
}

fn request(face: &Face, request: &Request<'_>) {
    let budget = Budget::new(PATIENCE);
    for (_, reply) in face.core().request_all(*request, &budget).unwrap() {
        reply.unwrap();
    }
}

/// How many connections of a server are watchers.
fn watchers(server: &Server) -> String {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(b"stats\r\n").unwrap();
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut rows =
        lines.filter_map(|line| Some(line.strip_prefix("STAT log_watchers ")?.to_owned()));
    rows.next().unwrap()
}

#[test]
fn changed_expiry_of_another_client_is_seen() {
    let server = Server::start();
    let other = Face::blocking(&server.address, patient());
    with_both(&server.address, &options(), |face| {
        other.set("n:a", b"1").unwrap();
        read_until_kept(face, "n:a");
        other.touch("n:a", 1).unwrap();
        // A value that is kept without a TTL would never end.
        wait_until("touch", || face.bytes("n:a").is_none());
    });
}

#[test]
fn changes_of_other_namespaces_leave_the_near_cache_alone() {
    let server = Server::start();
    let other = Face::blocking(&server.address, patient());
    let face = Face::blocking(&server.address, options());
    for key in ["n:a", "n:b"] {
        other.set(key, b"1").unwrap();
        read_until_kept(&face, key);
    }
    other.set("m:a", b"1").unwrap();
    other.set("n:b", b"2").unwrap();
    wait_until("n:b", || face.bytes("n:b").as_deref() == Some(b"2"));
    let stats = face.core().near().unwrap().stats();
    assert!(stats.changed_by_others >= 1);
    assert_eq!(stats.watch_clears, 0);
}

#[test]
fn server_that_ends_takes_the_near_cache_with_it() {
    let server = Server::start();
    let other = Face::blocking(&server.address, patient());
    with_both(&server.address, &options(), |face| {
        other.set("n:a", b"1").unwrap();
        read_until_kept(face, "n:a");
    });
    let face = Face::blocking(&server.address, options());
    read_until_kept(&face, "n:a");
    drop(server);
    wait_until(
        "the process serves a value of a server that is gone",
        || face.get("n:a").is_err(),
    );
    for _ in 0..100 {
        assert!(
            face.get("n:a").is_err(),
            "nothing is served until the server is back"
        );
    }
    assert!(face.core().near().unwrap().stats().watch_clears >= 1);
}

#[test]
fn changed_servers_are_watched_from_then_on() {
    let (first, second) = (Server::start(), Server::start());
    let face = Face::blocking(&first.address, options());
    Face::blocking(&first.address, patient())
        .set("n:a", b"1")
        .unwrap();
    read_until_kept(&face, "n:a");
    let other = Face::blocking(&second.address, patient());
    other.set("n:a", b"2").unwrap();
    let addresses = Address::parse_list(&second.address).unwrap();
    face.core().set_servers(&addresses).unwrap();
    assert_eq!(
        face.bytes("n:a").as_deref(),
        Some(&b"2"[..]),
        "forgotten at once"
    );
    read_until_kept(&face, "n:a");
    other.set("n:a", b"3").unwrap();
    wait_until("n:a", || face.bytes("n:a").as_deref() == Some(b"3"));
}

#[test]
fn watch_begins_with_the_first_read_and_ends_with_the_client() {
    let server = Server::start();
    Face::blocking(&server.address, patient())
        .set("n:a", b"1")
        .unwrap();
    with_both(&server.address, &options(), |face| {
        assert_eq!(watchers(&server), "0");
        read_until_kept(face, "n:a");
        assert_eq!(watchers(&server), "1");
        face.close();
        wait_until("a closed client watches", || watchers(&server) == "0");
    });
    let face = Face::blocking(&server.address, options());
    read_until_kept(&face, "n:a");
    drop(face);
    wait_until("a dropped client watches", || watchers(&server) == "0");
}
