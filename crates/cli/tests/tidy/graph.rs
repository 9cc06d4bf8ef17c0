//! Which module uses which, and where neighbours use each other in a loop.
//!
//! A use counts between the two neighbours under which it passes: `net::worker` using `session::output` is a use of
//! `session` by `net`. A module and what lies inside it may use each other, save for the root of a crate or package:
//! nothing uses what the root defines unless the root uses nothing of it.

use std::collections::{BTreeMap, BTreeSet};

/// A module's path from the root; the root itself is empty.
pub(super) type Path = Vec<String>;

/// How the root is called among its modules.
pub(super) const ROOT: &str = "(root)";

/// A name that one module takes from another, as it stands in the source.
pub(super) struct Import {
    /// The module in whose file it stands.
    pub(super) from: Path,
    /// The module for which it stands: that of the file, or one written out in it.
    pub(super) scope: Path,
    /// What is named, from the root.
    pub(super) names: Path,
    /// The name that it has from here on, by which others may reach it.
    pub(super) alias: Option<String>,
    /// It is handed on to others.
    pub(super) is_public: bool,
}

/// One module uses another.
pub(super) struct Use {
    pub(super) from: Path,
    pub(super) to: Path,
    /// The name as it was resolved.
    pub(super) names: Path,
}

/// Neighbours that use each other in a loop.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cycle {
    /// The module in which they lie.
    pub(super) within: String,
    pub(super) members: Vec<String>,
}

/// The modules behind the names. A module that only hands on the names of what lies inside it does not use them.
pub(super) fn uses(modules: &BTreeSet<Path>, imports: &[Import]) -> Vec<Use> {
    let aliases: BTreeMap<(&[String], &str), &Path> = imports
        .iter()
        .filter_map(|import| {
            let alias = import.alias.as_deref()?;
            Some(((import.scope.as_slice(), alias), &import.names))
        })
        .collect();
    let used = imports.iter().filter_map(|import| {
        let names = behind(&import.names, modules, &aliases);
        let to = module_of(&names, modules).to_vec();
        let is_handed_on = import.is_public && to.starts_with(&import.from);
        (to != import.from && !is_handed_on).then(|| Use {
            from: import.from.clone(),
            to,
            names,
        })
    });
    used.collect()
}

/// The longest beginning of `names` that is a module.
fn module_of<'n>(names: &'n [String], modules: &BTreeSet<Path>) -> &'n [String] {
    let longest = (0..=names.len()).rev();
    let mut beginnings = longest.map(|length| &names[..length]);
    beginnings
        .find(|beginning| modules.contains(*beginning))
        .unwrap_or_default()
}

/// The name itself in place of one under which others hand it on.
fn behind(
    names: &[String],
    modules: &BTreeSet<Path>,
    aliases: &BTreeMap<(&[String], &str), &Path>,
) -> Path {
    let mut names = names.to_vec();
    // Bounded, for a glob can make names that lead back to themselves.
    for _ in 0..8 {
        let length = module_of(&names, modules).len();
        let Some(name) = names.get(length) else {
            break;
        };
        let Some(target) = aliases.get(&(&names[..length], name.as_str())) else {
            break;
        };
        let further = names[length + 1..].to_vec();
        let next = [target.as_slice(), &further].concat();
        if next == names {
            break;
        }
        names = next;
    }
    names
}

/// The two neighbours between which a use counts, and the module in which they lie.
pub(super) fn neighbours(used: &Use) -> Option<(&[String], &str, &str)> {
    let pairs = used.from.iter().zip(&used.to);
    let depth = pairs.take_while(|(from, to)| from == to).count();
    let (from, to) = (used.from.get(depth), used.to.get(depth));
    if depth > 0 && (from.is_none() || to.is_none()) {
        return None;
    }
    Some((
        &used.from[..depth],
        from.map_or(ROOT, String::as_str),
        to.map_or(ROOT, String::as_str),
    ))
}

/// All loops of neighbours, at every level.
pub(super) fn cycles(uses: &[Use]) -> Vec<Cycle> {
    let mut levels: BTreeMap<&[String], BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for (within, from, to) in uses.iter().filter_map(neighbours) {
        let level = levels.entry(within).or_default();
        level.entry(from).or_default().insert(to);
    }
    let mut cycles = Vec::new();
    for (within, used_by) in levels {
        let reached: BTreeMap<&str, BTreeSet<&str>> = used_by
            .keys()
            .map(|from| (*from, reached_from(from, &used_by)))
            .collect();
        let mut seen = BTreeSet::new();
        for (module, reaches) in &reached {
            let is_with = |other: &&&str| reached.get(**other).is_some_and(|r| r.contains(module));
            let members: Vec<String> = reaches
                .iter()
                .filter(is_with)
                .map(|member| (*member).to_owned())
                .collect();
            if reaches.contains(module) && seen.insert(members.clone()) {
                let within = within.join("::");
                cycles.push(Cycle { within, members });
            }
        }
    }
    cycles
}

/// What can be reached by one use or more.
fn reached_from<'m>(
    from: &str,
    used_by: &BTreeMap<&'m str, BTreeSet<&'m str>>,
) -> BTreeSet<&'m str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = used_by.get(from).into_iter().flatten().copied().collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(used_by.get(module).into_iter().flatten());
        }
    }
    reached
}
