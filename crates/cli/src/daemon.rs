//! Daemon mode, and the user and limits of a server process.
//!
//! The daemon does not fork, because no safe crate offers fork to a program that may have threads.
//! Instead the process starts itself again with a variable in the environment; the new process leaves
//! the session, and the old one waits for a line that reports whether the server listens. So the exit
//! code of `serve -d` is reliable, and no error is lost.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use glasscache_server as server;
use nix::unistd::{Gid, Group, Uid, User, getgroups, initgroups, setegid, seteuid, setgid, setuid};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::output::{Exit, Failure};

/// Environment variable that marks the second process as the daemon.
const CHILD_VARIABLE: &str = "GLASSCACHE_DAEMON_CHILD";
/// The line that the daemon writes to the process that started it once it listens.
const READY_LINE: &str = "ready";
/// Descriptors in addition to the connections: listeners, epoll, event descriptors, logs.
const SPARE_DESCRIPTORS: u64 = 128;
/// Without these a server with the usual number of workers does not start.
const SPARE_DESCRIPTORS_MIN: u64 = 24;

/// Whether this process was started by [`launch`].
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD_VARIABLE).is_some()
}

/// Starts this program again as the daemon and waits until it listens or ends.
pub(crate) fn launch() -> Result<Exit, Failure> {
    let start_failure = |error: io::Error| {
        Failure::new(Exit::Unreachable, format!("daemon (-d): cannot start the daemon: {error}"))
    };
    let mut child = Command::new(std::env::current_exe().map_err(start_failure)?)
        .args(std::env::args_os().skip(1))
        .env(CHILD_VARIABLE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(start_failure)?;
    let mut first_line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut first_line).map_err(start_failure)?;
    }
    if first_line.trim_end() == READY_LINE {
        return Ok(Exit::Success);
    }
    match child.wait().map_err(start_failure)?.code() {
        Some(2) => Ok(Exit::Usage),
        _ => Ok(Exit::Unreachable),
    }
}

/// Leaves the terminal's session; must be called first in the daemon.
pub(crate) fn leave_session() -> Result<(), Failure> {
    rustix::process::setsid().map(drop).map_err(|error| {
        Failure::new(Exit::Unreachable, format!("daemon (-d): cannot leave the terminal: {error}"))
    })
}

/// What a daemon needs to detach from the process that started it, obtained while that can still fail.
pub(crate) struct Detachment {
    dev_null: File,
}

impl Detachment {
    /// # Errors
    /// `/dev/null` cannot be opened.
    pub(crate) fn prepare() -> Result<Detachment, Failure> {
        let dev_null =
            File::options().read(true).write(true).open("/dev/null").map_err(|error| {
                let message = format!("daemon (-d): cannot open /dev/null: {error}");
                Failure::new(Exit::Unreachable, message)
            })?;
        Ok(Detachment { dev_null })
    }

    /// Reports to the starting process, if it still waits, that the server listens, then detaches from its terminal and
    /// its folder.
    ///
    /// # Errors
    /// The daemon is still attached to some of these, and runs.
    pub(crate) fn report_ready(self, keeps_stderr: bool) -> Result<(), Failure> {
        server::write_without_waiting(rustix::stdio::stdout(), &format!("{READY_LINE}\n"));
        let detach = || -> rustix::io::Result<()> {
            rustix::stdio::dup2_stdout(&self.dev_null)?;
            if !keeps_stderr {
                rustix::stdio::dup2_stderr(&self.dev_null)?;
            }
            rustix::process::chdir("/")
        };
        detach().map_err(|error| {
            let message = format!("daemon (-d): cannot leave the terminal: {error}");
            Failure::new(Exit::Unreachable, message)
        })
    }
}

/// Raises the descriptor limit for `connections` connections, as far as this user is allowed; returns how many there may
/// be.
pub(crate) fn raise_descriptor_limit(connections: u32) -> Result<u32, Failure> {
    let wanted_count = u64::from(connections) + SPARE_DESCRIPTORS;
    let limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|current| current >= wanted_count) {
        return Ok(connections);
    }
    let raised_hard_limit = limits.maximum.map(|maximum| maximum.max(wanted_count));
    let raised_limit = Rlimit { current: Some(wanted_count), maximum: raised_hard_limit };
    let within_hard_limit = Rlimit {
        current: limits.maximum.map(|max| max.min(wanted_count)),
        maximum: limits.maximum,
    };
    // Where neither is allowed, the limit stays.
    let _ = setrlimit(Resource::Nofile, raised_limit)
        .or_else(|_| setrlimit(Resource::Nofile, within_hard_limit));
    let allowed_count = descriptor_limit();
    if allowed_count >= wanted_count {
        return Ok(connections);
    }
    // A server without connections needs some, too.
    let spare_count = SPARE_DESCRIPTORS.min(allowed_count / 2);
    match u32::try_from(allowed_count - spare_count) {
        Ok(possible) if spare_count >= SPARE_DESCRIPTORS_MIN => Ok(possible.min(connections)),
        _ => Err(Failure::new(
            Exit::Unreachable,
            format!("conn-limit (-c): this user may open only {allowed_count} descriptors"),
        )
        .with_hint("raise the limit: ulimit -n, LimitNOFILE")),
    }
}

/// Descriptors that this process may have open.
pub(crate) fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the limit on core files to what this user may have (`-r`).
pub(crate) fn allow_core_files() -> Result<(), Failure> {
    let unlimited = Rlimit { current: None, maximum: None };
    let hard_limit = getrlimit(Resource::Core).maximum;
    let up_to_hard_limit = Rlimit { current: hard_limit, maximum: hard_limit };
    setrlimit(Resource::Core, unlimited)
        .or_else(|_| setrlimit(Resource::Core, up_to_hard_limit))
        .map_err(|error| {
            Failure::new(Exit::Unreachable, format!("enable-coredumps (-r): not allowed: {error}"))
        })
}

/// Keeps all memory of the process resident from the moment it is first used (`-k`), also what is mapped later,
/// where the process will run as the user of this name.
///
/// Must be called after the store is mapped: without [`MlockAllFlags::FUTURE`] what is mapped later is not locked. The
/// store maps more addresses than `-m` so that the limit can be raised; `MCL_ONFAULT` keeps the rest from becoming
/// resident. A server goes on where this is not allowed, as memcached does.
pub(crate) fn lock_memory(user_name: Option<&str>) -> Result<(), Failure> {
    let is_unlimited = raise_lock_limit();
    let mut flags = MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT;
    // Where the limit holds, a mapping beyond it would fail under MCL_FUTURE, and with it an allocation.
    let stays_root = Uid::effective().is_root() && user_name.is_none_or(|name| name == "root");
    if is_unlimited || stays_root {
        flags |= MlockAllFlags::FUTURE;
    }
    mlockall(flags).map_err(|error| {
        Failure::new(
            Exit::Unreachable,
            format!("lock-memory (-k) has no effect: mlockall failed: {error}; the server goes on"),
        )
        .with_hint("raise the limit on locked memory (ulimit -l) above four times -m")
    })
}

/// Raises the limit on locked memory to what this user may have; true if there is none then.
pub(crate) fn raise_lock_limit() -> bool {
    let unlimited = Rlimit { current: None, maximum: None };
    let hard_limit = getrlimit(Resource::Memlock).maximum;
    let up_to_hard_limit = Rlimit { current: hard_limit, maximum: hard_limit };
    if setrlimit(Resource::Memlock, unlimited).is_err() {
        // If the limit cannot be raised, mlockall reports it.
        let _ = setrlimit(Resource::Memlock, up_to_hard_limit);
    }
    getrlimit(Resource::Memlock).current.is_none()
}

/// Refuses to serve as root, as memcached does, unless a user is named: an attacker who takes over the server would
/// own the machine. `-u root` confirms that root is intended.
pub(crate) fn check_user(user_name: Option<&str>) -> Result<(), Failure> {
    if user_name.is_some() || !Uid::effective().is_root() && !Uid::current().is_root() {
        return Ok(());
    }
    Err(Failure::usage("user (-u): the server does not run as root by default")
        .with_hint("add -u with an unprivileged user, such as -u nobody; in a container, -u root"))
}

/// Switches to user `name` permanently; has no effect if not started as root, as in memcached.
pub(crate) fn become_user(name: &str) -> Result<(), Failure> {
    let Some(user) = find_user(name)? else {
        return Ok(());
    };
    let change_ids = || {
        set_groups(&user)?;
        setgid(user.gid)?;
        setuid(user.uid)
    };
    change_ids().map_err(|error| user_failure(name, error))
}

/// Runs `make_files` as user `name`, and is root again afterwards; if not started as root, only runs it.
pub(crate) fn run_as_user<T>(name: &str, make_files: impl FnOnce() -> T) -> Result<T, Failure> {
    run_as(name, None, make_files)
}

/// As [`run_as_user`], in a group in which the user need not be otherwise.
pub(crate) fn run_as_user_in_group<T>(
    name: &str,
    group: &str,
    make_files: impl FnOnce() -> T,
) -> Result<T, Failure> {
    run_as(name, Some(Gid::from_raw(find_group(group)?)), make_files)
}

fn run_as<T>(name: &str, group: Option<Gid>, make_files: impl FnOnce() -> T) -> Result<T, Failure> {
    let Some(user) = find_user(name)? else {
        return Ok(make_files());
    };
    let become_user = || {
        set_groups(&user)?;
        setegid(group.unwrap_or(user.gid))?;
        seteuid(user.uid)
    };
    become_user().map_err(|error| user_failure(name, error))?;
    let made = make_files();
    let become_root = || {
        seteuid(Uid::from_raw(0))?;
        setegid(Gid::from_raw(0))
    };
    become_root().map_err(|error| user_failure("root", error))?;
    Ok(made)
}

/// Gives user `name` the memory file that an earlier version made as root.
pub(crate) fn give_memory_file(name: &str, path: &Path) -> Result<(), Failure> {
    if let Some(user) = find_user(name)? {
        server::give_memory_file(path, user.uid.as_raw(), user.gid.as_raw());
    }
    Ok(())
}

/// The user to become; `None` if this process is not root's, or stays root's.
fn find_user(name: &str) -> Result<Option<User>, Failure> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let user = User::from_name(name).ok().flatten().or_else(|| find_user_by_number(name));
    let user = user.ok_or_else(|| {
        Failure::usage(format!("user (-u): \"{name}\" is not a user of this machine"))
    })?;
    Ok(Some(user).filter(|user| !user.uid.is_root()))
}

/// The user with this number, who may have no entry, as in a container; his group has the same number then.
fn find_user_by_number(name: &str) -> Option<User> {
    let number = name.parse().ok()?;
    let known = User::from_uid(Uid::from_raw(number)).ok().flatten();
    Some(known.unwrap_or_else(|| User {
        name: name.to_owned(),
        passwd: c"".into(),
        uid: Uid::from_raw(number),
        gid: Gid::from_raw(number),
        gecos: c"".into(),
        dir: "/".into(),
        shell: "/".into(),
    }))
}

/// The number of a group, which may have no entry if it is given by number. Only root may give a file to a group in
/// which its user is not.
pub(crate) fn find_group(name: &str) -> Result<u32, Failure> {
    let known = Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    let group = known.or_else(|| name.parse().ok()).ok_or_else(|| {
        Failure::usage(format!("unix-group: \"{name}\" is not a group of this machine"))
    })?;
    let is_member = || {
        let groups = getgroups().unwrap_or_default();
        groups.contains(&Gid::from_raw(group)) || Gid::effective().as_raw() == group
    };
    if Uid::effective().is_root() || is_member() {
        return Ok(group);
    }
    let message = format!("unix-group: this user is not in the group \"{name}\"");
    Err(Failure::usage(message)
        .with_hint("add the user to the group (SupplementaryGroups= in a unit), or let root start the server with -u"))
}

fn set_groups(user: &User) -> nix::Result<()> {
    let name = std::ffi::CString::new(user.name.as_str()).map_err(|_| nix::Error::EINVAL)?;
    initgroups(&name, user.gid)
}

fn user_failure(name: &str, error: nix::Error) -> Failure {
    Failure::new(Exit::Unreachable, format!("user (-u): cannot become \"{name}\": {error}"))
}
