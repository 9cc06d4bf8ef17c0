//! Bursts of quiet writes: gathered by the blocking client, in order, and never lost silently.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use glasscache_client::{Arithmetic, Budget, Client, Options, Placement};

use crate::either_client::{EitherClient, long_timeout, wire_key};
use crate::live_server::Server;
use glasscache_peers::{FaultyServer, value_of};

fn connect_blocking(servers: &str, options: Options) -> Client {
    let addresses = glasscache_client::Address::parse_list(servers).unwrap();
    Client::new(&addresses, Placement::Ketama, options).unwrap()
}

fn add_quietly(client: &Client, key: &str) {
    let arithmetic = Arithmetic { delta: 1, is_decrement: false, initial: Some((1, 0)) };
    let budget = Budget::new(client.options().timeout);
    client.arithmetic(wire_key(key), arithmetic, true, &budget).unwrap();
}

/// Waits until another client finds `value`, however busy the machine is.
fn wait_for_value(reader: &EitherClient, key: &str, value: &[u8]) {
    let end = Instant::now() + Duration::from_secs(20);
    while reader.bytes(key).as_deref() != Some(value) {
        assert!(Instant::now() < end, "{key} has not become {value:?}");
        thread::yield_now();
    }
}

#[test]
fn the_last_write_of_a_burst_arrives_without_another_call() {
    let server = Server::start();
    let reader = EitherClient::blocking(&server.address, long_timeout());
    let client = connect_blocking(&server.address, long_timeout());
    for burst in 1..=20u32 {
        for _ in 0..10 {
            add_quietly(&client, "sum");
        }
        wait_for_value(&reader, "sum", (burst * 10).to_string().as_bytes());
    }
}

#[test]
fn a_burst_arrives_when_its_client_is_dropped_or_closed() {
    let server = Server::start();
    let reader = EitherClient::blocking(&server.address, long_timeout());
    for burst in 1..=20u32 {
        let client = connect_blocking(&server.address, long_timeout());
        for _ in 0..10 {
            add_quietly(&client, "sum");
        }
        if burst % 2 == 0 {
            client.close();
        }
        drop(client);
        wait_for_value(&reader, "sum", (burst * 10).to_string().as_bytes());
    }
}

#[test]
fn threads_of_one_connection_read_what_they_wrote_before() {
    let server = Server::start();
    let one_connection = Options { connections_max: 1, ..long_timeout() };
    let either_client = EitherClient::blocking(&server.address, one_connection);
    thread::scope(|scope| {
        for thread_index in 0..4 {
            let either_client = &either_client;
            scope.spawn(move || {
                let (key, filler) = (format!("key{thread_index}"), [b'x'; 3000]);
                for round in 0..300 {
                    for write_index in 0..round % 25 {
                        let value = format!("{round}.{write_index}");
                        either_client.set_noreply(&key, value.as_bytes()).unwrap();
                        if write_index % 3 == 0 {
                            either_client.set_noreply("filler", &filler).unwrap();
                        }
                    }
                    let last_value = format!("{round}.last");
                    either_client.set_noreply(&key, last_value.as_bytes()).unwrap();
                    assert_eq!(either_client.bytes(&key).unwrap(), last_value.as_bytes());
                }
            });
        }
    });
}

#[test]
fn bulk_calls_to_several_servers_send_bursts_along_and_end() {
    let servers = [Server::start(), Server::start()];
    let addresses = servers.each_ref().map(|server| server.address.as_str());
    let one_connection = Options { connections_max: 1, ..long_timeout() };
    let either_client = EitherClient::blocking(&addresses.join(","), one_connection);
    let keys: Vec<String> = (0..20).map(|number| format!("key{number}")).collect();
    thread::scope(|scope| {
        for thread_index in 0..4 {
            let (either_client, keys) = (&either_client, &keys);
            scope.spawn(move || {
                for round in 0..200 {
                    let own_key = format!("mine{thread_index}.{}", round % 7);
                    for key in keys.iter().skip(round % 5) {
                        either_client.set_noreply(key, b"word").unwrap();
                    }
                    either_client.set_noreply(&own_key, own_key.as_bytes()).unwrap();
                    let requested: Vec<&str> =
                        keys.iter().chain([&own_key]).map(String::as_str).collect();
                    let (values, failures) = either_client.get_many(&requested).unwrap();
                    assert!(failures.is_empty() && values.iter().any(|(index, ..)| *index == 20));
                }
            });
        }
    });
}

#[test]
fn every_write_of_many_threads_is_done_once() {
    let server = Server::start();
    let client = connect_blocking(&server.address, long_timeout());
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| (0..5000).for_each(|_| add_quietly(&client, "sum")));
        }
    });
    let reader = EitherClient::blocking(&server.address, long_timeout());
    wait_for_value(&reader, "sum", b"30000");
}

#[test]
fn writes_that_were_lost_are_counted_and_leave_no_older_value() {
    let keys = vec!["k0".to_owned()];
    let server = FaultyServer::with_keys(&keys);
    let either_client = EitherClient::blocking(&server.address, long_timeout());
    assert_eq!(either_client.bytes("k0").unwrap(), value_of("k0"));
    server.peer.drop_connections();
    for _ in 0..5 {
        either_client.set_noreply("k0", b"new").unwrap();
    }
    let found = either_client.bytes("k0");
    assert!(found.is_none() || found.as_deref() == Some(b"new"), "{found:?}");
    let (_, server_state) = either_client.core().servers().remove(0);
    assert!(server_state.noreply_failures.load(Ordering::Relaxed) >= 1);
}

#[test]
fn a_burst_to_a_server_that_is_gone_is_counted_and_soon_refused() {
    let server = FaultyServer::start();
    let options = Options { timeout: Duration::from_millis(300), ..Options::default() };
    let either_client = EitherClient::blocking(&server.address, options);
    assert_eq!(either_client.get("k"), Ok(None));
    drop(server);
    let end = Instant::now() + Duration::from_secs(20);
    let mut accepted_writes = 0;
    while either_client.set_noreply("k", b"new").is_ok() {
        accepted_writes += 1;
        assert!(Instant::now() < end, "writes to a server that is gone are accepted for ever");
    }
    let (_, server_state) = either_client.core().servers().remove(0);
    let counted_failures = || server_state.noreply_failures.load(Ordering::Relaxed);
    while counted_failures() < accepted_writes {
        assert!(Instant::now() < end, "{} of {accepted_writes} are counted", counted_failures());
        thread::yield_now();
    }
}
