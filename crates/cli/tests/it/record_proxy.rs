//! `record --listen` between real clients and real servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};
use std::time::Duration;

use glasscache_record::read_folder;
use serde_json::Value;

use super::server::{Server, glasscache};

/// A recording proxy, and where it listens.
struct Proxy {
    child: Child,
    address: String,
    /// Kept open: it may print a warning.
    _stderr: BufReader<ChildStderr>,
}

impl Proxy {
    fn start(folder: &Path, server: &str, arguments: &[&str]) -> Self {
        let mut command = glasscache();
        command.args(["record", "--listen", "127.0.0.1:0", "--to", server, "--json", "--out"]);
        command.arg(folder).args(arguments);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on ").and_then(|rest| rest.split_once(','));
        let address = address.unwrap_or_else(|| panic!("{line}")).0.to_owned();
        Self { child, address, _stderr: stderr }
    }

    /// Ends the log; the exit code and the result.
    fn stop(self) -> (Option<i32>, Value) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::SIGINT).unwrap();
        let output = self.child.wait_with_output().unwrap();
        let mut document: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), document["result"].take())
    }
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// Sends commands, reads as many bytes as `expected_reply` has, and checks that they are equal.
fn expect_reply(stream: &mut TcpStream, commands: &[u8], expected_reply: &[u8]) {
    stream.write_all(commands).unwrap();
    let mut received = vec![0; expected_reply.len()];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(String::from_utf8_lossy(&received), String::from_utf8_lossy(expected_reply));
}

/// Sends text, meta and pipelines through the proxy, and checks the log.
fn assert_commands_and_keys_are_recorded(server: &Server) {
    let folder = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(folder.path(), &server.address(), &["--gap", "100000"]);
    let mut first = connect(&proxy.address);
    expect_reply(
        &mut first,
        b"set a 0 0 3\r\nabc\r\nget a b a\r\n",
        b"STORED\r\nVALUE a 0 3\r\nabc\r\nVALUE a 0 3\r\nabc\r\nEND\r\n",
    );
    expect_reply(
        &mut first,
        b"mg a v O7 q\r\nmg c v O8 q\r\nmn\r\nms d 2 T0\r\nxy\r\nmg d v k\r\n",
        b"VA 3 O7\r\nabc\r\nMN\r\nHD\r\nVA 2 kd\r\nxy\r\n",
    );
    expect_reply(&mut first, b"get wi", b"");
    expect_reply(&mut first, b"th-a-cut-key\r\n", b"END\r\n");
    let mut second = connect(&proxy.address);
    expect_reply(&mut second, b"get a\r\n", b"VALUE a 0 3\r\nabc\r\nEND\r\n");
    expect_reply(&mut second, b"quit\r\n", b"");
    drop(first);
    let (code, result) = proxy.stop();
    assert_eq!(code, Some(0), "{result}");
    assert_eq!((&result["connections"], &result["recorded"]), (&2.into(), &2.into()));
    assert_eq!((&result["reads"], &result["writes"]), (&8.into(), &2.into()));
    assert!(result["hop_us"].as_f64() > Some(0.0));

    let log = read_folder(folder.path()).unwrap().log;
    let key_of = |&item: &u32| log.items.keys[item as usize].as_str();
    let mut requests: Vec<Vec<&str>> = (0..log.requests.len())
        .map(|request| log.requests.items_of(request).iter().map(key_of).collect())
        .collect();
    requests.sort();
    assert_eq!(requests, [vec!["a"], vec!["a", "b", "a", "a", "c", "d", "with-a-cut-key"]]);
    let size_of = |key: &str| {
        log.items.sizes[log.items.keys.iter().position(|item_key| item_key == key).unwrap()]
    };
    assert_eq!([size_of("a"), size_of("d"), size_of("c")], [3, 2, 0]);
    assert_ne!(log.requests.instances[0], log.requests.instances[1]);
}

#[test]
fn every_command_and_key_of_a_program_is_in_the_log_in_order() {
    assert_commands_and_keys_are_recorded(&Server::start(&[]));
}

#[test]
fn a_program_of_memcached_is_recorded_alike() {
    if let Some(path) = std::env::var_os("GLASSCACHE_TEST_ORACLE") {
        assert_commands_and_keys_are_recorded(&Server::memcached(&path));
    }
}

#[test]
fn large_values_pass_in_both_directions() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(folder.path(), &server.address(), &[]);
    let value = vec![b'v'; 900_000];
    let mut stream = connect(&proxy.address);
    expect_reply(
        &mut stream,
        &[b"set big 0 0 900000\r\n", &value[..], b"\r\n"].concat(),
        b"STORED\r\n",
    );
    expect_reply(
        &mut stream,
        b"get big\r\n",
        &[b"VALUE big 0 900000\r\n", &value[..], b"\r\nEND\r\n"].concat(),
    );
    drop(stream);
    let (_, result) = proxy.stop();
    assert_eq!(result["reads"], 1);
    let log = read_folder(folder.path()).unwrap().log;
    assert_eq!(log.items.sizes, [900_000]);
}

#[test]
fn a_connection_in_binary_is_passed_on_and_counted() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(folder.path(), &server.address(), &[]);
    let mut noop = [0; 24];
    (noop[0], noop[1]) = (0x80, 0x0a);
    let mut reply = noop;
    reply[0] = 0x81;
    let mut stream = connect(&proxy.address);
    expect_reply(&mut stream, &noop, &reply);
    drop(stream);
    let (code, result) = proxy.stop();
    assert_eq!((code, &result["unrecorded"]), (Some(0), &1.into()));
    assert_eq!(result["recorded"], 0);
}

#[test]
fn without_a_server_connections_are_closed_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(folder.path(), "127.0.0.1:1", &[]);
    let mut stream = connect(&proxy.address);
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
    let (code, result) = proxy.stop();
    assert_eq!((code, &result["refused"]), (Some(1), &1.into()));
}

#[test]
fn a_folder_that_cannot_be_written_stops_no_conversation() {
    let server = Server::start(&[]);
    let not_a_folder = tempfile::NamedTempFile::new().unwrap();
    let proxy = Proxy::start(not_a_folder.path(), &server.address(), &["--gap", "100000"]);
    let mut stream = connect(&proxy.address);
    expect_reply(&mut stream, b"get a\r\n", b"END\r\n");
    expect_reply(&mut stream, b"get b\r\n", b"END\r\n");
    drop(stream);
    let (code, result) = proxy.stop();
    assert_eq!((code, &result["dropped"], &result["reads"]), (Some(1), &1.into(), &2.into()));
}
