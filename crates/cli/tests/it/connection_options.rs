//! Every command that talks to a server reaches it plainly, encrypted, with a certificate, with a login and over a unix
//! socket; otherwise its error names what is missing.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::conformance::find_oracle;
use crate::encryption::Files;
use crate::server::{Server, glasscache, wait_until};

/// A kind of server, the flags and the environment by which commands reach it.
struct Kind {
    name: &'static str,
    server_flags: Vec<String>,
    options: Vec<String>,
    has_login: bool,
}

fn split(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn kinds(files: &Files) -> Vec<Kind> {
    let path = |name: &str| files.path(name).display().to_string();
    let certificate =
        format!("ssl_chain_cert={},ssl_key={}", path("server.crt"), path("server.key"));
    let trust = format!("--tls --tls-ca {} --tls-name localhost", path("ca.pem"));
    let kind = |name, server_flags: String, options: String, has_login| Kind {
        name,
        server_flags: split(&server_flags),
        options: split(&options),
        has_login,
    };
    let users = path("users");
    vec![
        kind("plain", String::new(), String::new(), false),
        kind("TLS", format!("-Z -o {certificate}"), trust.clone(), false),
        kind(
            "client certificate",
            format!("-Z -o {certificate},ssl_ca_cert={} -l mtls:127.0.0.1", path("ca.pem")),
            format!("{trust} --tls-cert {} --tls-key {}", path("client.crt"), path("client.key")),
            false,
        ),
        kind("login", format!("-Y {users}"), "--user app".to_owned(), true),
        kind(
            "TLS with login",
            format!("-Z -o {certificate} -Y {users}"),
            format!("{trust} --user app"),
            true,
        ),
        kind("unix socket", format!("-s {}", path("socket")), String::new(), false),
    ]
}

/// The commands, and the text that each prints. `{server}` is the address.
fn commands(folder: &str) -> Vec<(String, &'static str)> {
    let table = format!("--latency-out {folder}/latency.json");
    let profile = format!("profile -s {{server}} --calls 100 --sizes 10 --widths 1 {table}");
    let record = format!("record {{server}} --for 300ms --out {folder}/trace.csv");
    vec![
        ("ping -s {server}".to_owned(), "glasscache"),
        ("ping {server}".to_owned(), "glasscache"),
        ("set -s {server} greeting hello".to_owned(), ""),
        ("get -s {server} greeting".to_owned(), "hello"),
        ("stats {server} settings".to_owned(), "maxbytes"),
        ("stats -s {server} --interval-ms 1".to_owned(), "hit ratio"),
        ("keys {server}".to_owned(), "greeting"),
        ("why {server} --for-s 0.2".to_owned(), "get"),
        ("doctor {server} --seconds 0.2".to_owned(), "nothing to change"),
        ("top {server} --once --interval 0.2".to_owned(), "hit ratio"),
        ("slabs {server}".to_owned(), "class"),
        (record, "next"),
        (format!("record -s {{server}} --for 300ms --out {folder}/trace.csv"), "next"),
        ("bench -s {server} --for 200ms --warm-up 10ms --keys 100".to_owned(), "requests"),
        (profile, "get"),
        ("codec --from {server} --values 10".to_owned(), "Codec("),
        ("delete -s {server} greeting".to_owned(), ""),
    ]
}

fn run(command_line: &str, server: &str, kind: &Kind, options: &[String]) -> Output {
    let arguments = command_line.replace("{server}", server);
    let mut command: Command = glasscache();
    command.args(arguments.split(' ')).args(options);
    if kind.has_login && !options.is_empty() {
        command.env("GLASSCACHE_PASSWORD", "secret word");
    }
    command.output().unwrap()
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// A server that listens on a unix socket alone.
fn start_on_socket(path: &Path) -> Server {
    let mut command = glasscache();
    command.args(["serve", "-u", "root", "-s"]).arg(path).stderr(Stdio::null());
    let server = Server::from_child(command.spawn().unwrap(), 0);
    wait_until(|| UnixStream::connect(path).is_ok());
    server
}

#[test]
fn each_command_reaches_each_kind_of_server() {
    let files = Files::new();
    files.authority.sign("client", 2099);
    let folder = files.path("").display().to_string();
    for kind in kinds(&files) {
        let flags: Vec<&str> = kind.server_flags.iter().map(String::as_str).collect();
        let is_unix = kind.name == "unix socket";
        let server =
            if is_unix { start_on_socket(&files.path("socket")) } else { Server::start(&flags) };
        let address =
            if is_unix { files.path("socket").display().to_string() } else { server.address() };
        for (command_line, expected) in commands(folder.trim_end_matches('/')) {
            let output = run(&command_line, &address, &kind, &kind.options);
            let text = text_of(&output);
            assert_eq!(output.status.code(), Some(0), "{}: {command_line}: {text}", kind.name);
            assert!(text.contains(expected), "{}: {command_line}: {text}", kind.name);
        }
        for (command_line, _) in commands(folder.trim_end_matches('/')) {
            if kind.options.is_empty() {
                continue;
            }
            let output = run(&command_line, &address, &kind, &[]);
            let text = text_of(&output);
            let is_ping = command_line.starts_with("ping");
            if is_ping {
                // A health check needs neither a password nor a certificate.
                assert_eq!(output.status.code(), Some(0), "{}: {text}", kind.name);
                let names_wish =
                    text.contains("wants a login") || text.contains("encrypts (--tls)");
                assert!(names_wish, "{}: {text}", kind.name);
                continue;
            }
            assert_ne!(output.status.code(), Some(0), "{}: {command_line}: {text}", kind.name);
            let names_what_is_missing =
                ["--tls", "--user"].iter().any(|option| text.contains(option));
            assert!(names_what_is_missing, "{}: {command_line}: {text}", kind.name);
        }
    }
}

/// The kinds of server that a memcached 1.6.18 can be: it has no prefix for client certificates.
fn kinds_of_memcached(files: &Files) -> Vec<Kind> {
    let mut kinds = kinds(files);
    for kind in &mut kinds {
        let needs_certificate = kind.server_flags.iter().any(|flag| flag.starts_with("mtls:"));
        if needs_certificate {
            kind.server_flags.truncate(kind.server_flags.len() - 2);
            if let Some(options) = kind.server_flags.last_mut() {
                options.push_str(",ssl_verify_mode=2");
            }
        }
    }
    kinds.retain(|kind| kind.name != "unix socket");
    kinds
}

#[test]
fn each_command_reaches_each_kind_of_memcached() {
    let Some(path) = find_oracle() else {
        eprintln!("left out: no memcached is named for the tests");
        return;
    };
    let files = Files::new();
    files.authority.sign("client", 2099);
    let folder = files.path("").display().to_string();
    for kind in kinds_of_memcached(&files) {
        let flags: Vec<&str> = kind.server_flags.iter().map(String::as_str).collect();
        let server = Server::memcached_with(&path, &flags);
        let address = server.address();
        for (command_line, expected) in commands(folder.trim_end_matches('/')) {
            // memcached 1.6.18 refuses a resumed session of a client with a certificate, and these connect repeatedly.
            let resumes = command_line.starts_with("bench") || command_line.starts_with("profile");
            if resumes && kind.name == "client certificate" {
                continue;
            }
            let output = run(&command_line, &address, &kind, &kind.options);
            let text = text_of(&output);
            assert_eq!(output.status.code(), Some(0), "{}: {command_line}: {text}", kind.name);
            let expected = if expected == "glasscache" { "1.6." } else { expected };
            assert!(text.contains(expected), "{}: {command_line}: {text}", kind.name);
        }
    }
}

#[test]
fn a_server_is_named_in_one_way_at_a_time() {
    for command_line in [
        "bench 127.0.0.1:1 -s 127.0.0.1:2",
        "profile 127.0.0.1:1 --server 127.0.0.1:2",
        "record 127.0.0.1:1 -s 127.0.0.1:2 --out x.csv",
        "warm 127.0.0.1:1 127.0.0.1:2 --from 127.0.0.1:3 --to 127.0.0.1:4",
    ] {
        let output = glasscache().args(command_line.split(' ')).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{command_line}");
        assert!(text_of(&output).contains("cannot be used with"), "{}", text_of(&output));
    }
    let output = glasscache().args(["warm", "127.0.0.1:1", "127.0.0.1:1"]).output().unwrap();
    assert!(text_of(&output).contains("name two servers"), "{}", text_of(&output));
}

#[test]
fn options_come_from_the_environment_too_and_contradictions_are_refused() {
    let files = Files::new();
    let path = |name: &str| files.path(name).display().to_string();
    let certificate =
        format!("ssl_chain_cert={},ssl_key={}", path("server.crt"), path("server.key"));
    let server = Server::start(&["-Z", "-o", &certificate, "-Y", &path("users")]);
    let ping = |variables: &[(&str, &str)]| {
        let mut command = glasscache();
        command.args(["ping", "--login", &server.address()]);
        command.envs(variables.iter().copied()).output().unwrap()
    };
    let authority = path("ca.pem");
    let mut variables = vec![
        ("GLASSCACHE_TLS", "true"),
        ("GLASSCACHE_TLS_CA", authority.as_str()),
        ("GLASSCACHE_TLS_NAME", "localhost"),
        ("GLASSCACHE_LOGIN", "app"),
        ("GLASSCACHE_PASSWORD", "secret word"),
    ];
    let output = ping(&variables);
    assert_eq!(output.status.code(), Some(0), "{}", text_of(&output));
    variables.truncate(3);
    assert!(text_of(&ping(&variables)).contains("unauthenticated"));
    let contradiction = glasscache().args(["ping", "--tls-ca", &authority]).output().unwrap();
    assert_eq!(contradiction.status.code(), Some(2));
    assert!(text_of(&contradiction).contains("--tls-ca has no effect without --tls"));
}

#[test]
fn an_unreachable_server_hides_no_statistics_of_others() {
    let server = Server::start(&[]);
    let servers = format!("127.0.0.1:1,127.0.0.1:{}", server.port());
    for arguments in [
        &["stats", "-s", &servers, "--interval-ms", "1"][..],
        &["stats", "-s", &servers, "settings"],
        &["stats", &servers, "--json"],
    ] {
        let output = glasscache().args(arguments).output().unwrap();
        let text = text_of(&output);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains(&server.address()), "{text}");
        assert!(text.contains("127.0.0.1:1 ("), "{text}");
    }
}
