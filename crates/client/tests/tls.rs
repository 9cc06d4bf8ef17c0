//! TLS of the clients, blocking and asynchronous, against a server of a few lines that has certificates of its own.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use glasscache_client::request::Request;
use glasscache_client::{Address, Budget, Client, Error, Options, Placement, Tls, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

/// What a call may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// An authority, and what it signs, in a folder.
struct Authority {
    file: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let file = folder.join(format!("{name}.pem"));
        std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Authority { file, issuer }
    }

    /// A file with a certificate for `name` and its key.
    fn sign(&self, name: &str) -> PathBuf {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = self.file.with_file_name(format!("{name}-signed.pem"));
        std::fs::write(&file, certificate.pem() + &key.serialize_pem()).unwrap();
        file
    }

    fn root_store(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.file).unwrap()).unwrap();
        roots
    }
}

/// A server that knows `mn` and `version`, with a certificate for `localhost`; it runs until the test ends.
fn serve(authority: &Authority, verifies_clients: bool) -> SocketAddr {
    let file = authority.sign("localhost");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if verifies_clients {
        let roots = Arc::new(authority.root_store());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let chain = vec![CertificateDer::from_pem_file(&file).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&file).unwrap();
    let config = Arc::new(builder.with_single_cert(chain, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let session = ServerConnection::new(config.clone()).unwrap();
            let stream = StreamOwned::new(session, socket.unwrap());
            thread::spawn(move || serve_requests(stream));
        }
    });
    address
}

/// Replies until the client leaves or is refused.
fn serve_requests(stream: StreamOwned<ServerConnection, TcpStream>) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|line_bytes| line_bytes > 0) {
        let reply = match line.trim_end() {
            "mn" => "MN\r\n",
            "version" => "VERSION 1.6.45\r\n",
            _ => "ERROR\r\n",
        };
        if stream.get_mut().write_all(reply.as_bytes()).is_err() {
            return;
        }
        line.clear();
    }
}

fn options_trusting(files: &TlsFiles) -> Options {
    Options { timeout: TIMEOUT, tls: Some(Tls::new(files).unwrap()), ..Options::default() }
}

fn files_trusting(authority: &Authority) -> TlsFiles {
    TlsFiles { ca_file: Some(authority.file.clone()), ..TlsFiles::default() }
}

/// What each kind of client gets from the server under this name.
fn request_versions(host: &str, port: u16, options: &Options) -> Vec<Result<(), Error>> {
    let addresses = Address::parse_list(&format!("{host}:{port}")).unwrap();
    let client = Client::new(&addresses, Placement::default(), options.clone()).unwrap();
    let budget = Budget::new(options.timeout);
    #[cfg_attr(not(feature = "tokio"), expect(unused_mut, reason = "extended by the other kind"))]
    let mut replies = client.request_all(Request::Version, &budget).unwrap();
    #[cfg(feature = "tokio")]
    replies.extend(request_versions_asynchronously(&addresses, options));
    let outcome_of = |(_, reply): (String, Result<_, Error>)| reply.map(drop);
    replies.into_iter().map(outcome_of).collect()
}

#[cfg(feature = "tokio")]
fn request_versions_asynchronously(
    addresses: &[Address],
    options: &Options,
) -> Vec<(String, Result<glasscache_client::pipeline::Reply, Error>)> {
    let placement = Placement::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = glasscache_client::AsyncClient::new(addresses, placement, options.clone());
    let client = client.unwrap();
    let budget = Budget::new(options.timeout);
    let replies_future = client.request_all(Request::Version, &budget);
    runtime.block_on(replies_future).unwrap()
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
fn a_server_of_another_authority_or_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let other_authority = Authority::new(folder.path(), "other");
    let port = serve(&authority, false).port();
    let reason = "TLS failed: invalid peer certificate: UnknownIssuer";
    expect_failure("localhost", port, &options_trusting(&files_trusting(&other_authority)), reason);
    let trusting_files = files_trusting(&authority);
    let reason = "TLS failed: invalid peer certificate";
    expect_failure("127.0.0.1", port, &options_trusting(&trusting_files), reason);
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
        assert!(outcome.is_err());
    }
    let files_with_certificate =
        TlsFiles { certificate_file: Some(authority.sign("client")), ..files_without_certificate };
    for outcome in request_versions("localhost", port, &options_trusting(&files_with_certificate)) {
        outcome.unwrap();
    }
}

#[test]
fn a_handshake_counts_towards_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    // It accepts connections and never replies.
    let silent_listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent_listener.local_addr().unwrap().port();
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
    let plain_listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = plain_listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in plain_listener.incoming() {
            let _ = socket.unwrap().write_all(b"ERROR\r\n");
        }
    });
    let options = options_trusting(&files_trusting(&authority));
    expect_failure("localhost", port, &options, "TLS failed: ");
    let unix_address = Address::parse_list("/run/cache.sock").unwrap();
    let client_result = Client::new(&unix_address, Placement::default(), options).map(drop);
    let message = client_result.unwrap_err().to_string();
    assert!(message.ends_with("a unix socket has no TLS"), "{message}");
}
