//! `glasscache stop` and `-o save_on_term`: what ends a server on this machine, and what of its items is saved.

use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::server::{Memory, Server, glasscache};

fn run_stop(arguments: &[&str]) -> (Option<i32>, String) {
    let output = glasscache().arg("stop").args(arguments).output().unwrap();
    (output.status.code(), join_streams(&output))
}

fn join_streams(output: &Output) -> String {
    let texts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    texts.concat()
}

fn store_item(server: &Server) {
    assert_eq!(server.connect().request("set key 0 0 1\r\nx\r\n"), "STORED");
}

fn read_item(server: &Server) -> String {
    server.connect().request("get key\r\n")
}

#[test]
fn sigterm_and_sigint_save_the_items_with_save_on_term() {
    let memory = Memory::new();
    let mut server = memory.start_with(&["-o", "save_on_term"]);
    store_item(&server);
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        kill(Pid::from_raw(server.id() as i32), signal).unwrap();
        assert_eq!(server.wait(), Some(0));
        server = memory.start_with(&["-o", "save_on_term"]);
        assert_eq!(read_item(&server), "VALUE key 0 1");
    }
}

#[test]
fn save_on_term_without_a_memory_file_is_refused() {
    for command in [&["serve", "-u", "root"][..], &["config", "check", "--offline"]] {
        let mut process = glasscache();
        process.args(command).args(["-o", "save_on_term"]);
        let output = process.output().unwrap();
        let text = join_streams(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("has no effect without memory-file (-e)"), "{text}");
    }
}

#[test]
fn a_stop_saves_the_items_only_with_save() {
    let memory = Memory::new();
    let pid_file = memory.folder.path().join("pid");
    let pid_file = pid_file.to_str().unwrap();
    let mut server = memory.start_with(&["-P", pid_file]);
    store_item(&server);
    let (code, text) = run_stop(&["--save", "--pidfile", pid_file]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("has ended after") && text.contains("its items are saved"), "{text}");
    assert_eq!(server.wait(), Some(0));
    server = memory.start();
    assert_eq!(read_item(&server), "VALUE key 0 1");
    let (code, text) = run_stop(&["--pid", &server.id().to_string(), "--json"]);
    assert_eq!(code, Some(0), "{text}");
    let envelope: serde_json::Value = serde_json::from_str(&text).unwrap();
    let result = &envelope["result"];
    assert_eq!(result["pid"], server.id());
    assert_eq!((&result["signal"], &result["ended"]), (&"SIGTERM".into(), &true.into()));
    assert_eq!(result["saved"], false);
    assert_eq!(server.wait(), Some(0));
    assert_eq!(read_item(&memory.start()), "END");
}

#[test]
fn what_is_no_server_gets_no_signal() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let child_id = child.id().to_string();
    let server = Server::start(&[]);
    let server_id = server.id().to_string();
    for (arguments, expected_code, expected_text) in [
        (vec!["--pid", &child_id], 3, "is not a glasscache server"),
        (vec!["--pid", "0"], 3, "no process has the id 0"),
        (vec!["--pid", "4294967295"], 3, "no process has the id 4294967295"),
        (vec!["--pidfile", "/nonexistent/pid"], 3, "cannot read /nonexistent/pid"),
        (vec!["--pidfile", "/dev/null"], 2, "does not have a process id"),
        (vec!["--pid", &server_id, "--save"], 2, "--save has no effect"),
        (vec!["--pid", "1", "--pidfile", "x"], 2, "cannot be used with"),
    ] {
        let (code, text) = run_stop(&arguments);
        assert_eq!(code, Some(expected_code), "{arguments:?}: {text}");
        assert!(text.contains(expected_text), "{arguments:?}: {text}");
    }
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(server.connect().request("version\r\n").starts_with("VERSION"));
}

#[test]
fn in_a_container_process_1_is_stopped_and_saves() {
    let memory = Memory::new();
    let program = env!("CARGO_BIN_EXE_glasscache");
    let file = memory.file();
    let script = format!(
        "(while ! {program} stop --save; do sleep 0.05; done) & exec {program} -u root -p -1 -m 8 -t 1 -e {}",
        file.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", &script]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = join_streams(&output);
    if text.contains("unshare:") {
        eprintln!("no process 1 of its own here, left out: {text}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("server 1 has ended") || text.contains("items are saved"), "{text}");
    assert!(memory.folder.path().join("memory.meta").exists(), "{text}");
}
