//! `bench TARGET` with keys, sizes and output files of other tools: traces, counted sizes, `HdrHistogram` logs.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::server::{Server, glasscache};

fn run_bench(address: &str, arguments: &[&str]) -> Output {
    glasscache()
        .args(["bench", address, "--json", "--connections", "4"])
        .args(["--for", "300ms", "--warm-up", "50ms"])
        .args(arguments)
        .output()
        .unwrap()
}

fn parse_result(output: &Output) -> Value {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["result"].clone()
}

fn parse_refusal(output: &Output) -> (Option<i32>, String) {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let message = document["error"]["message"].as_str().unwrap_or_default();
    (output.status.code(), message.to_owned())
}

fn write_file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn the_keys_and_sizes_of_a_trace_are_sent_and_every_value_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<String> =
        (0..300).map(|row| format!("page:{},{}\n", row % 90, 10 + row % 90)).collect();
    let trace = write_file(folder.path(), "t.csv", &format!("key,size\n{}", rows.concat()));
    let server = Server::start(&[]);
    let address = server.address();
    let popularity = format!("trace:{trace}");
    let output =
        run_bench(&address, &["--popularity", &popularity, "--size", "trace", "--threads", "2"]);
    let result = parse_result(&output);
    assert_eq!(result["settings"]["keys"], 90);
    assert_eq!((&result["wrong_values"], &result["misses"]), (&0.into(), &0.into()));
    assert!(result["hits"].as_u64() > Some(0));
}

#[test]
fn a_trace_of_other_columns_or_of_log_lines_is_read_by_its_flags() {
    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<String> =
        (0..200).map(|row| format!("/page/{},{}\n", row % 70, 10 + row % 70)).collect();
    let csv_text = format!("url,length\n{}", rows.concat());
    let csv_file = write_file(folder.path(), "c.csv", &csv_text);
    let lines: Vec<String> =
        (0..200).map(|row| format!("GET /page/{} {}\n", row % 70, 10 + row % 70)).collect();
    let log_file = write_file(folder.path(), "access.log", &lines.concat());
    let server = Server::start(&[]);
    let address = server.address();
    let cases: [(&str, &[&str]); 2] = [
        (&csv_file, &["--key-column", "url", "--size-column", "length"]),
        (&log_file, &["--regex", r"GET (?P<key>\S+) (?P<size>\d+)"]),
    ];
    for (trace, form_arguments) in cases {
        let popularity = format!("trace:{trace}");
        let fixed_arguments = ["--popularity", &popularity, "--size", "trace"];
        let result =
            parse_result(&run_bench(&address, &[&fixed_arguments[..], form_arguments].concat()));
        assert_eq!(result["settings"]["keys"], 70, "{form_arguments:?}");
        assert_eq!(result["wrong_values"], 0, "{form_arguments:?}");
        assert!(result["hits"].as_u64() > Some(0), "{form_arguments:?}");
    }
}

#[test]
fn sizes_counted_by_a_server_a_histogram_or_a_table_of_clusters_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&[]);
    let address = server.address();
    for index in 0..4 {
        let key = format!("key{index}");
        let set_status =
            glasscache().args(["set", "-s", &address, &key, &"x".repeat(3000)]).status().unwrap();
        assert!(set_status.success());
    }
    let histogram_file = write_file(folder.path(), "h.csv", "size,count\n40,9\n900,1\n");
    let item_histogram_file =
        write_file(folder.path(), "i.csv", "item_bytes,count\n120,9\n900,1\n");
    let clusters_file = write_file(
        folder.path(),
        "c.csv",
        "cluster,value_size_mean,request_rate_kqps\n1,267,11\n2,68,12\n",
    );
    let sources = [
        format!("stats:{address}"),
        format!("histogram:{histogram_file}"),
        format!("histogram:{item_histogram_file}"),
        format!("clusters:{clusters_file}"),
    ];
    for size in sources {
        let result = parse_result(&run_bench(&address, &["--size", &size, "--keys", "200"]));
        assert_eq!(result["wrong_values"], 0, "{size}");
        assert_eq!(result["misses"], 0, "{size}");
    }
}

#[test]
fn the_log_of_seconds_and_the_series_have_every_request() {
    let folder = tempfile::tempdir().unwrap();
    let (log_path, table_path) = (folder.path().join("run.hlog"), folder.path().join("run.hgrm"));
    let server = Server::start(&[]);
    let address = server.address();
    let output = run_bench(
        &address,
        &[
            "--keys",
            "200",
            "--rate",
            "2000",
            "--hdr-log",
            log_path.to_str().unwrap(),
            "--hdr",
            table_path.to_str().unwrap(),
        ],
    );
    let result = parse_result(&output);
    let series = result["series"].as_array().unwrap();
    let requests: u64 = series.iter().filter_map(|second| second["requests"].as_u64()).sum();
    assert_eq!(Some(requests), result["requests"].as_u64());
    for figure in ["p50_us", "p99_us", "p99_9_us", "max_us"] {
        assert!(series[0][figure].as_f64() > Some(0.0), "{figure}");
    }
    let text = std::fs::read_to_string(log_path).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), series.len(), "{text}");
    // "HISTF" begins each compressed V2 histogram in base64.
    let is_compressed = |line: &&str| {
        line.split(',').nth(3).is_some_and(|histogram| histogram.starts_with("HISTF"))
    };
    assert!(lines.iter().all(is_compressed), "{text}");
    assert!(std::fs::read_to_string(table_path).unwrap().contains("1/(1-Percentile)"));
}

#[test]
fn inputs_without_effect_or_in_conflict_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file_without_sizes = write_file(folder.path(), "k.csv", "key\n1\n2\n");
    let file_of_other_columns = write_file(folder.path(), "o.csv", "a,b\n1,2\n");
    let broken_histogram = write_file(folder.path(), "b.csv", "size,count\n10,x\n");
    let server = Server::start(&[]);
    let address = server.address();
    let trace = format!("trace:{file_without_sizes}");
    let find_refusal = |arguments: &[&str]| parse_refusal(&run_bench(&address, arguments));
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--size", "trace"], 2, "--popularity trace:FILE"),
        (&["--popularity", &trace, "--keys", "5"], 2, "--keys"),
        (&["--key-column", "url"], 2, "--popularity trace:FILE"),
        (&["--popularity", &trace, "--size", "trace"], 4, "no value sizes"),
        (&["--popularity", "trace:/nowhere.csv"], 3, "/nowhere.csv"),
        (&["--size", &format!("histogram:{file_of_other_columns}")], 4, "not that of a histogram"),
        (&["--size", &format!("histogram:{broken_histogram}")], 4, "row 1"),
        (&["--size", &format!("clusters:{file_of_other_columns}")], 4, "value_size_mean"),
    ];
    for (arguments, expected_code, expected_words) in cases {
        let (code, message) = find_refusal(arguments);
        assert_eq!(code, Some(expected_code), "{arguments:?}: {message}");
        assert!(message.contains(expected_words), "{arguments:?}: {message}");
    }
    // A server without items has no sizes.
    let (code, message) = find_refusal(&["--size", &format!("stats:{address}")]);
    assert_eq!(code, Some(4), "{message}");
}
