//! A server with TLS, and a client of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use glasscache_peers::{Authority, Identity};
use glasscache_server::{
    Address, ClientCertificate, Config, Listen, RunningServer, TlsSettings, start,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, version};

/// TLS on one free port where clients need a certificate as `demand` says, and no TLS on a second one.
pub(crate) fn config(identity: &Identity, demand: ClientCertificate) -> Config {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    Config {
        listeners: vec![Listen::Tls { address, client_certificate: demand }, Listen::Tcp(address)],
        memory_bytes: 16 << 20,
        workers: 1,
        tls: Some(TlsSettings {
            chain_file: identity.chain_file.clone(),
            key_file: identity.key_file.clone(),
            client_ca_file: None,
            only_tls13: false,
            session_tickets: false,
            write_buffer_bytes: 16 << 10,
        }),
        ..Config::default()
    }
}

pub(crate) fn start_server(identity: &Identity) -> RunningServer {
    start(config(identity, ClientCertificate::NotRequested)).unwrap()
}

/// A connection without TLS to the listener at `index`.
pub(crate) fn connect(server: &RunningServer, index: usize) -> TcpStream {
    let Some(Address::Tcp(address)) = server.addresses().get(index).cloned() else {
        panic!("no port")
    };
    let stream = TcpStream::connect(address).unwrap();
    let timeout = Some(Duration::from_secs(20));
    stream.set_read_timeout(timeout).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// What a client trusts and presents.
pub(crate) fn client_config(authority: &Authority, identity: Option<&Identity>) -> ClientConfig {
    client_config_for_versions(authority, identity, &[&version::TLS13, &version::TLS12])
}

/// The same with these versions alone.
pub(crate) fn client_config_for_versions(
    authority: &Authority,
    identity: Option<&Identity>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&authority.certificate_file).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(&identity.chain_file).unwrap()],
                PrivateKeyDer::from_pem_file(&identity.key_file).unwrap(),
            )
            .unwrap(),
    }
}

/// A client with TLS.
pub(crate) type Client = StreamOwned<ClientConnection, TcpStream>;

/// A client on a connection, before its handshake.
pub(crate) fn new_client(stream: TcpStream, config: &Arc<ClientConfig>) -> Client {
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::clone(config), name).unwrap();
    StreamOwned::new(session, stream)
}

/// A client of the first listener, before its handshake.
pub(crate) fn connect_client(server: &RunningServer, config: ClientConfig) -> Client {
    new_client(connect(server, 0), &Arc::new(config))
}

/// Sends `request` and expects exactly `reply`.
pub(crate) fn expect_reply(client: &mut (impl Read + Write), request: &[u8], reply: &[u8]) {
    client.write_all(request).unwrap();
    client.flush().unwrap();
    expect_bytes(client, reply);
}

/// Expects exactly `reply`.
pub(crate) fn expect_bytes(client: &mut impl Read, reply: &[u8]) {
    let mut actual = vec![0; reply.len()];
    client.read_exact(&mut actual).unwrap();
    assert!(actual == reply, "{:?}", String::from_utf8_lossy(&actual));
}

/// Whether the server refuses the handshake or closes before a reply.
pub(crate) fn is_refused(mut client: Client) -> bool {
    let is_sent = client.write_all(b"mn\r\n").and_then(|()| client.flush());
    is_sent.is_err() || client.read_exact(&mut [0; 4]).is_err()
}

/// One row of `stats`, over the listener without TLS.
pub(crate) fn read_stat(server: &RunningServer, name: &str) -> Option<String> {
    let mut stream = connect(server, 1);
    stream.write_all(b"stats\r\nstats settings\r\nquit\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let prefix = format!("STAT {name} ");
    let row = text.lines().find_map(|line| line.strip_prefix(&prefix));
    row.map(str::to_owned)
}

/// Waits until a row of `stats` has a value: a connection is counted when it is closed, which its client may see first.
pub(crate) fn wait_for_stat(server: &RunningServer, name: &str, expected: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while read_stat(server, name).as_deref() != Some(expected) {
        assert!(Instant::now() < deadline, "{name} is {:?}", read_stat(server, name));
        thread::sleep(Duration::from_millis(5));
    }
}
