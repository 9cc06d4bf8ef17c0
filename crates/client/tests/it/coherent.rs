//! Both clients with a coherent near cache, against a real server: what another client changes is seen without a wait
//! for `near_ttl`, and nothing is served from the process while the server cannot report.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use glasscache_client::near::StrategyOptions;
use glasscache_client::request::Request;
use glasscache_client::{Address, Budget, Options};

use crate::either_client::{EitherClient, long_timeout, wire_key, with_both};
use crate::live_server::Server;

/// What reports may take on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// A near cache that forgets nothing by itself.
fn coherent_options() -> Options {
    let strategy_file = "glasscache-strategy 1\nstrategy lru:10".parse().unwrap();
    Options {
        strategy: Some(StrategyOptions {
            is_coherent: true,
            near_ttl: None,
            ..StrategyOptions::new(strategy_file)
        }),
        namespace: b"n:".to_vec(),
        ..long_timeout()
    }
}

fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "{description}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn count_near_hits(either_client: &EitherClient) -> u64 {
    either_client.core().near().unwrap().stats().local_cache_hits
}

/// Reads a key until the process serves it.
fn read_until_kept(either_client: &EitherClient, key: &str) {
    let hits_before = count_near_hits(either_client);
    wait_until("no value is served from the process", || {
        either_client.get(key).unwrap();
        count_near_hits(either_client) > hits_before
    });
}

/// Something that another client does to `n:a`, whose value is `1`.
type Change = fn(&EitherClient);

#[test]
fn every_change_of_another_client_is_seen() {
    let server = Server::start();
    let other_client = EitherClient::blocking(&server.address, long_timeout());
    let changes: [(&str, Change, Option<&[u8]>); 6] = [
        ("set", |other| _ = other.set("n:a", b"2").unwrap(), Some(b"2")),
        ("set with noreply", |other| _ = other.set_noreply("n:a", b"2").unwrap(), Some(b"2")),
        ("incr", |other| _ = other.add_to("n:a", 1).unwrap(), Some(b"2")),
        ("delete", |other| _ = other.delete("n:a").unwrap(), None),
        ("flush_all", |other| send_request(other, &Request::Flush { delay_s: 0 }), None),
        (
            "flush_prefix",
            |other| {
                send_request(other, &Request::FlushPrefix { prefix: wire_key("n") });
            },
            None,
        ),
    ];
    with_both(&server.address, &coherent_options(), |either_client| {
        for (name, change, expected) in changes {
            other_client.set("n:a", b"1").unwrap();
            wait_until(name, || either_client.bytes("n:a").as_deref() == Some(b"1"));
            read_until_kept(either_client, "n:a");
            change(&other_client);
            wait_until(name, || either_client.bytes("n:a").as_deref() == expected);
        }
    });
}

fn send_request(either_client: &EitherClient, request: &Request<'_>) {
    let budget = Budget::new(WAIT_TIMEOUT);
    for (_, reply) in either_client.core().request_all(*request, &budget).unwrap() {
        reply.unwrap();
    }
}

/// How many connections of a server are watchers.
fn read_watcher_count(server: &Server) -> String {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(b"stats\r\n").unwrap();
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut rows =
        lines.filter_map(|line| Some(line.strip_prefix("STAT log_watchers ")?.to_owned()));
    rows.next().unwrap()
}

#[test]
fn an_expiry_that_another_client_changes_is_seen() {
    let server = Server::start();
    let other_client = EitherClient::blocking(&server.address, long_timeout());
    with_both(&server.address, &coherent_options(), |either_client| {
        other_client.set("n:a", b"1").unwrap();
        read_until_kept(either_client, "n:a");
        other_client.touch("n:a", 1).unwrap();
        // A value that is kept without a TTL would never end.
        wait_until("touch", || either_client.bytes("n:a").is_none());
    });
}

#[test]
fn changes_of_other_namespaces_leave_the_near_cache_alone() {
    let server = Server::start();
    let other_client = EitherClient::blocking(&server.address, long_timeout());
    let either_client = EitherClient::blocking(&server.address, coherent_options());
    for key in ["n:a", "n:b"] {
        other_client.set(key, b"1").unwrap();
        read_until_kept(&either_client, key);
    }
    other_client.set("m:a", b"1").unwrap();
    other_client.set("n:b", b"2").unwrap();
    wait_until("n:b", || either_client.bytes("n:b").as_deref() == Some(b"2"));
    let stats = either_client.core().near().unwrap().stats();
    assert!(stats.changed_by_others >= 1);
    assert_eq!(stats.watch_clears, 0);
}

#[test]
fn a_server_that_ends_clears_the_near_cache() {
    let server = Server::start();
    let other_client = EitherClient::blocking(&server.address, long_timeout());
    with_both(&server.address, &coherent_options(), |either_client| {
        other_client.set("n:a", b"1").unwrap();
        read_until_kept(either_client, "n:a");
    });
    let either_client = EitherClient::blocking(&server.address, coherent_options());
    read_until_kept(&either_client, "n:a");
    drop(server);
    wait_until("the process serves a value of a server that is gone", || {
        either_client.get("n:a").is_err()
    });
    for _ in 0..100 {
        assert!(either_client.get("n:a").is_err(), "nothing is served until the server is back");
    }
    assert!(either_client.core().near().unwrap().stats().watch_clears >= 1);
}

#[test]
fn new_servers_are_watched_once_the_servers_change() {
    let (first, second) = (Server::start(), Server::start());
    let either_client = EitherClient::blocking(&first.address, coherent_options());
    EitherClient::blocking(&first.address, long_timeout()).set("n:a", b"1").unwrap();
    read_until_kept(&either_client, "n:a");
    let other_client = EitherClient::blocking(&second.address, long_timeout());
    other_client.set("n:a", b"2").unwrap();
    let addresses = Address::parse_list(&second.address).unwrap();
    either_client.core().set_servers(&addresses).unwrap();
    assert_eq!(either_client.bytes("n:a").as_deref(), Some(&b"2"[..]), "forgotten at once");
    read_until_kept(&either_client, "n:a");
    other_client.set("n:a", b"3").unwrap();
    wait_until("n:a", || either_client.bytes("n:a").as_deref() == Some(b"3"));
}

#[test]
fn a_watch_begins_with_the_first_read_and_ends_with_the_client() {
    let server = Server::start();
    EitherClient::blocking(&server.address, long_timeout()).set("n:a", b"1").unwrap();
    with_both(&server.address, &coherent_options(), |either_client| {
        assert_eq!(read_watcher_count(&server), "0");
        read_until_kept(either_client, "n:a");
        assert_eq!(read_watcher_count(&server), "1");
        either_client.close();
        wait_until("a closed client watches", || read_watcher_count(&server) == "0");
    });
    let either_client = EitherClient::blocking(&server.address, coherent_options());
    read_until_kept(&either_client, "n:a");
    drop(either_client);
    wait_until("a dropped client watches", || read_watcher_count(&server) == "0");
}
