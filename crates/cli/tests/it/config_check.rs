//! `config check` and `serve` agree about the same settings, as root and as another user, except where only binding an
//! address can tell.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::unistd::Uid;
use tempfile::TempDir;

use crate::encryption::Files;
use crate::server::glasscache;

/// A user without rights.
const USER_ID: u32 = 65_534;

/// The settings, `{dir}` for the folder of the test. The folder belongs to root; `{dir}/own` to everyone.
const ALL_SETTINGS: &[&str] = &[
    "",
    "-m 64",
    "-m 64 -c 100 -t 2",
    "-m 1t",
    "-m 0",
    "-m 64 -I 128m",
    "-I 2m",
    "-o policy=tuned",
    "-M -o policy=tuned",
    "-o policy=tuned,policy_goal=bytes",
    "-o policy_goal=time",
    "-t 0",
    "-c 0",
    "-c 1000000000",
    "-l 127.0.0.1",
    "-l 0.0.0.0",
    "-l 0.0.0.0 --public",
    "-l ::1",
    "-l no.such.host.invalid",
    "-l notls:127.0.0.1",
    "-l 0.0.0.0 -Y {dir}/users",
    "-Y {dir}/users",
    "-Y {dir}/missing",
    "-Y {dir}/secret",
    "-Y {dir}/empty",
    "-Y {dir}",
    "-S",
    "-S -Y {dir}/users",
    "-Z",
    "-Z -o ssl_chain_cert={dir}/missing",
    "-Z -o ssl_chain_cert={dir}/server.crt,ssl_key={dir}/server.key",
    "-Z -o ssl_chain_cert={dir}/server.crt,ssl_key={dir}/other.key",
    "-Z -o ssl_chain_cert={dir}/old.crt,ssl_key={dir}/old.key",
    "-Z -o ssl_chain_cert={dir}/users",
    "-Z -o ssl_chain_cert={dir}/server.crt,ssl_key={dir}/server.key,ssl_ca_cert={dir}/missing",
    "-Z -o ssl_chain_cert={dir}/server.crt,ssl_key={dir}/server.key,ssl_ca_cert={dir}/ca.pem -l mtls:0.0.0.0",
    "-o ssl_chain_cert={dir}/server.crt",
    "-e {dir}/own/memory",
    "-e {dir}/own/made/memory",
    "-e {dir}/own/saved",
    "-e {dir}/users",
    "-e {dir}",
    "-e /dev/null/nothing/memory",
    "-e {dir}/own/memory -m 900g",
    "-s {dir}/own/socket",
    "-s {dir}/own/missing/socket",
    "-s {dir}/users",
    "-s {dir}/own/socket -a 770",
    "-s {dir}/own/socket -a 999",
    "-P {dir}/own/pid",
    "-P {dir}/own/missing/pid",
    "-P {dir}",
    "--cluster-file {dir}/cluster",
    "--cluster-file {dir}/missing",
    "--cluster-file {dir}/users",
    "--cluster-file {dir}/secret",
    "--http 127.0.0.1:0",
    "--http 0.0.0.0:0",
    "--http 0.0.0.0:0 --http-token-file {dir}/cluster",
    "--http 0.0.0.0:0 --http-token-file {dir}/secret",
    "--http 0 --http-token-file {dir}/missing",
    "--http 0 --http-token-file {dir}/empty",
    "--http nonsense",
    "--http-token-file {dir}/cluster",
    "--metrics 0.0.0.0:0",
    "-u nobody --http 0.0.0.0:0 --http-token-file {dir}/secret",
    "--replace",
    "-u no-such-user",
    "-u nobody",
    "-u 65532",
    "-u nobody -e {dir}/memory",
    "-u nobody -s {dir}/socket",
    "-u nobody -P {dir}/pid",
    "-u nobody --cluster-file {dir}/secret",
    "-u nobody -Y {dir}/secret",
    "-o idle_timeout=60",
    "-o no_such_option",
    "-o idle_timeout=many",
    "--config {dir}/good.toml",
    "--config {dir}/bad.toml",
    "--config {dir}/missing.toml",
    "-B ascii -Z",
    "-f 0.5",
    "-k",
    "-U 11211",
];

fn make_folder() -> (Files, TempDir) {
    let files = Files::new();
    let folder = tempfile::tempdir().unwrap();
    files.authority.sign("other", 2099);
    files.authority.sign("old", 2021);
    let path = |name: &str| files.path(name);
    for (name, text) in [
        ("secret", "app:secret word\n"),
        ("empty", ""),
        ("cluster", "12\nlocalhost|127.0.0.1|11211\n"),
        ("good.toml", "memory-limit = \"64\"\n"),
        ("bad.toml", "memory-limits = \"64\"\n"),
    ] {
        fs::write(path(name), text).unwrap();
    }
    fs::set_permissions(path("secret"), Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(path(""), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(path("own")).unwrap();
    fs::set_permissions(path("own"), Permissions::from_mode(0o777)).unwrap();
    (files, folder)
}

/// The exit code of a server that does not start; `None` if it serves, or could not bind an address.
fn serve(arguments: &[String], as_user: bool) -> (Option<i32>, String) {
    let mut command = new_command(&["serve", "-p", "-1"], arguments, as_user);
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(process.stderr.take().unwrap());
    let mut text = String::new();
    while stderr.read_line(&mut text).unwrap_or(0) > 0 {
        if text.contains("listens on") {
            process.kill().unwrap();
            process.wait().unwrap();
            return (None, text);
        }
    }
    let code = process.wait().unwrap().code();
    let _ = stderr.read_to_string(&mut text);
    (code, text)
}

fn check(arguments: &[String], as_user: bool) -> (Option<i32>, String) {
    let mut command = new_command(&["config", "check"], arguments, as_user);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().filter(|code| *code != 0), String::from_utf8_lossy(&text).into_owned())
}

fn new_command(words: &[&str], arguments: &[String], as_user: bool) -> Command {
    let mut command = glasscache();
    command.args(words).args(arguments).current_dir("/");
    if as_user {
        command.uid(USER_ID).gid(USER_ID);
    } else if !arguments.iter().any(|argument| argument == "-u") {
        command.args(["-u", "root"]);
    }
    command
}

fn assert_agree(as_user: bool) {
    let (files, _folder) = make_folder();
    let folder_text = files.path("").display().to_string();
    let folder_text = folder_text.trim_end_matches('/');
    let mut disagreements = Vec::new();
    for settings in ALL_SETTINGS {
        let arguments: Vec<String> = settings
            .split_whitespace()
            .map(|argument| argument.replace("{dir}", folder_text))
            .collect();
        // First, because a server makes files.
        let (checked, served) = (check(&arguments, as_user), serve(&arguments, as_user));
        if checked.0 != served.0 {
            disagreements.push(format!("{settings}: check {checked:?}, serve {served:?}"));
        }
    }
    assert!(disagreements.is_empty(), "{}", disagreements.join("\n"));
}

#[test]
fn the_check_and_the_server_agree() {
    assert!(ALL_SETTINGS.len() >= 60);
    assert_agree(false);
}

#[test]
fn the_check_and_the_server_agree_for_a_user_without_rights() {
    if !Uid::effective().is_root() {
        eprintln!("skipped: the other test has run as this user");
        return;
    }
    let reaches_program = new_command(&["--version"], &[], true).output();
    if !reaches_program.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: another user cannot run the program in this folder");
        return;
    }
    assert_agree(true);
}

#[test]
fn a_server_is_checked_for_another_machine() {
    let arguments = ["config", "check", "--offline", "-u", "no-such-user", "-Y", "/nonexist"];
    let output = glasscache().args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn what_will_fail_later_is_named_at_the_start() {
    if !Uid::effective().is_root() {
        eprintln!("skipped: only root can start a server as another user");
        return;
    }
    let (files, _folder) = make_folder();
    let path = |name: &str| files.path(name).display().to_string();
    chown(files.path("secret"), Some(0), Some(0)).unwrap();
    let certificate = format!("ssl_chain_cert={},ssl_key={}", path("old.crt"), path("old.key"));
    let cases = [
        (format!("-u nobody -Y {}", path("secret")), "SIGHUP cannot reload it"),
        (format!("-Z -o {certificate}"), "expired"),
        ("-e /dev/null/nothing/memory".to_owned(), "the server runs without the file"),
        ("-m 1000000".to_owned(), "will kill it when it fills"),
    ];
    for (settings, expected) in cases {
        let arguments: Vec<String> = settings.split(' ').map(str::to_owned).collect();
        for (code, text) in [check(&arguments, false), serve(&arguments, false)] {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(code.is_none() && text.contains(expected), "{settings}: {code:?} {text}");
        }
    }
}

#[test]
fn more_connections_than_descriptors_are_lowered_and_refused_with_a_reply() {
    let program = env!("CARGO_BIN_EXE_glasscache");
    let script = format!("ulimit -n 300; exec {program} serve -p -1 -u root -m 64 -c 1000");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stderr(Stdio::piped());
    let mut server = crate::server::Server::run_with_stderr(command, Stdio::piped());
    let mut line = String::new();
    let mut stderr = BufReader::new(server.take_stderr());
    stderr.read_line(&mut line).unwrap();
    if line.contains("listens on") {
        eprintln!("skipped: this user may raise the limit on descriptors");
        return;
    }
    assert!(line.contains("1000 is lowered to 172: this user may open 300 descriptors"), "{line}");
    let connections: Vec<_> = (0..172).map(|_| server.connect()).collect();
    let mut refused = server.connect();
    assert_eq!(refused.read_line(), "ERROR Too many open connections");
    drop(connections);
}
