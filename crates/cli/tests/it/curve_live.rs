//! `curve SERVER --live`: the curve of a running server, or why there is none.

use serde_json::Value;

use crate::server::{Server, glasscache};

#[test]
fn a_server_that_has_just_started_reports_why_it_has_no_curve() {
    let server = Server::start(&["-m", "64"]);
    let address = server.address();
    let output = glasscache().args(["curve", &address, "--live", "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &document["result"];
    let state = result["state"].as_str().unwrap();
    assert!(["too_few", "warming"].contains(&state), "{document}");
    assert_eq!((output.status.code(), &result["server"]), (Some(1), &Value::from(address)));
    assert_eq!(result["rows"], Value::Array(Vec::new()));
    assert!(result["sentence"].as_str().unwrap().contains("curve"), "{document}");
}

#[test]
fn a_server_without_a_curve_is_named_as_such() {
    let output = glasscache().args(["curve", "127.0.0.1:1", "--live"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let Some(path) = std::env::var_os("MEMCACHED") else {
        return;
    };
    let server = Server::memcached(&path);
    let address = server.address();
    let output = glasscache().args(["curve", &address, "--live"]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("only a glasscache has"), "{message}");
}
