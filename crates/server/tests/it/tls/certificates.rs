//! Certificates: those of clients, those read again while the server runs, the resumption of sessions, and handshakes
//! that do not end.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use crate::tls::support::{
    Client, client_config, client_config_for_versions, config, connect, connect_client,
    expect_reply, is_refused, new_client, read_stat, start_server, wait_for_stat,
};
use glasscache_peers::{Authority, Identity};
use glasscache_server::{ClientCertificate, Config, Listen, RunningServer, start};
use rustls::{ClientConfig, HandshakeKind, version};

/// A server that verifies clients by `authority`.
fn start_verifying_server(authority: &Authority, demand: ClientCertificate) -> RunningServer {
    let mut config = config(&authority.sign("server", 2090), demand);
    if let Some(tls) = &mut config.tls {
        tls.client_ca_file = Some(authority.certificate_file.clone());
    }
    start(config).unwrap()
}

#[test]
fn only_clients_with_a_valid_certificate_are_served_where_one_is_required() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let untrusted_authority = Authority::new(folder.path(), "foreign");
    let server = start_verifying_server(&authority, ClientCertificate::Required);
    for versions in [&[&version::TLS13], &[&version::TLS12]] {
        let refuses = |identity: Option<&Identity>| {
            is_refused(connect_client(
                &server,
                client_config_for_versions(&authority, identity, versions),
            ))
        };
        assert!(refuses(None));
        assert!(refuses(Some(&untrusted_authority.sign("stranger", 2090))));
        assert!(refuses(Some(&authority.sign("expired", 2021))));
        assert!(!refuses(Some(&authority.sign("client", 2090))));
    }
    assert_eq!(read_stat(&server, "ssl_handshake_errors").unwrap(), "6");
}

#[test]
fn without_authorities_no_certificate_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let server_identity = authority.sign("server", 2090);
    let client_identity = authority.sign("client", 2090);
    for demand in [ClientCertificate::Required, ClientCertificate::Optional] {
        let server = start(config(&server_identity, demand)).unwrap();
        let refuses = |identity: Option<&Identity>| {
            is_refused(connect_client(&server, client_config(&authority, identity)))
        };
        assert!(refuses(Some(&client_identity)));
        assert_eq!(refuses(None), demand == ClientCertificate::Required);
    }
}

#[test]
fn a_certificate_that_is_optional_is_verified_if_presented() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let untrusted_authority = Authority::new(folder.path(), "foreign");
    let server = start_verifying_server(&authority, ClientCertificate::Optional);
    let refuses = |identity: Option<&Identity>| {
        is_refused(connect_client(&server, client_config(&authority, identity)))
    };
    assert!(!refuses(None));
    assert!(refuses(Some(&untrusted_authority.sign("stranger", 2090))));
    assert!(!refuses(Some(&authority.sign("client", 2090))));
}

#[test]
fn new_connections_use_the_certificate_that_was_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let identity = authority.sign("server", 2090);
    let server = start(config(&identity, ClientCertificate::NotRequested)).unwrap();
    let connect_and_read_certificate = || {
        let mut client = connect_client(&server, client_config(&authority, None));
        expect_reply(&mut client, b"mn\r\n", b"MN\r\n");
        let certificate = client.conn.peer_certificates().unwrap()[0].to_vec();
        (client, certificate)
    };
    let (mut open_client, first_certificate) = connect_and_read_certificate();
    fs::write(&identity.chain_file, "broken").unwrap();
    open_client.write_all(b"refresh_certs\r\nmn\r\n").unwrap();
    open_client.flush().unwrap();
    let mut reply = [0; 29];
    open_client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"SERVER_ERROR ssl_chain_cert: ");
    // A broken file leaves the certificate in use.
    let (_, certificate) = connect_and_read_certificate();
    assert_eq!(certificate, first_certificate);
    authority.sign("server", 2091);
    server.control().reload();
    let (_, second_certificate) = connect_and_read_certificate();
    assert_ne!(second_certificate, first_certificate);
    authority.sign("server", 2092);
    expect_reply(&mut connect(&server, 1), b"refresh_certs\r\n", b"OK\r\n");
    let (_, certificate) = connect_and_read_certificate();
    assert_ne!(certificate, second_certificate);
    // The connection from before goes on.
    open_client.write_all(b"get none\r\n").unwrap();
    open_client.flush().unwrap();
    let mut replies = Vec::new();
    while !replies.ends_with(b"MN\r\nEND\r\n") {
        let mut byte = [0];
        open_client.read_exact(&mut byte).unwrap();
        replies.push(byte[0]);
    }
}

/// Sends a request, and returns whether the handshake was full or resumed a session.
fn request_handshake_kind(mut client: Client) -> HandshakeKind {
    expect_reply(&mut client, b"mn\r\n", b"MN\r\n");
    client.conn.handshake_kind().unwrap()
}

#[test]
fn sessions_are_resumed_by_tickets_until_the_certificates_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let identity = authority.sign("server", 2090);
    for versions in [&[&version::TLS13], &[&version::TLS12]] {
        let mut config = config(&identity, ClientCertificate::NotRequested);
        if let Some(tls) = &mut config.tls {
            tls.session_tickets = true;
        }
        let server = start(config).unwrap();
        let trusting_config = Arc::new(client_config_for_versions(&authority, None, versions));
        let connect_and_get_kind =
            || request_handshake_kind(new_client(connect(&server, 0), &trusting_config));
        assert_eq!(connect_and_get_kind(), HandshakeKind::Full);
        assert_eq!(connect_and_get_kind(), HandshakeKind::Resumed);
        assert_eq!(read_stat(&server, "ssl_new_sessions").unwrap(), "1");
        server.control().reload();
        assert_eq!(connect_and_get_kind(), HandshakeKind::Full);
        assert_eq!(connect_and_get_kind(), HandshakeKind::Resumed);
        assert_eq!(read_stat(&server, "ssl_new_sessions").unwrap(), "2");
    }
}

#[test]
fn a_client_that_requests_unchanged_certificates_ends_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let identity = authority.sign("server", 2090);
    let mut config = config(&identity, ClientCertificate::NotRequested);
    if let Some(tls) = &mut config.tls {
        tls.session_tickets = true;
    }
    let server = start(config).unwrap();
    let trusting_config = Arc::new(client_config(&authority, None));
    let connect_and_get_kind =
        || request_handshake_kind(new_client(connect(&server, 0), &trusting_config));
    assert_eq!(connect_and_get_kind(), HandshakeKind::Full);
    for _ in 0..3 {
        expect_reply(&mut connect(&server, 1), b"refresh_certs\r\n", b"OK\r\n");
        assert_eq!(connect_and_get_kind(), HandshakeKind::Resumed);
    }
    // A file that cannot be used is reported each time, and the first request with one that can makes new keys.
    let chain = fs::read(&identity.chain_file).unwrap();
    fs::write(&identity.chain_file, "broken").unwrap();
    for _ in 0..2 {
        let reply = b"SERVER_ERROR ssl_chain_cert: ";
        expect_reply(&mut connect(&server, 1), b"refresh_certs\r\n", reply);
    }
    assert_eq!(connect_and_get_kind(), HandshakeKind::Resumed);
    fs::write(&identity.chain_file, chain).unwrap();
    expect_reply(&mut connect(&server, 1), b"refresh_certs\r\n", b"OK\r\n");
    assert_eq!(connect_and_get_kind(), HandshakeKind::Full);
}

#[test]
fn sessions_are_not_resumed_without_the_setting() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let server = start_server(&authority.sign("server", 2090));
    let trusting_config = Arc::new(client_config(&authority, None));
    for _ in 0..3 {
        let kind = request_handshake_kind(new_client(connect(&server, 0), &trusting_config));
        assert_eq!(kind, HandshakeKind::Full);
    }
}

#[test]
fn a_ticket_of_an_open_listener_does_not_open_one_that_requires_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let listen = |client_certificate| Listen::Tls {
        address: ([127, 0, 0, 1], 0).into(),
        client_certificate,
    };
    let mut config = Config {
        listeners: vec![
            listen(ClientCertificate::NotRequested),
            listen(ClientCertificate::Required),
        ],
        ..config(&authority.sign("server", 2090), ClientCertificate::Required)
    };
    if let Some(tls) = &mut config.tls {
        tls.client_ca_file = Some(authority.certificate_file.clone());
        tls.session_tickets = true;
    }
    let server = start(config).unwrap();
    for versions in [&[&version::TLS13], &[&version::TLS12]] {
        let trusting_config: Arc<ClientConfig> =
            Arc::new(client_config_for_versions(&authority, None, versions));
        for _ in 0..2 {
            let kind = request_handshake_kind(new_client(connect(&server, 0), &trusting_config));
            assert!(kind == HandshakeKind::Full || kind == HandshakeKind::Resumed);
            assert!(is_refused(new_client(connect(&server, 1), &trusting_config)));
        }
    }
}

#[test]
fn unfinished_handshakes_leave_room_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let identity = authority.sign("server", 2090);
    let server =
        start(Config { connections_max: 40, ..config(&identity, ClientCertificate::NotRequested) })
            .unwrap();
    // A record's header and no more: ten are a quarter of the connections, so the first ten are closed for the rest.
    let unfinished_handshakes: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = connect(&server, 0);
            stream.write_all(&[22, 3, 1, 1, 0]).unwrap();
            stream
        })
        .collect();
    for stream in unfinished_handshakes.iter().take(10) {
        wait_for_close(stream);
    }
    assert_eq!(read_stat(&server, "ssl_handshake_errors").unwrap(), "10");
    let mut honest = connect_client(&server, client_config(&authority, None));
    expect_reply(&mut honest, b"mn\r\n", b"MN\r\n");
    drop(unfinished_handshakes);
}

#[test]
fn a_handshake_that_does_not_end_is_closed_wherever_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let server = start_server(&authority.sign("server", 2090));
    let mut hello = Vec::new();
    let mut client = connect_client(&server, client_config(&authority, None));
    client.conn.write_tls(&mut hello).unwrap();
    let others = (0..9).map(|_| connect(&server, 0));
    let unfinished_handshakes: Vec<_> = [client.sock].into_iter().chain(others).collect();
    for (number, mut stream) in unfinished_handshakes.iter().enumerate() {
        stream.write_all(&hello[..(number + 1) * hello.len() / 11]).unwrap();
    }
    let mut honest = connect_client(&server, client_config(&authority, None));
    expect_reply(&mut honest, b"mn\r\n", b"MN\r\n");
    // Within the client's timeout of 20 seconds.
    unfinished_handshakes.iter().for_each(wait_for_close);
    wait_for_stat(&server, "ssl_handshake_errors", "10");
}

#[test]
fn what_is_not_a_handshake_closes_the_connection_and_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let server = start_server(&authority.sign("server", 2090));
    let too_long_record = [b"\x16\x03\x01\xff\xff".to_vec(), vec![0; 70_000]].concat();
    for sent in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        &too_long_record,
        &b"\x16\x03\x01\0\0".repeat(10_000),
        &b"\x15\x03\x01\0\x02\x01\0".repeat(10_000),
    ] {
        let mut stream = connect(&server, 0);
        let _ = stream.write_all(sent); // it may be closed meanwhile
        wait_for_close(&stream);
    }
    wait_for_stat(&server, "ssl_handshake_errors", "4");
    assert_eq!(read_stat(&server, "curr_items").unwrap(), "0");
}

/// Waits until the server closes, which it may announce.
fn wait_for_close(mut stream: &TcpStream) {
    let read_result = stream.read_to_end(&mut Vec::new());
    let is_reset = |error: std::io::Error| error.kind() == ErrorKind::ConnectionReset;
    assert!(read_result.is_ok() || read_result.is_err_and(is_reset), "it stays open");
}
