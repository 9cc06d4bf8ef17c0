//! Warm restarts of server processes (`-e`): a stop by a signal, kills at any moment, and the next process.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::server::{Memory, Server, TestConnection, glasscache, strip_time_and_level};

/// Kills of each kind; `GLASSCACHE_TEST_KILLS` sets another number.
fn read_kills_per_kind() -> u64 {
    let kills = std::env::var("GLASSCACHE_TEST_KILLS").ok();
    kills.and_then(|text| text.parse().ok()).unwrap_or(8)
}

fn send_signal(server: &Server, signal: Signal) {
    kill(Pid::from_raw(server.id() as i32), signal).unwrap();
}

/// The value of a key: it repeats the key, so that one of another key is recognised.
fn build_value(number: u64) -> String {
    format!("{number:08}").repeat(1 + number as usize % 300)
}

/// A connection that [`set_until_closed`] writes to.
fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let timeout = Duration::from_secs(20);
    stream.set_read_timeout(Some(timeout)).unwrap();
    stream
}

/// Sets keys until the server ends the connection; returns how many it acknowledged.
fn set_until_closed(mut stream: TcpStream) -> u64 {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for number in 0.. {
        let value = build_value(number);
        let request = format!("set key{number} 0 0 {}\r\n{value}\r\n", value.len());
        let mut line = String::new();
        let is_stored = stream.write_all(request.as_bytes()).is_ok()
            && reader.read_line(&mut line).is_ok()
            && line == "STORED\r\n";
        if !is_stored {
            return number;
        }
    }
    unreachable!("keys do not end")
}

/// Reads every key; none may have a wrong value. Returns how many were there.
fn count_readable(connection: &mut TestConnection, key_count: u64) -> u64 {
    let mut found_count = 0;
    for number in 0..key_count {
        let line = connection.request(&format!("get key{number}\r\n"));
        if line == "END" {
            continue;
        }
        let value = build_value(number);
        assert_eq!(line, format!("VALUE key{number} 0 {}", value.len()));
        assert_eq!(connection.read_line(), value);
        assert_eq!(connection.read_line(), "END");
        found_count += 1;
    }
    found_count
}

#[test]
fn the_command_shutdown_graceful_saves_too() {
    let memory = Memory::new();
    let mut server = memory.start_with(&["-A"]);
    let mut connection = server.connect();
    assert_eq!(connection.request("set key 0 0 1\r\nx\r\n"), "STORED");
    connection.send(b"shutdown graceful\r\n");
    assert_eq!(server.wait(), Some(0));
    let mut server = memory.start_with(&["-A"]);
    let mut connection = server.connect();
    assert_eq!(connection.request("get key\r\n"), "VALUE key 0 1");
    connection.send(b"shutdown\r\n");
    assert_eq!(server.wait(), Some(0));
    assert_eq!(memory.start().connect().request("get key\r\n"), "END");
}

#[test]
fn a_server_that_was_killed_leaves_an_empty_cache() {
    let memory = Memory::new();
    for round in 0..read_kills_per_kind() {
        let server = memory.start();
        // Opened here: the server may be killed before the writer's first step.
        let stream = connect(&server);
        let key_count = std::thread::scope(|scope| {
            let writer = scope.spawn(|| set_until_closed(stream));
            std::thread::sleep(Duration::from_millis(round * 37 % 300));
            send_signal(&server, Signal::SIGKILL);
            writer.join().unwrap()
        });
        drop(server);
        assert_eq!(count_readable(&mut memory.start().connect(), key_count), 0);
    }
}

#[test]
fn a_server_that_is_killed_while_it_saves_or_starts_leaves_all_or_nothing() {
    let memory = Memory::new();
    let (mut whole_count, mut empty_count) = (0, 0);
    for round in 0..read_kills_per_kind() {
        let mut server = memory.start();
        let mut connection = server.connect();
        assert_eq!(connection.request("flush_all\r\n"), "OK");
        let key_count = 200 + round % 7 * 100;
        for number in 0..key_count {
            let value = build_value(number);
            let request = format!("set key{number} 0 0 {}\r\n{value}\r\n", value.len());
            assert_eq!(connection.request(&request), "STORED");
        }
        send_signal(&server, Signal::SIGUSR1);
        std::thread::sleep(Duration::from_millis(round * 17 % 120));
        if !server.has_ended() {
            send_signal(&server, Signal::SIGKILL);
        }
        server.wait();
        // The next server is killed at its start.
        let mut command = glasscache();
        let file = memory.file();
        command.args(["serve", "-p", "0", "-s"]);
        command.arg(memory.folder.path().join("socket"));
        command.args(["-u", "root", "-m", "8", "-t", "2", "-e"]).arg(file);
        let mut killed = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(round * 11 % 60));
        killed.kill().unwrap();
        killed.wait().unwrap();
        let found_count = count_readable(&mut memory.start().connect(), key_count);
        assert!(found_count == key_count || found_count == 0, "{found_count} of {key_count}");
        *(if found_count == 0 { &mut empty_count } else { &mut whole_count }) += 1;
    }
    eprintln!("{whole_count} whole, {empty_count} empty");
}

#[test]
fn a_second_server_and_a_foreign_snapshot_end_with_code_3_and_one_sentence() {
    let memory = Memory::new();
    let server = memory.start();
    let run_and_read_refusal = || {
        let mut command = glasscache();
        command.args(["serve", "-p", "-1", "-u", "root", "-m", "8", "-e"]);
        let output = command.arg(memory.file()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), text)
    };
    let (code, text) = run_and_read_refusal();
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("is in use by another server"), "{text}");
    drop(server);
    std::fs::write(memory.folder.path().join("memory.meta"), "").unwrap();
    let (code, text) = run_and_read_refusal();
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("is not the snapshot"), "{text}");
}

#[test]
fn the_log_reports_whether_items_came_back() {
    let memory = Memory::new();
    let file = memory.file();
    let mut log = String::new();
    for signal in [Signal::SIGUSR1, Signal::SIGUSR1, Signal::SIGTERM] {
        let mut command = glasscache();
        command.args(["serve", "-p", "-1", "-u", "root", "-m", "8", "-e"]);
        command.arg(&file);
        let mut server = Server::run_with_stderr(command, std::process::Stdio::piped());
        let reply = server.connect().request("set key 0 0 1\r\nx\r\n");
        assert_eq!(reply, "STORED");
        send_signal(&server, signal);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut server.take_stderr(), &mut text).unwrap();
        log.push_str(&text);
        assert_eq!(server.wait(), Some(0));
    }
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("memory file")).collect();
    let path_text = file.display();
    assert_eq!(lines.len(), 6, "{log}");
    let assert_line = |line: &str, end: &str| {
        let text = strip_time_and_level(line);
        assert_eq!(text, format!("glasscache: memory file {path_text}{end}"));
    };
    assert_line(lines[0], " starts empty: no server has saved it");
    assert_line(lines[1], ": 1 items are saved");
    assert!(lines[2].contains(": 1 items are back after "), "{log}");
    assert_line(lines[3], ": 1 items are saved");
    assert_line(
        lines[5],
        ": 1 items are not saved; a stop by SIGUSR1 or `glasscache stop --save` saves them",
    );
}

/// Stores the key again as another client would, and returns its new unique.
fn store_and_read_unique(server: &Server, value: &str) -> u64 {
    let mut connection = server.connect();
    assert_eq!(connection.request(&format!("set key 0 0 1\r\n{value}\r\n")), "STORED");
    let line = connection.request("gets key\r\n");
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn a_unique_from_before_a_crash_never_matches_an_item_stored_after_it() {
    let memory = Memory::new();
    let start_in_memory = || {
        let mut command = glasscache();
        command.args(["serve", "-p", "-1", "-u", "root", "-m", "8"]);
        Server::run(command)
    };
    let starts: [&dyn Fn() -> Server; 2] = [&start_in_memory, &|| memory.start()];
    for start in starts {
        let mut last_unique = 0;
        for end_signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGKILL] {
            let mut server = start();
            let unique = store_and_read_unique(&server, "a");
            assert!(unique > last_unique, "{unique} after {last_unique}");
            let request = format!("cas key 0 0 1 {last_unique}\r\nb\r\n");
            assert_eq!(server.connect().request(&request), "EXISTS");
            last_unique = unique;
            send_signal(&server, end_signal);
            server.wait();
        }
    }
}
