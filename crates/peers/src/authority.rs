//! Certificates made for a test: an authority and what it signs, as files in a folder.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// An authority, whose certificate is in a file.
pub struct Authority {
    /// The file, `NAME.pem`.
    pub certificate_file: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Identity {
    /// The file of the certificate, `NAME.crt`.
    pub chain_file: PathBuf,
    /// The file of the key, `NAME.key`.
    pub key_file: PathBuf,
}

impl Authority {
    /// A new authority.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn new(folder: &Path, name: &str) -> Authority {
        let key = KeyPair::generate().expect("keys can be made");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate_file = folder.join(format!("{name}.pem"));
        let certificate = params.self_signed(&key).expect("it is valid");
        fs::write(&certificate_file, certificate.pem()).expect("the folder is writable");
        Authority { certificate_file, issuer: Issuer::new(params, key) }
    }

    /// A new certificate for `localhost`, valid from 2020 until the end of `last_year`.
    ///
    /// # Panics
    /// If a file cannot be written.
    pub fn sign(&self, name: &str, last_year: i32) -> Identity {
        let key = KeyPair::generate().expect("keys can be made");
        let names = vec!["localhost".to_owned()];
        let mut params = CertificateParams::new(names).expect("the name is valid");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 12, 31);
        let certificate = params.signed_by(&key, &self.issuer).expect("it is valid");
        let identity = Identity {
            chain_file: self.certificate_file.with_file_name(format!("{name}.crt")),
            key_file: self.certificate_file.with_file_name(format!("{name}.key")),
        };
        fs::write(&identity.chain_file, certificate.pem()).expect("the folder is writable");
        fs::write(&identity.key_file, key.serialize_pem()).expect("the folder is writable");
        identity
    }
}
