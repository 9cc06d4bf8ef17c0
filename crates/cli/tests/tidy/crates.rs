//! Which crate may use which other crate, and what pure crates must not use.

use std::collections::{BTreeMap, BTreeSet};

use toml::Table;

use super::tree::{assert_none, list_files, read};

/// Which of our crates each one may use; arrows point downwards (ARCHITECTURE.md).
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 14] = [
    ("protocol", &[]),
    ("store", &[]),
    ("strategy", &[]),
    ("findings", &[]),
    ("peers", &[]),
    ("sim", &["store", "strategy"]),
    ("features", &["sim"]),
    ("server", &["store", "protocol", "sim", "findings"]),
    ("client", &["protocol", "strategy"]),
    ("record", &["client", "sim"]),
    ("lab", &["record", "client", "sim", "protocol", "findings"]),
    ("cli", &["lab", "record", "server", "client", "sim", "findings", "features"]),
    ("native", &["client", "record", "sim", "features"]),
    ("world", &["server", "client"]),
];
/// Additional crates that the tests of a crate may use: scripted peers and certificates; a server, where calls are tested over sockets
/// or a server is measured; the table of replies for the page of errors; the crate itself with its checks on; the
/// simulator that a client with a strategy is compared with.
const ALLOWED_DEV_DEPENDENCIES: [(&str, &[&str]); 7] = [
    ("cli", &["protocol", "peers"]),
    ("store", &["store"]),
    ("server", &["peers"]),
    ("client", &["server", "peers"]),
    ("record", &["server", "peers"]),
    ("lab", &["server", "peers"]),
    ("world", &["sim"]),
];
/// Crates without socket, file, clock or thread: their `clippy.toml` forbids these, the same in each.
const PURE_CRATES: [&str; 5] = ["protocol", "store", "strategy", "findings", "sim"];

/// What the rules of a pure crate must forbid at least.
const MUST_BE_FORBIDDEN: &[&str] = &[
    "std::net::TcpStream",
    "std::os::unix::net::UnixStream",
    "std::fs::File",
    "std::fs::read",
    "std::fs::write",
    "std::thread::Builder",
    "std::thread::spawn",
    "std::thread::scope",
    "std::thread::sleep",
    "std::thread::yield_now",
    "std::env::var",
    "std::env::args",
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "rustix::net::socket",
    "rustix::net::connect",
    "rustix::fs::open",
    "rustix::time::clock_gettime",
    "rustix::thread::nanosleep",
];

#[test]
fn crates_use_only_crates_below_them() {
    let workspace = parse_manifest("Cargo.toml");
    let mut findings = Vec::new();
    for file in list_files() {
        let crate_of = |file: &str| {
            Some(file.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?.to_owned())
        };
        if let Some(name) = crate_of(&file) {
            findings.extend(find_violations(&name, &parse_manifest(&file), &workspace));
        }
    }
    assert_none(&findings, "crates use only crates below them");
}

fn parse_manifest(file: &str) -> Table {
    read(file).unwrap().parse().unwrap()
}

fn find_violations(name: &str, manifest: &Table, workspace: &Table) -> Vec<String> {
    let allowed_by_crate: BTreeMap<&str, &[&str]> = ALLOWED_DEPENDENCIES.into();
    let allowed_for_tests_by_crate: BTreeMap<&str, &[&str]> = ALLOWED_DEV_DEPENDENCIES.into();
    let Some(allowed) = allowed_by_crate.get(name) else {
        return vec![format!("crates/{name} is in no layer")];
    };
    let allowed_for_tests = allowed_for_tests_by_crate.get(name).copied().unwrap_or_default();
    let mut violations = Vec::new();
    for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
        for used_crate in list_our_dependencies(kind, manifest, workspace) {
            let is_for_tests =
                kind == "dev-dependencies" && allowed_for_tests.contains(&used_crate.as_str());
            if !allowed.contains(&used_crate.as_str()) && !is_for_tests {
                violations.push(format!("{name} uses {used_crate} ({kind})"));
            }
        }
    }
    violations
}

/// Our crates among the dependencies of one kind, on any target, by their own name whatever they are called here.
fn list_our_dependencies(kind: &str, manifest: &Table, workspace: &Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(|targets| targets.as_table());
    let target_tables = targets.into_iter().flatten().filter_map(|(_, table)| table.get(kind));
    let tables = manifest.get(kind).into_iter().chain(target_tables);
    let shared_dependencies =
        workspace.get("workspace").and_then(|table| table.get("dependencies"));
    let mut used = Vec::new();
    for (name, dependency) in tables.filter_map(|table| table.as_table()).flatten() {
        let is_shared = dependency.get("workspace").is_some();
        let shared_dependency = shared_dependencies
            .and_then(|dependencies| dependencies.get(name))
            .filter(|_| is_shared);
        let package = [Some(dependency), shared_dependency]
            .into_iter()
            .flatten()
            .find_map(|dependency| dependency.get("package")?.as_str())
            .unwrap_or(name);
        used.extend(package.strip_prefix("glasscache-").map(str::to_owned));
    }
    used
}

#[test]
fn the_architecture_diagram_matches_the_allowed_uses() {
    let diagram_dependencies = parse_diagram(&read("ARCHITECTURE.md").unwrap());
    let find_difference = |(name, allowed): &(&str, &[&str])| {
        let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
        let diagram_names: Option<BTreeSet<&str>> =
            diagram_dependencies.get(*name).map(|names| names.iter().map(String::as_str).collect());
        (diagram_names.as_ref() != Some(&allowed))
            .then(|| format!("{name}: drawn {diagram_names:?}"))
    };
    let findings: Vec<String> = ALLOWED_DEPENDENCIES.iter().filter_map(find_difference).collect();
    assert_none(&findings, "the diagram in ARCHITECTURE.md shows the allowed uses");
}

/// The arrows in the first diagram of a document: each crate with the crates that it uses.
fn parse_diagram(document: &str) -> BTreeMap<String, BTreeSet<String>> {
    let drawing = document.split("```").nth(1).unwrap_or_default();
    let split_names = |column: &str| -> Vec<String> {
        let names = column.trim().split(", ").filter(|name| !name.contains(' '));
        names.map(str::to_owned).collect()
    };
    let mut diagram_dependencies = BTreeMap::new();
    for line in drawing.lines() {
        let parts: Vec<&str> = line.split(" ──► ").collect();
        for pair in parts.windows(2) {
            // Columns are two spaces apart: the user is the last column before an arrow, the used crates are the
            // first after it.
            let user_column = pair[0].trim_end().rsplit("  ").next().unwrap_or_default();
            let used_column = pair[1].split("  ").next().unwrap_or_default();
            for user in split_names(user_column) {
                diagram_dependencies.insert(user, split_names(used_column).into_iter().collect());
            }
        }
    }
    diagram_dependencies
}

#[test]
fn pure_crates_forbid_sockets_files_clocks_and_threads() {
    let rules = PURE_CRATES.map(|name| (name, read(&format!("crates/{name}/clippy.toml"))));
    assert_none(&find_crates_with_wrong_rules(&rules), "pure crates have the same rules");
}

#[test]
fn the_rules_of_pure_crates_name_every_way_out() {
    let rules = read("crates/protocol/clippy.toml").unwrap();
    let missing = MUST_BE_FORBIDDEN.iter().filter(|name| !does_forbid(&rules, name));
    let missing: Vec<String> = missing.map(|name| (*name).to_owned()).collect();
    assert_none(&missing, "the rules of pure crates forbid these");
}

/// Whether the rules of a crate forbid a type or function.
fn does_forbid(rules_text: &str, name: &str) -> bool {
    let rules: Table = rules_text.parse().unwrap();
    let lists = ["disallowed-types", "disallowed-methods"].map(|key| rules.get(key));
    let entries = lists.into_iter().flatten().filter_map(|list| list.as_array());
    let mut paths = entries.flatten().filter_map(|entry| entry.get("path")?.as_str());
    paths.any(|path| path == name)
}

/// The crates whose rules are missing or differ from those of the first.
fn find_crates_with_wrong_rules(rules: &[(&str, Option<String>)]) -> Vec<String> {
    let (_, first_rules) = &rules[0];
    let wrong_crates = rules.iter().filter(|(_, text)| text.is_none() || text != first_rules);
    wrong_crates
        .map(|(name, _)| format!("crates/{name}/clippy.toml is missing or differs"))
        .collect()
}

mod tests {
    use super::*;

    fn find_violations_in(name: &str, manifest: &str) -> Vec<String> {
        let workspace =
            r#"workspace.dependencies.renamed = { package = "glasscache-server", path = "x" }"#;
        find_violations(name, &manifest.parse().unwrap(), &workspace.parse().unwrap())
    }

    #[test]
    fn finds_upward_uses_in_every_manifest_table() {
        for table in [
            "[dependencies]\nglasscache-server.workspace = true",
            "[build-dependencies]\nglasscache-server = { path = \"../server\" }",
            "[dev-dependencies]\nglasscache-server.workspace = true",
            "[target.'cfg(unix)'.dependencies]\nglasscache-server.workspace = true",
            "[target.'cfg(unix)'.dev-dependencies]\nglasscache-server.workspace = true",
            "[dependencies]\nother = { package = \"glasscache-server\", path = \"../server\" }",
            "[dependencies]\nrenamed.workspace = true",
        ] {
            assert_eq!(find_violations_in("sim", table).len(), 1, "{table}");
        }
    }

    #[test]
    fn allows_uses_below_and_those_of_tests() {
        let below = "[dependencies]\nglasscache-protocol.workspace = true\nthiserror = \"2\"";
        assert_eq!(find_violations_in("client", below), Vec::<String>::new());
        let itself = "[dev-dependencies]\nglasscache-store = { path = \".\" }";
        assert_eq!(find_violations_in("store", itself), Vec::<String>::new());
        assert_eq!(find_violations_in("unknown", "").len(), 1);
    }

    #[test]
    fn reads_the_arrows_of_a_diagram() {
        let text = "Text.\n```\nlayer 2  top   a ──► b, c     d ──► c\nlayer 1  base  b, c ──► nothing of ours\n```";
        let found = parse_diagram(text);
        let uses = |name: &str| found[name].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!((uses("a"), uses("d")), (vec!["b", "c"], vec!["c"]));
        assert_eq!((uses("b"), uses("c")), (Vec::new(), Vec::new()));
    }

    #[test]
    fn finds_what_rules_do_not_forbid() {
        let rules = r#"disallowed-methods = [{ path = "std::env::var", reason = "pure" }]"#;
        assert!(does_forbid(rules, "std::env::var"));
        assert!(!does_forbid(rules, "std::thread::sleep"));
    }

    #[test]
    fn finds_missing_and_different_rules() {
        let same = || Some("rules".to_owned());
        assert_eq!(
            find_crates_with_wrong_rules(&[("a", same()), ("b", same())]),
            Vec::<String>::new()
        );
        assert_eq!(find_crates_with_wrong_rules(&[("a", same()), ("b", None)]).len(), 1);
        assert_eq!(
            find_crates_with_wrong_rules(&[("a", same()), ("b", Some(String::new()))]).len(),
            1
        );
        assert_eq!(find_crates_with_wrong_rules(&[("a", None), ("b", None)]).len(), 2);
    }
}
