//! The files for other programs: the process id and the ports.
//!
//! They are written by the user as whom the server runs, and never through a link: whoever may write into their folder
//! could make another user overwrite any file.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use glasscache_server::check_folder_of;
use rustix::fs::OFlags;

use crate::output::{Exit, Failure};
use crate::settings::Settings;

/// memcached's environment variable for the file that lists its ports.
const PORT_FILE_VARIABLE: &str = "MEMCACHED_PORT_FILENAME";

/// A file for other programs; removed when dropped, unless it is another server's by then.
#[derive(Debug)]
pub(super) struct RuntimeFile {
    path: PathBuf,
    /// Open, so that no other file gets its inode.
    file: File,
}

impl RuntimeFile {
    /// Writes `text` atomically: first to a temporary file, which is then renamed, so that other programs never read a
    /// partial file.
    fn write(setting: &str, path: &Path, text: &str) -> Result<RuntimeFile, Failure> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut temporary_path = path.clone().into_os_string();
        temporary_path.push(".tmp");
        let write_result = write_new_file(Path::new(&temporary_path), text).and_then(|file| {
            let renamed = fs::rename(&temporary_path, &path);
            renamed.inspect_err(|_| drop(fs::remove_file(&temporary_path))).map(|()| file)
        });
        match write_result {
            Ok(file) => Ok(RuntimeFile { path, file }),
            Err(error) => Err(describe_failure(setting, &path, &error)),
        }
    }

    /// Keeps the file.
    pub(super) fn keep_file(mut self) {
        self.path = PathBuf::new();
    }
}

impl Drop for RuntimeFile {
    fn drop(&mut self) {
        // Nothing is read here: by now the path may lead to a file that never ends.
        let is_same_file = || -> io::Result<bool> {
            let (own, named) = (self.file.metadata()?, fs::symlink_metadata(&self.path)?);
            Ok((own.dev(), own.ino()) == (named.dev(), named.ino()))
        };
        if is_same_file().unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes the file `path`, without following a link and instead of what a killed server left there.
fn write_new_file(path: &Path, text: &str) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| drop(fs::remove_file(path)))?;
    Ok(file)
}

fn describe_failure(setting: &str, path: &Path, error: &io::Error) -> Failure {
    let message = format!("{setting}: cannot write {}: {error}", path.display());
    let failure = Failure::new(Exit::Unreachable, message);
    match error.kind() {
        ErrorKind::PermissionDenied => {
            failure.with_hint("the user of the server (-u) must be able to write its folder")
        }
        _ => failure,
    }
}

/// Writes the ports for memcached's tests, if they want them.
pub(super) fn write_port_file(
    tcp_addresses: &[SocketAddr],
    udp_addresses: &[SocketAddr],
) -> Result<Option<RuntimeFile>, Failure> {
    let Some(path) = std::env::var_os(PORT_FILE_VARIABLE) else {
        return Ok(None);
    };
    let mut text = String::new();
    let ports = tcp_addresses
        .iter()
        .map(|address| ("TCP", address))
        .chain(udp_addresses.iter().map(|address| ("UDP", address)));
    for (kind, address) in ports {
        let family = if address.is_ipv4() { "INET" } else { "INET6" };
        let _ = writeln!(text, "{kind} {family}: {}", address.port());
    }
    RuntimeFile::write(PORT_FILE_VARIABLE, &PathBuf::from(path), &text).map(Some)
}

/// Writes the process id, if there is a file for it.
pub(super) fn write_pid_file(settings: &Settings) -> Result<Option<RuntimeFile>, Failure> {
    let Some(path) = &settings.pid_file else {
        return Ok(None);
    };
    let text = format!("{}\n", std::process::id());
    RuntimeFile::write("pidfile (-P)", path, &text).map(Some)
}

/// Checks whether this process's user can make the files for other programs, without making them.
pub(super) fn check_folders(settings: &Settings) -> Result<(), Failure> {
    let Some(path) = &settings.pid_file else {
        return Ok(());
    };
    let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let check_result = match fs::symlink_metadata(&path) {
        Ok(metadata) if metadata.is_dir() => Err(ErrorKind::IsADirectory.into()),
        _ => check_folder_of(&path),
    };
    check_result.map_err(|error| describe_failure("pidfile (-P)", &path, &error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_file_is_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let [pid, temporary, victim] =
            ["pid", "pid.tmp", "victim"].map(|name| folder.path().join(name));
        for link in [&pid, &temporary] {
            fs::write(&victim, "kept").unwrap();
            symlink(&victim, link).unwrap();
            let file = RuntimeFile::write("pidfile (-P)", &pid, "1\n").unwrap();
            assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
            assert!(fs::symlink_metadata(&pid).unwrap().is_file());
            assert!(fs::symlink_metadata(&temporary).is_err());
            drop(file);
            assert!(!pid.exists());
        }
    }

    #[test]
    fn the_file_of_another_server_stays_even_if_it_has_the_same_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let first = RuntimeFile::write("pidfile (-P)", &path, "1\n").unwrap();
        let second = RuntimeFile::write("pidfile (-P)", &path, "1\n").unwrap();
        drop(first);
        assert!(path.exists());
        // What takes its place is neither read nor removed.
        fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
        drop(second);
        assert!(fs::symlink_metadata(&path).is_ok());
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        fs::create_dir(&path).unwrap();
        assert!(RuntimeFile::write("pidfile (-P)", &path, "1\n").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
