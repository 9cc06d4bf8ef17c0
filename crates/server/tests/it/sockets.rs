//! The server over real sockets: behaviour that needs a socket (ports, limits, slow readers, shutdown).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use glasscache_server::{Config, Listen, start};

use crate::live_server::{config, connect, expect_reply};

#[test]
fn a_value_is_stored_and_read() {
    let server = start(config()).unwrap();
    let mut client = connect(&server);
    expect_reply(&mut client, b"set a 5 0 3\r\nabc\r\n", b"STORED\r\n");
    expect_reply(&mut client, b"get a b\r\n", b"VALUE a 5 3\r\nabc\r\nEND\r\n");
    expect_reply(&mut client, b"delete a\r\n", b"DELETED\r\n");
    expect_reply(&mut client, b"mg a v\r\nmn\r\n", b"EN\r\nMN\r\n");
}

#[test]
fn large_values_are_stored_and_read_whole() {
    let server = start(config()).unwrap();
    let mut client = connect(&server);
    for value_bytes in [60_000, 65_536, 70_000, 300_000, 1_000_000] {
        let value: Vec<u8> = (0..value_bytes).map(|index| (index % 251) as u8).collect();
        let mut request = format!("set big 0 0 {value_bytes}\r\n").into_bytes();
        request.extend_from_slice(&value);
        request.extend_from_slice(b"\r\n");
        expect_reply(&mut client, &request, b"STORED\r\n");
        let mut reply = format!("VALUE big 0 {value_bytes}\r\n").into_bytes();
        reply.extend_from_slice(&value);
        reply.extend_from_slice(b"\r\nEND\r\n");
        expect_reply(&mut client, b"get big\r\n", &reply);
    }
}

#[test]
fn a_large_value_may_arrive_before_its_line_end() {
    let server = start(config()).unwrap();
    let mut client = connect(&server);
    let mut request = b"set big 0 0 100000\r\n".to_vec();
    request.resize(request.len() + 100_000, b'x');
    for line_end in [&b"\r\n"[..], b"\r"] {
        client.write_all(&request).unwrap();
        // A reply to another client shows that the worker is not stuck on this one.
        for _ in 0..4 {
            expect_reply(&mut connect(&server), b"mn\r\n", b"MN\r\n");
        }
        client.write_all(line_end).unwrap();
        if line_end.len() == 1 {
            client.write_all(b"\n").unwrap();
        }
        expect_reply(&mut client, b"", b"STORED\r\n");
    }
}

#[test]
fn a_reader_that_pauses_is_waited_for_and_gets_everything() {
    let server = start(config()).unwrap();
    let mut client = connect(&server);
    let value = vec![b'x'; 500_000];
    let mut request = b"set big 0 0 500000\r\n".to_vec();
    request.extend_from_slice(&value);
    request.extend_from_slice(b"\r\n");
    expect_reply(&mut client, &request, b"STORED\r\n");
    let mut writer = client.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        for _ in 0..100 {
            writer.write_all(b"get big\r\n").unwrap();
        }
        writer.write_all(b"mn\r\n").unwrap();
    });
    let mut reader = BufReader::new(client);
    let mut line = String::new();
    for _ in 0..100 {
        line.clear();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "VALUE big 0 500000\r\n");
        let mut received = vec![0; 500_002 + 5];
        reader.read_exact(&mut received).unwrap();
        assert!(received.starts_with(&value) && received.ends_with(b"\r\nEND\r\n"));
    }
    line.clear();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "MN\r\n");
    sender.join().unwrap();
}

#[test]
fn a_connection_beyond_the_limit_is_refused_with_an_error() {
    let server = start(Config { connections_max: 2, ..config() }).unwrap();
    let (mut first, mut second) = (connect(&server), connect(&server));
    expect_reply(&mut first, b"version\r\n", b"VERSION ");
    expect_reply(&mut second, b"version\r\n", b"VERSION ");
    let mut refused = connect(&server);
    let mut reply = String::new();
    refused.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "ERROR Too many open connections\r\n");
}

#[test]
fn the_longest_stalled_reader_is_closed_for_others() {
    let server = start(config()).unwrap();
    let mut client = connect(&server);
    let mut request = b"set big 0 0 1000000\r\n".to_vec();
    request.resize(request.len() + 1_000_000, b'x');
    request.extend_from_slice(b"\r\n");
    // Each value is in another segment, so that held segments add up.
    let stalled: Vec<TcpStream> = (0..16)
        .map(|_| {
            expect_reply(&mut client, &request, b"STORED\r\n");
            let mut reader = connect(&server);
            reader.write_all(&b"get big\r\n".repeat(20)).unwrap();
            reader
        })
        .collect();
    let mut reply = b"VALUE big 0 1000000\r\n".to_vec();
    reply.resize(reply.len() + 1_000_000, b'x');
    reply.extend_from_slice(b"\r\nEND\r\n");
    // A new reader is refused while none has stalled for long; one that stalls for long is closed.
    let deadline = Instant::now() + Duration::from_secs(20);
    let gets_all = || {
        let mut reader = connect(&server);
        reader.write_all(&b"get big\r\n".repeat(20)).unwrap();
        (0..20).all(|_| {
            let mut received = vec![0; reply.len()];
            reader.read_exact(&mut received).is_ok() && received == reply
        })
    };
    while !gets_all() {
        assert!(Instant::now() < deadline, "no memory was released");
    }
    drop(stalled);
}

#[test]
fn stopping_completes_begun_requests() {
    let server = start(config()).unwrap();
    let mut client = connect(&server);
    expect_reply(&mut client, b"set a 0 0 1\r\n1\r\n", b"STORED\r\n");
    client.write_all(b"get a\r\nset b 0 0 3\r\nab").unwrap();
    // The reply shows that the server has read the unfinished set as well.
    expect_reply(&mut client, b"", b"VALUE a 0 1\r\n1\r\nEND\r\n");
    server.stop();
    expect_reply(&mut client, b"c\r\n", b"STORED\r\n");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    server.join();
}

#[test]
fn a_unix_socket_serves_and_is_removed_at_the_end() {
    let path = std::env::temp_dir().join(format!("glasscache-test-{}", std::process::id()));
    let listen = Listen::Unix { path: path.clone(), mode: 0o700, group: None };
    let server = start(Config { listeners: vec![listen], ..config() }).unwrap();
    let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    client.write_all(b"mn\r\n").unwrap();
    let mut received = [0; 4];
    client.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"MN\r\n");
    drop(server);
    assert!(!path.exists());
}

#[test]
fn config_get_cluster_reports_the_nodes_of_its_file_and_is_unknown_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nodes");
    std::fs::write(&path, "1\na|10.0.0.1|11211\n").unwrap();
    let mut config_with_file = config();
    config_with_file.cluster_file = Some(path.clone());
    let server = start(config_with_file).unwrap();
    let mut client = connect(&server);
    expect_reply(
        &mut client,
        b"config get cluster\r\nmn\r\n",
        b"CONFIG cluster 0 19\r\n1\na|10.0.0.1|11211\n\r\nEND\r\nMN\r\n",
    );
    std::fs::write(&path, "2\na|10.0.0.1|11211\nb|10.0.0.2|11211\n").unwrap();
    expect_reply(
        &mut client,
        b"config get cluster\r\nconfig get other\r\nconfig set cluster\r\n",
        b"CONFIG cluster 0 36\r\n2\na|10.0.0.1|11211 b|10.0.0.2|11211\n\r\nEND\r\nEND\r\nERROR\r\n",
    );
    let server = start(config()).unwrap();
    expect_reply(&mut connect(&server), b"config get cluster\r\n", b"ERROR\r\n");
}

#[test]
fn a_unix_socket_is_taken_over_from_a_dead_server_and_never_from_a_running_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let config_on_path = || Config {
        listeners: vec![Listen::Unix { path: path.clone(), mode: 0o700, group: None }],
        ..config()
    };
    let connect_once = || {
        let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        client.write_all(b"mn\r\n").unwrap();
        let mut reply = [0; 4];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"MN\r\n");
    };
    // What a killed server leaves: a socket without a listener.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let old_server = start(config_on_path()).unwrap();
    connect_once();
    let refusal = start(config_on_path()).map(drop).unwrap_err().to_string();
    assert!(refusal.contains("in use"), "{refusal}");
    connect_once();
    // An administrator removes the file and starts the next server while the old one still runs.
    std::fs::remove_file(&path).unwrap();
    let new_server = start(config_on_path()).unwrap();
    drop(old_server);
    connect_once();
    drop(new_server);
    assert!(!path.exists());
}

#[test]
fn a_prepared_server_serves_no_client_before_it_starts() {
    let prepared = glasscache_server::prepare(config()).unwrap();
    let Some(glasscache_server::Address::Tcp(address)) = prepared.addresses().first().cloned()
    else {
        panic!("no port")
    };
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"mn\r\n").unwrap();
    client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(client.read(&mut [0; 4]).is_err(), "a reply before the start");
    let server = prepared.start().unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    expect_reply(&mut client, b"", b"MN\r\n");
    drop(server);
}
