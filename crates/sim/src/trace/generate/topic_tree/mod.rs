//! A made-up learning site: a tree of subjects, topics, units, lessons and pages, and its visitors.
//!
//! It stands in for a recorded log, so that everything can be tried without anyone's data. What it
//! takes from real sites: a few items at the top that nearly every request needs (the trail of
//! ancestors above each page), a long tail below, interest that is skewed and drifts through the
//! year, visitors who walk from page to page, and a few routes that ask for far more than the rest.
//! Parameters and their grounds: docs/reference/workloads.md.

mod dice;
mod tree;
mod visits;

use crate::trace::log::{RequestLog, Requests};
use dice::Dice;
use tree::Tree;
use visits::Visitors;

/// Days that a generated log lasts.
pub const DAYS: u64 = 28;

/// What to generate. The default is the log of the reference figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicTree {
    /// How many requests, at least 1.
    pub requests: u32,
    /// How many items, at least 64.
    pub items: u32,
    /// How many application processes serve the requests, at least 1.
    pub instances: u16,
    /// Another seed, another site with other visitors.
    pub seed: u64,
}

impl Default for TopicTree {
    fn default() -> Self {
        Self {
            requests: 200_000,
            items: 20_000,
            instances: 4,
            seed: 1,
        }
    }
}

/// Latencies to go with a generated log: measured medians of a client in another process on the same
/// network, and a distribution around them of the usual shape (a short left side, a long right one).
pub const LATENCY_JSON: &str = include_str!("latency.json");

/// Makes the site and the requests of its visitors, in the order of their time.
pub fn topic_tree(config: &TopicTree) -> RequestLog {
    let mut dice = Dice::new(config.seed);
    let tree = Tree::new(config.items.max(64), &mut dice);
    let mut visits = Visitors::new(&tree, &mut dice).requests(config.requests as usize);
    // Stable, so that requests of one microsecond keep the order in which they were made.
    visits.sort_by_key(|visit| visit.time_us);
    let mut requests = Requests {
        starts: vec![0],
        ..Requests::default()
    };
    requests.routes = visits::ROUTES.map(String::from).to_vec();
    for (number, visit) in visits.into_iter().enumerate() {
        requests.request.push(number as u64);
        requests.time_us.push(visit.time_us);
        requests
            .instance
            .push(dice.below(u32::from(config.instances.max(1))) as u16);
        requests.base_us.push(visit.base_us);
        requests.page.push(visit.page);
        requests.route.push(visit.route);
        requests.items.extend(&visit.items);
        requests.starts.push(requests.items.len());
    }
    RequestLog {
        items: tree.into_items(),
        requests,
        cut: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::log::NONE;

    fn small() -> RequestLog {
        topic_tree(&TopicTree {
            requests: 3000,
            items: 2000,
            ..TopicTree::default()
        })
    }

    #[test]
    fn log_has_the_size_asked_for_and_is_in_order() {
        let log = small();
        assert_eq!((log.items.len(), log.requests.len()), (2000, 3000));
        assert!(log.requests.time_us.is_sorted());
        assert!(log.requests.items.iter().all(|&item| item < 2000));
        assert!(log.requests.instance.iter().all(|&instance| instance < 4));
    }

    #[test]
    fn same_seed_same_log_other_seed_other_log() {
        assert_eq!(small(), small());
        let other = topic_tree(&TopicTree {
            requests: 3000,
            items: 2000,
            seed: 2,
            ..TopicTree::default()
        });
        assert_ne!(small(), other);
    }

    #[test]
    fn tree_is_five_deep_and_parents_come_first() {
        let parents = small().items.parents;
        assert_eq!(parents[0], NONE);
        assert!(
            parents
                .iter()
                .enumerate()
                .skip(1)
                .all(|(item, &parent)| (parent as usize) < item)
        );
        let depth = |mut item: usize| {
            let mut depth = 0;
            while parents[item] != NONE {
                item = parents[item] as usize;
                depth += 1;
            }
            depth
        };
        assert_eq!((0..2000).map(depth).max(), Some(5));
    }
}
