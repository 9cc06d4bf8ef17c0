//! Sessions of a listener for statistics: whatever is sent, and however it is cut, nothing else is executed.

use glasscache_protocol::binary::request::{self, BinaryStoreParameters};
use glasscache_protocol::binary::{OpcodeAndOpaque, Status, opcode, reply};
use glasscache_server::{
    Config, InMemoryConnection, InMemoryWorker, Listen, Protocols, UsersFile, UsersFileFormat,
    pieces,
};
use proptest::prelude::*;

const REFUSAL: &[u8] = b"CLIENT_ERROR this address serves statistics only (noauth:)\r\n";

/// Lines of which each has one refusal as its reply.
const REFUSED_LINES: [&[u8]; 24] = [
    b"get a\r\n",
    b"gets a b c\r\n",
    b"gat 10 a\r\n",
    b"mg a v\r\n",
    b"mg YQ== b v\r\n",
    b"me a\r\n",
    b"md a\r\n",
    b"ma a N0 J1\r\n",
    b"mf a\r\n",
    b"delete a\r\n",
    b"incr a 1\r\n",
    b"touch a 10\r\n",
    b"flush_all\r\n",
    b"flush_prefix a\r\n",
    b"watch fetchers\r\n",
    b"lru_crawler metadump all\r\n",
    b"lru_crawler mgdump hash\r\n",
    b"stats cachedump 1 0\r\n",
    b"stats detail dump\r\n",
    b"stats reset\r\n",
    b"shutdown\r\n",
    b"cache_memlimit 100\r\n",
    b"verbosity 2\r\n",
    b"refresh_certs\r\n",
];

/// A worker with an address for statistics, of a server with users.
fn new_worker() -> InMemoryWorker {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    std::fs::write(&path, "foo:bar\n").unwrap();
    let address = Listen::Tcp(([127, 0, 0, 1], 0).into());
    let config = Config {
        listeners: vec![Listen::Statistics(Box::new(address))],
        memory_bytes: 8 << 20,
        shutdown_enabled: true,
        // The login covers text alone, and an address without one serves both.
        protocol: Protocols::Text,
        users: Some(UsersFile { path, format: UsersFileFormat::AuthFile }),
        ..Config::default()
    };
    InMemoryWorker::group(config, 1).unwrap().remove(0)
}

fn feed(worker: &mut InMemoryWorker, connection: &mut InMemoryConnection, bytes: &[u8]) -> Vec<u8> {
    worker.feed(connection, bytes, 2)
}

/// The rows of `stats` that count executed commands.
fn read_command_counts(worker: &mut InMemoryWorker) -> Vec<String> {
    let mut connection = worker.connect();
    let reply = String::from_utf8(feed(worker, &mut connection, b"stats\r\n")).unwrap();
    assert!(reply.ends_with("END\r\n"), "{reply}");
    let is_count = |line: &&str| {
        ["cmd_", "get_", "delete_", "incr_", "touch_", "curr_items", "total_items", "auth_"]
            .iter()
            .any(|start| line.trim_start_matches("STAT ").starts_with(start))
    };
    reply.lines().filter(is_count).map(str::to_owned).collect()
}

#[test]
fn statistics_need_no_login() {
    let mut worker = new_worker();
    let mut connection = worker.connect();
    for (line, start) in [
        (&b"version\r\n"[..], &b"VERSION 1.6"[..]),
        (b"mn\r\n", b"MN\r\n"),
        (b"stats\r\n", b"STAT pid "),
        (b"stats settings\r\n", b"STAT maxbytes "),
        (b"stats items\r\n", b"END\r\n"),
        (b"stats slabs\r\n", b"STAT active_slabs"),
        (b"stats sizes\r\n", b"STAT sizes_status"),
        (b"stats conns\r\n", b"END\r\n"),
        (b"stats glasscache\r\n", b"STAT "),
    ] {
        let reply = feed(&mut worker, &mut connection, line);
        let text = String::from_utf8_lossy(&reply);
        assert!(reply.starts_with(start), "{line:?}: {text}");
    }
    feed(&mut worker, &mut connection, b"quit\r\n");
    assert!(connection.is_closed());
}

#[test]
fn every_other_line_is_refused_and_the_connection_stays_open() {
    let mut worker = new_worker();
    let mut connection = worker.connect();
    for line in REFUSED_LINES {
        let reply = feed(&mut worker, &mut connection, line);
        let (line, reply) = (String::from_utf8_lossy(line), String::from_utf8_lossy(&reply));
        assert_eq!(reply.as_bytes(), REFUSAL, "{line}: {reply}");
    }
    assert!(feed(&mut worker, &mut connection, b"version\r\n").starts_with(b"VERSION"));
}

#[test]
fn a_value_is_refused_and_never_taken_for_commands() {
    for request in [
        &b"set a 0 0 7\r\nversion\r\n"[..],
        b"set auth 0 0 7\r\nfoo bar\r\nversion\r\n",
        b"ms a 7\r\nversion\r\n",
        b"set a 0 0 99999999\r\nversion\r\n",
    ] {
        let mut worker = new_worker();
        let mut connection = worker.connect();
        let reply = feed(&mut worker, &mut connection, request);
        let text = String::from_utf8_lossy(&reply);
        assert_eq!(reply.split(|byte| *byte == b'\n').count(), 2, "{text}");
        assert!(connection.is_closed(), "{text}");
    }
}

#[test]
fn a_line_without_an_end_is_bounded() {
    let mut worker = new_worker();
    let mut connection = worker.connect();
    let reply = feed(&mut worker, &mut connection, &[b'x'; 4096]);
    assert_eq!(reply, b"CLIENT_ERROR line too long\r\n");
    assert!(connection.is_closed());
}

fn packet(opcode: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let opcode_and_opaque = OpcodeAndOpaque { opcode, opaque: 9 };
    match opcode {
        opcode::SET => {
            let value_bytes = value.len() as u32;
            let parameters =
                BinaryStoreParameters { flags: 0, exptime: 0, value_bytes, required_cas: 0 };
            request::store(&mut packet, opcode_and_opaque, key, &parameters);
        }
        opcode::SASL_AUTH => {
            request::append_or_prepend(&mut packet, opcode_and_opaque, key, value.len() as u32, 0);
        }
        _ if key.is_empty() => request::header_only(&mut packet, opcode_and_opaque),
        _ => request::get(&mut packet, opcode_and_opaque, key),
    }
    packet.extend_from_slice(value);
    packet
}

fn first_status(bytes: &[u8]) -> Status {
    reply::parse_head(bytes).unwrap().unwrap().0.status
}

#[test]
fn binary_requests_for_statistics_are_served_and_others_refused() {
    let mut worker = new_worker();
    for (opcode, key, expected) in [
        (opcode::VERSION, &b""[..], Status::Success),
        (opcode::NOOP, b"", Status::Success),
        (opcode::STAT, b"", Status::Success),
        (opcode::STAT, b"settings", Status::Success),
        (opcode::STAT, b"detail dump", Status::AuthFailure),
        (opcode::STAT, b"reset", Status::AuthFailure),
        (opcode::GET, b"a", Status::AuthFailure),
        (opcode::GETKQ, b"a", Status::AuthFailure),
        (opcode::DELETE, b"a", Status::AuthFailure),
        (opcode::FLUSH, b"", Status::AuthFailure),
        (opcode::SASL_LIST_MECHANISMS, b"", Status::AuthFailure),
        (opcode::SASL_AUTH, b"PLAIN", Status::AuthFailure),
        (opcode::SET, b"a", Status::AuthFailure),
    ] {
        let mut connection = worker.connect();
        let has_value = matches!(opcode, opcode::SET | opcode::SASL_AUTH);
        let value: &[u8] = if has_value { b"\0foo\0bar" } else { b"" };
        let reply = feed(&mut worker, &mut connection, &packet(opcode, key, value));
        assert_eq!(first_status(&reply), expected, "{opcode} {key:?}");
        assert_eq!(connection.is_closed(), has_value);
        if expected == Status::AuthFailure {
            assert!(String::from_utf8_lossy(&reply).contains("serves statistics only"));
        }
    }
}

proptest! {
    #[test]
    fn no_sequence_of_requests_executes_a_command(
        requests in prop::collection::vec(prop::sample::select(vec![
            &b"get a\r\n"[..], b"set a 0 0 1\r\n1\r\n", b"mn\r\n", b"set auth 0 0 7\r\nfoo bar\r\n", b"stats\r\n",
            b"version\r\n", b"ms a 2 c\r\nxx\r\n", b"mg a v\r\n", b"flush_all\r\n", b"get", b" a\r\n", b"\r\n", b"\n", b"delete a noreply\r\n",
            b"\x80\x01\x00\x01\x08\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00ab",
        ]), 1..12),
        lengths in prop::collection::vec(1_usize..30, 1..8),
    ) {
        let stream = requests.concat();
        let (mut worker, mut other_worker) = (new_worker(), new_worker());
        let counts = read_command_counts(&mut worker);
        let mut connection = worker.connect();
        let received: Vec<u8> =
            pieces(&stream, &lengths).flat_map(|piece| worker.feed(&mut connection, piece, 2)).collect();
        prop_assert_eq!(read_command_counts(&mut worker), counts);
        let mut whole_connection = other_worker.connect();
        let expected = other_worker.feed(&mut whole_connection, &stream, 2);
        // The rows of statistics have times of their own.
        let count_lines = |bytes: &[u8]| bytes.split(|byte| *byte == b'\n').count();
        prop_assert_eq!(count_lines(&received), count_lines(&expected));
        prop_assert_eq!(connection.is_closed(), whole_connection.is_closed());
    }
}
