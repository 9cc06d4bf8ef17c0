//! `codec` against real servers, with values from files, from a server, and with bad input.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::server::{Server, glasscache};

fn run_codec(arguments: &[&str]) -> Output {
    // Rust alone: what Python adds is tested with the package (python/tests/test_lab.py).
    glasscache().arg("codec").args(arguments).env("PATH", "").output().unwrap()
}

fn parse_result(output: &Output) -> Value {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["error"].is_null(), "{document}");
    document["result"].clone()
}

/// A file of JSON lines in `folder`: repetitive objects of about 1 KB.
fn write_values(folder: &Path) -> PathBuf {
    let mut text = String::new();
    for index in 0..200 {
        let words = "alpha beta gamma ".repeat(60);
        writeln!(text, "{{\"id\": {index}, \"text\": \"{words}\"}}").unwrap();
    }
    let path = folder.join("values.jsonl");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn the_storage_table_agrees_with_the_bytes_that_the_server_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_values(folder.path());
    let server = Server::start(&[]);
    let address = server.address();
    let result =
        parse_result(&run_codec(&[path.to_str().unwrap(), "--server", &address, "--json"]));
    let rows = result["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["codec"].as_str().unwrap()).collect();
    assert_eq!(names, ["none", "zlib", "quicklz", "zstd", "lz4"]);
    for row in rows {
        let (bytes, server_bytes) = (row["bytes"].as_u64(), row["server_bytes"].as_u64());
        let overhead_bytes = server_bytes.unwrap() - bytes.unwrap();
        // One piece: its key and the header of an item.
        assert!((20..200).contains(&overhead_bytes), "{row}");
        assert_eq!(row["read_s"].as_array().unwrap().len(), 3);
        assert_eq!(row["wrong_values"], 0);
    }
    assert_eq!(rows[0]["bytes"], result["bytes"]);
    assert!(rows[1]["ratio"].as_f64().unwrap() < 0.2);
    let remaining_keys = glasscache().args(["keys", "-s", &address]).output().unwrap();
    assert!(remaining_keys.stdout.is_empty(), "every key is removed again");
}

#[test]
fn a_file_that_is_too_long_is_refused_with_the_remedy_and_measured_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.xml");
    std::fs::write(&path, "<row>alpha beta gamma</row>\n".repeat(50_000)).unwrap();
    let path = path.to_str().unwrap();
    let output = run_codec(&[path, "--json"]);
    assert_eq!(output.status.code(), Some(4));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let message = document["error"]["message"].as_str().unwrap();
    assert!(message.contains("big.xml has 1,400,000 bytes"), "{message}");
    assert!(message.contains("--pieces 512k"), "{message}");
    let result = parse_result(&run_codec(&[path, "--pieces", "512k", "--json"]));
    assert_eq!((&result["values"], &result["bytes"]), (&3.into(), &1_400_000.into()));
    assert_eq!((&result["skipped"], &result["wrong_values"]), (&0.into(), &0.into()));
    let values = write_values(folder.path());
    let output = run_codec(&[values.to_str().unwrap(), "--pieces", "512k"]);
    assert_eq!(output.status.code(), Some(2), "its lines are values");
}

#[test]
fn a_slow_network_compresses_and_the_threshold_leaves_short_values_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_values(folder.path());
    let path = path.to_str().unwrap();
    let plain = ["--codec", "Codec(compress=None)"];
    let arguments = [&[path, "--network", "1mbit", "--json"][..], &plain].concat();
    let slow_result = parse_result(&run_codec(&arguments));
    assert_eq!(
        (&slow_result["is_change"], &slow_result["before"]["codec"]),
        (&true.into(), &plain[1].into())
    );
    assert!(slow_result["comparison"]["high"].as_f64().unwrap() < 1.0);
    let recommended = &slow_result["recommended"];
    assert_ne!(recommended["arguments"]["compress"], Value::Null);
    assert!(recommended["codec"].as_str().unwrap().starts_with("Codec(compress=\""));
    assert!(
        recommended["bytes"].as_u64().unwrap() * 4
            < slow_result["before"]["bytes"].as_u64().unwrap()
    );
    let candidates = slow_result["candidates"].as_array().unwrap().iter();
    let order: Vec<(bool, f64)> = candidates
        .map(|row| (!row["in_client"].as_bool().unwrap(), row["call_us"].as_f64().unwrap()))
        .collect();
    assert!(order.is_sorted() && order.last().unwrap().0, "best first, what the client lacks last");
    let candidates = slow_result["candidates"].as_array().unwrap().iter();
    let names: Vec<&str> = candidates.map(|row| row["codec"].as_str().unwrap()).collect();
    assert!(names.contains(&"zstd 3 with dictionary"), "{names:?}");
    assert_eq!(slow_result["wrong_values"], 0);
}

#[test]
fn the_codec_in_use_is_kept_where_no_other_is_better() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_values(folder.path());
    let arguments = [path.to_str().unwrap(), "--network", "1mbit", "--json"];
    let in_use = ["--codec", "Codec(compress='zstd', level=19, threshold=100)"];
    let result = parse_result(&run_codec(&[&arguments[..], &in_use].concat()));
    // The level is none of those that are compared otherwise, so it is measured too.
    let rows = result["candidates"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["codec"] == "zstd 19"), "{rows:?}");
    assert_eq!(result["before"]["codec"], in_use[1]);
    assert_eq!(result["is_change"], result["comparison"]["is_better"].as_bool().unwrap_or(false));
    if result["is_change"] == false {
        assert_eq!(result["recommended"]["bytes"], result["before"]["bytes"]);
    }
    let refused = run_codec(&[arguments[0], "--codec", "Codec('pylibmc')"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains("are not measured: leave it out"), "{message}");
}

#[test]
fn values_of_a_server_are_grouped_by_key_prefix() {
    let server = Server::start(&[]);
    let address = server.address();
    for index in 0..20 {
        for prefix in ["user", "page"] {
            let (key, value) = (format!("{prefix}:{index}"), "abc".repeat(300));
            let set = glasscache().args(["set", &key, &value, "-s", &address]).output();
            assert!(set.unwrap().status.success());
        }
    }
    let result = parse_result(&run_codec(&["--from", &address, "--values", "30", "--json"]));
    assert_eq!(result["values"], 30);
    let prefixes = result["by_prefix"].as_array().unwrap();
    let names: Vec<&str> = prefixes.iter().map(|row| row["prefix"].as_str().unwrap()).collect();
    assert_eq!(prefixes.len(), 2, "{names:?}");
    assert!(names.contains(&"user:") && names.contains(&"page:"));
}

#[test]
fn the_text_begins_with_the_recommendation_and_fits_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_values(folder.path());
    let page_path = folder.path().join("codec.html");
    let arguments = [path.to_str().unwrap(), "--html", page_path.to_str().unwrap()];
    let slow = ["--network", "1mbit", "--codec", "Codec(compress=None)"];
    let output = run_codec(&[&arguments[..], &slow].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("Codec("), "{text}");
    for expected_part in ["A call costs, in us:", "quicklz", "--all prints", "Rust client"] {
        assert!(text.contains(expected_part), "{expected_part} in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(std::fs::read_to_string(page_path).unwrap().ends_with("</html>\n"));
}

#[test]
fn bad_input_is_named_and_leaves_an_old_page_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.jsonl");
    std::fs::write(&path, "{\"a\": 1}\n{\"a\": [1, 2").unwrap();
    let page_path = folder.path().join("old.html");
    std::fs::write(&page_path, "old").unwrap();
    let output = run_codec(&[path.to_str().unwrap(), "--html", page_path.to_str().unwrap()]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4));
    assert!(
        message.contains("cut.jsonl line 2, column 11: not a JSON value: EOF while parsing a list"),
        "{message}"
    );
    assert_eq!(std::fs::read_to_string(&page_path).unwrap(), "old");
    std::fs::write(&path, "\n").unwrap();
    let cases: [(&[&str], i32, &str); 5] = [
        (&["/no/such/file"], 3, "cannot read /no/such/file"),
        (&[path.to_str().unwrap()], 4, "no values to measure"),
        (&[], 2, "SAMPLES"),
        (&["a.txt", "--values", "5"], 2, "--from"),
        (&["a.txt", "--network", "fast"], 2, "100mbit"),
    ];
    for (arguments, expected_code, expected_part) in cases {
        let output = run_codec(arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(expected_code), "{message}");
        assert!(message.contains(expected_part), "{expected_part} in {message}");
    }
}

#[test]
fn an_unreachable_server_gets_a_hint_about_the_option_that_names_it() {
    let output = run_codec(&["--from", "127.0.0.1:1"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(message.contains("hint: --from names the server"), "{message}");
    assert!(!message.contains("--server"), "{message}");
}

#[test]
fn prefixes_of_values_without_keys_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_values(folder.path());
    let output = run_codec(&[path.to_str().unwrap(), "--prefix-of", ":"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("--prefix-of has no effect"), "{message}");
}
