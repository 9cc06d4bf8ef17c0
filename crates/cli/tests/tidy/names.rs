//! Retired words: names that are private dialect instead of the standard terms of the field.
//!
//! The test checks file names and the names that a file declares (items, fields, variants, parameters, `let` bindings).
//! A name of another crate may be used. Folders are added to `CHECKED_FOLDERS` when their names are done.

use std::collections::BTreeSet;

use super::python_names;
use super::tokens::split_into_tokens;
use super::tree::{assert_none, has_ending, list_files, read};

/// Folders whose names are checked.
const CHECKED_FOLDERS: &[&str] = &[
    "crates/cli/",
    "crates/client/",
    "crates/findings/",
    "crates/lab/",
    "crates/native/",
    "crates/peers/",
    "crates/protocol/",
    "crates/record/",
    "crates/server/",
    "crates/store/",
    "crates/sim/",
    "crates/strategy/",
    "crates/world/",
    "bench/",
    "docs/",
    "examples/",
    "python/",
    "tests/",
];

/// Words that are not part of a name, and the terms to use instead.
const RETIRED_WORDS: &[(&str, &str)] = &[
    ("hear hears heard", "receive, read ahead"),
    ("ask asks asked asking unasked", "request, send"),
    ("answer answers answered answering", "reply, respond"),
    ("say says said speak speaks", "report, print"),
    ("tell tells told untold", "report, expose"),
    ("shown", "display, format"),
    ("owe owes owed debt debts pay paid", "pending, acknowledge"),
    ("doubt doubts", "uncertain"),
    ("judge judged judges judging verdict verdicts", "interpret, decide, evaluate"),
    ("condemn condemned", "mark for close"),
    ("comings ties hub desk", "lifecycle, registry, writer"),
    ("beside amid", "what it does"),
    ("luck dice deed deeds", "random, rng, stats"),
    ("parted", "partition"),
    ("place places", "slot, index, offset, position"),
    ("turn turns", "iteration, context"),
    ("goes who whom nobody somebody", "the subject and an active verb"),
    ("aim refill reap obstacle lasting", "goal, request, remove, reason, permanent"),
    ("parcel lied", "packet, misbehave"),
    ("loose rubout", "external, delete"),
    ("mend sister stranger noughts", "fix, related, unknown, zeros"),
];

#[test]
fn names_contain_no_retired_words() {
    let mut findings = Vec::new();
    for file in list_files() {
        let is_checked = CHECKED_FOLDERS.iter().any(|folder| file.starts_with(folder));
        if !is_checked || !has_ending(&file, &["rs", "py"]) {
            continue;
        }
        let text = read(&file).unwrap_or_default();
        let declared = if has_ending(&file, &["py"]) {
            python_names::list_declared_names(&text)
        } else {
            list_declared_names(&text)
        };
        let path = file.rsplit_once('.').map_or(file.as_str(), |(path, _)| path);
        let names = path.split('/').chain(declared);
        let retired =
            names.filter_map(|name| Some(format!("{file}: {name} ({})", find_replacement(name)?)));
        findings.extend(retired.collect::<BTreeSet<_>>());
    }
    assert_none(&findings, "names use standard terms, not retired words");
}

/// The terms to use instead of a retired word in a name.
fn find_replacement(name: &str) -> Option<&'static str> {
    let parts = split_name(name);
    let is_retired =
        |words: &str| words.split(' ').any(|word| parts.iter().any(|part| part == word));
    let rule = RETIRED_WORDS.iter().find(|(words, _)| is_retired(words));
    rule.map(|(_, replacement)| *replacement)
}

/// The parts of a name in snake case or camel case, in lower case.
fn split_name(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || c == '-' || (c.is_uppercase() && was_lower) {
            parts.push(String::new());
        }
        if c.is_alphanumeric() {
            parts.last_mut().unwrap().extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    parts
}

/// The names that a Rust source declares.
fn list_declared_names(text: &str) -> Vec<&str> {
    let tokens = split_into_tokens(text);
    let mut names = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let next_tokens = &tokens[index + 1..];
        match *token {
            "fn" => {
                names.extend(next_tokens.first());
                names.extend(list_names_before_colons(find_bracketed_tokens(next_tokens, "(")));
            }
            "struct" | "union" => {
                names.extend(next_tokens.first());
                names.extend(list_names_before_colons(find_bracketed_tokens(next_tokens, "{")));
            }
            "enum" => {
                names.extend(next_tokens.first());
                names.extend(list_variant_names(find_bracketed_tokens(next_tokens, "{")));
            }
            "trait" | "type" | "const" | "static" | "mod" => names.extend(next_tokens.first()),
            "let" => {
                let name = next_tokens.iter().find(|token| **token != "mut");
                // A capital begins the path of a pattern, which declares nothing.
                names.extend(name.filter(|name| !name.starts_with(char::is_uppercase)));
            }
            _ => {}
        }
    }
    names.retain(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '_'));
    names
}

/// The tokens of an item within its first bracket of this kind, if it comes before the end of the item.
fn find_bracketed_tokens<'a, 't>(next_tokens: &'a [&'t str], open: &str) -> &'a [&'t str] {
    let mut angle_depth = 0_i32;
    for (index, token) in next_tokens.iter().enumerate() {
        let is_arrow = index > 0 && next_tokens[index - 1] == "-";
        match *token {
            "<" => angle_depth += 1,
            ">" if !is_arrow => angle_depth -= 1,
            token if token == open && angle_depth == 0 => {
                let length = group_length(&next_tokens[index..]);
                return &next_tokens[index + 1..index + length - 1];
            }
            ";" | "{" if angle_depth == 0 => break,
            _ => {}
        }
    }
    &[]
}

/// The number of tokens of a bracketed group, brackets included.
fn group_length(tokens: &[&str]) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate() {
        depth += match *token {
            "(" | "[" | "{" => 1,
            ")" | "]" | "}" => -1,
            _ => 0,
        };
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len().max(2)
}

/// Fields and parameters: the names before a colon, outside inner brackets.
fn list_names_before_colons<'t>(body: &[&'t str]) -> Vec<&'t str> {
    let top_level_tokens = list_top_level_tokens(body);
    let ends_with_colon = |pair: &&[&str]| pair[1] == ":";
    top_level_tokens.windows(2).filter(ends_with_colon).map(|pair| pair[0]).collect()
}

/// The variants of an enum: the first name after each comma, outside inner brackets.
fn list_variant_names<'t>(body: &[&'t str]) -> Vec<&'t str> {
    let top_level_tokens = list_top_level_tokens(body);
    let variants = top_level_tokens.split(|token| *token == ",");
    let find_name = |variant: &[&'t str]| variant.iter().copied().find(|token| *token != "#");
    variants.filter_map(find_name).collect()
}

/// The tokens outside inner brackets.
fn list_top_level_tokens<'t>(body: &[&'t str]) -> Vec<&'t str> {
    let mut top_level_tokens = Vec::new();
    let mut index = 0;
    while let Some(token) = body.get(index) {
        if ["(", "[", "{"].contains(token) {
            index += group_length(&body[index..]);
        } else {
            top_level_tokens.push(*token);
            index += 1;
        }
    }
    top_level_tokens
}

mod tests {
    use super::*;

    fn find_retired_names(source: &str) -> Vec<&str> {
        let names = list_declared_names(source).into_iter();
        names.filter(|name| find_replacement(name).is_some()).collect()
    }

    #[test]
    fn finds_retired_words_in_every_declaration() {
        for (source, name) in [
            ("fn tell_limit() {}", "tell_limit"),
            ("fn f<F: Fn(u8) -> u8>(first: F, deeds: &[u8]) {}", "deeds"),
            ("pub(crate) struct Verdict;", "Verdict"),
            ("struct S<T> { pub a: T, pub(super) judged_on: Vec<(T, u8)> }", "judged_on"),
            ("enum E { A(u8), #[x] GoesOn { a: u8 }, B }", "GoesOn"),
            ("trait Dice {}", "Dice"),
            ("const PLACES_MAX: u8 = 1;", "PLACES_MAX"),
            ("mod beside;", "beside"),
            ("fn f() { let mut luck = 1; }", "luck"),
        ] {
            assert_eq!(find_retired_names(source), [name], "{source}");
        }
    }

    #[test]
    fn ignores_text_and_names_of_other_crates() {
        for source in [
            "// who asked?\nconst A: &str = \"told\";",
            "use client::{Place, ask_all}; fn f() { client.ask_all(Place::Tcp) }",
            "fn f() { server::Config { shown: rows(), ..x } }",
            "fn f() { let Verdict::Found(a) = b else { return }; }",
            "fn replace(placed: u8, returns: u8, partition: u8) {}",
        ] {
            assert_eq!(find_retired_names(source), Vec::<&str>::new(), "{source}");
        }
    }
}
