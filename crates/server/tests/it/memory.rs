//! The memory that all peers together can make the server hold, while other clients are served.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use glasscache_server::{Address, Config, RunningServer, start};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::live_server::{config, connect, expect_reply};
use crate::timing::assert_in_time;

/// The budget for peers: an eighth of 64 MiB.
const BUDGET_BYTES: u64 = 8 << 20;
/// Two workers may each grant one request and keep one slice at the same moment.
const EXCESS_BYTES: u64 = 2 << 20;
const LARGE_BYTES: usize = 255_000;

/// A connection with a small receive buffer in the kernel.
fn connect_with_small_buffer(server: &RunningServer) -> TcpStream {
    let Some(Address::Tcp(address)) = server.addresses().first().cloned() else {
        panic!("no port")
    };
    let socket: OwnedFd =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
    let SocketAddr::V4(address) = address else { panic!("no IPv4 port") };
    rustix::net::connect(&socket, &address).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream
}

/// The rows of `stats glasscache`.
fn read_server_counters(server: &RunningServer) -> BTreeMap<String, u64> {
    let mut client = connect(server);
    client.write_all(b"stats glasscache\r\nquit\r\n").unwrap();
    let lines = BufReader::new(client).lines().map(Result::unwrap);
    let parse_row = |line: String| {
        let mut words = line.strip_prefix("STAT ")?.split(' ');
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    };
    lines.filter_map(parse_row).collect()
}

fn set_request(key: &str, value_bytes: usize) -> Vec<u8> {
    let mut request = format!("set {key} 0 0 {value_bytes}\r\n").into_bytes();
    request.resize(request.len() + value_bytes, b'x');
    request.extend_from_slice(b"\r\n");
    request
}

/// The reply to one `get` of some keys with values of this many bytes each.
fn get_reply(keys: &[String], value_bytes: usize) -> Vec<u8> {
    let mut reply = Vec::new();
    for key in keys {
        reply.extend_from_slice(format!("VALUE {key} 0 {value_bytes}\r\n").as_bytes());
        reply.resize(reply.len() + value_bytes, b'x');
        reply.extend_from_slice(b"\r\n");
    }
    reply.extend_from_slice(b"END\r\n");
    reply
}

/// Readers that each request sixteen large values of their own, four times, and read nothing.
fn slow_readers(server: &RunningServer, reader_count: usize) -> (Vec<TcpStream>, Vec<String>) {
    let mut writer = connect(server);
    let keys: Vec<String> = (0..16).map(|number| format!("large{number}")).collect();
    let request = format!("get {}\r\n", keys.join(" ")).repeat(4);
    let readers = (0..reader_count).map(|_| {
        for key in &keys {
            expect_reply(&mut writer, &set_request(key, LARGE_BYTES), b"STORED\r\n");
        }
        let mut reader = connect_with_small_buffer(server);
        reader.write_all(request.as_bytes()).unwrap();
        reader
    });
    (readers.collect(), keys)
}

#[test]
fn readers_of_large_values_that_do_not_read_stay_within_the_budget() {
    let server = start(config()).unwrap();
    let (readers, keys) = slow_readers(&server, 240);
    let mut healthy = connect(&server);
    let timeout = Some(Duration::from_mins(1));
    healthy.set_read_timeout(timeout).unwrap();
    let mut held_bytes = 0;
    let deadline = Instant::now() + Duration::from_mins(1);
    while read_server_counters(&server)["peer_waits"] == 0 {
        assert!(
            Instant::now() < deadline,
            "no reader has to wait: {:?}",
            read_server_counters(&server)
        );
        thread::sleep(Duration::from_millis(5));
    }
    for round in 0..20 {
        let counters = read_server_counters(&server);
        held_bytes = held_bytes.max(counters["buffer_bytes"]);
        expect_reply(&mut healthy, b"mn\r\n", b"MN\r\n");
        if round % 10 == 0 {
            expect_reply(
                &mut healthy,
                format!("get {}\r\n", keys[0]).as_bytes(),
                &get_reply(&keys[..1], LARGE_BYTES),
            );
        }
    }
    assert!(held_bytes <= BUDGET_BYTES + EXCESS_BYTES, "{held_bytes} bytes are held");
    drop(readers);
    expect_reply(
        &mut healthy,
        format!("get {}\r\n", keys.join(" ")).as_bytes(),
        &get_reply(&keys, LARGE_BYTES),
    );
}

#[test]
fn a_reader_that_waited_for_memory_gets_its_whole_reply() {
    let server = start(config()).unwrap();
    let (mut readers, keys) = slow_readers(&server, 60);
    // All but the last disconnect: waiting ones get memory.
    let mut last_reader = readers.pop().unwrap();
    drop(readers);
    let reply = get_reply(&keys, LARGE_BYTES);
    for _ in 0..4 {
        expect_reply(&mut last_reader, b"", &reply);
    }
    let counters = read_server_counters(&server);
    assert_eq!(counters["peers_waiting"], 0, "{counters:?}");
}

#[test]
fn unfinished_commands_stay_in_the_kernel_beyond_the_budget() {
    let server = start(config()).unwrap();
    let request = set_request("half", 60_000);
    let (first_part, second_part) = request.split_at(40_000);
    let send_first_part = |_| {
        let mut client = connect(&server);
        client.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        client.write_all(first_part).unwrap();
        client
    };
    let half_senders: Vec<TcpStream> = (0..500).map(send_first_part).collect();
    expect_reply(&mut connect(&server), b"mn\r\n", b"MN\r\n");
    let held_bytes = read_server_counters(&server)["buffer_bytes"];
    assert!(held_bytes <= BUDGET_BYTES + EXCESS_BYTES, "{held_bytes} bytes are held");
    // Another client's command of that size is served although the budget is used up, in one piece or in two.
    let mut healthy = send_first_part(0);
    expect_reply(&mut healthy, second_part, b"STORED\r\n");
    expect_reply(&mut healthy, &request, b"STORED\r\n");
    // Each is stored once it is complete, except those that were closed because they stalled.
    let send_rest_and_read = |mut client: TcpStream| {
        let mut reply = [0; 8];
        client.write_all(second_part).is_ok()
            && client.read_exact(&mut reply).is_ok()
            && &reply == b"STORED\r\n"
    };
    let stored_count =
        half_senders.into_iter().map(send_rest_and_read).filter(|is_stored| *is_stored).count()
            as u64;
    let counters = read_server_counters(&server);
    assert!(
        stored_count + counters["stalled_connections_closed"] >= 500,
        "{stored_count} are stored; {counters:?}"
    );
}

#[test]
fn a_half_command_that_ends_while_memory_is_short_is_closed() {
    let server = start(config()).unwrap();
    let first_part = &set_request("half", 60_000)[..40_000];
    let send_first_part = |_| {
        let mut client = connect(&server);
        client.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        client.write_all(first_part).unwrap();
        client
    };
    let half_senders: Vec<TcpStream> = (0..300).map(send_first_part).collect();
    for mut client in half_senders {
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        // A reset is an end as well: unread input is discarded.
        let _ = client.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
}

#[test]
fn small_requests_are_served_while_the_budget_is_used_up() {
    let server = start(config()).unwrap();
    let (readers, _) = slow_readers(&server, 60);
    let first_part = &set_request("half", 60_000)[..40_000];
    let send_first_part = |_| {
        let mut client = connect(&server);
        client.write_all(first_part).unwrap();
        client
    };
    let half_senders: Vec<TcpStream> = (0..200).map(send_first_part).collect();
    let mut client = connect(&server);
    let mut request = Vec::new();
    let mut replies = Vec::new();
    for number in 0..1000 {
        request.extend_from_slice(&set_request(&format!("small{number}"), 100));
        request
            .extend_from_slice(format!("get small{number}\r\nmg small{number} v\r\n").as_bytes());
        replies.extend_from_slice(b"STORED\r\n");
        replies.extend_from_slice(&get_reply(&[format!("small{number}")], 100));
        replies.extend_from_slice(format!("VA 100\r\n{}\r\n", "x".repeat(100)).as_bytes());
    }
    let mut writer = client.try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(&request).unwrap());
    expect_reply(&mut client, b"", &replies);
    sender.join().unwrap();
    drop((readers, half_senders));
}

#[test]
fn a_batch_is_cut_after_the_first_large_value() {
    // With one worker the first byte of a reply means that the whole request was handled before the next one.
    let server = start(Config { workers: 1, ..config() }).unwrap();
    let mut small_client = connect(&server);
    let mut readers = Vec::new();
    for _ in 0..12 {
        let (new_readers, _) = slow_readers(&server, 1);
        // Its values are where they stay before the next reader's are written: what can be held depends on that. Large
        // replies continue after small requests, so a few of these have to follow the first byte.
        new_readers[0].peek(&mut [0]).unwrap();
        for _ in 0..8 {
            expect_reply(&mut small_client, b"mn\r\n", b"MN\r\n");
        }
        readers.extend(new_readers);
    }
    // Sixteen values of each are more than can be held in place: the excess would be copied.
    let counters = read_server_counters(&server);
    assert!(counters["buffer_bytes"] < 400_000, "{counters:?}");
    drop(readers);
}

#[test]
fn a_parked_connection_that_was_reset_does_not_keep_its_worker_awake() {
    let server = start(Config { workers: 1, ..config() }).unwrap();
    // Incomplete values of 1 MB use up the upload memory of 64 MiB; the next upload is parked.
    let send_first_part = |number: usize| {
        let mut client = connect(&server);
        let mut request = format!("set stalled{number} 0 0 1000000\r\n").into_bytes();
        request.resize(request.len() + 700_000, b'x');
        client.set_nonblocking(true).unwrap();
        let _ = client.write(&request);
        client
    };
    let mut clients: Vec<TcpStream> = (0..30).map(send_first_part).collect();
    expect_reply(&mut connect(&server), b"mn\r\n", b"MN\r\n");
    for client in clients.drain(15..) {
        sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    }
    let iterations_before = read_server_counters(&server)["loop_iterations"];
    std::thread::sleep(Duration::from_millis(300));
    let iterations = read_server_counters(&server)["loop_iterations"] - iterations_before;
    // A parked upload is checked a hundred times a second; without sleep there would be hundreds of thousands.
    assert!(iterations < 2000, "{iterations} iterations");
}

#[test]
fn memory_for_the_next_writes_is_backed_without_any_new_connection() {
    let server = start(config()).unwrap();
    assert_eq!(read_server_counters(&server)["ready_bytes"], 0);
    let mut client = connect(&server);
    expect_reply(&mut client, b"set a 0 0 1\r\nx\r\n", b"STORED\r\n");
    let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        client.write_all(b"stats glasscache\r\n").unwrap();
        let rows = lines.by_ref().map(Result::unwrap);
        let rows: Vec<String> = rows.take_while(|line| line != "END").collect();
        // One huge page.
        if rows.iter().any(|row| row == "STAT ready_bytes 2097152") {
            return;
        }
        assert!(Instant::now() < deadline, "{rows:?}");
    }
}

/// What unread watchers may hold together is bounded, whatever they watch, and a listing beside them is as fast.
#[test]
fn unread_watchers_lose_lines_and_delay_no_client() {
    let server = start(config()).unwrap();
    let mut writer = connect(&server);
    let list = || {
        let mut client = connect(&server);
        client.write_all(b"lru_crawler metadump all\r\n").unwrap();
        let began_at = Instant::now();
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        while !text.ends_with(b"END\r\n") {
            let read_bytes = client.read(&mut buffer).unwrap();
            assert!(read_bytes > 0, "the listing was closed");
            text.extend_from_slice(&buffer[..read_bytes]);
        }
        began_at.elapsed()
    };
    let mut watchers = Vec::new();
    for number in 0..600 {
        let mut watcher = connect_with_small_buffer(&server);
        let kinds: &[u8] = if number % 3 == 0 {
            b"watch mutations deletions heartbeat\r\n"
        } else {
            b"watch mutations\r\n"
        };
        watcher.write_all(kinds).unwrap();
        let mut reply = [0; 4];
        watcher.read_exact(&mut reply).unwrap();
        watchers.push(watcher);
    }
    let key = "k".repeat(240);
    for number in 0..4000 {
        writer.write_all(&set_request(&format!("{key}{}", number % 10), 1)).unwrap();
        if number % 100 == 99 {
            expect_reply(&mut writer, b"", &b"STORED\r\n".repeat(100));
        }
    }
    let counters = read_server_counters(&server);
    assert!(counters["peer_bytes"] <= BUDGET_BYTES, "{counters:?}");
    assert_eq!(counters["peer_bytes_faults"], 0, "{counters:?}");
    assert_in_time(list(), Duration::from_secs(1), "a listing");
    // One that begins to read is told how many lines it lost.
    let mut lines = BufReader::new(watchers.swap_remove(1)).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("skipped=")));
}
