//! A server whose stderr takes nothing: a file on a full disk, a pipe that nobody reads, or none at all. It serves and
//! responds to signals, whether it starts, starts as a daemon, or replaces another one.

use std::fs::File;
use std::io::{PipeReader, Write};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::server::{Memory, Server, glasscache, wait_until};

#[derive(Debug, Clone, Copy)]
enum FullStderr {
    Disk,
    Pipe,
    Closed,
}

const ALL: [FullStderr; 3] = [FullStderr::Disk, FullStderr::Pipe, FullStderr::Closed];

impl FullStderr {
    /// The command with this stderr, which is full as long as the second value lives.
    fn apply(self, mut command: Command) -> (Command, Stdio, Option<PipeReader>) {
        match self {
            FullStderr::Disk => {
                let full_disk = File::options().write(true).open("/dev/full").unwrap();
                (command, full_disk.into(), None)
            }
            FullStderr::Pipe => {
                let (reader, mut writer) = std::io::pipe().unwrap();
                let flags = fcntl_getfl(&writer).unwrap();
                fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
                while writer.write(&[b'x'; 4096]).is_ok() {}
                fcntl_setfl(&writer, flags).unwrap();
                (command, writer.into(), Some(reader))
            }
            FullStderr::Closed => {
                let mut shell = Command::new("sh");
                shell.args(["-c", "exec \"$@\" 2>&-", "sh"]).arg(command.get_program());
                shell.args(command.get_args());
                for (name, value) in command.get_envs() {
                    match value {
                        Some(value) => shell.env(name, value),
                        None => shell.env_remove(name),
                    };
                }
                command = shell;
                (command, Stdio::null(), None)
            }
        }
    }

    fn start(self, command: Command) -> (Server, Option<PipeReader>) {
        let (command, stderr, reader) = self.apply(command);
        (Server::run_with_stderr(command, stderr), reader)
    }
}

/// Flags with which there is something to print before and after the start.
const TALKATIVE: [&str; 4] = ["-v", "-k", "-o", "hashpower=20"];

fn terminate(mut server: Server) {
    kill(Pid::from_raw(server.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_server_starts_serves_and_stops() {
    for stderr in ALL {
        for flags in [&[][..], &TALKATIVE] {
            let mut command = glasscache();
            command.args(["serve", "-p", "-1", "-u", "root"]).args(flags);
            let (server, _reader) = stderr.start(command);
            assert_eq!(server.connect().request("set a 0 0 1\r\nx\r\n"), "STORED", "{stderr:?}");
            terminate(server);
        }
    }
}

#[test]
fn a_daemon_starts_serves_and_stops() {
    for stderr in ALL {
        for flags in [&[][..], &TALKATIVE] {
            let folder = tempfile::tempdir().unwrap();
            let (pid_file, port_file) = (folder.path().join("pid"), folder.path().join("port"));
            let mut command = glasscache();
            command.args(["serve", "-d", "-p", "-1", "-u", "root", "-P"]).arg(&pid_file);
            command.args(flags).env("MEMCACHED_PORT_FILENAME", &port_file);
            let (mut command, stderr_target, _reader) = stderr.apply(command);
            assert_eq!(command.stderr(stderr_target).status().unwrap().code(), Some(0));
            let pid = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
            kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
            wait_until(|| !pid_file.exists());
        }
    }
}

#[test]
fn a_daemon_serves_although_the_process_that_started_it_has_ended() {
    let mut command = glasscache();
    command.args(["serve", "-d", "-p", "-1", "-u", "root"]).env("GLASSCACHE_DAEMON_CHILD", "1");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(writer);
    let server = Server::run(command);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(server.connect().request("set a 0 0 1\r\nx\r\n"), "STORED");
    terminate(server);
}

#[test]
fn a_replacement_keeps_the_cache_and_the_connections() {
    for stderr in ALL {
        let memory = Memory::new();
        let mut before = memory.start();
        let mut connection = before.connect();
        assert_eq!(connection.request("set key 0 0 5\r\nvalue\r\n"), "STORED");
        let flags = [&["-m", "8", "--replace", "-P", "/nonexistent/pid"], &TALKATIVE[..]].concat();
        let (after, _reader) = stderr.start(memory.command(&flags));
        assert_eq!(before.wait(), Some(0));
        assert_eq!(connection.request("get key\r\n"), "VALUE key 0 5", "{stderr:?}");
        assert_eq!(
            (connection.read_line(), connection.read_line()),
            ("value".into(), "END".into())
        );
        terminate(after);
    }
}

#[test]
fn a_replacement_that_fails_ends_and_the_running_server_serves() {
    for stderr in [FullStderr::Disk, FullStderr::Closed] {
        let memory = Memory::new();
        let server = memory.start();
        let command = memory.command(&["-m", "8", "--replace", "-l", "203.0.113.1", "--public"]);
        let (mut command, stderr_target, _reader) = stderr.apply(command);
        assert_eq!(command.stderr(stderr_target).status().unwrap().code(), Some(3), "{stderr:?}");
        assert_eq!(server.connect().request("set a 0 0 1\r\nx\r\n"), "STORED");
    }
}

#[test]
fn a_server_that_panics_ends() {
    for stderr in ALL {
        let mut command = glasscache();
        command.args(["serve", "-p", "-1", "-u", "root"]).env("MEMCACHED_DEBUG", "1");
        let (mut server, _reader) = stderr.start(command);
        server.connect().send(b"misbehave panic\r\n");
        assert_eq!(server.wait(), Some(70), "{stderr:?}");
    }
}
