//! No loops among neighbouring modules, the order that a crate declares for its own, and parts without input or output.
//!
//! Loops that are still there stand in a list that may only shrink.

use std::collections::BTreeMap;

use super::graph::{Cycle, Use, cycles, neighbours, uses};
use super::tree::{assert_none, files, has_ending, read};
use super::{python_imports, rust_imports};

/// Loops that are known: crate or package, module, members. One that is opened or made smaller is struck out here.
const KNOWN: &[(&str, &str, &[&str])] = &[
    (
        "python",
        "",
        &[
            "_aio_calls",
            "_aio_pipeline",
            "_gutter",
            "_leaving",
            "_pipeline",
            "_report",
            "aio",
            "cached",
            "client",
            "leases",
        ],
    ),
    ("python", "compat::pylibmc", &["_core", "_settings"]),
    ("python", "compat::pymemcache::client", &["_pool", "base"]),
];

/// The modules of a crate from the upper to the lower; one uses only what stands on a later line.
const ORDERS: &[(&str, &[&[&str]])] = &[
    (
        "protocol",
        &[
            &["text"],
            &["meta"],
            &["command"],
            &["reply", "request", "ascii", "base64", "limits", "words"],
        ],
    ),
    (
        "sim",
        &[
            &["curve", "search"],
            &["replay", "strategy"],
            &["policy", "trace"],
            &["error", "page", "random", "slabs"],
        ],
    ),
    (
        "store",
        &[
            &["audit", "footprint", "listing", "read", "upload"],
            &["guess"],
            &["worker"],
            &["arith", "delete", "fetch", "set", "view"],
            &["write"],
            &["chain"],
            &["room"],
            &["eviction", "participant"],
            &["publish"],
            &["accounts"],
            &["lookup"],
            &["append"],
            &["store"],
            &["ghost", "policy", "report", "uploads"],
            &["index", "segments"],
            &["flush", "item", "sparse"],
            &["memory"],
            &["attempts", "counters", "error", "request", "sync"],
        ],
    ),
    (
        "server",
        &[
            &["running", "replay", "systemd"],
            &["watchdog"],
            &["failure", "net"],
            &["session"],
            &["shared"],
        ],
    ),
];

/// Folders of live crates that are pure: they move no bytes, look at no clock and start no thread.
const PURE_FOLDERS: &[&str] = &[
    "crates/client/src/engine/",
    "crates/client/src/pipeline/",
    "crates/client/src/request/",
    "crates/server/src/session/",
];
/// What a pure folder does not name.
const IMPURE: &[&str] = &[
    "rustix::net",
    "rustix::event",
    "rustix::io",
    "rustix::time",
    "std::os::fd",
    "OwnedFd",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
    "UnixDatagram",
    "Instant::now",
    "SystemTime::now",
    "std::thread",
];

/// The uses among the modules of each crate, and of the Python package, by name.
fn all() -> BTreeMap<String, Vec<Use>> {
    let mut sources: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for file in files() {
        let source = file
            .strip_prefix("crates/")
            .and_then(|rest| rest.split_once("/src/"))
            .filter(|(_, path)| has_ending(path, &["rs"]))
            .or_else(|| {
                let path = file.strip_prefix("python/glasscache/")?;
                has_ending(path, &["py"]).then_some((PYTHON, path))
            });
        if let Some((name, path)) = source {
            let of_name = sources.entry(name.to_owned()).or_default();
            of_name.insert(path.to_owned(), read(&file).unwrap());
        }
    }
    let uses_of = |(name, files): (String, BTreeMap<String, String>)| {
        let (modules, imports) = match name.as_str() {
            PYTHON => python_imports::read("glasscache", &files),
            _ => rust_imports::read(&files),
        };
        (name, uses(&modules, &imports))
    };
    sources.into_iter().map(uses_of).collect()
}

/// The name of the Python package in the lists of this file.
const PYTHON: &str = "python";

#[test]
fn no_neighbouring_modules_use_each_other() {
    let mut findings = Vec::new();
    for (name, uses) in all() {
        let known: Vec<_> = KNOWN.iter().filter(|known| known.0 == name).collect();
        let known: Vec<Cycle> = known.iter().map(|known| cycle(known.1, known.2)).collect();
        let found = cycles(&uses);
        for cycle in &found {
            if known.contains(cycle) {
                continue;
            }
            let is_smaller = |known: &Cycle| {
                known.within == cycle.within
                    && cycle
                        .members
                        .iter()
                        .all(|member| known.members.contains(member))
            };
            findings.push(if known.iter().any(is_smaller) {
                format!(
                    "{name}: a known loop is smaller now, write so: {}",
                    shown(cycle)
                )
            } else {
                format!("{name}: {}{}", shown(cycle), examples(cycle, &uses))
            });
        }
        for cycle in &known {
            let is_left = |found: &&Cycle| {
                let members = &found.members;
                found.within == cycle.within
                    && members.iter().all(|member| cycle.members.contains(member))
            };
            if !found.iter().any(|found| is_left(&found)) {
                findings.push(format!(
                    "{name}: a known loop is gone, strike it out: {}",
                    shown(cycle)
                ));
            }
        }
    }
    assert_none(
        &findings,
        "neighbouring modules do not use each other in a loop",
    );
}

pub(super) fn cycle(within: &str, members: &[&str]) -> Cycle {
    Cycle {
        within: within.to_owned(),
        members: members.iter().map(|member| (*member).to_owned()).collect(),
    }
}

fn shown(cycle: &Cycle) -> String {
    format!("{:?} {:?}", cycle.within, cycle.members)
}

/// One use for each pair of neighbours in a loop.
fn examples(cycle: &Cycle, uses: &[Use]) -> String {
    let mut examples = BTreeMap::new();
    for used in uses {
        if let Some((within, from, to)) = neighbours(used)
            && within.join("::") == cycle.within
            && [from, to]
                .iter()
                .all(|name| cycle.members.iter().any(|member| member == name))
        {
            let example = format!(
                "\n    {} uses {}",
                used.from.join("::"),
                used.names.join("::")
            );
            examples.entry((from, to)).or_insert(example);
        }
    }
    examples.into_values().collect()
}

#[test]
fn a_module_uses_only_what_its_crate_puts_below_it() {
    let all = all();
    let mut findings = Vec::new();
    for (name, rows) in ORDERS {
        findings.extend(
            violations(rows, &all[*name])
                .iter()
                .map(|found| format!("{name}: {found}")),
        );
    }
    assert_none(&findings, "modules use what stands below them");
}

pub(super) fn violations(rows: &[&[&str]], uses: &[Use]) -> Vec<String> {
    let row = |module: &str| rows.iter().position(|row| row.contains(&module));
    let mut violations = Vec::new();
    for used in uses
        .iter()
        .filter(|used| !used.from.is_empty() && !used.to.is_empty())
    {
        let Some(([], from, to)) = neighbours(used) else {
            continue;
        };
        let shown = format!("{} uses {}", used.from.join("::"), used.names.join("::"));
        match (row(from), row(to)) {
            (Some(upper), Some(lower)) if upper < lower => {}
            (Some(_), Some(_)) => violations.push(shown),
            (None, _) => violations.push(format!("{from} has no place in the order")),
            (_, None) => violations.push(format!("{to} has no place in the order")),
        }
    }
    violations
}

#[test]
fn pure_folders_name_no_input_or_output() {
    let mut findings = Vec::new();
    for file in files() {
        if PURE_FOLDERS.iter().any(|folder| file.starts_with(folder)) {
            let names = impure_names(&read(&file).unwrap_or_default());
            findings.extend(names.iter().map(|name| format!("{file} names {name}")));
        }
    }
    assert_none(
        &findings,
        "pure folders have neither sockets nor clocks nor threads",
    );
}

pub(super) fn impure_names(text: &str) -> Vec<&'static str> {
    let code = super::code(text);
    let names = IMPURE.iter().copied();
    names.filter(|name| code.contains(name)).collect()
}
