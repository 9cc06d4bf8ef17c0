//! The tour and the benchmarks, on a small folder and an embedded server.

use std::path::Path;
use std::process::{Command, Output};

fn run_glasscache(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_glasscache"))
        .args(arguments)
        .env_remove("MEMCACHED")
        .output()
        .unwrap()
}

fn write_folder(files: &[(String, Vec<u8>)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).unwrap();
        std::fs::write(path, content).unwrap();
    }
    folder
}

#[test]
fn a_tour_stores_a_folder_and_checks_every_byte() {
    let large: Vec<u8> = (0..700_000_u32).map(|position| (position % 251) as u8).collect();
    let mut files = vec![
        ("empty".to_owned(), Vec::new()),
        ("sub/small".to_owned(), b"\r\nEND\r\n".to_vec()),
        ("sub/large".to_owned(), large),
        ("a name with spaces".to_owned(), b"no key".to_vec()),
    ];
    // Each file is read thousands of times: with more small ones fewer of these reads are of the large one.
    files.extend((0..60).map(|number| (format!("page-{number}"), b"small".to_vec())));
    let folder = write_folder(&files);
    let output = run_glasscache(&["tour", "--json", "-t", "1", folder.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&document["result"]["folder"]["items"], &document["result"]["folder"]["skipped"]),
        (&63.into(), &1.into())
    );
    let stages = document["result"]["servers"][0]["stages"].as_array().unwrap();
    assert_eq!(stages.len(), 4);
    for stage in stages {
        assert_eq!(stage["failed"], 0, "{stage}");
        assert!(stage["keys"].as_u64() >= Some(63), "{stage}");
    }
}

#[test]
fn a_missing_folder_is_reported_in_one_line() {
    let output = run_glasscache(&["tour", "no-such-folder"]);
    assert_eq!(output.status.code(), Some(3));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("no-such-folder") && message.lines().count() == 1, "{message}");
}
