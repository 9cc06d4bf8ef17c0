//! The Makefile and `proofs.txt`: few targets, a sentence for each name, and each name that the documents mention.

use std::process::{Command, Output};

use super::tree::{assert_none, has_ending, list_files, read};

const TARGETS_MAX: usize = 30;
/// What precedes a command in a document, a comment, a message, or a table of `bench/`.
const QUOTES: [&str; 3] = ["`", "'", "= \""];

/// The name at the start of a text, which may be empty.
fn leading_name(text: &str) -> &str {
    let is_in_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.split(|c| !is_in_name(c)).next().unwrap_or_default()
}

/// What a file declares, by name, with its sentence: after `mark` in `name: ...` or `name [needs]: ...`.
fn declared_names(file: &str, mark: &str) -> Vec<(String, String)> {
    let text = read(file).unwrap();
    let declarations = text.lines().filter_map(|line| {
        let name = leading_name(line);
        let rest = &line[name.len()..];
        let is_declaration = !name.is_empty() && (rest.starts_with(':') || rest.starts_with(" ["));
        let sentence = line.split_once(mark).map_or("", |(_, sentence)| sentence);
        is_declaration.then(|| (name.to_owned(), sentence.to_owned()))
    });
    declarations.collect()
}

fn targets() -> Vec<(String, String)> {
    declared_names("Makefile", " ## ")
}

fn proofs() -> Vec<(String, String)> {
    declared_names("proofs.txt", ": ")
}

/// Runs `make --dry-run`, which executes no command.
fn dry_run<'a>(names: impl IntoIterator<Item = &'a str>) -> Output {
    let mut make = Command::new("make");
    make.arg("--dry-run")
        .args(names)
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .env("LC_ALL", "C");
    make.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).output().unwrap()
}

#[test]
fn the_makefile_has_few_targets() {
    let count = targets().len();
    assert!(count <= TARGETS_MAX, "{count} targets: a proof or a measurement goes to proofs.txt");
}

#[test]
fn every_target_and_proof_has_a_sentence() {
    let tasks = targets().into_iter().chain(proofs());
    let findings = tasks.filter(|(_, sentence)| !sentence.ends_with('.')).map(|(name, _)| name);
    assert_none(&findings.collect::<Vec<_>>(), "a target or a proof has a sentence");
}

#[test]
fn make_runs_every_proof() {
    let proofs = proofs();
    assert!(proofs.len() > 50, "only {} proofs were found", proofs.len());
    let output = dry_run(proofs.iter().map(|(name, _)| name.as_str()));
    let commands = String::from_utf8_lossy(&output.stdout);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert!(!messages.contains("overriding recipe"), "a name is declared twice: {messages}");
    assert!(!commands.contains("Nothing to be done"), "{commands}");
}

#[test]
fn make_refuses_an_unknown_name_and_prints_the_nearest() {
    let output = dry_run(["bench-memry"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("the nearest is 'bench-memory'"), "{message}");
}

/// The names after `make` in a text: where it is quoted, or begins a line of a fenced block.
fn mentioned_names(text: &str) -> Vec<&str> {
    let mut is_in_block = false;
    let mut mentioned = Vec::new();
    for line in text.lines() {
        is_in_block ^= line.trim_start().starts_with("```");
        for (start, command) in line.match_indices("make ") {
            let before = &line[..start];
            let begins_line = before.trim_matches([' ', '$']).is_empty();
            if QUOTES.iter().any(|quote| before.ends_with(quote)) || is_in_block && begins_line {
                mentioned.push(leading_name(&line[start + command.len()..]));
            }
        }
    }
    mentioned.retain(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()));
    mentioned
}

/// The scripts of this project that a text names: `scripts/NAME` that is not the end of a longer path.
fn mentioned_scripts(text: &str) -> impl Iterator<Item = &str> {
    let is_in_name = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    text.match_indices("scripts/").filter_map(move |(start, _)| {
        let is_own_path = !text[..start].trim_end_matches("./").ends_with(is_in_name)
            || text[..start].ends_with("$PWD/");
        let rest = &text[start..];
        let name = rest.split(|c| !is_in_name(c)).next()?.trim_end_matches('.');
        (is_own_path && name.len() > "scripts/".len()).then_some(name)
    })
}

/// How many names the texts of files of this kind have, and those that do not exist, each with its file.
fn find_unknown_names(
    is_text: impl Fn(&str) -> bool,
    list_names: impl Fn(&str) -> Vec<&str>,
    exists: impl Fn(&str) -> bool,
) -> (usize, Vec<String>) {
    let (mut name_count, mut findings) = (0, Vec::new());
    for file in list_files().into_iter().filter(|file| is_text(file)) {
        let text = read(&file).unwrap_or_default();
        let names = list_names(&text);
        name_count += names.len();
        let unknown_names = names.into_iter().filter(|name| !exists(name));
        findings.extend(unknown_names.map(|name| format!("{file}: {name}")));
    }
    (name_count, findings)
}

#[test]
fn every_script_that_is_named_exists() {
    let files = list_files();
    let (mention_count, findings) = find_unknown_names(
        |file| {
            ["Makefile", "proofs.txt", "README.md", "CONTRIBUTING.md"].contains(&file)
                || file.starts_with("scripts/")
                || file.starts_with("docs/")
        },
        |text| mentioned_scripts(text).collect(),
        |script| files.iter().any(|known| known == script),
    );
    assert!(mention_count > 60, "only {mention_count} mentions were found");
    assert_none(&findings, "a script that is named is part of the project");
}

/// No everyday build compiles the fuzz targets.
#[test]
fn every_file_that_a_fuzz_target_includes_exists() {
    let files = list_files();
    let (include_count, findings) = find_unknown_names(
        |file| file.starts_with("fuzz/fuzz_targets/"),
        |text| {
            let paths = text.lines().filter_map(|line| line.strip_prefix("#[path = \"../../"));
            paths.map(|path| path.trim_end_matches("\"]")).collect()
        },
        |path| files.iter().any(|known| known == path),
    );
    assert!(include_count > 2, "only {include_count} files are included");
    assert_none(&findings, "a file that is included is part of the project");
}

#[test]
fn every_make_in_a_document_exists() {
    let tasks = [targets(), proofs()].concat();
    let (mention_count, findings) = find_unknown_names(
        |file| {
            has_ending(file, &["rs", "py", "toml", "md", "yml", "txt"])
                || file == "Makefile"
                || file.starts_with("scripts/")
        },
        mentioned_names,
        |name| tasks.iter().any(|(known, _)| known == name),
    );
    assert!(mention_count > 100, "only {mention_count} mentions were found");
    assert_none(&findings, "what documents run by make exists");
}
