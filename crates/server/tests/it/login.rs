//! Logins: nothing is executed before one, in either protocol, whatever is sent and however it is cut.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use glasscache_protocol::binary::request::{self, BinaryStoreParameters};
use glasscache_protocol::binary::{OpcodeAndOpaque, Status, opcode, reply};
use glasscache_server::{
    Address, Config, InMemorySession, InMemoryWorker, Listen, Protocols, RunningServer, UsersFile,
    UsersFileFormat, pieces, start,
};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::timing::assert_in_time;

const LOGIN: &[u8] = b"set auth 0 0 7\r\nfoo bar\r\n";
const WRONG_LOGIN: &[u8] = b"set auth 0 0 7\r\nfoo baz\r\n";
const FAILED_REPLY: &str = "CLIENT_ERROR authentication failure\r\n";
const UNAUTHENTICATED_REPLY: &str = "CLIENT_ERROR unauthenticated\r\n";

/// `openssl passwd -5` of "secret".
const SHA_256_HASH: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";

/// Settings with a file of users, and the folder of that file.
fn config_with_users(users: &str, protocol: Protocols) -> (TempDir, Config) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    fs::write(&path, users).unwrap();
    let config = Config {
        listeners: vec![Listen::Tcp(([127, 0, 0, 1], 0).into())],
        hash_seed: Some(7),
        memory_bytes: 8 << 20,
        workers: 1,
        protocol,
        users: Some(UsersFile { path, format: UsersFileFormat::AuthFile }),
        ..Config::default()
    };
    (folder, config)
}

fn in_memory_session() -> InMemorySession {
    let (_folder, config) = config_with_users("foo:bar\nbaaaz:quux\n", Protocols::Any);
    InMemorySession::new(config).unwrap()
}

fn text_of(reply: Vec<u8>) -> String {
    String::from_utf8(reply).unwrap()
}

fn request_packet(opcode: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let opcode_and_opaque = OpcodeAndOpaque { opcode, opaque: 9 };
    match opcode {
        opcode::SET => {
            let parameters = BinaryStoreParameters {
                flags: 0,
                exptime: 0,
                value_bytes: value.len() as u32,
                required_cas: 0,
            };
            request::store(&mut packet, opcode_and_opaque, key, &parameters);
        }
        opcode::SASL_AUTH | opcode::SASL_STEP => {
            request::append_or_prepend(&mut packet, opcode_and_opaque, key, value.len() as u32, 0);
        }
        _ if key.is_empty() => request::header_only(&mut packet, opcode_and_opaque),
        _ => request::get(&mut packet, opcode_and_opaque, key),
    }
    packet.extend_from_slice(value);
    packet
}

fn sasl_request(password: &[u8]) -> Vec<u8> {
    request_packet(opcode::SASL_AUTH, b"PLAIN", &[b"\0foo\0", password].concat())
}

fn response_statuses(mut bytes: &[u8]) -> Vec<Status> {
    let mut statuses = Vec::new();
    while !bytes.is_empty() {
        let (head, head_bytes) = reply::parse_head(bytes).unwrap().expect("a whole head");
        statuses.push(head.status);
        bytes = &bytes[head_bytes + head.value_bytes as usize..];
    }
    statuses
}

#[test]
fn no_text_command_runs_before_the_login() {
    let mut session = in_memory_session();
    let commands = [
        "set a 0 0 2\r\nhi\r\n",
        "get a\r\n",
        "gets a b\r\n",
        "mg a v\r\n",
        "version\r\n",
        "stats settings\r\n",
        "flush_all\r\n",
        "watch\r\n",
        "shutdown\r\n",
        "      \r\n",
    ];
    for command in commands {
        let reply = text_of(session.feed(command.as_bytes(), 2));
        assert!(reply.starts_with("CLIENT_ERROR"), "{command:?}: {reply}");
        assert!(!session.is_closed(), "{command:?}");
    }
    assert_eq!(text_of(session.feed(LOGIN, 2)), "STORED\r\n");
    assert_eq!(text_of(session.feed(b"get a auth\r\n", 2)), "END\r\n");
}

#[test]
fn empty_lines_and_endless_ones_close_before_the_login() {
    for line in [&b"\r\n"[..], b"\n", b"  \r\n", &[b'g'; 513], &[0; 600]] {
        let mut session = in_memory_session();
        assert_eq!(text_of(session.feed(line, 2)), "");
        assert!(session.is_closed(), "{line:?}");
        assert_eq!(text_of(session.feed(LOGIN, 2)), "");
    }
}

#[test]
fn wrong_credentials_are_refused_and_the_right_ones_hold_for_one_connection_only() {
    let (_folder, config) = config_with_users("foo:bar\nbaaaz:quux\n", Protocols::Any);
    let mut worker = InMemoryWorker::group(config, 1).unwrap().pop().unwrap();
    let mut right_connection = worker.connect();
    let reply = worker.feed(&mut right_connection, LOGIN, 2);
    assert_eq!(text_of(reply), "STORED\r\n");
    for wrong_credentials in
        ["foo ba", "foo barr", "foo ", "fo bar", "foo quux", " bar", "foo b\0r", "FOO bar"]
    {
        let mut wrong_connection = worker.connect();
        let login =
            format!("set a 0 0 {}\r\n{wrong_credentials}\r\nget a\r\n", wrong_credentials.len());
        let reply = worker.feed(&mut wrong_connection, login.as_bytes(), 2);
        assert_eq!(
            text_of(reply),
            format!("{FAILED_REPLY}{UNAUTHENTICATED_REPLY}"),
            "{wrong_credentials:?}"
        );
    }
    assert_eq!(text_of(worker.feed(&mut right_connection, b"get a\r\n", 2)), "END\r\n");
}

#[test]
fn commands_after_a_failed_login_are_not_run_and_those_after_a_right_one_are() {
    let mut session = in_memory_session();
    let following_commands = b"set x 0 0 1\r\n1\r\nget x\r\n";
    // Each line is refused by itself, because the login before it failed.
    let reply = text_of(session.feed(&[WRONG_LOGIN, b"get x\r\nflush_all\r\n"].concat(), 2));
    assert_eq!(reply, format!("{FAILED_REPLY}{UNAUTHENTICATED_REPLY}{UNAUTHENTICATED_REPLY}"));
    let reply = text_of(session.feed(&[LOGIN, following_commands].concat(), 2));
    assert_eq!(reply, "STORED\r\nSTORED\r\nVALUE x 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn a_huge_login_is_bounded() {
    let mut session = in_memory_session();
    let reply = text_of(session.feed(b"set a 0 0 2147483646\r\n", 2));
    assert_eq!(reply, "CLIENT_ERROR auth token too long\r\n");
    assert_eq!(text_of(session.feed(b"set a 0 0 512\r\n", 2)), "");
    session.feed(&[b'x'; 512], 2);
    assert!(session.pending_bytes() <= 1100);
    let mut binary_session = in_memory_session();
    let reply =
        binary_session.feed(&request_packet(opcode::SASL_AUTH, b"PLAIN", &[b'x'; 513])[..29], 2);
    assert_eq!(response_statuses(&reply), [Status::AuthFailure]);
    assert!(binary_session.is_closed());
}

#[test]
fn a_connection_is_closed_after_five_failed_logins() {
    let mut session = in_memory_session();
    for _ in 0..5 {
        assert!(!session.is_closed());
        assert_eq!(text_of(session.feed(WRONG_LOGIN, 2)), FAILED_REPLY);
    }
    assert!(session.is_closed());
}

#[test]
fn binary_commands_require_a_login_too() {
    for request in [
        request_packet(opcode::GET, b"a", b""),
        request_packet(opcode::GETKQ, b"a", b""),
        request_packet(opcode::SET, b"a", b"1"),
        request_packet(opcode::NOOP, b"", b""),
        request_packet(opcode::FLUSHQ, b"", b""),
        request_packet(opcode::STAT, b"", b""),
        request_packet(opcode::QUIT, b"", b""),
        request_packet(0x30, b"", b""),
        request_packet(0xff, b"key", b""),
    ] {
        let mut session = in_memory_session();
        let reply = session.feed(&[request, sasl_request(b"bar")].concat(), 2);
        assert_eq!(response_statuses(&reply), [Status::AuthFailure]);
        assert!(session.is_closed());
    }
    let (_folder, config) = config_with_users("foo:bar\n", Protocols::Text);
    let mut session = InMemorySession::new(config).unwrap();
    assert_eq!(session.feed(&sasl_request(b"bar"), 2), b"");
    assert!(session.is_closed());
}

#[test]
fn a_failed_sasl_login_ends_an_earlier_login() {
    let get = request_packet(opcode::GET, b"a", b"");
    let mut session = in_memory_session();
    let list = session.feed(&request_packet(opcode::SASL_LIST_MECHANISMS, b"", b""), 2);
    assert!(list.ends_with(b"PLAIN"));
    let version = session.feed(&request_packet(opcode::VERSION, b"", b""), 2);
    assert_eq!(response_statuses(&version), [Status::Success]);
    let reply =
        session.feed(&[sasl_request(b"wrong"), sasl_request(b"bar"), get.clone()].concat(), 2);
    let expected = [Status::AuthFailure, Status::Success, Status::NotFound];
    assert_eq!(response_statuses(&reply), expected);
    let reply = session.feed(&[sasl_request(b"wrong"), get].concat(), 2);
    assert_eq!(response_statuses(&reply), [Status::AuthFailure, Status::AuthFailure]);
    assert!(session.is_closed());
}

#[test]
fn messages_of_sasl_are_checked_whole() {
    for (mechanism, message) in [
        (&b"PLAIN"[..], &b"foo\0bar"[..]),
        (b"PLAIN", b"\0foo\0bar\0"),
        (b"PLAIN", b"other\0foo\0bar"),
        (b"PLAIN", b"\0\0"),
        (b"CRAM-MD5", b"\0foo\0bar"),
        (b"PLAI", b"\0foo\0bar"),
    ] {
        let mut session = in_memory_session();
        let reply = session.feed(&request_packet(opcode::SASL_AUTH, mechanism, message), 2);
        assert_eq!(response_statuses(&reply), [Status::AuthFailure], "{message:?}");
    }
    let mut session = in_memory_session();
    let long_mechanism_request = request_packet(opcode::SASL_AUTH, &[b'X'; 40], b"\0foo\0bar");
    assert_eq!(
        response_statuses(&session.feed(&long_mechanism_request, 2)),
        [Status::InvalidArguments]
    );
    let step_request = request_packet(opcode::SASL_STEP, b"PLAIN", b"\0foo\0bar");
    assert_eq!(response_statuses(&session.feed(&step_request, 2)), [Status::AuthFailure]);
    let request_without_message = request_packet(opcode::SASL_AUTH, b"PLAIN", b"");
    let reply = session.feed(&[request_without_message, step_request].concat(), 2);
    assert_eq!(response_statuses(&reply), [Status::AuthContinue, Status::Success]);
}

proptest! {
    #[test]
    fn the_replies_to_logins_do_not_depend_on_the_cuts(
        requests in prop::collection::vec(prop::sample::select(vec![
            &b"get a\r\n"[..], b"set a 0 0 1\r\n1\r\n", LOGIN, WRONG_LOGIN, b"set b 0 0 2\r\nhi\r\n", b"mn\r\n",
        ]), 1..8),
        lengths in prop::collection::vec(1_usize..20, 1..8),
    ) {
        let stream = requests.concat();
        let (mut whole_session, mut cut_session) = (in_memory_session(), in_memory_session());
        let expected = whole_session.feed(&stream, 2);
        let received: Vec<u8> = pieces(&stream, &lengths).flat_map(|piece| cut_session.feed(piece, 2)).collect();
        prop_assert_eq!(received, expected);
        prop_assert_eq!(whole_session.is_closed(), cut_session.is_closed());
    }
}

/// A running server that requires logins, and its file of users.
struct RunningLoginServer {
    folder: TempDir,
    server: RunningServer,
}

impl RunningLoginServer {
    fn start(users: &str, connections_max: u32) -> RunningLoginServer {
        let (folder, config) = config_with_users(users, Protocols::Any);
        let server = start(Config { connections_max, ..config });
        RunningLoginServer { folder, server: server.unwrap() }
    }

    fn connect(&self) -> TcpStream {
        let Some(Address::Tcp(address)) = self.server.addresses().first().cloned() else {
            panic!("no port")
        };
        let stream = TcpStream::connect(address).unwrap();
        let timeout = Some(Duration::from_secs(20));
        stream.set_read_timeout(timeout).unwrap();
        stream
    }

    fn connect_and_log_in(&self) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(LOGIN).unwrap();
        assert_eq!(read_line(&mut stream), "STORED\r\n");
        stream
    }
}

/// The next line; empty at the end of the stream.
fn read_line(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\n") && stream.read(&mut byte).unwrap() == 1 {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

#[test]
fn a_live_server_verifies_hashes_and_replies_in_order() {
    let login_server = RunningLoginServer::start(&format!("foo:bar\nhashed:{SHA_256_HASH}\n"), 100);
    let mut stream = login_server.connect();
    let login = b"set a 0 0 13\r\nhashed secret\r\nset k 0 0 1\r\n1\r\nget k\r\n";
    stream.write_all(&[b"get k\r\n", WRONG_LOGIN, login].concat()).unwrap();
    for expected in
        [UNAUTHENTICATED_REPLY, FAILED_REPLY, "STORED\r\n", "STORED\r\n", "VALUE k 0 1\r\n"]
    {
        assert_eq!(read_line(&mut stream), expected);
    }
}

#[test]
fn a_failed_login_is_delayed_while_others_are_served() {
    let login_server = RunningLoginServer::start("foo:bar\n", 100);
    let mut other = login_server.connect_and_log_in();
    let mut wrong = login_server.connect();
    let started_at = Instant::now();
    wrong.write_all(WRONG_LOGIN).unwrap();
    other.write_all(b"mn\r\n").unwrap();
    assert_eq!(read_line(&mut other), "MN\r\n");
    assert_eq!(read_line(&mut wrong), FAILED_REPLY);
    assert!(started_at.elapsed() >= Duration::from_millis(100));
}

#[test]
fn a_connection_that_does_not_log_in_is_closed_and_one_that_did_is_not() {
    let login_server = RunningLoginServer::start("foo:bar\n", 100);
    let mut authenticated = login_server.connect_and_log_in();
    let mut idle = login_server.connect();
    let mut slow = login_server.connect();
    slow.write_all(b"set auth 0 0 7\r\nfoo").unwrap();
    assert_eq!(read_line(&mut idle), "");
    assert_eq!(read_line(&mut slow), "");
    authenticated.write_all(b"stats glasscache\r\n").unwrap();
    let mut timeouts_row = String::new();
    loop {
        let row = read_line(&mut authenticated);
        if row.contains("login_timeouts") {
            timeouts_row.clone_from(&row);
        }
        if row == "END\r\n" {
            break;
        }
    }
    assert_eq!(timeouts_row, "STAT login_timeouts 2\r\n");
}

#[test]
fn connections_above_the_unauthenticated_maximum_are_served_after_the_others() {
    let login_server = RunningLoginServer::start("foo:bar\n", 8);
    // Two of eight may be open without a login; these four are served one after the other.
    let idle: Vec<TcpStream> = (0..4).map(|_| login_server.connect()).collect();
    let mut stream = login_server.connect_and_log_in();
    stream.write_all(b"mn\r\n").unwrap();
    assert_eq!(read_line(&mut stream), "MN\r\n");
    drop(idle);
}

/// Opens a connection, sends `bytes` and resets it.
fn send_and_reset(login_server: &RunningLoginServer, bytes: &[u8]) {
    let mut stream = login_server.connect();
    stream.write_all(bytes).unwrap();
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

#[test]
fn an_attempt_ends_with_its_connection() {
    let hashed_user = format!("foo:{SHA_256_HASH}\n");
    let login_server = RunningLoginServer::start(&hashed_user, 1000);
    // Sent at once, cut, in the binary protocol, and in a connection that was refused before.
    let text = b"set auth 0 0 204\r\nfoo ".to_vec();
    let text = [&text[..], &[b'x'; 200], b"\r\n"].concat();
    let sasl =
        request_packet(opcode::SASL_AUTH, b"PLAIN", &[&b"\0foo\0"[..], &[b'x'; 200]].concat());
    for number in 0..3000 {
        let request: &[u8] = match number % 4 {
            0 => &sasl,
            1 => &text[..text.len() - 2],
            _ => &text,
        };
        send_and_reset(&login_server, request);
    }
    let began_at = Instant::now();
    let mut stream = login_server.connect();
    stream.write_all(b"set auth 0 0 10\r\nfoo secret\r\n").unwrap();
    assert_eq!(read_line(&mut stream), "STORED\r\n");
    assert_in_time(began_at.elapsed(), Duration::from_millis(1500), "a login after the flood");
}

#[test]
fn silent_connections_do_not_delay_a_login() {
    let login_server = RunningLoginServer::start("foo:bar\n", 100);
    // Twenty-five of a hundred may be open without a login.
    let silent: Vec<TcpStream> = (0..400).map(|_| login_server.connect()).collect();
    let began_at = Instant::now();
    drop(login_server.connect_and_log_in());
    // Otherwise a second for each twenty-five: 16.
    let situation = "a login beside silent connections";
    assert_in_time(began_at.elapsed(), Duration::from_millis(2500), situation);
    drop(silent);
}

#[test]
fn many_clients_that_log_in_at_once_all_succeed() {
    let login_server = RunningLoginServer::start("foo:bar\n", 100);
    let connect_and_send = |_| {
        let mut stream = login_server.connect();
        stream.write_all(LOGIN).unwrap();
        stream
    };
    let mut streams: Vec<TcpStream> = (0..90).map(connect_and_send).collect();
    for stream in &mut streams {
        assert_eq!(read_line(stream), "STORED\r\n");
    }
}

#[test]
fn a_password_longer_than_a_hash_is_compared_with_is_refused() {
    let hashed_user = format!("foo:{SHA_256_HASH}\nlong:{}\n", "p".repeat(300));
    let login_server = RunningLoginServer::start(&hashed_user, 100);
    let attempt = |user: &str, password_bytes: usize| {
        let value = format!("{user} {}", "p".repeat(password_bytes));
        let mut stream = login_server.connect();
        stream
            .write_all(format!("set auth 0 0 {}\r\n{value}\r\n", value.len()).as_bytes())
            .unwrap();
        read_line(&mut stream)
    };
    assert_eq!(attempt("foo", 400), FAILED_REPLY);
    // A plain password may be as long as before.
    assert_eq!(attempt("long", 300), "STORED\r\n");
}

#[test]
fn a_changed_file_is_read_before_the_next_login_and_a_broken_one_is_not_used() {
    let login_server = RunningLoginServer::start("foo:bar\n", 100);
    let mut earlier_connection = login_server.connect_and_log_in();
    let path = login_server.folder.path().join("users");
    fs::write(&path, "half written").unwrap();
    login_server.server.control().reload();
    drop(login_server.connect_and_log_in());
    fs::write(&path, "foo:other password\n").unwrap();
    let mut stream = login_server.connect();
    stream.write_all(WRONG_LOGIN).unwrap();
    assert_eq!(read_line(&mut stream), FAILED_REPLY);
    stream.write_all(LOGIN).unwrap();
    assert_eq!(read_line(&mut stream), FAILED_REPLY);
    stream.write_all(b"set auth 0 0 18\r\nfoo other password\r\n").unwrap();
    assert_eq!(read_line(&mut stream), "STORED\r\n");
    earlier_connection.write_all(b"mn\r\n").unwrap();
    assert_eq!(read_line(&mut earlier_connection), "MN\r\n", "a login outlives its password");
}

#[test]
fn a_server_does_not_start_without_its_users() {
    let (folder, config) = config_with_users("no colon here\n", Protocols::Any);
    let refusal = start(config.clone()).map(drop).unwrap_err().to_string();
    assert!(refusal.contains("line 1 has no colon"), "{refusal}");
    fs::remove_file(folder.path().join("users")).unwrap();
    let refusal = start(config).map(drop).unwrap_err().to_string();
    assert!(refusal.contains("cannot be read"), "{refusal}");
}

#[test]
fn a_server_that_stops_completes_a_pending_login() {
    let login_server = RunningLoginServer::start("foo:bar\n", 100);
    let mut stream = login_server.connect();
    stream.write_all(&[WRONG_LOGIN, LOGIN].concat()).unwrap();
    // The first reply shows that the second attempt has been received.
    assert_eq!(read_line(&mut stream), FAILED_REPLY);
    login_server.server.stop();
    assert_eq!(read_line(&mut stream), "STORED\r\n");
}
