//! `ping`, `get`, `set`, `delete`, `stats` and `keys` against our server: output and exit codes.

use std::io::{Read, Write};
use std::process::Stdio;

use crate::server::{Server, glasscache};

struct RunResult {
    code: i32,
    stdout: String,
    stderr: String,
}

fn run_at(server: &str, arguments: &[&str], input: &str) -> RunResult {
    let mut child = glasscache()
        .args(arguments)
        .env("GLASSCACHE_SERVER", server)
        .args(["--timeout-ms", "10000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that reads no input may exit before this is written.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    RunResult {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn set_values_are_read_back() {
    let server = Server::start(&[]);
    let address = server.address();
    let run = |arguments: &[&str]| run_at(&address, arguments, "from stdin");
    assert_eq!(run(&["set", "greeting", "hello", "--flags", "7"]).stdout, "stored\n");
    assert_eq!(run(&["get", "greeting"]).stdout, "hello");
    assert_eq!(run(&["set", "piped"]).code, 0);
    assert_eq!(run(&["get", "piped"]).stdout, "from stdin");
    let json = run(&["get", "greeting", "nothing", "--json"]);
    assert_eq!((json.code, json.stderr.as_str()), (1, ""));
    let document: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let first = &document["result"][0];
    assert_eq!(first["value"], "hello");
    assert_eq!(first["flags"], 7);
    let refused = run(&["set", "greeting", "again", "--add"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (1, "not stored\n"));
    assert_eq!(run(&["set", "greeting", "later", "--replace", "--ttl", "9999999"]).code, 0);
    assert_eq!(run(&["get", "greeting"]).stdout, "later");
    assert_eq!(run(&["delete", "greeting"]).code, 0);
    let missing = run(&["delete", "greeting"]);
    assert_eq!(
        (missing.code, missing.stdout.as_str(), missing.stderr.as_str()),
        (1, "", "glasscache: greeting: not there\n")
    );
}

#[test]
fn prints_version_counters_and_keys() {
    let server = Server::start(&[]);
    let address = server.address();
    let run = |arguments: &[&str]| run_at(&address, arguments, "");
    assert!(run(&["ping"]).stdout.starts_with(&format!("{address} 1.6.")));
    run(&["set", "a%b", "x"]);
    assert_eq!(run(&["keys"]).stdout, "a%b\n");
    assert!(run(&["keys", "--long"]).stdout.contains("size="));
    assert_eq!(run(&["keys", "--limit", "0"]).stdout, "");
    let stats: serde_json::Value = serde_json::from_str(&run(&["stats", "--json"]).stdout).unwrap();
    assert_eq!(stats["result"][0]["rows"]["curr_items"], 1);
    assert!(run(&["stats", "settings"]).stdout.contains("item_size_max"));
}

#[test]
fn ping_reports_every_server_though_one_is_down_and_one_is_silent() {
    let (first, second) = (Server::start(&[]), Server::start(&[]));
    let silent_address = glasscache_peers::Peer::silent().address().to_string();
    let [first_address, second_address] = [&first, &second].map(Server::address);
    let servers = format!("{silent_address},{first_address},127.0.0.1:1,{second_address}");
    let arguments = ["ping", "--json", "--timeout-ms", "2000", "-s", &servers];
    let pinged = glasscache().args(arguments).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&pinged.stdout).unwrap();
    let rows = document["result"].as_array().unwrap();
    let responding: Vec<_> = rows.iter().map(|row| row["server"].clone()).collect();
    assert_eq!(
        (pinged.status.code(), responding),
        (Some(3), vec![first_address.into(), second_address.into()])
    );
    // The time of one server has no part of another's: the silent one took two seconds.
    assert!(rows.iter().all(|row| row["took_ms"].as_f64().unwrap() < 2000.0));
    let message = document["error"]["message"].as_str().unwrap();
    assert!(message.contains(&silent_address) && message.contains("127.0.0.1:1 "), "{message}");
}

#[test]
fn stats_prints_a_summary_and_every_group() {
    let server = Server::start(&[]);
    let address = server.address();
    let run = |arguments: &[&str]| run_at(&address, arguments, "");
    assert_eq!(
        run(&["stats", "detail", "on"]).stdout,
        "counting by key prefix; see glasscache stats detail dump\n"
    );
    run(&["set", "user:1", "x"]);
    run(&["get", "user:1"]);
    run(&["get", "user:2"]);
    let dump = run(&["stats", "detail", "dump"]);
    assert_eq!(dump.stdout, "user  get 2 hit 1 set 1 del 0\n");
    let summary = run(&["stats", "--interval-ms", "1"]).stdout;
    assert_eq!(summary.lines().count(), 10, "{summary}");
    assert!(summary.contains("hit ratio    50.0 % since start"), "{summary}");
    assert!(run(&["stats", "--all"]).stdout.lines().count() > 80);
    let reset = run(&["stats", "reset"]);
    assert_eq!((reset.code, reset.stdout.as_str()), (0, "counters set to 0\n"));
    let unknown = run(&["stats", "nosuch"]);
    assert_eq!(unknown.code, 1);
    assert!(unknown.stderr.contains("the group was \"nosuch\""), "{}", unknown.stderr);
    let without_effect = run(&["stats", "--all", "--interval-ms", "5"]);
    assert_eq!(without_effect.code, 2);
    assert_eq!(run(&["stats", "--json", "--interval-ms", "5"]).code, 2);
}

#[test]
fn why_splits_misses_by_cause_and_prefix() {
    let server = Server::start(&[]);
    let address = server.address();
    let mut child = glasscache()
        .args(["why", "--for-s", "3", "--json", "--server", &address])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr_start = [0; 8];
    child.stderr.as_mut().unwrap().read_exact(&mut stderr_start).unwrap();
    assert_eq!(&stderr_start, b"watching");
    let mut connection = server.connect();
    for (request, reply) in [
        ("set a:1 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("get a:1\r\n", "VALUE a:1 0 1\r\nx\r\nEND\r\n"),
        ("delete a:1\r\n", "DELETED\r\n"),
        ("get a:1\r\n", "END\r\n"),
        ("get b:1\r\n", "END\r\n"),
        ("set b:1 0 0 1\r\nx\r\n", "STORED\r\n"),
    ] {
        connection.send(request.as_bytes());
        assert_eq!(connection.read_through(reply.as_bytes()), reply.as_bytes());
    }
    let output = child.wait_with_output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = &document["result"]["findings"];
    assert!(findings["counted"].is_object() && findings["since_start"].is_object());
    let causes = &findings["causes"];
    assert_eq!(causes["gets"], 3, "{document}");
    assert_eq!(causes["misses"], 2);
    assert_eq!(causes["removed"], 1);
    assert_eq!(causes["unseen"], 1);
    assert_eq!(document["result"]["findings"]["prefixes"].as_array().unwrap().len(), 2);
}

#[test]
fn why_rejects_invalid_options() {
    for (arguments, expected_words) in [
        (&["why", "--for-s", "0"][..], "--for-s"),
        (&["why", "--prefix-of", ""], "--prefix-of"),
        (&["why", "-s", "127.0.0.1:1,127.0.0.1:2"], "one server at a time"),
    ] {
        let refused = run_at("127.0.0.1:1", arguments, "");
        assert_eq!(refused.code, 2, "{arguments:?}");
        assert!(refused.stderr.contains(expected_words), "{}", refused.stderr);
    }
    assert_eq!(run_at("127.0.0.1:1", &["why"], "").code, 3);
}

#[test]
fn each_command_prints_json() {
    for arguments in [
        &["config", "check", "-m", "64", "-u", "root", "--json"][..],
        &["ping", "-s", "127.0.0.1:1", "--json"],
    ] {
        let output = glasscache().args(arguments).output().unwrap();
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["schema"], 2, "{arguments:?}");
    }
}

#[test]
fn a_failing_command_prints_json_too() {
    let failed = run_at("127.0.0.1:1", &["ping", "--json"], "");
    let document: serde_json::Value = serde_json::from_str(&failed.stdout).unwrap();
    assert_eq!((failed.code, &document["error"]["exit"]), (3, &3.into()));
    assert!(document["error"]["message"].as_str().unwrap().contains("127.0.0.1:1"));
    assert!(document["error"]["message"].as_str().unwrap().contains("--server"));

    let failed = glasscache().args(["simulate", "log", "--seed", "8", "--json"]).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!(failed.status.code(), Some(2));
    assert_eq!(document["error"]["exit"], 2);
    assert_eq!(
        document["error"]["message"],
        "the following required arguments were not provided: --draw"
    );
}

#[test]
fn rejects_options_of_another_mode() {
    for (arguments, expected_option) in [
        (&["simulate", "log", "--memory", "8M"][..], "--search"),
        (&["simulate", "log", "--seed", "8"], "--draw"),
    ] {
        let output = glasscache().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(expected_option), "{text}");
    }
}

#[test]
fn config_check_prints_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.toml");
    std::fs::write(&file, "port = \"11211\"").unwrap();
    let output = glasscache()
        .args(["config", "check", "--offline", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("warning: port") && text.contains("write port = 11211"), "{text}");
}

#[test]
fn generate_reports_replaced_files_and_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.csv");
    let generate = || {
        let mut command = glasscache();
        command.args(["generate", "zipf", "--requests", "10"]).arg(&file);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let first = generate();
    assert!(first.contains("written, 10 requests"), "{first}");
    assert!(first.contains("next: glasscache curve"), "{first}");
    assert!(generate().contains("replaced with 10 requests"));
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let output = glasscache().args(["completions", "bash"]).output().unwrap();
    let script = String::from_utf8(output.stdout).unwrap();
    assert!(script.contains("simulate") && script.contains("why"));
    let folder = tempfile::tempdir().unwrap();
    let man_output = glasscache().arg("man").arg(folder.path()).output().unwrap();
    assert!(man_output.status.success());
    for page in ["glasscache.1", "glasscache-serve.1", "glasscache-why.1"] {
        assert!(folder.path().join(page).is_file(), "{page}");
    }
    assert_eq!(glasscache().args(["man", "/nowhere"]).output().unwrap().status.code(), Some(3));
}

#[test]
fn keys_are_printed_in_one_line_each_and_apart() {
    let server = Server::start(&[]);
    let address = server.address();
    let mut connection = server.connect();
    // "a\r\nuser:17", an escape sequence, two bytes that are not UTF-8, "a b", "a%20b", "caf\u{e9}".
    for key in ["YQ0KdXNlcjoxNw==", "G1syShg=", "/w==", "/g==", "YSBi", "YSUyMGI=", "Y2Fmw6k="] {
        assert_eq!(connection.request(&format!("ms {key} 1 b\r\nx\r\n")), "HD");
    }
    let expected = ["%1B[2J%18", "%FE", "%FF", "a%0D%0Auser:17", "a%20b", "a%2520b", "caf\u{e9}"];
    let listed = run_at(&address, &["keys"], "").stdout;
    let mut keys: Vec<&str> = listed.lines().collect();
    keys.sort_unstable();
    assert_eq!(keys, expected);
    let document: serde_json::Value =
        serde_json::from_str(&run_at(&address, &["keys", "--json"], "").stdout).unwrap();
    let rows = document["result"].as_array().unwrap();
    let mut keys: Vec<&str> = rows.iter().map(|row| row["key"].as_str().unwrap()).collect();
    keys.sort_unstable();
    assert_eq!(keys, expected);
}

#[test]
fn exit_codes_distinguish_usage_errors_from_missing_keys() {
    let unreachable_address = "127.0.0.1:1";
    let unreachable = run_at(unreachable_address, &["ping"], "");
    assert_eq!(unreachable.code, 3, "{}", unreachable.stderr);
    assert!(unreachable.stderr.contains("hint: "), "{}", unreachable.stderr);
    assert!(unreachable.stderr.contains("--server"), "{}", unreachable.stderr);
    assert!(!unreachable.stderr.contains("11211"), "{}", unreachable.stderr);
    assert_eq!(run_at(unreachable_address, &["keys"], "").code, 3);
    let usage = run_at(unreachable_address, &["get", "a b"], "");
    assert_eq!(usage.code, 2);
    assert!(usage.stderr.contains("must be 1 to 250 bytes"), "{}", usage.stderr);
    assert_eq!(run_at("no port:x", &["ping"], "").code, 2);
}
