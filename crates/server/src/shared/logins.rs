//! The users that may log in, and the attempts to log in, which another thread verifies, since a password hash takes
//! milliseconds.
//!
//! A worker submits an attempt and serves its other connections meanwhile; it is woken when the attempt is decided. An
//! attempt ends with its connection (`attempt_queue`). The file of users is read again when it has changed; one that cannot be read changes nothing.

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use glasscache_protocol::login::Credentials;

use crate::shared::attempt_queue::{AttemptQueue, Queued};
use crate::shared::config::UsersFile;
use crate::shared::error::Error;
use crate::shared::file_version::{self, FileVersion, file_version};
use crate::shared::lock::lock;
use crate::shared::source::Source;
use crate::shared::users::Users;
use crate::shared::wake::Waker;

/// The logins of a server; by default it has no users and requires no login.
#[derive(Default)]
pub(crate) struct Logins {
    file_and_user_table: Option<(UsersFile, Mutex<UserTable>)>,
    /// `None` decides each attempt at once, in the calling thread.
    queue: Option<Arc<AttemptQueue<Attempt>>>,
}

/// The users, and the version by which a change of their file is detected.
struct UserTable {
    version: Option<FileVersion>,
    users: Arc<Users>,
}

/// One attempt to log in.
pub(crate) struct Attempt {
    user: Vec<u8>,
    password: Vec<u8>,
    /// 0 until it is decided.
    outcome: AtomicU8,
    waker: Waker,
}

const ATTEMPT_ACCEPTED: u8 = 1;
const ATTEMPT_REFUSED: u8 = 2;

impl Attempt {
    /// Whether it was accepted; `None` while it is not decided.
    pub(crate) fn was_accepted(&self) -> Option<bool> {
        // Acquire pairs with the Release of `decide`, though nothing else is handed over.
        match self.outcome.load(Ordering::Acquire) {
            0 => None,
            outcome => Some(outcome == ATTEMPT_ACCEPTED),
        }
    }

    /// Decides it and wakes the worker that waits.
    pub(crate) fn decide(&self, is_accepted: bool) {
        let outcome = if is_accepted { ATTEMPT_ACCEPTED } else { ATTEMPT_REFUSED };
        self.outcome.store(outcome, Ordering::Release);
        self.waker.wake();
    }
}

impl Logins {
    /// Reads the file of users, if there is one: a server must not start without the configured protection. Attempts
    /// are decided in the calling thread until [`Logins::with_thread`].
    pub(crate) fn new(file: Option<&UsersFile>) -> Result<Logins, Error> {
        let Some(file) = file else {
            return Ok(Logins::default());
        };
        let version = file_version(&file.path);
        let users = read_users(file)
            .map_err(|error_text| Error::Setting(file_message(&file.path, &error_text)))?;
        let user_table = UserTable { version, users: Arc::new(users) };
        Ok(Logins {
            file_and_user_table: Some((file.clone(), Mutex::new(user_table))),
            queue: None,
        })
    }

    /// Makes attempts wait in [`Logins::queue`] from now on, if there are users.
    pub(crate) fn with_queue(mut self) -> Logins {
        self.queue = self.file_and_user_table.is_some().then(AttemptQueue::new);
        self
    }

    /// The attempts that wait for another thread.
    pub(crate) fn queue(&self) -> Option<&AttemptQueue<Attempt>> {
        self.queue.as_deref()
    }

    /// Whether connections have to log in.
    #[inline]
    pub(crate) fn are_required(&self) -> bool {
        self.file_and_user_table.is_some()
    }

    /// Submits an attempt of a connection from `source`; `None` for credentials that no user can have, which are
    /// refused like wrong ones. An attempt that is dropped is not verified any more.
    pub(crate) fn submit(
        &self,
        credentials: Option<Credentials<'_>>,
        source: Source,
        waker: &Waker,
    ) -> Queued<Attempt> {
        let credentials = credentials.unwrap_or(Credentials { user: b"", password: b"" });
        let attempt = Arc::new(Attempt {
            user: credentials.user.to_owned(),
            password: credentials.password.to_owned(),
            outcome: AtomicU8::new(0),
            waker: waker.clone(),
        });
        let Some(queue) = &self.queue else {
            attempt.decide(self.verify(&attempt));
            return Queued::unqueued(attempt);
        };
        queue.push(source, Arc::clone(&attempt)).unwrap_or_else(|| {
            // Without the thread no client can log in any more: the server is ending.
            attempt.decide(false);
            Queued::unqueued(attempt)
        })
    }

    /// Whether the users have these credentials.
    pub(crate) fn verify(&self, attempt: &Attempt) -> bool {
        let Some((_, user_table)) = &self.file_and_user_table else {
            return false;
        };
        let users = Arc::clone(&lock(user_table).users);
        users.verify(&attempt.user, &attempt.password)
    }

    /// Reads the file again if it has changed since, and returns a sentence about that.
    pub(crate) fn reload_if_changed(&self) -> Option<Result<String, String>> {
        let (file, user_table) = self.file_and_user_table.as_ref()?;
        let has_changed = file_version(&file.path) != lock(user_table).version;
        has_changed.then(|| reload(file, user_table))
    }

    /// Reads the file again, changed or not, and returns a sentence about the result.
    pub(crate) fn reload(&self) -> Option<Result<String, String>> {
        let (file, user_table) = self.file_and_user_table.as_ref()?;
        Some(reload(file, user_table))
    }

    /// Ends the thread after the attempts so far.
    pub(crate) fn end(&self) {
        if let Some(queue) = &self.queue {
            queue.end();
        }
    }
}

fn reload(file: &UsersFile, user_table: &Mutex<UserTable>) -> Result<String, String> {
    let version = file_version(&file.path);
    let read_result = read_users(file);
    let mut user_table = lock(user_table);
    user_table.version = version;
    match read_result {
        Ok(users) => {
            let password_count = users.password_count();
            user_table.users = Arc::new(users);
            Ok(file_message(&file.path, &format!("was read again, {password_count} passwords")))
        }
        Err(error_text) => {
            Err(file_message(&file.path, &format!("{error_text}; the users stay as they were")))
        }
    }
}

fn read_users(file: &UsersFile) -> Result<Users, String> {
    Users::parse(&file_version::read_bounded(&file.path)?, file.format)
}

fn file_message(path: &Path, predicate: &str) -> String {
    format!("auth-file: {} {predicate}", path.display())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::shared::config::UsersFileFormat;
    use crate::shared::connection_info::Peer;

    fn accepts(logins: &Logins, user: &str, password: &str) -> bool {
        let credentials = Credentials { user: user.as_bytes(), password: password.as_bytes() };
        let waker = Waker::new().unwrap();
        logins.submit(Some(credentials), Source::of(&Peer::Unix), &waker).was_accepted().unwrap()
    }

    #[test]
    fn a_changed_file_is_read_again_and_a_broken_one_leaves_the_users_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let file =
            UsersFile { path: folder.path().join("users"), format: UsersFileFormat::AuthFile };
        assert!(Logins::new(Some(&file)).is_err());
        fs::write(&file.path, "foo:bar\n").unwrap();
        let logins = Logins::new(Some(&file)).unwrap();
        assert!(accepts(&logins, "foo", "bar") && logins.reload_if_changed().is_none());
        for broken in ["", "half written"] {
            fs::write(&file.path, broken).unwrap();
            let line = logins.reload_if_changed().unwrap().unwrap_err();
            assert!(line.ends_with("; the users stay as they were"), "{line}");
            // It is reported once.
            assert!(logins.reload_if_changed().is_none() && accepts(&logins, "foo", "bar"));
        }
        fs::remove_file(&file.path).unwrap();
        let line = logins.reload_if_changed().unwrap().unwrap_err();
        assert!(line.contains("cannot be read"), "{line}");
        assert!(accepts(&logins, "foo", "bar"));
        fs::write(&file.path, "foo:other\nmore:users\n").unwrap();
        let line = logins.reload_if_changed().unwrap().unwrap();
        assert!(line.ends_with("users was read again, 2 passwords"), "{line}");
        assert!(!accepts(&logins, "foo", "bar") && accepts(&logins, "foo", "other"));
    }

    #[test]
    fn without_credentials_an_attempt_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file =
            UsersFile { path: folder.path().join("users"), format: UsersFileFormat::AuthFile };
        fs::write(&file.path, "foo:bar\n").unwrap();
        let logins = Logins::new(Some(&file)).unwrap();
        let attempt = logins.submit(None, Source::of(&Peer::Unix), &Waker::new().unwrap());
        assert_eq!(attempt.was_accepted(), Some(false));
    }
}
