//! A second simulator, written line by line from docs/reference/formats.md: slow, simple, and sharing
//! only the log reader with the first.

mod local;

use std::collections::{HashMap, HashSet};

use glasscache_sim::trace::log::{NONE, RequestLog};

use local::NaiveLocalCache;

/// A latency table as written, in microseconds.
pub(crate) struct Table {
    pub(crate) single: Vec<(f64, f64)>,
    pub(crate) batch: Vec<(f64, f64)>,
}

impl Table {
    fn single_us(&self, bytes: u64) -> f64 {
        let size = if bytes < 1 { 1.0 } else { bytes as f64 };
        let (last_size, last_us) = *self.single.last().unwrap();
        if size <= self.single[0].0 {
            return self.single[0].1;
        }
        if size > last_size {
            return last_us * size / last_size;
        }
        for pair in self.single.windows(2) {
            let ((lower_size, lower_us), (upper_size, upper_us)) = (pair[0], pair[1]);
            if lower_size < size && size <= upper_size {
                return lower_us
                    + (upper_us - lower_us) * (size.log10() - lower_size.log10())
                        / (upper_size.log10() - lower_size.log10());
            }
        }
        unreachable!("a size lies below, between or above the knots")
    }

    fn batch_us(&self, keys: usize) -> f64 {
        let key_count = keys as f64;
        if key_count <= self.batch[0].0 || self.batch.len() == 1 {
            return self.batch[0].1;
        }
        let mut neighbours = (self.batch[0], self.batch[1]);
        for pair in self.batch.windows(2) {
            neighbours = (pair[0], pair[1]);
            if key_count <= pair[1].0 {
                break;
            }
        }
        let ((lower_keys, lower_us), (upper_keys, upper_us)) = neighbours;
        lower_us + (upper_us - lower_us) * (key_count - lower_keys) / (upper_keys - lower_keys)
    }

    pub(crate) fn cost_ns(&self, keys: usize, bytes: u64) -> u64 {
        let us = self.single_us(bytes) + self.batch_us(keys) - self.batch_us(1);
        (us * 1000.0 + 0.5).floor() as u64
    }
}

/// What one request did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NaiveStats {
    pub(crate) added_ns: u64,
    pub(crate) calls: u32,
    pub(crate) keys: u32,
    pub(crate) bytes: u64,
    pub(crate) used_keys: u32,
}

struct NaiveState<'a> {
    log: &'a RequestLog,
    table: &'a Table,
    fixed_set: HashSet<u32>,
    /// Items in the scope of the request.
    held_items: HashSet<u32>,
    stats: NaiveStats,
}

impl NaiveState<'_> {
    fn fetch(&mut self, items: &[u32], local_cache: &mut NaiveLocalCache) {
        let missing_items: Vec<u32> = items
            .iter()
            .copied()
            .filter(|item| {
                !self.fixed_set.contains(item)
                    && !self.held_items.contains(item)
                    && !local_cache.contains(*item)
            })
            .collect();
        if missing_items.is_empty() {
            return;
        }
        let bytes =
            missing_items.iter().map(|&item| u64::from(self.log.items.sizes[item as usize])).sum();
        self.stats.added_ns += self.table.cost_ns(missing_items.len(), bytes);
        self.stats.calls += 1;
        self.stats.keys += missing_items.len() as u32;
        self.stats.bytes += bytes;
        for item in missing_items {
            self.held_items.insert(item);
            local_cache.insert(item, self.log.items.near_bytes(item));
        }
    }

    fn children(&self, parent: u32) -> Vec<u32> {
        let parents = &self.log.items.parents;
        (0..parents.len() as u32).filter(|&child| parents[child as usize] == parent).collect()
    }
}

/// Simulates a strategy, request by request in file order.
pub(crate) fn simulate(
    log: &RequestLog,
    table: &Table,
    notation: &str,
    children: &[Vec<u32>],
) -> Vec<NaiveStats> {
    let terms: Vec<&str> = notation.split('+').collect();
    let subtree_depth: Option<usize> = terms
        .iter()
        .find_map(|term| term.strip_prefix("subtree:"))
        .map(|depth_text| depth_text.parse().unwrap());
    let (fetches_children_always, fetches_children_when_missing) =
        (terms.contains(&"children-always"), terms.contains(&"children"));
    let mut caches_by_instance: HashMap<u16, NaiveLocalCache> = HashMap::new();
    let mut state = NaiveState {
        log,
        table,
        fixed_set: choose_fixed_set(log, table, &terms),
        held_items: HashSet::new(),
        stats: NaiveStats::default(),
    };
    let mut request_stats = vec![];
    for request_index in 0..log.requests.len() {
        let local_cache =
            caches_by_instance.entry(log.requests.instances[request_index]).or_insert_with(|| {
                terms
                    .iter()
                    .map(|term| NaiveLocalCache::new(term))
                    .find(|cache| !matches!(cache, NaiveLocalCache::None))
                    .unwrap_or(NaiveLocalCache::None)
            });
        state.held_items.clear();
        state.stats = NaiveStats::default();
        let mut items_seen = HashSet::new();
        let page = log.requests.pages[request_index];
        if let Some(depth) = subtree_depth
            && page != NONE
            && !children[page as usize].is_empty()
        {
            let (mut fetched_items, mut items_of_level) = (vec![page], vec![page]);
            for _ in 0..depth {
                let mut items_of_next_level: Vec<u32> = items_of_level
                    .iter()
                    .flat_map(|&item| children[item as usize].clone())
                    .collect();
                items_of_next_level.sort_unstable();
                fetched_items.extend(&items_of_next_level);
                items_of_level = items_of_next_level;
            }
            state.fetch(&fetched_items, local_cache);
        }
        for &item in log.requests.items_of(request_index) {
            if !items_seen.insert(item) {
                continue;
            }
            let mut is_available = true;
            if !state.fixed_set.contains(&item) {
                let is_local_hit = local_cache.look_up(item);
                if state.held_items.contains(&item) {
                    state.stats.used_keys += 1;
                } else if is_local_hit {
                    state.held_items.insert(item);
                } else {
                    is_available = false;
                    state.stats.used_keys += 1;
                }
            }
            let item_and_children = || [vec![item], children[item as usize].clone()].concat();
            if fetches_children_always || (fetches_children_when_missing && !is_available) {
                state.fetch(&item_and_children(), local_cache);
            } else if !is_available {
                state.fetch(&[item], local_cache);
            }
        }
        request_stats.push(state.stats);
    }
    request_stats
}

/// The children of every item, ascending.
pub(crate) fn all_children(log: &RequestLog) -> Vec<Vec<u32>> {
    let table = Table { single: vec![(1.0, 1.0)], batch: vec![(1.0, 1.0)] };
    let state = NaiveState {
        log,
        table: &table,
        fixed_set: HashSet::new(),
        held_items: HashSet::new(),
        stats: NaiveStats::default(),
    };
    let parent_items: HashSet<u32> = log.items.parents.iter().copied().collect();
    let children_of = |item| {
        if parent_items.contains(&item) { state.children(item) } else { vec![] }
    };
    (0..log.items.len() as u32).map(children_of).collect()
}

fn choose_fixed_set(log: &RequestLog, table: &Table, terms: &[&str]) -> HashSet<u32> {
    let request_count = log.requests.len();
    for term in terms {
        let Some((name, argument)) = term.split_once(':') else {
            continue;
        };
        let request_end = if name == "fixed-hindsight" { request_count } else { request_count / 2 };
        let mut uses = vec![0u64; log.items.len()];
        for request_index in 0..request_end {
            let distinct_items: HashSet<u32> =
                log.requests.items_of(request_index).iter().copied().collect();
            for item in distinct_items {
                uses[item as usize] += 1;
            }
        }
        let size_of = |item: u32| u64::from(log.items.sizes[item as usize]);
        let memory_of = |item: u32| u64::from(log.items.fixed_bytes(item));
        let cost_ns_of_all_uses = |item: u32| uses[item as usize] * table.cost_ns(1, size_of(item));
        let mut order: Vec<u32> = (0..log.items.len() as u32).collect();
        order.retain(|&item| uses[item as usize] > 0);
        match name {
            "fixed" | "fixed-hindsight" => {
                order.sort_by_key(|&item| std::cmp::Reverse(uses[item as usize]));
            }
            "fixed-time" => order.sort_by_key(|&item| std::cmp::Reverse(cost_ns_of_all_uses(item))),
            "fixed-bytes" => {
                let cost_per_byte = |item: u32| {
                    (u128::from(cost_ns_of_all_uses(item)) << 40) / u128::from(memory_of(item))
                };
                order.sort_by_key(|&item| std::cmp::Reverse(cost_per_byte(item)));
                let mut remaining_bytes: u64 = argument.parse().unwrap();
                let mut chosen_items = HashSet::new();
                for item in order {
                    if memory_of(item) <= remaining_bytes {
                        remaining_bytes -= memory_of(item);
                        chosen_items.insert(item);
                    }
                }
                return chosen_items;
            }
            _ => continue,
        }
        return order.into_iter().take(argument.parse().unwrap()).collect();
    }
    HashSet::new()
}
