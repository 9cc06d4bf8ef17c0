//! The user and the password with which a client logs in on each new connection.
//!
//! It is memcached's own login of text and meta: a `set` with the user and the password as its value, before any other
//! request (`-Y` of memcached and of glasscache). In binary it is SASL PLAIN (`-S`).

use std::fmt;
use std::sync::Arc;

use glasscache_protocol::binary::request as binary;
use glasscache_protocol::login::{self, Credentials};

use crate::error::Error;

/// A user and a password, or a function that provides the password for each new connection.
#[derive(Clone)]
pub struct Login {
    user: Vec<u8>,
    password_source: PasswordSource,
}

#[derive(Clone)]
enum PasswordSource {
    Fixed(Vec<u8>),
    Provided(Arc<dyn Fn() -> Result<Vec<u8>, String> + Send + Sync>),
}

impl Login {
    /// A user and a password that does not change.
    pub fn new(user: impl Into<Vec<u8>>, password: impl Into<Vec<u8>>) -> Self {
        Self { user: user.into(), password_source: PasswordSource::Fixed(password.into()) }
    }

    /// A user whose password `provide` returns for each new connection, such as a token that is short-lived; its
    /// error, a sentence, ends the call that needs the connection. Its time is the call's.
    pub fn with_provider(
        user: impl Into<Vec<u8>>,
        provide: impl Fn() -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Self {
        Self { user: user.into(), password_source: PasswordSource::Provided(Arc::new(provide)) }
    }

    /// Refuses a user, and a password if it is known, that no server could have.
    ///
    /// # Errors
    /// A sentence that names which of the two it is.
    pub fn check(&self) -> Result<(), Error> {
        if self.user.is_empty() || self.user.iter().any(|byte| *byte <= b' ') {
            let message = "user: a name without spaces and control characters is needed";
            return Err(Error::BadSetting(message.to_owned()));
        }
        match &self.password_source {
            PasswordSource::Fixed(password) if !is_valid(password) => {
                Err(Error::BadSetting(INVALID_PASSWORD.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Appends the text request that logs in.
    ///
    /// # Errors
    /// The function that provides the password failed: its message.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), String> {
        self.with_password(|user, password| {
            login::write_login(out, Credentials { user, password });
        })
    }

    /// As [`Self::write`], in binary: SASL PLAIN.
    ///
    /// # Errors
    /// As those of [`Self::write`].
    pub fn write_binary(&self, out: &mut Vec<u8>, opaque: u32) -> Result<(), String> {
        self.with_password(|user, password| binary::sasl_plain(out, opaque, user, password))
    }

    fn with_password(&self, write: impl FnOnce(&[u8], &[u8])) -> Result<(), String> {
        let provided;
        let password = match &self.password_source {
            PasswordSource::Fixed(password) => password,
            PasswordSource::Provided(provide) => {
                provided = provide()?;
                if !is_valid(&provided) {
                    return Err(INVALID_PASSWORD.to_owned());
                }
                &provided
            }
        };
        write(&self.user, password);
        Ok(())
    }
}

const INVALID_PASSWORD: &str = "password: it must not be empty or have a NUL";

fn is_valid(password: &[u8]) -> bool {
    !password.is_empty() && !password.contains(&0)
}

impl fmt::Debug for Login {
    /// Without the password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = String::from_utf8_lossy(&self.user);
        formatter.debug_struct("Login").field("user", &user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_written_as_a_set_that_keeps_nothing_and_displayed_without_the_password() {
        let login = Login::new("app", "pass word");
        let mut out = Vec::new();
        login.write(&mut out).unwrap();
        assert_eq!(out, b"set auth 0 -1 13\r\napp pass word\r\n");
        assert_eq!(format!("{login:?}"), "Login { user: \"app\", .. }");
    }

    #[test]
    fn a_login_in_binary_is_a_message_of_sasl_plain() {
        let mut out = Vec::new();
        Login::new("app", "pw").write_binary(&mut out, 7).unwrap();
        assert_eq!(out.split_off(24), b"PLAIN\0app\0pw");
        assert_eq!(&out[..16], b"\x80\x21\0\x05\0\0\0\0\0\0\0\x0c\0\0\0\x07");
    }

    #[test]
    fn a_provider_is_called_for_each_connection_and_its_error_is_kept() {
        let login = Login::with_provider("app", || Ok(b"token".to_vec()));
        let mut out = Vec::new();
        login.write(&mut out).unwrap();
        assert_eq!(out, b"set auth 0 -1 9\r\napp token\r\n");
        let failing_login = Login::with_provider("app", || Err("the vault is closed".to_owned()));
        assert_eq!(failing_login.write(&mut out), Err("the vault is closed".to_owned()));
        let login_without_password = Login::with_provider("app", || Ok(Vec::new()));
        assert_eq!(login_without_password.write(&mut out), Err(INVALID_PASSWORD.to_owned()));
    }

    #[test]
    fn a_user_or_password_that_no_server_could_have_is_a_bad_setting() {
        for (user, password) in [("", "p"), ("a b", "p"), ("a\r\n", "p"), ("a", ""), ("a", "p\0")] {
            let check_result = Login::new(user, password).check();
            assert!(matches!(check_result, Err(Error::BadSetting(_))), "{user:?} {password:?}");
        }
        assert_eq!(Login::new("a", "p w").check(), Ok(()));
    }
}
