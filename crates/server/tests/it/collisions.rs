//! A client that knows the seed sends keys of one bucket of the first table; other clients must hardly notice.
//!
//! The attacker sets, reads, overwrites and deletes each of its keys and must find each change at once. The measured client
//! reads and writes keys of other buckets, none of which may be missed. Its latencies are printed and decide
//! nothing: without an attack, during the same commands with ordinary keys, and during those with the colliding
//! ones. `GLASSCACHE_TEST_COLLISIONS` is the number of keys (default 4,000; `make collisions` uses a million).

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::format_push_string,
    reason = "a test fails by a panic, and builds its batches once"
)]

#[allow(dead_code, reason = "one of several files of tests that share it")]
use crate::live_server;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use glasscache_server::{Config, RunningServer, start};
use glasscache_store::Store;

/// Buckets of the first table of a store of 64 MiB: one segment of 128 KiB.
const BUCKETS: u64 = 2048;
const ATTACKED_BUCKET: u64 = 5;
/// Keys whose commands the attacker sends in one packet.
const KEYS_PER_PACKET: usize = 8;
const MEASURED_KEYS: usize = 1000;
/// Connections that must be served after the attack: more than there are workers.
const CONNECTIONS_AFTER: usize = 8;
const BASELINE_REQUESTS: usize = 4000;

fn store_with_the_seed() -> std::sync::Arc<Store> {
    Store::new(glasscache_store::Config {
        hash_seed: live_server::config().hash_seed.unwrap(),
        ..glasscache_store::Config::default()
    })
    .unwrap()
}

fn connect(server: &RunningServer) -> TcpStream {
    let stream = live_server::connect(server);
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream
}

fn send(stream: &mut TcpStream, request: &[u8], reply_bytes: usize) -> Vec<u8> {
    stream.write_all(request).unwrap();
    let mut reply = vec![0; reply_bytes];
    stream.read_exact(&mut reply).unwrap();
    reply
}

/// Keys of the attacked bucket, searched by as many threads as there are cores.
fn find_colliding_keys(key_count: usize) -> Vec<String> {
    let store = store_with_the_seed();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let keys_per_thread = key_count.div_ceil(threads);
    std::thread::scope(|scope| {
        let search = |thread_index: usize| {
            let store = &store;
            scope.spawn(move || -> Vec<String> {
                (0u64..)
                    .map(|number| format!("{thread_index}{number:x}"))
                    .filter(|key| store.hash(key.as_bytes()).0 % BUCKETS == ATTACKED_BUCKET)
                    .take(keys_per_thread)
                    .collect()
            })
        };
        let searches: Vec<_> = (0..threads).map(search).collect();
        let mut keys: Vec<String> =
            searches.into_iter().flat_map(|keys| keys.join().unwrap()).collect();
        keys.truncate(key_count);
        keys
    })
}

/// Sets, reads, overwrites, reads, deletes and misses each key.
fn change_keys_repeatedly(server: &RunningServer, keys: &[String]) {
    let mut stream = connect(server);
    for packet in keys.chunks(KEYS_PER_PACKET) {
        let (mut request, mut reply) = (String::new(), String::new());
        for (number, key) in packet.iter().enumerate() {
            request +=
                &format!("ms {key} 1\r\na\r\nmg {key} v\r\nms {key} 2\r\nbb\r\nmg {key} v\r\n");
            reply += "HD\r\nVA 1\r\na\r\nHD\r\nVA 2\r\nbb\r\n";
            if number % 2 == 0 {
                request += &format!("md {key}\r\nmg {key} v\r\n");
                reply += "HD\r\nEN\r\n";
            }
        }
        let actual = send(&mut stream, request.as_bytes(), reply.len());
        assert_eq!(String::from_utf8_lossy(&actual), reply, "for {packet:?}");
    }
}

/// Reads and sometimes writes its own keys, until `is_over`; returns how long each request took.
fn measure_latencies(
    stream: &mut TcpStream,
    keys: &[String],
    is_over: impl Fn(usize) -> bool,
) -> Vec<u64> {
    let mut latencies_ns = Vec::new();
    while !is_over(latencies_ns.len()) {
        let key = &keys[latencies_ns.len() * 7 % keys.len()];
        let started_at = Instant::now();
        if latencies_ns.len() % 10 == 9 {
            let reply = send(stream, format!("ms {key} 1\r\nw\r\n").as_bytes(), 4);
            assert_eq!(reply, b"HD\r\n");
        } else {
            let reply = send(stream, format!("mg {key} v\r\n").as_bytes(), 9);
            assert_eq!(reply, b"VA 1\r\nw\r\n", "a key that nobody attacks is missed");
        }
        latencies_ns.push(started_at.elapsed().as_nanos() as u64);
    }
    latencies_ns
}

fn measure_latencies_during_commands(
    server: &RunningServer,
    stream: &mut TcpStream,
    keys: &[String],
    attacked_keys: &[String],
) -> Vec<u64> {
    let is_attack_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let attacker = scope.spawn(|| {
            change_keys_repeatedly(server, attacked_keys);
            is_attack_over.store(true, Ordering::Relaxed);
        });
        let latencies_ns = measure_latencies(stream, keys, |_| {
            is_attack_over.load(Ordering::Relaxed) || attacker.is_finished()
        });
        attacker.join().unwrap();
        latencies_ns
    })
}

fn print_percentiles(label: &str, latencies_ns: &mut [u64]) {
    latencies_ns.sort_unstable();
    let percentile_us = |fraction: f64| {
        latencies_ns[((latencies_ns.len() - 1) as f64 * fraction) as usize] as f64 / 1000.0
    };
    eprintln!(
        "{label}: {} requests, p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us",
        latencies_ns.len(),
        percentile_us(0.5),
        percentile_us(0.99),
        percentile_us(0.999)
    );
}

#[test]
fn keys_of_one_bucket_delay_only_themselves() {
    let key_count: usize =
        std::env::var("GLASSCACHE_TEST_COLLISIONS").map_or(4000, |text| text.parse().unwrap());
    let server = start(Config { memory_bytes: 64 << 20, ..live_server::config() }).unwrap();
    let store = store_with_the_seed();
    let is_elsewhere = |key: &String| store.hash(key.as_bytes()).0 % BUCKETS != ATTACKED_BUCKET;
    let measured_keys: Vec<String> = (0..)
        .map(|number| format!("measured_client:{number}"))
        .filter(is_elsewhere)
        .take(MEASURED_KEYS)
        .collect();
    let colliding_keys = find_colliding_keys(key_count);
    let ordinary_keys: Vec<String> = (0..key_count).map(|number| format!("o{number:x}")).collect();
    let mut stream = connect(&server);
    for key in &measured_keys {
        let reply = send(&mut stream, format!("ms {key} 1\r\nw\r\n").as_bytes(), 4);
        assert_eq!(reply, b"HD\r\n");
    }
    print_percentiles(
        "baseline",
        &mut measure_latencies(&mut stream, &measured_keys, |request_count| {
            request_count == BASELINE_REQUESTS
        }),
    );
    // Alternately, so that both see the same state of the machine.
    let (mut during_colliding, mut during_ordinary) = (Vec::new(), Vec::new());
    let keys_per_round = key_count.div_ceil(8);
    for (round_colliding_keys, round_ordinary_keys) in
        colliding_keys.chunks(keys_per_round).zip(ordinary_keys.chunks(keys_per_round))
    {
        during_ordinary.extend(measure_latencies_during_commands(
            &server,
            &mut stream,
            &measured_keys,
            round_ordinary_keys,
        ));
        during_colliding.extend(measure_latencies_during_commands(
            &server,
            &mut stream,
            &measured_keys,
            round_colliding_keys,
        ));
    }
    print_percentiles("with ordinary keys", &mut during_ordinary);
    print_percentiles(&format!("with {key_count} colliding keys"), &mut during_colliding);
    for _ in 0..CONNECTIONS_AFTER {
        assert_eq!(send(&mut connect(&server), b"mn\r\n", 4), b"MN\r\n");
    }
}
