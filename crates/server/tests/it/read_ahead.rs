//! Connections that one iteration of a worker reads ahead together get the same replies as each alone.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::live_server::{config, connect, expect_reply};
use glasscache_server::{Config, InMemorySession, RunningServer, start};

/// More than a worker reads ahead together.
const CONNECTIONS: usize = 40;

/// Lengths of the pieces sent: fractions of commands, and around the number of bytes that are read ahead.
const PIECE_LENGTHS: [usize; 9] = [1, 4096, 30, 4097, 700, 20_000, 4095, 8192, 3];

fn server_of_one_worker() -> RunningServer {
    start(Config { workers: 1, ..config() }).unwrap()
}

/// Commands on keys of its own: small and large values, many keys, errors.
fn commands_of(connection_number: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut append = |text: String| stream.extend_from_slice(text.as_bytes());
    for round in 0..12 {
        let key = format!("c{connection_number}k{}", round % 5);
        let value_bytes = [10, 2000, 4080, 9000, 70_000, 200_000][(round + connection_number) % 6];
        append(format!("set {key} {round} 0 {value_bytes}\r\n{}\r\n", "v".repeat(value_bytes)));
        let keys: Vec<String> =
            (0..round * 40).map(|number| format!("c{connection_number}k{}", number % 9)).collect();
        append(format!("get {key} {}\r\nmg {key} s f\r\nnonsense {key}\r\n", keys.join(" ")));
        append(format!(
            "delete c{connection_number}k{}\r\nappend {key} 0 0 2\r\n11\r\n",
            round % 3
        ));
    }
    stream
}

fn replies_of_one_connection(stream: &[u8]) -> Vec<u8> {
    let config = Config { memory_bytes: 64 << 20, ..config() };
    InMemorySession::new(config).unwrap().feed(stream, 10)
}

/// Sends each stream in pieces, alternating between the connections, and ends the sending.
fn send_alternately(mut pending_sends: Vec<(TcpStream, Vec<u8>)>) {
    let mut sent_bytes = vec![0; pending_sends.len()];
    for round in 0.. {
        let mut is_all_sent = true;
        for (connection_number, (socket, stream)) in pending_sends.iter_mut().enumerate() {
            let start = sent_bytes[connection_number];
            let end = stream
                .len()
                .min(start + PIECE_LENGTHS[(round + connection_number) % PIECE_LENGTHS.len()]);
            socket.write_all(&stream[start..end]).unwrap();
            sent_bytes[connection_number] = end;
            is_all_sent &= end == stream.len();
        }
        if is_all_sent {
            break;
        }
    }
    for (socket, _) in pending_sends {
        socket.shutdown(Shutdown::Write).unwrap();
    }
}

#[test]
fn connections_read_ahead_together_get_the_replies_of_each_alone() {
    let server = server_of_one_worker();
    let sockets: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&server)).collect();
    let pending_sends = sockets
        .iter()
        .enumerate()
        .map(|(number, socket)| (socket.try_clone().unwrap(), commands_of(number)))
        .collect();
    std::thread::scope(|scope| {
        scope.spawn(|| send_alternately(pending_sends));
        for (number, mut socket) in sockets.iter().enumerate() {
            scope.spawn(move || {
                let mut actual = Vec::new();
                socket.read_to_end(&mut actual).unwrap();
                let expected = replies_of_one_connection(&commands_of(number));
                assert!(
                    actual == expected,
                    "connection {number}: {} of {} bytes",
                    actual.len(),
                    expected.len()
                );
            });
        }
    });
}

#[test]
fn a_connection_that_closes_takes_no_reply_of_the_others() {
    let server = server_of_one_worker();
    for _ in 0..50 {
        let mut sockets: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&server)).collect();
        for (number, socket) in sockets.iter_mut().enumerate() {
            if number % 3 == 0 {
                socket.write_all(b"quit\r\n").unwrap();
            } else if number % 3 == 1 {
                socket.shutdown(Shutdown::Both).unwrap();
            } else {
                let request = format!("mn\r\nmg absent{number} s\r\nmg none{number}");
                socket.write_all(request.as_bytes()).unwrap();
                socket.shutdown(Shutdown::Write).unwrap();
            }
        }
        for (number, socket) in sockets.iter_mut().enumerate() {
            let mut actual = String::new();
            if number % 3 == 2 {
                socket.read_to_string(&mut actual).unwrap();
                assert_eq!(actual, "MN\r\nEN\r\n");
            }
        }
        expect_reply(&mut connect(&server), b"mn\r\n", b"MN\r\n");
    }
}
