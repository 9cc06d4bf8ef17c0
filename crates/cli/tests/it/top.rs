//! `top --once` over real servers: the columns of damemtop first, `-` for what is not known, a reason for a dead server.

use std::process::Command;

use serde_json::Value;

use crate::server::{Server, glasscache};

fn top(arguments: &[&str]) -> Command {
    let mut command = glasscache();
    command.args(["top", "--interval", "1", "--timeout-ms", "10000"]).args(arguments);
    command
}

#[test]
fn each_server_has_a_row_and_a_dead_one_the_reason() {
    let server = Server::start(&["-m", "64"]);
    let address = server.address();
    let mut connection = server.connect();
    assert_eq!(connection.request("set k 0 0 1\r\nx\r\n"), "STORED");
    let mut child = top(&["--json", "--once", &address, "127.0.0.1:1"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut is_ended = false;
    while !is_ended {
        connection.send(b"mg k\r\nmg none\r\n");
        connection.read_through(b"EN\r\n");
        is_ended = child.try_wait().unwrap().is_some();
    }
    let output = child.wait_with_output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [row, dead] = &document["result"].as_array().unwrap()[..] else {
        panic!("{document}");
    };
    assert_eq!((output.status.code(), &row["server"]), (Some(0), &Value::from(address)));
    assert!((0.4..0.6).contains(&row["hit_ratio"].as_f64().unwrap()), "{row}");
    assert!(row["get_hits_per_s"].as_f64().unwrap() > 0.0, "{row}");
    assert!(row["fill"].as_f64().unwrap() < 0.5 && row["items"] == 1, "{row}");
    assert_eq!((&dead["server"], &dead["fill"]), (&Value::from("127.0.0.1:1"), &Value::Null));
    assert!(dead["error"].as_str().unwrap().contains("refused"), "{dead}");
}

#[test]
fn without_a_terminal_the_table_is_printed_once() {
    let server = Server::start(&[]);
    let address = server.address();
    let output = top(&[&address, "127.0.0.1:1"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((output.status.code(), lines.len()), (Some(0), 3), "{text}");
    let titles: Vec<&str> = lines[0].split_whitespace().take(5).collect();
    assert_eq!(titles, ["server", "version", "fill", "hit", "ratio"]);
    assert!(lines[1].starts_with(&address) && lines[1].contains(" - "), "{text}");
    assert!(lines[2].starts_with("127.0.0.1:1 ") && lines[2].contains("refused"), "{text}");
    assert_eq!(top(&["127.0.0.1:1"]).output().unwrap().status.code(), Some(3));
}

#[test]
fn servers_are_found_in_a_file_or_at_the_endpoint_of_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let [list, cluster] = ["list", "cluster"].map(|name| folder.path().join(name));
    let node = Server::start(&[]);
    let address = node.address();
    std::fs::write(&list, format!("{address} # one of two\n127.0.0.1:1\n")).unwrap();
    std::fs::write(&cluster, format!("1\nnode.example|127.0.0.1|{}\n", node.port())).unwrap();
    let endpoint = Server::start(&["--cluster-file", cluster.to_str().unwrap()]);
    let find = |source: &str| {
        let output = top(&["--json", "--once", "--discover", source]).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = document["result"].as_array().cloned().unwrap_or_default();
        let is_up =
            |row: Value| (row["server"].as_str().unwrap().to_owned(), row["error"].is_null());
        (output.status.code(), rows.into_iter().map(is_up).collect::<Vec<_>>(), document)
    };
    let file = format!("file:{}", list.display());
    let expected = vec![(address.clone(), true), ("127.0.0.1:1".to_owned(), false)];
    let (code, mut rows, _) = find(&file);
    rows.sort_by_key(|(_, is_up)| !is_up);
    assert_eq!((code, rows), (Some(0), expected));
    for source in [
        format!("file:{}", cluster.display()),
        format!("elasticache:127.0.0.1:{}", endpoint.port()),
        format!("dns:127.0.0.1:{}", node.port()),
    ] {
        let (code, rows, _) = find(&source);
        assert_eq!((code, rows), (Some(0), vec![(address.clone(), true)]), "{source}");
    }
    let (code, _, document) = find("file:/nonexistent/servers");
    let message = document["error"]["message"].as_str().unwrap();
    assert_eq!(code, Some(3));
    assert!(message.starts_with("--discover: /nonexistent/servers: No such file"), "{message}");
}

#[test]
fn an_invalid_source_and_one_with_named_servers_are_refused() {
    for (arguments, reason) in [
        (
            &["--discover", "cache.example"][..],
            "write dns:HOST:PORT, elasticache:HOST:PORT or file:",
        ),
        (&["--discover", "dns:a", "b:1"], "cannot be used with"),
    ] {
        let output = top(arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(reason), "{text}");
    }
}
