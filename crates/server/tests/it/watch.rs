//! `watch` beyond memcached's: every change of an item has a line, a prefix limits the lines, heartbeats follow them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "one of several files of tests that share it")]
use crate::live_server;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;

use glasscache_server::{RunningServer, start};

/// The lines of a watcher, without the time and the number of each.
struct WatchedLines(std::io::Lines<BufReader<TcpStream>>);

impl WatchedLines {
    fn new(server: &RunningServer, arguments: &str) -> Self {
        let mut stream = live_server::connect(server);
        let request = format!("watch {arguments}\r\n");
        live_server::expect_reply(&mut stream, request.as_bytes(), b"OK\r\n");
        Self(BufReader::new(stream).lines())
    }

    fn next(&mut self) -> String {
        let line = self.0.next().unwrap().unwrap();
        let text = line.find("type=").map(|begin| &line[begin..]);
        text.unwrap_or(&line).to_owned()
    }

    /// The next line that is not a heartbeat.
    fn next_change(&mut self) -> String {
        loop {
            let line = self.next();
            if !line.starts_with("type=heartbeat") {
                return line;
            }
        }
    }
}

#[test]
fn every_change_of_an_item_has_a_line() {
    let server = start(live_server::config()).unwrap();
    let mut lines = WatchedLines::new(&server, "mutations deletions");
    let mut client = live_server::connect(&server);
    for (request, reply, expected_start) in [
        ("set a:1 0 0 1\r\n5\r\n", "STORED\r\n", "type=item_store key=a%3A1 status=stored cmd=set"),
        (
            "append a:1 0 0 1\r\n5\r\n",
            "STORED\r\n",
            "type=item_store key=a%3A1 status=stored cmd=append",
        ),
        ("incr a:1 1\r\n", "56\r\n", "type=item_changed key=a%3A1 cmd=incr"),
        ("ma a:1 MD D6\r\n", "HD\r\n", "type=item_changed key=a%3A1 cmd=decr"),
        ("ma new N0 J7\r\n", "HD\r\n", "type=item_changed key=new cmd=incr"),
        ("touch a:1 100\r\n", "TOUCHED\r\n", "type=item_changed key=a%3A1 cmd=touch"),
        ("gat 100 new\r\n", "VALUE new 0 1\r\n7\r\nEND\r\n", "type=item_changed key=new cmd=gat"),
        ("mg new T100\r\n", "HD\r\n", "type=item_changed key=new cmd=mg"),
        ("md new I T30\r\n", "HD\r\n", "type=item_changed key=new cmd=md"),
        ("md new\r\n", "HD\r\n", "type=deleted key=new cmd=md"),
        ("delete a:1\r\n", "DELETED\r\n", "type=deleted key=a%3A1 cmd=delete"),
        ("flush_prefix a:\r\n", "OK\r\n", "type=prefix_flushed prefix=a%3A cmd=flush_prefix"),
        ("flush_all\r\n", "OK\r\n", "type=flush_all delay=0"),
        ("flush_all 5\r\n", "OK\r\n", "type=flush_all delay=5"),
    ] {
        live_server::expect_reply(&mut client, request.as_bytes(), reply.as_bytes());
        let line = lines.next();
        assert!(line.starts_with(expected_start), "{request}: {line}");
    }
    // What changes nothing has no line: the next one is that of the last command.
    live_server::expect_reply(
        &mut client,
        b"touch none 1\r\nincr none 1\r\ndelete none\r\nget none\r\nset z 0 0 1\r\n1\r\n",
        b"NOT_FOUND\r\nNOT_FOUND\r\nNOT_FOUND\r\nEND\r\nSTORED\r\n",
    );
    assert!(lines.next().starts_with("type=item_store key=z "));
}

/// The value of a field of a line.
fn field<'l>(line: &'l str, name: &str) -> &'l str {
    let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
    fields.find_map(|(field_name, value)| (field_name == name).then_some(value)).unwrap()
}

#[test]
fn an_item_that_is_stored_expired_has_a_negative_ttl_without_its_sign() {
    let server = start(live_server::config()).unwrap();
    let mut lines = WatchedLines::new(&server, "mutations");
    let mut client = live_server::connect(&server);
    let mut store_and_read_ttl = |request: &str, reply: &str| -> u32 {
        live_server::expect_reply(&mut client, request.as_bytes(), reply.as_bytes());
        field(&lines.next(), "ttl").parse().unwrap()
    };
    // Negative, and a Unix time that has passed.
    for request in [
        "set a 0 -1 1\r\n1\r\n",
        "set a 0 -100 1\r\n1\r\n",
        "set a 0 2592001 1\r\n1\r\n",
        "add b 0 1000000000 1\r\n1\r\n",
    ] {
        assert!(store_and_read_ttl(request, "STORED\r\n") >= 1 << 31, "{request}");
    }
    assert!(store_and_read_ttl("ms a 1 T-1\r\n1\r\n", "HD\r\n") >= 1 << 31);
    assert_eq!(store_and_read_ttl("set a 0 0 1\r\n1\r\n", "STORED\r\n"), 0);
    let ttl = store_and_read_ttl("set a 0 100 1\r\n1\r\n", "STORED\r\n");
    assert!((99..=100).contains(&ttl), "{ttl}");
    // An append keeps the item's time, and its line has the length of the whole item.
    live_server::expect_reply(&mut client, b"append a 0 0 2\r\n23\r\n", b"STORED\r\n");
    let line = lines.next();
    assert_eq!(field(&line, "size"), "3", "{line}");
    assert!((98..=100).contains(&field(&line, "ttl").parse().unwrap()), "{line}");
}

#[test]
fn an_item_that_a_get_has_created_was_not_found() {
    let server = start(live_server::config()).unwrap();
    let mut lines = WatchedLines::new(&server, "fetchers");
    let mut client = live_server::connect(&server);
    for (request, reply, status) in [
        ("mg a v N30\r\n", "VA 0 W\r\n\r\n", "not_found"),
        ("mg a v N30\r\n", "VA 0 Z\r\n\r\n", "found"),
        ("mg b T30\r\n", "EN\r\n", "not_found"),
    ] {
        live_server::expect_reply(&mut client, request.as_bytes(), reply.as_bytes());
        let line = lines.next();
        assert_eq!(field(&line, "status"), status, "{request}: {line}");
    }
}

#[test]
fn watcher_of_a_prefix_receives_no_lines_of_other_keys() {
    let server = start(live_server::config()).unwrap();
    let mut lines = WatchedLines::new(&server, "mutations deletions prefix=a%3A");
    let mut client = live_server::connect(&server);
    let requests = "set b:1 0 0 1\r\n1\r\nset a:1 0 0 1\r\n1\r\ndelete b:1\r\nflush_prefix b:\r\nflush_all\r\n";
    live_server::expect_reply(
        &mut client,
        requests.as_bytes(),
        b"STORED\r\nSTORED\r\nDELETED\r\nOK\r\nOK\r\n",
    );
    assert!(lines.next().starts_with("type=item_store key=a%3A1 "));
    assert_eq!(lines.next(), "type=flush_all delay=0");
}

#[test]
fn heartbeats_continue_without_changes_and_follow_each_change() {
    let server = start(live_server::config()).unwrap();
    let mut lines = WatchedLines::new(&server, "mutations deletions heartbeat");
    let parse_heartbeat_ms = |line: &str| -> u64 {
        let text = line.strip_prefix("type=heartbeat ms=").unwrap();
        text.parse().unwrap()
    };
    let heartbeats_ms: Vec<u64> = (0..5).map(|_| parse_heartbeat_ms(&lines.next())).collect();
    assert!(heartbeats_ms.is_sorted() && heartbeats_ms[4] > heartbeats_ms[0], "{heartbeats_ms:?}");
    let mut client = live_server::connect(&server);
    live_server::expect_reply(&mut client, b"set a 0 0 1\r\n1\r\n", b"STORED\r\n");
    assert!(lines.next_change().starts_with("type=item_store key=a "));
    assert!(parse_heartbeat_ms(&lines.next()) >= heartbeats_ms[4]);
}

#[test]
fn lines_that_are_pending_when_the_server_stops_are_sent() {
    for _ in 0..10 {
        let server = start(live_server::config()).unwrap();
        let mut lines = WatchedLines::new(&server, "mutations");
        let mut client = live_server::connect(&server);
        live_server::expect_reply(&mut client, b"set a 0 0 1\r\n1\r\n", b"STORED\r\n");
        server.stop();
        assert!(lines.next().starts_with("type=item_store key=a "));
        server.join();
    }
}

#[test]
fn more_watchers_are_admitted_than_memcached_admits() {
    let server = start(live_server::config()).unwrap();
    let mut watchers: Vec<_> =
        (0..40).map(|_| WatchedLines::new(&server, "mutations heartbeat")).collect();
    let mut client = live_server::connect(&server);
    live_server::expect_reply(&mut client, b"set a 0 0 1\r\n1\r\n", b"STORED\r\n");
    for lines in &mut watchers {
        assert!(lines.next_change().starts_with("type=item_store key=a "));
    }
}
