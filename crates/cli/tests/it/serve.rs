//! `glasscache serve` as a process: invalid settings, its files, signals, the daemon.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::server::{Server, glasscache, wait_until};

fn run_glasscache(arguments: &[&str]) -> Output {
    glasscache().args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The exit code and the first sentence on stderr.
fn run_and_read_refusal(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run_glasscache(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), text.lines().next().unwrap_or_default().to_owned())
}

#[test]
fn invalid_settings_exit_with_code_2_and_one_error_line() {
    let cases: [(&[&str], &str); 10] = [
        (&["-t", "0"], "threads (-t): \"0\" (command line) must be a whole number from 1 to 256"),
        (
            &["-c", "-1"],
            "conn-limit (-c): \"-1\" (command line) must be a whole number from 1 to 1000000",
        ),
        (
            &["-B", "http"],
            "protocol (-B): \"http\" (command line) must be one of ascii, binary, auto",
        ),
        (&["-l", "256.0.0.1"], "listen (-l): 256.0.0.1: cannot resolve the name"),
        (
            &["-I", "1000"],
            "max-item-size (-I): \"1000\" (command line) must be a size from 1k to 1g",
        ),
        (
            &["-I", "256m"],
            "max-item-size (-I): 256m is too large, it must be at most half of memory-limit",
        ),
        (
            &["-o", "idle_timout=3"],
            "-o idle_timout: no such option (command line); the nearest is idle_timeout",
        ),
        (&["-l", "0.0.0.0"], "listen (-l): 0.0.0.0:11211 can be reached by other machines"),
        (&["-a", "999"], "unix-mask (-a): \"999\" (command line) must be an octal mask"),
        (&["--config", "/no/such/file"], "config: cannot read /no/such/file"),
    ];
    for (flags, sentence) in cases {
        let (code, text) = run_and_read_refusal(&[&["serve"], flags].concat());
        assert_eq!(code, Some(2), "{flags:?}: {text}");
        assert!(text.contains(sentence), "{flags:?}: {text}");
    }
}

#[test]
fn a_port_in_use_exits_with_code_3_and_leaves_no_files() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let (code, text) = run_and_read_refusal(&[
        "serve",
        "-u",
        "root",
        "-p",
        &port,
        "-P",
        pid_file.to_str().unwrap(),
    ]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains(&port), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn unavailable_memory_exits_with_code_3() {
    let program = env!("CARGO_BIN_EXE_glasscache");
    let script = format!("ulimit -v 300000; exec {program} serve -u root -p -1 -m 4096");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn starts_as_memcached_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("memcached");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_glasscache"), &link).unwrap();
    for program in [link.as_path(), std::path::Path::new(env!("CARGO_BIN_EXE_glasscache"))] {
        let mut command = Command::new(program);
        command.args(["-m", "64", "-c", "1024", "-p", "-1", "-u", "root"]);
        let server = Server::run(command);
        let mut connection = server.connect();
        connection.send(b"stats settings\r\n");
        let reply = connection.read_through(b"END\r\n");
        assert!(String::from_utf8(reply).unwrap().contains("STAT maxconns 1024"));
    }
}

#[test]
fn accepts_all_of_memcacheds_flags_together() {
    let flags = [
        "-m",
        "64",
        "-c",
        "100",
        "-t",
        "2",
        "-I",
        "512k",
        "-R",
        "30",
        "-C",
        "-F",
        "-f",
        "1.5",
        "-n",
        "64",
        "-u",
        "nobody",
        "-v",
        "-A",
        "-b",
        "50",
        "-U",
        "0",
        "-B",
        "auto",
        "-W",
        "-D",
        ":",
        "-X",
        "-a",
        "700",
        "-o",
        "hashpower=20,slab_reassign,lru_crawler",
        "-o",
        "idle_timeout=60,no_lru_maintainer",
    ];
    let server = Server::start(&flags);
    let mut connection = server.connect();
    connection.send(b"stats settings\r\n");
    let rows = String::from_utf8(connection.read_through(b"END\r\n")).unwrap();
    for row in [
        "cas_enabled no",
        "flush_enabled no",
        "item_size_max 524288",
        "idle_timeout 60",
        "tcp_backlog 50",
        "maxconns 100",
        "num_threads 2",
        "reqs_per_event 30",
        "detail_enabled yes",
        "shutdown_command yes",
        "growth_factor 1.50",
        "chunk_size 64",
        "lru_maintainer_thread no",
    ] {
        assert!(rows.contains(&format!("STAT {row}\r\n")), "{row} is missing in\n{rows}");
    }
}

#[test]
fn two_megabytes_are_enough_to_start() {
    let server = Server::start(&["-m", "2"]);
    assert_eq!(server.connect().request("set a 0 0 1\r\nx\r\n"), "STORED");
}

#[test]
fn sigterm_exits_with_code_0_and_removes_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let mut server = Server::start(&["-P", pid_file.to_str().unwrap()]);
    assert!(server.connect().request("version\r\n").starts_with("VERSION "));
    // The pid file is written before the server reports that it is ready, the port file before that.
    kill(Pid::from_raw(server.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(server.wait(), Some(0));
    assert!(!pid_file.exists());
}

#[test]
fn the_unix_socket_replaces_tcp_and_is_removed() {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut child = glasscache()
        .args(["serve", "-u", "root", "-s"])
        .arg(&path)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut start_line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut start_line).unwrap();
    assert!(start_line.contains("listens on"), "{start_line}");
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"version\r\n").unwrap();
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).unwrap();
    assert!(reply.starts_with("VERSION "));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn the_daemon_listens_when_the_command_returns() {
    let folder = tempfile::tempdir().unwrap();
    let (pid_file, port_file) = (folder.path().join("pid"), folder.path().join("port"));
    let status = glasscache()
        .args(["serve", "-u", "root", "-d", "-p", "-1", "-P"])
        .arg(&pid_file)
        .env("MEMCACHED_PORT_FILENAME", &port_file)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
    let pid: i32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    let ports = std::fs::read_to_string(&port_file).unwrap();
    let port: u16 = ports.trim().strip_prefix("TCP INET: ").unwrap().parse().unwrap();
    std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

#[test]
fn a_daemon_that_cannot_start_reports_its_error() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    let output = run_glasscache(&["serve", "-u", "root", "-d", "-p", &port]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("cannot listen"), "{text}");
    assert!(text.contains("hint: another program listens"), "{text}");
}

#[test]
fn a_public_address_requires_the_public_flag() {
    let new_command = |flags: &[&str]| {
        let mut command = glasscache();
        command
            .args(["serve", "-u", "root", "-p", "-1", "-l", "0.0.0.0"])
            .args(flags)
            .env("MEMCACHED_DEBUG", "1");
        command
    };
    let refused = new_command(&[]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "the variable opens nothing");
    let server = Server::run(new_command(&["--public", "-o", "relaxed_privileges"]));
    assert_eq!(server.connect().request("debugtime 5\r\n"), "OK");
    drop(server);
    let (code, text) = run_and_read_refusal(&["serve", "-p", "-1", "-l", "0.0.0.0"]);
    assert_eq!(code, Some(2), "{text}");
    let public_server = Server::start(&["-l", "0.0.0.0", "--public"]);
    assert_eq!(public_server.connect().request("debugtime 5\r\n"), "ERROR");
}

#[test]
fn config_show_is_a_valid_settings_file() {
    let output = run_glasscache(&["config", "show", "-m", "100", "-o", "idle_timeout=7"]);
    assert_eq!(output.status.code(), Some(0));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("glasscache.toml");
    std::fs::write(&file, &output.stdout).unwrap();
    let second_output = run_glasscache(&["config", "show", "--config", file.to_str().unwrap()]);
    assert_eq!(
        String::from_utf8(second_output.stdout).unwrap(),
        String::from_utf8(output.stdout).unwrap()
    );
}

#[test]
fn root_must_name_a_user() {
    if !nix::unistd::Uid::effective().is_root() {
        let mut command = glasscache();
        command.args(["serve", "-p", "-1"]);
        assert_eq!(Server::run(command).connect().request("mn\r\n"), "MN");
        return;
    }
    let (code, text) = run_and_read_refusal(&["serve", "-p", "-1"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("user (-u)"), "{text}");
    assert_eq!(Server::start(&["-u", "nobody"]).connect().request("mn\r\n"), "MN");
}

#[test]
fn sighup_reloads_the_cluster_file_and_keeps_connections() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nodes");
    std::fs::write(&file, "1\na|127.0.0.1|1\n").unwrap();
    let mut command = glasscache();
    command.args(["serve", "-u", "root", "-p", "-1", "--cluster-file"]).arg(&file);
    let (server, mut read_line) = Server::run_with_log(command);
    let hangup = || kill(Pid::from_raw(server.id() as i32), Signal::SIGHUP).unwrap();
    std::fs::write(&file, "2\na|127.0.0.1|1 b|127.0.0.1|2\n").unwrap();
    hangup();
    assert!(read_line().contains("was read again"));
    std::fs::write(&file, "no version").unwrap();
    hangup();
    assert!(read_line().contains("the nodes stay as they were"));
    let mut connection = server.connect();
    connection.send(b"config get cluster\r\n");
    let reply = String::from_utf8(connection.read_through(b"END\r\n")).unwrap();
    assert!(reply.contains("\r\n2\na|127.0.0.1|1 b|127.0.0.1|2\n"), "{reply}");
}

#[test]
fn a_second_sigterm_ends_a_stuck_server_immediately() {
    let mut command = glasscache();
    command
        .args(["serve", "-u", "root", "-p", "-1", "--watchdog", "0"])
        .env("MEMCACHED_DEBUG", "1");
    let mut server = Server::run(command);
    let ticks_before = server.read_cpu_ticks();
    let mut connection = server.connect();
    connection.send(b"misbehave loop\r\n");
    // A signal that arrives before the worker reads the line ends the server in the ordinary way.
    wait_until(|| server.read_cpu_ticks() > ticks_before + 10);
    // Equal signals that are sent before the first is handled are merged, so the signal is sent until it has been
    // handled twice.
    let pid = Pid::from_raw(server.id() as i32);
    let has_ended = std::iter::repeat_with(|| kill(pid, Signal::SIGTERM))
        .inspect(|_| std::thread::sleep(std::time::Duration::from_millis(20)))
        .take(500)
        .any(|_| server.has_ended());
    assert!(has_ended);
    assert_eq!(server.wait(), Some(143));
}

#[test]
fn the_watchdog_is_off_or_at_least_two_seconds() {
    for wrong_seconds in ["1", "3601", "x"] {
        let (code, text) = run_and_read_refusal(&["serve", "--watchdog", wrong_seconds]);
        assert_eq!(code, Some(2));
        assert!(text.ends_with("must be 0 or a whole number from 2 to 3600"), "{text}");
    }
    let (code, text) = run_and_read_refusal(&["serve", "--failure-exit", "0"]);
    assert_eq!(code, Some(2), "{text}");
}

#[test]
fn a_server_keeps_the_pid_file_of_its_successor() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let flags = ["-P", pid_file.to_str().unwrap()];
    let mut old = Server::start(&flags);
    let new = Server::start(&flags);
    kill(Pid::from_raw(old.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(old.wait(), Some(0));
    let written = std::fs::read_to_string(&pid_file).unwrap();
    assert_eq!(written.trim(), new.id().to_string());
}

#[test]
fn unsupported_memcached_flags_are_named() {
    let cases: [(&[&str], &str); 4] = [
        (&["-N", "4"], "memcached's -N (--napi-ids)"),
        (&["-i"], "memcached's -i (--license)"),
        (&["-o", "ssl_ciphers=HIGH"], "the cipher suites are fixed"),
        (&["-o", "ssl_kernel_tls"], "encrypted by the server itself"),
    ];
    for (flags, sentence) in cases {
        let (code, text) = run_and_read_refusal(&[&["serve"], flags].concat());
        assert_eq!(code, Some(2), "{flags:?}: {text}");
        assert!(text.contains(sentence), "{flags:?}: {text}");
        assert!(text.contains("docs/decisions/protocol.md#0022"), "{flags:?}: {text}");
    }
}

#[test]
fn no_protocol_is_served_without_the_login_that_the_settings_require() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    std::fs::write(&file, "foo:bar\n").unwrap();
    let users = file.to_str().unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["-S"], "there are no users to log in"),
        (&["-S", "-B", "auto"], "text clients cannot log in by SASL"),
        (&["-S", "-B", "ascii"], "SASL (-S) is a part of the binary protocol"),
        (&["-S", "-Y", users, "-B", "ascii"], "SASL (-S) is a part of the binary protocol"),
        (&["-Y", users, "-B", "auto"], "covers text and meta alone"),
        (&["-Y", users, "-B", "binary"], "covers text and meta alone"),
        (&["-Y", ""], "must be the path of a file"),
        (&["-Y", "/nonexistent"], "auth-file: /nonexistent cannot be read"),
        (&["-Y", "/"], "auth-file: / cannot be read"),
    ];
    for (flags, sentence) in cases {
        let (code, text) =
            run_and_read_refusal(&[&["serve", "-u", "root", "-p", "0"], flags].concat());
        assert_eq!(code, Some(2), "{flags:?}: {text}");
        assert!(text.contains(sentence), "{flags:?}: {text}");
    }
    std::fs::write(&file, "secret of foo\n").unwrap();
    let (code, text) = run_and_read_refusal(&["serve", "-u", "root", "-p", "0", "-Y", users]);
    assert_eq!(code, Some(2));
    assert!(text.contains("line 1 has no colon") && !text.contains("secret"), "{text}");
}

#[test]
fn with_a_login_a_public_address_needs_no_consent_and_both_protocols_log_in() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    std::fs::write(&file, "foo:bar\n").unwrap();
    let server = Server::start(&["-l", "0.0.0.0", "-S", "-Y", file.to_str().unwrap()]);
    let mut text_connection = server.connect();
    assert_eq!(text_connection.request("version\r\n"), "CLIENT_ERROR unauthenticated");
    assert_eq!(text_connection.request("set a 0 0 7\r\nfoo bar\r\n"), "STORED");
    assert_eq!(text_connection.request("get a\r\n"), "END");
    let mut binary_connection = server.connect();
    binary_connection
        .send(b"\x80\x21\0\x05\0\0\0\0\0\0\0\x0d\0\0\0\0\0\0\0\0\0\0\0\0PLAIN\0foo\0bar");
    let response = binary_connection.read_exactly(24 + b"Authenticated".len());
    assert!(response.ends_with(b"Authenticated"), "{response:?}");
    text_connection.send(b"stats settings\r\n");
    let rows = String::from_utf8(text_connection.read_through(b"END\r\n")).unwrap();
    assert!(rows.contains("STAT auth_enabled_sasl yes"), "{rows}");
    let ascii_row = format!("STAT auth_enabled_ascii {}", file.display());
    assert!(rows.contains(&ascii_row), "{rows}");
}

#[test]
fn accepts_a_limit_of_a_terabyte() {
    let output = run_glasscache(&["config", "show", "-m", "1t"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("1048576"), "{text}");
    let (code, text) = run_and_read_refusal(&["serve", "-m", "0"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("a size from 1m to 1t"), "{text}");
}

#[test]
fn a_slow_command_is_logged_without_its_key() {
    const VALUE_BYTES: usize = 500_000;
    const GETS: usize = 40;
    let mut command = glasscache();
    command.args(["serve", "-u", "root", "-p", "-1", "-v", "-o", "slow_ms=50"]);
    let (server, mut read_line) = Server::run_with_log(command);
    let mut connection = server.connect();
    let value = "v".repeat(VALUE_BYTES);
    let request = format!("set secret-key 0 0 {VALUE_BYTES}\r\n{value}\r\n");
    assert_eq!(connection.request(&request), "STORED");
    // More than sockets hold, and read late.
    connection.send("get secret-key\r\n".repeat(GETS).as_bytes());
    std::thread::sleep(std::time::Duration::from_millis(200));
    let reply_bytes = "VALUE secret-key 0 500000\r\n".len() + VALUE_BYTES + "\r\nEND\r\n".len();
    connection.read_exactly(GETS * reply_bytes);
    let line = loop {
        let line = read_line();
        if line.contains(" socket (") {
            break line;
        }
    };
    assert!(line.contains("warning glasscache: slow get of 127.0.0.1:"), "{line}");
    assert!(!line.contains("secret-key"), "{line}");
}
