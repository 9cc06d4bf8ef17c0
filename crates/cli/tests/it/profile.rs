//! `profile` against real servers, and against peers that are not memcached servers.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Output;

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

/// A listener that passes each connection to `serve`; its address.
fn start_peer(serve: impl Fn(std::net::TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    address
}

#[test]
fn profiles_two_servers_and_writes_a_table_that_simulate_reads() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&[]);
    let address = format!("127.0.0.1:{}", server.port());
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
    let address = format!("127.0.0.1:{}", server.port());
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
fn a_target_that_is_a_web_server_is_named_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let address = start_peer(|mut socket| {
        let _ = socket.read(&mut [0; 64]);
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n");
    });
    let output = run_profile(folder.path(), &[&address, "--json"]);
    assert_eq!(output.status.code(), Some(4));
    let error = &parse_document(&output)["error"];
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("is not a memcached server") && message.contains("HTTP/1.1 400"),
        "{message}"
    );
}

#[test]
fn a_server_that_disconnects_midway_leaves_the_results_so_far_and_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("latency.json"), "old").unwrap();
    let server = Server::start(&[]);
    let port = server.port();
    // A proxy that lets some traffic through and then closes everything.
    let remaining_bytes = std::sync::Arc::new(std::sync::atomic::AtomicI64::new(25_000));
    let address = start_peer(move |mut client| {
        let remaining_bytes = remaining_bytes.clone();
        std::thread::spawn(move || {
            let Ok(mut server) = std::net::TcpStream::connect(("127.0.0.1", port)) else {
                return;
            };
            let (mut to_client, mut from_server) =
                (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from_server, &mut to_client));
            let mut buffer = [0; 4096];
            while let Ok(read_bytes @ 1..) = client.read(&mut buffer) {
                if remaining_bytes
                    .fetch_sub(read_bytes as i64, std::sync::atomic::Ordering::Relaxed)
                    < 0
                    || server.write_all(&buffer[..read_bytes]).is_err()
                {
                    break;
                }
            }
            let _ = client.shutdown(std::net::Shutdown::Both);
            let _ = server.shutdown(std::net::Shutdown::Both);
        });
    });
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
