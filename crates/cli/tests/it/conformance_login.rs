//! The cases of `conformance/login/` against our server with users, or against a real memcached (`make oracle`).
//!
//! A reply is read to its expected length; before a login no further request could mark its end.

use crate::conformance::{Case, check_cases, expand_repetitions, find_oracle};
use crate::server::Server;

/// The users of the cases with their passwords, as the file of users has them.
const USERS: &str = "foo:bar\nother:password\n";

#[test]
fn every_case_of_a_login_gets_the_expected_replies() {
    let folder = tempfile::tempdir().unwrap();
    let users_path = folder.path().join("users");
    std::fs::write(&users_path, USERS).unwrap();
    let users_file = users_path.to_str().unwrap();
    let server = match find_oracle() {
        Some(path) => Server::memcached_with(&path, &["-Y", users_file]),
        None => Server::start(&["-Y", users_file]),
    };
    // No case depends on the version, which the server would not tell before a login.
    check_cases("login", 1, &[], |case| run(&server, case));
}

fn run(server: &Server, case: &Case<(String, String)>) -> Result<(), String> {
    let mut connection = server.connect();
    for (send, expected) in &case.steps {
        // A byte above 127 stands for itself, not for its encoding.
        let request: Vec<u8> = expand_repetitions(send).chars().map(|c| c as u8).collect();
        connection.send(&request);
        let reply = connection.read_exactly(expected.len());
        if reply != expected.as_bytes() {
            let reply_text = String::from_utf8_lossy(&reply).into_owned();
            return Err(format!("{send:?} got {reply_text:?} instead of {expected:?}"));
        }
    }
    // Unread input makes the close a reset.
    if case.closes && !connection.is_closed_or_reset() {
        return Err("the server does not close".to_owned());
    }
    Ok(())
}
