//! TLS to the servers: the authorities that a client trusts, its certificate, and the server name it expects.
//!
//! A server's certificate is verified against its authorities and against the name under which the client was configured
//! to connect to it; no setting turns this off.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
#[cfg(feature = "aws-lc")]
use rustls::crypto::aws_lc_rs as provider;
#[cfg(not(feature = "aws-lc"))]
use rustls::crypto::ring as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};

use crate::address::Endpoint;
use crate::error::Error;

/// Where the certificates of a client are; by default it trusts the authorities of the system and presents nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file with the authorities that may have signed the servers' certificates; `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// PEM file with the certificate that the client presents, for servers that require one.
    pub certificate_file: Option<PathBuf>,
    /// PEM file with its private key; `None` if it is in the same file.
    pub key_file: Option<PathBuf>,
    /// The name in the servers' certificates; `None`: each server's own host.
    pub server_name: Option<String>,
}

/// TLS of one client. The files are read when it is made.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file that cannot be used, or a name that no certificate can have.
    pub fn new(files: &TlsFiles) -> Result<Self, Error> {
        build_tls(files).map_err(|reason| Error::BadSetting(format!("tls: {reason}")))
    }

    /// The client's end of a new connection.
    ///
    /// # Errors
    /// A unix socket, or a host that no certificate can name.
    pub fn session(&self, endpoint: &Endpoint) -> Result<ClientConnection, String> {
        let name = match (&self.server_name, endpoint) {
            (_, Endpoint::Unix(_)) => return Err(NO_UNIX.to_owned()),
            (Some(name), _) => name.clone(),
            (None, Endpoint::Tcp(host, _)) => parse_server_name(host.as_str())?,
        };
        ClientConnection::new(Arc::clone(&self.config), name).map_err(|error| error.to_string())
    }
}

/// Why a unix socket is refused where TLS was configured.
pub(crate) const NO_UNIX: &str = "a unix socket has no TLS";

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tls")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

fn build_tls(files: &TlsFiles) -> Result<Tls, String> {
    let provider = Arc::new(provider::default_provider());
    let verifier = CertificateVerifier::new(files.ca_file.as_deref(), Arc::clone(&provider))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous() // as every verifier of one's own is called: it refuses all that rustls's does but one kind
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match (&files.certificate_file, &files.key_file) {
        (None, None) => builder.with_no_client_auth(),
        (None, Some(_)) => return Err("a key without its certificate".to_owned()),
        (Some(certificate_file), key_file) => {
            let key_file = key_file.as_ref().unwrap_or(certificate_file);
            builder
                .with_client_auth_cert(
                    read_certificates(certificate_file)?,
                    read_private_key(key_file)?,
                )
                .map_err(|error| {
                    let (certificate_file, key_file) =
                        (certificate_file.display(), key_file.display());
                    format!("{certificate_file} with the key {key_file} cannot be used: {error}")
                })?
        }
    };
    let server_name = files.server_name.as_deref().map(parse_server_name).transpose()?;
    Ok(Tls { config: Arc::new(config), server_name })
}

fn parse_server_name(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| format!("{host:?} cannot be the name in a certificate; set server_name"))
}

/// Verifies as rustls does, and accepts a server that presents one of the trusted certificates itself, also if that may sign
/// others: `openssl req -x509` makes such a certificate, and OpenSSL, by which the asyncio client verifies, accepts it.
#[derive(Debug)]
struct CertificateVerifier {
    verifier: Arc<WebPkiServerVerifier>,
    /// Those of the file.
    trusted: Vec<CertificateDer<'static>>,
}

impl CertificateVerifier {
    fn new(ca_file: Option<&Path>, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let trusted = ca_file.map(read_certificates).transpose()?.unwrap_or_default();
        let roots = match ca_file {
            Some(path) => root_certificates(path, &trusted)?,
            None => system_certificates()?,
        };
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = builder.build().map_err(|error| error.to_string())?;
        Ok(Self { verifier, trusted })
    }

    /// Whether the only objection to a certificate is that it may sign others. webpki objects to its dates before that.
    fn is_trusted_itself(&self, certificate: &CertificateDer<'_>, error: &rustls::Error) -> bool {
        let rustls::Error::InvalidCertificate(CertificateError::Other(reason)) = error else {
            return false;
        };
        format!("{reason:?}").contains("CaUsedAsEndEntity")
            && self.trusted.iter().any(|trusted| trusted == certificate)
    }
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verifier = &self.verifier;
        match verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        ) {
            Err(error) if self.is_trusted_itself(end_entity, &error) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

fn root_certificates(
    path: &Path,
    certificates: &[CertificateDer<'static>],
) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone()).map_err(|error| {
            format!("{} has a certificate that is not an authority's: {error}", path.display())
        })?;
    }
    Ok(roots)
}

fn system_certificates() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    // Some systems keep a certificate that cannot be read among hundreds that can.
    let system_certificates = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(system_certificates.certs);
    if added == 0 {
        return Err("the system has no certificates of authorities; set ca_file".to_owned());
    }
    Ok(roots)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let file_error = |reason: String| format!("{} {reason}", path.display());
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| file_error(format!("cannot be read: {error}")))?;
    if certificates.is_empty() {
        return Err(file_error("has no certificate in PEM form".to_owned()));
    }
    Ok(certificates)
}

fn read_private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|_| {
        let path = path.display();
        format!("{path} has no private key in PEM form without a passphrase")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_used_are_bad_settings_that_name_them() {
        let error_text = |change: fn(&mut TlsFiles)| {
            let mut files =
                TlsFiles { ca_file: Some("/nonexistent/ca.pem".into()), ..TlsFiles::default() };
            change(&mut files);
            Tls::new(&files).map(|_| ()).unwrap_err().to_string()
        };
        let message = error_text(|_| {});
        assert!(message.starts_with("tls: /nonexistent/ca.pem cannot be read"), "{message}");
        // A file without a certificate.
        let message = error_text(|files| files.ca_file = Some("/dev/null".into()));
        assert_eq!(message, "tls: /dev/null has no certificate in PEM form");
    }
}
