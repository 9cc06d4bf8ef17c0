//! Keys of sessions: which keys they are, and how logs name them.
//!
//! An application reads a session, changes it and writes it back, in any of its processes. With a value that one process
//! kept, a change of another one would be lost, and a visitor who has logged out would still be logged in. So a strategy
//! neither keeps nor prefetches these keys. What follows the form of a key is the visitor's cookie, with which anybody is
//! logged in as that visitor: logs have its hash instead.

use std::fmt::Write as _;
use std::ops::Range;

use sha2::{Digest, Sha256};

use crate::key_prefixes::longest_prefix;

/// What every form contains, in any case.
const COMMON_TEXT: &[u8] = b"sess";

/// The known forms: the text before and after the common one. An application's prefix may precede them, such as Django's
/// `KEY_PREFIX` and version.
const FORMS: [(&str, &str); 10] = [
    ("", "ions.cached_db"), // Django: `django.contrib.sessions.cached_db`, and stores that extend it
    ("", "ions.cache"),
    ("", "ions.backends.cached_db"),
    ("", "ions.backends.cache"),
    ("", "ion:"), // Flask-Session, Spring Session
    ("", "ions:"),
    ("", ":"),            // express-session with connect-memcached
    ("star", "ions."),    // starsessions for Starlette
    ("aiohttp_", "ion_"), // aiohttp_session
    ("memc.", ".key."),   // PHP
];

/// Between a form and the hash of its key.
const HASH_MARK: char = '#';

/// The bytes of a hash; a log has them in hexadecimal digits.
const HASH_BYTES: usize = 16;

/// Whether a key is that of a session.
pub fn is_session_key(key: &[u8]) -> bool {
    find_form(key).is_some()
}

/// How a log names the key of a session: what precedes its identifier, and a hash; `None` of any other key.
///
/// A name that was returned before is returned unchanged. With a salt, nothing that precedes the form is left.
pub fn hashed_session_key(key: &str, salt: Option<&[u8]>) -> Option<String> {
    let form = find_form(key.as_bytes())?;
    let name_start = salt.map_or(0, |_| form.start);
    hash_identifier(key, name_start..form.end, salt)
}

/// How a log names a key whose prefix says that the rest is a credential: the prefix, and a hash.
pub fn hashed_credential_key(
    key: &str,
    prefixes: &[String],
    salt: Option<&[u8]>,
) -> Option<String> {
    let prefix_length = longest_prefix(prefixes, key.as_bytes())?;
    hash_identifier(key, 0..prefix_length, salt)
}

/// The name that stands for all hashed keys with a prefix: [`prefix_of_hashed_key`] finds the prefix in it.
pub fn name_of_hidden_keys(prefix: &str) -> String {
    format!("{prefix}{HASH_MARK}{}", "0".repeat(2 * HASH_BYTES))
}

/// What precedes the hash in the name of a key that [`hashed_credential_key`] returned.
pub fn prefix_of_hashed_key(key: &str) -> Option<&str> {
    let prefix = key.get(..key.rfind(HASH_MARK)?)?;
    is_hash(key.get(prefix.len()..)?).then_some(prefix)
}

/// The part of a key in this range, and a hash of the key.
fn hash_identifier(key: &str, name: Range<usize>, salt: Option<&[u8]>) -> Option<String> {
    if is_hash(key.get(name.end..)?) {
        return Some(key.to_owned());
    }
    let hash = Sha256::new().chain_update(salt.unwrap_or_default()).chain_update(key).finalize();
    let digits = hash.iter().take(HASH_BYTES).fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    });
    Some(format!("{}{HASH_MARK}{digits}", key.get(name)?))
}

fn is_hash(identifier: &str) -> bool {
    identifier.strip_prefix(HASH_MARK).is_some_and(|digits| {
        digits.len() == 2 * HASH_BYTES && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Where the first form of a key is.
fn find_form(key: &[u8]) -> Option<Range<usize>> {
    let windows = key.windows(COMMON_TEXT.len()).enumerate();
    windows
        .filter(|(_, window)| window.eq_ignore_ascii_case(COMMON_TEXT))
        .find_map(|(start, _)| match_form(key, start))
}

/// Where the form is whose common text begins at `start`.
fn match_form(key: &[u8], start: usize) -> Option<Range<usize>> {
    let (before, after) = key.split_at_checked(start)?;
    let after = after.get(COMMON_TEXT.len()..)?;
    FORMS.iter().find_map(|(text_before, text_after)| {
        let form_start = start.checked_sub(text_before.len())?;
        let has_form = before.get(form_start..)?.eq_ignore_ascii_case(text_before.as_bytes())
            && after.get(..text_after.len())?.eq_ignore_ascii_case(text_after.as_bytes());
        has_form.then_some(form_start..start + COMMON_TEXT.len() + text_after.len())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IDENTIFIER: &str = "t4wb0q9x2k7m1c8v5z3n6r0s2d4f6g8h";

    fn session_keys() -> Vec<String> {
        let prefixes = [
            ":1:django.contrib.sessions.cache",
            "shop:12:django.contrib.sessions.cached_db",
            "shop:1:qsessions.backends.cached_db",
            "session:",
            "flask_cache_session:",
            "app/spring:session:sessions:",
            "sess:",
            "starsessions.",
            "AIOHTTP_SESSION_",
            "memc.sess.key.",
        ];
        prefixes.map(|prefix| format!("{prefix}{IDENTIFIER}")).into()
    }

    #[test]
    fn keys_of_sessions_are_known_and_others_are_not() {
        for key in session_keys() {
            assert!(is_session_key(key.as_bytes()), "{key}");
        }
        for key in ["", "ses", "sess", "session", "user:17", "possession", "sessions", "process:1"]
        {
            assert!(!is_session_key(key.as_bytes()), "{key}");
        }
    }

    #[test]
    fn a_log_has_the_hash_of_a_session_and_the_form_stays() {
        for key in session_keys() {
            for salt in [None, Some(&b"salt"[..])] {
                let hashed = hashed_session_key(&key, salt).unwrap();
                assert!(!hashed.contains(IDENTIFIER), "{hashed}");
                assert!(is_session_key(hashed.as_bytes()), "{hashed}");
                assert_eq!(hashed_session_key(&hashed, None), Some(hashed.clone()));
                assert_eq!(hashed_session_key(&key, salt), Some(hashed));
            }
        }
        let salted = hashed_session_key("shop:1:django.contrib.sessions.cachex", Some(b"salt"));
        assert!(salted.unwrap().starts_with("sessions.cache#"));
        assert_eq!(hashed_session_key("user:17", None), None);
    }

    proptest! {
        /// Any prefix and any identifier, in any case: only the hash is left of the identifier.
        #[test]
        fn no_identifier_is_left(prefix in "[a-zA-Z0-9:_.é-]{0,20}", identifier in "[a-zA-Z0-9_=.~-]{16,60}", form in 0..10_usize) {
            let key = format!("{prefix}{}{identifier}", session_keys()[form].replace(IDENTIFIER, ""));
            let hashed = hashed_session_key(&key, None).unwrap();
            prop_assert!(is_session_key(key.as_bytes()) && is_session_key(hashed.as_bytes()));
            prop_assert!(!hashed.contains(&identifier));
        }

        #[test]
        fn any_bytes_are_a_key(key in proptest::collection::vec(any::<u8>(), 0..300)) {
            is_session_key(&key);
            let text = String::from_utf8_lossy(&key);
            prop_assert_eq!(hashed_session_key(&text, None).is_some(), is_session_key(text.as_bytes()));
        }
    }
}
