//! TLS of the clients, blocking and asynchronous, against a server of a few lines that has certificates of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use glasscache_client::request::Request;
use glasscache_client::{
    Address, AsyncClient, Budget, Client, Error, Options, Placement, Tls, TlsFiles,
};
use glasscache_peers::{Authority, Connection, Identity, Peer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

/// What a call may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A server that knows `mn` and `version`, with a certificate for `localhost`; it runs until the test ends.
fn serve(authority: &Authority, verifies_clients: bool) -> SocketAddr {
    serve_as(&authority.sign("server", 2090), verifies_clients.then_some(authority))
}

fn serve_as(identity: &Identity, clients_authority: Option<&Authority>) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let certificate_in = |file: &Path| CertificateDer::from_pem_file(file).unwrap();
    let builder = if let Some(authority) = clients_authority {
        let mut roots = RootCertStore::empty();
        roots.add(certificate_in(&authority.certificate_file)).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let chain = vec![certificate_in(&identity.chain_file)];
    let key = PrivateKeyDer::from_pem_file(&identity.key_file).unwrap();
    let config = Arc::new(builder.with_single_cert(chain, key).unwrap());
    Peer::start(move |connection| {
        let session = ServerConnection::new(config.clone()).unwrap();
        let mut connection = Connection::new(StreamOwned::new(session, connection.into_stream()));
        connection.reply_to_lines(|line| match line {
            "mn" => "MN\r\n",
            "version" => "VERSION 1.6.45\r\n",
            _ => "ERROR\r\n",
        })
    })
    .address()
}

fn options_trusting(files: &TlsFiles) -> Options {
    Options { timeout: TIMEOUT, tls: Some(Tls::new(files).unwrap()), ..Options::default() }
}

fn files_trusting(authority: &Authority) -> TlsFiles {
    TlsFiles { ca_file: Some(authority.certificate_file.clone()), ..TlsFiles::default() }
}

/// What each kind of client gets from the server under this name.
fn request_versions(host: &str, port: u16, options: &Options) -> Vec<Result<(), Error>> {
    let addresses = Address::parse_list(&format!("{host}:{port}")).unwrap();
    let client = Client::new(&addresses, Placement::default(), options.clone()).unwrap();
    let budget = Budget::new(options.timeout);
    let mut replies = client.request_all(Request::Version, &budget).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = AsyncClient::new(&addresses, Placement::default(), options.clone()).unwrap();
    replies.extend(runtime.block_on(client.request_all(Request::Version, &budget)).unwrap());
    replies.into_iter().map(|(_, reply)| reply.map(drop)).collect()
}

/// Expects an error with `reason` from each kind of client.
fn expect_failure(host: &str, port: u16, options: &Options, reason: &str) {
    for outcome in request_versions(host, port, options) {
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn requests_pass_to_a_server_of_a_trusted_authority() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let port = serve(&authority, false).port();
    for outcome in
        request_versions("localhost", port, &options_trusting(&files_trusting(&authority)))
    {
        outcome.unwrap();
    }
}

#[test]
fn a_server_of_another_authority_or_name_or_whose_certificate_has_expired_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let other_authority = Authority::new(folder.path(), "other");
    let port = serve(&authority, false).port();
    let reason = "TLS failed: invalid peer certificate: UnknownIssuer";
    expect_failure("localhost", port, &options_trusting(&files_trusting(&other_authority)), reason);
    let trusting_files = files_trusting(&authority);
    let reason = "TLS failed: invalid peer certificate";
    expect_failure("127.0.0.1", port, &options_trusting(&trusting_files), reason);
    let expired_port = serve_as(&authority.sign("expired", 2021), None).port();
    let reason = "TLS failed: invalid peer certificate: certificate expired";
    expect_failure("localhost", expired_port, &options_trusting(&trusting_files), reason);
    // The name that the certificate has may be given instead of the host.
    let files_with_server_name =
        TlsFiles { server_name: Some("localhost".to_owned()), ..trusting_files };
    for outcome in request_versions("127.0.0.1", port, &options_trusting(&files_with_server_name)) {
        outcome.unwrap();
    }
}

#[test]
fn a_client_presents_its_certificate_where_one_is_required() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let port = serve(&authority, true).port();
    let files_without_certificate = files_trusting(&authority);
    for outcome in
        request_versions("localhost", port, &options_trusting(&files_without_certificate))
    {
        assert!(matches!(outcome, Err(Error::Unavailable(..))), "{outcome:?}");
    }
    let identity = authority.sign("client", 2090);
    let files_with_certificate = TlsFiles {
        certificate_file: Some(identity.chain_file),
        key_file: Some(identity.key_file),
        ..files_without_certificate
    };
    for outcome in request_versions("localhost", port, &options_trusting(&files_with_certificate)) {
        outcome.unwrap();
    }
}

#[test]
fn a_handshake_counts_towards_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let port = Peer::silent().address().port();
    let options = Options {
        timeout: Duration::from_millis(100),
        ..options_trusting(&files_trusting(&authority))
    };
    let started = Instant::now();
    for outcome in request_versions("localhost", port, &options) {
        assert!(matches!(outcome, Err(Error::Deadline(_))), "{outcome:?}");
    }
    assert!(started.elapsed() < TIMEOUT);
}

#[test]
fn a_server_without_tls_is_an_error_and_nothing_is_sent_plainly() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let port = Peer::start(|mut connection| connection.write("ERROR\r\n")).address().port();
    let options = options_trusting(&files_trusting(&authority));
    expect_failure("localhost", port, &options, "TLS failed: ");
    let unix_address = Address::parse_list("/run/cache.sock").unwrap();
    let client_result = Client::new(&unix_address, Placement::default(), options).map(drop);
    let message = client_result.unwrap_err().to_string();
    assert!(message.ends_with("a unix socket has no TLS"), "{message}");
}
