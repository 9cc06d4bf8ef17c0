//! External packages: their licences, versions that occur twice, and dependencies that nothing uses.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use toml::Table;

use super::tokens::split_into_tokens;
use super::tree::{assert_none, has_ending, list_files, read};

/// Licences that may be combined with ours.
const ALLOWED_LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages that occur in several versions because other external packages need different ones.
const KNOWN_DUPLICATES: &[&str] = &[
    "base64",
    "bit-vec",
    "getrandom",
    "nom",
    "num-bigint",
    "r-efi",
    "signal-hook",
    "syn",
    "thiserror",
    "thiserror-impl",
    "untrusted",
];

/// Packages whose library has another name.
const RENAMED_LIBRARIES: &[(&str, &str)] = &[("md-5", "md5")];

#[test]
fn licences_of_packages_are_allowed() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo metadata failed");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let violations = packages.iter().filter_map(|package| {
        let licence = package["license"].as_str().unwrap_or("none");
        (!is_allowed(licence)).then(|| format!("{}: {licence}", package["name"]))
    });
    assert_none(&violations.collect::<Vec<_>>(), "licences are allowed");
}

/// Whether one choice of a licence expression is allowed as a whole.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let parts = expression.split(" AND ").map(|part| part.trim_matches(['(', ')']));
    parts
        .into_iter()
        .all(|part| part.split(" OR ").any(|licence| ALLOWED_LICENCES.contains(&licence.trim())))
}

#[test]
fn packages_occur_in_one_version() {
    let lock_text = read("Cargo.lock").unwrap();
    assert_none(&find_duplicate_packages(&lock_text), "packages occur in one version");
}

/// Packages with several versions, without those for Windows only and the known ones.
fn find_duplicate_packages(lock_text: &str) -> Vec<String> {
    let lock: Table = lock_text.parse().unwrap();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in lock["package"].as_array().unwrap() {
        let read_text = |key| package.get(key).and_then(|value| value.as_str());
        if let (Some(name), Some(version)) = (read_text("name"), read_text("version")) {
            versions.entry(name).or_default().insert(version);
        }
    }
    let is_known = |name: &str| name.starts_with("windows-") || KNOWN_DUPLICATES.contains(&name);
    versions.retain(|name, versions| versions.len() > 1 && !is_known(name));
    let duplicates = versions.into_iter();
    duplicates.map(|(name, versions)| format!("{name}: {versions:?}")).collect()
}

#[test]
fn every_dependency_is_used() {
    let files = list_files();
    let mut findings = Vec::new();
    for file in &files {
        let Some(folder) =
            file.strip_suffix("Cargo.toml").filter(|folder| folder.starts_with("crates/"))
        else {
            continue;
        };
        let source_files =
            files.iter().filter(|file| file.starts_with(folder) && has_ending(file, &["rs"]));
        let own_sources: String = source_files.filter_map(|file| read(file)).collect();
        let includes =
            own_sources.lines().filter_map(|line| line.strip_prefix("#[path = \"../../../"));
        let included_sources =
            includes.filter_map(|path| read(&format!("crates/{}", path.trim_end_matches("\"]"))));
        let sources = included_sources.fold(own_sources.clone(), |sources, text| sources + &text);
        let unused = find_unused_dependencies(&read(file).unwrap(), &sources);
        findings.extend(unused.into_iter().map(|name| format!("{folder}: {name}")));
    }
    assert_none(&findings, "every dependency is used");
}

/// Dependencies of a manifest that the sources of the crate do not name.
fn find_unused_dependencies(manifest_text: &str, sources: &str) -> Vec<String> {
    let manifest: Table = manifest_text.parse().unwrap();
    let source_words: BTreeSet<&str> = split_into_tokens(sources).into_iter().collect();
    let kinds = ["dependencies", "build-dependencies", "dev-dependencies"];
    let tables = kinds.iter().filter_map(|kind| manifest.get(*kind)?.as_table());
    let is_unused = |name: &&String| {
        let renamed = RENAMED_LIBRARIES.iter().find(|(package, _)| package == name);
        let library =
            renamed.map_or_else(|| name.replace('-', "_"), |(_, library)| (*library).to_owned());
        !source_words.contains(library.as_str())
    };
    tables.flat_map(Table::keys).filter(is_unused).cloned().collect()
}

#[test]
fn every_crate_has_the_minimum_version_of_the_workspace() {
    let manifests = list_files()
        .into_iter()
        .filter(|file| file.starts_with("crates/") && file.ends_with("/Cargo.toml"));
    let violations = manifests.filter(|file| !inherits_rust_version(&read(file).unwrap()));
    assert_none(
        &violations.collect::<Vec<_>>(),
        "crates inherit rust-version, below which cargo refuses to build",
    );
}

fn inherits_rust_version(manifest_text: &str) -> bool {
    let manifest: Table = manifest_text.parse().unwrap();
    let version = manifest["package"].get("rust-version");
    version.and_then(|version| version.get("workspace")).is_some()
}

mod tests {
    use super::*;

    #[test]
    fn finds_licences_that_are_not_allowed() {
        for (expression, expected) in [
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("MIT OR LGPL-2.1-or-later", true),
            ("GPL-3.0-only", false),
            ("MIT AND GPL-3.0-only", false),
            ("none", false),
        ] {
            assert_eq!(is_allowed(expression), expected, "{expression}");
        }
    }

    #[test]
    fn finds_packages_in_two_versions() {
        let package = |name: &str, version: &str| {
            format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n")
        };
        let lock_text = package("a", "1.0.0") + &package("syn", "1.0.0") + &package("syn", "2.0.0");
        assert_eq!(find_duplicate_packages(&lock_text), Vec::<String>::new());
        assert_eq!(find_duplicate_packages(&(lock_text + &package("a", "2.0.0"))).len(), 1);
    }

    #[test]
    fn finds_unused_dependencies() {
        let manifest = "[dependencies]\na-b = \"1\"\n[dev-dependencies]\nc = \"1\"";
        let found = find_unused_dependencies(manifest, "use a_b::X; // c\n");
        assert_eq!(found, ["c"]);
    }

    #[test]
    fn finds_a_crate_with_its_own_minimum_version() {
        assert!(inherits_rust_version("[package]\nrust-version.workspace = true"));
        assert!(!inherits_rust_version("[package]\nrust-version = \"1.80\""));
        assert!(!inherits_rust_version("[package]\nname = \"a\""));
    }
}
