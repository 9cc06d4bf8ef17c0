//! `bench TARGET` against real servers, and against a peer that lies.

use std::process::Output;

use glasscache_peers::{Direction, Peer};
use serde_json::Value;

use crate::server::{Server, glasscache};

fn run_bench(arguments: &[&str]) -> Output {
    glasscache()
        .arg("bench")
        .args(arguments)
        .args(["--for", "300ms", "--warm-up", "100ms", "--keys", "500", "--connections", "4"])
        .output()
        .unwrap()
}

fn parse_result(output: &Output) -> Value {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["error"].is_null(), "{document}");
    document["result"].clone()
}

#[test]
fn a_closed_loop_over_tcp_and_a_unix_socket_finds_every_value() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s.sock");
    let server = Server::start(&[]);
    let address = server.address();
    let mut unix_server_command = glasscache();
    unix_server_command.args(["serve", "-u", "root", "-s"]).arg(&socket);
    let mut unix_server = unix_server_command.stderr(std::process::Stdio::null()).spawn().unwrap();
    while !socket.exists() {
        std::thread::yield_now();
    }
    let unix_address = format!("unix:{}", socket.display());
    for (target, option) in [
        (&address, "--depth=16"),
        (&address, "--protocol=meta"),
        (&address, "--protocol=binary"),
        (&unix_address, "--depth=4"),
        (&unix_address, "--protocol=binary"),
    ] {
        let output = run_bench(&[
            target,
            "--mix",
            "get=6,multi-get=1,set=2,delete=1",
            "--fill",
            option,
            "--json",
        ]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let result = parse_result(&output);
        assert_eq!(result["wrong_values"], 0, "{target} {option}");
        assert!(result["requests_per_second"].as_f64() > Some(0.0));
        assert!(result["hits"].as_u64() > result["misses"].as_u64());
        assert!(result["latency_us"]["intended"]["p99_9"].is_number());
        assert!(result["generator_cpu_us"].as_f64() > Some(0.0));
        let protocol = option.strip_prefix("--protocol=").unwrap_or("text");
        assert_eq!(result["settings"]["protocol"], protocol);
    }
    unix_server.kill().unwrap();
    unix_server.wait().unwrap();
    // The keys of the test are gone.
    let keys = glasscache().args(["keys", "-s", &address]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&keys.stdout), "");
}

/// Every kind of load in binary on a server that speaks nothing else.
fn assert_binary_load_is_correct(server: &Server) {
    let address = server.address();
    let mix_arguments = ["--mix", "get=4,multi-get=2,set=2,delete=1"];
    for arguments in [
        // Misses within and at the end of the quiet gets.
        &["--depth", "16", "--keys-per-get", "16", "--fill"][..],
        // Values that are sent by reference, and empty ones.
        &["--depth", "3", "--size", "100000", "--ttl", "100"],
        &["--size", "0", "--rate", "2000"],
        &["--vs", &address, "--threads", "2"],
    ] {
        let protocol_arguments = ["--protocol", "binary", "--json"];
        let output = run_bench(
            &[&[address.as_str()], &mix_arguments[..], arguments, &protocol_arguments].concat(),
        );
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {message}");
        let result = parse_result(&output);
        assert_eq!(result["wrong_values"], 0, "{arguments:?}");
        assert!(result["hits"].as_u64() > Some(0), "{arguments:?}");
        assert!(result["stored"].as_u64() > Some(0), "{arguments:?}");
        assert_eq!(result["settings"]["protocol"], "binary");
        // Its process is found by the counters that it reports in binary.
        assert!(result["server_cpu_us"].is_number(), "{arguments:?}");
    }
}

#[test]
fn a_server_for_binary_alone_is_measured_in_binary() {
    let server = Server::start(&["-B", "binary"]);
    assert_binary_load_is_correct(&server);
    // In text the message names the option that is needed.
    let address = server.address();
    let output = run_bench(&[&address]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{message}");
    assert!(message.contains("needs --protocol binary"), "{message}");
}

#[test]
fn a_memcached_for_binary_alone_is_measured_in_binary() {
    if let Some(path) = std::env::var_os("GLASSCACHE_TEST_ORACLE") {
        let server = Server::memcached_with(&path, &["-B", "binary"]);
        assert_binary_load_is_correct(&server);
    }
}

#[test]
fn a_server_without_binary_is_named_as_such() {
    let server = Server::start(&["-B", "ascii"]);
    let address = server.address();
    let output = run_bench(&[&address, "--protocol", "binary"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{message}");
    let reason = "is not a memcached server that speaks binary";
    assert!(message.contains(reason), "{message}");
}

#[test]
fn two_targets_have_a_ratio_with_its_interval() {
    let server = Server::start(&[]);
    let address = server.address();
    let result =
        parse_result(&run_bench(&[&address, "--vs", &address, "--rate", "2000", "--json"]));
    for percentile in ["50", "99"] {
        let ratio = &result["ratio"][percentile];
        assert!(ratio["low"].as_f64() <= ratio["value"].as_f64(), "{ratio}");
        assert!(ratio["value"].as_f64() <= ratio["high"].as_f64(), "{ratio}");
    }
    assert_eq!(result["offered_per_second"], 2000.0);
    assert!(result["vs"]["requests"].as_u64() > Some(0));
}

#[test]
fn a_search_reports_what_it_tried_on_an_embedded_server() {
    let output = run_bench(&["--search", "p50<1s", "--json"]);
    let result = parse_result(&output);
    assert!(result["tried"].as_array().is_some_and(|tried| !tried.is_empty()));
    assert_eq!(result["objective"]["latency_us"], 1e6);
}

#[test]
fn wrong_values_are_a_finding() {
    // Stores anything, and replies to each get with a value that nobody stored.
    let peer = Peer::start(|mut connection| {
        loop {
            let line = connection.read_line()?;
            let words: Vec<&str> = line.split_whitespace().collect();
            let reply = match words[..] {
                ["version"] => "VERSION 1\r\n".to_owned(),
                ["stats", ..] => "END\r\n".to_owned(),
                ["delete", ..] => "DELETED\r\n".to_owned(),
                ["set", _, _, _, value_bytes, ..] => {
                    connection.read_exactly(value_bytes.parse::<usize>().unwrap() + 2)?;
                    "STORED\r\n".to_owned()
                }
                ["get", key, ..] => format!("VALUE {key} 0 100\r\n{:x<100}\r\nEND\r\n", ""),
                _ => return Ok(()),
            };
            connection.write(reply)?;
        }
    });
    let address = peer.address().to_string();
    let output = run_bench(&[&address, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let result = parse_result(&output);
    assert!(result["wrong_values"].as_u64() > Some(0));
    assert!(result["server_cpu_us"].is_null());
}

/// Passes connections on to a server, and flips a bit of byte 50 of each value that a chunk begins with.
fn start_bit_flipping_relay(server: &Server) -> String {
    let relay = Peer::relay(server.address().parse().unwrap(), |direction, mut chunk| {
        let line_end = chunk.iter().position(|&byte| byte == b'\n').unwrap_or(0);
        let is_value = direction == Direction::Reply && chunk.starts_with(b"VALUE ");
        if let Some(byte) = chunk.get_mut(line_end + 50).filter(|_| is_value) {
            *byte ^= 1;
        }
        Some(chunk)
    });
    relay.address().to_string()
}

#[test]
fn a_flipped_bit_in_the_middle_of_a_value_is_found_by_default() {
    let server = Server::start(&[]);
    let address = start_bit_flipping_relay(&server);
    let output = run_bench(&[&address, "--json"]);
    let result = parse_result(&output);
    assert_eq!(output.status.code(), Some(1), "{result}");
    assert!(result["wrong_values"].as_u64() > Some(0));
    assert!(result["compared_bytes"].as_u64() > Some(0));
    assert_eq!(result["compared_bytes"], result["value_bytes"]);
    let output = run_bench(&[&address, "--check", "ends", "--json"]);
    let result = parse_result(&output);
    assert_eq!((output.status.code(), &result["wrong_values"]), (Some(0), &0.into()));
    assert!(result["compared_bytes"].as_u64() < result["value_bytes"].as_u64());
}

#[test]
fn a_variable_that_names_a_memcached_excludes_no_option() {
    for arguments in [&["127.0.0.1:1"][..], &["127.0.0.1:1", "--rate", "5"]] {
        let run = |variables: &[(&str, &str)]| {
            let mut command = glasscache();
            command.arg("bench").args(arguments).env_remove("MEMCACHED");
            command.envs(variables.iter().copied()).output().unwrap().status.code()
        };
        let variables = [("MEMCACHED", "/usr/bin/memcached"), ("GLASSCACHE_PASSWORD", "secret")];
        assert_eq!(run(&variables), run(&[]), "{arguments:?}");
        assert_ne!(run(&variables), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_read_test_whose_gets_mostly_miss_warns() {
    let server = Server::start(&["-m", "4"]);
    let address = server.address();
    let output = glasscache()
        .args(["bench", &address, "--for", "300ms", "--warm-up", "50ms", "--json"])
        .args(["--keys", "20000", "--size", "1000", "--connections", "2"])
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let result = parse_result(&output);
    assert!(result["misses"].as_u64() > result["hits"].as_u64());
    assert!(message.contains("warning: most gets missed"), "{message}");
    assert_eq!(result["warnings"].as_array().unwrap().len(), 1);
}

#[test]
fn a_server_that_disconnects_midway_leaves_the_results_so_far_and_the_old_files() {
    check_disconnect_midway(false);
}

#[test]
fn a_server_that_disconnects_midway_leaves_the_comparison_so_far_and_the_old_files() {
    check_disconnect_midway(true);
}

fn check_disconnect_midway(is_compared: bool) {
    let folder = tempfile::tempdir().unwrap();
    let page_path = folder.path().join("bench.html");
    std::fs::write(&page_path, "old").unwrap();
    let first_server = Server::start(&[]);
    let first_address = first_server.address();
    let server = Server::start(&[]);
    let address = server.address();
    let targets: &[&str] =
        if is_compared { &[&first_address, "--vs", &address] } else { &[&address] };
    let bench = glasscache()
        .arg("bench")
        .args(targets)
        .args(["--for", "60s", "--warm-up", "10ms", "--keys", "100"])
        .args(["--connections", "2", "--json", "--html"])
        .arg(&page_path)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // Long enough for some rounds of both on a busy machine.
    std::thread::sleep(std::time::Duration::from_secs(5));
    drop(server);
    let output = bench.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["result"]["requests"].as_u64() > Some(0));
    assert_eq!(document["result"]["ratio"].is_object(), is_compared);
    let message = document["error"]["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("{address}: ")), "{message}");
    assert!(message.contains("what was measured before is printed"));
    assert_eq!(std::fs::read_to_string(&page_path).unwrap(), "old");
}

#[test]
fn settings_without_effect_are_refused() {
    let run_to_exit_code = |arguments: &[&str]| {
        glasscache().arg("bench").args(arguments).output().unwrap().status.code()
    };
    assert_eq!(run_to_exit_code(&["--depth", "4"]), Some(2), "no load test is asked for");
    assert_eq!(run_to_exit_code(&["127.0.0.1:1", "--rate", "5", "--closed"]), Some(2));
    assert_eq!(run_to_exit_code(&[]), Some(2), "nothing says what to measure");
    assert_eq!(run_to_exit_code(&["memory", "--rate", "5"]), Some(2));
    assert_eq!(run_to_exit_code(&["127.0.0.1:1", "--memcached", "memcached"]), Some(2));
    assert_eq!(run_to_exit_code(&["127.0.0.1:1", "--ttl", "5"]), Some(2));
    assert_eq!(run_to_exit_code(&["127.0.0.1:1", "--threads", "4", "--connections", "2"]), Some(2));
    assert_eq!(run_to_exit_code(&["127.0.0.1:1"]), Some(3));
}
