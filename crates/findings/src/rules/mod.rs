//! The rules, the most important first.

mod connections;
mod items;
mod machine;
mod memory;

use crate::{Figures, Finding};

/// Finds something or nothing.
type Rule = fn(&Figures) -> Option<Finding>;

/// In the order of [`crate::KINDS`].
const RULES: [Rule; crate::KINDS.len()] = [
    connections::find_full,
    connections::find_refused,
    machine::find_swap,
    memory::find_no_memory,
    items::find_never_read_sets,
    memory::find_too_small,
    items::find_hot_key,
    items::find_refused_values,
    items::find_huge_values,
    connections::find_dead_client_pool,
    memory::find_too_large,
    items::find_ttls_alike,
    items::find_no_ttls,
];

/// What is wrong with a server, the most important first; nothing where all is well.
pub fn find(figures: &Figures) -> Vec<Finding> {
    RULES.iter().filter_map(|rule| rule(figures)).collect()
}

#[cfg(test)]
mod tests;
