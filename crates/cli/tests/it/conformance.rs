//! The cases of `conformance/` against our server, or against a real memcached (`make oracle`).
//!
//! After each step a `version` follows, whose reply marks the end of the step's reply, so missing and
//! superfluous lines are both detected without waiting. If a step ends the connection, the close is
//! the end.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::server::{Server, TestConnection};

/// Environment variable with a memcached to test instead of ours.
pub(crate) const ORACLE_VARIABLE: &str = "GLASSCACHE_TEST_ORACLE";
/// The request after each step; its reply is determined once.
const FENCE_REQUEST: &str = "version\r\n";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile<Step> {
    case: Vec<Case<Step>>,
}

/// A case: its steps on one connection.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case<Step> {
    name: String,
    pub(crate) steps: Vec<Step>,
    /// The first memcached that replies so.
    #[serde(default)]
    since: Option<String>,
    /// Why memcached replies otherwise.
    #[serde(default, rename = "differs")]
    difference: Option<String>,
    /// Whether the server closes the connection after the last step.
    #[serde(default)]
    pub(crate) closes: bool,
}

/// The memcached to test instead of ours.
pub(crate) fn find_oracle() -> Option<OsString> {
    std::env::var_os(ORACLE_VARIABLE)
}

/// Runs every case in the files of a folder of `conformance/`, of which there are `files_min` or more, and fails with
/// those that `run` fails. Cases that a memcached of this version does not know or handles otherwise are skipped on it.
pub(crate) fn check_cases<Step: DeserializeOwned>(
    folder: &str,
    files_min: usize,
    peer_version: &[u32],
    run: impl Fn(&Case<Step>) -> Result<(), String>,
) {
    let oracle = find_oracle();
    let (mut passed, mut skipped, mut failures) = (0, 0, Vec::new());
    for path in list_case_files(Path::new(folder), files_min) {
        let text = std::fs::read_to_string(&path).unwrap();
        let file: CaseFile<Step> =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for case in file.case {
            let since = case.since.as_deref();
            let is_newer = since.is_some_and(|since| peer_version < &parse_version(since)[..]);
            if oracle.is_some() && (is_newer || case.difference.is_some()) {
                skipped += 1;
                continue;
            }
            match run(&case) {
                Ok(()) => passed += 1,
                Err(failure_text) => {
                    failures.push(format!(
                        "{}: {}\n{failure_text}",
                        format_file_stem(&path),
                        case.name
                    ));
                }
            }
        }
    }
    let server_name =
        oracle.map_or_else(|| "glasscache".to_owned(), |path| path.to_string_lossy().into_owned());
    eprintln!(
        "{server_name} {peer_version:?} {folder}: {passed} cases pass, {} fail, {skipped} skipped",
        failures.len()
    );
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn every_case_gets_the_expected_replies() {
    let server = match find_oracle() {
        Some(path) => Server::memcached(&path),
        None => Server::start(&["-m", "64"]),
    };
    let fence_reply = server.connect().request(FENCE_REQUEST);
    check_cases("", 10, &parse_version(&fence_reply), |case| {
        run_case(&server, case, &format!("{fence_reply}\r\n"))
    });
}

/// The files of cases in a folder of `conformance/`, of which there are `files_min` or more.
fn list_case_files(folder: &Path, files_min: usize) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    let folder = root.join(folder);
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ext| ext == "toml")).collect();
    files.sort();
    assert!(files.len() >= files_min, "the cases are missing");
    files
}

fn format_file_stem(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

/// The numbers of a version text such as `VERSION 1.6.45-x`.
pub(crate) fn parse_version(text: &str) -> Vec<u32> {
    let text = text.trim_start_matches("VERSION ");
    text.split(|c: char| !c.is_ascii_digit()).take(3).filter_map(|part| part.parse().ok()).collect()
}

fn run_case(
    server: &Server,
    case: &Case<(String, String)>,
    fence_reply: &str,
) -> Result<(), String> {
    let mut connection = server.connect();
    assert_eq!(connection.request("flush_all\r\n"), "OK");
    let mut captured = HashMap::new();
    for (step_index, (send, expect)) in case.steps.iter().enumerate() {
        let is_last = step_index + 1 == case.steps.len();
        let request = expand_placeholders(send, &captured);
        connection.send(&request);
        if case.closes && is_last {
            return if connection.is_closed() {
                Ok(())
            } else {
                Err("the server does not close".to_owned())
            };
        }
        let reply = request_until_fence(&mut connection, &request, fence_reply);
        match_reply(&expand_repetitions(expect), &reply, &mut captured).map_err(|reason| {
            format!(
                "  sent     {:?}\n  expected {expect:?}\n  came     {:?}\n  {reason}",
                shorten(send),
                shorten(&String::from_utf8_lossy(&reply))
            )
        })?;
    }
    Ok(())
}

/// The reply before that to the fence. A step that ends inside a value has no fence: its reply is one
/// line.
fn request_until_fence(
    connection: &mut TestConnection,
    request: &[u8],
    fence_reply: &str,
) -> Vec<u8> {
    if !request.ends_with(b"\n") {
        return connection.read_through(b"\n");
    }
    connection.send(FENCE_REQUEST.as_bytes());
    let mut reply = connection.read_through(fence_reply.as_bytes());
    reply.truncate(reply.len() - fence_reply.len());
    reply
}

fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(200).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

/// Replaces `{k*251}` by 251 letters.
pub(crate) fn expand_repetitions(text: &str) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once('{') {
        let (token, after) = tail.split_once('}').expect("a closed brace");
        expanded += before;
        match token.split_once('*') {
            Some((letter, count)) => expanded += &letter.repeat(count.parse().expect("a count")),
            None => expanded.extend(["{", token, "}"]),
        }
        rest = after;
    }
    expanded + rest
}

/// Replaces `{k*251}` and `{u}` in bytes to send.
fn expand_placeholders(text: &str, captured: &HashMap<String, String>) -> Vec<u8> {
    let mut text = expand_repetitions(text);
    for (name, value) in captured {
        text = text.replace(&format!("{{{name}}}"), value);
    }
    text.into_bytes()
}

/// Compares a reply with its pattern, and stores `{u}` when it is new.
fn match_reply(
    pattern: &str,
    reply: &[u8],
    captured: &mut HashMap<String, String>,
) -> Result<(), String> {
    let mut reply = reply;
    let mut pattern = pattern;
    while !pattern.is_empty() {
        let token_start = pattern.find(['{', '<']).unwrap_or(pattern.len());
        let (literal, tail) = pattern.split_at(token_start);
        reply = reply
            .strip_prefix(literal.as_bytes())
            .ok_or_else(|| format!("{literal:?} is not there"))?;
        if tail.is_empty() {
            break;
        }
        let end = tail.find(['}', '>']).expect("a closed token");
        let token = &tail[1..end];
        pattern = &tail[end + 1..];
        let is_digit = |byte: &&u8| byte.is_ascii_digit();
        let digit_count = reply.iter().take_while(is_digit).count();
        let length = match (token, token.split_once("..")) {
            ("word", _) => reply.iter().take_while(|byte| !byte.is_ascii_whitespace()).count(),
            (_, Some((low, high))) => {
                let number: u64 = std::str::from_utf8(&reply[..digit_count])
                    .unwrap()
                    .parse()
                    .map_err(|_| "no number")?;
                let range = low.parse().unwrap()..=high.parse::<u64>().unwrap();
                if !range.contains(&number) {
                    return Err(format!("{number} is not in {token}"));
                }
                digit_count
            }
            _ => digit_count,
        };
        if length == 0 {
            return Err(format!("nothing stands where <{token}> should"));
        }
        let text = String::from_utf8_lossy(&reply[..length]).into_owned();
        if tail.starts_with('{') {
            let known = captured.entry(token.to_owned()).or_insert_with(|| text.clone());
            if *known != text {
                return Err(format!("{text} is not {known}, which was {{{token}}} before"));
            }
        }
        reply = &reply[length..];
    }
    if reply.is_empty() { Ok(()) } else { Err("more came than was expected".to_owned()) }
}
