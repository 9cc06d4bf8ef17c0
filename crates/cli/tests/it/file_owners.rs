//! The files of a server belong to the user as whom it runs, are never written through a link, and are not used if
//! another user may write them.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use tempfile::TempDir;

use crate::server::{Memory, Server, glasscache, wait_until};

/// A folder of an unprivileged user, whom root can become; `None` if this is not root.
struct UserFolder {
    folder: TempDir,
    user_id: u32,
    group_id: u32,
}

const USER: &str = "nobody";
/// How long a server that refuses to start may take on a busy machine.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(20);

impl UserFolder {
    fn new() -> Option<UserFolder> {
        if !Uid::effective().is_root() {
            eprintln!("skipped: only root can start a server as another user");
            return None;
        }
        let user = User::from_name(USER).unwrap()?;
        let (user_id, group_id) = (user.uid.as_raw(), user.gid.as_raw());
        let folder = tempfile::tempdir().unwrap();
        chown(folder.path(), Some(user_id), Some(group_id)).unwrap();
        Some(UserFolder { folder, user_id, group_id })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, flags: &[&str]) -> Command {
        let mut command = glasscache();
        command.args(["serve", "-m", "8", "-u", USER]).args(flags).stderr(Stdio::piped());
        command.env("MEMCACHED_PORT_FILENAME", self.path("port"));
        command
    }
}

/// Starts a server that must refuse to start, and returns why.
fn refusal(command: &mut Command) -> String {
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    let began_at = Instant::now();
    while process.try_wait().unwrap().is_none() {
        if began_at.elapsed() > REFUSAL_TIME_MAX {
            process.kill().unwrap();
            process.wait().unwrap();
            panic!("it serves");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = process.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    text
}

fn write_secret(path: &Path) {
    fs::write(path, "a secret of root").unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn no_file_of_root_is_changed_through_a_link_in_a_folder_of_the_user() {
    let Some(user_folder) = UserFolder::new() else {
        return;
    };
    let roots_folder = tempfile::tempdir().unwrap();
    let secret = roots_folder.path().join("secret");
    for name in ["pid", "pid.tmp", "port", "port.tmp", "socket"] {
        write_secret(&secret);
        symlink(&secret, user_folder.path(name)).unwrap();
        let (pid_file, socket) = (user_folder.path("pid"), user_folder.path("socket"));
        let mut command = user_folder.command(&["-a", "777", "-P"]);
        command.arg(&pid_file).arg("-s").arg(&socket);
        let mut process = command.spawn().unwrap();
        wait_until(|| {
            let is_running = fs::read_to_string(&pid_file).is_ok_and(|text| text.ends_with('\n'));
            is_running || process.try_wait().unwrap().is_some()
        });
        let _ = kill(Pid::from_raw(process.id() as i32), Signal::SIGTERM);
        process.wait().unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "a secret of root", "{name}");
        let metadata = fs::metadata(&secret).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (0, 0o600), "{name}");
        for name in ["pid", "pid.tmp", "port", "port.tmp", "socket"] {
            let _ = fs::remove_file(user_folder.path(name));
        }
    }
}

#[test]
fn each_file_belongs_to_the_user_of_the_server() {
    let Some(user_folder) = UserFolder::new() else {
        return;
    };
    let (pid_file, socket) = (user_folder.path("pid"), user_folder.path("socket"));
    let mut command = user_folder.command(&["-a", "770", "-P"]);
    command.arg(&pid_file).arg("-s").arg(&socket).arg("-e").arg(user_folder.path("memory"));
    let mut process = command.spawn().unwrap();
    let mut stderr = process.stderr.take().unwrap();
    wait_until(|| pid_file.exists() || process.try_wait().unwrap().is_some());
    let status = |name: &str| {
        let metadata = fs::symlink_metadata(user_folder.path(name)).unwrap();
        (metadata.uid(), metadata.mode() & 0o777)
    };
    for name in ["pid", "port"] {
        assert_eq!(status(name).0, user_folder.user_id, "{name}");
    }
    assert_eq!(status("socket"), (user_folder.user_id, 0o770));
    assert_eq!(status("memory"), (user_folder.user_id, 0o600));
    wait_until(|| user_folder.path("memory.control").exists());
    assert_eq!(status("memory.control"), (user_folder.user_id, 0o600));
    assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
    kill(Pid::from_raw(process.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
    let mut text = String::new();
    stderr.read_to_string(&mut text).unwrap();
    assert!(!pid_file.exists() && !socket.exists(), "{text}");
}

#[test]
fn a_user_may_be_a_number_without_an_entry() {
    let Some(user_folder) = UserFolder::new() else {
        return;
    };
    let number = 64_123;
    chown(user_folder.folder.path(), Some(number), Some(number)).unwrap();
    let mut command = glasscache();
    command.args(["serve", "-m", "8", "-p", "-1", "-u", &number.to_string()]);
    command.env("MEMCACHED_PORT_FILENAME", user_folder.path("port")).stderr(Stdio::null());
    let mut process = command.spawn().unwrap();
    wait_until(|| user_folder.path("port").exists() || process.try_wait().unwrap().is_some());
    let metadata = fs::symlink_metadata(user_folder.path("port")).unwrap();
    kill(Pid::from_raw(process.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
    assert_eq!((metadata.uid(), metadata.gid()), (number, number));
}

#[test]
fn a_folder_that_the_user_cannot_write_is_an_error_with_a_hint() {
    let Some(user_folder) = UserFolder::new() else {
        return;
    };
    let roots_folder = tempfile::tempdir().unwrap();
    let pid_file = roots_folder.path().join("pid");
    let text = refusal(user_folder.command(&["-p", "-1", "-P"]).arg(&pid_file));
    assert!(
        text.contains("the user of the server (-u) must be able to write its folder"),
        "{text}"
    );
}

/// A memory with an item, saved by a server of root.
fn saved_memory() -> Memory {
    let memory = Memory::new();
    let mut server = memory.start();
    assert_eq!(server.connect().request("set key 0 0 5\r\nvalue\r\n"), "STORED");
    kill(Pid::from_raw(server.id() as i32), Signal::SIGUSR1).unwrap();
    assert_eq!(server.wait(), Some(0));
    memory
}

#[test]
fn a_memory_file_that_others_may_use_is_refused_and_stays_as_it_is() {
    let memory = saved_memory();
    let snapshot = memory.folder.path().join("memory.meta");
    for (file, mode) in [(&memory.file(), 0o666), (&memory.file(), 0o640), (&snapshot, 0o604)] {
        fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
        let text = refusal(&mut memory.command(&["-m", "8"]));
        let reason = format!("may be used by other users (mode {mode:o} instead of 600)");
        assert!(text.contains(&reason), "{text}");
        fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
    }
    assert_eq!(memory.start().connect().request("get key\r\n"), "VALUE key 0 5");
}

#[test]
fn a_memory_file_of_another_user_is_refused() {
    if !Uid::effective().is_root() {
        return;
    }
    let memory = saved_memory();
    let snapshot = memory.folder.path().join("memory.meta");
    for file in [&memory.file(), &snapshot] {
        chown(file, Some(12345), None).unwrap();
        let text = refusal(&mut memory.command(&["-m", "8"]));
        assert!(text.contains("belongs to the user 12345, and the server runs as 0"), "{text}");
        assert_eq!(fs::metadata(file).unwrap().uid(), 12345);
        chown(file, Some(0), None).unwrap();
    }
    assert_eq!(memory.start().connect().request("get key\r\n"), "VALUE key 0 5");
}

#[test]
fn the_memory_file_that_root_made_is_given_to_the_user_with_its_items() {
    let Some(user_folder) = UserFolder::new() else {
        return;
    };
    let memory = saved_memory();
    chown(memory.folder.path(), Some(user_folder.user_id), Some(user_folder.group_id)).unwrap();
    let mut server = Server::run(memory.command_as(USER, &["-m", "8"]));
    assert_eq!(server.connect().request("get key\r\n"), "VALUE key 0 5");
    let metadata = fs::metadata(memory.file()).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (user_folder.user_id, user_folder.group_id));
    kill(Pid::from_raw(server.id() as i32), Signal::SIGUSR1).unwrap();
    assert_eq!(server.wait(), Some(0));
    let server = Server::run(memory.command_as(USER, &["-m", "8"]));
    assert_eq!(server.connect().request("get key\r\n"), "VALUE key 0 5");
}

#[test]
fn a_file_of_root_that_is_reached_by_a_link_is_not_given_away() {
    let Some(user_folder) = UserFolder::new() else {
        return;
    };
    let memory = saved_memory();
    fs::set_permissions(memory.folder.path(), Permissions::from_mode(0o755)).unwrap();
    let secret = memory.folder.path().join("secret");
    write_secret(&secret);
    let by_link = |target: &Path, name: &str| {
        let path = user_folder.path(name);
        symlink(target, &path).unwrap();
        path
    };
    let linked_folder = by_link(memory.folder.path(), "folder");
    let hard_link = user_folder.path("hard");
    fs::hard_link(memory.file(), &hard_link).unwrap();
    let paths = [
        by_link(&memory.file(), "link"),
        by_link(&secret, "other"),
        linked_folder.join("memory"),
        linked_folder.join("secret"),
        hard_link.clone(),
    ];
    for path in paths {
        refusal(user_folder.command(&["-p", "-1", "-e"]).arg(&path));
        for file in [&memory.file(), &secret] {
            let metadata = fs::metadata(file).unwrap();
            assert_eq!((metadata.uid(), metadata.mode() & 0o777), (0, 0o600), "{path:?}");
        }
    }
    fs::remove_file(&hard_link).unwrap();
    // Nor is that of a server that runs.
    let running = memory.start();
    refusal(user_folder.command(&["-p", "-1", "-e"]).arg(memory.file()));
    assert_eq!(fs::metadata(memory.file()).unwrap().uid(), 0);
    drop(running);
}

/// The numbers of the supplementary groups of a process.
fn read_groups(process_id: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{process_id}/status")).unwrap();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
    groups.split_whitespace().map(|group| group.parse().unwrap()).collect()
}

#[test]
fn a_unix_socket_gets_a_group_in_which_its_user_is_not() {
    const GROUP: u32 = 54_321;
    let Some(user_folder) = UserFolder::new() else {
        return;
    };
    let socket = user_folder.path("socket");
    let mut command = user_folder.command(&["-a", "770", "--unix-group", &GROUP.to_string()]);
    let mut process = command.arg("-s").arg(&socket).spawn().unwrap();
    wait_until(|| fs::metadata(&socket).is_ok_and(|file| file.mode() & 0o777 == 0o770));
    let metadata = fs::metadata(&socket).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!((metadata.uid(), metadata.gid()), (user_folder.user_id, GROUP));
    // The server itself is not in the group.
    wait_until(|| fs::metadata(format!("/proc/{}", process.id())).is_ok());
    let groups = || read_groups(process.id());
    wait_until(|| !groups().contains(&0) && !groups().contains(&GROUP));
    kill(Pid::from_raw(process.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

#[test]
fn a_group_that_is_not_the_users_is_refused_where_root_does_not_start_the_server() {
    let Some(user_folder) = UserFolder::new() else {
        return;
    };
    let socket = user_folder.path("socket");
    for command in [&["serve"][..], &["config", "check"]] {
        let run = |group: &str| {
            let mut process = glasscache();
            process.args(command).args(["--unix-group", group, "-s"]).arg(&socket);
            process.uid(user_folder.user_id).gid(user_folder.group_id);
            process
        };
        let output = run("54321").output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("this user is not in the group \"54321\""), "{text}");
    }
    for (arguments, expected) in [
        (&["--unix-group", "no-such-group", "-s", "x"][..], "is not a group of this machine"),
        (&["--unix-group", "0"], "has no effect without unix-socket (-s)"),
    ] {
        let output =
            glasscache().args(["config", "check", "-u", USER]).args(arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
    }
    // One that is his own is taken.
    let mut process = glasscache();
    process.args(["serve", "-s"]).arg(&socket).args(["--unix-group"]);
    process.arg(user_folder.group_id.to_string());
    process.uid(user_folder.user_id).gid(user_folder.group_id).stderr(Stdio::null());
    let mut process = process.spawn().unwrap();
    wait_until(|| fs::metadata(&socket).is_ok_and(|file| file.gid() == user_folder.group_id));
    process.kill().unwrap();
    process.wait().unwrap();
}
