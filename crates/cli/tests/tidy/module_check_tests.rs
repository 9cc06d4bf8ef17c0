//! Tests of the checks in `modules` and of the readers that they use (`graph`, `rust_imports`, `python_imports`):
//! deliberate violations in sources that are not on disk.

use std::collections::BTreeMap;

use super::graph::{Use, find_cycles, resolve_uses};
use super::modules::{find_impure_names, find_order_violations, new_cycle};
use super::{python_imports, rust_imports};

fn read_rust_uses(files: &[(&str, &str)]) -> Vec<Use> {
    let (modules, imports) = rust_imports::read_modules(&to_source_map(files));
    resolve_uses(&modules, &imports)
}

fn to_source_map(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    let to_owned_pair = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
    files.iter().map(to_owned_pair).collect()
}

#[test]
fn finds_cycles_in_every_syntax() {
    let direct_import = "use crate::b::B;";
    for (a, b) in [
        (direct_import, "use crate::a;"),
        (direct_import, "fn f() { crate::a::f(); }"),
        (direct_import, "use super::a::f as g;"),
        (direct_import, "fn f(a: &super::a::A) {}"),
        (direct_import, "pub(crate) use crate::{c::C, a::{self, A}};"),
        (direct_import, "mod inner { use super::super::a::A; }"),
        (direct_import, "macro_rules! m { () => { $crate::a::f() } }"),
        (direct_import, "const QUOTE: char = '\"'; use crate::a::A; // \""),
        (direct_import, "fn f<'a>(x: &'a u8) { let _ = br#\"\"\"#; crate::a::f() }"),
        ("use crate::c::B;", "use crate::a::A;"),
        ("use crate::B;", "use crate::a::A;"),
    ] {
        let found = find_cycles(&read_rust_uses(&[
            ("lib.rs", "mod a; mod b; mod c; pub use b::B;"),
            ("a/mod.rs", a),
            ("b.rs", b),
            ("c.rs", "pub use crate::b::B;"),
        ]));
        let is_found =
            found.iter().any(|cycle| cycle.members.starts_with(&["a".to_owned(), "b".to_owned()]));
        assert!(is_found, "{a} with {b}: {found:?}");
    }
}

#[test]
fn ignores_names_that_are_not_uses() {
    for b in [
        "// use crate::a::A;\n/* use /* crate::a::A; */ crate::a */",
        "const TEXT: &str = \"use crate::a::A; \\\" crate::a::f()\";",
        "const TEXT: &str = r#\"crate::a::f() \" crate::a\"#;",
        "#[cfg(test)]\nmod tests { use crate::a::A; fn f() { crate::a::f() } }",
        "#[cfg(all(test, not(loom)))]\n#[allow(unused)]\nuse crate::a::A;",
        "use other::a::A; fn f() { a::f() }",
    ] {
        let found = find_cycles(&read_rust_uses(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", b),
        ]));
        assert_eq!(found, [], "{b}");
    }
}

#[test]
fn ignores_test_only_files() {
    for (declaration, expected_cycles) in [("#[cfg(test)]\nmod checks;", 0), ("mod checks;", 1)] {
        let found = find_cycles(&read_rust_uses(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", declaration),
            ("b/checks.rs", "use crate::a::A;"),
        ]));
        assert_eq!(found.len(), expected_cycles, "{declaration}");
    }
}

#[test]
fn finds_nested_cycles_at_their_level() {
    let found = find_cycles(&read_rust_uses(&[
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod b; mod c; pub use b::B; use self::c::C;"),
        ("a/b.rs", "use super::C; use super::c::D;"),
        ("a/c/mod.rs", "use super::B;"),
    ]));
    assert_eq!(found, [new_cycle("a", &["b", "c"])]);
}

#[test]
fn finds_cycles_with_the_root() {
    let found = find_cycles(&read_rust_uses(&[
        ("main.rs", "mod a; struct Own; fn main() { a::run() }"),
        ("a.rs", "use crate::Own;"),
    ]));
    assert_eq!(found, [new_cycle("", &["(root)", "a"])]);
}

#[test]
fn finds_python_cycles_in_every_syntax() {
    for (imports, has_cycle) in [
        ("from glasscache.a import f", true),
        ("import glasscache.a", true),
        ("from . import a", true),
        ("from .a import (  # comment\n    f,\n    g as h,\n)", true),
        ("def f():\n    from glasscache.a import f", true),
        ("from glasscache import f", true),
        ("\"\"\"Text.\n\nfrom glasscache.a import f\n\"\"\"", false),
        ("# from glasscache.a import f", false),
        ("from other.a import f", false),
    ] {
        let files = [
            ("__init__.py", "from glasscache.a import f\nfrom glasscache.b import B"),
            ("a.py", "from glasscache.b import B"),
            ("b.py", imports),
        ];
        let (modules, imported) =
            python_imports::read_modules("glasscache", &to_source_map(&files));
        let found = find_cycles(&resolve_uses(&modules, &imported));
        assert_eq!(!found.is_empty(), has_cycle, "{imports}: {found:?}");
    }
}

#[test]
fn finds_sockets_in_pure_folders_but_not_in_comments() {
    let found = find_impure_names("use rustix::net::send;\nfn f(socket: &OwnedFd) {}");
    assert_eq!(found, ["rustix::net", "OwnedFd"]);
    let comment_names =
        find_impure_names("// rustix::net is elsewhere\nconst A: &str = \"OwnedFd\";");
    assert_eq!(comment_names, Vec::<&str>::new());
}

#[test]
fn finds_upward_uses_and_unlisted_modules() {
    let order: &[&[&str]] = &[&["upper"], &["lower", "beside"]];
    let module_uses = read_rust_uses(&[
        ("lib.rs", "mod upper; mod lower; mod beside; mod new;"),
        ("upper.rs", "use crate::lower::L; use crate::new::N;"),
        ("lower.rs", "use crate::upper::U;"),
        ("beside.rs", "use crate::lower::L;"),
        ("new.rs", ""),
    ]);
    let violations = find_order_violations(order, &module_uses);
    assert_eq!(
        violations,
        ["beside uses lower::L", "lower uses upper::U", "new is not in the declared order"]
    );
}
