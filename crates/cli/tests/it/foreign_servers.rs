//! Commands that read from a server, at an address where a web server listens.

use glasscache_peers::Peer;

use crate::server::glasscache;

/// The address of a peer that replies to whatever it receives with `reply`, and closes.
fn start_peer(reply: impl Into<String>) -> String {
    let reply = reply.into();
    let peer = Peer::start(move |mut connection| {
        connection.read_chunk()?;
        connection.write(&reply)
    });
    peer.address().to_string()
}

/// Exit code and message of a command.
fn run_and_read_failure(arguments: &[&str]) -> (Option<i32>, String) {
    let output = glasscache().args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_web_server_is_named_as_such_with_its_reply() {
    let address = start_peer("HTTP/1.1 400 Bad Request\r\n\r\n");
    let size_argument = format!("stats:{address}");
    for arguments in [
        &["slabs", &address][..],
        &["bench", "--closed", "--for", "1s", "--size", &size_argument],
        &["codec", "--from", &address],
        &["keys", "--server", &address],
        &["profile", &address],
        &["bench", &address],
    ] {
        let (code, message) = run_and_read_failure(arguments);
        assert_eq!(code, Some(4), "{arguments:?}: {message}");
        let expected = format!("{address} is not a memcached server: its reply to `");
        assert!(message.contains(&expected), "{arguments:?}: {message}");
        assert!(message.contains("HTTP/1.1 400"), "{arguments:?}: {message}");
        assert!(!message.contains("hint: a server started with -X"));
    }
}

#[test]
fn statistics_without_end_are_refused() {
    let rows: Vec<String> = (0..1_048_600).map(|row| format!("STAT {row} 1\r\n")).collect();
    let (code, message) = run_and_read_failure(&["slabs", &start_peer(rows.concat())]);
    assert_eq!(code, Some(3), "{message}");
    assert!(message.contains("more than 1048576 rows"), "{message}");
}

#[test]
fn an_error_of_a_server_is_quoted_as_its_own() {
    let address = start_peer("SERVER_ERROR out of memory\r\n");
    let (code, message) = run_and_read_failure(&["slabs", &address]);
    assert_eq!(code, Some(4), "{message}");
    let expected = format!("{address} refuses `stats settings`: SERVER_ERROR out of memory");
    assert!(message.contains(&expected), "{message}");
}

#[test]
fn a_server_that_refuses_dumps_is_not_taken_for_another() {
    let address = start_peer("ERROR metadump not allowed\r\n");
    let (code, message) = run_and_read_failure(&["codec", "--from", &address]);
    assert_eq!(code, Some(4), "{message}");
    assert!(message.contains("lists no keys: ERROR metadump not allowed"));
    assert!(message.contains("hint: a server started with -X refuses dumps"));
}
