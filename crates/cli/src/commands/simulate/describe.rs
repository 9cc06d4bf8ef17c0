//! Strategies in words: what a process keeps, and what it fetches together.

use glasscache_lab::text::{format_count, format_count_of};
use glasscache_sim::page::format_short_bytes;
use glasscache_sim::strategy::report::KeptSizes;
use glasscache_sim::strategy::{ChildrenRule, LocalRule, Strategy};

/// A strategy in words, such as "keep 312 items (4.00 MiB); LRU for 584 others; fetch children with what is missing".
pub(super) fn describe(strategy: &Strategy, kept: &KeptSizes) -> String {
    let mut clauses = Vec::new();
    let has_fixed = strategy.fixed.is_some();
    if has_fixed {
        let items = format_count_of(kept.fixed_items, "item", "items");
        clauses.push(format!("keep {items} ({})", format_short_bytes(kept.fixed_bytes)));
    }
    let format_others = |item_count: usize| {
        if has_fixed {
            format!("{} others", format_count(item_count as u64))
        } else {
            format_count_of(item_count as u64, "item", "items")
        }
    };
    match strategy.local {
        LocalRule::Nothing => {}
        LocalRule::Lru(item_count) => {
            clauses.push(format!("LRU for {}", format_others(item_count)));
        }
        LocalRule::S3Fifo(item_count) => {
            clauses.push(format!("S3-FIFO for {}", format_others(item_count)));
        }
        LocalRule::S4Fifo(item_count, settings) => {
            clauses.push(format!("S4-FIFO ({settings}) for {}", format_others(item_count)));
        }
        LocalRule::Tuned(item_count) => {
            let items = format_others(item_count);
            clauses.push(format!("the server's policy, which tunes itself, for {items}"));
        }
        LocalRule::LruBytes(bytes) => {
            clauses.push(format!("LRU for {}", format_short_bytes(bytes)));
        }
    }
    match strategy.children {
        ChildrenRule::Never => {}
        ChildrenRule::WhenMissing => clauses.push("fetch children with a missing item".to_owned()),
        ChildrenRule::Always => clauses.push("fetch the children of every item".to_owned()),
    }
    match strategy.subtree_depth {
        None => {}
        Some(1) => clauses.push("fetch children with the page".to_owned()),
        Some(depth) => clauses.push(format!("fetch {depth} levels below the page with it")),
    }
    if let Some(percent) = strategy.companion_share_percent {
        clauses.push(format!("fetch with an item what {percent} % of its requests also read"));
    }
    if clauses.is_empty() {
        clauses.push("keep nothing, fetch each item alone".to_owned());
    }
    clauses.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe_notation(notation: &str) -> String {
        let kept = KeptSizes { fixed_items: 312, fixed_bytes: 4 << 20, local_bytes: 0 };
        describe(&notation.parse().unwrap(), &kept)
    }

    #[test]
    fn each_term_of_the_notation_is_described_in_words() {
        assert_eq!(describe_notation("remote"), "keep nothing, fetch each item alone");
        assert_eq!(
            describe_notation("fixed-bytes:4m+s3fifo:584+subtree:1"),
            "keep 312 items (4.00 MiB); S3-FIFO for 584 others; fetch children with the page"
        );
        assert_eq!(
            describe_notation("lru:1+children"),
            "LRU for 1 item; fetch children with a missing item"
        );
        assert_eq!(
            describe_notation("lru-bytes:1m+children-always+subtree:3"),
            "LRU for 1.00 MiB; fetch the children of every item; fetch 3 levels below the page with it"
        );
        assert_eq!(
            describe_notation("s4fifo:20:small=0.05,skip=0.25"),
            "S4-FIFO (small=0.05,main=2,ghost-main=0,ghost=0.9,skip=0.25) for 20 items"
        );
        assert_eq!(
            describe_notation("fixed:312+tuned:600"),
            "keep 312 items (4.00 MiB); the server's policy, which tunes itself, for 600 others"
        );
        assert_eq!(
            describe_notation("together:80"),
            "fetch with an item what 80 % of its requests also read"
        );
    }
}
