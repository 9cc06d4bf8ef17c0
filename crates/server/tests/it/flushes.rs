//! Nothing that was acknowledged before a `flush_all`, or a `flush_prefix` of its key, was sent is readable after the
//! reply, nor anything derived from it.
//!
//! Four connections change items continuously, so that the store copies them: touch, incr, append, gat, `md I`, `mg T`,
//! and values of a megabyte that are uploaded in pieces. Another fills the memory from time to time, so that sweeps evict
//! and compact meanwhile. The main thread sets keys that the others only change, flushes everything or their prefixes in
//! turn, and searches for them. `make flushes` runs 100,000 flushes; `GLASSCACHE_TEST_ADDRESS` names a running server
//! (`-m 64 -t 2`) to check instead of our own.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::format_push_string,
    reason = "a test fails by a panic, and builds its batches once"
)]

#[allow(dead_code, reason = "one of several files of tests that share it")]
use crate::live_server;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use glasscache_server::{Address, Config, start};

/// Threads that change items, each on a connection of its own.
const CHANGER_THREADS: usize = 4;
/// Keys that only the main thread creates, of each kind.
const KEYS_PER_KIND: usize = 4;
const UPLOAD_BYTES: usize = 1_000_000;
/// A changer uploads a megabyte once in this many rounds.
const ROUNDS_PER_UPLOAD: usize = 40;
/// Number of flushes before the memory is filled once.
const FLUSHES_IN_A_ROW: usize = 250;
const FILL_BYTES: usize = 120 << 20;
const FILL_VALUE_BYTES: usize = 1000;
/// A prime, so that the keys of one fill are all different; more than the memory holds.
const FILL_KEYS: usize = 100_003;

/// Flushes of everything, and of the prefixes of all keys but those that fill the memory; with their replies.
const FLUSHES: [(&[u8], &[u8]); 2] = [
    (b"flush_all\r\n", b"OK\r\n"),
    (
        b"flush_prefix touched\r\nflush_prefix count\r\nmf appended q\r\nmf c3RhbGU= b k O7\r\nmf up\r\n",
        b"OK\r\nOK\r\nHD kc3RhbGU= b O7\r\nHD\r\n",
    ),
];

struct Connection {
    stream: TcpStream,
    reply: Vec<u8>,
}

impl Connection {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        Connection { stream, reply: Vec::new() }
    }

    /// Sends `request` and returns all of its replies.
    fn send(&mut self, request: &[u8]) -> &[u8] {
        self.stream.write_all(request).unwrap();
        self.stream.write_all(b"mn\r\n").unwrap();
        self.reply.clear();
        let mut buffer = [0; 1 << 14];
        while !self.reply.ends_with(b"MN\r\n") {
            let received_bytes = self.stream.read(&mut buffer).unwrap();
            assert!(received_bytes > 0, "the server closed the connection");
            self.reply.extend_from_slice(&buffer[..received_bytes]);
        }
        &self.reply[..self.reply.len() - 4]
    }
}

struct Shared {
    must_stop: AtomicBool,
    /// The last upload of each changer that was acknowledged; its number is the value's client flags.
    uploaded: [AtomicU32; CHANGER_THREADS],
}

/// Ends the changers, also when the main thread fails: the scope would wait for them.
struct StopWhenDropped<'a>(&'a Shared);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.must_stop.store(true, Ordering::Relaxed);
    }
}

fn keys_of(kind: &str) -> impl Iterator<Item = String> + use<'_> {
    (0..KEYS_PER_KIND).map(move |number| format!("{kind}{number}"))
}

/// Changes existing items, and creates nothing but its own uploads.
fn change_items(address: SocketAddr, shared: &Shared, thread_index: usize) -> usize {
    let mut connection = Connection::new(address);
    let mut batch = String::new();
    for key in keys_of("touched") {
        batch += &format!("touch {key} 0\r\ngat 0 {key}\r\nmg {key} T500 s\r\n");
    }
    for key in keys_of("counted") {
        batch += &format!("incr {key} 1\r\nma {key}\r\n");
    }
    for key in keys_of("appended") {
        batch += &format!("append {key} 0 0 4\r\nmore\r\nprepend {key} 0 0 4\r\nmore\r\n");
    }
    for key in keys_of("stale") {
        batch += &format!("md {key} I T500\r\nmg {key} s t\r\n");
    }
    let large_append =
        format!("append appended{thread_index} 0 0 100000\r\n{}\r\n", "a".repeat(100_000));
    let value = "v".repeat(UPLOAD_BYTES);
    let mut rounds = 0;
    while !shared.must_stop.load(Ordering::Relaxed) {
        connection.send(batch.as_bytes());
        rounds += 1;
        if (rounds + thread_index * ROUNDS_PER_UPLOAD / CHANGER_THREADS)
            .is_multiple_of(ROUNDS_PER_UPLOAD)
        {
            let upload_number = shared.uploaded[thread_index].load(Ordering::SeqCst) + 1;
            let upload =
                format!("set upload{thread_index} {upload_number} 0 {UPLOAD_BYTES}\r\n{value}\r\n");
            if connection.send(upload.as_bytes()) == b"STORED\r\n" {
                shared.uploaded[thread_index].store(upload_number, Ordering::SeqCst);
            }
            connection.send(large_append.as_bytes());
        }
    }
    rounds
}

/// Writes more than the memory holds, so that a sweep runs at the next flush.
fn fill_memory(connection: &mut Connection, flush_index: usize) {
    let value = "f".repeat(FILL_VALUE_BYTES);
    let mut written_values = 0;
    while written_values * FILL_VALUE_BYTES < FILL_BYTES {
        let mut batch = String::new();
        for _ in 0..64 {
            // A quarter goes to few keys, so that segments become sparse and are compacted.
            let key_number = if written_values.is_multiple_of(4) {
                written_values % 1000
            } else {
                written_values * (7 + flush_index) % FILL_KEYS
            };
            batch += &format!("set fill{key_number} 0 0 {FILL_VALUE_BYTES} noreply\r\n{value}\r\n");
            written_values += 1;
        }
        connection.send(batch.as_bytes());
    }
}

fn set_all_keys(connection: &mut Connection) {
    let mut batch = String::new();
    for kind in ["touched", "counted", "appended", "stale"] {
        for key in keys_of(kind) {
            batch += &format!("set {key} 0 0 1\r\n1\r\n");
        }
    }
    let replies = connection.send(batch.as_bytes());
    assert_eq!(replies, b"STORED\r\n".repeat(4 * KEYS_PER_KIND));
}

/// Lines of the replies that name items which a flush should have removed.
fn lines_that_outlived_flush(connection: &mut Connection, last_uploads: &[u32]) -> Vec<String> {
    let mut batch = String::from("get");
    for kind in ["touched", "counted", "appended", "stale"] {
        for key in keys_of(kind) {
            batch += &format!(" {key}");
        }
    }
    batch += "\r\n";
    for thread_index in 0..CHANGER_THREADS {
        batch += &format!("mg upload{thread_index} f k\r\n");
    }
    let replies = String::from_utf8_lossy(connection.send(batch.as_bytes())).into_owned();
    let is_old_upload = |line: &str| {
        let mut words = line.split([' ', '\r']).skip(1);
        let upload_number: u32 = words.next().unwrap()[1..].parse().unwrap();
        let thread_index: usize = words.next().unwrap()["kupload".len()..].parse().unwrap();
        upload_number <= last_uploads[thread_index]
    };
    replies
        .lines()
        .filter(|line| line.starts_with("VALUE") || line.starts_with("HD") && is_old_upload(line))
        .map(str::to_owned)
        .collect()
}

fn read_stat(connection: &mut Connection, name: &str) -> u64 {
    let text = String::from_utf8_lossy(connection.send(b"stats\r\n")).into_owned();
    let row = format!("STAT {name} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&row));
    value.unwrap().trim().parse().unwrap()
}

#[test]
fn nothing_that_was_acknowledged_before_a_flush_is_readable_after_it() {
    let flush_count: usize =
        std::env::var("GLASSCACHE_TEST_FLUSHES").map_or(1000, |text| text.parse().unwrap());
    let external_address = std::env::var("GLASSCACHE_TEST_ADDRESS").ok();
    let server = external_address
        .is_none()
        .then(|| start(Config { memory_bytes: 64 << 20, ..live_server::config() }).unwrap());
    let address = match (&server, external_address) {
        (Some(server), _) => match server.addresses().first() {
            Some(Address::Tcp(address)) => *address,
            _ => panic!("no port"),
        },
        (None, external_address) => external_address.unwrap().parse().unwrap(),
    };
    let shared = Shared { must_stop: AtomicBool::new(false), uploaded: Default::default() };
    let mut connection = Connection::new(address);
    let (mut outlived_flushes, mut examples) = (0, Vec::new());
    let rounds: usize = std::thread::scope(|scope| {
        let shared = &shared;
        let stop_guard = StopWhenDropped(shared);
        let changers: Vec<_> = (0..CHANGER_THREADS)
            .map(|thread_index| scope.spawn(move || change_items(address, shared, thread_index)))
            .collect();
        for flush_index in 0..flush_count {
            if flush_index % FLUSHES_IN_A_ROW == FLUSHES_IN_A_ROW / 2 {
                fill_memory(&mut connection, flush_index);
            }
            set_all_keys(&mut connection);
            let last_uploads: Vec<u32> =
                shared.uploaded.iter().map(|number| number.load(Ordering::SeqCst)).collect();
            let (request, replies) = FLUSHES[flush_index % 2];
            assert_eq!(connection.send(request), replies);
            let found_lines = lines_that_outlived_flush(&mut connection, &last_uploads);
            outlived_flushes += usize::from(!found_lines.is_empty());
            examples.extend(found_lines.into_iter().take(10 - examples.len().min(10)));
        }
        drop(stop_guard);
        changers.into_iter().map(|changer| changer.join().unwrap()).sum()
    });
    let (evictions, uploads) = (read_stat(&mut connection, "evictions"), &shared.uploaded);
    eprintln!(
        "{flush_count} flushes, {rounds} rounds of changes, uploads {uploads:?}, {evictions} evictions: \
         {outlived_flushes} flushes that something outlived"
    );
    assert_eq!(outlived_flushes, 0, "readable after a flush: {examples:?}");
    assert!(evictions > 0, "no sweep ran");
}
