//! The files that are checked, and how a finding is reported.

use std::path::{Path, PathBuf};
use std::process::Command;

fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every file that git tracks or would add, as a path from the root.
pub(super) fn list_files() -> Vec<String> {
    let git_output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(workspace_root())
        .output();
    let text = match git_output {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap(),
        // Outside a repository (for example in a source archive) the folders are listed directly.
        _ => list_files_by_walking(),
    };
    let mut files: Vec<String> = text
        .lines()
        .filter(|file| workspace_root().join(file).is_file())
        .map(str::to_owned)
        .collect();
    files.sort();
    files.dedup();
    assert!(files.len() > 50, "only {} files were found", files.len());
    files
}

fn list_files_by_walking() -> String {
    let mut listing = String::new();
    let mut folders: Vec<PathBuf> = ["crates", "tests", "python", "docs", "conformance", "scripts"]
        .map(|name| workspace_root().join(name))
        .into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if let Ok(path) = entry.path().strip_prefix(workspace_root()) {
                listing.push_str(&path.to_string_lossy());
                listing.push('\n');
            }
        }
    }
    listing
}

pub(super) fn read(file: &str) -> Option<String> {
    std::fs::read_to_string(workspace_root().join(file)).ok()
}

pub(super) fn has_ending(file: &str, endings: &[&str]) -> bool {
    let ending = Path::new(file).extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| endings.contains(&ending))
}

pub(super) fn assert_none(findings: &[String], rule: &str) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}
