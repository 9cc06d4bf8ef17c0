//! Through every fault of a server: no wrong value, no return after the deadline, and recovery afterwards.

use std::thread;
use std::time::{Duration, Instant};

use glasscache_client::client::Value;
use glasscache_client::{Error, Options};

use crate::either_client::{EitherClient, item, with_both};
use glasscache_peers::{BEHAVIOURS, Behaviour, FaultyServer, value_of};

const TIMEOUT: Duration = Duration::from_millis(150);

/// How much later than its deadline a call may return here, where other tests keep the machine busy;
/// `make faults` checks the bound of 100 ms.
const OVERRUN_MAX: Duration = Duration::from_millis(600);

fn short_timeout() -> Options {
    Options { timeout: TIMEOUT, ..Options::default() }
}

fn numbered_keys() -> Vec<String> {
    (0..20).map(|number| format!("k{number}")).collect()
}

fn assert_own_value_or_none(key: &str, value: Option<&Value>) {
    if let Some(value) = value {
        assert!(value.bytes == value_of(key), "{key}: {value:?}");
    }
}

/// Makes calls of every shape, and checks each value and how long each call took.
fn try_all_calls(either_client: &EitherClient, keys: &[String], behaviour: Behaviour) {
    let assert_in_time = |method: &str, call: &dyn Fn()| {
        let begin = Instant::now();
        call();
        let elapsed = begin.elapsed();
        assert!(elapsed < TIMEOUT + OVERRUN_MAX, "{behaviour:?}, {method}: {elapsed:?}");
    };
    let key_refs: Vec<&str> = keys.iter().map(String::as_str).collect();
    for key in &keys[..4] {
        assert_in_time("get", &|| {
            if let Ok(value) = either_client.get(key) {
                assert_own_value_or_none(key, value.as_ref());
            }
        });
    }
    assert_in_time("get_many", &|| {
        let (values, _) = either_client.get_many(&key_refs).unwrap();
        for (index, _, bytes) in values {
            assert!(bytes == value_of(&keys[index]), "{}", keys[index]);
        }
    });
    assert_in_time("set", &|| drop(either_client.set("k1", &value_of("k1"))));
    assert_in_time("store_many", &|| {
        let values = [value_of("k2"), value_of("k3")];
        drop(either_client.store_many(&[item("k2", &values[0]), item("k3", &values[1])]));
    });
    assert_in_time("delete", &|| drop(either_client.delete("k19")));
}

fn wait_until_recovered(either_client: &EitherClient) {
    let begin = Instant::now();
    while either_client.get("k5").is_err() {
        assert!(begin.elapsed() < Duration::from_secs(5), "never used again");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn no_fault_causes_a_wrong_value_or_a_return_after_the_deadline() {
    thread::scope(|scope| {
        for &behaviour in BEHAVIOURS {
            scope.spawn(move || {
                let keys = numbered_keys();
                let server = FaultyServer::with_keys(&keys);
                with_both(&server.address, &short_timeout(), |either_client| {
                    wait_until_recovered(either_client);
                    server.set_behaviour(behaviour);
                    try_all_calls(either_client, &keys, behaviour);
                    server.set_behaviour(Behaviour::Correct);
                    wait_until_recovered(either_client);
                    for key in keys.iter().cycle().take(60) {
                        let value = either_client.get(key);
                        if let Ok(value) = value {
                            assert_own_value_or_none(key, value.as_ref());
                        }
                    }
                });
            });
        }
    });
}

#[test]
fn a_write_without_a_reply_leaves_no_older_value() {
    for behaviour in [Behaviour::Hang, Behaviour::HalfThenClose, Behaviour::Garbage] {
        let keys = numbered_keys();
        let server = FaultyServer::with_keys(&keys);
        with_both(&server.address, &short_timeout(), |either_client| {
            wait_until_recovered(either_client);
            server.set_behaviour(behaviour);
            assert!(either_client.set("k0", b"new").is_err());
            server.set_behaviour(Behaviour::Correct);
            wait_until_recovered(either_client);
            assert_eq!(either_client.get("k0"), Ok(None), "{behaviour:?}");
        });
    }
}

#[test]
fn a_stale_connection_is_replaced_without_an_error() {
    let keys = numbered_keys();
    let server = FaultyServer::with_keys(&keys);
    let long_timeout = crate::either_client::long_timeout();
    with_both(&server.address, &long_timeout, |either_client| {
        for _ in 0..5 {
            assert_eq!(either_client.bytes("k0").unwrap(), value_of("k0"));
            server.peer.drop_connections();
            assert_eq!(either_client.bytes("k1").unwrap(), value_of("k1"));
        }
    });
}

#[test]
fn a_connection_past_a_deadline_is_closed_and_never_used_again() {
    let keys = numbered_keys();
    let server = FaultyServer::with_keys(&keys);
    with_both(&server.address, &short_timeout(), |either_client| {
        wait_until_recovered(either_client);
        let accepted_before = server.peer.accepted_connections();
        server.set_behaviour(Behaviour::Late);
        assert!(matches!(either_client.get("k3"), Err(Error::Deadline(_))));
        server.set_behaviour(Behaviour::Correct);
        // On a busy machine a good server may exceed the deadline too, which is another fault.
        let begin = Instant::now();
        let value = loop {
            match either_client.get("k4") {
                Ok(value) => break value.map(|value| value.bytes),
                Err(error) => assert!(begin.elapsed() < Duration::from_secs(5), "{error}"),
            }
        };
        assert_eq!(value, Some(value_of("k4")));
        assert!(
            server.peer.accepted_connections() > accepted_before,
            "the late connection was used"
        );
    });
}

#[test]
fn a_server_that_is_down_is_reported_at_once() {
    let closed_address = FaultyServer::start().address.clone();
    with_both(&closed_address, &short_timeout(), |either_client| {
        let error = either_client.get("k").unwrap_err();
        assert!(
            matches!(&error, Error::Unavailable(context, _) if context.server == closed_address)
        );
        let begin = Instant::now();
        for _ in 0..100 {
            assert!(either_client.get("k").is_err());
        }
        assert!(begin.elapsed() < Duration::from_millis(500));
    });
}

#[test]
fn tasks_and_threads_share_a_client_through_every_fault() {
    let keys = numbered_keys();
    let server = FaultyServer::with_keys(&keys);
    with_both(&server.address, &short_timeout(), |either_client| {
        let end = Instant::now() + Duration::from_secs(2);
        thread::scope(|scope| {
            for thread_index in 0..8 {
                let keys = &keys;
                scope.spawn(move || {
                    let mut key_index = thread_index;
                    while Instant::now() < end {
                        let key = &keys[key_index % keys.len()];
                        key_index += 7;
                        if let Ok(value) = either_client.get(key) {
                            assert_own_value_or_none(key, value.as_ref());
                        }
                    }
                });
            }
            for &behaviour in BEHAVIOURS {
                server.set_behaviour(behaviour);
                thread::sleep(Duration::from_millis(50));
                server.set_behaviour(Behaviour::Correct);
                thread::sleep(Duration::from_millis(50));
            }
        });
    });
}
