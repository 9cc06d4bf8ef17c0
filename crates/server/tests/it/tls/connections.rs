//! TLS over real sockets: both versions, any pieces, large values, slow readers, and the parts of a connection's start
//! that come before and after the handshake.

use std::fs;
use std::io::{Read, Write};
use std::sync::Arc;

use crate::tls::support::{
    client_config, client_config_for_versions, config, connect, connect_client, expect_bytes,
    expect_reply, is_refused, new_client, read_stat, start_server, wait_for_stat,
};
use glasscache_peers::{Authority, Identity};
use glasscache_server::{
    ClientCertificate, Config, Listen, UsersFile, UsersFileFormat, prepare, prepare_replacement,
    start,
};
use rustls::version;

#[test]
fn requests_pass_encrypted_in_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let server = start_server(&authority.sign("server", 2090));
    for versions in [&[&version::TLS13], &[&version::TLS12]] {
        let mut client =
            connect_client(&server, client_config_for_versions(&authority, None, versions));
        expect_reply(&mut client, b"set a 0 0 3\r\nabc\r\n", b"STORED\r\n");
        expect_reply(&mut client, b"mg a v\r\nmn\r\n", b"VA 3\r\nabc\r\nMN\r\n");
    }
    assert_eq!(read_stat(&server, "ssl_handshake_errors").unwrap(), "0");
    assert_eq!(read_stat(&server, "ssl_proto_errors").unwrap(), "0");
    assert_eq!(read_stat(&server, "ssl_min_version").unwrap(), "tlsv1.2");
    assert_eq!(read_stat(&server, "ssl_new_sessions"), None);
}

#[test]
fn requests_may_come_in_records_of_one_byte() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let server = start_server(&authority.sign("server", 2090));
    let mut client = connect_client(&server, client_config(&authority, None));
    for byte in b"set a 0 0 3\r\nabc\r\nget a b\r\n" {
        client.write_all(&[*byte]).unwrap();
        client.flush().unwrap();
    }
    expect_bytes(&mut client, b"STORED\r\nVALUE a 0 3\r\nabc\r\nEND\r\n");
}

#[test]
fn large_values_and_long_pipelines_pass_in_both_directions() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let server = start_server(&authority.sign("server", 2090));
    let mut client = connect_client(&server, client_config(&authority, None));
    let mut value = vec![0; 700_000];
    for (index, byte) in value.iter_mut().enumerate() {
        *byte = (index * 7 % 251) as u8;
    }
    for value_bytes in [1, 8_000, 16_384, 16_385, 65_000, 65_536, 700_000] {
        let value = &value[..value_bytes];
        let request =
            [format!("set a 0 0 {value_bytes}\r\n").as_bytes(), value, b"\r\nget a\r\n"].concat();
        let reply =
            [format!("STORED\r\nVALUE a 0 {value_bytes}\r\n").as_bytes(), value, b"\r\nEND\r\n"]
                .concat();
        expect_reply(&mut client, &request, &reply);
    }
    let command_count = 20_000;
    expect_reply(
        &mut client,
        &b"mg none\r\n".repeat(command_count),
        &b"EN\r\n".repeat(command_count),
    );
}

#[test]
fn replies_to_a_slow_reader_arrive_whole() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let server = start_server(&authority.sign("server", 2090));
    let mut client = connect_client(&server, client_config(&authority, None));
    let value = vec![b'x'; 500_000];
    let set_request = [b"set a 0 0 500000\r\n", &value[..], b"\r\n"].concat();
    expect_reply(&mut client, &set_request, b"STORED\r\n");
    // More than the sockets take: the rest waits in the server until the client reads.
    let get_count = 60;
    client.write_all(&b"get a\r\n".repeat(get_count)).unwrap();
    client.flush().unwrap();
    let mut other_client = connect_client(&server, client_config(&authority, None));
    expect_reply(&mut other_client, b"mn\r\n", b"MN\r\n");
    let reply = [b"VALUE a 0 500000\r\n", &value[..], b"\r\nEND\r\n"].concat();
    for _ in 0..get_count {
        expect_bytes(&mut client, &reply);
    }
    expect_reply(&mut client, b"mn\r\n", b"MN\r\n");
}

#[test]
fn the_end_of_a_connection_is_authenticated() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let server = start_server(&authority.sign("server", 2090));
    let mut client = connect_client(&server, client_config(&authority, None));
    client.write_all(b"mn\r\nquit\r\n").unwrap();
    client.flush().unwrap();
    let mut rest = Vec::new();
    // Without the record that closes the session this is an error.
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"MN\r\n");
}

#[test]
fn a_plain_request_is_served_by_the_plain_listener_alone() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let server = start_server(&authority.sign("server", 2090));
    expect_reply(&mut connect(&server, 1), b"mn\r\n", b"MN\r\n");
    let mut plain = connect(&server, 0);
    plain.write_all(b"set a 0 0 1\r\n1\r\nget a\r\n").unwrap();
    let mut reply = Vec::new();
    // The alert that says why, and never a reply nor a reset, which could destroy the alert.
    plain.read_to_end(&mut reply).unwrap();
    assert_eq!(reply.first(), Some(&21), "{reply:?}");
    let mut longer = connect(&server, 0);
    longer.write_all(&[b"set b 0 0 9000\r\n".as_slice(), &[b'x'; 9000], b"\r\n"].concat()).unwrap();
    reply.clear();
    longer.read_to_end(&mut reply).unwrap();
    assert_eq!(reply.first(), Some(&21), "{reply:?}");
    wait_for_stat(&server, "ssl_handshake_errors", "2");
    assert_eq!(read_stat(&server, "curr_items").unwrap(), "0");
}

#[test]
fn a_changed_record_closes_the_connection_and_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let server = start_server(&authority.sign("server", 2090));
    let mut client = connect_client(&server, client_config(&authority, None));
    expect_reply(&mut client, b"mn\r\n", b"MN\r\n");
    let forged = [&[23, 3, 3, 0, 32][..], &[0; 32]].concat();
    client.sock.write_all(&forged).unwrap();
    assert!(client.read_exact(&mut [0]).is_err());
    assert_eq!(read_stat(&server, "ssl_proto_errors").unwrap(), "1");
}

#[test]
fn a_version_below_the_minimum_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let identity = authority.sign("server", 2090);
    let mut config = config(&identity, ClientCertificate::NotRequested);
    if let Some(tls) = &mut config.tls {
        tls.only_tls13 = true;
    }
    let server = start(config).unwrap();
    let old_version_config = client_config_for_versions(&authority, None, &[&version::TLS12]);
    assert!(is_refused(connect_client(&server, old_version_config)));
    assert!(!is_refused(connect_client(&server, client_config(&authority, None))));
    assert_eq!(read_stat(&server, "ssl_min_version").unwrap(), "tlsv1.3");
}

#[test]
fn a_login_follows_the_handshake() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let path = folder.path().join("users");
    fs::write(&path, "foo:bar\n").unwrap();
    let format = UsersFileFormat::AuthFile;
    let server = start(Config {
        users: Some(UsersFile { path, format }),
        ..config(&authority.sign("server", 2090), ClientCertificate::NotRequested)
    })
    .unwrap();
    let mut client = connect_client(&server, client_config(&authority, None));
    expect_reply(&mut client, b"get a\r\n", b"CLIENT_ERROR unauthenticated\r\n");
    expect_reply(&mut client, b"set auth 0 0 7\r\nfoo bar\r\nmn\r\n", b"STORED\r\nMN\r\n");
}

#[test]
fn the_header_of_a_proxy_comes_before_the_handshake() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let server = start(Config {
        proxies: vec!["127.0.0.0/8".parse().unwrap()],
        ..config(&authority.sign("server", 2090), ClientCertificate::NotRequested)
    })
    .unwrap();
    let trusting_config = Arc::new(client_config(&authority, None));
    for piece_bytes in [1, 40] {
        let mut stream = connect(&server, 0);
        let header = b"PROXY TCP4 192.0.2.7 192.0.2.8 50007 11211\r\n";
        for piece in header.chunks(piece_bytes) {
            stream.write_all(piece).unwrap();
        }
        let mut client = new_client(stream, &trusting_config);
        expect_reply(&mut client, b"mn\r\n", b"MN\r\n");
        client.write_all(b"stats conns\r\nquit\r\n").unwrap();
        client.flush().unwrap();
        let mut rows = String::new();
        client.read_to_string(&mut rows).unwrap();
        assert!(rows.contains("tcp:192.0.2.7:50007"), "{rows}");
    }
    assert!(is_refused(new_client(connect(&server, 0), &trusting_config)));
}

#[test]
fn a_server_without_its_certificate_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let identity = authority.sign("server", 2090);
    let refusal = |identity: &Identity| {
        let config = config(identity, ClientCertificate::NotRequested);
        prepare(config).map(|_| ()).unwrap_err().to_string()
    };
    let other_identity = authority.sign("other", 2090);
    let mismatched_identity =
        Identity { key_file: other_identity.key_file.clone(), ..identity.clone() };
    let text = refusal(&mismatched_identity);
    assert!(text.starts_with("ssl_chain_cert: ") && text.contains("server.crt"), "{text}");
    for (file, content, name, reason) in [
        (&identity.chain_file, None, "ssl_chain_cert: ", "cannot be read"),
        (&identity.chain_file, Some(""), "ssl_chain_cert: ", "has no certificate"),
        (&identity.key_file, None, "ssl_key: ", "cannot be read"),
        (&identity.key_file, Some("half"), "ssl_key: ", "has no private key"),
    ] {
        let original = fs::read(file).unwrap();
        match content {
            Some(content) => fs::write(file, content).unwrap(),
            None => fs::remove_file(file).unwrap(),
        }
        let text = refusal(&identity);
        assert!(text.starts_with(name) && text.contains(reason), "{text}");
        fs::write(file, original).unwrap();
    }
    let config_without_tls =
        Config { tls: None, ..config(&identity, ClientCertificate::NotRequested) };
    assert!(prepare(config_without_tls).is_err());
}

#[test]
fn a_port_without_tls_serves_as_before_when_no_listener_has_it() {
    let server = start(Config {
        listeners: vec![Listen::Tcp(([127, 0, 0, 1], 0).into()); 2],
        memory_bytes: 8 << 20,
        workers: 1,
        ..Config::default()
    })
    .unwrap();
    expect_reply(&mut connect(&server, 0), b"refresh_certs\r\n", b"Error TLS not enabled\r\n");
    assert_eq!(read_stat(&server, "ssl_handshake_errors"), None);
    assert_eq!(read_stat(&server, "ssl_enabled"), None);
}

#[test]
fn a_replaced_server_sends_what_is_pending_and_closes() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let identity = authority.sign("server", 2090);
    let settings = || Config {
        memory_bytes: 16 << 20,
        memory_file: Some(folder.path().join("memory")),
        drain_s: 120,
        ..config(&identity, ClientCertificate::NotRequested)
    };
    let server = start(settings()).unwrap();
    let value = vec![b'a'; 700_000];
    let set_request = |value: &[u8]| [&b"set a 0 0 700000\r\n"[..], value, b"\r\n"].concat();
    let mut idle_client = connect_client(&server, client_config(&authority, None));
    expect_reply(&mut idle_client, &set_request(&value), b"STORED\r\n");
    // More than the buffers of the sockets take, so that the reply is pending.
    let mut slow_client = connect_client(&server, client_config(&authority, None));
    slow_client.write_all(&b"get a\r\n".repeat(20)).unwrap();
    expect_bytes(&mut slow_client, b"VALUE a 0 700000\r\n");
    let replacement = prepare_replacement(settings()).unwrap();
    let next_server = replacement.connect().unwrap().take_over().unwrap().start().unwrap();
    assert!(is_refused(idle_client), "the idle connection is closed");
    // The next server uses the memory again.
    let mut writer = connect_client(&next_server, client_config(&authority, None));
    for byte in b"bcdefghijklmnopqrstuvwxyz" {
        expect_reply(&mut writer, &set_request(&vec![*byte; 700_000]), b"STORED\r\n");
    }
    let mut received = Vec::new();
    // It ends after all replies, or at once after requests that were not read.
    let _ = slow_client.read_to_end(&mut received);
    let reply = [&value[..], b"\r\nEND\r\nVALUE a 0 700000\r\n"].concat();
    assert!(received.len() >= value.len(), "{}", received.len());
    assert!(received.chunks(reply.len()).all(|part| reply.starts_with(part)));
    assert!(server.join());
}
