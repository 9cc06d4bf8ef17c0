//! The modules of a crate and the names that each takes from the others, read from its sources.
//!
//! Not a complete parser: it reads paths that begin with `crate`, `self` or `super`, `use` trees, and in the root the
//! names of its modules. Test-only code does not count, because tests may use any module.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Import, Path};
use super::tokens::split_into_tokens;

/// The modules of a crate and their imports, from its files by their path below `src`.
pub(super) fn read_modules(files: &BTreeMap<String, String>) -> (BTreeSet<Path>, Vec<Import>) {
    let all_modules: BTreeSet<Path> = files.keys().map(|file| to_module_path(file)).collect();
    let mut imports = Vec::new();
    let mut test_modules = Vec::new();
    for (file, text) in files {
        let mut reader = Reader {
            tokens: split_into_tokens(text),
            index: 0,
            file: to_module_path(file),
            inline_modules: Vec::new(),
            depth: 0,
            modules: &all_modules,
            imports: &mut imports,
            test_modules: &mut test_modules,
        };
        reader.read();
    }
    // A file with the tests of another file may have a different name.
    let is_named_tests = |module: &Path| module.last().is_some_and(|name| name.ends_with("tests"));
    let is_test = |module: &Path| {
        is_named_tests(module)
            || test_modules.iter().any(|test_module| module.starts_with(test_module))
    };
    let modules = all_modules.iter().filter(|module| !is_test(module)).cloned();
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
    index: usize,
    file: Path,
    /// Inline modules that are open here, each with its brace depth.
    inline_modules: Vec<(String, usize)>,
    depth: usize,
    modules: &'t BTreeSet<Path>,
    imports: &'t mut Vec<Import>,
    /// Test-only modules.
    test_modules: &'t mut Vec<Path>,
}

impl<'t> Reader<'t> {
    fn read(&mut self) {
        while self.index < self.tokens.len() {
            match self.token_ahead(0) {
                "#" => self.skip_attribute(),
                "mod" if self.token_ahead(2) == "{" => {
                    self.inline_modules.push((self.token_ahead(1).to_owned(), self.depth));
                    self.index += 2;
                }
                "use" if self.token_ahead(1) != "<" => {
                    let is_public = self.is_behind_visibility();
                    self.index += 1;
                    self.read_use_tree(&[], Some(is_public));
                }
                "{" => {
                    self.depth += 1;
                    self.index += 1;
                }
                "}" => {
                    self.depth = self.depth.saturating_sub(1);
                    self.inline_modules.pop_if(|(_, depth)| *depth == self.depth);
                    self.index += 1;
                }
                _ if self.begins_path() => self.read_use_tree(&[], None),
                _ => self.index += 1,
            }
        }
    }

    fn token_ahead(&self, ahead: usize) -> &'t str {
        self.tokens.get(self.index + ahead).copied().unwrap_or_default()
    }

    fn previous_token(&self) -> &'t str {
        let previous_index = self.index.checked_sub(1);
        previous_index.map_or("", |index| self.tokens[index])
    }

    /// Whether the current token follows `pub` or `pub(...)`.
    fn is_behind_visibility(&self) -> bool {
        let previous_tokens = &self.tokens[..self.index];
        match previous_tokens.last() {
            Some(&")") => {
                let opening = previous_tokens.iter().rposition(|token| *token == "(");
                opening.is_some_and(|index| index > 0 && previous_tokens[index - 1] == "pub")
            }
            last => last == Some(&"pub"),
        }
    }

    /// Whether a path to another module begins here.
    fn begins_path(&self) -> bool {
        let first_name = self.token_ahead(0);
        let is_anchored = ["crate", "self", "super"].contains(&first_name);
        let is_module_of_root =
            self.file.is_empty() && self.modules.contains([first_name.to_owned()].as_slice());
        self.token_ahead(1) == "::"
            && !["::", "."].contains(&self.previous_token())
            && (is_anchored || is_module_of_root)
    }

    /// Skips an attribute, and the item after it if that is test-only.
    fn skip_attribute(&mut self) {
        let is_inner = self.token_ahead(1) == "!";
        self.index += if is_inner { 2 } else { 1 };
        if self.token_ahead(0) != "[" {
            return;
        }
        let start = self.index;
        self.skip_group();
        let attribute = &self.tokens[start..self.index];
        let is_for_tests = |(token_index, token): (usize, &&str)| {
            *token == "test" && attribute.get(token_index.wrapping_sub(2)) != Some(&"not")
        };
        let is_cfg = attribute.get(1) == Some(&"cfg");
        if is_cfg && !is_inner && attribute.iter().enumerate().any(is_for_tests) {
            self.skip_item();
        }
    }

    /// Skips brackets and their contents.
    fn skip_group(&mut self) {
        let mut depth = 0usize;
        while self.index < self.tokens.len() {
            match self.token_ahead(0) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.index += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// Skips an item; records a module that has its own file.
    fn skip_item(&mut self) {
        while self.token_ahead(0) == "#" {
            self.index += 1;
            self.skip_group();
        }
        let start = self.index;
        while self.index < self.tokens.len() {
            match self.token_ahead(0) {
                ";" => {
                    let item = &self.tokens[start..self.index];
                    if let Some(mod_index) = item.iter().position(|token| *token == "mod") {
                        let name = item.get(mod_index + 1).copied().unwrap_or_default();
                        let module = self.path_in_scope(&[name]);
                        self.test_modules.push(module);
                    }
                    self.index += 1;
                    return;
                }
                "{" => return self.skip_group(),
                "(" | "[" => self.skip_group(),
                ")" | "]" | "}" => return,
                _ => self.index += 1,
            }
        }
    }

    /// The current module.
    fn scope(&self) -> Path {
        let inline_names = self.inline_modules.iter().map(|(name, _)| name.clone());
        self.file.iter().cloned().chain(inline_names).collect()
    }

    fn path_in_scope(&self, names: &[&str]) -> Path {
        let names = names.iter().map(|name| (*name).to_owned());
        self.scope().into_iter().chain(names).collect()
    }

    /// Reads a path, or a tree of paths that begin with `prefix`; `is_public_use` is given for those of a `use`.
    fn read_use_tree(&mut self, prefix: &[&'t str], is_public_use: Option<bool>) {
        let mut names = prefix.to_vec();
        loop {
            match self.token_ahead(0) {
                "{" => {
                    self.index += 1;
                    while !["}", ""].contains(&self.token_ahead(0)) {
                        let start = self.index;
                        self.read_use_tree(&names, is_public_use);
                        if self.token_ahead(0) == "," || self.index == start {
                            self.index += 1;
                        }
                    }
                    self.index += 1;
                    return;
                }
                "*" => {
                    self.index += 1;
                    return self.record_import(&names, None, is_public_use);
                }
                name if is_name(name) => {
                    names.push(name);
                    self.index += 1;
                }
                _ => break,
            }
            let next = self.token_ahead(1);
            if self.token_ahead(0) != "::" || !(is_name(next) || ["{", "*"].contains(&next)) {
                break;
            }
            self.index += 1;
        }
        let mut alias = match names.last() {
            Some(&"self") => names.iter().rev().nth(1).copied(),
            last => last.copied(),
        };
        if is_public_use.is_some() && self.token_ahead(0) == "as" {
            alias = Some(self.token_ahead(1));
            self.index += 2;
        }
        self.record_import(&names, alias.filter(|_| is_public_use.is_some()), is_public_use);
    }

    fn record_import(&mut self, names: &[&str], alias: Option<&str>, is_public_use: Option<bool>) {
        if let Some(names) = self.path_from_root(names) {
            self.imports.push(Import {
                from: self.file.clone(),
                scope: self.scope(),
                names,
                alias: alias.map(str::to_owned),
                is_public: is_public_use == Some(true),
            });
        }
    }

    /// The path from the root; `None` where it leads out of the crate.
    fn path_from_root(&self, names: &[&str]) -> Option<Path> {
        let mut path = self.scope();
        let mut remaining_names = names;
        match names.first()? {
            &"crate" => {
                path.clear();
                remaining_names = &names[1..];
            }
            &("self" | "super") => {}
            first if self.modules.contains(&self.path_in_scope(&[*first])) => {}
            _ => return None,
        }
        while let [first @ ("self" | "super"), others @ ..] = remaining_names {
            if *first == "super" {
                path.pop();
            }
            remaining_names = others;
        }
        // `a::{self, B}` names `a` itself.
        let remaining_names = remaining_names.strip_suffix(&["self"]).unwrap_or(remaining_names);
        path.extend(remaining_names.iter().map(|name| (*name).to_owned()));
        Some(path)
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}
