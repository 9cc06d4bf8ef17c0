//! What is particular to the binary protocol: its login, keys of every byte, negative TTLs, quiet calls, administration.

use glasscache_client::pipeline::Reply;
use glasscache_client::request::{Item, Request};
use glasscache_client::write_outcome::WriteOutcome;
use glasscache_client::{
    Arithmetic, Budget, Client, Error, Login, Options, Protocol, StoreMode, WireKey,
};
use glasscache_server::{UsersFile, UsersFileFormat};

use crate::either_client::{EitherClient, item, long_timeout, wire_key, with_both};
use crate::live_server::Server;

fn binary_options() -> Options {
    Options { protocol: Protocol::Binary, ..long_timeout() }
}

fn connect_blocking(server: &Server) -> EitherClient {
    EitherClient::blocking(&server.address, binary_options())
}

fn client_and_budget(either_client: &EitherClient) -> (&Client, Budget<'static>) {
    (either_client.core(), Budget::new(either_client.core().options().timeout))
}

#[test]
fn a_login_by_sasl_is_accepted_or_refused_on_each_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    std::fs::write(&path, "app:pass word\n").unwrap();
    let server = Server::with_users(UsersFile { path, format: UsersFileFormat::AuthFile });
    let options =
        |password: &str| Options { login: Some(Login::new("app", password)), ..binary_options() };
    with_both(&server.address, &options("pass word"), |either_client| {
        assert_eq!(either_client.set("k", b"v"), Ok(WriteOutcome::Done));
        assert_eq!(either_client.bytes("k").unwrap(), b"v");
    });
    with_both(&server.address, &options("wrong"), |either_client| {
        let refused = either_client.get("k");
        assert!(matches!(refused, Err(Error::LoginRefused { .. })), "{refused:?}");
    });
    with_both(&server.address, &binary_options(), |either_client| {
        let refused = either_client.get("k");
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    });
}

#[test]
fn a_key_with_a_space_is_the_same_item_as_in_meta() {
    let server = Server::start();
    let key = WireKey { bytes: b"YSBi", is_base64: true };
    let (in_binary, in_meta) =
        (connect_blocking(&server), EitherClient::blocking(&server.address, long_timeout()));
    let (client_in_binary, budget) = client_and_budget(&in_binary);
    let item = Item { key, flags: 3, body: b"v" };
    let stored = client_in_binary.store(StoreMode::Set, item, 0, false, &budget);
    assert_eq!(stored, Ok(WriteOutcome::Done));
    for either_client in [&in_binary, &in_meta] {
        let (client, budget) = client_and_budget(either_client);
        let value = client.get(key, false, &budget).unwrap().unwrap();
        assert_eq!((value.flags, &value.bytes[..]), (3, &b"v"[..]));
    }
    assert_eq!(client_in_binary.delete(key, false, &budget), Ok(true));
}

#[test]
fn a_negative_ttl_ends_an_item_and_a_unique_of_zero_is_refused() {
    let server = Server::start();
    with_both(&server.address, &binary_options(), |either_client| {
        either_client.set("k", b"v").unwrap();
        assert_eq!(either_client.touch("k", -1), Ok(true));
        assert_eq!(either_client.get("k"), Ok(None));
        either_client.set("k", b"v").unwrap();
        let refused = either_client.store(StoreMode::Cas(0), "k", b"other");
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        assert_eq!(either_client.bytes("k").unwrap(), b"v");
    });
}

#[test]
fn quiet_writes_of_every_kind_are_acknowledged() {
    let server = Server::start();
    let either_client = connect_blocking(&server);
    let (client, budget) = client_and_budget(&either_client);
    let arithmetic = Arithmetic { delta: 1, is_decrement: false, initial: None };
    for _ in 0..50 {
        let item = item("number", b"7");
        client.store(StoreMode::Set, item, 0, true, &budget).unwrap();
        client.touch(wire_key("number"), 100, true, &budget).unwrap();
        client.touch(wire_key("nobody"), 100, true, &budget).unwrap();
        client.arithmetic(wire_key("number"), arithmetic, true, &budget).unwrap();
        client.arithmetic(wire_key("nobody"), arithmetic, true, &budget).unwrap();
        client.delete(wire_key("nobody"), true, &budget).unwrap();
        assert_eq!(either_client.bytes("number").unwrap(), b"8");
    }
    let count_failures = |either_client: &EitherClient| -> u64 {
        let servers = either_client.core().servers();
        let failures = servers.iter().map(|(_, server)| &server.noreply_failures);
        failures.map(|count| count.load(std::sync::atomic::Ordering::Relaxed)).sum()
    };
    assert_eq!(count_failures(&either_client), 0);
    let added = client.store(StoreMode::Add, item("number", b"1"), 0, true, &budget);
    assert_eq!(added, Ok(WriteOutcome::Done));
    assert_eq!(either_client.bytes("number").unwrap(), b"8");
    assert_eq!(count_failures(&either_client), 1);
}

#[test]
fn version_stats_and_flush_work_and_a_flush_of_a_prefix_is_unsupported() {
    let server = Server::start();
    let either_client = connect_blocking(&server);
    let (client, budget) = client_and_budget(&either_client);
    either_client.set("k", b"v").unwrap();
    let request_reply = |request: Request<'_>| {
        let mut replies = client.request_all(request, &budget).unwrap();
        replies.pop().unwrap().1
    };
    assert!(
        matches!(request_reply(Request::Version), Ok(Reply::Version(text)) if text.contains("glasscache"))
    );
    let Ok(Reply::Rows(rows)) = request_reply(Request::Stats { argument: b"" }) else {
        panic!("no rows")
    };
    assert!(rows.contains(&("curr_items".to_owned(), "1".to_owned())));
    let unknown = request_reply(Request::Stats { argument: b"nothing" });
    assert!(matches!(unknown, Ok(Reply::Rows(_)) | Err(Error::Refused { .. })), "{unknown:?}");
    assert_eq!(either_client.bytes("k").unwrap(), b"v");
    assert!(request_reply(Request::Flush { delay_s: 0 }).is_ok());
    assert_eq!(either_client.get("k"), Ok(None));
    let prefix = wire_key("k");
    let cleared = request_reply(Request::FlushPrefix { prefix });
    assert!(matches!(cleared, Err(Error::Unsupported { .. })), "{cleared:?}");
}
