//! `serve --replace`: a new process takes over sockets, connections and memory of the running one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use rustix::process::{Resource, Rlimit, prlimit};

use crate::server::{Memory, Server, TestConnection, glasscache, wait_until};

/// How long a reply may take on a busy machine, a handover included.
const REPLY_TIMEOUT: Duration = Duration::from_mins(1);

impl Memory {
    fn control_socket(&self) -> PathBuf {
        self.folder.path().join("memory.control")
    }

    /// Gives the folder to an unprivileged user and returns its name; `None` if this is not root.
    fn give_to_unprivileged_user(&self) -> Option<&'static str> {
        if !Uid::effective().is_root() {
            eprintln!("skipped: only root can start a server as another user");
            return None;
        }
        let user = User::from_name("nobody").unwrap()?;
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        std::os::unix::fs::chown(self.folder.path(), Some(uid), Some(gid)).unwrap();
        Some("nobody")
    }

    /// Starts a server that replaces `before`; when it returns, the other one has ended.
    fn replace(&self, before: &mut Server, flags: &[&str]) -> Server {
        let flags = [&["--replace"], flags].concat();
        let after = Server::run(self.command(&flags));
        assert_eq!(after.port(), before.port());
        assert_eq!(before.wait(), Some(0));
        after
    }

    /// Starts a process that writes its port as an unprivileged user; an error if it has ended instead.
    fn start_as(&self, user: &str, flags: &[&str], port: u16) -> Result<Server, Output> {
        let port_file = self.folder.path().join("ports");
        let _ = std::fs::remove_file(&port_file);
        let mut command = self.command_as(user, flags);
        command.env("MEMCACHED_PORT_FILENAME", &port_file);
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        wait_until(|| port_file.exists() || process.try_wait().unwrap().is_some());
        if port_file.exists() {
            Ok(Server::from_child(process, port))
        } else {
            Err(process.wait_with_output().unwrap())
        }
    }
}

fn request_pid(connection: &mut TestConnection) -> String {
    let mut line = connection.request("stats\r\n");
    let mut pid = String::new();
    while line != "END" {
        if let Some(text) = line.strip_prefix("STAT pid ") {
            text.clone_into(&mut pid);
        }
        line = connection.read_line();
    }
    pid
}

#[test]
fn items_and_established_connections_pass_to_the_new_process() {
    let memory = Memory::new();
    let mut before = memory.start();
    let (mut idle, mut half_set, mut split_get) =
        (before.connect(), before.connect(), before.connect());
    assert_eq!(idle.request("set key 5 0 5\r\nvalue\r\n"), "STORED");
    let line = idle.request("gets key\r\n");
    let unique = line.rsplit_once(' ').unwrap().1.to_owned();
    assert_eq!((idle.read_line(), idle.read_line()), ("value".into(), "END".into()));
    half_set.send(b"set half 0 0 10\r\n01234");
    split_get.send(b"get key no");
    let mut after = memory.replace(&mut before, &["-m", "8"]);
    half_set.send(b"56789\r\n");
    assert_eq!(half_set.read_line(), "STORED");
    split_get.send(b"ne half\r\n");
    assert_eq!(split_get.read_line(), "VALUE key 5 5");
    assert_eq!(split_get.read_line(), "value");
    assert_eq!(split_get.read_line(), "VALUE half 0 10");
    assert_eq!((split_get.read_line(), split_get.read_line()), ("0123456789".into(), "END".into()));
    let request = format!("cas key 0 0 1 {unique}\r\nx\r\n");
    assert_eq!(idle.request(&request), "STORED");
    assert_eq!(idle.request(&request), "EXISTS");
    assert_eq!(request_pid(&mut idle), after.id().to_string());
    assert_eq!(request_pid(&mut after.connect()), after.id().to_string());
    // Once more, by a server with another number of workers.
    let last = memory.replace(&mut after, &["-m", "8", "-t", "3"]);
    assert_eq!(idle.request("get key\r\n"), "VALUE key 0 1");
    assert_eq!((idle.read_line(), idle.read_line()), ("x".into(), "END".into()));
    assert_eq!(request_pid(&mut idle), last.id().to_string());
}

/// Sets and reads one key until `must_stop` is set, on one connection and then on new ones: every reply is right.
fn write_and_read(port: u16, key_number: u64, must_stop: &AtomicBool, request_count: &AtomicU64) {
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        BufReader::new(stream)
    };
    let request = |connection: &mut BufReader<TcpStream>, text: &str, line_count: usize| {
        connection.get_mut().write_all(text.as_bytes()).unwrap();
        let mut reply = String::new();
        for _ in 0..line_count {
            assert_ne!(connection.read_line(&mut reply).unwrap(), 0, "closed after {text:?}");
        }
        request_count.fetch_add(1, Ordering::Relaxed);
        reply
    };
    let mut connection = connect();
    for number in 0u64.. {
        let value = format!("{number:08}").repeat(1 + number as usize % 40);
        let length = value.len();
        let set = format!("set key{key_number} 0 0 {length}\r\n{value}\r\n");
        assert_eq!(request(&mut connection, &set, 1), "STORED\r\n");
        let get = format!("get key{key_number}\r\n");
        let expected = format!("VALUE key{key_number} 0 {length}\r\n{value}\r\nEND\r\n");
        assert_eq!(request(&mut connection, &get, 3), expected);
        let mut new_connection = connect();
        assert_eq!(request(&mut new_connection, &get, 3), expected);
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
    let (must_stop, request_count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (must_stop, request_count) = (&must_stop, &request_count);
        for key_number in 0..4 {
            scope.spawn(move || write_and_read(port, key_number, must_stop, request_count));
        }
        let replacement_result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..3 {
                let count_before = request_count.load(Ordering::Relaxed);
                wait_until(|| request_count.load(Ordering::Relaxed) > count_before + 50);
                server = memory.replace(&mut server, &["-m", "8"]);
            }
            let count_before = request_count.load(Ordering::Relaxed);
            wait_until(|| request_count.load(Ordering::Relaxed) > count_before + 50);
        }));
        must_stop.store(true, Ordering::Relaxed);
        replacement_result.unwrap();
    });
}

#[test]
fn another_size_of_memory_starts_empty_and_keeps_the_connections() {
    let memory = Memory::new();
    let mut before = memory.start();
    let mut connection = before.connect();
    assert_eq!(connection.request("set key 0 0 5\r\nvalue\r\n"), "STORED");
    let mut after = memory.replace(&mut before, &["-m", "16"]);
    assert_eq!(connection.request("get key\r\n"), "END");
    assert_eq!(connection.request("set key 0 0 5\r\nvalue\r\n"), "STORED");
    // The new memory is the file of that name: the next process has its items.
    let _last = memory.replace(&mut after, &["-m", "16"]);
    assert_eq!(connection.request("get key\r\n"), "VALUE key 0 5");
    assert_eq!((connection.read_line(), connection.read_line()), ("value".into(), "END".into()));
    assert!(!memory.folder.path().join("memory.new").exists());
}

#[test]
fn a_pid_file_that_cannot_be_written_does_not_end_the_new_process() {
    let memory = Memory::new();
    let mut before = memory.start();
    let mut connection = before.connect();
    assert_eq!(connection.request("set key 0 0 5\r\nvalue\r\n"), "STORED");
    let _after = memory.replace(&mut before, &["-m", "8", "-P", "/nonexistent/pid"]);
    assert_eq!(connection.request("get key\r\n"), "VALUE key 0 5");
}

#[test]
fn a_new_process_that_is_killed_at_any_moment_costs_at_most_the_cache() {
    let memory = Memory::new();
    for round in 0..8 {
        let mut server = memory.start();
        let mut connection = server.connect();
        assert_eq!(connection.request("set key 0 0 5\r\nvalue\r\n"), "STORED");
        let mut command = memory.command(&["-m", "8", "--replace"]);
        let mut killed = command.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(round * 3));
        killed.kill().unwrap();
        killed.wait().unwrap();
        // Either it had taken over, and everything has ended with it, or nothing has happened.
        connection.send(b"get key\r\n");
        let reply = connection.read_line_or_end();
        if reply == "VALUE key 0 5" {
            assert_eq!(
                (connection.read_line(), connection.read_line()),
                ("value".into(), "END".into())
            );
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

fn send_signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal).unwrap();
}

#[test]
fn a_new_process_that_is_interrupted_while_it_prepares_gives_up_at_once() {
    for (signal, exit_code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let memory = Memory::new();
        // A running server that does not respond.
        let running_server = UnixListener::bind(memory.control_socket()).unwrap();
        let mut command = memory.command(&["--replace"]);
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let (channel, _) = running_server.accept().unwrap();
        send_signal(process.id(), signal);
        let mut text = String::new();
        let mut stderr = process.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut stderr, &mut text).unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(exit_code), "{text}");
        assert!(text.contains("the running server goes on"), "{text}");
        drop(channel);
    }
}

#[test]
fn a_server_that_may_open_no_file_for_its_successor_waits_instead_of_trying_without_end() {
    let memory = Memory::new();
    let command = memory.command(&["-m", "8"]);
    let mut server = Server::run_with_stderr(command, Stdio::piped());
    let mut connection = server.connect();
    assert_eq!(connection.request("set key 0 0 5\r\nvalue\r\n"), "STORED");
    let pid = rustix::process::Pid::from_raw(server.id() as i32);
    let limit_files = |current| {
        let limits = Rlimit { current: Some(current), maximum: Some(1000) };
        prlimit(pid, Resource::Nofile, limits).unwrap();
    };
    limit_files(3);
    let waiting_successor = UnixStream::connect(memory.control_socket()).unwrap();
    let lines = BufReader::new(server.take_stderr()).lines();
    let refusals = lines.map_while(Result::ok);
    let mut refusals = refusals.filter(|line| line.contains("has not taken over"));
    assert!(refusals.next().is_some());
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || refusals.for_each(|line| drop(sender.send(line))));
    std::thread::sleep(Duration::from_secs(2));
    let line_count = receiver.try_iter().count();
    eprintln!("{line_count} lines in two seconds");
    assert!(line_count < 10, "{line_count} lines");
    drop(waiting_successor);
    limit_files(1000);
    let after = memory.replace(&mut server, &["-m", "8"]);
    assert_eq!(connection.request("get key\r\n"), "VALUE key 0 5");
    drop(after);
}

#[test]
fn a_daemon_replaces_a_daemon() {
    let memory = Memory::new();
    let pid_file = memory.folder.path().join("pid");
    let port_file = memory.folder.path().join("port");
    let start = |flags: &[&str]| {
        let mut command = memory.command(&["-m", "8", "-d", "-P"]);
        command.arg(&pid_file).args(flags);
        command.env("MEMCACHED_PORT_FILENAME", &port_file);
        let status = command.stderr(Stdio::null()).status().unwrap();
        status.code()
    };
    let read_trimmed = |file| std::fs::read_to_string(file).unwrap().trim().to_owned();
    assert_eq!(start(&["--replace"]), Some(3));
    assert!(!pid_file.exists());
    assert_eq!(start(&[]), Some(0));
    let first_pid = read_trimmed(&pid_file);
    let port_text = read_trimmed(&port_file);
    let port = port_text.strip_prefix("TCP INET: ").unwrap().parse().unwrap();
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(REPLY_TIMEOUT)).unwrap();
    let mut connection = TestConnection::new(stream);
    assert_eq!(connection.request("set key 0 0 5\r\nvalue\r\n"), "STORED");
    assert_eq!(start(&["--replace"]), Some(0));
    let second_pid: u32 = read_trimmed(&pid_file).parse().unwrap();
    // The first one ends without its pid file, which is that of the second.
    wait_until(|| has_ended(&first_pid));
    assert_eq!(read_trimmed(&pid_file), second_pid.to_string());
    assert_eq!(connection.request("get key\r\n"), "VALUE key 0 5");
    assert_eq!((connection.read_line(), connection.read_line()), ("value".into(), "END".into()));
    assert_eq!(request_pid(&mut connection), second_pid.to_string());
    send_signal(second_pid, Signal::SIGTERM);
    wait_until(|| has_ended(&second_pid.to_string()));
    assert!(!pid_file.exists());
}

/// Whether a process is gone, or is only waited for by its parent.
fn has_ended(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |text| text.contains(") Z "))
}

#[test]
fn a_server_of_an_unprivileged_user_is_replaced_by_one_that_root_starts_as_that_user() {
    let memory = Memory::new();
    let Some(user) = memory.give_to_unprivileged_user() else {
        return;
    };
    let mut before = Server::run(memory.command_as(user, &["-m", "8"]));
    let mut connection = before.connect();
    assert_eq!(connection.request("set key 0 0 5\r\nvalue\r\n"), "STORED");
    // Root may not replace the server of another user.
    let output = memory.command(&["-m", "8", "--replace"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("is of another user"), "{text}");
    assert_eq!(connection.request("get key\r\n"), "VALUE key 0 5");
    assert_eq!((connection.read_line(), connection.read_line()), ("value".into(), "END".into()));
    // With the same memory, and with another, whose file the user has to make.
    for (size, expected_reply) in [("8", "VALUE key 0 5"), ("16", "END")] {
        let flags = ["-m", size, "--replace"];
        let after = memory.start_as(user, &flags, before.port()).unwrap();
        assert_eq!(before.wait(), Some(0));
        let status = std::fs::read_to_string(format!("/proc/{}/status", after.id())).unwrap();
        let uid = User::from_name(user).unwrap().unwrap().uid.to_string();
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        assert!(uids.unwrap().split_whitespace().all(|id| id == uid));
        assert_eq!(connection.request("get key\r\n"), expected_reply);
        while expected_reply != "END" && connection.read_line() != "END" {}
        before = after;
    }
}

#[test]
fn inherited_memory_is_locked_or_the_server_warns() {
    let memory = Memory::new();
    let Some(user) = memory.give_to_unprivileged_user() else {
        return;
    };
    let is_locked = |server: &Server| {
        let maps = std::fs::read_to_string(format!("/proc/{}/smaps", server.id())).unwrap();
        let file = memory.file().to_str().unwrap().to_owned();
        let lines = maps.lines().skip_while(|line| !line.ends_with(&file));
        let mut vm_flags = lines.filter_map(|line| line.strip_prefix("VmFlags: "));
        vm_flags.next().unwrap().split(' ').any(|flag| flag == "lo")
    };
    let mut before = Server::run(memory.command_as(user, &["-m", "8", "-k"]));
    assert!(is_locked(&before));
    let mut connection = before.connect();
    assert_eq!(connection.request("set key 0 0 5\r\nvalue\r\n"), "STORED");
    // Where the limit on locked memory cannot be raised, this user may not lock what it maps.
    let flags = ["-m", "8", "-k", "--replace"];
    let mut after = memory.start_as(user, &flags, before.port()).unwrap();
    assert_eq!(before.wait(), Some(0));
    assert_eq!(connection.request("get key\r\n"), "VALUE key 0 5");
    let (was_locked, mut stderr) = (is_locked(&after), after.take_stderr());
    drop(after);
    let mut text = String::new();
    stderr.read_to_string(&mut text).unwrap();
    assert_ne!(
        was_locked,
        text.contains("lock-memory (-k) has no effect: mlockall failed: "),
        "{text}"
    );
}
