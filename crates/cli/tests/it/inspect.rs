//! `inspect` of a request log: every figure of a log that is small enough to count by hand.

use std::path::Path;

use serde_json::{Value, json};

use super::server::glasscache;

const ITEMS: &str = r#"{"key":"user:1","parent":null,"size":100}
{"key":"user:2","parent":null,"size":300}
{"key":"navigation","parent":null,"size":1000}
{"key":"never-read","parent":null,"size":null}
"#;

/// A day from the first request to the last.
const REQUESTS: &str = r#"{"request":0,"time_us":0,"instance":0,"base_us":1000,"page":null,"items":["user:1","navigation","user:1"]}
{"request":1,"time_us":5000,"instance":1,"base_us":1000,"page":null,"items":["user:2","navigation"]}
{"request":2,"time_us":6000,"instance":1,"base_us":1000,"page":null,"items":[]}
{"request":3,"time_us":86400000000,"instance":0,"base_us":1000,"page":null,"items":["navigation","unsized"]}
"#;

fn write_log(folder: &Path) {
    std::fs::write(folder.join("items.jsonl"), ITEMS).unwrap();
    std::fs::write(folder.join("requests.jsonl"), REQUESTS).unwrap();
}

fn run_inspect(folder: &Path, arguments: &[&str]) -> String {
    let mut command = glasscache();
    command.args(["inspect", "."]).args(arguments);
    let output = command.current_dir(folder).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_request_log_is_counted_by_item_by_prefix_and_by_day() {
    let folder = tempfile::tempdir().unwrap();
    write_log(folder.path());
    let document: Value = serde_json::from_str(&run_inspect(folder.path(), &["--json"])).unwrap();
    let result = &document["result"];
    let figures = [
        ("requests", json!(4)),
        ("items_asked_for", json!(7)),
        ("never_repeated_items_share", json!(0.75)),
        ("never_repeated_reads_share", json!(0.5)),
        ("read_bytes_per_day", json!(3400.0)),
        ("log_bytes_per_day", json!((ITEMS.len() + REQUESTS.len()) as f64)),
        ("cache_time_share", Value::Null),
    ];
    for (name, expected) in figures {
        assert_eq!(result[name], expected, "{name}");
    }
    let items = json!([
        { "key": "navigation", "bytes": 1000, "requests": 3 },
        { "key": "unsized", "bytes": null, "requests": 1 },
        { "key": "user:1", "bytes": 100, "requests": 1 },
        { "key": "user:2", "bytes": 300, "requests": 1 },
    ]);
    assert_eq!(result["most_used_items"], items);
    let prefixes = json!([
        { "prefix": null, "items": 2, "bytes": 1000, "reads": 4, "requests": 3 },
        { "prefix": "user:", "items": 2, "bytes": 400, "reads": 2, "requests": 2 },
    ]);
    assert_eq!(result["most_used_prefixes"], prefixes);
    let sentence = "4 requests read 4 items, 1.5 a request; 50.0 % of the reads go to items that no other request reads.";
    assert_eq!(result["sentence"], sentence);
}

#[test]
fn a_log_with_calls_begins_with_what_the_cache_costs_today() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("items.jsonl"), ITEMS).unwrap();
    let line = |number: u32, writes: u32| {
        format!(
            "{{\"request\":{number},\"time_us\":{number},\"base_us\":590,\"items\":[\"a\",\"b\",\"c\"],\
             \"calls\":[2,1],\"wait_us\":660,\"decode_us\":560,\"writes\":{writes}}}\n"
        )
    };
    let requests = folder.path().join("requests.jsonl");
    std::fs::write(&requests, format!("{}{}", line(0, 0), line(1, 0))).unwrap();
    let sentence = "Today: 2.0 calls, 0.66 ms of 1.25 ms, of which 0.56 ms is decoding. 2 requests";
    let text = run_inspect(folder.path(), &[]);
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").starts_with(sentence), "{text}");
    std::fs::write(&requests, format!("{}{}", line(0, 0), line(1, 1))).unwrap();
    let document: Value = serde_json::from_str(&run_inspect(folder.path(), &["--json"])).unwrap();
    let today = &document["result"]["today"];
    assert_eq!(
        (&today["calls"], &today["writes"], &today["keys"]),
        (&json!(2.5), &json!(0.5), &json!(3.0))
    );
    assert_eq!(document["result"]["cache_time_share"], json!(0.66 / 1.25));
    std::fs::write(&requests, line(0, 0).replace("[2,1]", "[2,2]")).unwrap();
    let output = glasscache().args(["inspect", "."]).current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "calls that are not those of the items");
}

#[test]
fn the_tables_and_the_page_of_a_request_log_name_its_items_and_prefixes() {
    let folder = tempfile::tempdir().unwrap();
    write_log(folder.path());
    let text = run_inspect(folder.path(), &["--html", "page.html"]);
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    for title in ["Requests by items", "Most used items", "Most used prefixes"] {
        assert!(text.contains(title), "{text}");
        assert!(page.contains(&format!("<h2>{title}</h2>")), "{page}");
    }
    let rows: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let sentence = "4 requests read 4 items, 1.5 a request;";
    assert!(text.starts_with(sentence), "{text}");
    for row in [
        "never repeated reads share 50.0 %",
        "2 to 3 3 75.0 %",
        "navigation 3 75.0 % 1,000",
        "unsized 1 25.0 % unknown",
        "(no prefix) 3 75.0 % 4 2 1000 B",
    ] {
        assert!(rows.iter().any(|printed| printed == row), "{row}:\n{text}");
    }
}

#[test]
fn a_file_without_a_request_is_refused_with_its_number_of_lines() {
    let folder = tempfile::tempdir().unwrap();
    let csv_path = folder.path().join("a.csv");
    std::fs::write(&csv_path, "key,size\n1,5\n").unwrap();
    for (arguments, expected) in [
        (&["--format", "watch"][..], "has no request in its 2 lines"),
        (&["--regex", "GET (?P<key>.+)"], "has no request in its 2 lines"),
    ] {
        let output = glasscache().arg("inspect").arg(&csv_path).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{arguments:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains(expected), "{message}");
    }
    let log_path = folder.path().join("access.log");
    std::fs::write(&log_path, "GET /\n").unwrap();
    let output = glasscache().arg("inspect").arg(&log_path).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("--regex describes the lines of a log"), "{message}");
}

#[test]
fn a_latency_table_that_cannot_be_read_is_named_instead_of_taken_for_none() {
    let folder = tempfile::tempdir().unwrap();
    write_log(folder.path());
    std::fs::create_dir(folder.path().join("latency.json")).unwrap();
    let mut command = glasscache();
    let output = command.args(["inspect", "."]).current_dir(folder.path()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{message}");
    assert!(message.contains("latency.json"), "{message}");
}

#[test]
fn the_address_of_a_server_instead_of_a_file_gets_the_command_that_records_its_load() {
    for command in ["inspect", "curve", "simulate"] {
        let output = glasscache().args([command, "localhost:11211"]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{message}");
        assert!(message.contains("glasscache record localhost:11211 --for 10m"), "{message}");
    }
    let output = glasscache().args(["inspect", "traces/a:1"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("record"));
}
