//! The modules of a crate and the names that each takes from the others, read from its sources.
//!
//! Not a complete parser: it reads paths that begin with `crate`, `self` or `super`, `use` trees, and in the root the
//! names of its modules. Test-only code does not count, because tests may use any module.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Import, Path};
use super::tokens::split_into_tokens;

/// The modules of a crate and their imports, from its files by their path below `src`.
pub(super) fn read_modules(files: &BTreeMap<String, String>) -> (BTreeSet<Path>, Vec<Import>) {
    let all: BTreeSet<Path> = files.keys().map(|file| to_module_path(file)).collect();
    let mut imports = Vec::new();
    let mut tests = Vec::new();
    for (file, text) in files {
        let mut reader = Reader {
            tokens: split_into_tokens(text),
            at: 0,
            file: to_module_path(file),
            inner: Vec::new(),
            depth: 0,
            modules: &all,
            imports: &mut imports,
            tests: &mut tests,
        };
        reader.read();
    }
    // A file with the tests of another file may have a different name.
    let is_named_so = |module: &Path| module.last().is_some_and(|name| name.ends_with("tests"));
    let is_test =
        |module: &Path| is_named_so(module) || tests.iter().any(|test| module.starts_with(test));
    let modules = all.iter().filter(|module| !is_test(module)).cloned();
    let modules = modules.collect();
    imports.retain(|import| !is_test(&import.from));
    (modules, imports)
}

fn to_module_path(file: &str) -> Path {
    let path = file.strip_suffix(".rs").unwrap_or(file);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    match path {
        "lib" | "main" => Path::new(),
        _ => path.split('/').map(str::to_owned).collect(),
    }
}

struct Reader<'t> {
    tokens: Vec<&'t str>,
    at: usize,
    file: Path,
    /// Inline modules that are open here, each with its brace depth.
    inner: Vec<(String, usize)>,
    depth: usize,
    modules: &'t BTreeSet<Path>,
    imports: &'t mut Vec<Import>,
    /// Test-only modules.
    tests: &'t mut Vec<Path>,
}

impl<'t> Reader<'t> {
    fn read(&mut self) {
        while self.at < self.tokens.len() {
            match self.token_ahead(0) {
                "#" => self.skip_attribute(),
                "mod" if self.token_ahead(2) == "{" => {
                    self.inner
                        .push((self.token_ahead(1).to_owned(), self.depth));
                    self.at += 2;
                }
                "use" if self.token_ahead(1) != "<" => {
                    let is_public = self.is_behind_visibility();
                    self.at += 1;
                    self.read_use_tree(&[], Some(is_public));
                }
                "{" => {
                    self.depth += 1;
                    self.at += 1;
                }
                "}" => {
                    self.depth = self.depth.saturating_sub(1);
                    self.inner.pop_if(|(_, depth)| *depth == self.depth);
                    self.at += 1;
                }
                _ if self.begins_path() => self.read_use_tree(&[], None),
                _ => self.at += 1,
            }
        }
    }

    fn token_ahead(&self, ahead: usize) -> &'t str {
        self.tokens
            .get(self.at + ahead)
            .copied()
            .unwrap_or_default()
    }

    fn previous_token(&self) -> &'t str {
        let before = self.at.checked_sub(1);
        before.map_or("", |at| self.tokens[at])
    }

    /// Whether the current token follows `pub` or `pub(...)`.
    fn is_behind_visibility(&self) -> bool {
        let behind = &self.tokens[..self.at];
        match behind.last() {
            Some(&")") => {
                let opening = behind.iter().rposition(|token| *token == "(");
                opening.is_some_and(|at| at > 0 && behind[at - 1] == "pub")
            }
            last => last == Some(&"pub"),
        }
    }

    /// Whether a path to another module begins here.
    fn begins_path(&self) -> bool {
        let first = self.token_ahead(0);
        let is_anchored = ["crate", "self", "super"].contains(&first);
        let is_module_of_root =
            self.file.is_empty() && self.modules.contains([first.to_owned()].as_slice());
        self.token_ahead(1) == "::"
            && !["::", "."].contains(&self.previous_token())
            && (is_anchored || is_module_of_root)
    }

    /// Skips an attribute, and the item after it if that is test-only.
    fn skip_attribute(&mut self) {
        let is_inner = self.token_ahead(1) == "!";
        self.at += if is_inner { 2 } else { 1 };
        if self.token_ahead(0) != "[" {
            return;
        }
        let from = self.at;
        self.skip_group();
        let attribute = &self.tokens[from..self.at];
        let is_for_tests = |(at, token): (usize, &&str)| {
            *token == "test" && attribute.get(at.wrapping_sub(2)) != Some(&"not")
        };
        let is_cfg = attribute.get(1) == Some(&"cfg");
        if is_cfg && !is_inner && attribute.iter().enumerate().any(is_for_tests) {
            self.skip_item();
        }
    }

    /// Skips brackets and their contents.
    fn skip_group(&mut self) {
        let mut depth = 0usize;
        while self.at < self.tokens.len() {
            match self.token_ahead(0) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// Skips an item; records a module that has its own file.
    fn skip_item(&mut self) {
        while self.token_ahead(0) == "#" {
            self.at += 1;
            self.skip_group();
        }
        let from = self.at;
        while self.at < self.tokens.len() {
            match self.token_ahead(0) {
                ";" => {
                    let item = &self.tokens[from..self.at];
                    if let Some(at) = item.iter().position(|token| *token == "mod") {
                        let name = item.get(at + 1).copied().unwrap_or_default();
                        let module = self.path_in_scope(&[name]);
                        self.tests.push(module);
                    }
                    self.at += 1;
                    return;
                }
                "{" => return self.skip_group(),
                "(" | "[" => self.skip_group(),
                ")" | "]" | "}" => return,
                _ => self.at += 1,
            }
        }
    }

    /// The current module.
    fn scope(&self) -> Path {
        let inner = self.inner.iter().map(|(name, _)| name.clone());
        self.file.iter().cloned().chain(inner).collect()
    }

    fn path_in_scope(&self, names: &[&str]) -> Path {
        let names = names.iter().map(|name| (*name).to_owned());
        self.scope().into_iter().chain(names).collect()
    }

    /// Reads a path, or a tree of paths that begin with `prefix`; `public` is given for those of a `use`.
    fn read_use_tree(&mut self, prefix: &[&'t str], public: Option<bool>) {
        let mut names = prefix.to_vec();
        loop {
            match self.token_ahead(0) {
                "{" => {
                    self.at += 1;
                    while !["}", ""].contains(&self.token_ahead(0)) {
                        let before = self.at;
                        self.read_use_tree(&names, public);
                        if self.token_ahead(0) == "," || self.at == before {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "*" => {
                    self.at += 1;
                    return self.record_import(&names, None, public);
                }
                name if is_name(name) => {
                    names.push(name);
                    self.at += 1;
                }
                _ => break,
            }
            let next = self.token_ahead(1);
            if self.token_ahead(0) != "::" || !(is_name(next) || ["{", "*"].contains(&next)) {
                break;
            }
            self.at += 1;
        }
        let mut alias = match names.last() {
            Some(&"self") => names.iter().rev().nth(1).copied(),
            last => last.copied(),
        };
        if public.is_some() && self.token_ahead(0) == "as" {
            alias = Some(self.token_ahead(1));
            self.at += 2;
        }
        self.record_import(&names, alias.filter(|_| public.is_some()), public);
    }

    fn record_import(&mut self, names: &[&str], alias: Option<&str>, public: Option<bool>) {
        if let Some(names) = self.path_from_root(names) {
            self.imports.push(Import {
                from: self.file.clone(),
                scope: self.scope(),
                names,
                alias: alias.map(str::to_owned),
                is_public: public == Some(true),
            });
        }
    }

    /// The path from the root; `None` where it leads out of the crate.
    fn path_from_root(&self, names: &[&str]) -> Option<Path> {
        let mut scope = self.scope();
        let mut rest = names;
        match names.first()? {
            &"crate" => {
                scope.clear();
                rest = &names[1..];
            }
            &("self" | "super") => {}
            first if self.modules.contains(&self.path_in_scope(&[*first])) => {}
            _ => return None,
        }
        while let [first @ ("self" | "super"), others @ ..] = rest {
            if *first == "super" {
                scope.pop();
            }
            rest = others;
        }
        // `a::{self, B}` names `a` itself.
        let rest = rest.strip_suffix(&["self"]).unwrap_or(rest);
        scope.extend(rest.iter().map(|name| (*name).to_owned()));
        Some(scope)
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}
