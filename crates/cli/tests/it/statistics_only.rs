//! `-l noauth:ADDRESS`: statistics for exporters at a server whose clients log in.

use crate::server::{Server, connect_to, glasscache};

const REFUSAL: &str = "CLIENT_ERROR this address serves statistics only (noauth:)";

/// A server with users, and a second address for statistics.
fn start_with_users(flags: &[&str]) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, "ada:secret\n").unwrap();
    let addresses = "127.0.0.1,noauth:127.0.0.1:0";
    let mut given = vec!["-A", "-Y", users.to_str().unwrap(), "-l", addresses];
    given.extend(flags);
    let server = Server::start(&given);
    (folder, server)
}

#[test]
fn exporters_read_statistics_without_a_login_and_nothing_else() {
    let (_folder, server) = start_with_users(&[]);
    let port = server.second_port();
    let mut client = server.connect();
    assert_eq!(client.request("set auth 0 0 10\r\nada secret\r\n"), "STORED");
    assert_eq!(client.request("set secret 0 0 1\r\nx\r\n"), "STORED");
    let mut exporter = connect_to(port);
    assert!(exporter.request("version\r\n").starts_with("VERSION"));
    assert!(exporter.request("stats\r\n").starts_with("STAT pid"));
    exporter.read_through(b"END\r\n");
    exporter.send(b"stats conns\r\n");
    let rows = String::from_utf8(exporter.read_through(b"END\r\n")).unwrap();
    assert!(rows.contains(&format!("tcp:127.0.0.1:{port}")), "{rows}");
    assert_eq!(exporter.request("get secret\r\n"), REFUSAL);
    assert_eq!(exporter.request("set secret 0 0 1\r\ny\r\n"), REFUSAL);
    assert!(exporter.is_closed_or_reset());
    assert_eq!(client.request("get secret\r\n"), "VALUE secret 0 1");
    assert_eq!(client.read_line(), "x");
    // The other address requires the login as before.
    assert_eq!(server.connect().request("get secret\r\n"), "CLIENT_ERROR unauthenticated");
}

#[test]
fn the_small_commands_for_statistics_work_there() {
    let (_folder, server) = start_with_users(&[]);
    let address = format!("127.0.0.1:{}", server.second_port());
    for (arguments, expected_code) in [
        (&["ping", "--login"][..], 0),
        (&["stats"], 0),
        (&["stats", "settings"], 0),
        (&["get", "a"], 1),
    ] {
        let output = glasscache().args(arguments).args(["-s", &address]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(expected_code), "{arguments:?}: {text}");
        assert_eq!(text.contains("statistics only"), expected_code == 1, "{text}");
    }
}

#[test]
fn a_public_address_for_statistics_needs_the_consent() {
    let check = |arguments: &[&str]| {
        let mut command = glasscache();
        command.args(["config", "check", "--offline", "-l", "127.0.0.1,noauth:0.0.0.0:11212"]);
        let output = command.args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for login in [&[][..], &["-Y", "/dev/null"]] {
        let (code, text) = check(login);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("could read the statistics without a login"), "{text}");
        let (code, text) = check(&[login, &["--public"]].concat());
        assert_eq!(code, Some(0), "{text}");
    }
}
