//! `report` over results of real runs, and over folders that hold something else.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::server::glasscache;

fn run_report(folder: &Path, more_arguments: &[&str]) -> Output {
    let mut command = glasscache();
    command.arg("report").arg(folder).args(more_arguments);
    command.output().unwrap()
}

/// Writes what a command prints with `--json` to a file of the folder.
fn write_result(folder: &Path, name: &str, arguments: &[&str]) {
    let output = glasscache().current_dir(folder).args(arguments).arg("--json").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    std::fs::write(folder.join(name), output.stdout).unwrap();
}

#[test]
fn one_page_has_every_result_with_the_command_to_repeat_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_result(
        path,
        "0-trace.json",
        &["generate", "zipf", "t.csv", "--requests", "2000", "--keys", "100"],
    );
    std::fs::remove_file(path.join("0-trace.json")).unwrap();
    write_result(path, "curve.json", &["curve", "t.csv"]);
    let profile_arguments = ["profile", "--calls", "400", "--sizes", "1,1000", "--widths", "1,10"];
    write_result(path, "profile.json", &profile_arguments); // it also writes latency.json, which does not belong in the report
    let output = run_report(path, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for expected_part in [
        "2 results on",
        "profile.json: glasscache profile --calls 400 --sizes 1,1000",
        "A get of 1.0 KB from embedded takes",
        "curve.json: glasscache curve t.csv --json",
        "latency.json",
    ] {
        assert!(text.contains(expected_part), "{expected_part} in {text}");
    }
    let page = std::fs::read_to_string(path.join("report.html")).unwrap();
    for expected_part in ["miss ratio by size", "to repeat it", "cores", "</html>"] {
        assert!(page.contains(expected_part), "{expected_part}");
    }
    let output = run_report(path, &["--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = document["result"]["results"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["date"].as_str().unwrap().ends_with('Z')));
    assert_eq!(document["result"]["left_out"][0], "latency.json");
}

#[test]
fn a_truncated_result_is_named_and_leaves_an_old_page_whole() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cut.json"), "{\"schema\": 2, ").unwrap();
    std::fs::write(folder.path().join("report.html"), "old").unwrap();
    let output = run_report(folder.path(), &[]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4));
    assert!(message.contains("cut.json") && message.contains("line 1 column"), "{message}");
    let page = std::fs::read_to_string(folder.path().join("report.html"));
    assert_eq!(page.unwrap(), "old");
    std::fs::write(folder.path().join("cut.json"), "[1, 2]").unwrap();
    assert_eq!(run_report(folder.path(), &[]).status.code(), Some(4), "no result");
    assert_eq!(run_report(Path::new("/no/such"), &[]).status.code(), Some(3));
}
