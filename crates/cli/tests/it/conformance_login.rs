//! The cases of `conformance/login/` against our server with users, or against a real memcached (`make oracle`).
//!
//! A reply is read to its expected length; before a login no further request could mark its end.

use std::path::Path;

use serde::Deserialize;

use crate::conformance::{ORACLE_VARIABLE, files_in, repeat, stem};
use crate::server::Server;

/// The user and the password of the cases.
const USERS: &str = "foo:bar\nother:password\n";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    steps: Vec<(String, String)>,
    #[serde(default)]
    differs: Option<String>,
    #[serde(default)]
    closes: bool,
}

#[test]
fn every_case_of_a_login_gets_the_expected_replies() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, USERS).unwrap();
    let users = users.to_str().unwrap();
    let oracle = std::env::var_os(ORACLE_VARIABLE);
    let server = match &oracle {
        Some(path) => Server::memcached_with(path, &["-Y", users]),
        None => Server::start(&["-Y", users]),
    };
    let mut failures = Vec::new();
    for path in files_in(Path::new("login"), 1) {
        let text = std::fs::read_to_string(&path).unwrap();
        let file: File =
            toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for case in file.case {
            if oracle.is_none() || case.differs.is_none() {
                let outcome = run(&server, &case);
                failures.extend(
                    outcome
                        .err()
                        .map(|why| format!("{}: {}: {why}", stem(&path), case.name)),
                );
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn run(server: &Server, case: &Case) -> Result<(), String> {
    let mut wire = server.connect();
    for (send, expected) in &case.steps {
        // A byte above 127 stands for itself, not for its encoding.
        let bytes: Vec<u8> = repeat(send).chars().map(|c| c as u8).collect();
        wire.send(&bytes);
        let reply = wire.exactly(expected.len());
        if reply != expected.as_bytes() {
            let reply = String::from_utf8_lossy(&reply).into_owned();
            return Err(format!("{send:?} got {reply:?} instead of {expected:?}"));
        }
    }
    // Unread input makes the close a reset.
    if case.closes && !wire.is_closed_or_reset() {
        return Err("the server does not close".to_owned());
    }
    Ok(())
}
