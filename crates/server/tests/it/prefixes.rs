//! `flush_prefix` and `mf` beside the rest of the server: settings, statistics, listings, watchers, and the bound of
//! prefixes. Their replies to each kind of line are in `conformance/flush_prefix.toml`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "one of several files of tests that share it")]
use crate::live_server;
use std::io::{BufRead, BufReader, Write};

use glasscache_server::{Config, InMemorySession, start};

fn new_server(config: Config) -> InMemorySession {
    InMemorySession::new(config).unwrap()
}

fn send_text(server: &mut InMemorySession, request: &[u8]) -> String {
    String::from_utf8_lossy(&server.feed(request, 10)).into_owned()
}

#[test]
fn a_server_that_refuses_flushes_refuses_those_of_prefixes() {
    let mut server = new_server(Config { flush_enabled: false, ..live_server::config() });
    let refusal = "CLIENT_ERROR flush_prefix not allowed\r\n";
    let replies =
        send_text(&mut server, b"set a 0 0 1\r\n1\r\nflush_prefix a\r\nmf a\r\nget a\r\n");
    assert_eq!(replies, format!("STORED\r\n{refusal}{refusal}VALUE a 0 1\r\n1\r\nEND\r\n"));
}

#[test]
fn listings_and_statistics_agree_about_flushed_items() {
    let mut server = new_server(live_server::config());
    send_text(
        &mut server,
        b"set a:1 0 0 1\r\n1\r\nset b:1 0 0 1\r\n1\r\nmf a: q\r\nflush_prefix a:\r\n",
    );
    let listed = send_text(&mut server, b"lru_crawler metadump all\r\n");
    assert!(listed.contains("key=b%3A1") && !listed.contains("a%3A1"), "{listed}");
    send_text(&mut server, b"get a:1 b:1\r\n");
    let stats = send_text(&mut server, b"stats\r\n");
    for row in ["curr_items 1", "get_hits 1", "get_misses 1", "get_flushed 1", "cmd_flush 0"] {
        assert!(stats.contains(&format!("STAT {row}\r\n")), "{row}: {stats}");
    }
    let stats = send_text(&mut server, b"stats glasscache\r\n");
    for row in ["prefix_flushes 2", "flushed_prefixes 1"] {
        assert!(stats.contains(&format!("STAT {row}\r\n")), "{row}: {stats}");
    }
}

fn flush_many_prefixes(server: &mut InMemorySession, name: &str) {
    for block in 0..64 {
        let lines = (0..1024).map(|line| format!("flush_prefix {name}{block}-{line}: noreply\r\n"));
        let replies = send_text(server, lines.collect::<String>().as_bytes());
        assert_eq!(replies, "");
    }
}

#[test]
fn more_prefixes_than_can_be_remembered_can_be_flushed_while_old_items_stay() {
    let mut server = new_server(live_server::config());
    send_text(&mut server, b"set kept 0 0 1\r\n1\r\nset more 0 0 1\r\n1\r\n");
    for name in ["a", "b", "c"] {
        flush_many_prefixes(&mut server, name);
    }
    let replies = send_text(&mut server, b"flush_prefix mo\r\nmf none q\r\nget kept more\r\n");
    assert_eq!(replies, "OK\r\nVALUE kept 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn a_prefix_beyond_the_maximum_is_refused_with_a_reason_while_an_old_value_is_uploaded() {
    let mut group = InMemorySession::group(live_server::config(), 2).unwrap();
    let mut server = group.pop().unwrap();
    let mut upload = group.pop().unwrap();
    send_text(&mut upload, &[b"set large 0 0 300000\r\n".to_vec(), vec![b'x'; 200_000]].concat());
    flush_many_prefixes(&mut server, "a");
    let refusal = "SERVER_ERROR flush_prefix failed: no more prefixes can be remembered; flush fewer prefixes or everything\r\n";
    let replies =
        send_text(&mut server, b"flush_prefix more\r\nmf more q\r\nflush_prefix a0-0:\r\n");
    assert_eq!(replies, format!("{refusal}{refusal}OK\r\n"));
    drop(upload);
    let replies = send_text(&mut server, b"flush_prefix more\r\n");
    assert_eq!(replies, "OK\r\n");
}

#[test]
fn a_watcher_of_deletions_gets_one_line_for_a_flushed_prefix() {
    let server = start(live_server::config()).unwrap();
    let (mut watcher, mut client) = (live_server::connect(&server), live_server::connect(&server));
    live_server::expect_reply(&mut watcher, b"watch deletions\r\n", b"OK\r\n");
    live_server::expect_reply(
        &mut client,
        b"flush_prefix a b\r\n",
        b"CLIENT_ERROR bad command line format\r\n",
    );
    live_server::expect_reply(&mut client, b"flush_prefix a:\r\nmf YSBi b\r\n", b"OK\r\nHD\r\n");
    client.flush().unwrap();
    let mut lines = BufReader::new(watcher).lines();
    let mut next_line = || lines.next().unwrap().unwrap();
    assert!(next_line().ends_with(" type=prefix_flushed prefix=a%3A cmd=flush_prefix"));
    assert!(next_line().ends_with(" type=prefix_flushed prefix=a%20b cmd=mf"));
}
