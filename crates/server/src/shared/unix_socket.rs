//! Unix sockets with a mode. Nothing here changes a file by its path: in a folder of another user that may be a link to
//! any file of this process's user.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{geteuid, umask};

use crate::shared::lock::lock;

/// Held while the umask of the process is another one.
static UMASK_LOCK: Mutex<()> = Mutex::new(());

/// Makes a socket with the file `path`, which gets `mode` in the moment in which it comes to exist.
///
/// # Errors
/// The path is too long or in use, or the folder does not allow it.
pub(crate) fn bind_with_mode(path: &Path, mode: u32, flags: SocketFlags) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let _umask_guard = lock(&UMASK_LOCK);
    let umask_before = umask(Mode::from_raw_mode(!mode & 0o777));
    let bind_result = rustix::net::bind(&socket, &address);
    umask(umask_before);
    bind_result?;
    Ok(socket)
}

/// Gives the file of a socket of this process's user a group, where one is given and it has another, and a mode.
///
/// # Errors
/// The file is not a socket of this user, this user is not in the group, or its mode cannot be changed.
pub(crate) fn change_group_and_mode(path: &Path, group: Option<u32>, mode: u32) -> io::Result<()> {
    let file = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let status = fstat(&file)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket
        || status.st_uid != geteuid().as_raw()
    {
        return Err(io::Error::other("its file is not a socket of this user"));
    }
    // This names the opened file, wherever `path` leads by now.
    let descriptor_path = format!("/proc/self/fd/{}", file.as_raw_fd());
    if let Some(group) = group.filter(|group| *group != status.st_gid) {
        chown(&descriptor_path, None, Some(group)).map_err(|error| {
            let hint = "the user of the server must be in it, or root must start the server";
            io::Error::other(format!(
                "it cannot have the group {group} (--unix-group): {error}; {hint}"
            ))
        })?;
    }
    fs::set_permissions(descriptor_path, Permissions::from_mode(mode))
}

/// Device and inode of a file.
pub(crate) fn identify_file(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn read_mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_socket_has_its_mode_whatever_the_umask_is_and_leaves_the_umask_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let umask_before = umask(Mode::from_raw_mode(0o027));
        let modes = [0o000, 0o600, 0o700, 0o770, 0o777, 0o666];
        let sockets = modes.map(|mode| {
            let path = folder.path().join(format!("{mode:o}"));
            bind_with_mode(&path, mode, SocketFlags::CLOEXEC).unwrap();
            (mode, read_mode(&path))
        });
        assert_eq!(umask(umask_before), Mode::from_raw_mode(0o027));
        assert_eq!(sockets.map(|(_, mode)| mode), modes);
    }

    #[test]
    fn the_mode_of_another_file_is_never_changed() {
        let folder = tempfile::tempdir().unwrap();
        let [socket, secret, link] =
            ["socket", "secret", "link"].map(|name| folder.path().join(name));
        bind_with_mode(&socket, 0o600, SocketFlags::CLOEXEC).unwrap();
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        change_group_and_mode(&socket, None, 0o770).unwrap();
        assert_eq!(read_mode(&socket), 0o770);
        for target in [&secret, &socket] {
            symlink(target, &link).unwrap();
            assert!(change_group_and_mode(&link, Some(0), 0o777).is_err());
            assert_eq!((read_mode(&secret), read_mode(&socket)), (0o600, 0o770));
            fs::remove_file(&link).unwrap();
        }
        assert!(change_group_and_mode(&secret, None, 0o777).is_err());
        assert_eq!(read_mode(&secret), 0o600);
    }
}
