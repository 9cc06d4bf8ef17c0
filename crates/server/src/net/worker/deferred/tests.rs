//! Writes that wait for a segment, on a server whose store another worker reads.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use glasscache_store::Store;

use crate::{Address, Config, Listen, RunningServer, prepare};

/// A server of one worker whose store a second worker reads; the second one passes only when the test makes it.
struct BlockedServer {
    server: RunningServer,
    reader: glasscache_store::Worker,
}

impl BlockedServer {
    fn start() -> BlockedServer {
        let mut prepared = prepare(Config {
            listeners: vec![Listen::Tcp(([127, 0, 0, 1], 0).into())],
            memory_bytes: 2 << 20,
            workers: 1,
            ..Config::default()
        })
        .unwrap();
        prepared.prepared_store.store = Store::new(glasscache_store::Config {
            memory_bytes: 2 << 20,
            workers: 2,
            ..glasscache_store::Config::default()
        })
        .unwrap();
        let mut reader = prepared.prepared_store.store.worker();
        reader.go_online();
        let server = prepared.start().unwrap();
        BlockedServer { server, reader }
    }

    fn connect(&self) -> TcpStream {
        let Some(Address::Tcp(address)) = self.server.addresses().first().cloned() else {
            panic!("no port")
        };
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Writes until one of them has to wait, each followed by a read.
    fn write_until_one_waits(&self) -> TcpStream {
        let mut client = self.connect();
        let request = |number: u32| {
            format!(
                "set key{number} 0 0 1000\r\n{number:01000}\r\ngets key{number}\r\nincr none 1\r\n"
            )
        };
        for number in 0..100_000 {
            let waits_before = self.reader.store().counters().epoch_waits;
            client.write_all(request(number).as_bytes()).unwrap();
            // A connection without a reply for this long is parked.
            let parked_timeout = Duration::from_millis(100);
            client.set_read_timeout(Some(parked_timeout)).unwrap();
            let read_result = client.read(&mut [0]);
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let waits_after = self.reader.store().counters().epoch_waits;
            match read_result {
                Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
                // It was not only slow.
                Err(_) if waits_after > waits_before => return client,
                _ => drop(read_until(&mut client, b"END\r\nNOT_FOUND\r\n")),
            }
        }
        panic!("no write had to wait")
    }
}

fn read_until(client: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut reply = Vec::new();
    let mut byte = [0];
    while !reply.ends_with(end) {
        assert_eq!(client.read(&mut byte).unwrap(), 1, "closed");
        reply.push(byte[0]);
    }
    reply
}

fn read_stat(client: &mut TcpStream, group: &str, name: &str) -> u64 {
    client.write_all(format!("stats{group}\r\n").as_bytes()).unwrap();
    let text = String::from_utf8(read_until(client, b"END\r\n")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_write_waits_for_a_segment_until_a_reader_passes_while_others_are_served() {
    // It is refused instead if this machine stalls for longer than it may wait.
    let is_stored = (0..20).any(|_| {
        let mut blocked_server = BlockedServer::start();
        let mut waiting_client = blocked_server.write_until_one_waits();
        let mut other_client = blocked_server.connect();
        other_client.write_all(b"mn\r\n").unwrap();
        read_until(&mut other_client, b"MN\r\n");
        blocked_server.reader.pass();
        let reply = read_until(&mut waiting_client, b"END\r\nNOT_FOUND\r\n");
        // In order: the following read sees it.
        reply.starts_with(b"STORED\r\nVALUE key")
    });
    assert!(is_stored);
}

#[test]
fn a_write_that_waits_for_too_long_is_refused_and_counted() {
    let expected_reply = b"SERVER_ERROR out of memory storing object\r\nEND\r\nNOT_FOUND\r\n";
    let blocked_server = BlockedServer::start();
    // One that was only slow is stored, and the next has to wait.
    let reply = (0..20).find_map(|_| {
        let mut waiting_client = blocked_server.write_until_one_waits();
        let reply = read_until(&mut waiting_client, b"END\r\nNOT_FOUND\r\n");
        (!reply.starts_with(b"STORED")).then_some(reply)
    });
    assert_eq!(reply.as_deref(), Some(&expected_reply[..]));
    let mut other_client = blocked_server.connect();
    assert_eq!(read_stat(&mut other_client, "", "store_no_memory"), 1);
    // A worker that retried without sleeping would run hundreds of thousands of iterations.
    let iterations = read_stat(&mut other_client, " glasscache", "loop_iterations");
    eprintln!("{iterations} iterations");
    assert!(iterations < 20_000, "{iterations} iterations");
}

#[test]
fn one_has_sent_clearly_more_than_others_if_most_of_them_sent_less() {
    assert!(super::is_clearly_more(1, &mut []));
    assert!(!super::is_clearly_more(30_000, &mut [30_000; 40]));
    let mut with_uploads = [[600; 10], [30_000; 10], [30_000; 10]].concat();
    assert!(!super::is_clearly_more(30_000, &mut with_uploads));
    assert!(super::is_clearly_more(60_000, &mut with_uploads));
    // Its own bytes are among them.
    assert!(!super::is_clearly_more(60_000, &mut [60_000]));
}
