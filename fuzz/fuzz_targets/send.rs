//! Replies through a real socket that takes little at a time: every byte arrives once, in order, however it is cut.
//!
//! The client's receive buffer is small and it reads pieces whose lengths the input chooses, so that the server's sends
//! end short in rendered bytes, in values sent directly from the store, and in values that were copied because memory
//! was short.
//! The input also chooses what is requested, and for which keys the value is overwritten while its reply is under way.

#![no_main]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::Duration;

use glasscache_server::{Address, Config, Listen, RunningServer, start};
use libfuzzer_sys::fuzz_target;
use socket2::{Domain, Socket, Type};

/// Around the sizes from which values are sent directly from the store, and are cut into pieces of their own.
const SIZES: [usize; 8] = [1, 900, 8 << 10, (8 << 10) + 1, 40_000, 64 << 10, 150_000, 400_000];

/// Requests of one input at most: a reply of some ten megabytes takes long.
const REQUESTS_MAX: usize = 24;

fn server() -> &'static RunningServer {
    static SERVER: OnceLock<RunningServer> = OnceLock::new();
    SERVER.get_or_init(|| {
        let config = Config {
            listeners: vec![Listen::Tcp(([127, 0, 0, 1], 0).into())],
            workers: 2,
            memory_bytes: 16 << 20,
            ..Config::default()
        };
        start(config).expect("a server on a free port")
    })
}

fn connect() -> TcpStream {
    let Some(Address::Tcp(address)) = server().addresses().first().cloned() else {
        panic!("no port")
    };
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    socket.connect(&address.into()).expect("a connection");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    stream
}

/// Every value of a size has the same bytes, whichever write was last.
fn value_of_size(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as u8 | 1).collect()
}

fn store_value(stream: &mut TcpStream, index: usize) {
    let value = value_of_size(SIZES[index]);
    let head = format!("set k{index} 5 0 {}\r\n", value.len());
    stream.write_all(&[head.as_bytes(), &value, b"\r\n"].concat()).expect("a set");
    let mut reply = [0; 8];
    stream.read_exact(&mut reply).expect("a reply to a set");
    assert_eq!(&reply, b"STORED\r\n");
}

/// The reply to one request, where its value is present.
fn request_and_reply(index: usize, form: u8) -> (String, Vec<u8>) {
    let value = value_of_size(SIZES[index]);
    let length = value.len();
    let (request, head, line_end): (_, _, &[u8]) = match form {
        0 => {
            (format!("get k{index}\r\n"), format!("VALUE k{index} 5 {length}\r\n"), b"\r\nEND\r\n")
        }
        1 => (format!("mg k{index} v f k\r\n"), format!("VA {length} f5 kk{index}\r\n"), b"\r\n"),
        2 => (
            format!("gat 0 k{index}\r\n"),
            format!("VALUE k{index} 5 {length}\r\n"),
            b"\r\nEND\r\n",
        ),
        _ => return ("mn\r\n".to_owned(), b"MN\r\n".to_vec()),
    };
    (request, [head.as_bytes(), &value, line_end].concat())
}

fuzz_target!(|input: &[u8]| {
    let Some((chosen_requests, cuts)) = input.split_at_checked(input.len() / 2) else { return };
    let chosen_requests = &chosen_requests[..chosen_requests.len().min(REQUESTS_MAX)];
    if chosen_requests.is_empty() || cuts.is_empty() {
        return;
    }
    let mut writer = connect();
    for index in 0..SIZES.len() {
        store_value(&mut writer, index);
    }
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for byte in chosen_requests {
        let (request, reply) = request_and_reply(usize::from(byte & 7), byte >> 3 & 3);
        requests.extend(request.into_bytes());
        expected.extend(reply);
    }
    let mut reader = connect();
    reader.write_all(&requests).expect("requests");
    let mut read = 0;
    let mut piece = vec![0; 64 << 10];
    for cut in cuts.iter().cycle() {
        if read == expected.len() {
            break;
        }
        // From a byte to all that there is; now and then a value is overwritten before the next piece.
        let read_bytes_max = piece.len().min(1 << (cut & 31).min(16)).min(expected.len() - read);
        if cut >> 5 == 7 && expected.len() < 2 << 20 {
            store_value(&mut writer, usize::from(cut & 7));
        }
        let is_slow = read_bytes_max < 512 && expected.len() > 1 << 20;
        let read_bytes_max = if is_slow { 512.min(expected.len() - read) } else { read_bytes_max };
        let read_now =
            reader.read(&mut piece[..read_bytes_max]).expect("bytes within the time-out");
        assert!(read_now > 0, "closed after {read} of {} bytes", expected.len());
        let position = piece[..read_now]
            .iter()
            .zip(&expected[read..])
            .position(|(actual_byte, expected_byte)| actual_byte != expected_byte);
        assert_eq!(position, None, "a wrong byte in the piece from {read}");
        read += read_now;
    }
});
