//! Server processes of this machine: how one is recognised, stopped, and seen to have ended.
//!
//! A server is recognised by its thread of signals: it then handles them, so that no signal ends another program. The
//! process is held by a descriptor (`pidfd_open(2)`), so that none goes to a process that has its number later.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::server_signals::SIGNAL_THREAD;

/// A server of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerProcess {
    pub(crate) id: u32,
    /// The number of the user as whom it runs.
    pub(crate) user_id: u32,
    pub(crate) command_line: String,
}

/// Where a server keeps its items.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ItemMemory {
    /// In this file (`-e`).
    File(PathBuf),
    /// In its memory alone.
    Anonymous,
    /// The descriptors of the process cannot be read, because it has changed its user.
    Unknown,
}

/// Every server that this process can see, by id.
pub(crate) fn list_servers() -> Vec<ServerProcess> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut servers: Vec<ServerProcess> = ids.filter_map(ServerProcess::find).collect();
    servers.sort_by_key(|server| server.id);
    servers
}

impl ServerProcess {
    /// The server with this id; none if the process is none, or does not handle signals yet.
    pub(crate) fn find(id: u32) -> Option<ServerProcess> {
        let folder = PathBuf::from(format!("/proc/{id}"));
        let threads = fs::read_dir(folder.join("task")).ok()?.flatten();
        let thread_name =
            |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm")).ok();
        let mut thread_names = threads.filter_map(thread_name);
        if !thread_names.any(|name| name.trim_end() == SIGNAL_THREAD) {
            return None;
        }
        let status = fs::read_to_string(folder.join("status")).ok()?;
        // Real, effective, saved and file system user (proc_pid_status(5)).
        let user_ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let user_id = user_ids.split_whitespace().nth(1)?.parse().ok()?;
        let arguments = fs::read(folder.join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).trim_end_matches('\0').to_owned();
        let command_line = arguments.replace('\0', " ").escape_debug().to_string();
        Some(ServerProcess { id, user_id, command_line })
    }

    /// Where its items are: a memory file is open, and the socket for its successor lies beside it.
    pub(crate) fn find_item_memory(&self) -> ItemMemory {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{}/fd", self.id)) else {
            return ItemMemory::Unknown;
        };
        let open_files = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        open_files
            .into_iter()
            .find(|path| has_control_socket(path))
            .map_or(ItemMemory::Anonymous, ItemMemory::File)
    }
}

fn has_control_socket(path: &Path) -> bool {
    let control_path = append_to_name(path, ".control");
    path.is_absolute() && control_path.metadata().is_ok_and(|file| file.file_type().is_socket())
}

/// Whether the items of this memory file are saved: the snapshot exists from the end of a server to the next start.
pub(crate) fn has_snapshot(memory_file: &Path) -> bool {
    append_to_name(memory_file, ".meta").exists()
}

fn append_to_name(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// A process that is held, so that its id means no other one.
pub(crate) struct HeldProcess(OwnedFd);

impl HeldProcess {
    /// Holds the process with this id; `None` if there is none.
    ///
    /// # Errors
    /// The kernel refuses to open it.
    pub(crate) fn open(id: u32) -> Result<Option<HeldProcess>, Errno> {
        let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Some(HeldProcess(descriptor))),
            Err(Errno::SRCH | Errno::INVAL) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// It is another user's, or has ended.
    pub(crate) fn send(&self, signal: Signal) -> Result<(), Errno> {
        pidfd_send_signal(&self.0, signal)
    }

    /// Waits for its end; returns whether it has ended in time.
    pub(crate) fn wait(&self, time_max: Duration) -> Result<bool, Errno> {
        let mut poll_fds = [PollFd::new(&self.0, PollFlags::IN)];
        let seconds = i64::try_from(time_max.as_secs()).unwrap_or(i64::MAX);
        let time_max = Timespec { tv_sec: seconds, tv_nsec: time_max.subsec_nanos().into() };
        match poll(&mut poll_fds, Some(&time_max)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(false),
            result => result.map(|ready_count| ready_count > 0),
        }
    }
}
