//! `replay` against real servers: the calls of the simulator, the forecast as a file, and what ends it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use super::server::{Server, glasscache};

/// A tolerance of the forecast (`--within`) so wide that no time decides a test.
const WIDE_TOLERANCE_PERCENT: &str = "1000000";

/// A generated log in `folder/site`, and a strategy file for it in `folder/best.strategy`.
fn write_log_with_strategy(folder: &Path, strategy: &str) {
    run_successfully(
        folder,
        &["generate", "topic-tree", "site", "--requests", "400", "--items", "200"],
    );
    run_successfully(
        folder,
        &["simulate", "site", "--strategies", strategy, "--save", "best.strategy"],
    );
}

fn run_successfully(folder: &Path, arguments: &[&str]) -> Output {
    let output = glasscache().current_dir(folder).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    output
}

fn run_replay(folder: &Path, server: &Server, arguments: &[&str]) -> Output {
    run_replay_on(folder, &server.address(), arguments)
}

fn run_replay_on(folder: &Path, target: &str, arguments: &[&str]) -> Output {
    let fixed_arguments =
        ["replay", "site", "--target", target, "--strategy", "best.strategy", "--json"];
    let mut command = glasscache();
    command
        .current_dir(folder)
        .args(fixed_arguments)
        .args(["--within", WIDE_TOLERANCE_PERCENT])
        .args(arguments);
    command.output().unwrap()
}

fn parse_document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The names of the forecasts in the log's folder.
fn list_forecast_files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join("site")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("forecast-")).collect()
}

#[test]
fn a_replay_makes_the_calls_of_the_forecast_whatever_the_number_of_clients() {
    let server = Server::start(&[]);
    for (strategy, clients) in [
        ("fixed:20+lru:20+children", "1"),
        ("s3fifo:30+subtree:1+together:50", "3"),
        ("remote", "2"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write_log_with_strategy(folder.path(), strategy);
        let arguments = ["--fill", "--clients", clients, "--html", "replay.html"];
        let output = run_replay(folder.path(), &server, &arguments);
        let document = parse_document(&output);
        let result = &document["result"];
        assert_eq!(output.status.code(), Some(0), "{strategy}: {document}");
        assert_eq!(result["held"], true);
        assert_eq!(result["too_noisy"], false);
        for percentile in ["50", "95"] {
            let error = &result["error"]["second_half"]["added_ns_pct"][percentile];
            let range = &result["added_error_pct"][percentile];
            assert!(
                range[0].as_f64() <= error.as_f64() && error.as_f64() <= range[1].as_f64(),
                "{strategy}, p{percentile}: {error} in {range}"
            );
        }
        for part in ["all", "second_half"] {
            let (error, measured) = (&result["error"][part], &result["measured"][part]);
            for figure in ["requests", "calls", "keys", "bytes", "used_keys"] {
                assert_eq!(error[figure], 0.0, "{strategy}: {part}, {figure}");
            }
            assert!(measured["added_ns_pct"]["95"].as_u64() > Some(0));
        }
        assert_eq!(result["measured"]["all"]["requests"], 400);
        let kept_keys = if strategy.contains("fixed") { 20 * 4 } else { 0 };
        assert_eq!(result["kept_keys"], kept_keys, "20 items in each of 4 processes");
        assert_eq!(result["absent_reads"], 0);

        let [name] = &list_forecast_files(folder.path())[..] else {
            panic!("one forecast");
        };
        let forecast_text = std::fs::read_to_string(folder.path().join("site").join(name)).unwrap();
        let forecast_file: Value = serde_json::from_str(&forecast_text).unwrap();
        assert_eq!(forecast_file["forecast"], result["forecast"]);
        let page = std::fs::read_to_string(folder.path().join("replay.html")).unwrap();
        assert!(page.contains("measured") && page.ends_with("</html>\n"));
    }
}

#[test]
fn the_text_begins_with_whether_the_forecast_held_and_fits_the_terminal() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    write_log_with_strategy(folder.path(), "lru:20");
    let target = server.address();
    for columns in [60, 80, 120] {
        let command_line = format!(
            "replay site --target {target} --strategy best.strategy --fill --within {WIDE_TOLERANCE_PERCENT}"
        );
        let output = glasscache()
            .current_dir(folder.path())
            .args(command_line.split(' '))
            .env("COLUMNS", columns.to_string())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with("The forecast held within "), "{text}");
        let is_too_long = |line: &&str| line.chars().count() > columns && line.contains(' ');
        assert_eq!(text.lines().find(is_too_long), None, "{text}");
    }
}

#[test]
fn a_part_that_is_truncated_is_named_in_both_outputs_and_the_others_are_replayed() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    write_log_with_strategy(folder.path(), "lru:20");
    let site = folder.path().join("site");
    let output = run_replay(folder.path(), &server, &["--fill"]);
    let left_out = &parse_document(&output)["result"]["left_out_parts"];
    assert_eq!(left_out, &serde_json::json!([]));
    for stem in ["items", "requests"] {
        let part_path = |number: u32| site.join(format!("{stem}-0-{number:06}.parquet"));
        std::fs::rename(site.join(format!("{stem}.parquet")), part_path(0)).unwrap();
        std::fs::write(part_path(1), "PAR1").unwrap();
    }
    let output = run_replay(folder.path(), &server, &["--html", "replay.html"]);
    let document = parse_document(&output);
    assert_eq!(output.status.code(), Some(0), "{document}");
    assert_eq!(document["result"]["measured"]["all"]["requests"], 400);
    let left_out_part = document["result"]["left_out_parts"][0].as_str().unwrap();
    let expected = "requests-0-000001.parquet (4 bytes) was skipped: items-0-000001.parquet: not a valid Parquet file";
    assert!(left_out_part.starts_with(expected), "{left_out_part}");
    let page = std::fs::read_to_string(folder.path().join("replay.html")).unwrap();
    assert!(page.contains("requests-0-000001.parquet (4 bytes) was skipped"));
}

#[test]
fn a_memcached_gives_the_same_calls() {
    let Some(path) = std::env::var_os("GLASSCACHE_TEST_ORACLE") else {
        return;
    };
    let server = Server::memcached(&path);
    let folder = tempfile::tempdir().unwrap();
    write_log_with_strategy(folder.path(), "fixed:20+lru:20+children");
    let output = run_replay(folder.path(), &server, &["--fill"]);
    let document = parse_document(&output);
    assert_eq!(output.status.code(), Some(0), "{document}");
    assert_eq!(document["result"]["error"]["all"]["calls"], 0.0);
    assert_eq!(document["result"]["error"]["all"]["bytes"], 0.0);
}

#[test]
fn the_keys_of_a_client_with_a_namespace_are_found_by_it() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    write_log_with_strategy(folder.path(), "fixed:20+lru:20+children");
    let filled = run_replay(folder.path(), &server, &["--fill", "--namespace", "gc~"]);
    assert_eq!(filled.status.code(), Some(0), "{}", parse_document(&filled));
    let found = parse_document(&run_replay(folder.path(), &server, &["--namespace", "gc~"]));
    assert_eq!(found["result"]["absent_keys"], 0, "{found}");
    assert_eq!(found["result"]["error"]["all"]["bytes"], 0.0, "{found}");
    assert_eq!(run_replay(folder.path(), &server, &[]).status.code(), Some(4));
    let refused = run_replay(folder.path(), &server, &["--namespace", "a b"]);
    assert_eq!(refused.status.code(), Some(2), "{}", parse_document(&refused));
}

#[test]
fn a_forecast_is_written_before_the_replay_and_never_again() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    write_log_with_strategy(folder.path(), "lru:20");
    let forecast_path = folder.path().join("forecast.json");
    std::fs::write(&forecast_path, "of yesterday").unwrap();
    let output = run_replay(folder.path(), &server, &["--fill", "--forecast", "forecast.json"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(&forecast_path).unwrap(), "of yesterday");
    assert_eq!(parse_document(&output)["result"], Value::Null, "nothing was replayed");
}

#[test]
fn more_clients_than_processes_of_the_log_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    write_log_with_strategy(folder.path(), "remote");
    let output = run_replay_on(folder.path(), "127.0.0.1:1", &["--clients", "5"]);
    assert_eq!(output.status.code(), Some(2));
    let message = parse_document(&output)["error"]["message"].to_string();
    assert!(message.contains("the log has 4 processes"), "{message}");
}

#[test]
fn a_target_that_is_down_is_named_with_the_flag_of_the_command() {
    let folder = tempfile::tempdir().unwrap();
    write_log_with_strategy(folder.path(), "remote");
    let output = run_replay_on(folder.path(), "127.0.0.1:1", &[]);
    assert_eq!(output.status.code(), Some(3));
    let message = parse_document(&output)["error"]["message"].to_string();
    assert!(message.contains("--target names the server"), "{message}");
    assert!(list_forecast_files(folder.path()).is_empty());
}

#[test]
fn a_server_without_the_fixed_set_is_refused_by_name_and_one_without_other_keys_is_reported() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    write_log_with_strategy(folder.path(), "fixed:5");
    let output = run_replay(folder.path(), &server, &[]);
    assert_eq!(output.status.code(), Some(4));
    let message = parse_document(&output)["error"]["message"].to_string();
    assert!(message.contains("the server lacks 5 of its 5 keys"), "{message}");
    assert!(message.contains("are without the client's namespace"), "{message}");
    assert!(message.contains("pass it with --namespace"), "{message}");
    assert!(list_forecast_files(folder.path()).is_empty());

    std::fs::write(folder.path().join("best.strategy"), "glasscache-strategy 1\nstrategy remote\n")
        .unwrap();
    let output = run_replay(folder.path(), &server, &[]);
    let document = parse_document(&output);
    assert_eq!(output.status.code(), Some(1), "bytes differ: {document}");
    assert!(document["result"]["absent_reads"].as_u64() > Some(0));
    assert_eq!(document["result"]["held"], false);
    assert_eq!(document["result"]["too_noisy"], false, "no noise makes bytes differ");
    assert_eq!(document["result"]["verdict"], "missed");
}

/// Sends a line to a server and returns the first line of its reply.
fn request_line(server: &Server, line: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).unwrap();
    reply.trim_end().to_owned()
}

#[test]
fn a_few_keys_that_the_server_has_no_more_are_left_out_of_both_sides() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    write_log_with_strategy(folder.path(), "fixed:20+lru:20");
    assert_eq!(run_replay(folder.path(), &server, &["--fill"]).status.code(), Some(0));
    let log = run_successfully(folder.path(), &["inspect", "site", "--json"]);
    let items = parse_document(&log)["result"]["most_used_items"].as_array().unwrap().clone();
    let strategy_text = std::fs::read_to_string(folder.path().join("best.strategy")).unwrap();
    let rare_keys = items.iter().rev().map(|item| item["key"].as_str().unwrap());
    let rare_keys = rare_keys.filter(|key| !strategy_text.contains(&format!("key {key}\n")));
    for key in rare_keys.take(2) {
        assert_eq!(request_line(&server, &format!("delete {key}")), "DELETED");
    }
    let output = run_replay(folder.path(), &server, &[]);
    let document = parse_document(&output);
    let result = &document["result"];
    assert_eq!(output.status.code(), Some(0), "{document}");
    assert_eq!((&result["verdict"], &result["absent_keys"]), (&"held".into(), &2.into()));
    assert!(result["left_out_reads"].as_u64() > Some(0) && result["absent_reads"] == 0, "{result}");
    for figure in ["calls", "keys", "bytes", "used_keys"] {
        assert_eq!(result["error"]["all"][figure], 0.0, "{figure}");
    }
    // Of a key that many requests read it is said, and the forecast is not compared with less.
    let often = items[0]["key"].as_str().unwrap();
    request_line(&server, &format!("delete {often}"));
    let output = run_replay(folder.path(), &server, &[]);
    assert_ne!(output.status.code(), Some(0), "{}", parse_document(&output));
}

#[test]
fn a_strategy_file_of_another_log_is_replayed_with_its_own_tree_and_an_invalid_one_is_refused() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    write_log_with_strategy(folder.path(), "lru:9+children");
    // The last children of the file first, one that the log does not have, and a fixed key of another day.
    let text = std::fs::read_to_string(folder.path().join("best.strategy")).unwrap();
    let mut children: Vec<&str> = text.lines().filter(|line| line.starts_with("child ")).collect();
    children.reverse();
    let strategy_text = format!(
        "glasscache-strategy 1\nstrategy fixed:1+lru:9+children+subtree:2\nkey of-another-day\n{}\nchild {} new-child\n",
        children.join("\n"),
        children[0].split(' ').nth(1).unwrap(),
    );
    std::fs::write(folder.path().join("best.strategy"), strategy_text).unwrap();
    let output = run_replay(folder.path(), &server, &["--fill"]);
    let result = &parse_document(&output)["result"];
    assert_eq!(output.status.code(), Some(0), "{result}");
    assert_eq!(result["error"]["all"]["keys"], 0.0);

    let two_parents = "glasscache-strategy 1\nstrategy children\nchild a c\nchild b c\n";
    for (text, expected_words) in [(two_parents, "under a and under b"), ("lru:9\n", "line 1")] {
        std::fs::write(folder.path().join("best.strategy"), text).unwrap();
        let output = run_replay(folder.path(), &server, &[]);
        assert_eq!(output.status.code(), Some(4));
        let message = parse_document(&output)["error"]["message"].to_string();
        assert!(message.contains(expected_words), "{message}");
    }
}

#[test]
fn a_size_that_the_log_lacks_is_that_on_the_server() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    std::fs::create_dir(&site).unwrap();
    // No request reads `b`, which a strategy fetches with `a`.
    let items = "{\"key\":\"a\",\"parent\":null,\"size\":9}\n{\"key\":\"b\",\"parent\":\"a\",\"size\":null}\n";
    std::fs::write(site.join("items.jsonl"), items).unwrap();
    let format_request = |time_us: u64| {
        format!(
            "{{\"request\":{time_us},\"time_us\":{time_us},\"instance\":0,\"base_us\":9,\"page\":null,\"items\":[\"a\"]}}\n"
        )
    };
    std::fs::write(site.join("requests.jsonl"), format_request(5) + &format_request(7)).unwrap();
    let strategy_text = "glasscache-strategy 1\nstrategy children\nchild a b\n";
    std::fs::write(folder.path().join("best.strategy"), strategy_text).unwrap();
    for (key, size) in [("a", 9), ("b", 100)] {
        let value = "v".repeat(size);
        let line = format!("set {key} 0 0 {size}\r\n{value}");
        assert_eq!(request_line(&server, &line), "STORED");
    }
    let document = parse_document(&run_replay(folder.path(), &server, &[]));
    for side in ["forecast", "measured"] {
        assert_eq!(document["result"][side]["all"]["bytes"], 218, "{side}: {document}");
    }
}

#[test]
fn a_replay_keeps_the_recorded_pace() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    std::fs::create_dir(&site).unwrap();
    std::fs::write(site.join("items.jsonl"), "{\"key\":\"a\",\"parent\":null,\"size\":9}\n")
        .unwrap();
    let format_request = |time_us: u64| {
        format!(
            "{{\"request\":{time_us},\"time_us\":{time_us},\"instance\":0,\"base_us\":9,\"page\":null,\"items\":[\"a\"]}}\n"
        )
    };
    std::fs::write(
        site.join("requests.jsonl"),
        format_request(5_000_000) + &format_request(7_000_000),
    )
    .unwrap();
    let strategy_text = "glasscache-strategy 1\nstrategy remote\n";
    std::fs::write(folder.path().join("best.strategy"), strategy_text).unwrap();
    let started_at = std::time::Instant::now();
    let output = run_replay(folder.path(), &server, &["--fill", "--speed", "4"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        started_at.elapsed().as_millis() >= 500,
        "2 s between the requests, four times as fast"
    );
}
