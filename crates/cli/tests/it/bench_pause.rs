//! `bench` in an open loop beside a server that pauses once: coordinated omission, shown and avoided.
//!
//! The everyday run is short. `GLASSCACHE_TEST_PAUSE_SECONDS=60 GLASSCACHE_TEST_PAUSE_RATE=20000` is the run that
//! `make pause` prints.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::server::{Server, glasscache};

/// How long the server pauses.
const PAUSE: Duration = Duration::from_millis(100);

fn read_setting(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn send_signal(pid: &str, signal: &str) {
    let status = Command::new("kill").args([signal, pid]).status().unwrap();
    assert!(status.success());
}

/// The pid that a server reports.
fn request_pid(address: &str) -> String {
    let output = glasscache().args(["stats", "-s", address, "--all", "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = &document["result"][0]["rows"];
    rows["pid"].to_string()
}

#[test]
fn a_pause_is_in_the_latency_from_the_intended_time_and_hidden_from_the_send_time() {
    let seconds = read_setting("GLASSCACHE_TEST_PAUSE_SECONDS", 4);
    let rate = read_setting("GLASSCACHE_TEST_PAUSE_RATE", 2_000);
    let server = Server::start(&[]);
    let address = server.address();
    let pid = request_pid(&address);
    // Few connections: in a pause each has one request in flight, and all others wait to be sent.
    let bench = glasscache()
        .args(["bench", &address, "--json", "--connections", "4"])
        .args(["--keys", "1000", "--warm-up", "500ms"])
        .args(["--rate", &rate.to_string()])
        .args(["--for", &format!("{seconds}s")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(seconds / 2));
    send_signal(&pid, "-STOP");
    std::thread::sleep(PAUSE);
    send_signal(&pid, "-CONT");
    let output = bench.wait_with_output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &document["result"];
    let read_p99_9 = |from: &str| result["latency_us"][from]["p99_9"].as_f64().unwrap();
    let (intended_us, sent_us) = (read_p99_9("intended"), read_p99_9("sent"));
    eprintln!(
        "a pause of {PAUSE:?} in {seconds} s at {rate}/s: p99.9 {intended_us:.0} us from the intended time, {sent_us:.0} us \
         from the send time"
    );
    // A tenth of a second holds more than one in a thousand of the requests; the last of them waited least.
    let share_of_pause = PAUSE.as_secs_f64() / seconds as f64;
    let waited_us = PAUSE.as_micros() as f64 * (1.0 - 0.001 / share_of_pause);
    assert!(intended_us >= 0.8 * waited_us, "{intended_us} of {waited_us}: {result}");
    assert!(sent_us < intended_us, "{sent_us} {intended_us}");
    let longest_us = result["series"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|second| second["max_us"].as_f64())
        .fold(0.0, f64::max);
    assert!(longest_us >= 0.9 * PAUSE.as_micros() as f64, "{longest_us}");
}
