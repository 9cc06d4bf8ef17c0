//! `serve --replace`: a new process takes over sockets, connections and memory of the running one.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::server::{Memory, Server, Wire, glasscache, wait_until};

/// How long a reply may take on a busy machine, a handover included.
const REPLY_TIMEOUT: Duration = Duration::from_mins(1);

impl Memory {
    /// Starts a server that replaces `before`; when it returns, the other one has ended.
    fn replace(&self, before: &mut Server, flags: &[&str]) -> Server {
        let flags = [&["--replace"], flags].concat();
        let after = Server::run(self.command(&flags));
        assert_eq!(after.port(), before.port());
        assert_eq!(before.wait(), Some(0));
        after
    }
}

fn pid(wire: &mut Wire) -> String {
    let mut line = wire.request("stats\r\n");
    let mut pid = String::new();
    while line != "END" {
        if let Some(text) = line.strip_prefix("STAT pid ") {
            text.clone_into(&mut pid);
        }
        line = wire.line();
    }
    pid
}

#[test]
fn items_and_established_connections_pass_to_the_new_process() {
    let memory = Memory::new();
    let mut before = memory.start();
    let (mut idle, mut half, mut split_get) =
        (before.connect(), before.connect(), before.connect());
    assert_eq!(idle.request("set key 5 0 5\r\nvalue\r\n"), "STORED");
    let line = idle.request("gets key\r\n");
    let unique = line.rsplit_once(' ').unwrap().1.to_owned();
    assert_eq!((idle.line(), idle.line()), ("value".into(), "END".into()));
    half.send(b"set half 0 0 10\r\n01234");
    split_get.send(b"get key no");
    let mut after = memory.replace(&mut before, &["-m", "8"]);
    half.send(b"56789\r\n");
    assert_eq!(half.line(), "STORED");
    split_get.send(b"ne half\r\n");
    assert_eq!(split_get.line(), "VALUE key 5 5");
    assert_eq!(split_get.line(), "value");
    assert_eq!(split_get.line(), "VALUE half 0 10");
    assert_eq!(
        (split_get.line(), split_get.line()),
        ("0123456789".into(), "END".into())
    );
    let request = format!("cas key 0 0 1 {unique}\r\nx\r\n");
    assert_eq!(idle.request(&request), "STORED");
    assert_eq!(idle.request(&request), "EXISTS");
    assert_eq!(pid(&mut idle), after.id().to_string());
    assert_eq!(pid(&mut after.connect()), after.id().to_string());
    // Once more, by a server with another number of workers.
    let last = memory.replace(&mut after, &["-m", "8", "-t", "3"]);
    assert_eq!(idle.request("get key\r\n"), "VALUE key 0 1");
    assert_eq!((idle.line(), idle.line()), ("x".into(), "END".into()));
    assert_eq!(pid(&mut idle), last.id().to_string());
}

/// Sets and reads one key until it is told to stop, on one connection and then on new ones: every reply is right.
fn write_and_read(port: u16, name: u64, must_stop: &AtomicBool, requests: &AtomicU64) {
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        BufReader::new(stream)
    };
    let request = |wire: &mut BufReader<TcpStream>, text: &str, lines: usize| {
        wire.get_mut().write_all(text.as_bytes()).unwrap();
        let mut reply = String::new();
        for _ in 0..lines {
            assert_ne!(
                wire.read_line(&mut reply).unwrap(),
                0,
                "closed after {text:?}"
            );
        }
        requests.fetch_add(1, Ordering::Relaxed);
        reply
    };
    let mut wire = connect();
    for number in 0u64.. {
        let value = format!("{number:08}").repeat(1 + number as usize % 40);
        let length = value.len();
        let set = format!("set key{name} 0 0 {length}\r\n{value}\r\n");
        assert_eq!(request(&mut wire, &set, 1), "STORED\r\n");
        let get = format!("get key{name}\r\n");
        let expected = format!("VALUE key{name} 0 {length}\r\n{value}\r\nEND\r\n");
        assert_eq!(request(&mut wire, &get, 3), expected);
        let mut other = connect();
        assert_eq!(request(&mut other, &get, 3), expected);
        if must_stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

#[test]
fn no_request_fails_and_no_value_is_wrong_while_servers_are_replaced() {
    let memory = Memory::new();
    let mut server = memory.start();
    let port = server.port();
    let (must_stop, requests) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (must_stop, requests) = (&must_stop, &requests);
        for name in 0..4 {
            scope.spawn(move || write_and_read(port, name, must_stop, requests));
        }
        let replacements = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..3 {
                let before = requests.load(Ordering::Relaxed);
                wait_until(|| requests.load(Ordering::Relaxed) > before + 50);
                server = memory.replace(&mut server, &["-m", "8"]);
            }
            let before = requests.load(Ordering::Relaxed);
            wait_until(|| requests.load(Ordering::Relaxed) > before + 50);
        }));
        must_stop.store(true, Ordering::Relaxed);
        replacements.unwrap();
    });
}

#[test]
fn another_size_of_memory_starts_empty_and_keeps_the_connections() {
    let memory = Memory::new();
    let mut before = memory.start();
    let mut wire = before.connect();
    assert_eq!(wire.request("set key 0 0 5\r\nvalue\r\n"), "STORED");
    let mut after = memory.replace(&mut before, &["-m", "16"]);
    assert_eq!(wire.request("get key\r\n"), "END");
    assert_eq!(wire.request("set key 0 0 5\r\nvalue\r\n"), "STORED");
    // The new memory is the file of that name: the next process has its items.
    let _last = memory.replace(&mut after, &["-m", "16"]);
    assert_eq!(wire.request("get key\r\n"), "VALUE key 0 5");
    assert_eq!((wire.line(), wire.line()), ("value".into(), "END".into()));
    assert!(!memory.folder.path().join("memory.new").exists());
}

#[test]
fn a_pid_file_that_cannot_be_written_does_not_end_the_new_process() {
    let memory = Memory::new();
    let mut before = memory.start();
    let mut wire = before.connect();
    assert_eq!(wire.request("set key 0 0 5\r\nvalue\r\n"), "STORED");
    let _after = memory.replace(&mut before, &["-m", "8", "-P", "/nonexistent/pid"]);
    assert_eq!(wire.request("get key\r\n"), "VALUE key 0 5");
}

#[test]
fn a_new_process_that_is_killed_at_any_moment_costs_at_most_the_cache() {
    let memory = Memory::new();
    for round in 0..8 {
        let mut server = memory.start();
        let mut wire = server.connect();
        assert_eq!(wire.request("set key 0 0 5\r\nvalue\r\n"), "STORED");
        let mut command = memory.command(&["-m", "8", "--replace"]);
        let mut killed = command.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(round * 3));
        killed.kill().unwrap();
        killed.wait().unwrap();
        // Either it had taken over, and everything has ended with it, or nothing has happened.
        wire.send(b"get key\r\n");
        let reply = wire.line_or_end();
        if reply == "VALUE key 0 5" {
            assert_eq!((wire.line(), wire.line()), ("value".into(), "END".into()));
            assert!(!server.has_ended());
            let last = memory.replace(&mut server, &["-m", "8"]);
            assert_eq!(last.connect().request("get key\r\n"), "VALUE key 0 5");
        } else {
            assert_eq!(reply, "");
            assert_eq!(server.wait(), Some(0));
        }
    }
}

#[test]
fn without_a_file_or_a_running_server_it_ends_with_one_sentence() {
    let memory = Memory::new();
    let mut command = glasscache();
    command.args(["serve", "-p", "-1", "-u", "root", "--replace"]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("add -e FILE"), "{text}");
    let output = memory.command(&["--replace"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("no server can be reached"), "{text}");
    assert!(!memory.file().exists());
}
