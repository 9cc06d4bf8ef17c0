//! The token that requests have to present, if there is a file with one.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::shared::error::Error;
use crate::shared::file_version::read_bounded;
use crate::shared::lock::lock;

/// The token in a file; read again by SIGHUP.
#[derive(Debug)]
pub(crate) struct HttpToken {
    path: PathBuf,
    /// Not the token itself: digests have one length, so that comparing them takes the same time for all.
    digest: Mutex<[u8; 32]>,
}

impl HttpToken {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or its first line is not a token.
    pub(crate) fn read(path: &Path) -> Result<HttpToken, Error> {
        let digest = read_digest(path).map_err(|reason| {
            Error::Setting(format!("http-token-file: {}: {reason}", path.display()))
        })?;
        Ok(HttpToken { path: path.to_owned(), digest: Mutex::new(digest) })
    }

    /// Reads the file again; one that cannot be used changes nothing. Returns a sentence about the outcome.
    pub(crate) fn reload(&self) -> String {
        let path = self.path.display();
        match read_digest(&self.path) {
            Ok(digest) => {
                *lock(&self.digest) = digest;
                format!("the HTTP token is read again from {path}")
            }
            Err(reason) => format!("the HTTP token stays: {path}: {reason}"),
        }
    }

    /// Whether a request presents the token.
    pub(crate) fn is_presented(&self, presented: Option<&str>) -> bool {
        let digest = *lock(&self.digest);
        presented.is_some_and(|token| digest_of(token.as_bytes()).ct_eq(&digest).into())
    }
}

fn digest_of(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// The digest of the first line of a file, or why that is not a token.
fn read_digest(path: &Path) -> Result<[u8; 32], String> {
    let bytes = read_bounded(path)?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let token = line.trim_ascii();
    if token.is_empty() {
        return Err("the first line is empty; write a token there".to_owned());
    }
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err("the token must be printable ASCII without spaces".to_owned());
    }
    Ok(digest_of(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_of_the_file_is_accepted_and_a_reload_replaces_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "first-token \n# a comment\n").unwrap();
        let token = HttpToken::read(&path).unwrap();
        assert!(token.is_presented(Some("first-token")));
        for wrong in [None, Some(""), Some("first"), Some("first-token2")] {
            assert!(!token.is_presented(wrong), "{wrong:?}");
        }
        std::fs::write(&path, "second").unwrap();
        assert!(token.reload().contains("read again"));
        assert!(token.is_presented(Some("second")) && !token.is_presented(Some("first-token")));
        std::fs::write(&path, "\n").unwrap();
        assert!(token.reload().contains("empty"));
        assert!(token.is_presented(Some("second")));
        std::fs::remove_file(&path).unwrap();
        assert!(HttpToken::read(&path).unwrap_err().to_string().contains("cannot be read"));
    }

    #[test]
    fn a_token_is_one_printable_word() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for text in ["", "\nsecond line", "two words", "t\u{f6}ken"] {
            std::fs::write(&path, text).unwrap();
            assert!(HttpToken::read(&path).is_err(), "{text:?}");
        }
    }
}
