//! The modules of a Python package and the names that each takes from the others, read from its sources.
//!
//! Imports inside functions and for type checkers count as well: they only hide a cycle from the interpreter.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Import, Path};

/// The modules of `package` and their imports, from its files by their path below its folder.
pub(super) fn read_modules(
    package: &str,
    files: &BTreeMap<String, String>,
) -> (BTreeSet<Path>, Vec<Import>) {
    let modules = files.keys().map(|file| to_module_path(file)).collect();
    let mut imports = Vec::new();
    for (file, text) in files {
        let is_package = file.ends_with("__init__.py");
        let from = to_module_path(file);
        let folder = &from[..from.len() - usize::from(!is_package)];
        for statement in list_import_statements(text) {
            for (names, alias) in parse_imported_names(&statement, package, folder) {
                imports.push(Import {
                    from: from.clone(),
                    scope: from.clone(),
                    names,
                    alias,
                    is_public: is_package,
                });
            }
        }
    }
    (modules, imports)
}

fn to_module_path(file: &str) -> Path {
    let path = file.strip_suffix(".py").unwrap_or(file);
    let path = path.strip_suffix("__init__").unwrap_or(path);
    let names = path.split('/').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// The import statements of a source, each on one line.
fn list_import_statements(text: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut is_in_docstring = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let was_in_docstring = is_in_docstring;
        is_in_docstring ^= line.matches("\"\"\"").count() % 2 == 1;
        let line = line.trim();
        if was_in_docstring || !(line.starts_with("from ") || line.starts_with("import ")) {
            continue;
        }
        let mut statement = strip_comment(line).to_owned();
        while statement.contains('(') && !statement.contains(')') {
            let Some(next_line) = lines.next() else { break };
            statement.push(' ');
            statement.push_str(strip_comment(next_line).trim());
        }
        statements.push(statement);
    }
    statements
}

fn strip_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

/// What a statement imports, as paths below the package, with the names that it has from there on.
fn parse_imported_names(
    statement: &str,
    package: &str,
    folder: &[String],
) -> Vec<(Path, Option<String>)> {
    let to_path = |text: &str| -> Path { text.split('.').map(str::to_owned).collect() };
    let Some((source, names)) =
        statement.strip_prefix("from ").and_then(|rest| rest.split_once(" import "))
    else {
        let modules = statement.strip_prefix("import ").unwrap_or_default();
        let paths = modules.split(',').filter_map(|module| {
            let name = module.split_whitespace().next()?;
            let below = name.strip_prefix(package)?.strip_prefix('.')?;
            Some((to_path(below), None))
        });
        return paths.collect();
    };
    let source = source.trim();
    let dot_count = source.len() - source.trim_start_matches('.').len();
    let base = match dot_count {
        0 if source == package => Path::new(),
        0 => match source.strip_prefix(&format!("{package}.")) {
            Some(below) => to_path(below),
            None => return Vec::new(),
        },
        _ => {
            let kept_folders = folder.len().saturating_sub(dot_count - 1);
            let source_path = to_path(&source[dot_count..]);
            let below = source_path.into_iter().filter(|name| !name.is_empty());
            folder[..kept_folders].iter().cloned().chain(below).collect()
        }
    };
    let names = names.trim_matches(|c: char| c.is_whitespace() || c == '(' || c == ')');
    let imported = names.split(',').filter_map(|text| {
        let mut words = text.split_whitespace();
        let name = words.next()?.to_owned();
        let alias = words.nth(1).unwrap_or(&name).to_owned();
        let path = base.iter().cloned().chain([name]).collect();
        Some((path, Some(alias)))
    });
    imported.collect()
}
