//! Against the real server, started in this process: every method, one server and three.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use glasscache_client::request::Request;
use glasscache_client::write_outcome::WriteOutcome;
use glasscache_client::{Error, Options, Protocol, StoreMode};

use crate::either_client::{
    EitherClient, item, long_timeout, with_both, with_both_in_each_protocol,
};
use crate::live_server::Server;

#[test]
fn every_method_does_what_it_documents() {
    let server = Server::start();
    with_both_in_each_protocol(&server.address, &long_timeout(), |either_client| {
        assert_eq!(either_client.delete("k").map(|_| ()), Ok(()));
        assert_eq!(either_client.get("k"), Ok(None));
        assert_eq!(either_client.set("k", b"one"), Ok(WriteOutcome::Done));
        let value = either_client.gets("k").unwrap().unwrap();
        assert_eq!((value.flags, value.bytes.as_slice()), (7, &b"one"[..]));
        assert_eq!(either_client.store(StoreMode::Add, "k", b"x"), Ok(WriteOutcome::NotStored));
        assert_eq!(either_client.store(StoreMode::Replace, "k", b"two"), Ok(WriteOutcome::Done));
        assert_eq!(
            either_client.store(StoreMode::Cas(value.cas), "k", b"x"),
            Ok(WriteOutcome::Exists)
        );
        assert_eq!(either_client.store(StoreMode::Append, "k", b"!"), Ok(WriteOutcome::Done));
        assert_eq!(either_client.store(StoreMode::Prepend, "k", b"<"), Ok(WriteOutcome::Done));
        assert_eq!(either_client.bytes("k").unwrap(), b"<two!");
        assert_eq!(either_client.touch("k", 100), Ok(true));
        assert_eq!(either_client.touch("nobody", 100), Ok(false));
        let ttl_s = || match either_client.inspect("k") {
            Ok(item) => item.unwrap().1.ttl_s,
            Err(error) => {
                assert!(matches!(error, Error::Unsupported { .. }), "{error}");
                None
            }
        };
        let is_binary = either_client.core().options().protocol == Protocol::Binary;
        assert_eq!(ttl_s(), (!is_binary).then_some(100));
        assert!(either_client.get_and_touch("k", 0).unwrap().is_some());
        assert_eq!(ttl_s(), (!is_binary).then_some(-1));
        assert!(either_client.get_and_touch("nobody", 0).unwrap().is_none());
        assert_eq!(either_client.delete("n").map(|_| ()), Ok(()));
        assert_eq!(either_client.add_to("n", 5), Ok(Some(5)));
        assert_eq!(either_client.add_to("n", 5), Ok(Some(10)));
        assert_eq!(either_client.delete("k"), Ok(true));
        assert_eq!(either_client.delete("k"), Ok(false));
    });
}

#[test]
fn quiet_writes_arrive_before_the_next_read() {
    let server = Server::start();
    with_both_in_each_protocol(&server.address, &long_timeout(), |either_client| {
        for number in 0..3000u32 {
            let write_result = either_client.set_noreply("quiet", number.to_string().as_bytes());
            assert_eq!(write_result, Ok(WriteOutcome::Done));
        }
        assert_eq!(either_client.bytes("quiet").unwrap(), b"2999");
        either_client.set_noreply("last", b"word").unwrap();
        either_client.close();
        assert_eq!(either_client.get("last"), Err(Error::Closed));
        let second_client = EitherClient::blocking(&server.address, long_timeout());
        assert_eq!(second_client.bytes("last").unwrap(), b"word");
    });
}

#[test]
fn refusals_of_quiet_writes_are_counted_and_break_no_protocol() {
    const WRITES: u64 = 5000;
    let server = Server::start();
    with_both_in_each_protocol(&server.address, &long_timeout(), |either_client| {
        either_client.set("taken", b"word").unwrap();
        for _ in 0..WRITES {
            assert_eq!(either_client.add_noreply("taken", b"other"), Ok(WriteOutcome::Done));
        }
        assert_eq!(either_client.bytes("taken").unwrap(), b"word");
        let (_, server_state) = either_client.core().servers().remove(0);
        let end = Instant::now() + Duration::from_secs(20);
        while server_state.noreply_failures.load(Ordering::Relaxed) < WRITES && Instant::now() < end
        {
            thread::yield_now();
        }
        assert_eq!(server_state.noreply_failures.load(Ordering::Relaxed), WRITES);
        assert_eq!(server_state.faults.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn values_of_every_length_come_back_as_they_were() {
    let server = Server::start();
    with_both_in_each_protocol(&server.address, &long_timeout(), |either_client| {
        for length in [0, 1, 4095, 4096, 4097, 65_535, 65_537, 1_000_000] {
            let body: Vec<u8> = (0..length).map(|index| (index * 31 % 251) as u8).collect();
            assert_eq!(either_client.set("long", &body), Ok(WriteOutcome::Done));
            assert!(either_client.bytes("long").unwrap() == body, "{length} bytes");
        }
    });
}

#[test]
fn a_bulk_append_or_add_of_which_a_value_is_too_long_is_made_once() {
    let server = Server::start();
    // All three fit one request, and the second is too long for an item.
    let long = vec![b'x'; (1 << 20) - 20];
    let items = [item("a", b"2"), item("k", &long), item("b", b"3")];
    with_both_in_each_protocol(&server.address, &long_timeout(), |either_client| {
        for key in ["a", "b", "k"] {
            either_client.set(key, b"1").unwrap();
        }
        let failures = either_client.store_many_by(StoreMode::Append, &items);
        assert!(matches!(failures.unwrap().as_slice(), [(1, _)]));
        let found = ["a", "b"].map(|key| either_client.bytes(key).unwrap());
        assert_eq!(found, [&b"12"[..], b"13"]);
        either_client.delete_many(&["a", "b", "k"]).unwrap();
        let failures = either_client.store_many_by(StoreMode::Add, &items);
        assert!(matches!(failures.unwrap().as_slice(), [(1, _)]));
    });
}

#[test]
fn a_value_that_is_too_long_is_reported_and_leaves_no_older_one() {
    let server = Server::start();
    let small_limit = Options { value_bytes_max: 1000, ..long_timeout() };
    with_both_in_each_protocol(&server.address, &small_limit, |either_client| {
        either_client.set("k", b"old").unwrap();
        let refused = either_client.set("k", &[b'x'; 1001]);
        assert!(matches!(refused, Err(Error::TooLarge { bytes: 1001, limit: 1000, .. })));
        assert_eq!(either_client.get("k"), Ok(None));
        either_client.set("k", b"old").unwrap();
        let failures = either_client.store_many(&[item("a", b"fine"), item("k", &[b'x'; 1001])]);
        let failures = failures.unwrap();
        assert!(matches!(failures.as_slice(), [(1, Error::TooLarge { .. })]));
        assert_eq!(
            (either_client.bytes("a").unwrap(), either_client.bytes("k")),
            (b"fine".to_vec(), None)
        );
    });
    with_both_in_each_protocol(&server.address, &long_timeout(), |either_client| {
        let body = vec![b'x'; 3 << 20];
        let bytes_and_limit_of = |error: &Error| match error {
            Error::TooLarge { bytes, limit, .. } => Some((*bytes, *limit)),
            _ => None,
        };
        let expected = Some((3 << 20, 1 << 20));
        assert_eq!(
            either_client.set("k", &body).as_ref().err().and_then(bytes_and_limit_of),
            expected
        );
        let failures = either_client.store_many(&[item("a", b"new"), item("k", &body)]);
        let failures = failures.unwrap();
        assert_eq!(failures.len(), 1);
        assert_eq!((failures[0].0, bytes_and_limit_of(&failures[0].1)), (1, expected));
        assert_eq!(either_client.bytes("a").unwrap(), b"new");
    });
}

#[test]
fn a_counter_begins_with_its_initial_value_and_flags() {
    let server = Server::start();
    with_both_in_each_protocol(&server.address, &long_timeout(), |either_client| {
        either_client.delete("counted").unwrap();
        assert_eq!(either_client.add_or_create("counted", 2, 40), Ok(Some(40)));
        assert_eq!(either_client.add_or_create("counted", 2, 40), Ok(Some(42)));
        let value = either_client.get("counted").unwrap().unwrap();
        assert_eq!((value.flags, &value.bytes[..]), (7, &b"42"[..]));
    });
}

#[test]
fn bulk_calls_reach_every_server() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let addresses: Vec<_> = servers.iter().map(|server| server.address.clone()).collect();
    with_both_in_each_protocol(&addresses.join(","), &long_timeout(), |either_client| {
        let keys: Vec<String> = (0..500).map(|number| format!("key{number}")).collect();
        let key_refs: Vec<&str> = keys.iter().map(String::as_str).collect();
        let bodies: Vec<Vec<u8>> = (0..500).map(|number| vec![b'v'; number * 20]).collect();
        let pairs = key_refs.iter().zip(&bodies);
        let items: Vec<_> = pairs.map(|(key, body)| item(key, body)).collect();
        assert_eq!(either_client.store_many(&items), Ok(vec![]));
        let (values, failures) = either_client.get_many(&key_refs).unwrap();
        assert_eq!((values.len(), failures.len()), (500, 0));
        for (index, flags, bytes) in values {
            assert!(bytes == bodies[index] && flags == 7);
        }
        let known_servers = either_client.core().servers();
        assert!(known_servers.iter().all(|(_, server)| server.connection_counts().0 > 0));
        assert_eq!(either_client.delete_many(&key_refs[..400]), Ok(vec![]));
        assert_eq!(either_client.get_many(&key_refs).unwrap().0.len(), 100);
        assert_eq!(either_client.delete_many(&key_refs), Ok(vec![]));
    });
}

#[test]
fn a_request_to_every_server_is_checked_before_any_gets_it() {
    let servers = [Server::start(), Server::start()];
    let addresses = format!("{},{}", servers[0].address, servers[1].address);
    with_both_in_each_protocol(&addresses, &long_timeout(), |either_client| {
        either_client.set("k", b"v").unwrap();
        let injected = Request::Stats { argument: b"x\r\nflush_all" };
        let refused = either_client.request_all(injected);
        assert!(matches!(refused, Err(Error::BadSetting(_))), "{refused:?}");
        assert_eq!(either_client.bytes("k").unwrap(), b"v");
        assert_eq!(either_client.request_all(Request::Version).unwrap().len(), 2);
        either_client.close();
        assert_eq!(either_client.request_all(Request::Version), Err(Error::Closed));
    });
}

#[test]
fn servers_can_be_changed_while_a_client_is_in_use() {
    let (first, second) = (Server::start(), Server::start());
    with_both_in_each_protocol(&first.address, &long_timeout(), |either_client| {
        either_client.set("k", b"first").unwrap();
        let addresses = glasscache_client::Address::parse_list(&second.address).unwrap();
        either_client.core().set_servers(&addresses).unwrap();
        either_client.delete("k").unwrap();
        assert_eq!(either_client.get("k"), Ok(None));
        either_client.set("k", b"second").unwrap();
        let addresses = glasscache_client::Address::parse_list(&first.address).unwrap();
        either_client.core().set_servers(&addresses).unwrap();
        assert_eq!(either_client.bytes("k").unwrap(), b"first");
    });
}

#[test]
fn names_and_unix_sockets_are_addresses_too() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let server = Server::on_unix_socket(&socket);
    let address_by_name = server.address.replace("127.0.0.1", "localhost");
    for address in [&address_by_name, socket.to_str().unwrap()] {
        with_both(address, &long_timeout(), |either_client| {
            either_client.set("k", address.as_bytes()).unwrap();
            assert_eq!(either_client.bytes("k").unwrap(), address.as_bytes());
        });
    }
}
