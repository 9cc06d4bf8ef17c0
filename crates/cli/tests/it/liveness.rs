//! A worker that panics or hangs: the process ends, reports the reason, and never continues with the remaining
//! workers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use crate::server::{Server, glasscache};

/// Our server with the commands that memcached's own tests may send, and what it writes on stderr.
fn start_debug_server(flags: &[&str]) -> Server {
    let mut command = glasscache();
    command
        .args(["serve", "-u", "root", "-t", "4", "-p", "-1"])
        .args(flags)
        .env("MEMCACHED_DEBUG", "1");
    Server::run_with_stderr(command, Stdio::piped())
}

fn read_rest_of_stderr(server: &mut Server) -> String {
    let mut text = String::new();
    server.take_stderr().read_to_string(&mut text).unwrap();
    text
}

/// Whether a new connection gets a reply soon.
fn gets_a_reply(port: u16) -> bool {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    stream.write_all(b"mn\r\n").unwrap();
    stream.read_exact(&mut [0; 4]).is_ok()
}

#[test]
fn a_worker_panic_ends_the_process_with_its_message() {
    // New connections are assigned to the workers round-robin: the first of four, and one that has no connection.
    for worker in [0, 2] {
        let mut server = start_debug_server(&[]);
        let mut connections: Vec<_> = (0..=worker).map(|_| server.connect()).collect();
        connections[worker].send(b"misbehave panic\r\n");
        assert_eq!(server.wait(), Some(70), "worker {worker}");
        let text = read_rest_of_stderr(&mut server);
        assert!(text.contains("requested by misbehave panic"), "{text}");
        assert!(text.contains("the process ends with exit code 70"), "{text}");
    }
}

#[test]
fn a_stuck_worker_ends_the_process_with_the_configured_code() {
    let mut server = start_debug_server(&["--watchdog", "2", "--failure-exit", "71"]);
    let mut connection = server.connect();
    assert_eq!(connection.request("mn\r\n"), "MN");
    connection.send(b"misbehave loop\r\n");
    assert_eq!(server.wait(), Some(71));
    let text = read_rest_of_stderr(&mut server);
    assert!(text.contains("has made no progress for 2 seconds"), "{text}");
}

#[test]
fn a_stuck_worker_does_not_block_shutdown() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    let mut server = start_debug_server(&["--watchdog", "2", "-t", "1"]);
    let mut connection = server.connect();
    connection.send(b"misbehave loop\r\n");
    // Once no connection gets replies, the only worker hangs.
    while gets_a_reply(server.port()) {}
    kill(Pid::from_raw(server.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(server.wait(), Some(70));
}

#[test]
fn misbehave_requires_the_debug_variable() {
    let server = Server::start(&["-t", "1"]);
    let mut connection = server.connect();
    for command in ["misbehave panic\r\n", "misbehave loop\r\n", "misbehave\r\n"] {
        assert_eq!(connection.request(command), "ERROR");
    }
    assert_eq!(server.connect().request("mn\r\n"), "MN");
}
