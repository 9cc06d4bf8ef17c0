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

#[test]
fn a_server_that_restores_its_items_is_not_ready_until_it_serves_them() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let memory = Memory::new();
    let mut before = memory.start();
    let mut connection = before.connect();
    for number in 0..20_000 {
        connection.send(format!("set key:{number} 0 0 1 noreply\r\nx\r\n").as_bytes());
    }
    assert_eq!(connection.request("set last 0 0 1\r\nx\r\n"), "STORED");
    kill(Pid::from_raw(before.id() as i32), Signal::SIGUSR1).unwrap();
    assert_eq!(before.wait(), Some(0));
    // Probes from before the start on: what they receive is what an orchestrator would.
    let probed = address.clone();
    let prober = std::thread::spawn(move || {
        loop {
            match get_if_served(&probed, "/readyz") {
                Some(response) if response.starts_with("HTTP/1.1 200 ") => return,
                Some(response) => {
                    assert!(
                        response.contains("items of its memory file are restored"),
                        "{response}"
                    );
                }
                None => std::thread::yield_now(),
            }
        }
    });
    let server = memory.start_with(&["--http", &address]);
    prober.join().unwrap();
    assert_eq!(server.connect().request("mg last\r\n"), "HD");
}

/// The response to a request; `None` if the connection is closed before it is sent.
fn get_if_served(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    (!response.is_empty()).then_some(response)
}
