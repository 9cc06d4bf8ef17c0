//! `record` over real sockets, against a server that prints known lines and then closes the connection.

use std::path::Path;
use std::process::Output;
use std::sync::mpsc::channel;

use glasscache_peers::Peer;

use super::server::glasscache;

/// A watch of memcached 1.6.18: a miss, the fill with its own lookup, a hit, and lines that were not printed in time.
const LINES: &str = "OK\r
ts=5.10 gid=1 type=item_get key=user:1 status=not_found clsid=0 cfd=25 size=0
ts=5.20 gid=2 type=item_get key=user:1 status=not_found clsid=0 cfd=25 size=0
ts=5.21 gid=3 type=item_store key=user:1 status=stored cmd=set ttl=60 clsid=1 cfd=25 size=5
skipped=2
ts=5.30 gid=4 type=item_get key=user:1 status=found clsid=1 cfd=25 size=5
";

/// Records into `file` from a server whose whole reply is `reply`.
fn run_record(file: &Path, reply: &'static str, arguments: &[&str]) -> Output {
    let (sender, requests) = channel();
    let peer = Peer::start(move |mut connection| {
        sender.send(connection.read_line()?).unwrap();
        connection.write(reply)
    });
    let address = peer.address().to_string();
    let mut command = glasscache();
    command.args(["record", &address, "--for", "10m", "--out"]);
    let output = command.arg(file).args(arguments).output().unwrap();
    assert_eq!(requests.recv().unwrap(), "watch fetchers mutations");
    output
}

#[test]
fn what_was_read_before_the_server_went_away_is_in_a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.csv");
    let output = run_record(&file, LINES, &["--json"]);
    assert_eq!(output.status.code(), Some(3));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!({ "gets": 2, "writes": 1, "skipped_lines": 2 });
    assert_eq!(document["result"], expected);
    assert_eq!(document["error"]["exit"], 3);
    let text = std::fs::read_to_string(&file).unwrap();
    let without_key = |line: &str| -> String {
        let cells: Vec<&str> = line.split(',').collect();
        [&cells[..1], &cells[2..]].concat().join(",")
    };
    let rows: Vec<String> = text.lines().skip(1).map(without_key).collect();
    assert_eq!(rows, ["5.000010,,get,", "5.000021,5,set,60", "5.000030,5,get,"]);
}

#[test]
fn lines_that_the_servers_threads_dropped_are_reported_as_skipped() {
    let peer = Peer::start_numbered(|number, mut connection| {
        connection.read_line()?;
        if number == 0 {
            connection.write(LINES)?;
            return connection.wait_for_end();
        }
        let dropped = if number == 1 { 10 } else { 17 };
        connection.write(format!("STAT pid 1\r\nSTAT log_worker_dropped {dropped}\r\nEND\r\n"))
    });
    let address = peer.address().to_string();
    let folder = tempfile::tempdir().unwrap();
    let mut command = glasscache();
    command.args(["--json", "record", &address, "--for", "300ms", "--out"]);
    let output = command.arg(folder.path().join("trace.csv")).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!({ "gets": 2, "writes": 1, "skipped_lines": 2 + 7 });
    assert_eq!(document["result"], expected);
}

#[test]
fn an_old_file_is_not_replaced_by_a_partial_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.csv");
    std::fs::write(&file, "key\n1\n").unwrap();
    let output = run_record(&file, LINES, &[]);
    assert_eq!(output.status.code(), Some(3));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("2 gets and 1 writes had been read, the file is left as it was"),
        "{message}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "key\n1\n");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_web_server_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.parquet");
    let output = run_record(&file, "HTTP/1.1 400 Bad Request\r\n\r\n", &[]);
    assert_eq!(output.status.code(), Some(4));
    let message = String::from_utf8(output.stderr).unwrap();
    let expected = "is not a memcached server: its reply to `watch fetchers mutations` was \"HTTP/1.1 400 Bad Request\"";
    assert!(message.contains(expected), "{message}");
    assert!(!file.exists());

    let output = run_record(&file, "ERROR\r\n", &[]);
    assert_eq!(output.status.code(), Some(3));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("refuses to be watched"), "{message}");
}

#[test]
fn an_unreachable_server_gets_a_hint_about_the_argument() {
    let folder = tempfile::tempdir().unwrap();
    let output = glasscache()
        .args(["record", "127.0.0.1:1", "--for", "1s", "--out"])
        .arg(folder.path().join("trace.csv"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("glasscache record HOST:PORT"), "{message}");
    assert!(!message.contains("--server"), "{message}");
}
