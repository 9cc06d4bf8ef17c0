//! `doctor` on prepared servers, ours and with `MEMCACHED` that one too: the right finding is first, and a healthy server
//! has none.

use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::server::{Server, TestConnection, glasscache, wait_until};

/// A server that is prepared, and what it is.
struct Prepared {
    server: Server,
    name: &'static str,
}

/// A server of each kind with these flags.
fn start_each(flags: &[&str]) -> Vec<Prepared> {
    let mut all = vec![Prepared { server: Server::start(flags), name: "glasscache" }];
    if let Some(path) = std::env::var_os("MEMCACHED") {
        all.push(Prepared { server: Server::memcached_with(&path, flags), name: "memcached" });
    }
    all
}

impl Prepared {
    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
    }

    /// Exit code, and the ids of the findings.
    fn examine(&self, arguments: &[&str]) -> (Option<i32>, Vec<String>) {
        let (code, document) = run_doctor(&[&[self.address().as_str()][..], arguments].concat());
        let findings = document["result"]["findings"].as_array().unwrap();
        for finding in findings {
            for field in ["id", "sentence", "setting", "gain"] {
                assert!(!finding[field].as_str().unwrap().is_empty(), "{field}: {finding}");
            }
            assert!(
                finding["value"].is_number() && finding["server"] == self.address(),
                "{finding}"
            );
        }
        let ids = findings.iter().map(|finding| finding["id"].as_str().unwrap().to_owned());
        (code, ids.collect())
    }

    /// Asserts that no line of the text is longer than a terminal.
    fn assert_text_fits(&self, columns: usize) {
        let mut command = glasscache();
        command.args(["doctor", "--seconds", "0.1", &self.address()]);
        let output = command.env("COLUMNS", columns.to_string()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("\n1. ") && text.contains("change"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
    }

    fn assert_first(&self, expected: &str, arguments: &[&str]) {
        let (code, ids) = self.examine(arguments);
        assert_eq!(ids.first().map(String::as_str), Some(expected), "{}: {ids:?}", self.name);
        assert_eq!(code, Some(1), "{}", self.name);
    }
}

fn run_doctor(arguments: &[&str]) -> (Option<i32>, Value) {
    let output = glasscache()
        .args(["doctor", "--json", "--seconds", "1", "--timeout-ms", "10000"])
        .args(arguments)
        .output()
        .unwrap();
    let document = serde_json::from_slice(&output.stdout);
    (output.status.code(), document.unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

/// Stores keys `k0` to below `count` with values of `value_bytes`.
fn store(
    connection: &mut TestConnection,
    count: usize,
    value_bytes: usize,
    ttl_s: impl Fn(usize) -> usize,
) {
    let value = "x".repeat(value_bytes);
    for first in (0..count).step_by(1000) {
        let mut requests = String::new();
        for index in first..count.min(first + 1000) {
            let _ = write!(
                requests,
                "set k{index} 0 {} {value_bytes} noreply\r\n{value}\r\n",
                ttl_s(index)
            );
        }
        connection.send(requests.as_bytes());
        connection.send(b"mn\r\n");
        connection.read_through(b"MN\r\n");
    }
}

/// TTLs of half an hour to an hour.
fn spread_ttl(index: usize) -> usize {
    1800 + 7 * (index % 257)
}

/// Reads keys `k0` to below `count`; how many were missing.
fn read(connection: &mut TestConnection, count: usize) -> usize {
    let mut missing = 0;
    for index in 0..count {
        connection.send(format!("mg k{index} s\r\n").as_bytes());
        missing += usize::from(connection.read_line() == "EN");
    }
    missing
}

#[test]
fn nothing_is_invented_on_a_healthy_server() {
    for prepared in start_each(&["-m", "64"]) {
        let mut connection = prepared.server.connect();
        store(&mut connection, 20_000, 1000, spread_ttl);
        assert_eq!(read(&mut connection, 20_000), 0);
        assert_eq!(prepared.examine(&[]), (Some(0), vec![]), "{}", prepared.name);
        let text = glasscache()
            .args(["doctor", "--seconds", "0.1", &prepared.address()])
            .output()
            .unwrap();
        let expected = format!("{}: nothing to change.\n", prepared.address());
        assert_eq!(String::from_utf8(text.stdout).unwrap(), expected);
    }
}

#[test]
fn a_memory_that_is_too_small_evicts_what_is_missed() {
    for prepared in start_each(&["-m", "16"]) {
        let mut connection = prepared.server.connect();
        for _ in 0..2 {
            assert!(read(&mut connection, 20_000) > 1000);
            store(&mut connection, 20_000, 2000, spread_ttl);
        }
        prepared.assert_first("too_small", &[]);
    }
}

#[test]
fn a_memory_that_is_too_large_was_never_filled() {
    for prepared in start_each(&["-m", "1024"]) {
        let mut connection = prepared.server.connect();
        store(&mut connection, 1000, 1000, spread_ttl);
        read(&mut connection, 1000);
        prepared.assert_first("too_large", &[]);
    }
}

#[test]
fn one_hot_key_is_seen_while_it_is_read() {
    for prepared in start_each(&["-m", "64"]) {
        let mut connection = prepared.server.connect();
        store(&mut connection, 1000, 100, spread_ttl);
        let is_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for index in (0..1000).cycle().take_while(|_| !is_ended.load(Ordering::Relaxed)) {
                    connection.send(format!("get k7\r\nget k{index}\r\n").as_bytes());
                    connection.read_through(b"END\r\n");
                    connection.read_through(b"END\r\n");
                }
            });
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| prepared.examine(&[])));
            is_ended.store(true, Ordering::Relaxed);
            let (code, ids) = outcome.unwrap();
            assert_eq!((code, ids.first().unwrap().as_str()), (Some(1), "one_hot_key"));
        });
    }
}

#[test]
fn huge_values_take_the_memory() {
    for prepared in start_each(&["-m", "64"]) {
        let mut connection = prepared.server.connect();
        store(&mut connection, 40, 500_000, spread_ttl);
        read(&mut connection, 40);
        prepared.assert_first("huge_values", &[]);
    }
}

#[test]
fn items_without_ttl_and_items_that_expire_together() {
    for (ttl_s, expected) in [(0, "no_ttls"), (3600, "ttls_alike")] {
        for prepared in start_each(&["-m", "64"]) {
            let mut connection = prepared.server.connect();
            store(&mut connection, 2000, 1000, |_| ttl_s);
            read(&mut connection, 2000);
            prepared.assert_first(expected, &[]);
            prepared.assert_text_fits(60);
        }
    }
}

#[test]
fn a_flood_of_sets_that_are_never_read() {
    for prepared in start_each(&["-m", "64"]) {
        let mut connection = prepared.server.connect();
        store(&mut connection, 20_000, 500, spread_ttl);
        for _ in 0..5 {
            read(&mut connection, 1000);
        }
        prepared.assert_first("never_read_sets", &[]);
    }
}

#[test]
fn connections_that_are_refused_used_up_or_idle() {
    for prepared in start_each(&["-m", "64", "-c", "50"]) {
        let mut first = prepared.server.connect();
        let mut held = Vec::new();
        for _ in 0..60 {
            let mut connection = prepared.server.connect();
            connection.send(b"version\r\n");
            if connection.read_line_or_end().starts_with("VERSION") {
                held.push(connection);
            }
        }
        // memcached counts its own descriptors too.
        assert!((20..50).contains(&held.len()), "{}", held.len());
        prepared.assert_first("connections_full", &[]);
        drop(held);
        wait_until(|| {
            first.send(b"stats\r\n");
            let reply = String::from_utf8(first.read_through(b"END\r\n")).unwrap();
            reply.lines().any(|line| {
                let count = line.strip_prefix("STAT curr_connections ");
                count.is_some_and(|count| count.parse::<u32>().unwrap() < 10)
            })
        });
        prepared.assert_first("refused_connections", &[]);
    }
    for prepared in start_each(&["-m", "64", "-c", "100"]) {
        let held: Vec<TestConnection> = (0..60).map(|_| prepared.server.connect()).collect();
        std::thread::sleep(std::time::Duration::from_secs(2));
        prepared.assert_first("dead_client_pool", &[]);
        drop(held);
    }
}

#[test]
fn swap_is_read_from_prepared_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("status"), "VmRSS:\t 40000 kB\nVmSwap:\t 20000 kB\n")
        .unwrap();
    let path = folder.path().to_str().unwrap();
    for prepared in start_each(&["-m", "64"]) {
        prepared.assert_first("swap", &["--proc", path]);
    }
}

#[test]
fn several_servers_are_sorted_by_importance_and_a_dead_one_leaves_the_others() {
    let (without_ttl, too_large) = (Server::start(&["-m", "64"]), Server::start(&["-m", "1024"]));
    store(&mut without_ttl.connect(), 1000, 100, |_| 0);
    store(&mut too_large.connect(), 1000, 100, spread_ttl);
    for server in [&without_ttl, &too_large] {
        read(&mut server.connect(), 1000);
    }
    let [first, second] = [&without_ttl, &too_large].map(Server::address);
    let (code, document) = run_doctor(&[&first, "127.0.0.1:1", &second, "--light"]);
    let ids: Vec<&Value> =
        document["result"]["findings"].as_array().unwrap().iter().map(|row| &row["id"]).collect();
    assert_eq!((code, ids), (Some(3), vec![&Value::from("too_large")]));
    let (_, document) = run_doctor(&[&first, &second]);
    let findings = document["result"]["findings"].as_array().unwrap();
    let servers: Vec<&Value> = findings.iter().map(|row| &row["server"]).collect();
    assert_eq!(servers, [second.as_str(), first.as_str()]);
    assert_eq!(document["result"]["servers"].as_array().unwrap().len(), 2);
}
