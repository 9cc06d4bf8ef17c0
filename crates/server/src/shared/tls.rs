//! The certificate of a server, and how its listeners encrypt: read at the start and again on request.
//!
//! Each listener's demand for client certificates has a configuration of its own, with keys of its own for session
//! tickets: a ticket of a listener that requests no certificate opens no session on one that requires it. Reading the
//! files again makes new keys, so that a session of an authority that was removed cannot be resumed. A file that
//! cannot be used leaves everything as it was. Open connections keep the certificate that they began with.

use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use glasscache_store::Seconds;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
#[cfg(feature = "aws-lc")]
use rustls::crypto::aws_lc_rs as provider;
#[cfg(not(feature = "aws-lc"))]
use rustls::crypto::ring as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme, SupportedProtocolVersion, version,
};
use x509_parser::parse_x509_certificate;

use crate::shared::clock::Clock;
use crate::shared::config::{ClientCertificate, Listen, TlsSettings};
use crate::shared::error::Error;
use crate::shared::file_version::{self, FileVersion};
use crate::shared::lock::lock;

/// Session tickets sent after a full handshake in TLS 1.3: a client that opens several connections at once can resume
/// with each of them.
const TICKETS_SENT: usize = 2;
const DAY_S: u64 = 86_400;
/// So long before its end a certificate is named: most are renewed at this time.
const EXPIRES_SOON_S: u64 = 30 * DAY_S;

/// TLS of one server.
pub(crate) struct Tls {
    pub(crate) settings: TlsSettings,
    /// The demands of the listeners for client certificates, each once.
    client_certificate_demands: Vec<ClientCertificate>,
    /// A configuration for each of them.
    configs: Mutex<Vec<Arc<ServerConfig>>>,
    /// The server's second in which the files were last read.
    last_reload_s: AtomicU32,
    /// The Unix time at which the certificate expires; `i64::MAX` where it does not say so.
    certificate_end_s: AtomicI64,
    last_read: Mutex<LastRead>,
    pub(crate) counters: TlsCounters,
}

/// The files as they were last read, whether or not they could be used.
#[derive(Clone)]
struct LastRead {
    file_versions: [Option<FileVersion>; 3],
    result: Result<String, String>,
}

/// What `stats` reports about TLS.
#[derive(Default)]
pub(crate) struct TlsCounters {
    pub(crate) handshake_errors: AtomicU64,
    /// Errors after the handshake.
    pub(crate) protocol_errors: AtomicU64,
    /// Full handshakes whose session can be resumed.
    pub(crate) new_sessions: AtomicU64,
}

impl Tls {
    /// Reads the files if a listener needs them: a server must not start without the configured protection.
    pub(crate) fn new(
        settings: Option<&TlsSettings>,
        listeners: &[Listen],
    ) -> Result<Option<Tls>, Error> {
        let mut client_certificate_demands: Vec<ClientCertificate> = listeners
            .iter()
            .filter_map(|listen| match listen.transport() {
                Listen::Tls { client_certificate, .. } => Some(*client_certificate),
                _ => None,
            })
            .collect();
        client_certificate_demands.sort_unstable();
        client_certificate_demands.dedup();
        let Some(settings) = settings else {
            if client_certificate_demands.is_empty() {
                return Ok(None);
            }
            let sentence = "a listener with TLS needs a certificate";
            return Err(Error::Setting(sentence.to_owned()));
        };
        let file_versions = find_file_versions(settings);
        let (configs, certificate_end_s) =
            read_configs(settings, &client_certificate_demands).map_err(Error::Setting)?;
        let result = Ok("the files have not changed since the start".to_owned());
        Ok(Some(Tls {
            settings: settings.clone(),
            client_certificate_demands,
            configs: Mutex::new(configs),
            last_reload_s: AtomicU32::new(0),
            certificate_end_s: AtomicI64::new(certificate_end_s),
            last_read: Mutex::new(LastRead { file_versions, result }),
            counters: TlsCounters::default(),
        }))
    }

    /// Makes the server's end of a new TLS connection.
    pub(crate) fn accept(&self, demand: ClientCertificate) -> Result<ServerConnection, String> {
        let demand_index =
            self.client_certificate_demands.iter().position(|other| *other == demand);
        let config = demand_index.and_then(|index| lock(&self.configs).get(index).cloned());
        let config = config.ok_or("the listener has no TLS configuration")?;
        let mut connection = ServerConnection::new(config).map_err(|error| error.to_string())?;
        connection.set_buffer_limit(Some(self.settings.write_buffer_bytes));
        Ok(connection)
    }

    /// Reads the files again at second `now_s`; the result is a sentence.
    pub(crate) fn reload(&self, now_s: u32) -> Result<String, String> {
        let file_versions = find_file_versions(&self.settings);
        let result = self.read_again(now_s);
        *lock(&self.last_read) = LastRead { file_versions, result: result.clone() };
        result
    }

    /// Reads the files again if one has changed since they were last read; also returns whether it did. Any client may
    /// request this, as often as it wants: without a change it makes no new keys, which would end all sessions.
    pub(crate) fn reload_if_changed(&self, now_s: u32) -> (Result<String, String>, bool) {
        let last_read = lock(&self.last_read).clone();
        if last_read.file_versions == find_file_versions(&self.settings) {
            return (last_read.result, false);
        }
        (self.reload(now_s), true)
    }

    fn read_again(&self, now_s: u32) -> Result<String, String> {
        let (configs, certificate_end_s) =
            read_configs(&self.settings, &self.client_certificate_demands)
                .map_err(|reason| format!("{reason}; the certificate in use stays"))?;
        *lock(&self.configs) = configs;
        self.certificate_end_s.store(certificate_end_s, Ordering::Relaxed);
        self.last_reload_s.store(now_s, Ordering::Relaxed);
        let chain_path = self.settings.chain_file.display();
        let result = format!("ssl_chain_cert: {chain_path} was read again, new connections use it");
        Ok(self.expiry_warning().map_or(result.clone(), |warning| format!("{result}; {warning}")))
    }

    /// The Unix time at which the certificate in use expires.
    pub(crate) fn certificate_end_s(&self) -> u64 {
        self.certificate_end_s.load(Ordering::Relaxed).max(0).cast_unsigned()
    }

    /// A sentence if the certificate in use has expired or expires soon.
    pub(crate) fn expiry_warning(&self) -> Option<String> {
        let end_s = self.certificate_end_s();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let path = self.settings.chain_file.display();
        match end_s.checked_sub(now_s) {
            Some(left_s) if left_s > EXPIRES_SOON_S => None,
            Some(left_s) => Some(format!(
                "ssl_chain_cert: {path} expires in {} days: replace it, then kill -HUP",
                left_s / DAY_S
            )),
            None => Some(format!(
                "ssl_chain_cert: {path} expired {} days ago: replace it, then kill -HUP",
                (now_s - end_s) / DAY_S
            )),
        }
    }

    /// Seconds since the files were last read, at second `now`.
    pub(crate) fn seconds_since_reload(&self, clock: &Clock, now: Seconds) -> u32 {
        let since_reload_s = now.0.saturating_sub(self.last_reload_s.load(Ordering::Relaxed));
        since_reload_s.min(clock.uptime_s(now))
    }
}

fn find_file_versions(settings: &TlsSettings) -> [Option<FileVersion>; 3] {
    let paths =
        [Some(&settings.chain_file), Some(&settings.key_file), settings.client_ca_file.as_ref()];
    paths.map(|path| path.and_then(|path| file_version::file_version(path)))
}

/// The algorithms of a connection (docs/decisions/access.md, 0098).
fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(provider::default_provider())
}

/// A configuration for each demand and the Unix time at which the certificate expires, or a sentence about the file
/// that cannot be used.
fn read_configs(
    settings: &TlsSettings,
    client_certificate_demands: &[ClientCertificate],
) -> Result<(Vec<Arc<ServerConfig>>, i64), String> {
    let chain = read_certificates("ssl_chain_cert", &settings.chain_file)?;
    let parsed = chain.first().and_then(|first| parse_x509_certificate(first).ok());
    let end_s = parsed.map_or(i64::MAX, |(_, parsed)| parsed.validity().not_after.timestamp());
    let key = read_private_key(&settings.key_file)?;
    let authorities = match &settings.client_ca_file {
        Some(path) => Some(Arc::new(read_authorities(path)?)),
        None => None,
    };
    client_certificate_demands
        .iter()
        .map(|demand| {
            let verifier = build_client_verifier(*demand, authorities.as_ref())?;
            build_config(settings, verifier, chain.clone(), key.clone_key())
        })
        .collect::<Result<Vec<_>, _>>()
        .map(|configs| (configs, end_s))
}

fn read_certificates(setting: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let describe_error = |reason: &str| format!("{setting}: {} {reason}", path.display());
    let text = file_version::read_bounded(path).map_err(|reason| describe_error(&reason))?;
    let certificates = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| describe_error(&format!("is not a PEM file: {error}")))?;
    if certificates.is_empty() {
        return Err(describe_error("has no certificate in PEM form"));
    }
    Ok(certificates)
}

fn read_private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let describe_error = |reason: &str| format!("ssl_key: {} {reason}", path.display());
    let text = file_version::read_bounded(path).map_err(|reason| describe_error(&reason))?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        describe_error(
            "has no private key in PEM form without a passphrase; openssl pkey converts it",
        )
    })
}

fn read_authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates("ssl_ca_cert", path)? {
        roots.add(certificate).map_err(|error| {
            let path = path.display();
            format!("ssl_ca_cert: {path} has a certificate that is not an authority's: {error}")
        })?;
    }
    Ok(roots)
}

/// The verifier of client certificates; `None` where they are not requested.
fn build_client_verifier(
    demand: ClientCertificate,
    authorities: Option<&Arc<RootCertStore>>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    if demand == ClientCertificate::NotRequested {
        return Ok(None);
    }
    let Some(authorities) = authorities else {
        let is_required = demand == ClientCertificate::Required;
        return Ok(Some(Arc::new(WithoutAuthorities { is_required })));
    };
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(authorities), crypto_provider());
    let builder = match demand {
        ClientCertificate::Required => builder,
        _ => builder.allow_unauthenticated(),
    };
    let verifier = builder
        .build()
        .map_err(|error| format!("ssl_ca_cert: client certificates cannot be verified: {error}"))?;
    Ok(Some(verifier))
}

/// Accepts no certificate: there is no authority that could have signed it.
#[derive(Debug)]
struct WithoutAuthorities {
    is_required: bool,
}

impl ClientCertVerifier for WithoutAuthorities {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Err(CertificateError::UnknownIssuer.into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(CertificateError::UnknownIssuer.into())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(CertificateError::UnknownIssuer.into())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        crypto_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn build_config(
    settings: &TlsSettings,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, String> {
    let describe_error = |error: rustls::Error| {
        let (chain_path, key_path) = (settings.chain_file.display(), settings.key_file.display());
        format!("ssl_chain_cert: {chain_path} with the key {key_path} cannot be used: {error}")
    };
    let builder = ServerConfig::builder_with_provider(crypto_provider())
        .with_protocol_versions(protocol_versions(settings.only_tls13))
        .map_err(describe_error)?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(describe_error)?;
    // Sessions are kept by the clients, in tickets, so that they cost no memory here.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    if settings.session_tickets {
        config.ticketer = provider::Ticketer::new().map_err(describe_error)?;
        config.send_tls13_tickets = TICKETS_SENT;
    }
    Ok(Arc::new(config))
}

fn protocol_versions(only_tls13: bool) -> &'static [&'static SupportedProtocolVersion] {
    static ONLY_13: [&SupportedProtocolVersion; 1] = [&version::TLS13];
    static BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
    if only_tls13 { &ONLY_13 } else { &BOTH }
}
