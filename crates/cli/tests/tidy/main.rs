//! Checks rules of the codebase that compilers and linters cannot check.
//!
//! The files are those that git knows or would add. The rules: which crates use which (`crates`), no cycles among
//! modules (`modules`), no retired words in names (`names`), the opening sentence of each source file, `unsafe` in its
//! folder, licences and versions of other packages (`packages`), the names that `make` takes (`makefile`), no path of a
//! private machine, no undeclared source file, no unfinished work.

mod crates;
mod graph;
mod makefile;
mod module_check_tests;
mod modules;
mod names;
mod packages;
mod python_imports;
mod python_names;
mod rust_imports;
mod tokens;
mod tree;

use std::path::Path;

use self::tree::{assert_none, has_ending, list_files, read};

/// The only folder with hand-written `unsafe`.
const UNSAFE_FOLDER: &str = "crates/store/src/memory/";
/// Prefixes of paths of one machine, split so that this file does not contain them.
const PRIVATE_PATHS: [[&str; 2]; 4] =
    [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"], ["/Us", "ers/"]];
/// Marks of unfinished work, split for the same reason.
const UNFINISHED_MARKS: [[&str; 2]; 3] = [["TO", "DO"], ["FIX", "ME"], ["SCAF", "FOLD"]];

/// The text of a Rust file without comments and string literals; approximate, but enough to find a word.
fn strip_comments(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.split("//").next().unwrap_or_default();
        line.split('"').step_by(2).collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn each_source_file_opens_with_a_sentence() {
    let opens_with_sentence = |file: &String| {
        let text = read(file).unwrap_or_default();
        let mut lines = text.lines().skip_while(|line| line.starts_with("#!"));
        let first_line = lines.next().unwrap_or_default();
        match Path::new(file).extension().and_then(|ending| ending.to_str()) {
            Some("rs") => first_line.starts_with("//! ") && first_line.len() > 12,
            Some("py") => first_line.starts_with("\"\"\"") || text.trim().is_empty(),
            _ => true,
        }
    };
    let sources = list_files().into_iter().filter(|file| has_ending(file, &["rs", "py"]));
    let findings: Vec<String> = sources.filter(|file| !opens_with_sentence(file)).collect();
    assert_none(&findings, "each source file begins with a description");
}

#[test]
fn unsafe_stays_in_its_folder() {
    let unsafe_word = ["un", "safe"].concat();
    let is_used = |text: &str| {
        let code = strip_comments(text);
        ["{", " fn", " impl", " extern", " trait"].iter().any(|next| {
            code.contains(&format!("{unsafe_word}{next}"))
                || code.contains(&format!("{unsafe_word} {}", next.trim()))
        })
    };
    let sources = list_files()
        .into_iter()
        .filter(|file| file.starts_with("crates/") && has_ending(file, &["rs"]));
    let findings: Vec<String> = sources
        .filter(|file| {
            !file.starts_with(UNSAFE_FOLDER) && read(file).is_some_and(|text| is_used(&text))
        })
        .collect();
    assert_none(&findings, "`unsafe` is used only in the store's memory folder");
}

#[test]
fn no_file_names_a_private_machine() {
    let text_endings = [
        "rs", "py", "toml", "md", "sh", "yml", "json", "mk", "rb", "php", "go", "java", "c", "cfg",
        "txt",
    ];
    let mut findings = Vec::new();
    for file in list_files() {
        let is_text = has_ending(&file, &text_endings)
            || file.ends_with("Makefile")
            || file.starts_with("scripts/");
        if !is_text {
            continue;
        }
        for (line_index, line) in read(&file).unwrap_or_default().lines().enumerate() {
            let is_private = |parts: &[&str; 2]| {
                let path = parts.concat();
                line.match_indices(&path).any(|(start, _)| {
                    // Part of a longer path, as in a URL or `bench/work/`, is something else.
                    !line[..start].ends_with(|c: char| c.is_alphanumeric() || "._-}*".contains(c))
                })
            };
            if PRIVATE_PATHS.iter().any(is_private) {
                findings.push(format!("{file}:{}: {}", line_index + 1, line.trim()));
            }
        }
    }
    assert_none(&findings, "files contain no paths of one machine");
}

#[test]
fn every_source_file_is_declared() {
    let files = list_files();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.starts_with("crates/") && has_ending(file, &["rs"]))
    {
        let path = Path::new(file);
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let folder = path.parent().unwrap();
        let parts: Vec<&str> = file.split('/').collect();
        let is_root =
            ["lib", "main", "build"].contains(&stem) || parts.len() == 4 && parts[2] != "src";
        if is_root || parts[2] == "examples" && stem == "main" {
            continue;
        }
        let (module_name, folder) = if stem == "mod" {
            (folder.file_name().unwrap().to_str().unwrap(), folder.parent().unwrap())
        } else {
            (stem, folder)
        };
        let parent_files = [
            folder.join("mod.rs"),
            folder.join("lib.rs"),
            folder.join("main.rs"),
            folder.with_extension("rs"),
        ];
        let declaration = format!("mod {module_name};");
        let is_declared = parent_files.iter().any(|parent| {
            read(&parent.to_string_lossy())
                .is_some_and(|text| strip_comments(&text).contains(&declaration))
        }) || files.iter().any(|other| {
            has_ending(other, &["rs"])
                && Path::new(other).parent() == Some(folder)
                && read(other).is_some_and(|text| {
                    strip_comments(&text).contains(&declaration)
                        || text.contains(&format!("\"{module_name}.rs\""))
                })
        });
        if !is_declared {
            findings.push(file.clone());
        }
    }
    assert_none(&findings, "each source file is declared by another");
}

#[test]
fn no_file_marks_unfinished_work() {
    let mut findings = Vec::new();
    for file in
        list_files().into_iter().filter(|file| has_ending(file, &["rs", "py", "toml", "sh"]))
    {
        for (line_index, line) in read(&file).unwrap_or_default().lines().enumerate() {
            if UNFINISHED_MARKS.iter().any(|parts| line.contains(&parts.concat())) {
                findings.push(format!("{file}:{}: {}", line_index + 1, line.trim()));
            }
        }
    }
    assert_none(&findings, "unfinished work belongs in an issue, not in a comment");
}
