//! `warm` over real sockets: between two of our servers, from memcached to ours and back, and with failures in between.
//!
//! A relay between the command and a server acts at one point of the conversation, such as after the list of items and
//! before the first is read; what it acts on is a real server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Output, Stdio};
use std::time::Duration;

use glasscache_peers::{Direction, Peer};
use serde_json::Value;

use super::server::{Server, TestConnection, glasscache, wait_until};

/// The environment variable with the path of a real memcached, if the tests have one.
const ORACLE_VARIABLE: &str = "GLASSCACHE_TEST_ORACLE";

fn run_warm(from: &str, to: &str, arguments: &[&str]) -> Output {
    let mut command = glasscache();
    command.args(["warm", "--from", from, "--to", to, "--json"]);
    command.args(arguments).output().unwrap()
}

fn parse_document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

/// Warms and returns the result of a run that succeeds.
fn warm_and_parse_result(from: &Server, to: &Server) -> Value {
    let output = run_warm(&from.address(), &to.address(), &[]);
    let document = parse_document(&output);
    assert_eq!(output.status.code(), Some(0), "{document}");
    document["result"].clone()
}

fn send_set(connection: &mut TestConnection, key: &str, flags: u32, exptime: i64, value: &str) {
    let length = value.len();
    let request = format!("set {key} {flags} {exptime} {length}\r\n{value}\r\n");
    assert_eq!(connection.request(&request), "STORED");
}

fn request_value(server: &Server, key: &str) -> Option<String> {
    let mut connection = server.connect();
    if connection.request(&format!("get {key}\r\n")) == "END" {
        return None;
    }
    Some(connection.read_line())
}

/// Passes each connection on to a server; `may_pass` sees each chunk that the client sends, and cuts the connection by
/// returning false.
fn start_relay(
    server: &Server,
    may_pass: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
) -> String {
    let relay = Peer::relay(server.address().parse().unwrap(), move |direction, chunk| {
        (direction == Direction::Reply || may_pass(&chunk)).then_some(chunk)
    });
    relay.address().to_string()
}

/// A relay to a server that seems not to know `metadump hash`, and whose first `hiding_lists` lists lack the key `hidden`.
fn start_old_server_relay(server: &Server, hiding_lists: u32) -> String {
    let lists_left = std::sync::atomic::AtomicU32::new(hiding_lists);
    let relay = Peer::relay(server.address().parse().unwrap(), move |direction, chunk| {
        let text = String::from_utf8_lossy(&chunk).into_owned();
        if direction == Direction::Request {
            return Some(text.replace("metadump hash", "metadump none").into_bytes());
        }
        let is_in_list = text.contains("key=hidden ");
        if !is_in_list || lists_left.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            return Some(chunk);
        }
        lists_left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        let lines = text.split_inclusive('\n').filter(|line| !line.starts_with("key=hidden "));
        Some(lines.collect::<String>().into_bytes())
    });
    relay.address().to_string()
}

/// Checks for a pair of servers: values, flags and TTLs arrive, and items that the new server already has stay.
fn assert_items_arrive(from: &Server, to: &Server) {
    let mut connection = from.connect();
    let large = "x".repeat(300_000);
    send_set(&mut connection, "plain", 0, 0, "a");
    send_set(&mut connection, "flags", 4_000_000_000, 0, "b");
    send_set(&mut connection, "empty", 0, 0, "");
    send_set(&mut connection, "hour", 0, 3600, "c");
    send_set(&mut connection, "year", 0, 31_536_000 + read_clock_s(), "d");
    send_set(&mut connection, "large", 1, 0, &large);
    send_set(&mut connection, "kept", 0, 0, "older");
    assert_eq!(connection.request("ms YSBi 1 b\r\ne\r\n"), "HD");
    for number in 0..1000 {
        send_set(&mut connection, &format!("many:{number}"), number, 0, &format!("v{number}"));
    }
    send_set(&mut to.connect(), "kept", 0, 0, "newer");
    let result = warm_and_parse_result(from, to);
    assert_eq!(result["listed_items"], 1008);
    assert_eq!(result["copied_items"], 1007);
    assert_eq!(result["already_present"], 1);
    assert_eq!(result["end"], "complete");
    let mut connection = to.connect();
    let mut request_fields = |key: &str| connection.request(&format!("mg {key} s f t\r\n"));
    assert_eq!(request_fields("plain"), "HD s1 f0 t-1");
    assert_eq!(request_fields("flags"), "HD s1 f4000000000 t-1");
    assert_eq!(request_fields("empty"), "HD s0 f0 t-1");
    assert_eq!(request_fields("large"), "HD s300000 f1 t-1");
    assert_eq!(request_fields("many:77"), "HD s3 f77 t-1");
    let parse_ttl_s = |reply: String| -> i64 { reply.split(" t").nth(1).unwrap().parse().unwrap() };
    assert!((3000..=3600).contains(&parse_ttl_s(request_fields("hour"))));
    // An absolute time: the clocks of both servers tick once a second, each at its own moment.
    let year_s = parse_ttl_s(request_fields("year"));
    assert!((31_530_000..=31_536_002).contains(&year_s), "{year_s}");
    assert_eq!(connection.request("mg YSBi b v\r\n"), "VA 1");
    assert_eq!(request_value(to, "kept").as_deref(), Some("newer"));
    assert_eq!(request_value(to, "large"), Some(large));
}

fn read_clock_s() -> i64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since_1970.unwrap().as_secs() as i64
}

/// Whether a client sends this command for an item, and not for the key by which it tells the servers apart.
fn is_command_for_item(chunk: &[u8], command: &str) -> bool {
    let text = String::from_utf8_lossy(chunk);
    let key = text.strip_prefix(command).and_then(|rest| rest.strip_prefix(' '));
    key.is_some_and(|key| !key.starts_with("glasscache-warm:"))
}

#[test]
fn items_of_ours_arrive_at_ours_with_flags_and_ttls() {
    assert_items_arrive(&Server::start(&[]), &Server::start(&[]));
}

#[test]
fn items_of_memcached_arrive_at_ours_and_the_other_way_round() {
    let Some(path) = std::env::var_os(ORACLE_VARIABLE) else {
        return;
    };
    assert_items_arrive(&Server::memcached(&path), &Server::start(&[]));
    assert_items_arrive(&Server::start(&[]), &Server::memcached(&path));
}

#[test]
fn the_latest_read_items_come_first_and_the_copy_ends_when_the_new_server_evicts() {
    let (from, to) = (Server::start(&["-m", "64"]), Server::start(&["-m", "2"]));
    let (mut connection, value) = (from.connect(), "x".repeat(10_000));
    for number in 0..2000 {
        send_set(&mut connection, &format!("cold:{number}"), 0, 0, &value);
    }
    // The server reports access times in whole seconds: the items below are read in a later second.
    let mut request_idle_s = || -> u32 {
        let reply = connection.request("mg cold:1999 l u\r\n");
        reply.strip_prefix("HD l").unwrap().parse().unwrap()
    };
    wait_until(|| request_idle_s() >= 2);
    for number in 0..50 {
        assert_eq!(connection.request(&format!("mg cold:{number} s\r\n")), "HD s10000");
    }
    let output = run_warm(&from.address(), &to.address(), &["--rate", "400"]);
    let result = parse_document(&output)["result"].clone();
    assert_eq!(output.status.code(), Some(0), "{result}");
    assert_eq!(result["end"], "target-full", "{result}");
    assert!(result["examined_items"].as_u64().unwrap() < 2000, "{result}");
    let relayed_server = Server::start(&["-m", "64"]);
    let recorded_bytes = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let relay_recording = recorded_bytes.clone();
    let relay_address = start_relay(&relayed_server, move |chunk| {
        relay_recording.lock().unwrap().extend_from_slice(chunk);
        true
    });
    let output = run_warm(&from.address(), &relay_address, &[]);
    assert_eq!(output.status.code(), Some(0));
    let sent_text = String::from_utf8_lossy(&recorded_bytes.lock().unwrap()).into_owned();
    let store_requests = sent_text.lines().filter_map(|line| line.strip_prefix("ms cold:"));
    let sent_numbers: Vec<u32> =
        store_requests.map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(sent_numbers.len(), 2000);
    assert!(sent_numbers[..50].iter().all(|number| *number < 50), "{:?}", &sent_numbers[..50]);
}

#[test]
fn an_item_that_expires_before_it_is_read_is_not_copied() {
    let (from, to) = (Server::start(&[]), Server::start(&[]));
    let mut connection = from.connect();
    send_set(&mut connection, "short", 0, 2, "a");
    send_set(&mut connection, "long", 0, 0, "b");
    let source_address = from.address();
    let relay_address = start_relay(&from, move |chunk| {
        if is_command_for_item(chunk, "mg") {
            wait_until(|| request_value_at(&source_address, "short").is_none());
        }
        true
    });
    let result = parse_document(&run_warm(&relay_address, &to.address(), &[]))["result"].clone();
    assert_eq!(result["copied_items"], 1, "{result}");
    assert_eq!(
        (request_value(&to, "short"), request_value(&to, "long")),
        (None, Some("b".to_owned()))
    );
}

#[test]
fn an_item_deleted_between_the_list_and_the_read_is_gone() {
    let (from, to) = (Server::start(&[]), Server::start(&[]));
    let mut connection = from.connect();
    send_set(&mut connection, "a", 0, 0, "1");
    send_set(&mut connection, "b", 0, 0, "2");
    let source_address = from.address();
    let relay_address = start_relay(&from, move |chunk| {
        if is_command_for_item(chunk, "mg") {
            request_at(&source_address, "delete a\r\n");
        }
        true
    });
    let result = parse_document(&run_warm(&relay_address, &to.address(), &[]))["result"].clone();
    assert_eq!((&result["copied_items"], &result["gone"]), (&1.into(), &1.into()));
    assert_eq!((request_value(&to, "a"), request_value(&to, "b")), (None, Some("2".to_owned())));
}

#[test]
fn an_item_changed_between_its_read_and_its_store_is_removed_again() {
    let (from, to) = (Server::start(&[]), Server::start(&[]));
    let mut connection = from.connect();
    for (key, value) in [("deleted", "1"), ("replaced", "2"), ("same", "3")] {
        send_set(&mut connection, key, 0, 0, value);
    }
    let source_address = from.address();
    let relay_address = start_relay(&to, move |chunk| {
        if is_command_for_item(chunk, "ms") {
            request_at(&source_address, "delete deleted\r\n");
            request_at(&source_address, "set replaced 0 0 1\r\n4\r\n");
        }
        true
    });
    let result = parse_document(&run_warm(&from.address(), &relay_address, &[]))["result"].clone();
    assert_eq!((&result["copied_items"], &result["changed"]), (&1.into(), &2.into()));
    assert_eq!((request_value(&to, "deleted"), request_value(&to, "replaced")), (None, None));
    assert_eq!(request_value(&to, "same").as_deref(), Some("3"));
}

#[test]
fn a_copy_that_a_client_has_replaced_at_the_new_server_stays() {
    let (from, to) = (Server::start(&[]), Server::start(&[]));
    send_set(&mut from.connect(), "a", 0, 0, "1");
    let (source_address, target_address) = (from.address(), to.address());
    let checks = std::sync::atomic::AtomicU32::new(0);
    let relay_address = start_relay(&from, move |chunk| {
        // The second read of the item verifies that it has not changed.
        let is_get = chunk.starts_with(b"mg a ");
        if is_get && checks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1 {
            request_at(&source_address, "set a 0 0 1\r\n2\r\n");
            request_at(&target_address, "set a 0 0 5\r\nnewer\r\n");
        }
        true
    });
    let output = run_warm(&relay_address, &to.address(), &[]);
    let result = parse_document(&output)["result"].clone();
    assert_eq!(output.status.code(), Some(1), "nothing was copied: {result}");
    assert_eq!((&result["copied_items"], &result["changed"]), (&0.into(), &1.into()));
    assert_eq!(request_value(&to, "a").as_deref(), Some("newer"));
}

#[test]
fn two_addresses_of_one_server_are_refused_and_it_keeps_its_items() {
    let server = Server::start(&[]);
    let mut connection = server.connect();
    for number in 0..500 {
        send_set(&mut connection, &format!("k{number}"), 0, 0, "hello");
    }
    let other_address = start_relay(&server, |_| true);
    for arguments in [&[][..], &["--overwrite"]] {
        let output = run_warm(&other_address, &server.address(), arguments);
        assert_eq!(output.status.code(), Some(2));
        let message = parse_document(&output)["error"]["message"].to_string();
        assert!(message.contains("are the same server"), "{message}");
    }
    connection.send(b"stats\r\n");
    let stats = String::from_utf8(connection.read_through(b"END\r\n")).unwrap();
    assert!(stats.contains("STAT curr_items 500\r\n"), "{stats}");
}

#[test]
fn an_item_that_the_first_list_lacks_is_found_by_the_next() {
    let (from, to) = (Server::start(&[]), Server::start(&[]));
    let mut connection = from.connect();
    for key in ["a", "hidden", "b"] {
        send_set(&mut connection, key, 0, 0, "1");
    }
    let relay_address = start_old_server_relay(&from, 1);
    let output = run_warm(&relay_address, &to.address(), &[]);
    let result = parse_document(&output)["result"].clone();
    assert_eq!(output.status.code(), Some(0), "{result}");
    let counts = (&result["listed_items"], &result["copied_items"], &result["possibly_missing"]);
    assert_eq!(counts, (&3.into(), &3.into(), &0.into()));
}

#[test]
fn items_that_no_list_has_are_counted_as_possibly_missing() {
    let (from, to) = (Server::start(&[]), Server::start(&[]));
    let mut connection = from.connect();
    for key in ["a", "hidden", "b"] {
        send_set(&mut connection, key, 0, 0, "1");
    }
    let relay_address = start_old_server_relay(&from, u32::MAX);
    let output = run_warm(&relay_address, &to.address(), &[]);
    let result = parse_document(&output)["result"].clone();
    let counts = (&result["listed_items"], &result["copied_items"], &result["possibly_missing"]);
    assert_eq!(counts, (&2.into(), &2.into(), &1.into()));
}

#[test]
fn an_item_in_a_lease_is_not_copied_and_a_client_still_wins_its_refresh() {
    let (from, to) = (Server::start(&[]), Server::start(&[]));
    let mut connection = from.connect();
    assert_eq!(connection.request("mg lease N60\r\n"), "HD W");
    send_set(&mut connection, "stale", 0, 0, "1");
    assert_eq!(connection.request("md stale I\r\n"), "HD");
    let result = warm_and_parse_result(&from, &to);
    assert_eq!((&result["copied_items"], &result["stale"]), (&0.into(), &2.into()));
    assert_eq!((request_value(&to, "lease"), request_value(&to, "stale")), (None, None));
    let reply = from.connect().request("mg stale s\r\n");
    assert!(reply.contains('W') && !reply.contains('Z'), "{reply}");
}

#[test]
fn reading_leaves_the_eviction_order_of_the_old_server_as_it_is() {
    let (from, to) = (Server::start(&[]), Server::start(&[]));
    send_set(&mut from.connect(), "a", 0, 0, "1");
    assert_eq!(warm_and_parse_result(&from, &to)["copied_items"], 1);
    assert_eq!(from.connect().request("mg a h\r\n"), "HD h0");
}

#[test]
fn items_that_the_new_server_refuses_are_counted_and_the_others_copied() {
    let (from, to) = (Server::start(&[]), Server::start(&["-I", "1k"]));
    let mut connection = from.connect();
    send_set(&mut connection, "large", 0, 0, &"x".repeat(5000));
    send_set(&mut connection, "small", 0, 0, "1");
    let output = run_warm(&from.address(), &to.address(), &[]);
    let result = parse_document(&output)["result"].clone();
    assert_eq!(output.status.code(), Some(1), "{result}");
    assert_eq!((&result["copied_items"], &result["refused"]), (&1.into(), &1.into()));
    assert_eq!(result["copied_bytes"], 1);
    let refusal = result["refusal"].as_str().unwrap();
    assert!(refusal.starts_with("SERVER_ERROR object too large"), "{refusal}");
}

#[test]
fn a_server_that_refuses_one_item_after_the_other_ends_the_copy() {
    let (from, to) = (Server::start(&[]), Server::start(&["-I", "1k"]));
    let mut connection = from.connect();
    for number in 0..1000 {
        send_set(&mut connection, &number.to_string(), 0, 0, &"x".repeat(2000));
    }
    let output = run_warm(&from.address(), &to.address(), &["--rate", "5000"]);
    let result = parse_document(&output)["result"].clone();
    assert_eq!(output.status.code(), Some(1), "{result}");
    assert_eq!(result["end"], "target-refuses");
    assert_eq!(result["refused"], 100);
}

#[test]
fn a_server_that_wants_a_login_or_is_not_there_is_named_in_one_sentence() {
    let from = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let users_path = folder.path().join("users");
    std::fs::write(&users_path, "user:password\n").unwrap();
    let to = Server::start(&["-Y", users_path.to_str().unwrap()]);
    let output = run_warm(&from.address(), &to.address(), &[]);
    assert_eq!(output.status.code(), Some(4));
    let message = parse_document(&output)["error"]["message"].to_string();
    assert!(message.contains("does not take `version`"), "{message}");
    assert!(message.contains("unauthenticated"), "{message}");
    let output = run_warm("127.0.0.1:1", &from.address(), &[]);
    assert_eq!(output.status.code(), Some(3));
    let message = parse_document(&output)["error"]["message"].to_string();
    assert!(message.contains("127.0.0.1:1: "), "{message}");
    let output = run_warm(&from.address(), &from.address(), &[]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_server_that_refuses_to_list_its_keys_is_named_with_its_reply() {
    let (from, to) = (Server::start(&["-X"]), Server::start(&[]));
    let output = run_warm(&from.address(), &to.address(), &[]);
    assert_eq!(output.status.code(), Some(4));
    let message = parse_document(&output)["error"]["message"].to_string();
    assert!(message.contains("metadump not allowed"), "{message}");
}

#[test]
fn a_source_that_disconnects_midway_leaves_the_results_so_far() {
    let (from, to) = (Server::start(&[]), Server::start(&[]));
    let mut connection = from.connect();
    for number in 0..100 {
        send_set(&mut connection, &number.to_string(), 0, 0, "x");
    }
    let piece_count = std::sync::atomic::AtomicU32::new(0);
    // Each batch sends two pieces of gets; the third batch is cut off.
    let relay_address = start_relay(&from, move |chunk| {
        let is_piece_of_gets = is_command_for_item(chunk, "mg");
        !is_piece_of_gets || piece_count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 4
    });
    let output = run_warm(&relay_address, &to.address(), &["--rate", "500"]);
    assert_eq!(output.status.code(), Some(3));
    let document = parse_document(&output);
    assert_eq!(document["result"]["copied_items"], 20, "{document}");
    assert_eq!(document["result"]["end"], "failed");
    assert_eq!(document["error"]["kind"], "unreachable");
    let second_result = warm_and_parse_result(&from, &to);
    assert_eq!(
        (&second_result["copied_items"], &second_result["already_present"]),
        (&80.into(), &20.into())
    );
}

#[test]
fn ctrl_c_prints_the_results_so_far() {
    let (from, to) = (Server::start(&[]), Server::start(&[]));
    let mut connection = from.connect();
    for number in 0..100 {
        send_set(&mut connection, &number.to_string(), 0, 0, "x");
    }
    let mut command = glasscache();
    command.args(["warm", "--from", &from.address(), "--to", &to.address()]);
    command.args(["--rate", "1", "--json"]).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    let mut connection = to.connect();
    // With the second item the first is counted. Not by the number of items: that which proves that the servers differ
    // is one, too.
    let keys: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let request = format!("get {}\r\n", keys.join(" "));
    wait_until(|| {
        connection.send(request.as_bytes());
        let reply = String::from_utf8(connection.read_through(b"END\r\n")).unwrap();
        reply.matches("VALUE ").count() >= 2
    });
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let document = parse_document(&output);
    assert_eq!(document["result"]["end"], "stopped");
    assert!(document["result"]["copied_items"].as_u64().unwrap() >= 1, "{document}");
}

fn request_at(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = [0; 256];
    let reply_bytes = stream.read(&mut reply).unwrap();
    String::from_utf8_lossy(&reply[..reply_bytes]).into_owned()
}

fn request_value_at(address: &str, key: &str) -> Option<String> {
    let reply = request_at(address, &format!("get {key}\r\n"));
    (reply != "END\r\n").then_some(reply)
}
