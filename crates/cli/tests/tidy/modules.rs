//! No cycles among sibling modules, the declared module order of each crate, and folders without I/O.
//!
//! Existing cycles are listed; the list may only shrink.

use std::collections::BTreeMap;

use super::graph::{Cycle, Use, find_cycles, resolve_uses, to_sibling_use};
use super::tree::{assert_none, has_ending, list_files, read};
use super::{python_imports, rust_imports};

/// Known cycles: crate or package, module, members. A cycle that was removed or reduced must be removed here.
const KNOWN_CYCLES: &[(&str, &str, &[&str])] = &[];

/// The modules of a crate from top to bottom; a module uses only modules on later lines.
const MODULE_ORDERS: &[(&str, &[&[&str]])] = &[
    (
        "protocol",
        &[
            &["binary", "text"],
            &["meta"],
            &["command"],
            &["login"],
            &["reply", "request", "ascii", "base64", "limits", "proxy_header", "replies"],
        ],
    ),
    (
        "sim",
        &[
            &["curve", "packed", "search"],
            &["replay", "strategy"],
            &["policy", "trace"],
            &["error", "key_prefix", "page", "random", "slabs"],
        ],
    ),
    (
        "store",
        &[
            &["audit", "get", "listing", "live", "restart"],
            &["footprint"],
            &["reservation"],
            &["lookup_hint"],
            &["worker"],
            &["arith", "delete", "get_and_update", "set", "item_view"],
            &["write"],
            &["chain"],
            &["record_allocator"],
            &["eviction", "epoch_participant"],
            &["publish"],
            &["accounting"],
            &["lookup"],
            &["open_segments"],
            &["store"],
            &["ghost", "policy", "eviction_reports", "sampling", "uploads"],
            &["index", "segments"],
            &["flush", "item", "sparse_segments"],
            &["prefix_flushes"],
            &["memory"],
            &["retry_limits", "counters", "error", "request", "sync", "tuning"],
        ],
    ),
    (
        "world",
        &[&["shrink"], &["generate", "world"], &["checker"], &["network"], &["plan", "random"]],
    ),
    (
        "server",
        &[
            &["in_memory", "launch", "systemd"],
            &["replacement", "running"],
            &["prepared", "restartable_memory", "server_control", "successor", "threads"],
            &["http", "live_thread", "login_thread", "start_latch", "watchdog"],
            &["failure", "net"],
            &["session"],
            &["shared", "stderr"],
        ],
    ),
];

/// Pure folders of live crates: no I/O, no clock, no threads.
const PURE_FOLDERS: &[&str] = &[
    "crates/client/src/engine/",
    "crates/client/src/pipeline/",
    "crates/client/src/request/",
    "crates/server/src/session/",
];
/// Names that a pure folder must not use.
const IMPURE_NAMES: &[&str] = &[
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

/// The uses among the modules of each crate and of the Python package.
fn read_uses_by_crate() -> BTreeMap<String, Vec<Use>> {
    let mut sources: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for file in list_files() {
        let source = file
            .strip_prefix("crates/")
            .and_then(|rest| rest.split_once("/src/"))
            .filter(|(_, path)| has_ending(path, &["rs"]))
            .or_else(|| {
                let path = file.strip_prefix("python/glasscache/")?;
                has_ending(path, &["py"]).then_some((PYTHON, path))
            });
        if let Some((name, path)) = source {
            let files_by_path = sources.entry(name.to_owned()).or_default();
            files_by_path.insert(path.to_owned(), read(&file).unwrap());
        }
    }
    let resolve_crate = |(name, files): (String, BTreeMap<String, String>)| {
        let (modules, imports) = match name.as_str() {
            PYTHON => python_imports::read_modules("glasscache", &files),
            _ => rust_imports::read_modules(&files),
        };
        (name, resolve_uses(&modules, &imports))
    };
    sources.into_iter().map(resolve_crate).collect()
}

/// The name of the Python package in the lists of this file.
const PYTHON: &str = "python";

#[test]
fn sibling_modules_have_no_cycles() {
    let mut findings = Vec::new();
    for (name, module_uses) in read_uses_by_crate() {
        let known_cycles: Vec<Cycle> = KNOWN_CYCLES
            .iter()
            .filter(|(crate_name, _, _)| *crate_name == name)
            .map(|(_, parent, members)| new_cycle(parent, members))
            .collect();
        let found_cycles = find_cycles(&module_uses);
        for cycle in &found_cycles {
            if known_cycles.contains(cycle) {
                continue;
            }
            let is_smaller = |known: &Cycle| {
                known.parent == cycle.parent
                    && cycle.members.iter().all(|member| known.members.contains(member))
            };
            findings.push(if known_cycles.iter().any(is_smaller) {
                format!(
                    "{name}: a known cycle is smaller now, update the list: {}",
                    describe_cycle(cycle)
                )
            } else {
                format!(
                    "{name}: {}{}",
                    describe_cycle(cycle),
                    list_example_uses(cycle, &module_uses)
                )
            });
        }
        for cycle in &known_cycles {
            let remains = |found: &Cycle| {
                let members = &found.members;
                found.parent == cycle.parent
                    && members.iter().all(|member| cycle.members.contains(member))
            };
            if !found_cycles.iter().any(remains) {
                findings.push(format!(
                    "{name}: a known cycle is gone, remove it from the list: {}",
                    describe_cycle(cycle)
                ));
            }
        }
    }
    assert_none(&findings, "the uses among sibling modules have no cycles");
}

pub(super) fn new_cycle(parent: &str, members: &[&str]) -> Cycle {
    Cycle {
        parent: parent.to_owned(),
        members: members.iter().map(|member| (*member).to_owned()).collect(),
    }
}

fn describe_cycle(cycle: &Cycle) -> String {
    format!("{:?} {:?}", cycle.parent, cycle.members)
}

/// One example for each pair of modules in a cycle.
fn list_example_uses(cycle: &Cycle, module_uses: &[Use]) -> String {
    let mut examples = BTreeMap::new();
    for used in module_uses {
        if let Some((parent, from, to)) = to_sibling_use(used)
            && parent.join("::") == cycle.parent
            && [from, to].iter().all(|name| cycle.members.iter().any(|member| member == name))
        {
            let example = format!("\n    {} uses {}", used.from.join("::"), used.names.join("::"));
            examples.entry((from, to)).or_insert(example);
        }
    }
    examples.into_values().collect()
}

#[test]
fn modules_use_only_modules_below_them() {
    let uses_by_crate = read_uses_by_crate();
    let mut findings = Vec::new();
    for (name, rows) in MODULE_ORDERS {
        findings.extend(
            find_order_violations(rows, &uses_by_crate[*name])
                .iter()
                .map(|violation| format!("{name}: {violation}")),
        );
    }
    assert_none(&findings, "modules use only modules below them");
}

pub(super) fn find_order_violations(rows: &[&[&str]], module_uses: &[Use]) -> Vec<String> {
    let find_row = |module: &str| rows.iter().position(|row| row.contains(&module));
    let mut violations = Vec::new();
    for used in module_uses.iter().filter(|used| !used.from.is_empty() && !used.to.is_empty()) {
        let Some(([], from, to)) = to_sibling_use(used) else {
            continue;
        };
        let violation = format!("{} uses {}", used.from.join("::"), used.names.join("::"));
        match (find_row(from), find_row(to)) {
            (Some(upper), Some(lower)) if upper < lower => {}
            (Some(_), Some(_)) => violations.push(violation),
            (None, _) => violations.push(format!("{from} is not in the declared order")),
            (_, None) => violations.push(format!("{to} is not in the declared order")),
        }
    }
    violations
}

#[test]
fn pure_folders_do_no_io() {
    let mut findings = Vec::new();
    for file in list_files() {
        let is_pure = PURE_FOLDERS.iter().any(|folder| file.starts_with(folder));
        // Tests need a start time.
        if is_pure && !file.ends_with("/tests.rs") {
            let names = find_impure_names(&read(&file).unwrap_or_default());
            findings.extend(names.iter().map(|name| format!("{file} names {name}")));
        }
    }
    assert_none(&findings, "pure folders use no sockets, clocks or threads");
}

pub(super) fn find_impure_names(text: &str) -> Vec<&'static str> {
    let code = super::strip_comments(text);
    let names = IMPURE_NAMES.iter().copied();
    names.filter(|name| code.contains(name)).collect()
}
