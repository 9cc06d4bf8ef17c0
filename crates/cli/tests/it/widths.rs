//! What each command prints on terminals of 60, 80 and 120 columns: no row broken in two, no word cut.
//!
//! The width comes from `COLUMNS`, which is read if stdout is not a terminal.

use std::collections::BTreeSet;
use std::path::Path;

use crate::server::{Server, glasscache};

const WIDTHS: [usize; 3] = [60, 80, 120];

/// Beginnings of lines that are copied into a shell, which must stay in one piece.
const COMMAND_LINE_PREFIXES: [&str; 2] = ["To copy: ", "next: "];

/// What a command prints on a terminal of `columns`; `None` sets no limit.
fn run_command_line(folder: &Path, command_line: &str, columns: Option<usize>) -> String {
    let mut command = glasscache();
    command.args(command_line.split_whitespace()).current_dir(folder);
    match columns {
        Some(columns) => command.env("COLUMNS", columns.to_string()),
        None => command.env_remove("COLUMNS"),
    };
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command_line}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Lines that a terminal would break, although they could have been shorter.
fn find_too_long_lines(text: &str, columns: usize) -> Vec<&str> {
    let is_too_long = |line: &&str| {
        let is_command = COMMAND_LINE_PREFIXES.iter().any(|start| line.starts_with(start));
        let is_one_word = line.split_whitespace().count() < 2;
        line.chars().count() > columns && !is_command && !is_one_word
    };
    text.lines().filter(is_too_long).collect()
}

fn collect_words(text: &str) -> BTreeSet<&str> {
    text.split_whitespace().collect()
}

/// A folder with a key stream, a request log, sizes, and files to store.
fn write_data_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let folder_path = folder.path();
    run_command_line(
        folder_path,
        "generate zipf keys.csv --requests 5000 --keys 300 --size 2000",
        None,
    );
    run_command_line(folder_path, "generate topic-tree site --requests 2000 --items 300", None);
    run_command_line(folder_path, "generate zipf again.csv --requests 10", None);
    // The same log as a complete part, next to a part of which only the beginning exists.
    let cut_folder = folder_path.join("cut");
    std::fs::create_dir(&cut_folder).unwrap();
    std::fs::copy(folder_path.join("site/latency.json"), cut_folder.join("latency.json")).unwrap();
    for stem in ["items", "requests"] {
        let complete_part =
            std::fs::read(folder_path.join(format!("site/{stem}.parquet"))).unwrap();
        std::fs::write(cut_folder.join(format!("{stem}-0-000000.parquet")), &complete_part)
            .unwrap();
        std::fs::write(cut_folder.join(format!("{stem}-0-000001.parquet")), &complete_part[..100])
            .unwrap();
    }
    std::fs::write(folder_path.join("sizes.csv"), "size,count\n100,50\n2000,20\n90000,3\n")
        .unwrap();
    std::fs::create_dir(folder_path.join("files")).unwrap();
    for number in 0..40 {
        let text = format!("{{\"name\": \"value {number}\", \"tags\": [1, 2, 3]}}\n").repeat(20);
        std::fs::write(folder_path.join(format!("files/page-{number}.json")), text).unwrap();
    }
    folder
}

#[test]
fn commands_on_files_fit_the_terminal_and_lose_no_word() {
    let folder = write_data_folder();
    for command_line in [
        "curve keys.csv",
        "curve keys.csv --mode bytes --policies all --capacities 10k,50k,100k,200k,400k,600k",
        "curve keys.csv --server --capacities 2m,64m --cost-per-gb 10 --miss-cost-ms 5",
        "curve keys.csv --all",
        "curve keys.csv --policies none --sample 100",
        "inspect keys.csv",
        "inspect site",
        "inspect site --all",
        "inspect cut",
        "slabs sizes.csv",
        "slabs sizes.csv --memory 64m --classes 8",
        "slabs sizes.csv --memory 1m --all",
        "slabs keys.csv",
        "simulate site --by route",
        "simulate site --by route --all --wide",
        "simulate site --search --memory 64k",
        "simulate site --search --memory 64k --wide",
        "simulate cut --strategies remote",
        "generate zipf again.csv --requests 10",
    ] {
        let unlimited_output = run_command_line(folder.path(), command_line, None);
        for columns in WIDTHS {
            let text = run_command_line(folder.path(), command_line, Some(columns));
            assert_eq!(
                find_too_long_lines(&text, columns),
                Vec::<&str>::new(),
                "{command_line} at {columns}:\n{text}"
            );
            assert_eq!(
                collect_words(&text),
                collect_words(&unlimited_output),
                "{command_line} at {columns}:\n{text}"
            );
        }
    }
}

#[test]
fn commands_on_servers_fit_a_narrow_terminal() {
    check_commands_on_servers(60);
}

#[test]
fn commands_on_servers_fit_a_terminal() {
    check_commands_on_servers(80);
}

#[test]
fn commands_on_servers_fit_a_wide_terminal() {
    check_commands_on_servers(120);
}

/// One terminal each, so that the waits of the measuring commands pass side by side.
fn check_commands_on_servers(columns: usize) {
    let folder = write_data_folder();
    let (server, other_server) = (Server::start(&[]), Server::start(&[]));
    let address = server.address();
    let other_address = other_server.address();
    let load_arguments = "--for 100ms --warm-up 50ms --keys 200 --connections 2";
    let profile_arguments = "--sizes 100,1000 --widths 1,10 --calls 200 --latency-out latency.json";
    let command_lines = [
        format!("bench {address} {load_arguments}"),
        format!("bench {address} --vs {other_address} {load_arguments}"),
        format!("profile {address} {profile_arguments}"),
        format!("profile {address} --vs {other_address} --wide {profile_arguments}"),
        format!("codec files --server {address}"),
        format!("codec files --server {address} --all"),
        "tour files".to_owned(),
        format!("stats -s {address}"),
        format!("stats -s {address} --all"),
        format!("stats -s {address} settings"),
        format!("why -s {address} --for-s 1"),
        format!("why -s {address} --for-s 1 --all"),
        format!("record {address} --for 1s --out watched.csv"),
        format!("ping -s {address}"),
    ];
    for command_line in command_lines {
        let text = run_command_line(folder.path(), &command_line, Some(columns));
        assert_eq!(
            find_too_long_lines(&text, columns),
            Vec::<&str>::new(),
            "{command_line} at {columns}:\n{text}"
        );
    }
}

#[test]
fn the_check_finds_a_line_that_is_too_long() {
    assert_eq!(find_too_long_lines("a row of words\nshort", 10), ["a row of words"]);
    assert!(find_too_long_lines("a-word-that-is-too-long\nTo copy: memcached -o x", 10).is_empty());
}
