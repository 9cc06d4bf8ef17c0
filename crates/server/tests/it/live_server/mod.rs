//! A server on a port of its own, and a client that expects every byte.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use glasscache_server::{Address, Config, Listen, RunningServer};

/// Two workers on a free port.
pub(crate) fn config() -> Config {
    Config {
        listeners: vec![Listen::Tcp(([127, 0, 0, 1], 0).into())],
        workers: 2,
        hash_seed: Some(1),
        ..Config::default()
    }
}

/// A connection that fails rather than waits forever.
pub(crate) fn connect(server: &RunningServer) -> TcpStream {
    let Some(Address::Tcp(address)) = server.addresses().first().cloned() else {
        panic!("no port")
    };
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

/// Sends `request` and expects exactly `expected`.
pub(crate) fn expect_reply(stream: &mut TcpStream, request: &[u8], expected: &[u8]) {
    stream.write_all(request).unwrap();
    let mut actual = vec![0; expected.len()];
    let request_start = String::from_utf8_lossy(request.get(..200).unwrap_or(request));
    if let Err(error) = stream.read_exact(&mut actual) {
        panic!("{error} after {request_start:?}");
    }
    if let Some(position) = actual
        .iter()
        .zip(expected)
        .position(|(actual_byte, expected_byte)| actual_byte != expected_byte)
    {
        let text_from_difference = |bytes: &[u8]| {
            String::from_utf8_lossy(&bytes[position..bytes.len().min(position + 200)]).into_owned()
        };
        panic!(
            "for {request_start:?} from byte {position}: {:?} instead of {:?}",
            text_from_difference(&actual),
            text_from_difference(expected)
        );
    }
}
