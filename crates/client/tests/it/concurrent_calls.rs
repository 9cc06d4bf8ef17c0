//! Concurrent calls: cancelled tasks, many tasks on few connections, all servers at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use glasscache_client::error::Phase;
use glasscache_client::{Budget, Error, Options};

use crate::either_client::{EitherClient, long_timeout, wire_key};
use glasscache_peers::{Behaviour, FaultyServer, LATE_REPLY_DELAY, value_of};

fn numbered_keys() -> Vec<String> {
    (0..20).map(|number| format!("k{number}")).collect()
}

/// Waits until the server has this many connections open.
fn wait_for_open_connections(server: &FaultyServer, open_count: usize) {
    let begin = Instant::now();
    while server.peer.open_connections() != open_count {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "{} open",
            server.peer.open_connections()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_cancelled_call_closes_its_connection_and_the_next_gets_its_own_value() {
    let server = FaultyServer::with_keys(&numbered_keys());
    let either_client = EitherClient::tokio(&server.address, long_timeout());
    let EitherClient::Tokio(client, _) = &either_client else { unreachable!() };
    for round in 0..5 {
        assert_eq!(either_client.bytes("k0").unwrap(), value_of("k0"));
        let accepted_before = server.peer.accepted_connections();
        server.set_behaviour(Behaviour::Late);
        let budget = Budget::new(Duration::from_secs(20));
        let call = client.get(wire_key("k1"), false, &budget);
        let timeout_result = either_client
            .block_on(async { tokio::time::timeout(LATE_REPLY_DELAY / 8, call).await });
        assert!(timeout_result.is_err(), "the call was cancelled");
        server.set_behaviour(Behaviour::Correct);
        for key in numbered_keys() {
            assert_eq!(either_client.bytes(&key).unwrap(), value_of(&key), "round {round}");
        }
        assert_eq!(
            server.peer.accepted_connections(),
            accepted_before + 1,
            "its connection was not used again"
        );
        wait_for_open_connections(&server, 1);
    }
}

#[test]
fn a_cancelled_write_is_uncertain_and_leaves_no_older_value() {
    let server = FaultyServer::with_keys(&numbered_keys());
    let either_client = EitherClient::tokio(&server.address, long_timeout());
    let EitherClient::Tokio(client, _) = &either_client else { unreachable!() };
    assert_eq!(either_client.bytes("k0").unwrap(), value_of("k0"));
    server.set_behaviour(Behaviour::Hang);
    let budget = Budget::new(Duration::from_secs(20));
    let item = crate::either_client::item("k0", b"new");
    let mode = glasscache_client::StoreMode::Set;
    let call = client.store(mode, item, 0, false, &budget);
    let timeout_result = either_client
        .block_on(async { tokio::time::timeout(Duration::from_millis(50), call).await });
    assert!(timeout_result.is_err(), "the call was cancelled");
    server.set_behaviour(Behaviour::Correct);
    assert_eq!(either_client.get("k0"), Ok(None));
}

#[test]
fn a_hundred_tasks_share_two_connections() {
    let server = FaultyServer::with_keys(&numbered_keys());
    let options = Options { connections_max: 2, ..long_timeout() };
    let EitherClient::Tokio(client, runtime) = EitherClient::tokio(&server.address, options) else {
        unreachable!()
    };
    let client = Arc::new(client);
    let tasks: Vec<_> = (0..100)
        .map(|task_index| {
            let client = client.clone();
            runtime.spawn(async move {
                for round in 0..20 {
                    let key = format!("k{}", (task_index + round) % 20);
                    let budget = Budget::new(Duration::from_secs(20));
                    let value = client.get(wire_key(&key), false, &budget).await.unwrap();
                    assert_eq!(value.unwrap().bytes, value_of(&key));
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert!(
        server.peer.accepted_connections() <= 2,
        "{} connections",
        server.peer.accepted_connections()
    );
}

#[test]
fn a_call_without_a_free_connection_reports_it_at_its_deadline() {
    let server = FaultyServer::with_keys(&numbered_keys());
    let options = Options { connections_max: 1, ..long_timeout() };
    let either_client = EitherClient::tokio(&server.address, options);
    assert_eq!(either_client.bytes("k0").unwrap(), value_of("k0"));
    let EitherClient::Tokio(client, _) = &either_client else { unreachable!() };
    server.set_behaviour(Behaviour::Hang);
    let (long_budget, short_budget) =
        (Budget::new(Duration::from_secs(1)), Budget::new(Duration::from_millis(100)));
    let (first, second) = either_client.block_on(async {
        tokio::join!(
            client.get(wire_key("k0"), false, &long_budget),
            client.get(wire_key("k1"), false, &short_budget)
        )
    });
    assert!(matches!(first, Err(Error::Deadline(context)) if context.phase == Phase::Read));
    assert!(matches!(second, Err(Error::Deadline(context)) if context.phase == Phase::Wait));
}

#[test]
fn slow_servers_are_waited_for_together() {
    let keys = numbered_keys();
    let servers: Vec<FaultyServer> = (0..4).map(|_| FaultyServer::with_keys(&keys)).collect();
    let addresses: Vec<&str> = servers.iter().map(|server| server.address.as_str()).collect();
    let address_list = addresses.join(",");
    crate::either_client::with_both(&address_list, &long_timeout(), |either_client| {
        let key_refs: Vec<&str> = keys.iter().map(String::as_str).collect();
        assert_eq!(either_client.get_many(&key_refs).unwrap().0.len(), 20);
        for server in &servers {
            server.set_behaviour(Behaviour::Late);
        }
        let begin = Instant::now();
        assert_eq!(either_client.get_many(&key_refs).unwrap().0.len(), 20);
        let elapsed = begin.elapsed();
        assert!(
            elapsed < LATE_REPLY_DELAY * 2,
            "four servers of {LATE_REPLY_DELAY:?} took {elapsed:?}"
        );
        for server in &servers {
            server.set_behaviour(Behaviour::Correct);
        }
    });
}

#[test]
fn the_keys_of_a_server_that_does_not_reply_are_named() {
    let keys = numbered_keys();
    let (good, bad) = (FaultyServer::with_keys(&keys), FaultyServer::with_keys(&keys));
    let options = Options { timeout: Duration::from_millis(300), ..Options::default() };
    let addresses = format!("{},{}", good.address, bad.address);
    crate::either_client::with_both(&addresses, &options, |either_client| {
        let key_refs: Vec<&str> = keys.iter().map(String::as_str).collect();
        bad.set_behaviour(Behaviour::Correct);
        while either_client.get_many(&key_refs).unwrap().0.len() < 20 {
            std::thread::sleep(Duration::from_millis(5));
        }
        bad.set_behaviour(Behaviour::Hang);
        let (values, failures) = either_client.get_many(&key_refs).unwrap();
        assert_eq!(values.len() + failures.len(), 20);
        for (index, error) in failures {
            assert!(matches!(error, Error::Deadline(context) if context.server == bad.address));
            let slot = either_client.core().slot_of(keys[index].as_bytes());
            assert_eq!(either_client.core().server(slot).unwrap().name, bad.address);
        }
        bad.set_behaviour(Behaviour::Correct);
    });
}
