//! Large values that arrive: many at once, of the maximum size, and behind some that stall.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use glasscache_server::{Config, start};

use crate::live_server::{config, connect, expect_reply};

#[test]
fn stalled_uploads_make_room_for_one_that_moves() {
    let server = start(config()).unwrap();
    // 700 kB of each of sixteen values of 1 MB: more than uploads may hold, 8 of the 64 MiB.
    let stalled: Vec<TcpStream> = (0..16)
        .map(|number| {
            let mut client = connect(&server);
            let mut request = format!("set stalled{number} 0 0 1000000\r\n").into_bytes();
            request.resize(request.len() + 700_000, b'x');
            client.write_all(&request).unwrap();
            client
        })
        .collect();
    let mut request = b"set moves 0 0 1000000\r\n".to_vec();
    request.resize(request.len() + 1_000_000, b'y');
    request.extend_from_slice(b"\r\n");
    // A connection that gets memory and then stalls is closed later: this can take two seconds several times.
    let timeout = Duration::from_mins(1);
    let store_moving_value = || {
        let mut client = connect(&server);
        client.set_read_timeout(Some(timeout)).unwrap();
        client.write_all(&request).unwrap();
        let mut reply = [0; 8];
        client.read_exact(&mut reply).unwrap();
        &reply == b"STORED\r\n"
    };
    let is_open = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let read_result = stream.read(&mut [0]);
        read_result.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    // Memory is released once a connection has stalled for long enough, however slow this machine is.
    let deadline = Instant::now() + timeout;
    let open_count = loop {
        let was_stored = store_moving_value();
        let open_count = stalled.iter().filter(|stream| is_open(stream)).count();
        if (was_stored && open_count < 16) || Instant::now() > deadline {
            break open_count;
        }
    };
    // Some stalled uploads were closed to make room, but not all of them.
    assert!((1..16).contains(&open_count), "{open_count} of 16 are open");
    // A worker that polled without sleeping would run hundreds of thousands of iterations.
    let iterations = read_server_counter(&mut connect(&server), "loop_iterations");
    assert!(iterations < 20_000, "{iterations} iterations");
}

#[test]
fn many_large_values_at_once_are_all_stored() {
    let server = start(config()).unwrap();
    // Half a value of each of the 64 clients is four times what uploads may hold, 8 of the 64 MiB.
    let mut request = b"set large 0 0 1000000\r\n".to_vec();
    request.resize(request.len() + 1_000_000, b'x');
    request.extend_from_slice(b"\r\n");
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let mut client = connect(&server);
                let timeout = Duration::from_mins(1);
                client.set_read_timeout(Some(timeout)).unwrap();
                for _ in 0..2 {
                    expect_reply(&mut client, &request, b"STORED\r\n");
                }
            });
        }
    });
}

#[test]
fn a_value_of_half_the_memory_is_stored_if_the_limit_allows() {
    let server = start(Config { item_bytes_max: 32 << 20, ..config() }).unwrap();
    let mut client = connect(&server);
    let value = vec![b'x'; 31_000_000];
    for _ in 0..3 {
        let request = [b"set half 0 0 31000000\r\n", &value[..], b"\r\n"].concat();
        expect_reply(&mut client, &request, b"STORED\r\n");
        let reply = [b"VALUE half 0 31000000\r\n", &value[..], b"\r\nEND\r\n"].concat();
        expect_reply(&mut client, b"get half\r\n", &reply);
    }
}

#[test]
fn of_many_waiting_uploads_only_the_oldest_retry_and_all_complete() {
    const UPLOADS: usize = 300;
    /// The time between two checks of the waiting uploads by a worker, and how many it retries in one check: four that
    /// have begun and four that have not.
    const CHECK_INTERVAL: Duration = Duration::from_millis(10);
    const TRIES_PER_CHECK: u128 = 2 * 4;
    let server = start(Config { connections_max: 2 * UPLOADS as u32, ..config() }).unwrap();
    let started_at = Instant::now();
    let mut stalled: Vec<TcpStream> = (0..UPLOADS)
        .map(|number| {
            let mut client = connect(&server);
            let mut request = format!("set waits{number} 0 0 1000000\r\n").into_bytes();
            request.resize(request.len() + 200, b'x');
            client.write_all(&request).unwrap();
            client
        })
        .collect();
    // While no sender is closed, memory changes hands.
    let mut other = connect(&server);
    while started_at.elapsed() < Duration::from_millis(900) {
        expect_reply(&mut other, b"get other\r\n", b"END\r\n");
        std::thread::sleep(Duration::from_millis(5));
    }
    let tries = u128::from(read_server_counter(&mut other, "upload_tries"));
    // Each of the two workers checks once per interval, and once more in the interval that has begun.
    let checks = 2 * (started_at.elapsed().as_millis() / CHECK_INTERVAL.as_millis() + 1);
    // An upload that gets memory also causes a check at once: at most one per upload.
    let tries_max = TRIES_PER_CHECK * (checks + UPLOADS as u128);
    eprintln!("{tries} tries of {UPLOADS} uploads, at most {tries_max}");
    assert!(tries <= tries_max, "{tries} tries, not {tries_max}");
    // Each upload is stored or its connection is closed: none waits forever.
    for client in &mut stalled {
        let mut value_end = vec![b'x'; 999_800];
        value_end.extend_from_slice(b"\r\n");
        client.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let _ = client.write_all(&value_end);
        let mut reply = [0; 8];
        let read_result = client.read_exact(&mut reply);
        assert!(
            read_result.is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock)
                || &reply == b"STORED\r\n"
        );
    }
}

/// A row of `stats glasscache`.
fn read_server_counter(client: &mut TcpStream, name: &str) -> u64 {
    client.write_all(b"stats glasscache\r\n").unwrap();
    let lines = BufReader::new(client).lines().map(Result::unwrap);
    let mut rows = lines.take_while(|line| line != "END");
    let value = rows.find_map(|line| line.strip_prefix(&format!("STAT {name} "))?.parse().ok());
    value.unwrap()
}

#[test]
fn an_upload_that_is_refused_midway_removes_the_old_value() {
    let server = start(Config { memory_bytes: 8 << 20, evict: false, ..config() }).unwrap();
    let mut client = connect(&server);
    expect_reply(&mut client, b"set k 0 0 3\r\nold\r\n", b"STORED\r\n");
    // Nothing is evicted: at some value there is no memory left.
    let value = "x".repeat(8000);
    for number in 0..2000 {
        write!(client, "set fill{number} 0 0 8000 noreply\r\n{value}\r\n").unwrap();
    }
    let (head, half) = ("set k 0 0 1000000\r\n", "y".repeat(500_000));
    write!(client, "{head}{half}{half}\r\n").unwrap();
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "SERVER_ERROR out of memory storing object\r\n");
    expect_reply(&mut client, b"get k\r\n", b"END\r\n");
}
