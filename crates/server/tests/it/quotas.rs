//! Large transfers in quotas: complete, in order, and without delaying small ones.

use std::io::{Read, Write};

use glasscache_server::{Config, RunningServer, start};

use crate::live_server::{config, connect, expect_reply};

const LARGE_BYTES: usize = 1_000_000;

fn large_value(seed: usize) -> Vec<u8> {
    (0..LARGE_BYTES).map(|index| (index * 7 + seed) as u8).collect()
}

/// A storage command with a large value.
fn set_request(key: &str, seed: usize) -> Vec<u8> {
    let line = format!("set {key} 0 0 {LARGE_BYTES}\r\n").into_bytes();
    [line, large_value(seed), b"\r\n".to_vec()].concat()
}

/// The reply to a get of it.
fn get_reply(key: &str, seed: usize) -> Vec<u8> {
    let line = format!("VALUE {key} 0 {LARGE_BYTES}\r\n").into_bytes();
    [line, large_value(seed), b"\r\nEND\r\n".to_vec()].concat()
}

#[test]
fn replies_after_large_values_keep_their_order() {
    let server = start(config()).unwrap();
    let mut client = connect(&server);
    expect_reply(&mut client, &set_request("a", 1), b"STORED\r\n");
    expect_reply(&mut client, &set_request("b", 2), b"STORED\r\n");
    let replies = [&get_reply("a", 1)[..], b"MN\r\n", &get_reply("b", 2)].concat();
    expect_reply(&mut client, b"get a\r\nmn\r\nget b\r\n", &replies);
    client.write_all(b"get b a\r\nquit\r\n").unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    let (reply_of_b, reply_of_a) = (get_reply("b", 2), get_reply("a", 1));
    let value_of_b = reply_of_b.strip_suffix(b"END\r\n").unwrap();
    let expected = [value_of_b, &reply_of_a].concat();
    assert!(received == expected, "{} bytes", received.len());
}

#[test]
fn a_megabyte_yields_to_others() {
    let one_worker = Config { workers: 1, ..config() };
    let server = start(one_worker).unwrap();
    let mut client = connect(&server);
    expect_reply(&mut client, &set_request("a", 1), b"STORED\r\n");
    let yields_before = read_yield_count(&server);
    // A transfer is cut while there are small requests, and for a tenth of a second after one.
    let has_yielded = (0..50).any(|_| {
        expect_reply(&mut client, b"mn\r\n", b"MN\r\n");
        expect_reply(&mut client, b"get a\r\n", &get_reply("a", 1));
        read_yield_count(&server) > yields_before
    });
    assert!(has_yielded);
}

#[test]
fn a_reply_of_many_large_values_without_small_requests_is_sent_in_few_runs() {
    const KEYS: usize = 55;
    const VALUE_BYTES: usize = 20_000;
    let one_worker = Config { workers: 1, ..config() };
    let server = start(one_worker).unwrap();
    let mut client = connect(&server);
    let value = "v".repeat(VALUE_BYTES);
    let (mut words, mut value_lines) = (vec!["get".to_owned()], Vec::new());
    for number in 0..KEYS {
        let set_request = format!("set k{number} 0 0 {VALUE_BYTES}\r\n{value}\r\n");
        expect_reply(&mut client, set_request.as_bytes(), b"STORED\r\n");
        words.push(format!("k{number}"));
        value_lines.push(format!("VALUE k{number} 0 {VALUE_BYTES}\r\n{value}\r\n"));
    }
    let line = words.join(" ") + "\r\n";
    let reply = value_lines.concat() + "END\r\n";
    // `stats` is a small request, after which the first replies of each series are cut: they count less in a longer
    // series. The last run of each reply sends little, and must not count as a small request.
    let mut reply_count = 50;
    let yields_per_reply = std::iter::from_fn(|| {
        let yields_before = read_yield_count(&server);
        for _ in 0..reply_count {
            expect_reply(&mut client, line.as_bytes(), reply.as_bytes());
        }
        let yields = (read_yield_count(&server) - yields_before) / reply_count;
        reply_count *= 2;
        Some(yields)
    });
    let fewest = yields_per_reply.take(6).find(|yields| *yields <= 4);
    assert!(fewest.is_some());
}

/// How often a connection yielded to others.
fn read_yield_count(server: &RunningServer) -> u64 {
    let mut client = connect(server);
    client.write_all(b"stats\r\nquit\r\n").unwrap();
    let mut rows = String::new();
    client.read_to_string(&mut rows).unwrap();
    let row = rows.lines().find_map(|row| row.strip_prefix("STAT conn_yields "));
    row.unwrap().parse().unwrap()
}

#[test]
fn large_and_small_requests_at_the_same_time_all_get_their_replies() {
    let one_worker = Config { workers: 1, ..config() };
    let server = start(one_worker).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let server = &server;
            scope.spawn(move || {
                let (mut client, key) = (connect(server), format!("k{}", seed % 3));
                for round in 0..10 {
                    expect_reply(
                        &mut client,
                        &set_request(&format!("own{seed}"), round),
                        b"STORED\r\n",
                    );
                    expect_reply(
                        &mut client,
                        format!("get own{seed}\r\n").as_bytes(),
                        &get_reply(&format!("own{seed}"), round),
                    );
                    let small_requests = format!("set {key} 0 0 1\r\nx\r\nget {key}\r\n");
                    let reply = format!("STORED\r\nVALUE {key} 0 1\r\nx\r\nEND\r\n");
                    expect_reply(&mut client, small_requests.as_bytes(), reply.as_bytes());
                }
            });
        }
    });
}
