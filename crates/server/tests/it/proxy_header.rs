//! The PROXY protocol over real sockets: from known proxies alone, required of them, in any pieces.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use glasscache_server::{
    Address, Config, Listen, RunningServer, UsersFile, UsersFileFormat, start,
};

const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.8 50007 11211\r\n";

fn start_server(proxies: &[&str], users: Option<UsersFile>) -> RunningServer {
    start(Config {
        listeners: vec![Listen::Tcp(([127, 0, 0, 1], 0).into())],
        memory_bytes: 8 << 20,
        workers: 1,
        proxies: proxies.iter().map(|text| text.parse().unwrap()).collect(),
        users,
        ..Config::default()
    })
    .unwrap()
}

fn connect(server: &RunningServer) -> BufReader<TcpStream> {
    let Some(Address::Tcp(address)) = server.addresses().first().cloned() else {
        panic!("no port")
    };
    let stream = TcpStream::connect(address).unwrap();
    let timeout = Some(Duration::from_secs(20));
    stream.set_read_timeout(timeout).unwrap();
    stream.set_nodelay(true).unwrap();
    BufReader::new(stream)
}

fn send(connection: &mut BufReader<TcpStream>, bytes: &[u8]) {
    connection.get_mut().write_all(bytes).unwrap();
}

/// Reads the next line; it is empty at the end of the stream.
fn read_line(connection: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    connection.read_line(&mut line).unwrap();
    line
}

/// The addresses of all connections, as the server reports them.
fn read_addresses(connection: &mut BufReader<TcpStream>) -> Vec<String> {
    send(connection, b"stats conns\r\n");
    let mut addresses = Vec::new();
    loop {
        let row = read_line(connection);
        if row == "END\r\n" {
            return addresses;
        }
        if let Some((_, address)) = row.trim_end().split_once(":addr ") {
            addresses.push(address.to_owned());
        }
    }
}

#[test]
fn the_header_names_the_client_and_requests_may_follow_at_once() {
    let server = start_server(&["127.0.0.0/8"], None);
    let mut connection = connect(&server);
    send(&mut connection, &[HEADER, b"set a 0 0 1\r\n1\r\nget a\r\n"].concat());
    assert_eq!(read_line(&mut connection), "STORED\r\n");
    for expected in ["VALUE a 0 1\r\n", "1\r\n", "END\r\n"] {
        assert_eq!(read_line(&mut connection), expected);
    }
    let all_addresses = read_addresses(&mut connection);
    assert!(all_addresses.contains(&"tcp:192.0.2.7:50007".to_owned()), "{all_addresses:?}");
}

#[test]
fn a_header_in_pieces_of_a_byte_is_read() {
    let server = start_server(&["127.0.0.1/32"], None);
    let mut connection = connect(&server);
    for byte in HEADER {
        send(&mut connection, &[*byte]);
    }
    send(&mut connection, b"mn\r\n");
    assert_eq!(read_line(&mut connection), "MN\r\n");
}

#[test]
fn a_binary_header_is_followed_by_either_protocol() {
    let server = start_server(&["127.0.0.1/32"], None);
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend_from_slice(&[192, 0, 2, 9, 192, 0, 2, 8, 0x04, 0xd2, 0x2b, 0xcb]);
    let mut text_connection = connect(&server);
    send(&mut text_connection, &[&header[..], b"mn\r\n"].concat());
    assert_eq!(read_line(&mut text_connection), "MN\r\n");
    let all_addresses = read_addresses(&mut text_connection);
    assert!(all_addresses.contains(&"tcp:192.0.2.9:1234".to_owned()), "{all_addresses:?}");
    let mut binary_connection = connect(&server);
    let mut noop = vec![0x80, 0x0a];
    noop.resize(24, 0);
    send(&mut binary_connection, &[header, noop].concat());
    let mut response = [0; 24];
    binary_connection.read_exact(&mut response).unwrap();
    assert_eq!(response[..2], [0x81, 0x0a]);
}

#[test]
fn a_proxy_without_a_header_is_closed_at_once_or_after_a_second() {
    let server = start_server(&["127.0.0.1/32"], None);
    let mut connection_without_header = connect(&server);
    send(&mut connection_without_header, b"get a\r\n");
    assert_eq!(read_line(&mut connection_without_header), "");
    let mut silent = connect(&server);
    send(&mut silent, b"PROXY TCP4 ");
    assert_eq!(read_line(&mut silent), "");
}

#[test]
fn a_header_from_an_unlisted_address_is_an_error() {
    let server = start_server(&["192.0.2.0/24"], None);
    let mut connection = connect(&server);
    send(&mut connection, HEADER);
    assert_eq!(read_line(&mut connection), "ERROR\r\n");
    let all_addresses = read_addresses(&mut connection);
    assert!(all_addresses.iter().all(|address| address.contains("127.0.0.1")), "{all_addresses:?}");
}

#[test]
fn a_proxy_header_does_not_replace_a_login() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    fs::write(&path, "foo:bar\n").unwrap();
    let format = UsersFileFormat::AuthFile;
    let server = start_server(&["127.0.0.1/32"], Some(UsersFile { path, format }));
    let mut connection = connect(&server);
    send(&mut connection, &[HEADER, b"get a\r\n"].concat());
    assert_eq!(read_line(&mut connection), "CLIENT_ERROR unauthenticated\r\n");
    send(&mut connection, b"set auth 0 0 7\r\nfoo bar\r\nmn\r\n");
    assert_eq!(read_line(&mut connection), "STORED\r\n");
    assert_eq!(read_line(&mut connection), "MN\r\n");
}
