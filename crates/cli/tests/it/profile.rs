//! `profile` against real servers, and through a relay that breaks off.

use std::process::Output;
use std::sync::atomic::{AtomicI64, Ordering};

use glasscache_peers::{Direction, Peer};
use serde_json::Value;

use crate::server::{Server, glasscache};

fn run_profile(folder: &std::path::Path, arguments: &[&str]) -> Output {
    glasscache()
        .current_dir(folder)
        .args(["profile", "--calls", "400", "--sizes", "1,1000", "--widths", "1,10"])
        .args(arguments)
        .output()
        .unwrap()
}

fn parse_document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn profiles_two_servers_and_writes_a_table_that_simulate_reads() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&[]);
    let address = server.address();
    let output =
        run_profile(folder.path(), &[&address, "--vs", &address, "--json", "--html", "p.html"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let result = &parse_document(&output)["result"];
    assert_eq!(result["wrong_values"], 0);
    assert_eq!(result["by_size"][1]["samples"], 400);
    assert_eq!(result["by_width"][1]["keys"], 10);
    let median = &result["by_size"][0]["percentiles"]["50"];
    assert!(median["low"].as_f64() <= median["us"].as_f64());
    assert!(median["us"].as_f64() <= median["high"].as_f64());
    assert!(result["ratio"]["50"]["low"].as_f64() <= result["ratio"]["50"]["high"].as_f64());
    let split = &result["split"];
    let read_us = |part: &Value| part.as_f64().unwrap_or(0.0);
    let parts = ["client_us", "network_us", "server_us", "serialise_us", "compress_us"];
    let sum: f64 = parts.iter().map(|part| read_us(&split[part])).sum();
    assert!((sum - read_us(&split["total_us"])).abs() < 0.01, "{split}");
    assert!(std::fs::read_to_string(folder.path().join("p.html")).unwrap().ends_with("</html>\n"));

    let log_folder = folder.path().join("directory");
    let generated =
        glasscache().args(["generate", "topic-tree"]).arg(&log_folder).output().unwrap();
    assert_eq!(generated.status.code(), Some(0));
    std::fs::rename(folder.path().join("latency.json"), log_folder.join("latency.json")).unwrap();
    let simulated = glasscache().arg("simulate").arg(&log_folder).output().unwrap();
    assert_eq!(simulated.status.code(), Some(0), "{}", String::from_utf8_lossy(&simulated.stderr));
}

#[test]
fn profiles_a_server_for_binary_alone() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["-B", "binary"]);
    let address = server.address();
    let output = run_profile(folder.path(), &[&address, "--protocol", "binary", "--json"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    let result = &parse_document(&output)["result"];
    assert_eq!((&result["wrong_values"], &result["protocol"]), (&0.into(), &"binary".into()));
    assert_eq!(result["by_width"][1]["samples"], 400);
    assert!(result["split"]["server_us"].is_number(), "{result}");
    assert!(folder.path().join("latency.json").exists());
}

#[test]
fn profiles_an_embedded_server_and_prints_the_conclusion_first() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_profile(folder.path(), &["--latency-out", "/dev/null"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text.starts_with("A get of 1.0 KB from embedded takes "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_server_that_disconnects_midway_leaves_the_results_so_far_and_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("latency.json"), "old").unwrap();
    let server = Server::start(&[]);
    // Some traffic passes, and then everything is closed.
    let remaining_bytes = AtomicI64::new(25_000);
    let relay = Peer::relay(server.address().parse().unwrap(), move |direction, chunk| {
        let is_reply = direction == Direction::Reply;
        let used_bytes = chunk.len() as i64;
        let passes = is_reply || remaining_bytes.fetch_sub(used_bytes, Ordering::Relaxed) >= 0;
        passes.then_some(chunk)
    });
    let address = relay.address().to_string();
    let output = run_profile(folder.path(), &[&address, "--json"]);
    let document = parse_document(&output);
    assert_eq!(output.status.code(), Some(3), "{document}");
    assert!(document["result"]["by_size"][0]["samples"].as_u64() > Some(0), "{document}");
    assert_eq!(document["error"]["kind"], "unreachable");
    assert_eq!(std::fs::read(folder.path().join("latency.json")).unwrap(), b"old");
}

#[test]
fn settings_without_effect_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["--via", "pylibmc", "--threads", "2"][..],
        &["--via", "pymemcache", "--protocol", "binary"],
        &["--vs", "127.0.0.1:1"],
        &["--widths", "0"],
    ] {
        assert_eq!(run_profile(folder.path(), arguments).status.code(), Some(2), "{arguments:?}");
    }
}
