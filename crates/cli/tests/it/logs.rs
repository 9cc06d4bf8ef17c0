//! The log on stderr: refusals at any verbosity, more with `-v`, everything with `-vv`.

use std::io::{BufRead, BufReader};
use std::process::{ChildStderr, Stdio};

use crate::server::{Server, glasscache};

struct ServerWithLog {
    server: Server,
    stderr: BufReader<ChildStderr>,
}

impl ServerWithLog {
    fn start(flags: &[&str]) -> ServerWithLog {
        let mut command = glasscache();
        command.args(["serve", "-u", "root", "-p", "-1", "-t", "1"]).args(flags);
        let mut server = Server::run_with_stderr(command, Stdio::piped());
        let stderr = BufReader::new(server.take_stderr());
        let mut logged_server = ServerWithLog { server, stderr };
        assert!(logged_server.read_line().contains("listens on"));
        logged_server
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The first line with this text.
    fn read_line_with(&mut self, text: &str) -> String {
        loop {
            let line = self.read_line();
            assert!(!line.is_empty(), "no line with {text:?}");
            if line.contains(text) {
                return line;
            }
        }
    }
}

#[test]
fn refused_connections_are_logged_once_per_second() {
    let mut logged_server = ServerWithLog::start(&["-c", "2"]);
    let connections: Vec<_> = (0..2).map(|_| logged_server.server.connect()).collect();
    let started = std::time::Instant::now();
    for _ in 0..200 {
        assert_eq!(logged_server.server.connect().read_line(), "ERROR Too many open connections");
    }
    drop(connections);
    let line = logged_server.read_line_with("refused a connection from 127.0.0.1:");
    assert!(line.contains("2 are open (-c)"), "{line}");
    let pid = nix::unistd::Pid::from_raw(logged_server.server.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let further_lines =
        std::iter::from_fn(|| Some(logged_server.read_line()).filter(|line| !line.is_empty()))
            .count();
    assert!(further_lines as u64 <= started.elapsed().as_secs() + 1, "{further_lines} more lines");
}

#[test]
fn refused_stores_are_logged_and_by_key_with_v() {
    for (flags, text) in [
        (&["-m", "2", "-M"][..], "refused to store a value: no memory (-m is 2 MB"),
        (&["-m", "2", "-M", "-v"], "refused to store key"),
    ] {
        let mut logged_server = ServerWithLog::start(flags);
        let mut connection = logged_server.server.connect();
        let value = "x".repeat(10_000);
        let is_full = (0..1000).any(|number| {
            let reply = connection.request(&format!("set key{number} 0 0 10000\r\n{value}\r\n"));
            reply.starts_with("SERVER_ERROR out of memory")
        });
        assert!(is_full);
        logged_server.read_line_with(text);
    }
}

#[test]
fn a_closed_connection_is_logged_with_the_reason_with_v() {
    let mut logged_server = ServerWithLog::start(&["-v"]);
    let mut connection = logged_server.server.connect();
    connection.send(&[b'x'; 5000]);
    let line = logged_server.read_line_with("closed 127.0.0.1:");
    assert!(line.contains("a request cannot be followed"), "{line}");
}

#[test]
fn a_watcher_that_misses_lines_is_logged_with_v() {
    let mut logged_server = ServerWithLog::start(&["-v", "-o", "watcher_logbuf_size=1"]);
    let mut watcher = logged_server.server.connect();
    assert_eq!(watcher.request("watch fetchers\r\n"), "OK");
    // One packet of gets: the watcher is not served before their replies are complete.
    let gets = format!("get {}\r\n", "k ".repeat(200));
    let mut connection = logged_server.server.connect();
    connection.send(gets.as_bytes());
    logged_server.read_line_with("reads too slowly and misses lines");
}

#[test]
fn commands_and_replies_are_logged_as_memcached_does_with_vv() {
    let mut logged_server = ServerWithLog::start(&["-vv"]);
    let mut connection = logged_server.server.connect();
    connection.send(b"set a 0 0 5\r\nhello\r\nget a b\r\nmg a v\r\nnonsense\r\n");
    connection.send(b"quit\r\n");
    let first_line = logged_server.read_line();
    let descriptor = first_line
        .strip_prefix('<')
        .and_then(|line| line.strip_suffix(" new auto-negotiating client connection"))
        .unwrap()
        .to_owned();
    let mut commands = Vec::new();
    let mut replies = Vec::new();
    loop {
        let line = logged_server.read_line();
        if line == format!("<{descriptor} connection closed.") {
            break;
        }
        match line.split_at(1) {
            ("<", text) => commands.push(text.to_owned()),
            (">", text) => replies.push(text.to_owned()),
            _ => panic!("{line}"),
        }
    }
    let with_descriptor = |lines: &[&str]| -> Vec<String> {
        lines.iter().map(|line| format!("{descriptor} {line}")).collect()
    };
    assert_eq!(
        commands,
        with_descriptor(&["set a 0 0 5", "get a b", "mg a v", "nonsense", "quit"])
    );
    assert_eq!(replies, with_descriptor(&["STORED", "sending key a", "END", "VA 5", "ERROR"]));
}

#[test]
fn binary_protocol_clients_of_a_text_server_are_closed_counted_and_logged() {
    let mut logged_server = ServerWithLog::start(&["-B", "ascii"]);
    let mut connection = logged_server.server.connect();
    // A binary get of "k": 24 bytes of header and the key, without any line end.
    let mut request = vec![0x80, 0, 0, 1];
    request.resize(24, 0);
    request[11] = 1;
    request.push(b'k');
    connection.send(&request);
    assert!(connection.is_closed());
    logged_server.read_line_with("it speaks the binary protocol, which protocol (-B) excludes");
    let mut connection = logged_server.server.connect();
    connection.send(b"stats glasscache\r\n");
    let rows = String::from_utf8(connection.read_through(b"END\r\n")).unwrap();
    assert!(rows.contains("STAT binary_connections_closed 1\r\n"), "{rows}");
}

#[test]
fn the_highest_level_shows_requests_and_responses_of_the_binary_protocol_without_values() {
    let mut logged_server = ServerWithLog::start(&["-vv"]);
    let mut connection = logged_server.server.connect();
    let mut request = vec![0x80, 1, 0, 1, 8];
    request.resize(24, 0);
    request[11] = 8 + 1 + 6;
    request.resize(32, 0);
    request.extend_from_slice(b"kvalue\n");
    connection.send(&request);
    connection.read_exactly(24);
    logged_server.read_line_with("binary opcode 0x01 opaque 0x0 key k");
    logged_server.read_line_with("binary opcode 0x01 status 0x00 opaque 0x0");
}

#[test]
fn an_unread_stderr_blocks_no_client() {
    let logged_server = ServerWithLog::start(&["-vv"]);
    let mut connection = logged_server.server.connect();
    // Far more than a pipe and the queue of lines take.
    let request = format!("{}mn\r\n", "mg key k\r\n".repeat(50_000));
    connection.send(request.as_bytes());
    connection.read_through(b"MN\r\n");
    let mut server = logged_server.server;
    let pid = nix::unistd::Pid::from_raw(server.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn stats_glasscache_reports_program_and_start_time() {
    let server = Server::start(&[]);
    let mut connection = server.connect();
    connection.send(b"stats glasscache\r\n");
    let rows = String::from_utf8(connection.read_through(b"END\r\n")).unwrap();
    let row = |name: &str| {
        let start = format!("STAT {name} ");
        let line = rows.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("no {name} in {rows}")).to_owned()
    };
    assert_eq!(row("version"), env!("CARGO_PKG_VERSION"));
    assert!(!row("commit").is_empty());
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(now - row("started_unix").parse::<u64>().unwrap() < 3600);
    let version = connection.request("version\r\n");
    let own_version = env!("CARGO_PKG_VERSION");
    assert_eq!(version, format!("VERSION 1.6.45-glasscache-{own_version}"));
}
