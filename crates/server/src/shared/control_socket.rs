//! The unix socket beside the memory file, on which a server waits for its successor. A server hands it over to its
//! successor.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::SocketFlags;

use crate::shared::control_channel::ControlChannel;
use crate::shared::unix_socket::{bind_with_mode, identify_file};

/// Only the user of the server may connect.
const SOCKET_MODE: u32 = 0o600;

/// The socket on which a server waits for its successor.
pub(crate) struct ControlSocket {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of its file.
    file_identity: Option<(u64, u64)>,
}

impl ControlSocket {
    /// Binds the socket, replacing one that another server left: the memory file is locked, so none is running.
    ///
    /// # Errors
    /// The path is too long, or the folder does not allow it.
    pub(crate) fn bind(path: PathBuf) -> io::Result<ControlSocket> {
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(&path)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            // Binding fails: another file is in the way.
            Ok(_) => {}
        }
        let socket = bind_with_mode(&path, SOCKET_MODE, SocketFlags::CLOEXEC)?;
        rustix::net::listen(&socket, 1)?;
        Ok(ControlSocket::inherited(socket, path))
    }

    /// The socket of a predecessor.
    pub(crate) fn inherited(socket: OwnedFd, path: PathBuf) -> ControlSocket {
        let file_identity = identify_file(&path);
        ControlSocket { socket, path, file_identity }
    }

    /// Waits for the next successor and accepts its connection.
    ///
    /// # Errors
    /// It is another user's, or this process may not have more descriptors.
    pub(crate) fn accept(&self, timeout: Duration) -> io::Result<ControlChannel> {
        let socket = rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC)?;
        ControlChannel::new(socket, timeout)
    }

    /// Removes its file, unless that is another server's.
    pub(crate) fn remove_file(&self) {
        if self.file_identity.is_some() && self.file_identity == identify_file(&self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_at_its_path_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.control");
        fs::write(&path, "a user's").unwrap();
        assert!(ControlSocket::bind(path.clone()).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a user's");
    }
}
