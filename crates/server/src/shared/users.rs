//! The users that may log in: lines of `user:password` in a file, passwords plain or hashed.
//!
//! An attempt costs the same whether its user exists or not. Users and plain passwords are kept and compared as
//! salted SHA-256 digests, in constant time over all entries; and if any password is hashed, every attempt computes
//! exactly one such hash: that of its user, or one chosen by the digest of the user that does not exist.

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::shared::config::UsersFileFormat;
use crate::shared::password_hash::PasswordHash;

/// A salted SHA-256.
type Digest = [u8; 32];

/// Maximum length of user and password in bytes, together with what separates them: more cannot be sent.
const ENTRY_BYTES_MAX: usize = glasscache_protocol::limits::LOGIN_BYTES_MAX;

/// The users of one file.
pub(crate) struct Users {
    salt: [u8; 16],
    /// Each user with a password.
    plain_passwords: Vec<(Digest, Digest)>,
    /// At most one entry for each user.
    hashed_passwords: Vec<(Digest, PasswordHash)>,
}

impl Users {
    /// Parses the lines of a file; the error is the end of a sentence and quotes nothing of the file.
    pub(crate) fn parse(text: &[u8], format: UsersFileFormat) -> Result<Users, String> {
        let mut users = Users {
            salt: random_salt()?,
            plain_passwords: Vec::new(),
            hashed_passwords: Vec::new(),
        };
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let line_number = index + 1;
            users.add_line(line, format).map_err(|error_text| {
                format!("is not a file of users: line {line_number} {error_text}")
            })?;
        }
        if users.password_count() == 0 {
            return Err("has no users; write a line user:password for each".to_owned());
        }
        Ok(users)
    }

    fn add_line(&mut self, line: &[u8], format: UsersFileFormat) -> Result<(), String> {
        let colon = memchr::memchr(b':', line).ok_or("has no colon, must be user:password")?;
        let (user, password) = line.split_at(colon);
        let password = password.get(1..).unwrap_or_default();
        if user.is_empty() || password.is_empty() {
            return Err("has an empty user or password".to_owned());
        }
        if line.contains(&0) || line.len() > ENTRY_BYTES_MAX {
            return Err(format!("has a NUL or is longer than {ENTRY_BYTES_MAX} bytes"));
        }
        // In memcached's SASL database further fields may follow the password, which may have colons itself.
        let password_ends = memchr::memchr_iter(b':', password)
            .filter(|_| format == UsersFileFormat::SaslDatabase)
            .chain([password.len()]);
        let user_digest = self.digest(user);
        for end in password_ends {
            let password = password.get(..end).unwrap_or_default();
            let Some(hash) = PasswordHash::parse(password)? else {
                let password_digest = self.digest(password);
                self.plain_passwords.push((user_digest, password_digest));
                continue;
            };
            if self.hashed_passwords.iter().any(|(entry_user, _)| *entry_user == user_digest) {
                return Err("has a second hashed password of one user".to_owned());
            }
            self.hashed_passwords.push((user_digest, hash));
            break;
        }
        Ok(())
    }

    /// The number of passwords; a line of a SASL database has several.
    pub(crate) fn password_count(&self) -> usize {
        self.plain_passwords.len() + self.hashed_passwords.len()
    }

    /// Whether the user has this password.
    pub(crate) fn verify(&self, user: &[u8], password: &[u8]) -> bool {
        let user_digest = self.digest(user);
        let password_digest = self.digest(password);
        let mut is_accepted = Choice::from(0);
        for (entry_user, entry_password) in &self.plain_passwords {
            is_accepted |= entry_user.ct_eq(&user_digest) & entry_password.ct_eq(&password_digest);
        }
        let [a, b, c, d, ..] = user_digest;
        let mut hash_index =
            u32::from_be_bytes([a, b, c, d]) % (self.hashed_passwords.len().max(1) as u32);
        let mut is_known = Choice::from(0);
        for (position, (entry_user, _)) in (0..).zip(&self.hashed_passwords) {
            let is_user = entry_user.ct_eq(&user_digest);
            hash_index.conditional_assign(&position, is_user);
            is_known |= is_user;
        }
        if let Some((_, hash)) = self.hashed_passwords.get(hash_index as usize) {
            is_accepted |= is_known & Choice::from(u8::from(hash.verify(password)));
        }
        // HMAC, and so scrypt, takes a password and the same with a NUL behind it for one; no user's has a NUL.
        bool::from(is_accepted) && memchr::memchr(0, password).is_none()
    }

    fn digest(&self, text: &[u8]) -> Digest {
        let mut hasher = Sha256::new();
        hasher.update(self.salt);
        hasher.update(text);
        hasher.finalize().into()
    }
}

fn random_salt() -> Result<[u8; 16], String> {
    let mut salt = [0; 16];
    let fill_result = rustix::rand::getrandom(&mut salt, rustix::rand::GetRandomFlags::empty());
    match fill_result {
        Ok(16) => Ok(salt),
        _ => Err("cannot be protected in memory: the kernel has no random bytes".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `openssl passwd -5 -salt saltsalt` of "secret".
    const SHA_256: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";

    fn parse_users(text: &str) -> Result<Users, String> {
        Users::parse(text.as_bytes(), UsersFileFormat::AuthFile)
    }

    fn expect_refusal(text: &str) -> String {
        parse_users(text).map(|users| users.password_count()).unwrap_err()
    }

    #[test]
    fn only_the_whole_password_of_the_user_is_accepted() {
        let users = parse_users("foo:bar\nbaaaz:quux\r\nlast:no newline").unwrap();
        assert_eq!(users.password_count(), 3);
        assert!(users.verify(b"foo", b"bar") && users.verify(b"baaaz", b"quux"));
        assert!(users.verify(b"last", b"no newline"));
        for (user, password) in [
            ("foo", "ba"),
            ("foo", "barr"),
            ("foo", ""),
            ("foo", "quux"),
            ("fo", "bar"),
            ("fooo", "bar"),
            ("", "bar"),
            ("", ""),
            ("foo", "bar\0"),
            ("foo", "BAR"),
        ] {
            let is_accepted = users.verify(user.as_bytes(), password.as_bytes());
            assert!(!is_accepted, "{user:?} {password:?}");
        }
    }

    #[test]
    fn a_password_can_be_changed_by_a_second_line_of_its_user() {
        let users = parse_users(&format!("foo:old\nfoo:new\nfoo:{SHA_256}\n")).unwrap();
        for password in ["old", "new", "secret"] {
            assert!(users.verify(b"foo", password.as_bytes()), "{password}");
        }
        assert!(!users.verify(b"foo", SHA_256.as_bytes()));
    }

    #[test]
    fn hashed_and_plain_users_stand_in_one_file() {
        let users = parse_users(&format!("hashed:{SHA_256}\nplain:bar\n")).unwrap();
        assert!(users.verify(b"hashed", b"secret") && users.verify(b"plain", b"bar"));
        assert!(!users.verify(b"plain", b"secret") && !users.verify(b"hashed", b"bar"));
        assert!(!users.verify(b"unknown", b"secret") && !users.verify(b"unknown", b"bar"));
    }

    #[test]
    fn a_nul_behind_a_password_is_wrong_also_where_the_hash_does_not_see_it() {
        let scrypt = "$7$86..../....saltsalt$W8FO9.l0W4e1gEhH6uR1MYKcoKCutjgsf5FwOwJxx33";
        let users = parse_users(&format!("foo:{scrypt}\n")).unwrap();
        assert!(users.verify(b"foo", b"secret"));
        assert!(!users.verify(b"foo", b"secret\0") && !users.verify(b"foo", b"secre"));
    }

    #[test]
    fn the_sasl_database_may_have_fields_after_the_password() {
        let users = Users::parse(b"foo:bar:rest:more\n", UsersFileFormat::SaslDatabase).unwrap();
        for password in ["bar", "bar:rest", "bar:rest:more"] {
            assert!(users.verify(b"foo", password.as_bytes()), "{password}");
        }
        assert!(!users.verify(b"foo", b"bar:") && !users.verify(b"foo", b"rest"));
    }

    #[test]
    fn a_file_that_is_not_one_of_users_is_refused_by_line_and_never_quoted() {
        for (text, error_text) in [
            ("", "no users"),
            ("\n\r\n", "no users"),
            ("foo:bar\nsecret\n", "line 2 has no colon"),
            (":bar\n", "line 1 has an empty user"),
            ("foo:\n", "line 1 has an empty user or password"),
            ("foo:ba\0r\n", "line 1 has a NUL"),
            ("foo:$5$short$x\n", "line 1 has a password hash"),
            ("foo:$2b$12$abcdefghijklmnopqrstuv\n", "line 1 has a password hash"),
        ] {
            assert!(
                expect_refusal(text).contains(error_text),
                "{text:?}: {}",
                expect_refusal(text)
            );
        }
        let long = format!("foo:{}\n", "x".repeat(ENTRY_BYTES_MAX));
        assert!(expect_refusal(&long).contains("longer than 512 bytes"));
        let twice = format!("foo:{SHA_256}\nfoo:{SHA_256}\n");
        assert!(expect_refusal(&twice).contains("line 2 has a second hashed password"));
        assert!(!expect_refusal("foo:bar\nsecret\n").contains("secret"));
    }
}
