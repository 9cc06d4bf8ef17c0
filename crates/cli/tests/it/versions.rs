//! Files, replacements and requests between this build and an older one, which `GLASSCACHE_OLD` names: what the guide
//! "Production" says may be mixed.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::server::{Memory, Server, TestConnection, wait_until};

/// The program of the older build, if there is one.
fn find_old_build() -> Option<OsString> {
    let path = std::env::var_os("GLASSCACHE_OLD");
    if path.is_none() {
        eprintln!("left out: GLASSCACHE_OLD names no older build");
    }
    path
}

fn serve_with(program: &OsString, memory: &Memory) -> Command {
    let mut command = Command::new(program);
    command.args(["serve", "-p", "-1", "-u", "root", "-m", "8", "-t", "2", "-e"]);
    command.arg(memory.file());
    command
}

fn stop_and_save(server: &mut Server) {
    kill(Pid::from_raw(server.id() as i32), Signal::SIGUSR1).unwrap();
    assert_eq!(server.wait(), Some(0));
}

fn store_item(server: &Server) -> TestConnection {
    let mut connection = server.connect();
    assert_eq!(connection.request("set key 0 0 3\r\nold\r\n"), "STORED");
    connection
}

/// The value of the key, or nothing.
fn read_item(connection: &mut TestConnection) -> Option<String> {
    match connection.request("get key\r\n").as_str() {
        "END" => None,
        "VALUE key 0 3" => {
            let value = connection.read_line();
            assert_eq!(connection.read_line(), "END");
            Some(value)
        }
        line => panic!("{line}"),
    }
}

/// What the new server says about a memory file of the server before, and the item in it.
fn start_after(program: &OsString, memory: &Memory) -> (Option<String>, String) {
    let mut server = Server::run_with_stderr(serve_with(program, memory), Stdio::piped());
    let mut lines = BufReader::new(server.take_stderr()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("memory file")).unwrap();
    (read_item(&mut server.connect()), line)
}

#[test]
fn a_memory_file_of_another_build_comes_back_or_starts_empty_with_the_reason() {
    let Some(old_build) = find_old_build() else {
        return;
    };
    let this_build = OsString::from(env!("CARGO_BIN_EXE_glasscache"));
    for (before, after) in [(&old_build, &this_build), (&this_build, &old_build)] {
        let memory = Memory::new();
        let mut server = Server::run(serve_with(before, &memory));
        drop(store_item(&server));
        stop_and_save(&mut server);
        let (item, line) = start_after(after, &memory);
        match item {
            Some(value) => assert!(value == "old" && line.contains("items are back"), "{line}"),
            None => assert!(line.contains("starts empty: its layout has version"), "{line}"),
        }
    }
}

#[test]
fn a_server_of_an_older_build_is_replaced_and_keeps_its_connections() {
    let Some(old_build) = find_old_build() else {
        return;
    };
    let memory = Memory::new();
    let mut before = Server::run(serve_with(&old_build, &memory));
    let mut connection = store_item(&before);
    let mut command = serve_with(&env!("CARGO_BIN_EXE_glasscache").into(), &memory);
    command.arg("--replace");
    let mut after = Server::run(command);
    assert_eq!(before.wait(), Some(0));
    // The same connection; with another layout of the memory the item is gone, never wrong.
    assert!(matches!(read_item(&mut connection).as_deref(), None | Some("old")));
    assert_eq!(connection.request("set key 0 0 3\r\nnew\r\n"), "STORED");
    assert_eq!(read_item(&mut connection).as_deref(), Some("new"));
    stop_and_save(&mut after);
}

fn run(program: &Path, arguments: &[&str], folder: &Path) -> String {
    let (code, text) = run_for_code(program, arguments, folder);
    assert_eq!(code, Some(0), "{arguments:?}: {text}");
    text
}

fn run_for_code(program: &Path, arguments: &[&str], folder: &Path) -> (Option<i32>, String) {
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code(), text)
}

#[test]
fn request_logs_and_strategies_of_each_build_are_read_by_the_other() {
    let Some(old_build) = find_old_build() else {
        return;
    };
    let (old_build, this_build) =
        (Path::new(&old_build), Path::new(env!("CARGO_BIN_EXE_glasscache")));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = Server::start(&[]);
    let address = server.address();
    for (writer, reader, log) in [(old_build, this_build, "old"), (this_build, old_build, "new")] {
        run(writer, &["generate", "topic-tree", log, "--requests", "500"], folder);
        assert!(run(reader, &["inspect", log], folder).contains("500 requests"));
        let strategy = format!("{log}.strategy");
        run(
            writer,
            &["simulate", log, "--strategies", "remote,lru:100", "--save", &strategy],
            folder,
        );
        let replay = ["replay", log, "--target", &address, "--strategy", &strategy, "--fill"];
        // Whether the forecast holds is not the question here.
        let (code, text) = run_for_code(reader, &replay, folder);
        assert!(matches!(code, Some(0 | 1)) && text.contains("`lru:100`"), "{text}");
    }
}

#[test]
fn old_and_new_commands_reach_old_and_new_servers() {
    let Some(old_build) = find_old_build() else {
        return;
    };
    let start_old = || {
        let mut command = Command::new(&old_build);
        command.args(["serve", "-p", "-1", "-u", "root"]);
        Server::run(command)
    };
    let folder = tempfile::tempdir().unwrap();
    for server in [start_old(), Server::start(&[])] {
        let address = server.address();
        wait_until(|| TcpStream::connect(&address).is_ok());
        for program in [Path::new(&old_build), Path::new(env!("CARGO_BIN_EXE_glasscache"))] {
            run(program, &["set", "greeting", "hello", "-s", &address], folder.path());
            assert!(
                run(program, &["get", "greeting", "-s", &address], folder.path()).contains("hello")
            );
            run(program, &["stats", "settings", "-s", &address], folder.path());
            assert!(run(program, &["keys", "-s", &address], folder.path()).contains("greeting"));
        }
    }
}
