//! `serve --http`: the setting from each source, the log line, SIGHUP, and a new process that takes the port over.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::server::{Memory, Server, glasscache, strip_time_and_level};

/// The status line and the rest of the response to a request for `path`.
fn get(address: &str, path: &str, fields: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{fields}\r\n").unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

#[test]
fn the_log_names_the_ports_and_sighup_reads_the_token_again() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "first-token\n").unwrap();
    let mut command = glasscache();
    command.args(["serve", "-u", "root", "-p", "-1", "--metrics", "0", "--http-token-file"]);
    command.arg(&token_file).env("GLASSCACHE_HTTP", "127.0.0.1:0");
    let (server, mut read_line) = Server::run_with_log(command);
    let line = read_line();
    let text = strip_time_and_level(line.trim());
    let urls = text.strip_prefix("glasscache serves HTTP on ").unwrap();
    let (page, metrics) = urls.split_once(" and ").unwrap();
    let page = page.strip_prefix("http://").unwrap().strip_suffix('/').unwrap();
    let metrics = metrics.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    assert!(get(metrics, "/metrics", "").contains("\nmemcached_up 1\n"));
    assert!(get(page, "/readyz", "").starts_with("HTTP/1.1 200 "));
    let is_accepted = |token: &str| {
        let fields = format!("Authorization: Bearer {token}\r\n");
        get(page, "/api/stats", &fields).starts_with("HTTP/1.1 200 ")
    };
    assert!(is_accepted("first-token") && !is_accepted("second-token"));
    std::fs::write(&token_file, "second-token\n").unwrap();
    kill(Pid::from_raw(server.id() as i32), Signal::SIGHUP).unwrap();
    while !read_line().contains("the HTTP token is read again") {}
    assert!(is_accepted("second-token") && !is_accepted("first-token"));
}

#[test]
fn a_new_process_takes_the_port_over() {
    // Free again when the listener is dropped.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let memory = Memory::new();
    let mut before = Server::run(memory.command(&["--http", &address]));
    assert!(get(&address, "/readyz", "").starts_with("HTTP/1.1 200 "));
    let mut after = Server::run(memory.command(&["--replace", "--http", &address]));
    assert_eq!(before.wait(), Some(0));
    assert!(get(&address, "/metrics", "").contains("\nmemcached_up 1\n"));
    kill(Pid::from_raw(after.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(after.wait(), Some(0));
    assert!(TcpStream::connect(&address).is_err());
}
