//! The log on stderr: refusals at any verbosity, more with `-v`, everything with `-vv`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::server::{Server, glasscache, strip_time_and_level, wait_until};

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
        let line = line.trim_end();
        if line.is_empty() { String::new() } else { strip_time_and_level(line).to_owned() }
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
    send_signal(logged_server.server.id(), Signal::SIGTERM);
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
    send_signal(server.id(), Signal::SIGTERM);
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
    let build = match row("commit").as_str() {
        "unknown" => String::new(),
        commit => format!("+{commit}"),
    };
    assert_eq!(version, format!("VERSION 1.6.45-glasscache-{own_version}{build}"));
    let version_output = glasscache().arg("--version").output().unwrap().stdout;
    let version_text = String::from_utf8(version_output).unwrap();
    assert_eq!(version_text, format!("glasscache {own_version}{build}\n"));
}

fn send_signal(id: u32, signal: Signal) {
    kill(Pid::from_raw(id as i32), signal).unwrap();
}

fn count_lines_with(path: &Path, text: &str) -> usize {
    let log = fs::read_to_string(path).unwrap_or_default();
    log.lines().filter(|line| line.contains(text)).count()
}

#[test]
fn a_log_file_is_opened_again_when_another_program_has_renamed_it() {
    let folder = tempfile::tempdir().unwrap();
    let (log, renamed) = (folder.path().join("log"), folder.path().join("log.1"));
    let mut server = Server::start(&["--log-file", log.to_str().unwrap()]);
    wait_until(|| count_lines_with(&log, "listens on") == 1);
    strip_time_and_level(fs::read_to_string(&log).unwrap().trim_end());
    fs::rename(&log, &renamed).unwrap();
    send_signal(server.id(), Signal::SIGHUP);
    wait_until(|| count_lines_with(&log, "was opened again") == 1);
    assert_eq!(count_lines_with(&renamed, "listens on"), 1);
    // Where it cannot be opened, the open one stays.
    fs::remove_file(&log).unwrap();
    symlink("/dev/full", &log).unwrap();
    send_signal(server.id(), Signal::SIGHUP);
    assert!(server.connect().request("version\r\n").starts_with("VERSION"));
    send_signal(server.id(), Signal::SIGTERM);
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_daemon_keeps_its_log_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut command = glasscache();
    command.args(["serve", "-d", "-u", "root", "-p", "-1", "-c", "1", "-P"]).arg(path("pid"));
    command.arg("--log-file").arg(path("log"));
    let status = command.env("MEMCACHED_PORT_FILENAME", path("ports")).status().unwrap();
    assert_eq!(status.code(), Some(0));
    let port_text = fs::read_to_string(path("ports")).unwrap();
    let port: u16 = port_text.trim().rsplit(' ').next().unwrap().parse().unwrap();
    let _first = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let _refused = TcpStream::connect(("127.0.0.1", port)).unwrap();
    wait_until(|| count_lines_with(&path("log"), "warning glasscache: refused a connection") == 1);
    let log = fs::read_to_string(path("log")).unwrap();
    assert!(log.contains("(this machine only)") && !log.contains("its log ends here"), "{log}");
    send_signal(fs::read_to_string(path("pid")).unwrap().trim().parse().unwrap(), Signal::SIGTERM);
    wait_until(|| !path("pid").exists());
}

#[test]
fn a_log_file_that_cannot_be_opened_stops_the_start_and_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let (link, victim) = (folder.path().join("link"), folder.path().join("victim"));
    fs::write(&victim, "kept").unwrap();
    symlink(&victim, &link).unwrap();
    for path in [link.as_path(), Path::new("/nonexistent/log"), folder.path()] {
        for command in [&["serve", "-p", "-1"][..], &["config", "check"]] {
            let mut process = glasscache();
            process.args(command).args(["-u", "root", "--log-file"]).arg(path);
            let output = process.output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(3), "{text}");
            assert!(text.contains("log-file: "), "{text}");
        }
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
}

/// The first line of a server whose stderr is this file.
fn read_first_line(flags: &[&str], set_up: impl FnOnce(&mut Command, &File)) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = glasscache();
    command.args(["serve", "-u", "root", "-p", "-1"]).args(flags);
    set_up(&mut command, file.as_file());
    let _server = Server::run_with_stderr(command, file.reopen().unwrap().into());
    wait_until(|| count_lines_with(file.path(), "listens on") == 1);
    fs::read_to_string(file.path()).unwrap().lines().next().unwrap().to_owned()
}

#[test]
fn lines_are_json_or_as_the_journal_reads_them() {
    let line = read_first_line(&["--log-format", "json"], |_, _| {});
    let object: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(object["level"], "info");
    assert!(object["time"].as_str().unwrap().ends_with('Z'), "{line}");
    assert!(object["message"].as_str().unwrap().starts_with("glasscache "), "{line}");
    let set_journal = |command: &mut Command, stderr: &File| {
        let status = stderr.metadata().unwrap();
        command.env("JOURNAL_STREAM", format!("{}:{}", status.dev(), status.ino()));
    };
    let line = read_first_line(&[], set_journal);
    assert!(line.starts_with("<6>glasscache "), "{line}");
    // The variable of another process's stream.
    let line = read_first_line(&[], |command, _| {
        command.env("JOURNAL_STREAM", "1:1");
    });
    assert!(strip_time_and_level(&line).starts_with("glasscache "), "{line}");
}

#[test]
fn a_terminal_gets_the_text_alone() {
    let script = "exec \"$0\" serve -u root -p -1 -m 8";
    let mut command = Command::new("script");
    command.args(["-qec", &script.replace("$0", env!("CARGO_BIN_EXE_glasscache")), "/dev/null"]);
    for (variable, _) in glasscache().get_envs() {
        command.env_remove(variable);
    }
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let Ok(mut process) = spawned else {
        eprintln!("left out: no `script` that gives a process a terminal");
        return;
    };
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(line.starts_with("glasscache ") && line.contains("listens on"), "{line}");
    let (_, pid) = line.split_once("(pid ").unwrap();
    send_signal(pid.split(',').next().unwrap().parse().unwrap(), Signal::SIGKILL);
}
