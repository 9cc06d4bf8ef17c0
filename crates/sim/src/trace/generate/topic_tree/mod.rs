//! A generated learning site: a tree of subjects, topics, units, lessons and pages, and its visitors.
//!
//! It replaces a recorded log for trying the tools. It has these properties of real sites: a few
//! items at the top that nearly every request needs (the ancestors of each page), a long
//! tail below, skewed interest that drifts through the year, visitors that navigate from page to
//! page, and a few routes that need far more items than the rest. Parameters and their sources:
//! docs/reference/workloads.md.

mod rng;
mod tree;
mod visits;

use crate::trace::log::{RequestLog, Requests};
use rng::TopicTreeRandom;
use tree::TopicTree;
use visits::Visitors;

/// Days that a generated log lasts.
pub const DAYS: u64 = 28;

/// What to generate. The default is the log of the reference figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicTreeConfig {
    /// How many requests, at least 1.
    pub requests: u32,
    /// How many items, at least 64.
    pub items: u32,
    /// How many application processes serve the requests, at least 1.
    pub instances: u16,
    /// Seed of the site and its visitors.
    pub seed: u64,
}

impl Default for TopicTreeConfig {
    fn default() -> Self {
        Self { requests: 200_000, items: 20_000, instances: 4, seed: 1 }
    }
}

/// Latencies to go with a generated log: measured medians of a client in another process on the same
/// network, and a distribution around them of the usual shape (a short left side, a long right one).
pub const LATENCY_JSON: &str = include_str!("latency.json");

/// Makes the site and the requests of its visitors, in the order of their time.
pub fn topic_tree(config: &TopicTreeConfig) -> RequestLog {
    let mut rng = TopicTreeRandom::new(config.seed);
    let tree = TopicTree::new(config.items.max(64), &mut rng);
    let mut visits = Visitors::new(&tree, &mut rng).draw_visits(config.requests as usize);
    // Stable, so that requests of one microsecond keep the order in which they were made.
    visits.sort_by_key(|visit| visit.time_us);
    let mut requests = Requests { starts: vec![0], ..Requests::default() };
    requests.route_names = visits::ROUTES.map(String::from).to_vec();
    for (number, visit) in visits.into_iter().enumerate() {
        requests.numbers.push(number as u64);
        requests.times_us.push(visit.time_us);
        requests.instances.push(rng.below(u32::from(config.instances.max(1))) as u16);
        requests.base_times_us.push(visit.base_us);
        requests.pages.push(visit.page);
        requests.routes.push(visit.route);
        requests.items.extend(&visit.items);
        requests.starts.push(requests.items.len());
    }
    RequestLog { items: tree.into_items(), requests, truncated_after: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::log::NONE;

    fn small_log() -> RequestLog {
        topic_tree(&TopicTreeConfig { requests: 3000, items: 2000, ..TopicTreeConfig::default() })
    }

    #[test]
    fn log_has_the_requested_size_in_time_order() {
        let log = small_log();
        assert_eq!((log.items.len(), log.requests.len()), (2000, 3000));
        assert!(log.requests.times_us.is_sorted());
        assert!(log.requests.items.iter().all(|&item| item < 2000));
        assert!(log.requests.instances.iter().all(|&instance| instance < 4));
    }

    #[test]
    fn logs_depend_on_the_seed_only() {
        assert_eq!(small_log(), small_log());
        let log_of_another_seed = topic_tree(&TopicTreeConfig {
            requests: 3000,
            items: 2000,
            seed: 2,
            ..TopicTreeConfig::default()
        });
        assert_ne!(small_log(), log_of_another_seed);
    }

    #[test]
    fn the_tree_has_six_levels_with_parents_first() {
        let parents = small_log().items.parents;
        assert_eq!(parents[0], NONE);
        assert!(parents.iter().enumerate().skip(1).all(|(item, &parent)| (parent as usize) < item));
        let depth_of = |mut item: usize| {
            let mut depth = 0;
            while parents[item] != NONE {
                item = parents[item] as usize;
                depth += 1;
            }
            depth
        };
        assert_eq!((0..2000).map(depth_of).max(), Some(5));
    }
}
