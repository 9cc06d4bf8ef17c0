//! The graph of module uses, and its cycles among sibling modules.
//!
//! A use counts between the two sibling modules that contain both ends: `net::worker` using `session::output` is a
//! use of `session` by `net`. A module and its submodules may use each other, except for the root of a crate or
//! package: a module may use what the root defines only if the root does not use that module.

use std::collections::{BTreeMap, BTreeSet};

/// A module's path from the root; the root itself is empty.
pub(super) type Path = Vec<String>;

/// The name of the root among its modules.
pub(super) const ROOT: &str = "(root)";

/// A name that one module imports from another, as written in the source.
pub(super) struct Import {
    /// The module of the file that contains it.
    pub(super) from: Path,
    /// The importing module: that of the file, or an inline module in it.
    pub(super) scope: Path,
    /// The path of what is imported, from the root.
    pub(super) names: Path,
    /// The name under which it is available here.
    pub(super) alias: Option<String>,
    /// Whether it is re-exported.
    pub(super) is_public: bool,
}

/// One module uses another.
pub(super) struct Use {
    pub(super) from: Path,
    pub(super) to: Path,
    /// The name as it was resolved.
    pub(super) names: Path,
}

/// A cycle of sibling modules.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cycle {
    /// The module that contains them.
    pub(super) parent: String,
    pub(super) members: Vec<String>,
}

/// Resolves imports to modules. A module that only re-exports names of its submodules does not use them.
pub(super) fn resolve_uses(modules: &BTreeSet<Path>, imports: &[Import]) -> Vec<Use> {
    let aliases: BTreeMap<(&[String], &str), &Path> = imports
        .iter()
        .filter_map(|import| {
            let alias = import.alias.as_deref()?;
            Some(((import.scope.as_slice(), alias), &import.names))
        })
        .collect();
    let uses = imports.iter().filter_map(|import| {
        let names = resolve_alias(&import.names, modules, &aliases);
        let to = find_module(&names, modules).to_vec();
        let is_reexported = import.is_public && to.starts_with(&import.from);
        (to != import.from && !is_reexported).then(|| Use { from: import.from.clone(), to, names })
    });
    uses.collect()
}

/// The longest prefix of `names` that is a module.
fn find_module<'n>(names: &'n [String], modules: &BTreeSet<Path>) -> &'n [String] {
    let lengths = (0..=names.len()).rev();
    let mut prefixes = lengths.map(|length| &names[..length]);
    prefixes.find(|prefix| modules.contains(*prefix)).unwrap_or_default()
}

/// Resolves a re-exported name to its original.
fn resolve_alias(
    names: &[String],
    modules: &BTreeSet<Path>,
    aliases: &BTreeMap<(&[String], &str), &Path>,
) -> Path {
    let mut names = names.to_vec();
    // Bounded, because a glob can create names that refer to themselves.
    for _ in 0..8 {
        let length = find_module(&names, modules).len();
        let Some(name) = names.get(length) else {
            break;
        };
        let Some(target) = aliases.get(&(&names[..length], name.as_str())) else {
            break;
        };
        let remaining_names = names[length + 1..].to_vec();
        let resolved_names = [target.as_slice(), &remaining_names].concat();
        if resolved_names == names {
            break;
        }
        names = resolved_names;
    }
    names
}

/// The two sibling modules between which a use counts, and the module that contains them.
pub(super) fn to_sibling_use(used: &Use) -> Option<(&[String], &str, &str)> {
    let pairs = used.from.iter().zip(&used.to);
    let depth = pairs.take_while(|(from, to)| from == to).count();
    let (from, to) = (used.from.get(depth), used.to.get(depth));
    if depth > 0 && (from.is_none() || to.is_none()) {
        return None;
    }
    Some((&used.from[..depth], from.map_or(ROOT, String::as_str), to.map_or(ROOT, String::as_str)))
}

/// All cycles of sibling modules, at every level.
pub(super) fn find_cycles(uses: &[Use]) -> Vec<Cycle> {
    let mut levels: BTreeMap<&[String], BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for (parent, from, to) in uses.iter().filter_map(to_sibling_use) {
        let level = levels.entry(parent).or_default();
        level.entry(from).or_default().insert(to);
    }
    let mut cycles = Vec::new();
    for (parent, uses_by_module) in levels {
        let reached_by_module: BTreeMap<&str, BTreeSet<&str>> = uses_by_module
            .keys()
            .map(|from| (*from, find_reachable(from, &uses_by_module)))
            .collect();
        let mut seen_members = BTreeSet::new();
        for (module, reached) in &reached_by_module {
            let reaches_back = |other: &&&str| {
                reached_by_module.get(**other).is_some_and(|reached| reached.contains(module))
            };
            let members: Vec<String> =
                reached.iter().filter(reaches_back).map(|member| (*member).to_owned()).collect();
            if reached.contains(module) && seen_members.insert(members.clone()) {
                let parent = parent.join("::");
                cycles.push(Cycle { parent, members });
            }
        }
    }
    cycles
}

/// The modules that are reachable by one or more uses.
fn find_reachable<'m>(
    from: &str,
    uses_by_module: &BTreeMap<&'m str, BTreeSet<&'m str>>,
) -> BTreeSet<&'m str> {
    let mut reached = BTreeSet::new();
    let mut unvisited: Vec<&str> =
        uses_by_module.get(from).into_iter().flatten().copied().collect();
    while let Some(module) = unvisited.pop() {
        if reached.insert(module) {
            unvisited.extend(uses_by_module.get(module).into_iter().flatten());
        }
    }
    reached
}
